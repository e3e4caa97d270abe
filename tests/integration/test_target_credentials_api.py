"""Credentials of targets through the API: what may be named, what is stored and shown, and that no secret gets out."""

from __future__ import annotations

import pytest
from aiohttp import web
from sqlalchemy import text

from backend.domain.address_rules import AddressRules
from backend.domain.connection import EVERYTHING, PLAIN, CredentialPolicy, Reach
from backend.domain.declared_target import DeclaredSet, DeclaredTarget
from backend.domain.target import TargetOrigin
from backend.store.postgres.connections import reading
from backend.store.targets.declared import FORGOTTEN_AFTER, DeclaredTargets
from backend.store.targets.targets import NewTarget, TargetRepository
from collectors.probe import probe
from collectors.role import open_target
from tests.support.address_forms import ALLOWED, FORMS
from tests.support.observations import NOW
from tests.support.recorded_flink import serve_app
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

CANARY = "canary-2b7e151628aed2a6"
TARGETS = "/api/v1/targets"
POLICY = CredentialPolicy(is_everything_allowed=False, env_prefix="FLINK_", folder="/etc/flink-credentials")
ENVIRONMENT = {"FLINK_TOKEN": CANARY, "SECRET": CANARY}


def flink(heard):
    answers = {"/config": {"flink-version": "2.3.0"}, "/jobs/overview": {"jobs": []}}

    async def handle(request: web.Request) -> web.Response:
        heard.append(request.headers.get("Authorization"))
        body = answers.get(request.path)
        return web.Response(status=404) if body is None else web.json_response(body)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    return app


async def dumped(engine):
    """Return all rows of the tables of targets as text."""
    async with reading(engine) as connection:
        found = []
        for table in ("targets", "target_health", "target_sources"):
            found += [str(row) for row in await connection.execute(text(f"SELECT * FROM {table}"))]
        return "\n".join(found)


async def test_a_target_is_tested_and_read_with_a_credential_that_is_neither_stored_nor_shown(engine, clock, capfd):
    heard: list[str | None] = []
    app = api_over(engine, clock, target_probe=probe, policy=POLICY, environment=ENVIRONMENT)
    async with serve_app(flink(heard)) as url, asking(app) as client:
        body = {"url": url, "connection": {"bearer": "env:FLINK_TOKEN"}, "interval_s": 7.5, "links": []}
        tested = await client.post(f"{TARGETS}/test", json=body)
        added = await client.post(TARGETS, json=body)
        assert (tested.json()["is_ok"], added.status_code) == (True, 201)
        assert set(heard) == {f"Bearer {CANARY}"}
        assert added.json()["connection"]["bearer"] == "env:FLINK_TOKEN"
        assert added.json()["interval_s"] == 7.5
        (row,) = await TargetRepository(engine).list_all()
        limits = Reach(policy=POLICY, environment=ENVIRONMENT)
        async with open_target(row, engine=engine, limits=limits) as collector:
            observed = await collector.collect(NOW)
        assert observed.engine_version == "2.3.0"
        nothing = await client.patch(f"{TARGETS}/{row.id}", json={"connection": {}, "interval_s": 0})
        assert (nothing.json()["connection"], nothing.json()["interval_s"]) == (None, None)
    shown = "".join([tested.text, added.text, await dumped(engine), *capfd.readouterr()])
    assert "env:FLINK_TOKEN" in shown
    assert CANARY not in shown


@pytest.mark.parametrize(
    "connection",
    [
        {"bearer": "env:SECRET"},
        {"bearer": "env:BARRIERSCOPE_API_TOKEN"},
        {"basic": {"user": "me", "password": "file:/etc/passwd"}},
        {"headers": {"X-A": "file:../passwd"}},
        {"proxy": {"url": "http://proxy", "user": "me", "password": "env:SECRET"}},
        {"ca": "file:/etc/flink-credentials/../passwd"},
    ],
)
async def test_a_reference_that_is_not_allowed_is_refused_with_the_rule_and_not_read(engine, clock, connection):
    heard: list[str | None] = []
    app = api_over(engine, clock, target_probe=probe, policy=POLICY, environment=ENVIRONMENT)
    async with serve_app(flink(heard)) as url, asking(app) as client:
        for path in (TARGETS, f"{TARGETS}/test"):
            body = {"url": url.replace("http://", "https://"), "connection": connection}
            answer = await client.post(path, json=body)
            assert answer.status_code == 422
            assert "only those that begin with FLINK_" in answer.text
        added = await client.post(TARGETS, json={"url": url})
        patched = await client.patch(f"{TARGETS}/{added.json()['id']}", json={"connection": connection})
        assert patched.status_code == 422
    assert heard == [None, None]


@pytest.mark.parametrize("origin", [TargetOrigin.BUILT_IN, TargetOrigin.CONFIGURATION])
async def test_the_api_does_not_choose_the_proxy_of_a_target_whose_requests_have_no_limits(engine, clock, origin):
    """The limits do not apply to these targets, and the live runtime gets the token of this service."""
    new = NewTarget(url="http://127.0.0.1:1/runtime/v1", name="demo", origin=origin)
    known = await TargetRepository(engine).add(new, at=NOW)
    async with asking(api_over(engine, clock, target_probe=probe)) as client:
        connection = {"proxy": {"url": "http://127.0.0.1:3128"}}
        refused = await client.patch(f"{TARGETS}/{known.id}", json={"connection": connection})
        assert refused.status_code == 422
        assert "the operator chose the address of demo" in refused.text
        cleared = await client.patch(f"{TARGETS}/{known.id}", json={"connection": {}, "name": "live"})
        assert (cleared.status_code, cleared.json()["name"], cleared.json()["connection"]) == (200, "live", None)
    assert (await TargetRepository(engine).get(known.id)).connection == PLAIN


async def test_a_stored_reference_is_not_read_once_the_policy_forbids_it(engine, clock):
    """A row that another process wrote, or from before the policy was narrowed."""
    heard: list[str | None] = []
    async with serve_app(flink(heard)) as url:
        app = api_over(engine, clock, target_probe=probe, policy=EVERYTHING, environment=ENVIRONMENT)
        async with asking(app) as client:
            await client.post(TARGETS, json={"url": url, "connection": {"bearer": "env:SECRET"}})
        heard.clear()
        (row,) = await TargetRepository(engine).list_all()
        async with open_target(row, engine=engine, limits=Reach(policy=POLICY, environment=ENVIRONMENT)) as collector:
            with pytest.raises(Exception, match="may not be read for a target that is added through the API"):
                await collector.collect(NOW)
    assert heard == []


@pytest.mark.parametrize(
    "connection",
    [
        {"bearer": CANARY},
        {"bearer": [CANARY]},
        {"bearer": {"value": CANARY}},
        {"basic": {"user": "me", "password": CANARY}},
        {"basic": {"user": "me", "password": "env:FLINK_A", "token": CANARY}},
        {"headers": {"Authorization": f"Bearer {CANARY}"}},
        {"headers": [CANARY]},
        {"proxy": {"url": f"http://me:{CANARY}@proxy"}},
        {"proxy": CANARY},
        {"key": f"-----BEGIN PRIVATE KEY-----\n{CANARY}"},
    ],
)
async def test_a_secret_that_is_written_as_a_value_is_refused_and_not_repeated(engine, clock, capfd, connection):
    async with asking(api_over(engine, clock, policy=EVERYTHING)) as client:
        answer = await client.post(TARGETS, json={"url": "https://flink", "connection": connection})

    assert answer.status_code == 422
    assert CANARY not in answer.text
    assert CANARY not in "".join(capfd.readouterr())


async def test_300_forms_of_hostile_addresses_are_no_proxies_and_no_web_uis_of_a_restricted_service(engine, clock):
    asked = []

    async def never(url, timeout_s, *, kind, reach):
        asked.append(url)
        raise AssertionError("nothing may be connected to")

    rules = AddressRules(is_everything_allowed=False, allowed=ALLOWED)
    async with asking(api_over(engine, clock, rules=rules, target_probe=never, policy=EVERYTHING)) as client:
        for form in FORMS:
            proxied = {"url": "http://flink.example", "connection": {"proxy": {"url": f"http://{form}:3128"}}}
            answer = await client.post(f"{TARGETS}/test", json=proxied)
            assert answer.status_code == 422, form
            through = {"url": f"http://{form}:8081", "connection": {"proxy": {"url": "http://flink.example:3128"}}}
            answer = await client.post(f"{TARGETS}/test", json=through)
            assert answer.status_code == 422, form
    assert len(FORMS) >= 300
    assert asked == []


@pytest.mark.parametrize(
    "ui_url", ["javascript:alert(1)", "http://me:hunter2@ui", "data:text/html,x", "//ui", "ftp://ui"]
)
async def test_the_address_of_a_web_ui_is_a_plain_web_address(engine, clock, ui_url):
    async with asking(api_over(engine, clock)) as client:
        answer = await client.post(TARGETS, json={"url": "http://flink", "ui_url": ui_url})

    assert answer.status_code == 422
    assert "hunter2" not in answer.text


async def test_a_declared_target_is_changed_where_it_is_declared_until_nobody_reads_it_any_more(engine, clock):
    declared = DeclaredSet("production", (DeclaredTarget("http://flink", "flink"),))
    await DeclaredTargets(engine).apply(declared, place="/etc/targets.yaml", at=clock.now())
    async with asking(api_over(engine, clock)) as client:
        path = f"{TARGETS}/{declared.targets[0].id}"
        for answer in (await client.patch(path, json={"is_enabled": False}), await client.delete(path)):
            assert answer.status_code == 409
            assert "flink is declared by production (/etc/targets.yaml): change it there" in answer.text
        read = (await client.get(path)).json()
        assert (read["declared_by"], read["declared_at"]) == ("production", "/etc/targets.yaml")
        clock.at += FORGOTTEN_AFTER * 2
        assert (await client.get(path)).json()["declared_at"] is None
        assert (await client.delete(path)).status_code == 204


@pytest.mark.parametrize("field", ["url", "kind"])
async def test_the_identity_of_a_target_is_not_changed_and_the_answer_says_why(engine, clock, field):
    target = await TargetRepository(engine).add(NewTarget("http://flink", "flink", TargetOrigin.API), at=clock.now())
    async with asking(api_over(engine, clock)) as client:
        answer = await client.patch(f"{TARGETS}/{target.id}", json={field: "spark", "name": "other"})
        kept = (await client.get(f"{TARGETS}/{target.id}")).json()

    assert answer.status_code == 422
    assert f"{field} cannot be changed, because jobs and their history belong to it" in answer.text
    assert (kept["url"], kept["kind"], kept["name"]) == ("http://flink", "flink", "flink")
