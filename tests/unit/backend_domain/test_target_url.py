"""Tests of the addresses of targets: their normal form, and invalid addresses."""

from __future__ import annotations

import pytest

from backend.domain.errors import InvalidInputError
from backend.domain.target_url import normalised_url
from collectors.flink.client import parse_target_url


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
        "http://my-flink:0",
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
        "http://a..b",
        "http://*.example",
        "http://2130706433",
        "http://127.1",
        "http://0x7f.0.0.1",
        "http://127.0.0.1.",
        "http://bücher.example",
        "http://-x.example",
        "http://[fe80::1%25eth0]",
    ],
)
def test_an_invalid_address_is_refused_with_the_allowed_form(text):
    with pytest.raises(InvalidInputError) as refused:
        normalised_url(text)

    assert refused.value.problems[0].field == "url"
    assert "http" in (refused.value.problems[0].allowed or "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("my-flink:8081", "does not begin with http:// or https://"),
        ("my-flink", "does not begin with http:// or https://"),
        ("user:secret://flink:8081", "does not begin with http:// or https://"),
        ("ftp://flink:8081", "has the scheme 'ftp'"),
    ],
)
def test_a_host_with_a_port_is_not_taken_for_a_scheme(text, problem):
    with pytest.raises(InvalidInputError) as refused:
        normalised_url(text)
    with pytest.raises(InvalidInputError) as not_read:
        parse_target_url(text)

    assert [e.problem for e in (*refused.value.problems, *not_read.value.problems)] == [problem, problem]


def test_credentials_are_refused_and_not_repeated():
    with pytest.raises(InvalidInputError) as refused:
        normalised_url("http://user:hunter2@my-flink:8081")

    assert "hunter2" not in str(refused.value)
