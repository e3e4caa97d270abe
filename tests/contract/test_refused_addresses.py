"""No client that connects to addresses from users connects to a refused address, however the address is written.

The store may contain refused addresses that were stored before the allow-list was set, so the clients are tested
without the checks of the API. ``tests/integration/test_refused_addresses.py`` tests these checks.
"""

from __future__ import annotations

import asyncio.selector_events
import ipaddress
import socket
from datetime import UTC, datetime
from functools import cache

import pytest

from backend.domain.address_rules import EVERYWHERE, AddressRules
from backend.domain.connection import Reach
from backend.domain.errors import BarrierscopeError
from backend.domain.inspection import ReadThreads
from backend.notify.kinds.port import Message
from backend.notify.sender import Sender
from collectors.flink.kind import FLINK
from collectors.inspecting import inspect
from collectors.probe import probe
from collectors.settings import change_settings
from tests.support.address_forms import ALLOWED, FORMS, LISTED
from tests.support.collector_targets import Row

pytestmark = pytest.mark.anyio

_RULES = AddressRules(is_everything_allowed=False, allowed=ALLOWED)
_PRIVATE, _PUBLIC, _NEW = "10.1.2.3", "93.184.216.34", "2001:db8::7"
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def connected(monkeypatch):
    """Record and return the addresses of all attempted connections.

    Every attempt is refused, and only listed names resolve.
    """
    found = []
    known = LISTED | {"localhost": ("127.0.0.1", "::1"), "flink.example": (_PRIVATE, "127.0.0.1", _PUBLIC, _NEW)}
    look_up = socket.getaddrinfo

    async def sock_connect(self, sock, address):
        found.append(address[0])
        raise ConnectionRefusedError(111, "Connection refused")

    def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
        name = host.decode() if isinstance(host, bytes) else host
        addresses = known.get((name or "").lower().rstrip("."))
        if addresses is None:
            # Numeric hosts are resolved for real, in all forms that the system's resolver accepts.
            return look_up(host, port, family, type, proto, flags | socket.AI_NUMERICHOST)
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (address, port, 0, 0) if ":" in address else (address, port),
            )
            for address in addresses
        ]

    monkeypatch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "sock_connect", sock_connect)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return found


async def _test_a_target(url, rules):
    await probe(url, 5.0, kind="flink", reach=Reach(rules))


async def _collect(url, rules):
    assert FLINK.open is not None
    async with FLINK.open(Row("flink", url), {}, reach=Reach(rules)) as collector:
        await collector.collect(_NOW)


async def _change_settings(url, rules):
    await change_settings(url, "a" * 32, {"x": "1"}, 5.0, "a-token", kind="flink", reach=Reach(rules))


async def _read_threads(url, rules):
    await inspect(url, "a" * 32, ReadThreads("tm-1", "map", 0, 1), 5.0, kind="flink", reach=Reach(rules))


@cache
def _sender(rules):
    # All tests share one sender, because making a TLS context takes long. The sender keeps no connections open.
    return Sender(lambda reference: _SECRETS[reference], rules, timeout_s=5.0)


_SECRETS: dict[str, str] = {}


async def _alert(url, rules):
    assert not (await _sender(rules).post(Message(url, {}))).is_ok


async def _alert_by_reference(url, rules):
    _SECRETS["env:BARRIERSCOPE_SECRET_URL"] = url
    assert not (await _sender(rules).post(Message("env:BARRIERSCOPE_SECRET_URL", {}))).is_ok


_USES = [_test_a_target, _collect, _change_settings, _read_threads, _alert, _alert_by_reference]


async def _use(use, url, rules):
    try:
        await use(url, rules)
    except BarrierscopeError:
        return
    assert use in (_alert, _alert_by_reference), "there is no server, so nothing can succeed"


@pytest.mark.parametrize("use", _USES)
async def test_no_form_of_a_refused_address_is_connected_to(connected, use):
    assert len(FORMS) >= 300
    for number, form in enumerate((*FORMS, *LISTED)):
        url = f"http://{form}:8081/x" if number % 2 else f"https://{form}/"
        await _use(use, url, _RULES)
        # Some clients convert characters of other scripts to ASCII. A form may then become the name on the list,
        # whose addresses are allowed.
        assert set(connected) <= {_PRIVATE, _PUBLIC, _NEW}, form


@pytest.mark.parametrize("use", _USES)
async def test_of_a_name_only_the_allowed_addresses_are_connected_to(connected, use):
    await _use(use, "http://flink.example:8081", _RULES)

    assert set(connected) == {_PRIVATE, _PUBLIC, _NEW}


@pytest.mark.parametrize("use", _USES)
async def test_a_listed_address_is_connected_to(connected, use):
    await _use(use, "http://10.9.8.7:8081", _RULES)

    assert set(connected) == {"10.9.8.7"}


@pytest.mark.parametrize("use", _USES)
async def test_without_rules_these_forms_reach_this_machine(connected, use):
    # This test shows that clients do connect to such forms if no rule refuses them.
    reached = set()
    for form in ("127.0.0.1", "127.1", "2130706433", "localhost", "[::1]", "[::ffff:127.0.0.1]", "v4-0.svc.example"):
        connected.clear()
        await _use(use, f"http://{form}:8081", EVERYWHERE)
        if any(ipaddress.ip_address(a).is_loopback or a == "::ffff:127.0.0.1" for a in connected):
            reached.add(form)

    assert {"127.0.0.1", "localhost", "[::1]", "v4-0.svc.example"} <= reached


async def test_a_configured_receiver_is_reached_at_any_address(connected):
    sender = Sender(lambda reference: None, _RULES, timeout_s=5.0)
    await sender.post(Message("http://127.0.0.1:9093/api/v2/alerts", {}), is_configured=True)
    await sender.aclose()

    assert connected == ["127.0.0.1"]


async def test_a_name_that_resolves_to_another_address_at_the_next_look_up_is_not_followed(connected, monkeypatch):
    answers = [_PUBLIC]
    known = socket.getaddrinfo

    def rebinding(host, port, *args, **kwargs):
        if host not in ("flink.example", b"flink.example"):
            return known(host, port, *args, **kwargs)
        address = answers.pop() if answers else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    for use in _USES:
        answers[:] = [_PUBLIC]
        for _ in range(3):
            await _use(use, "http://flink.example:8081", _RULES)

    assert set(connected) == {_PUBLIC}
