"""Addresses of targets: their normal form, invalid ones, and the allow list."""

from __future__ import annotations

import pytest

from backend.domain.errors import InvalidInputError
from backend.services.targets.targets import TargetRules, normalised_url


@pytest.mark.parametrize(
    ("text", "url", "host"),
    [
        ("http://my-flink:8081", "http://my-flink:8081", "my-flink"),
        (" HTTP://My-Flink:8081/ ", "http://my-flink:8081", "my-flink"),
        ("https://flink.example:443/a/b/", "https://flink.example/a/b", "flink.example"),
        ("http://[::1]:8081", "http://[::1]:8081", "::1"),
        ("http://10.0.0.7", "http://10.0.0.7", "10.0.0.7"),
    ],
)
def test_an_address_has_one_normal_form(text, url, host):
    assert normalised_url(text) == (url, host)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "my-flink:8081",
        "ftp://my-flink",
        "file:///etc/passwd",
        "http://",
        "http://my-flink:99999",
        "http://my-flink:port",
        "http://a b/",
        "http://my-flink/?q=1",
        "http://my-flink/#f",
        "http://[::1",
        "http://x/\x00",
    ],
)
def test_an_invalid_address_is_refused_with_the_allowed_form(text):
    with pytest.raises(InvalidInputError) as refused:
        normalised_url(text)

    assert refused.value.problems[0].field == "url"
    assert "http" in (refused.value.problems[0].allowed or "")


def test_credentials_are_refused_and_not_repeated():
    with pytest.raises(InvalidInputError) as refused:
        normalised_url("http://user:hunter2@my-flink:8081")

    assert "hunter2" not in str(refused.value)


def _is_allowed(host, *allowed):
    try:
        TargetRules(is_everything_allowed=False, allowed=allowed).check(host)
    except InvalidInputError:
        return False
    return True


def test_every_address_that_is_not_listed_is_refused():
    assert not _is_allowed("my-flink")
    assert not _is_allowed("127.0.0.1")
    assert TargetRules(is_everything_allowed=True).check("127.0.0.1") is None


@pytest.mark.parametrize(
    ("host", "entry", "is_allowed"),
    [
        ("my-flink", "my-flink", True),
        ("MY-FLINK.", "my-flink", True),
        ("a.flink.example", "*.flink.example", True),
        ("flink.example", "*.flink.example", False),
        ("evilflink.example", "*.flink.example", False),
        ("my-flink.evil.example", "my-flink", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("169.254.169.254", "10.0.0.0/8", False),
        ("::1", "10.0.0.0/8", False),
        ("::1", "::1/128", True),
        ("2130706433", "127.0.0.0/8", False),
    ],
)
def test_a_host_name_is_allowed_by_name_and_an_ip_address_by_network(host, entry, is_allowed):
    assert _is_allowed(host, entry) is is_allowed
