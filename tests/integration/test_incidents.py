"""Incidents with a real store: grouping while alerts begin and end, the API, what people add, retention, migration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text as sql
from sqlalchemy import update

from backend.alerting.incidents import assign
from backend.domain.advice import THE_SERVICE, AdviceState, AdviceStep, Topic
from backend.domain.errors import UnknownEntityError
from backend.services.alerts import incidents as service
from backend.store.advice.cards import CardRecord, add_card, lock_job, move_card, note_step
from backend.store.alerts.incidents import get_incident
from backend.store.postgres.connections import reading, writing
from backend.store.retention import apply_retention
from backend.store.schema import alert_tables, migrate
from backend.store.schema.partitions import Retention
from tests.support.alerting import Alerting, receiver_at, rows, switch_off_rules_but
from tests.support.drawn_alerts import drawn_alerts
from tests.support.observations import NOW, completed, failed, job, observation
from tests.support.receiving import receiving
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.fixture
def polled(writer, target, clock):
    """Return a function that writes a poll of the jobs with the given checkpoints."""

    async def write(**jobs):
        seen = [job(listed, name=name, run=name[0] * 32) for name, listed in jobs.items()]
        await writer.write(observation(target, *seen, at=clock.at))

    return write


async def _ask(client, method, path, body=None, *, status=200):
    answer = await client.request(method, f"/api/v1{path}", json=body)
    assert answer.status_code == status, answer.text
    if status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
    return answer.json()


async def _three_rounds(engine, clock, polled):
    """Run three rounds: *orders* fails three times and then recovers; *ledger* fails in the second round."""
    alerting = Alerting(engine, clock)
    await polled(orders=[failed(1)])
    await alerting.round()
    await polled(orders=[failed(1), failed(2), failed(3)], ledger=[failed(1)])
    await alerting.round()
    await polled(orders=[failed(3), *(completed(i) for i in (4, 5, 6, 7))], ledger=[failed(1)])
    await alerting.round()
    return alerting


# --- grouping -----------------------------------------------------------------------------------------------------


async def test_several_alerts_of_one_job_are_one_incident_whose_address_stays(client, engine, clock, polled):
    await switch_off_rules_but(engine, "CheckpointExpired", "ConsecutiveFailures", "Watchdog")
    alerting = Alerting(engine, clock)
    with receiving() as box:
        await receiver_at(engine, clock, box.url)
        await polled(orders=[failed(1)])
        await alerting.round()
        (first,) = (await _ask(client, "GET", "/incidents"))["items"]
        await polled(orders=[failed(1), failed(2), failed(3)])
        await alerting.round()

    (second,) = (await _ask(client, "GET", "/incidents"))["items"]
    assert (first["id"], first["severity"], first["alert_count"]) == (second["id"], "warning", 1)
    assert (second["severity"], second["alert_count"], second["open_count"]) == ("critical", 2, 2)
    assert second["rules"] == ["CheckpointExpired", "ConsecutiveFailures"]
    assert second["headline"] == "orders: the last 3 checkpoints failed"
    assert [(n["receiver"], n["kind"], n["state"]) for n in second["notified"]] == [("on-call", "firing", "delivered")]
    # Both messages name the incident.
    sent = [p.body["alerts"][0]["annotations"] for p in box.taken]
    assert [s["incident_id"] for s in sent] == [first["id"]] * 2
    assert all(s["incident_url"].endswith(f"/ui/incidents/{first['id']}") for s in sent)

    detail = await _ask(client, "GET", f"/incidents/{first['id']}")
    assert [a["rule"] for a in detail["alerts"]] == ["ConsecutiveFailures", "CheckpointExpired"]
    assert all([(e["before"], e["after"]) for e in a["events"]] == [("inactive", "firing")] for a in detail["alerts"])
    assert {d["rule"] for d in detail["deliveries"]} == {"CheckpointExpired", "ConsecutiveFailures"}
    alert = await _ask(client, "GET", f"/alerts/{detail['alerts'][0]['id']}")
    assert (alert["incident_id"], alert["incident_link"]) == (first["id"], f"/api/v1/incidents/{first['id']}")


async def test_an_incident_ends_with_its_last_alert_and_continues_within_ten_minutes(client, engine, clock, polled):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    alerting, numbers = Alerting(engine, clock), iter(range(1, 100))

    async def fails_and_recovers(after_s):
        clock.at += timedelta(seconds=after_s)
        await polled(orders=[failed(next(numbers))])
        await alerting.round(seconds=0)
        await polled(orders=[completed(next(numbers)) for _ in range(3)])
        await alerting.round()
        return [(i["id"], i["state"], i["alert_count"]) for i in (await _ask(client, "GET", "/incidents"))["items"]]

    ((one, *first),) = await fails_and_recovers(5)
    again = await fails_and_recovers(600)
    later = await fails_and_recovers(601)

    assert first == ["resolved", 1]
    assert again == [(one, "resolved", 2)]
    assert later[1] == (one, "resolved", 2)
    assert later[0][1:] == ("resolved", 1)


async def test_every_stored_alert_has_one_incident_that_agrees_with_it(client, engine, clock, polled):
    await _three_rounds(engine, clock, polled)

    assert await rows(engine, "SELECT count(*) FROM alerts WHERE incident_id IS NULL") == [(0,)]
    found = await rows(
        engine,
        "SELECT i.alert_count, i.open_count, i.state, i.ended_at IS NULL, count(*),"
        " count(*) FILTER (WHERE a.ended_at IS NULL), bool_or(a.state = 'firing') FROM incidents i"
        " JOIN alerts a ON a.incident_id = i.id GROUP BY i.id",
    )
    assert len(found) == 3  # The incidents are those of orders, of ledger and of the watchdog.
    for count, open_count, state, is_open, alerts, opened, is_firing in found:
        assert (count, open_count, is_open, state == "firing") == (alerts, opened, opened > 0, is_firing)
    everything = (await _ask(client, "GET", "/incidents?severity=none&severity=critical&severity=warning"))["items"]
    assert [i["rules"] for i in everything if i["severity"] == "none"] == [["Watchdog"]]


# --- the list -----------------------------------------------------------------------------------------------------


async def test_alerts_and_incidents_that_an_earlier_version_stored_have_the_current_labels(
    client, engine, clock, polled
):
    await switch_off_rules_but(engine, "CheckpointExpired", "ConsecutiveFailures", "Watchdog")
    await _three_rounds(engine, clock, polled)
    before = (await _ask(client, "GET", "/alerts"))["items"]
    async with writing(engine) as connection:
        for table in ("alerts", "incidents"):
            await connection.execute(
                sql(
                    f"UPDATE {table} SET labels = labels - 'job_name' - 'flink_job_id'"
                    " || jsonb_build_object('job', labels->'job_name', 'job_id', job_id) WHERE labels ? 'job_name'"
                )
            )

    after = (await _ask(client, "GET", "/alerts"))["items"]
    assert [a["labels"].get("job_name") for a in after] == [a["labels"].get("job_name") for a in before]
    assert not [a for a in after if {"job", "job_id"} & set(a["labels"])]
    for query in ("label=job_name%3Dorders", "label=job%3Dorders", "search=order", "group=job&label=job_name%3Dorders"):
        (found,) = (await _ask(client, "GET", f"/incidents?{query}"))["items"]
        assert found["labels"]["job_name"] == "orders"
        assert not {"job", "job_id"} & set(found["labels"])
        assert found["group"] == ("orders" if "group" in query else "")


async def test_the_list_has_open_incidents_first_and_can_be_filtered_grouped_and_paged(client, engine, clock, polled):
    await switch_off_rules_but(engine, "CheckpointExpired", "ConsecutiveFailures", "Watchdog")
    await _three_rounds(engine, clock, polled)

    async def listed(query=""):
        return [
            (i["labels"]["job_name"], i["state"]) for i in (await _ask(client, "GET", f"/incidents?{query}"))["items"]
        ]

    whole = [("ledger", "firing"), ("orders", "resolved")]
    assert await listed() == whole
    assert await listed("state=resolved") == whole[1:]
    assert await listed("severity=critical") == whole[1:]
    assert await listed("search=EDGE") == whole[:1]
    assert await listed("search=%25") == []
    assert await listed("label=job_name%3Dorders") == whole[1:]
    assert await listed("label=alertname%3DConsecutiveFailures") == whole[1:]
    assert await listed("label=job_name%3Dorders&label=job_name%3Dledger") == []
    assert await listed("group=job") == whole
    grouped = (await _ask(client, "GET", "/incidents?group=target"))["items"]
    assert len({i["group"] for i in grouped}) == 1
    for group in ("", "&group=job", "&group=cause"):
        first = await _ask(client, "GET", f"/incidents?limit=1{group}")
        second = await _ask(client, "GET", f"/incidents?limit=1{group}&cursor={first['next']}")
        assert second["next"] is None
        assert [first["items"][0]["labels"]["job_name"], second["items"][0]["labels"]["job_name"]] == [
            "ledger",
            "orders",
        ]


_BAD = [
    ("state=ill", "state"),
    ("severity=dire", "severity"),
    ("group=phase", "group"),
    ("label=orders", "label"),
    ("label=%3Dorders", "label"),
    ("cursor=nonsense", "cursor"),
    ("cursor=WzEsMl0", "cursor"),
    ("limit=0", "limit"),
]


async def test_an_invalid_query_is_refused_by_parameter(client):
    for query, field in _BAD:
        problem = await _ask(client, "GET", f"/incidents?{query}", status=422)
        assert field in str(problem["errors"][0]), problem


# --- what people do -----------------------------------------------------------------------------------------------


async def test_an_incident_is_acknowledged_claimed_commented_and_released(client, engine, clock, polled):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    await _three_rounds(engine, clock, polled)
    (opened, over) = (await _ask(client, "GET", "/incidents"))["items"]
    path = f"/incidents/{opened['id']}"

    acknowledged = await _ask(client, "POST", f"{path}/acknowledge", {"author": "ann"})
    again = await _ask(client, "POST", f"{path}/acknowledge", {"author": "ben"})
    assert (acknowledged["acknowledged_by"], again["acknowledged_by"]) == ("ann", "ann")
    assert (await _ask(client, "POST", f"{path}/claim", {"author": "ann"}))["claimed_by"] == "ann"
    refused = await _ask(client, "POST", f"{path}/claim", {"author": "ben"}, status=409)
    assert refused["type"].endswith("incident-claimed")
    taken = await _ask(client, "POST", f"{path}/claim", {"author": "ben", "is_taking_over": True})
    assert taken["claimed_by"] == "ben"
    said = await _ask(client, "POST", f"{path}/comments", {"author": "ann", "text": "disk full"}, status=201)
    assert (said["kind"], said["text"]) == ("comment", "disk full")
    released = await _ask(client, "POST", f"{path}/release", {"author": "ann"})
    assert (released["claimed_by"], released["comment_count"]) == (None, 1)

    notes = (await _ask(client, "GET", path))["notes"]
    assert [(n["author"], n["kind"], n["text"]) for n in notes] == [
        ("ann", "acknowledged", ""),
        ("ann", "claimed", ""),
        ("ben", "claimed", "taken over from ann"),
        ("ann", "comment", "disk full"),
        ("ann", "released", "was taken by ben"),
    ]
    for verb in ("acknowledge", "claim"):
        problem = await _ask(client, "POST", f"/incidents/{over['id']}/{verb}", {"author": "ann"}, status=409)
        assert problem["type"].endswith("incident-closed")
    after = {"author": "ann", "text": "it was the disk"}
    await _ask(client, "POST", f"/incidents/{over['id']}/comments", after, status=201)


async def test_an_incident_lists_what_changed_before_and_during_it(client, engine, clock, polled):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    await polled(orders=[failed(1)])
    alerting = Alerting(engine, clock)
    await alerting.round()
    (opened,) = (await _ask(client, "GET", "/incidents"))["items"]
    began_at = clock.now()

    async def annotated(text, at, author=None):
        body = {"text": text, "at": at.isoformat(), "author": author}
        await _ask(client, "POST", f"/jobs/{opened['job_id']}/annotations", body, status=201)

    await annotated("deployed 1.4", began_at - timedelta(hours=1))
    await annotated("too long ago", began_at - timedelta(hours=25))
    clock.at += timedelta(minutes=2)
    await annotated("host replaced", began_at + timedelta(minutes=1), "ann")

    changes = (await _ask(client, "GET", f"/incidents/{opened['id']}"))["changes"]
    noted = [(c["text"], c["is_before"]) for c in changes if c["kind"] == "annotation"]
    assert noted == [("host replaced (ann)", False), ("deployed 1.4", True)]
    assert [c["at"] for c in changes] == sorted((c["at"] for c in changes), reverse=True)


async def test_a_roll_back_of_advice_is_listed_as_a_roll_back(client, engine, clock, polled):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    await polled(orders=[failed(1)])
    await Alerting(engine, clock).round()
    (opened,) = (await _ask(client, "GET", "/incidents"))["items"]
    ago = [clock.at - timedelta(hours=h) for h in (4, 3, 2, 1)]
    card = CardRecord(
        id="c1", job_id=opened["job_id"], run_id="r", topic=Topic.MODE, kind="k", state=AdviceState.NEW,
        state_reason="given", created_at=ago[0], changed_at=ago[0], last_given_at=ago[0], applied_at=None, document={},
        measured=None,
    )  # fmt: skip
    async with writing(engine) as connection:
        await lock_job(connection, card.job_id)
        await add_card(connection, card)
        card = await move_card(connection, card, AdviceState.VERIFIED, "2 of 2 held", ago[1])
        card = await note_step(connection, card, "sent to the target", ago[2], AdviceStep.ROLL_BACK)
        await move_card(connection, card, AdviceState.ROLLED_BACK, "other settings again", ago[3])

    changes = (await _ask(client, "GET", f"/incidents/{opened['id']}"))["changes"]

    assert [c["text"] for c in changes if c["kind"] == "advice"] == [
        "mode: rolled back (noted by the service). other settings again",
        "mode: roll back (the service). sent to the target",
        "mode: measured (noted by the service). 2 of 2 held",
    ]


async def test_an_incident_says_what_to_do_first(client, engine, clock, polled):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    await polled(orders=[failed(1)])
    await Alerting(engine, clock).round()
    (opened,) = (await _ask(client, "GET", "/incidents"))["items"]
    assert (await _ask(client, "GET", f"/incidents/{opened['id']}"))["action"] is None
    first, *_, second = Topic
    async with writing(engine) as connection:
        await lock_job(connection, opened["job_id"])
        for topic, words in ((second, "later"), (first, "Enable unaligned checkpoints")):
            card = CardRecord(
                id=f"c-{topic}", job_id=opened["job_id"], run_id="r", topic=topic, kind="k", state=AdviceState.NEW,
                state_reason="given", created_at=clock.at, changed_at=clock.at, last_given_at=clock.at, applied_at=None,
                document={"headline": words}, measured=None,
            )  # fmt: skip
            await add_card(connection, card)

    found = await _ask(client, "GET", f"/incidents/{opened['id']}")
    listed = (await _ask(client, "GET", f"/alerts?rule=CheckpointExpired&job={opened['job_id']}"))["items"]
    one = await _ask(client, "GET", f"/alerts/{listed[0]['id']}")
    assert [a["action"] for a in (found, *found["alerts"], *listed, one)] == 4 * ["Enable unaligned checkpoints"]


async def test_what_a_change_did_is_listed_even_if_it_ended_the_incident(client, engine, clock, polled):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    await polled(orders=[failed(1)])
    await Alerting(engine, clock).round()
    (opened,) = (await _ask(client, "GET", "/incidents"))["items"]
    began_at = clock.now()
    card = CardRecord(
        id="c1", job_id=opened["job_id"], run_id="r", topic=Topic.MODE, kind="k", state=AdviceState.NEW,
        state_reason="given", created_at=began_at, changed_at=began_at, last_given_at=began_at, applied_at=None,
        document={}, measured=None,
    )  # fmt: skip
    async with writing(engine) as connection:
        await connection.execute(update(alert_tables.incidents).values(ended_at=began_at + timedelta(minutes=10)))
        await lock_job(connection, card.job_id)
        await add_card(connection, card)
        for state, kind, minutes in (
            (AdviceState.ACCEPTED, AdviceStep.GUARDED_APPLY, 5),
            (AdviceState.APPLIED, AdviceStep.STATE, 6),
            (AdviceState.VERIFIED, AdviceStep.STATE, 20),
        ):
            at = began_at + timedelta(minutes=minutes)
            who = "ann" if kind.is_apply else THE_SERVICE
            card = await move_card(connection, card, state, "because", at, kind=kind, author=who)
    clock.at += timedelta(hours=1)

    changes = (await _ask(client, "GET", f"/incidents/{opened['id']}"))["changes"]

    assert [(c["text"], c["is_before"]) for c in changes if c["kind"] == "advice"] == [
        ("mode: measured (noted by the service). because", False),
        ("mode: applied (noted by the service). because", False),
        ("mode: change sent, with an automatic roll back (ann). because", False),
    ]


async def test_changes_during_an_incident_do_not_displace_the_change_before_it(
    client, engine, clock, polled, monkeypatch
):
    monkeypatch.setattr(service, "_CHANGES_MAX", 3)
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    await polled(orders=[failed(1)])
    await Alerting(engine, clock).round()
    (opened,) = (await _ask(client, "GET", "/incidents"))["items"]
    began_at = clock.now()
    clock.at += timedelta(minutes=10)
    for text, minutes in (("deployed 1.4", -60), *((f"restarted {n}", n) for n in range(5))):
        body = {"text": text, "at": (began_at + timedelta(minutes=minutes)).isoformat()}
        await _ask(client, "POST", f"/jobs/{opened['job_id']}/annotations", body, status=201)

    changes = (await _ask(client, "GET", f"/incidents/{opened['id']}"))["changes"]

    noted = [c["text"] for c in changes if c["kind"] == "annotation"]
    assert noted == ["restarted 4", "restarted 3", "restarted 2", "deployed 1.4"]


async def test_an_incident_is_not_taken_from_somebody_whom_the_caller_does_not_know(client, engine, clock, polled):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    await polled(orders=[failed(1)])
    await Alerting(engine, clock).round()
    path = f"/incidents/{(await _ask(client, 'GET', '/incidents'))['items'][0]['id']}/claim"
    take = {"is_taking_over": True}
    await _ask(client, "POST", path, {"author": "ann"})
    await _ask(client, "POST", path, {"author": "ben", "claimed_by": "ann", **take})

    refused = await _ask(client, "POST", path, {"author": "cy", "claimed_by": "ann", **take}, status=409)

    assert (refused["type"].rpartition(":")[2], "ben" in refused["detail"]) == ("incident-claimed", True)
    assert (await _ask(client, "POST", path, {"author": "cy", "claimed_by": "ben", **take}))["claimed_by"] == "cy"


async def test_the_number_of_notes_on_an_incident_is_limited(client, engine, clock, polled, monkeypatch):
    for name, value in (("COMMENTS_MAX", 3), ("_CLAIMS_KEPT", 2)):
        monkeypatch.setattr(service, name, value)
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    await polled(orders=[failed(1)])
    await Alerting(engine, clock).round()
    path = f"/incidents/{(await _ask(client, 'GET', '/incidents'))['items'][0]['id']}"
    said = {"author": "ann", "text": "disk full"}

    # The comments are posted at the same time, so that a missing lock would be noticed.
    answers = await asyncio.gather(*(client.post(f"/api/v1{path}/comments", json=said) for _ in range(8)))
    await _ask(client, "POST", f"{path}/acknowledge", {"author": "ann"})
    for author in ("ann", "ben", "cy"):
        await _ask(client, "POST", f"{path}/claim", {"author": author, "is_taking_over": True})
    await _ask(client, "POST", f"{path}/release", {"author": "cy"})

    assert sorted(a.status_code for a in answers) == [201] * 3 + [409] * 5
    assert next(a for a in answers if a.status_code == 409).json()["type"].endswith("too-many-comments")
    kinds = [(n["kind"], n["author"]) for n in (await _ask(client, "GET", path))["notes"]]
    assert kinds == [*[("comment", "ann")] * 3, ("acknowledged", "ann"), ("claimed", "cy"), ("released", "cy")]


async def test_an_unknown_incident_and_an_invalid_body_are_problem_documents(client, engine, clock, polled):
    await _ask(client, "GET", "/incidents/i-unheard", status=404)
    for verb, body in (
        ("acknowledge", {"author": "ann"}),
        ("claim", {"author": "ann"}),
        ("release", {"author": "ann"}),
        ("comments", {"author": "ann", "text": "x"}),
    ):
        problem = await _ask(client, "POST", f"/incidents/i-unheard/{verb}", body, status=404)
        assert problem["type"].endswith("unknown-incident")
        for wrong in (
            {},
            {**body, "author": ""},
            {**body, "author": " \t"},
            {**body, "author": "x" * 201},
            {**body, "more": 1},
        ):
            await _ask(client, "POST", f"/incidents/i-unheard/{verb}", wrong, status=422)
    for text in ("", " \n ", "x" * 4001, "a\0b"):
        body = {"author": "ann", "text": text}
        problem = await _ask(client, "POST", "/incidents/i-unheard/comments", body, status=422)
        assert problem["errors"][0]["pointer"] == "#/text"


async def test_the_preview_of_a_silence_counts_what_the_silence_then_hides(client, engine, clock, polled):
    await switch_off_rules_but(engine, "CheckpointExpired", "ConsecutiveFailures", "Watchdog")
    await polled(orders=[failed(1), failed(2), failed(3)], ledger=[failed(1)])
    await Alerting(engine, clock).round()
    both = {
        "matchers": [{"name": "severity", "value": "none", "is_equal": False}, {"name": "job_name", "value": "orders"}]
    }
    every = {"matchers": [{"name": "target", "value": "", "is_equal": False}]}

    one = await _ask(client, "POST", "/silences/preview", both)
    whole = await _ask(client, "POST", "/silences/preview", every)
    assert (one["alert_count"], one["job_count"]) == (2, 1)
    assert (whole["alert_count"], whole["job_count"], len(whole["summaries"])) == (3, 2, 3)
    assert await rows(engine, "SELECT count(*) FROM silences") == [(0,)]
    await _ask(client, "POST", "/silences/preview", {"matchers": []}, status=422)

    end = (NOW + timedelta(hours=1)).isoformat()
    silence = {**both, "ends_at": end, "reason": "works", "author": "ann"}
    assert (await _ask(client, "POST", "/silences", silence, status=201))["hidden_count"] == 2
    found = {i["labels"]["job_name"]: i["silenced_count"] for i in (await _ask(client, "GET", "/incidents"))["items"]}
    assert found == {"orders": 2, "ledger": 0}


@pytest.mark.parametrize("verb", ["acknowledge", "claim", "silence"])
async def test_alerts_that_somebody_has_silenced_or_seen_are_counted_without_a_severity(
    client, engine, clock, polled, verb
):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    await polled(orders=[failed(1)])
    await Alerting(engine, clock).round()
    (opened,) = (await _ask(client, "GET", "/incidents"))["items"]

    async def counted():
        told = [(await _ask(client, "GET", "/jobs"))["items"][0], await _ask(client, "GET", "/status")]
        return {(t["alerts_firing_count"], t["alerts_severity"]) for t in told}

    assert await counted() == {(1, opened["severity"])}
    if verb == "silence":
        end = (clock.at + timedelta(hours=1)).isoformat()
        orders = [{"name": "job_name", "value": "orders"}]
        made = {"matchers": orders, "ends_at": end, "reason": "works", "author": "ann"}
        await _ask(client, "POST", "/silences", made, status=201)
    else:
        await _ask(client, "POST", f"/incidents/{opened['id']}/{verb}", {"author": "ann"})

    # The rows of the fleet are read again after a while.
    clock.at += timedelta(seconds=5)
    assert await counted() == {(1, None)}


# --- retention and migration --------------------------------------------------------------------------------------


async def test_retention_drops_an_old_incident_with_its_alerts_and_notes(client, engine, clock, polled):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    await _three_rounds(engine, clock, polled)
    (_, over) = (await _ask(client, "GET", "/incidents"))["items"]
    await _ask(client, "POST", f"/incidents/{over['id']}/comments", {"author": "ann", "text": "x"}, status=201)

    await apply_retention(engine, Retention(timedelta(days=7)), clock.now() + timedelta(days=9))

    async with reading(engine) as connection:
        with pytest.raises(UnknownEntityError):
            await get_incident(connection, over["id"])
    assert await rows(engine, "SELECT count(*) FROM incident_notes") == [(0,)]
    assert [i["state"] for i in (await _ask(client, "GET", "/incidents"))["items"]] == ["firing"]


@pytest.fixture
def before_incidents(databases) -> Iterator[str]:
    """Yield a database at the revision before the one that added incidents."""
    with databases.migrated() as url:
        (before,) = (
            r.down_revision
            for r in ScriptDirectory(str(migrate.script_location())).walk_revisions()
            if r.doc.startswith("Group alerts into incidents")
        )
        migrate.downgrade(url, before)
        yield url


def test_the_migration_groups_stored_alerts_like_the_rule_without_causes(before_incidents):
    alerts = drawn_alerts(7, 300, is_cause_known=False)
    with psycopg.connect(before_incidents) as connection:
        for a in alerts:
            i = a.identity
            connection.execute(
                "INSERT INTO alerts (id, rule, severity, fingerprint, labels, job_id, target_id, state, began_at,"
                " fired_at, changed_at, ended_at, evaluated_at, reading, reason, annotations) VALUES"
                " (%s, %s, %s, %s, '{}', %s, %s, %s, %s, %s, %s, %s, %s, 'active', 'x', '{}')",
                [
                    *(a.id, i.rule, i.severity, i.fingerprint, i.job_id, i.target_id, a.state, a.began_at, a.fired_at),
                    *(a.changed_at, a.ended_at, a.evaluated_at),
                ],
            )
    migrate.upgrade(before_incidents)

    with psycopg.connect(before_incidents) as connection:
        found = dict(connection.execute("SELECT id, incident_id FROM alerts").fetchall())
        states = connection.execute("SELECT id, state, alert_count, open_count, ended_at FROM incidents").fetchall()
    expected = assign(alerts, ())[0]
    assert found == expected
    for incident, state, count, open_count, ended_at in states:
        own = [a for a in alerts if expected[a.id] == incident]
        order = ["firing", "pending", "resolved", "inactive"]
        assert state == min((a.state.value for a in own), key=order.index)
        assert (count, open_count) == (len(own), sum(a.state.is_open for a in own))
        assert (ended_at is None) == (open_count > 0)
