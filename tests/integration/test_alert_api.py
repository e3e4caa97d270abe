"""Alert rules, silences, receivers and alerts over the API: valid and invalid requests, concurrent changes, paging."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from backend.alerting.rules import RULES
from backend.api.server import AlertingOptions
from backend.domain.address_rules import EVERYWHERE, AddressRules
from tests.support.alerting import Alerting, rows, switch_off_rules_but
from tests.support.observations import NOW, completed, failed, job, observation
from tests.support.receiving import receiving
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

_SECRET_PATH = "/services/T0AB12CD3/B0EF45GH6/q7Rk2mZx9LpVw4TnYb8sCj"
_HOOK = "env:BARRIERSCOPE_SECRET_HOOK"


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


async def _answer(client, method, path, body=None, *, status=200, headers=None):
    answer = await client.request(method, f"/api/v1{path}", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    if status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
    return answer.json() if answer.content else None


def _named(problem):
    """Return the fields with errors in a problem document, as dotted paths.

    A pointer to a field may be written with slashes or with brackets.
    """
    return [
        e["pointer"].removeprefix("#/").replace("[", "/").replace("]", "").replace("/", ".") for e in problem["errors"]
    ]


# --- rules --------------------------------------------------------------------------------------------------------


async def test_a_changed_rule_is_returned_and_its_version_grows(client):
    before = await _answer(client, "GET", "/alert-rules/CheckpointExpired")
    assert (before["version"], before["for_s"], before["is_enabled"]) == (0, 0.0, True)

    patch = {"for_s": 15, "thresholds": {"expired_min_count": 2}}
    changed = await client.patch("/api/v1/alert-rules/CheckpointExpired", json=patch)
    await _answer(client, "PATCH", "/alert-rules/CheckpointExpired", {"is_enabled": False}, headers={"If-Match": '"1"'})

    assert (changed.status_code, changed.headers["etag"]) == (200, '"1"')
    found = await _answer(client, "GET", "/alert-rules/CheckpointExpired")
    assert (found["version"], found["for_s"], found["keep_firing_for_s"], found["is_enabled"]) == (2, 15.0, 0.0, False)
    values = {t["name"]: t["value"] for t in found["thresholds"]}
    assert values == {"expired_min_count": 2.0, "window_count": 3.0}
    listed = (await _answer(client, "GET", "/alert-rules"))["items"]
    assert [r["version"] for r in listed if r["name"] != "CheckpointExpired"] == [0] * (len(RULES) - 1)
    assert found in listed


_BAD_RULES = [
    ("CheckpointExpired", {"for_s": -1}, ["for_s"]),
    ("CheckpointExpired", {"for_s": 86_401}, ["for_s"]),
    ("CheckpointExpired", {"for_s": "soon"}, ["for_s"]),
    ("CheckpointExpired", {"keep_firing_for_s": -0.1}, ["keep_firing_for_s"]),
    ("CheckpointExpired", {"is_enabled": "perhaps"}, ["is_enabled"]),
    ("CheckpointExpired", {"thresholds": {"expired_min_count": 0}}, ["thresholds.expired_min_count"]),
    ("CheckpointExpired", {"thresholds": {"expired_min_count": 21}}, ["thresholds.expired_min_count"]),
    ("CheckpointExpired", {"thresholds": {"expired_min_count": 1.5}}, ["thresholds.expired_min_count"]),
    ("CheckpointExpired", {"thresholds": {"window_ratio": 1}}, ["thresholds.window_ratio"]),
    ("CheckpointExpired", {"severity": "none"}, ["severity"]),
    ("Watchdog", {"is_enabled": False}, ["is_enabled"]),
    (
        "NoCompletedCheckpoint",
        {"for_s": -1, "keep_firing_for_s": 1e9, "thresholds": {"window_ratio": 0.4}},
        ["for_s", "keep_firing_for_s", "thresholds.window_ratio"],
    ),
]


async def test_an_invalid_rule_is_refused_by_field_and_changes_nothing(client):
    for rule, patch, fields in _BAD_RULES:
        problem = await _answer(client, "PATCH", f"/alert-rules/{rule}", patch, status=422)

        assert _named(problem) == fields
        assert all(e["detail"] for e in problem["errors"]), problem
        assert (await _answer(client, "GET", f"/alert-rules/{rule}"))["version"] == 0


async def test_of_concurrent_changes_to_a_rule_one_succeeds_and_the_others_conflict(client):
    async def change(for_s, version):
        path = "/api/v1/alert-rules/CheckpointStuck"
        answer = await client.patch(path, json={"for_s": for_s}, headers={"If-Match": f'"{version}"'})
        return answer.status_code

    assert sorted(await asyncio.gather(*(change(n, 0) for n in (1, 2, 3)))) == [200, 409, 409]
    assert (await _answer(client, "GET", "/alert-rules/CheckpointStuck"))["version"] == 1
    assert await change(9, 1) == 200
    await _answer(client, "PATCH", "/alert-rules/Unheard", {"for_s": 1}, status=404)
    problem = await _answer(
        client, "PATCH", "/alert-rules/CheckpointStuck", {"for_s": 1}, status=422, headers={"If-Match": "new"}
    )
    assert problem["errors"][0]["detail"] == "is not a version of a rule"


# --- silences -----------------------------------------------------------------------------------------------------


def _silence(**changes):
    matchers = [{"name": "alertname", "value": "CheckpointExpired"}]
    whole = {
        "matchers": matchers,
        "ends_at": (NOW + timedelta(hours=1)).isoformat(),
        "reason": "works",
        "author": "ann",
    }
    return {k: v for k, v in (whole | changes).items() if v is not None}


async def test_a_silence_is_scheduled_then_active_then_expired_and_can_be_ended_early(client, clock):
    begin, end = NOW + timedelta(minutes=10), NOW + timedelta(minutes=20)
    made = await _answer(
        client, "POST", "/silences", _silence(starts_at=begin.isoformat(), ends_at=end.isoformat()), status=201
    )
    now = await _answer(client, "POST", "/silences", _silence(), status=201)

    async def states():
        items = (await _answer(client, "GET", "/silences"))["items"]
        return {s["id"]: s["state"] for s in items}

    assert (made["state"], made["reason"], made["author"]) == ("scheduled", "works", "ann")
    assert await states() == {now["id"]: "active", made["id"]: "scheduled"}
    clock.at = begin
    assert (await states())[made["id"]] == "active"
    clock.at = end
    assert (await states())[made["id"]] == "expired"

    await _answer(client, "DELETE", f"/silences/{now['id']}", status=204)
    assert (await states())[now["id"]] == "expired"
    await _answer(client, "DELETE", "/silences/s-unheard", status=404)


_BAD_SILENCES = [
    ({"ends_at": NOW.isoformat()}, "ends_at"),
    ({"ends_at": (NOW - timedelta(hours=1)).isoformat()}, "ends_at"),
    ({"ends_at": (NOW + timedelta(days=367)).isoformat()}, "ends_at"),
    ({"ends_at": "2026-11-21T13:00:00"}, "ends_at"),
    ({"ends_at": None}, "ends_at"),
    ({"starts_at": (NOW + timedelta(hours=2)).isoformat()}, "ends_at"),
    ({"reason": ""}, "reason"),
    ({"reason": None}, "reason"),
    ({"author": ""}, "author"),
    ({"matchers": []}, "matchers"),
    ({"matchers": [{"name": "not a label", "value": "x"}]}, "matchers.0.name"),
    ({"matchers": [{"name": "job"}]}, "matchers.0.value"),
    ({"until": "tomorrow"}, "until"),
]


async def test_an_invalid_silence_is_refused_by_field(client):
    for changes, field in _BAD_SILENCES:
        problem = await _answer(client, "POST", "/silences", _silence(**changes), status=422)

        assert _named(problem) == [field], problem
        assert (await _answer(client, "GET", "/silences"))["items"] == []


async def test_a_silence_that_matches_every_alert_is_refused(client):
    matchers = [{"name": "nothing", "value": ""}]

    problem = await _answer(client, "POST", "/silences", _silence(matchers=matchers), status=422)

    assert _named(problem) == ["matchers"], problem


# --- receivers ----------------------------------------------------------------------------------------------------


def _options(rules=None, **secrets):
    """Return options with the given secrets. A keyword ``name`` defines the variable ``BARRIERSCOPE_SECRET_NAME``."""
    known = {f"env:BARRIERSCOPE_SECRET_{name.upper()}": value for name, value in secrets.items()}
    return AlertingOptions(receiver_rules=rules or EVERYWHERE, secrets=lambda reference: known.get(reference))


@asynccontextmanager
async def _asking_with(engine, clock, options):
    async with asking(api_over(engine, clock, alerting=options)) as opened:
        yield opened


def _receiver(url, **changes):
    return {"name": "on-call", "kind": "webhook", "url": url} | changes


async def test_a_receiver_is_added_listed_tested_and_removed(client):
    with receiving() as hook:
        added = await _answer(client, "POST", "/receivers", _receiver(hook.url), status=201)
        listed = (await _answer(client, "GET", "/receivers"))["items"]
        tried = await _answer(client, "POST", f"/receivers/{added['id']}/test")
        hook.status = 500
        broken = await _answer(client, "POST", f"/receivers/{added['id']}/test")
        again = await _answer(client, "POST", "/receivers", _receiver(hook.url), status=409)

        assert listed == [added]
        assert (added["name"], added["kind"], added["origin"], added["due_count"]) == ("on-call", "webhook", "api", 0)
        assert (tried["is_ok"], tried["result"]) == (True, "HTTP 200")
        assert (broken["is_ok"], broken["result"]) == (False, "HTTP 500")
        assert hook.posts[0].path == "/hook"
        assert hook.posts[0].body["alerts"][0]["labels"]["alertname"] == "BarrierscopeTest"
        assert "on-call" in again["detail"]

        await _answer(client, "DELETE", f"/receivers/{added['id']}", status=204)
        assert (await _answer(client, "GET", "/receivers"))["items"] == []
        await _answer(client, "DELETE", f"/receivers/{added['id']}", status=404)
        await _answer(client, "POST", f"/receivers/{added['id']}/test", status=404)
        await _answer(client, "POST", "/receivers", _receiver(hook.url), status=201)


_BAD_RECEIVERS = [
    (_receiver(""), "url", None),
    (_receiver("pager"), "url", None),
    (_receiver("ftp://pager/hook"), "url", None),
    (_receiver("http://"), "url", None),
    (_receiver("http://pager:99999/"), "url", None),
    (_receiver("http://ann:hunter22@pager/hook"), "url", "hunter22"),
    (_receiver("http://hunter22@pager/hook"), "url", "hunter22"),
    (_receiver("http://pager/hook?token=hunter22"), "url", "hunter22"),
    (_receiver("http://pager/hook#hunter22"), "url", "hunter22"),
    (_receiver(f"https://hooks.example{_SECRET_PATH}"), "url", _SECRET_PATH.rpartition("/")[2]),
    (_receiver("https://pager/0b6d3c1e-2f4a-4f0e-9d3b-8a7c6e5d4f3b"), "url", "8a7c6e5d4f3b"),
    (_receiver(f"https://alerts{_SECRET_PATH}", kind="alertmanager"), "url", _SECRET_PATH),
    (_receiver(_HOOK, kind="alertmanager"), "url", None),
    (_receiver(_HOOK), "url", None),
    (_receiver("env:PATH"), "url", None),
    (_receiver("file:../../etc/passwd"), "url", None),
    (_receiver("http://pager/hook", credential="hunter22hunter22"), "credential", "hunter22"),
    (_receiver("http://pager/hook", kind="fax"), "kind", None),
    (_receiver("http://pager/hook", name=""), "name", None),
]


async def test_an_invalid_receiver_is_refused_by_field_without_repeating_a_secret(client):
    for body, field, secret in _BAD_RECEIVERS:
        problem = await _answer(client, "POST", "/receivers", body, status=422)

        assert _named(problem) == [field], problem
        assert secret is None or secret not in str(problem)
        assert (await _answer(client, "GET", "/receivers"))["items"] == []


_HOSTS = [
    ("http://pager.example/hook", True),
    ("http://10.1.2.3:9093", True),
    ("http://127.0.0.1:9093", False),
    ("http://[::1]/hook", False),
    ("http://169.254.169.254/latest", False),
    ("http://2130706433/", False),
    ("http://[::ffff:10.1.2.3]/", False),
    ("http://pager.example.evil.test/hook", False),
    (_HOOK, False),
]


async def test_with_an_allow_list_only_listed_hosts_may_be_receivers(engine, clock):
    rules = AddressRules(is_everything_allowed=False, allowed=("pager.example", "10.0.0.0/8"))
    options = _options(rules, hook="https://elsewhere.example/x?key=hunter22")
    async with _asking_with(engine, clock, options) as client:
        for number, (url, is_allowed) in enumerate(_HOSTS):
            answer = await client.post("/api/v1/receivers", json=_receiver(url, name=f"n{number}"))

            assert answer.status_code == (201 if is_allowed else 422), answer.text
            assert is_allowed or answer.json()["errors"][0]["pointer"] == "url", url
            assert "hunter22" not in answer.text


async def test_the_secret_in_a_webhook_address_is_used_and_never_shown(
    engine, database, databases, clock, writer, target, caplog, capsys
):
    caplog.set_level(logging.DEBUG)
    shown = []
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    with receiving() as hook:
        root = hook.url.removesuffix("/hook")
        address, token = f"{root}{_SECRET_PATH}?key=hunter22hunter22", "a-bearer-token"
        # The receiver's response repeats the path and the token that it received.
        hook.status, hook.answer = 500, f"no: {_SECRET_PATH}?key=hunter22hunter22 with Bearer {token}".encode()
        options = _options(hook=address, token=token)
        async with _asking_with(engine, clock, options) as client:

            async def ask(method, path, body=None):
                answer = await client.request(method, f"/api/v1{path}", json=body)
                assert answer.status_code < 300, answer.text
                shown.append(answer.text)
                return answer.json()

            body = _receiver(_HOOK, credential="env:BARRIERSCOPE_SECRET_TOKEN")
            added = await ask("POST", "/receivers", body)
            assert added["url"] == _HOOK
            tried = await ask("POST", f"/receivers/{added['id']}/test")
            assert tried["result"] == "HTTP 500: no: /… with Bearer …"
            await writer.write(observation(target, job([failed(1)]), at=clock.at))
            await Alerting(engine, clock, secrets=options.secrets).round()
            (alert,) = (await ask("GET", "/alerts"))["items"][-1:]
            detail = await ask("GET", f"/alerts/{alert['id']}")
            await ask("GET", "/receivers")
        assert [p.path for p in hook.posts] == [f"{_SECRET_PATH}?key=hunter22hunter22"] * 2
        assert {p.headers["Authorization"] for p in hook.posts} == {f"Bearer {token}"}
        assert "HTTP 500" in str(detail["deliveries"])
    stored = await rows(engine, "SELECT r::text FROM receivers r")
    stored += await rows(engine, "SELECT a::text FROM delivery_attempts a")
    stored += await rows(engine, "SELECT d::text FROM deliveries d")
    own = "\n".join(r.getMessage() for r in caplog.records if not r.name.startswith(("httpx", "httpcore")))
    everything = "\n".join((*shown, str(stored), own, *capsys.readouterr()))
    for secret in ("q7Rk2mZx9LpVw4TnYb8sCj", "T0AB12CD3", "hunter22", token):
        assert secret not in everything, secret


async def test_the_path_of_a_stored_address_is_not_shown(client, engine):
    plain = await _answer(client, "POST", "/receivers", _receiver("https://Pager.example:8443/team/ann"), status=201)
    bare = _receiver("http://alerts.example:9093/", kind="alertmanager", name="a")
    added = await _answer(client, "POST", "/receivers", bare, status=201)

    assert plain["url"] == "https://pager.example:8443/…"
    assert added["url"] == "http://alerts.example:9093"
    assert await rows(engine, "SELECT url FROM receivers ORDER BY kind DESC") == [
        ("https://pager.example:8443/team/ann",),
        ("http://alerts.example:9093",),
    ]


# --- alerts -------------------------------------------------------------------------------------------------------


async def test_alerts_are_paged_without_gaps_or_repeats(client, engine, clock, writer, target):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    alerting = Alerting(engine, clock)
    for number in range(3):
        # In each round, two jobs fail at the same time and then recover.
        ill = [job([failed(1 + 5 * number)], name=n, run=r * 32) for n, r in (("orders", "a"), ("ledger", "b"))]
        await writer.write(observation(target, *ill, at=clock.at))
        await alerting.round()
        well = [
            job([completed(i + 5 * number) for i in (2, 3, 4)], name=n, run=r * 32)
            for n, r in (("orders", "a"), ("ledger", "b"))
        ]
        await writer.write(observation(target, *well, at=clock.at))
        await alerting.round()

    async def walk(path, limit):
        found, following = [], ""
        while following is not None:
            page = await _answer(client, "GET", f"{path}limit={limit}{following and f'&cursor={following}'}")
            assert len(page["items"]) <= limit
            found += page["items"]
            following = page["next"]
        return found

    whole = await walk("/alerts?", 500)
    assert len(whole) == 7
    assert [a["began_at"] for a in whole] == sorted((a["began_at"] for a in whole), reverse=True)
    for limit in (1, 2, 3):
        assert [a["id"] for a in await walk("/alerts?", limit)] == [a["id"] for a in whole]
    assert {a["rule"] for a in await walk("/alerts?state=firing&", 1)} == {"Watchdog"}
    mine = [a for a in whole if a["labels"].get("job_name") == "orders"]
    chosen = await walk(f"/alerts?job={mine[0]['job_id']}&severity=warning&state=resolved&", 2)
    assert [a["id"] for a in chosen] == [a["id"] for a in mine]

    detail = await _answer(client, "GET", f"/alerts/{mine[0]['id']}")
    assert [(e["before"], e["after"]) for e in detail["events"]] == [("inactive", "firing"), ("firing", "resolved")]
    assert [e["id"] for e in detail["episodes"] if e["id"] != mine[0]["id"]] == [a["id"] for a in mine[1:]]
    await _answer(client, "GET", "/alerts/a-unheard", status=404)


_BAD_QUESTIONS = [
    ("cursor=nonsense", "cursor"),
    ("cursor=WzEsMl0", "cursor"),
    ("limit=0", "limit"),
    ("limit=501", "limit"),
    ("state=ill", "state"),
    ("rule=Unheard", "rule"),
    ("severity=dire", "severity"),
]


async def test_an_invalid_query_is_refused_by_parameter(client):
    for query, field in _BAD_QUESTIONS:
        for path in ("/alerts", *(("/silences", "/receivers") if field in ("cursor", "limit") else ())):
            problem = await _answer(client, "GET", f"{path}?{query}", status=422)
            assert field in str(problem["errors"][0]), problem


_LOOSE = [
    ("PATCH", "/alert-rules/CheckpointExpired", {"is_enabled": "yes"}, "#/is_enabled"),
    ("PATCH", "/alert-rules/CheckpointExpired", {"is_enabled": 1}, "#/is_enabled"),
    ("PATCH", "/alert-rules/CheckpointExpired", {"for_s": "5"}, "#/for_s"),
    ("PATCH", "/alert-rules/CheckpointExpired", {"for_s": True}, "#/for_s"),
    ("PATCH", "/alert-rules/CheckpointExpired", {"thresholds": {"x": "7"}}, "#/thresholds/x"),
    ("PATCH", "/targets/t1", {"is_enabled": "true"}, "#/is_enabled"),
    ("PATCH", "/targets/t1", {"labels": {"a": 1}}, "#/labels/a"),
    ("POST", "/targets", {"url": 5}, "#/url"),
    ("POST", "/receivers", {"name": 1, "kind": "webhook", "url": "http://a"}, "#/name"),
    *[
        ("POST", "/silences", {"matchers": [], "ends_at": at, "reason": "x", "author": "y"}, "#/ends_at")
        for at in (1900000000, 1.9e9, "1900000000", True, "2030-01-01", "2030-01-01T00:00:00")
    ],
    (
        "POST",
        "/silences",
        {
            "matchers": [{"name": "a", "value": "b", "is_equal": "no"}],
            "ends_at": "2030-01-01T00:00:00Z",
            "reason": "x",
            "author": "y",
        },
        "#/matchers/0/is_equal",
    ),
]


@pytest.mark.parametrize(("method", "path", "body", "pointer"), _LOOSE)
async def test_a_value_of_another_type_is_refused_and_not_converted(client, method, path, body, pointer):
    answer = await client.request(method, f"/api/v1{path}", json=body)

    assert (answer.status_code, [e["pointer"] for e in answer.json()["errors"]]) == (422, [pointer]), answer.text


async def test_a_number_that_is_not_finite_is_refused(client):
    headers = {"Content-Type": "application/json"}
    for number in ("NaN", "Infinity", "1e999"):
        content = f'{{"for_s": {number}}}'
        answer = await client.patch("/api/v1/alert-rules/CheckpointExpired", content=content, headers=headers)
        assert answer.status_code == 422, number


async def test_an_instant_in_the_query_is_not_read_from_a_number(client):
    answer = await client.get("/api/v1/jobs/j/backpressure", params={"from": "1900000000"})

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "from")
