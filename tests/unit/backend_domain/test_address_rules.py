"""Tests of the allow-list: by host, and by the address that is connected to."""

from __future__ import annotations

import pytest

from backend.domain.address_rules import EVERYWHERE, AddressRules, is_host, is_rule
from tests.support.address_forms import ALLOWED, FORMS, LISTED, REFUSED_V4, REFUSED_V6

_RULES = AddressRules(is_everything_allowed=False, allowed=ALLOWED)


def _listing(*allowed):
    return AddressRules(is_everything_allowed=False, allowed=allowed)


@pytest.mark.parametrize(
    ("host", "entry", "is_allowed"),
    [
        ("my-flink", "my-flink", True),
        ("MY-FLINK.", "my-flink", True),
        ("a.flink.example", "*.flink.example", True),
        ("flink.example", "*.flink.example", False),
        ("flink.example", "flink.example.", True),
        ("evilflink.example", "*.flink.example", False),
        ("*.flink.example", "*.flink.example", False),
        ("..flink.example", "*.flink.example", False),
        ("a..flink.example", "*.flink.example", False),
        ("my-flink..", "my-flink", False),
        ("my-flink.evil.example", "my-flink", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.0/8", True),
        ("127.0.0.1", "0.0.0.0/0", False),
        ("169.254.169.254", "0.0.0.0/0", False),
        ("169.254.169.254", "169.254.169.254", True),
        ("169.254.169.254", "10.0.0.0/8", False),
        ("::ffff:10.1.2.3", "10.0.0.0/8", False),
        ("::1", "10.0.0.0/8", False),
        ("::1", "::1/128", True),
        ("::1", "::/0", False),
        ("2001:db8::1", "::/0", True),
        ("2130706433", "127.0.0.0/8", False),
        ("2130706433", "2130706433", False),
    ],
)
def test_a_host_is_allowed_by_name_and_an_ip_address_by_network(host, entry, is_allowed):
    assert _listing(entry).allows_host(host) is is_allowed
    assert _listing("another", entry).allows_host(host) is is_allowed


@pytest.mark.parametrize(
    ("address", "entries", "is_allowed"),
    [
        ("10.1.2.3", ("my-flink",), True),
        ("93.184.216.34", ("my-flink",), True),
        ("2001:db8::1", ("my-flink",), True),
        ("127.0.0.1", ("my-flink",), False),
        ("127.0.0.1", ("my-flink", "127.0.0.1"), True),
        ("127.0.0.1", ("my-flink", "0.0.0.0/0"), False),
        ("::ffff:127.0.0.1", ("my-flink",), False),
        ("::ffff:10.1.2.3", ("my-flink",), True),
        ("64:ff9b::7f00:1", ("my-flink",), False),
        ("64:ff9b::a01:203", ("my-flink",), True),
        ("fe80::1%2", ("my-flink", "fe80::/10"), False),
        ("10.1.2.3", ("10.0.0.0/8",), False),
        ("not an address", ("my-flink",), False),
    ],
)
def test_a_name_is_allowed_by_the_address_that_it_resolves_to(address, entries, is_allowed):
    assert _listing(*entries).allows("my-flink", address) is is_allowed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((entry, True) for entry in ("my-flink", "My-Flink.example.", "*.flink.svc", "10.1.2.3", "10.1.2.3/8")),
        *((entry, True) for entry in ("::1", "fd00::/8", "0.0.0.0/0")),
        *(
            (entry, False)
            for entry in ("", "*", "*.", "**.svc", "a.*.svc", "*.10.1.2.3", "flink:8081", "[::1]", ".svc")
        ),
        *((entry, False) for entry in ("http://flink", "flink/", "10.0.0.0/33", "127.1", "fe80::1%eth0", "a b")),
    ],
)
def test_an_entry_of_the_list_is_a_host_a_domain_or_a_network(text, expected):
    assert is_rule(text) is expected


def test_without_a_list_nothing_is_allowed_and_without_rules_everything():
    assert not _listing().allows_host("my-flink")
    assert not _listing().allows("10.1.2.3", "10.1.2.3")
    assert EVERYWHERE.allows_host("127.0.0.1")
    assert EVERYWHERE.allows("localhost", "127.0.0.1")


@pytest.mark.parametrize("address", [*REFUSED_V4, *REFUSED_V6])
def test_a_special_address_is_allowed_only_if_it_is_on_the_list_itself(address):
    assert not _RULES.allows_host(address)
    assert not _RULES.allows(address, address)
    assert not _RULES.allows("flink.example", address)
    assert _listing(*ALLOWED, address).allows_host(address)
    assert _listing(*ALLOWED, address).allows("flink.example", address)


def test_at_least_300_forms_of_refused_hosts_are_refused():
    assert len(FORMS) >= 300
    assert [form for form in FORMS if _RULES.allows_host(form.strip("[]"))] == []


def test_a_listed_name_that_resolves_to_a_refused_address_is_refused():
    assert all(_RULES.allows_host(name) for name in LISTED)
    assert [n for n, found in LISTED.items() if any(_RULES.allows(n, address) for address in found)] == []


@pytest.mark.parametrize(
    "host", ["a", "a.b", "a.b.", "a_b", "xn--bcher-kva.example", "10.0.0.1", "::1", "1.example", "0x.a"]
)
def test_a_valid_host(host):
    assert is_host(host)


@pytest.mark.parametrize(
    "host",
    ["", ".", "..", "a..b", "*", "*.a", "a b", "1", "1.", "a.1", "a.0x1", "127.1", "01.2.3.4", "ä", "-a", "a-", "a/b"],
)
def test_an_invalid_host(host):
    assert not is_host(host)
