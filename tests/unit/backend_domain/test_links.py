"""Tests of the templates of links: which are refused, and that a value replaces only its own placeholder."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.address_rules import is_host
from backend.domain.links import PLACEHOLDERS, TEMPLATE_MAX, fill, fill_path, problem_of

_GRAFANA = "https://grafana.example/d/tm?var-tm={taskmanager}&from={from}&to={to}"
_VALUES = {"taskmanager": "10.0.0.7:44533-18484d", "from": "1", "to": "2", "host": "worker-3", "job": "orders / eu"}


@pytest.mark.parametrize(
    "template",
    [
        _GRAFANA,
        "http://{host}:8042/logs/{job}?x=%7B1%7D",
        "HTTPS://logs.example/",
        "http://[::1]:9000/{label:team}",
        "http://{label:cluster}.flink.example/#/job/{run}",
        *(f"http://a.example/{{{name}}}" for name in PLACEHOLDERS),
    ],
)
def test_a_web_address_with_known_placeholders_is_a_template(template):
    assert problem_of(template) is None


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("javascript:alert(1)", "does not begin with http"),
        (" javascript:alert(1)", "space"),
        ("java\tscript:alert(1)", "control"),
        ("data:text/html,x", "does not begin with http"),
        ("//evil.example/", "does not begin with http"),
        ("/relative/{job}", "does not begin with http"),
        ("{job}://a.example/", "does not begin with http"),
        ("http:/a.example", "does not begin with http"),
        ("http:\\\\a.example", "backslash"),
        ("http://a.example\\@b.example/", "backslash"),
        ("http://a.example/\n", "control"),
        ("http://a.example/\x00", "control"),
        ("http://a.example/\u202e", "control"),
        ("http://user:hunter2@a.example/", "credentials"),
        ("http://{job}@a.example/", "credentials"),
        ("http://user:{job}@a.example/", "credentials"),
        ("http://", "no host"),
        ("http:///path", "no host"),
        ("http://a.example:{job}/", "invalid host or port"),
        ("http://a.example:99999/", "invalid host or port"),
        ("http://a.example:0/", "invalid port"),
        ("http://a..example/", "neither a name"),
        ("http://ä.example/", "neither a name"),
        ("http://a.example/{nobody}", "the unknown placeholder {nobody}; known are {target}"),
        ("http://a.example/{}", "the unknown placeholder {}"),
        ("http://a.example/{label:}", "the unknown placeholder {label:}"),
        ("http://a.example/{job", "a brace that belongs to no placeholder"),
        ("http://a.example/{{job}}", "a brace that belongs to no placeholder"),
        ("http://a.example/" + "x" * TEMPLATE_MAX, "more than 2000 characters"),
    ],
)
def test_anything_else_is_refused_with_the_reason(template, problem):
    found = problem_of(template)

    assert found is not None
    assert problem in found
    assert "hunter2" not in found


def test_values_are_percent_encoded():
    assert fill(_GRAFANA, _VALUES).url == "https://grafana.example/d/tm?var-tm=10.0.0.7%3A44533-18484d&from=1&to=2"
    assert fill("http://{host}:8042/{job}", _VALUES).url == "http://worker-3:8042/orders%20%2F%20eu"
    assert fill_path("#/job/{job}", _VALUES).url == "#/job/orders%20%2F%20eu"


def test_a_placeholder_without_a_value_is_the_reason_for_no_address():
    missing = fill(_GRAFANA, {**_VALUES, "taskmanager": None})
    assert (missing.url, missing.reason) == (
        None,
        "no value for {taskmanager}: no subtask is chosen, or the engine does not report its TaskManager",
    )
    label = fill("http://a.example/{label:team}", _VALUES)
    assert label.reason == "no value for {label:team}: the target does not have this label"


@pytest.mark.parametrize(
    "host",
    [
        "a.example/",
        "a.example#",
        "u@a.example",
        "a.example:1",
        "a b",
        "a\\b",
        "..",
        "%2e",
        "ä.example",
        "[::1]",
        "x" * 300,
    ],
)
def test_a_value_that_is_no_host_makes_no_host(host):
    assert fill("http://{host}:8042/", {"host": host}).reason == "the values do not make a valid host"


def test_an_address_of_ipv6_gets_its_brackets():
    assert fill("http://{host}:8042/", {"host": "fe80::1"}).url == "http://[fe80::1]:8042/"


@pytest.mark.parametrize("path", ["/a/{job}/b", "/{job}"])
@pytest.mark.parametrize("value", [".", ".."])
def test_a_value_cannot_leave_the_folder_of_the_path(path, value):
    assert fill(f"http://a.example{path}", {"job": value}).reason == "a value would change the path of the address"


@given(st.text(min_size=1, max_size=40))
def test_a_value_stays_in_its_place(value):
    filled = fill("https://a.example/x/{job}/y?q={job}&r=1#f", {"job": value})

    if filled.url is None:
        assert value in (".", "..")
        return
    parts = urlsplit(filled.url)
    query = parse_qs(parts.query, keep_blank_values=True)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "a.example", "f")
    assert parts.path.count("/") == 3
    assert (set(query), query["r"]) == ({"q", "r"}, ["1"])
    assert filled.url.isascii()


@given(st.text(max_size=60))
def test_an_accepted_template_makes_web_addresses_only(template):
    if problem_of(f"http://{template}") is not None:
        return
    filled = fill(f"http://{template}", dict.fromkeys(PLACEHOLDERS, "x"))
    if filled.url is not None:
        parts = urlsplit(filled.url)
        assert parts.scheme == "http"
        assert parts.username is None
        assert is_host(parts.hostname or "")
