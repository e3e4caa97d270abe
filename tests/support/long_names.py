"""A fake API in which every name of a job, vertex, host, rule, receiver, target and label has 300 characters.

The names have no space, so that a browser finds no place to break them. Users choose all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from tests.support.large_job import LargeJobApi

LENGTH = 300
_NAMES = (
    "payments-settlement", "orders-enrichment", "demo-backpressured", "just-deployed",
    "orders-source", "ledger-sink", "enrich", "Source: main-source", "slow-stage-2 -> sink: Writer", "slow-stage-2",
    "taskmanager-1", "worker-1", "worker-3", "production-eu", "CheckpointExpired", "on-call", "pager", "maria",
)  # fmt: skip
# What the pages use as an address or an identity.
_LEFT = ("runbook", "url", "href", "link", "id", "event")


def long(name: str) -> str:
    """Return the long form of a name."""
    words = "".join(c if c.isalnum() else "_" for c in name) + "_"
    return (words * LENGTH)[:LENGTH]


_LONG = {name: long(name) for name in _NAMES}


def lengthened(value: Any, key: str = "") -> Any:
    """Return a JSON document with long names. Ids and addresses stay as they are."""
    if isinstance(value, Mapping):
        return {k: lengthened(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [lengthened(v, key) for v in value]
    if not isinstance(value, str) or any(key == w or key.endswith((f"_{w}", f"{w}s")) for w in _LEFT):
        return value
    for name, other in _LONG.items():
        if name in value and other not in value:
            value = value.replace(name, other)
            break
    return value


class LongNamesApi(LargeJobApi):
    """The fake API, with long names in every answer."""

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Respond to one request, which may have long names too."""
        url = str(request.url)
        for name, other in _LONG.items():
            url = url.replace(quote(other), quote(name))
        answer = super().handle(httpx.Request(request.method, url, content=request.content))
        if not answer.content:
            return answer
        body = json.dumps(lengthened(json.loads(answer.content))).encode()
        return httpx.Response(answer.status_code, content=body, headers={"content-type": "application/json"})
