"""Tests of references to credentials, of the options of connections, and of the policy for references of the API."""

from __future__ import annotations

import pytest

from backend.domain.connection import (
    EVERYTHING,
    NOTHING,
    BasicAuth,
    ConnectionOptions,
    CredentialPolicy,
    Proxy,
    Reference,
    ReferenceKind,
    parse_reference,
    problems_of,
)

ENV = parse_reference("env:FLINK_TOKEN")
FILE = parse_reference("file:/run/secrets/flink")
FULL = ConnectionOptions(
    basic=BasicAuth("barrierscope", FILE),
    headers=(("X-Api-Key", ENV),),
    ca=FILE,
    certificate=FILE,
    key=FILE,
    server_name="flink.internal",
    proxy=Proxy("http://proxy:3128", BasicAuth("me", ENV)),
)


def test_a_reference_is_written_as_it_was_read():
    assert parse_reference(" env:FLINK_TOKEN ") == Reference(ReferenceKind.ENVIRONMENT, "FLINK_TOKEN")
    assert str(FILE) == "file:/run/secrets/flink"


@pytest.mark.parametrize(
    "text", ["hunter2", "", "env:", "env:hunter 2", "env:1hunter2", "file:", "file:a\nhunter2", "vault:hunter2"]
)
def test_what_is_no_reference_is_refused_and_not_repeated(text):
    with pytest.raises(ValueError, match=r".") as refused:
        parse_reference(text)

    assert "hunter" not in str(refused.value)


def test_options_survive_their_document():
    bearer = ConnectionOptions(bearer=ENV, proxy=Proxy("http://proxy:3128"))

    assert ConnectionOptions.of(FULL.document()) == FULL
    assert ConnectionOptions.of(bearer.document()) == bearer
    assert ConnectionOptions().document() == {}


def test_every_reference_of_the_options_is_listed():
    assert {name for name, _ in FULL.references} == {
        "basic.password",
        "headers.X-Api-Key",
        "ca",
        "certificate",
        "key",
        "proxy.password",
    }
    assert ConnectionOptions(bearer=ENV).references == (("bearer", ENV),)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (ConnectionOptions(bearer=ENV, basic=BasicAuth("me", ENV)), "basic"),
        (ConnectionOptions(certificate=FILE), "key"),
        (ConnectionOptions(key=FILE), "certificate"),
        (ConnectionOptions(ca=ENV), "ca"),
        (ConnectionOptions(headers=(("Host", ENV),)), "headers.Host"),
        (ConnectionOptions(headers=(("X-A", ENV), ("x-a", ENV))), "headers.X-A"),
        (ConnectionOptions(headers=(("X A", ENV),)), "headers"),
        (ConnectionOptions(bearer=ENV, headers=(("authorization", ENV),)), "headers.authorization"),
        (ConnectionOptions(headers=tuple((f"X-{n}", ENV) for n in range(21))), "headers"),
    ],
)
def test_options_that_contradict_each_other_are_told_with_their_field(options, field):
    assert field in [p.field for p in problems_of(options, "https://flink")]


def test_options_of_tls_need_an_address_with_tls():
    assert problems_of(FULL, "https://flink") == ()
    assert [p.field for p in problems_of(FULL, "http://flink")] == ["ca"]


@pytest.mark.parametrize(
    "text",
    [
        "env:PATH",
        "env:BARRIERSCOPE_API_TOKEN",
        "env:FLINK_",
        "env:XFLINK_A",
        "file:/etc/passwd",
        "file:../secret",
        "file:/run/secrets/../x",
        "file:/run/secretsx",
        "file:/run/secrets",
        "file:a/../../x",
    ],
)
def test_the_api_may_name_only_what_the_policy_allows(text):
    policy = CredentialPolicy(is_everything_allowed=False, env_prefix="FLINK_", folder="/run/secrets")
    reference = parse_reference(text)

    assert "FLINK_" in (policy.refusal(reference) or "")
    assert "BARRIERSCOPE_TARGET_CREDENTIALS_ENV_PREFIX is not set" in (NOTHING.refusal(reference) or "")
    assert EVERYTHING.refusal(reference) is None


@pytest.mark.parametrize("text", ["env:FLINK_TOKEN", "file:token", "file:/run/secrets/a/token"])
def test_what_the_policy_allows_is_not_refused(text):
    policy = CredentialPolicy(is_everything_allowed=False, env_prefix="FLINK_", folder="/run/secrets")

    assert policy.refusal(parse_reference(text)) is None


def test_a_relative_file_is_one_of_the_folder():
    policy = CredentialPolicy(is_everything_allowed=False, folder="/run/secrets")

    assert policy.path(parse_reference("file:token")) == "/run/secrets/token"
    assert policy.path(parse_reference("file:/run/secrets/token")) == "/run/secrets/token"
    assert EVERYTHING.path(parse_reference("file:token")) == "token"
