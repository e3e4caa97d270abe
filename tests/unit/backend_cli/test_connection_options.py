"""Tests of the options for connections, and of the user's own file of targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.cli.connection_options import Given, checked, own_target
from backend.domain.connection import PLAIN, BasicAuth, ConnectionOptions, Proxy, parse_reference
from backend.domain.errors import InvalidInputError
from backend.settings import Settings


def ref(text):
    return parse_reference(text)


def test_the_options_become_references():
    given = Given(
        user="me=env:PASSWORD",
        headers=["X-Key=file:key"],
        ca="/etc/ca.pem",
        cert="file:client.pem",
        key="client.key",
        server_name="flink.internal",
        proxy="http://proxy:3128/",
        proxy_user="me=env:PROXY",
    )

    assert given.options() == ConnectionOptions(
        basic=BasicAuth("me", ref("env:PASSWORD")),
        headers=(("X-Key", ref("file:key")),),
        ca=ref("file:/etc/ca.pem"),
        certificate=ref("file:client.pem"),
        key=ref(f"file:{Path.cwd()}/client.key"),
        server_name="flink.internal",
        proxy=Proxy("http://proxy:3128", BasicAuth("me", ref("env:PROXY"))),
    )
    assert Given().options() == PLAIN


def test_an_option_wins_over_the_users_own_file():
    base = ConnectionOptions(
        basic=BasicAuth("me", ref("env:A")), headers=(("X-Key", ref("env:A")), ("X-B", ref("env:A"))), ca=ref("file:/a")
    )

    found = Given(bearer="env:B", headers=["x-key=env:B"]).options(base)

    assert found.bearer == ref("env:B")
    assert found.basic is None
    assert found.headers == (("X-B", ref("env:A")), ("x-key", ref("env:B")))
    assert found.ca == ref("file:/a")


@pytest.mark.parametrize(
    ("given", "option"),
    [
        (Given(bearer="hunter2"), "--bearer"),
        (Given(user="me:hunter2"), "--user"),
        (Given(user="me=hunter2"), "--user"),
        (Given(headers=["X-Key: hunter2"]), "--header"),
        (Given(proxy="http://me:hunter2@proxy"), "--proxy"),
        (Given(proxy="socks5://proxy"), "--proxy"),
        (Given(proxy_user="me=env:A"), "--proxy-user"),
        (Given(ca=" "), "--ca"),
    ],
)
def test_a_wrong_option_is_named_and_its_value_is_not_repeated(given, option):
    with pytest.raises(InvalidInputError) as refused:
        given.options()

    assert refused.value.problems[0].field == option
    assert "hunter2" not in str(refused.value)


def test_options_that_do_not_fit_the_address_are_named_as_they_were_written():
    with pytest.raises(InvalidInputError, match="--ca: is used by TLS only"):
        checked(Given(ca="/a").options(), "http://flink")
    with pytest.raises(InvalidInputError, match="--key: is missing"):
        checked(Given(cert="/a").options(), "https://flink")
    assert checked(Given(ca="/a").options(), "HTTPS://flink").ca == ref("file:/a")


def test_a_target_of_the_users_own_file_is_found_by_name_and_by_address(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings = Settings()
    assert own_target("production", settings) is None
    (tmp_path / "barrierscope").mkdir()
    file = tmp_path / "barrierscope" / "targets.yaml"
    file.write_text(
        "targets:\n"
        "  - {url: 'https://flink/a', name: production, connection: {bearer: 'file:token'}}\n"
        "  - {url: 'https://flink/b', name: twice}\n"
        "  - {url: 'https://flink/c', name: twice}\n"
    )

    found = own_target("production", settings)

    assert found is not None
    assert found.connection.bearer == ref(f"file:{file.parent}/token")
    assert own_target("HTTPS://flink/a/", settings) == found
    assert own_target("https://flink/other", settings) is None
    assert own_target("", settings) is None
    with pytest.raises(InvalidInputError, match=r"2 targets in .* are called 'twice'"):
        own_target("twice", settings)
    file.write_text("targets: 5")
    with pytest.raises(InvalidInputError, match=r"targets\.yaml:1"):
        own_target("production", settings)
