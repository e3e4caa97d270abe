"""Tests of the reading of credentials: where they may be read, when they are read again, and what is said if not."""

from __future__ import annotations

import os

import pytest

from backend.domain.address_rules import EVERYWHERE
from backend.domain.connection import BasicAuth, ConnectionOptions, CredentialPolicy, Proxy, Reach, parse_reference
from collectors.credentials import SIZE_MAX_BYTES, CredentialError, Credentials

CANARY = "canary-4be1"


def credentials(options, *, policy=None, environment=None):
    policy = policy or CredentialPolicy(is_everything_allowed=True)
    return Credentials(Reach(EVERYWHERE, options, policy, environment or {}))


def at(path):
    return parse_reference(f"file:{path}")


def test_the_headers_of_all_kinds_of_credentials():
    secret = parse_reference("env:A")
    environment = {"A": f" {CANARY}\n"}

    bearer = credentials(ConnectionOptions(bearer=secret, headers=(("X-Key", secret),)), environment=environment)
    assert bearer.headers() == {"Authorization": f"Bearer {CANARY}", "X-Key": CANARY}
    basic = credentials(ConnectionOptions(basic=BasicAuth("Aladdin", secret)), environment={"A": "open sesame"})
    assert basic.headers() == {"Authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}
    through = credentials(
        ConnectionOptions(proxy=Proxy("http://p", BasicAuth("Aladdin", secret))), environment={"A": "open sesame"}
    ).proxy()
    assert through is not None
    assert through.headers == {"Proxy-Authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}
    assert credentials(ConnectionOptions()).headers() == {}


def test_a_file_is_read_again_for_each_request(tmp_path):
    token = tmp_path / "token"
    token.write_text("first\n")
    found = credentials(ConnectionOptions(bearer=at(token)))
    assert found.headers() == {"Authorization": "Bearer first"}

    token.write_text("second")

    assert found.headers() == {"Authorization": "Bearer second"}


@pytest.mark.parametrize(
    "content", ["", "\n", f"{CANARY}\nX: y", f"{CANARY}\x00", f"{CANARY}ü", "x" * (SIZE_MAX_BYTES + 1)]
)
def test_a_value_that_no_header_may_have_is_refused_and_not_repeated(tmp_path, content):
    token = tmp_path / "token"
    token.write_text(content)

    with pytest.raises(CredentialError) as refused:
        credentials(ConnectionOptions(bearer=at(token))).headers()

    assert CANARY not in refused.value.reason
    assert str(token) in refused.value.reason


def test_a_pipe_or_a_folder_does_not_block_the_reader(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    for name in ("pipe", "."):
        with pytest.raises(CredentialError):
            credentials(ConnectionOptions(bearer=at(tmp_path / name))).headers()
        with pytest.raises(CredentialError):
            credentials(ConnectionOptions(ca=at(tmp_path / name))).tls()


def test_a_reference_of_the_api_is_read_only_within_the_policy(tmp_path):
    inside, outside = tmp_path / "credentials", tmp_path / "outside"
    inside.mkdir()
    outside.write_text(CANARY)
    (inside / "token").write_text("mine")
    # Kubernetes mounts a secret as links within its folder.
    (inside / "linked").symlink_to("token")
    (inside / "escaping").symlink_to(outside)
    policy = CredentialPolicy(is_everything_allowed=False, env_prefix="FLINK_", folder=str(inside))
    environment = {"FLINK_A": "mine", "SECRET": CANARY}

    def headers(reference):
        options = ConnectionOptions(bearer=parse_reference(reference))
        return credentials(options, policy=policy, environment=environment).headers()

    for reference in ("env:FLINK_A", "file:token", f"file:{inside}/token", "file:linked"):
        assert headers(reference) == {"Authorization": "Bearer mine"}
    for reference in ("env:SECRET", f"file:{outside}", "file:../outside", "file:escaping"):
        with pytest.raises(CredentialError) as refused:
            headers(reference)
        assert CANARY not in refused.value.reason


def test_a_file_that_is_no_certificate_is_told_by_its_name(tmp_path):
    wrong = tmp_path / "ca.pem"
    wrong.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")

    with pytest.raises(CredentialError, match=r"ca file:.*ca\.pem has no certificates that can be read"):
        credentials(ConnectionOptions(ca=at(wrong))).tls()
    with pytest.raises(CredentialError, match="cannot be read"):
        credentials(ConnectionOptions(certificate=at(wrong), key=at(wrong))).tls()
