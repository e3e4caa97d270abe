"""The API adds or tests no target, and adds no receiver, at a refused address, however the address is written."""

from __future__ import annotations

import pytest

from backend.api.server import AlertingOptions
from backend.domain.address_rules import AddressRules
from backend.domain.errors import TargetUnavailableError
from tests.support.address_forms import ALLOWED, FORMS
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

_RULES = AddressRules(is_everything_allowed=False, allowed=ALLOWED)


def _requests(url):
    yield "/api/v1/targets", {"url": url}
    yield "/api/v1/targets/test", {"url": url}
    yield "/api/v1/receivers", {"url": url, "name": "on-call", "kind": "webhook"}
    yield "/api/v1/receivers", {"url": "env:BARRIERSCOPE_SECRET_URL", "name": "on-call", "kind": "webhook"}


async def test_every_form_is_refused_in_every_request(engine, clock):
    secret = ""
    probed = []

    async def probe(url, timeout_s, *, kind, reach):
        probed.append(url)
        raise AssertionError(url)

    alerting = AlertingOptions(receiver_rules=_RULES, secrets=lambda reference: secret)
    app = api_over(engine, clock, rules=_RULES, target_probe=probe, alerting=alerting)
    assert len(FORMS) >= 300
    async with asking(app) as client:
        for form in FORMS:
            secret = f"http://{form}/x"
            for path, body in _requests(secret):
                answer = await client.post(path, json=body)
                assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "url"), (path, form)
        assert (await client.get("/api/v1/targets")).json()["items"] == []
        assert (await client.get("/api/v1/receivers")).json()["items"] == []
    assert probed == []


async def test_allowed_addresses_are_added_and_the_probe_gets_the_rules(engine, clock):
    given = []

    async def probe(url, timeout_s, *, kind, reach):
        given.append(reach.rules)
        raise TargetUnavailableError(url=url, reason="nothing listens")

    alerting = AlertingOptions(receiver_rules=_RULES)
    async with asking(api_over(engine, clock, rules=_RULES, target_probe=probe, alerting=alerting)) as client:
        for number, host in enumerate(("flink.example", "a.svc.example", "10.1.2.3", "93.184.216.34", "[2001:db8::1]")):
            url = f"http://{host}:8081"
            assert (await client.post("/api/v1/targets", json={"url": url})).status_code == 201, host
            receiver = {"url": url, "name": f"n{number}", "kind": "webhook"}
            assert (await client.post("/api/v1/receivers", json=receiver)).status_code == 201, host
        await client.post("/api/v1/targets/test", json={"url": "http://flink.example:8081"})

    assert given == 6 * [_RULES]
