"""Targets behind a real nginx: credentials, certificates, redirects, login pages and proxies, and what is said of each.

If ``BARRIERSCOPE_REQUIRE_NGINX`` is set, these tests fail on a machine without nginx. Otherwise, they are skipped.
"""

from __future__ import annotations

import os

import pytest
from aiohttp import web

from backend.domain.address_rules import AddressRules
from backend.domain.connection import (
    ANYWHERE,
    EVERYTHING,
    BasicAuth,
    ConnectionOptions,
    Proxy,
    Reach,
    parse_reference,
)
from backend.domain.connection_failure import CURES, ConnectionFailure
from backend.domain.errors import TargetUnavailableError, UpstreamError
from backend.domain.job_request import TriggerSavepoint
from collectors.flink.client import open_transport
from collectors.flink.probe import ask_once, probe
from collectors.flink.settings import change_settings
from tests.support import nginx as front
from tests.support.nginx import KEY, PASSWORD, TOKEN, USER, forward_proxy, make_certificates, nginx
from tests.support.recorded_flink import serve_app
from tests.support.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(front.missing() is not None, reason=front.missing() or ""),
]
ENVIRONMENT = {"TOKEN": TOKEN, "PASSWORD": PASSWORD, "KEY": KEY, "WRONG": "canary-wrong", "EMPTY": ""}
CANARIES = (TOKEN, PASSWORD, KEY, "canary-wrong")


def env(name):
    return parse_reference(f"env:{name}")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def flink(heard):
    answers = {"/config": {"flink-version": "2.3.0"}, "/jobs/overview": {"jobs": []}}

    async def handle(request: web.Request) -> web.Response:
        heard.append((request.method, request.path, dict(request.headers)))
        if request.method == "POST":
            return web.json_response({"request-id": "0" * 32}, status=202)
        body = answers.get(request.path)
        return web.Response(status=404, text="nothing") if body is None else web.json_response(body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    return app


@pytest.fixture
async def served(tmp_path, certificates):
    """nginx in front of a Flink. The second value has the requests that Flink got."""
    heard: list[tuple[str, str, dict[str, str]]] = []
    away: list[tuple[str, str, dict[str, str]]] = []
    async with serve_app(flink(heard)) as upstream, serve_app(flink(away)) as other:
        with nginx(tmp_path / "nginx", certificates, upstream, away=other) as found:
            yield found, heard, away


def with_ca(certificates, **options):
    return ConnectionOptions(ca=parse_reference(f"file:{certificates.file('ca.pem')}"), **options)


def reach(options):
    return Reach(options=options, environment=ENVIRONMENT)


async def failure(url, options):
    with pytest.raises(UpstreamError) as raised:
        await ask_once(url, PATIENCE_S, reach=reach(options))
    assert not any(canary in str(raised.value) for canary in CANARIES)
    return raised.value.failure, str(raised.value)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/flink", {}),
        ("/bearer", {"bearer": env("TOKEN")}),
        ("/basic", {"basic": BasicAuth(USER, env("PASSWORD"))}),
        ("/key", {"headers": (("X-Api-Key", env("KEY")),)}),
        ("/bearer", {"headers": (("Authorization", parse_reference("env:WHOLE")),)}),
    ],
)
async def test_a_target_behind_a_prefix_is_read_with_its_credentials(served, certificates, path, options):
    found, _, _ = served
    reaching = Reach(options=with_ca(certificates, **options), environment=ENVIRONMENT | {"WHOLE": f"Bearer {TOKEN}"})

    assert (await probe(found.root + path, PATIENCE_S, reach=reaching)).version == "2.3.0"


async def test_requests_that_change_a_job_carry_the_credentials_too(served, certificates):
    found, heard, _ = served

    await change_settings(
        f"{found.root}/bearer",
        "a" * 32,
        TriggerSavepoint(),
        PATIENCE_S,
        None,
        reach=reach(with_ca(certificates, bearer=env("TOKEN"))),
    )

    method, path, headers = heard[-1]
    assert (method, path) == ("POST", f"/jobs/{'a' * 32}/savepoints")
    assert headers["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("path", "options", "expected", "words"),
    [
        ("/bearer", {}, ConnectionFailure.UNAUTHORIZED, "HTTP 401"),
        ("/bearer", {"bearer": env("WRONG")}, ConnectionFailure.UNAUTHORIZED, "HTTP 401"),
        ("/basic", {"basic": BasicAuth(USER, env("WRONG"))}, ConnectionFailure.UNAUTHORIZED, "HTTP 401"),
        ("/key", {}, ConnectionFailure.FORBIDDEN, "HTTP 403"),
        ("/nothing", {}, ConnectionFailure.NOT_FOUND, "HTTP 404"),
        ("/broken", {}, ConnectionFailure.SERVER_ERROR, "HTTP 503"),
        ("/login-page", {}, ConnectionFailure.LOGIN_PAGE, "login page"),
        ("/login-redirect", {}, ConnectionFailure.LOGIN_PAGE, "/sso/login (a login page)"),
        ("/html", {}, ConnectionFailure.NOT_THIS_KIND, "answers HTML"),
        ("/away", {"bearer": env("TOKEN")}, ConnectionFailure.REDIRECT, "answers by a redirect to http://127.0.0.1:"),
        ("/flink", {"bearer": env("ABSENT")}, ConnectionFailure.CREDENTIAL, "env:ABSENT is not set"),
        ("/flink", {"bearer": env("EMPTY")}, ConnectionFailure.CREDENTIAL, "env:EMPTY is empty"),
        (
            "/flink",
            {"bearer": parse_reference("file:/nowhere/token")},
            ConnectionFailure.CREDENTIAL,
            "file:/nowhere/token cannot be read (No such file",
        ),
    ],
)
async def test_each_refusal_is_told_apart(served, certificates, path, options, expected, words):
    found, _, away = served
    kind, text = await failure(found.root + path, with_ca(certificates, **options))

    assert (kind, kind in CURES) == (expected, True)
    assert words in text
    assert away == [], "no request follows a redirect, so no credential leaves the origin"


async def test_each_fault_of_a_certificate_is_told_apart(served, certificates):
    found, _, _ = served
    known = with_ca(certificates)
    other = ConnectionOptions(ca=parse_reference(f"file:{certificates.file('other-ca.pem')}"))

    assert (await failure(f"{found.root}/flink", ConnectionOptions()))[0] is ConnectionFailure.TLS_AUTHORITY
    assert (await failure(f"{found.root}/flink", other))[0] is ConnectionFailure.TLS_AUTHORITY
    assert (await failure(f"{found.expired}/flink", known))[0] is ConnectionFailure.TLS_EXPIRED
    assert (await failure(f"{found.elsewhere}/flink", known))[0] is ConnectionFailure.TLS_NAME
    plain = found.plain.replace("http://", "https://")
    assert (await failure(f"{plain}/flink", known))[0] is ConnectionFailure.TLS
    assert (await failure(f"{found.root.replace('https', 'http')}/flink", ConnectionOptions()))[0] is (
        ConnectionFailure.TLS
    )


async def test_the_name_of_the_certificate_may_differ_from_that_of_the_address(served, certificates):
    found, _, _ = served
    options = with_ca(certificates, server_name="flink.internal")

    assert (await ask_once(f"{found.elsewhere}/flink", PATIENCE_S, reach=reach(options))).version == "2.3.0"


async def test_mutual_tls_needs_a_certificate_that_the_server_trusts(served, certificates):
    found, _, _ = served
    url = f"{found.mutual}/flink"

    def client(name):
        files = {"certificate": f"{name}.pem", "key": f"{name}.key"}
        return with_ca(certificates, **{k: parse_reference(f"file:{certificates.file(v)}") for k, v in files.items()})

    assert (await ask_once(url, PATIENCE_S, reach=reach(client("client")))).version == "2.3.0"
    assert (await failure(url, with_ca(certificates)))[0] is ConnectionFailure.TLS_CLIENT_CERTIFICATE
    assert (await failure(url, client("foreign-client")))[0] is ConnectionFailure.TLS_CLIENT_CERTIFICATE


async def test_a_rotated_token_and_a_rotated_certificate_are_used_without_a_restart(served, certificates, tmp_path):
    found, _, _ = served
    token, ca = tmp_path / "token", tmp_path / "ca.pem"
    token.write_text("canary-wrong\n")
    ca.write_bytes(certificates.file("other-ca.pem").read_bytes())
    options = ConnectionOptions(bearer=parse_reference(f"file:{token}"), ca=parse_reference(f"file:{ca}"))

    async with open_transport(f"{found.root}/bearer", timeout_s=PATIENCE_S, reach=reach(options)) as transport:
        with pytest.raises(TargetUnavailableError, match="not trusted"):
            await transport.get("/config")
        new = tmp_path / "new"
        new.write_bytes(certificates.file("ca.pem").read_bytes())
        os.replace(new, ca)
        with pytest.raises(UpstreamError, match="401"):
            await transport.get("/config")
        token.write_text(TOKEN)
        assert b"2.3.0" in await transport.get("/config")
        token.unlink()
        with pytest.raises(TargetUnavailableError, match="cannot be read"):
            await transport.get("/config")


async def test_a_proxy_tunnels_tls_and_passes_plain_requests_on(served, certificates):
    found, heard, _ = served
    async with forward_proxy(needs=f"me:{PASSWORD}") as proxy:
        through = Proxy(proxy.url, BasicAuth("me", env("PASSWORD")))
        tunnel = reach(with_ca(certificates, proxy=through, bearer=env("TOKEN")))
        assert (await ask_once(f"{found.root}/bearer", PATIENCE_S, reach=tunnel)).version == "2.3.0"
        assert proxy.asked[0].startswith(f"CONNECT {found.root.removeprefix('https://')} ")
        plain = reach(ConnectionOptions(proxy=through))
        assert (await ask_once(f"{found.plain}/flink", PATIENCE_S, reach=plain)).version == "2.3.0"
        assert proxy.asked[-1].startswith(f"GET {found.plain}/flink/")
        assert "Proxy-Authorization" not in heard[-1][2]
        without = with_ca(certificates, proxy=Proxy(proxy.url))
        kind, text = await failure(f"{found.root}/flink", without)
        assert (kind, "407" in text) == (ConnectionFailure.PROXY, True)
        kind, text = await failure(f"{found.plain}/flink", ConnectionOptions(proxy=Proxy(proxy.url)))
        assert (kind, "407" in text) == (ConnectionFailure.PROXY, True)
    assert (await failure(f"{found.root}/flink", without))[0] is ConnectionFailure.PROXY


async def test_a_proxy_gives_no_access_to_a_host_that_is_not_allowed(served):
    found, _, _ = served
    async with forward_proxy() as proxy:
        rules = AddressRules(is_everything_allowed=False, allowed=("127.0.0.1",))
        bounded = Reach(rules, ConnectionOptions(proxy=Proxy(proxy.url)), EVERYTHING)
        with pytest.raises(TargetUnavailableError, match="not allowed here") as raised:
            await ask_once(f"{found.plain}/flink", PATIENCE_S, reach=bounded)
        assert raised.value.failure is ConnectionFailure.ADDRESS
        assert proxy.asked == []
        elsewhere = AddressRules(is_everything_allowed=False, allowed=("localhost",))
        bounded = Reach(elsewhere, ConnectionOptions(proxy=Proxy(proxy.url)), EVERYTHING)
        with pytest.raises(TargetUnavailableError, match="not allowed here"):
            await ask_once(f"{found.plain}/flink", PATIENCE_S, reach=bounded)
        assert proxy.asked == []


async def test_a_name_and_a_port_that_do_not_exist_are_told_apart():
    for url, expected in (
        ("http://no-such-host.invalid:8081", ConnectionFailure.NAME),
        ("http://127.0.0.1:9", ConnectionFailure.REFUSED),
    ):
        with pytest.raises(TargetUnavailableError) as raised:
            await ask_once(url, PATIENCE_S, reach=ANYWHERE)
        assert raised.value.failure is expected
