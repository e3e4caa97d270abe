"""A credential goes where the kind of the receiver puts it, and does not come back in the result."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx
import pytest

from backend.domain.address_rules import EVERYWHERE
from backend.notify.kinds.port import Message
from backend.notify.sender import Sender

pytestmark = pytest.mark.anyio

_SECRET = "a-routing-key"


def _in_the_body(message, credential):
    return replace(message, body={**message.body, "routing_key": credential})


@pytest.mark.parametrize(
    ("options", "header", "body"),
    [
        ({}, f"Bearer {_SECRET}", {"summary": "late"}),
        ({"with_credential": _in_the_body}, None, {"summary": "late", "routing_key": _SECRET}),
    ],
)
async def test_a_credential_goes_where_the_kind_puts_it_and_is_not_shown(options, header, body):
    requests = []

    async def answer():
        yield f"unknown key {_SECRET}".encode()

    def refuse(request):
        requests.append(request)
        return httpx.Response(400, content=answer())

    sender = Sender(lambda reference: _SECRET, EVERYWHERE, transport=httpx.MockTransport(refuse))
    message = Message("http://pager/", {"summary": "late"}, key="a1-firing", **options)
    sent = await sender.post(message, credential="env:BARRIERSCOPE_SECRET_KEY")
    await sender.aclose()

    (request,) = requests
    assert request.headers.get("Authorization") == header
    assert request.headers["Idempotency-Key"] == "a1-firing"
    assert json.loads(request.content) == body
    assert sent.result == "HTTP 400: unknown key …"
