"""From a checkpoint in the store to a page at a receiver: one page for each episode, despite crashes and outages."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.alerting.labels import Matcher
from backend.alerting.lifecycle import AlertState
from backend.domain.advice import AdviceState, Topic
from backend.domain.errors import LeadershipLostError, StoreUnavailableError
from backend.domain.receivers import ReceiverKind
from backend.domain.target import TargetState
from backend.services.alerts.deliveries import DeliveryOptions
from backend.store.advice.cards import CardRecord, add_card
from backend.store.alerts.lease import Term, evaluator_record, release_term, take_term
from backend.store.alerts.silences import Silence, add_silence, end_silence
from backend.store.postgres.connections import writing
from backend.store.retention import apply_retention
from backend.store.schema.partitions import Retention
from tests.support.alerting import BASE_URL, Alerting, receiver_at, rows, switch_off_rules_but
from tests.support.observations import completed, failed, job, observation
from tests.support.receiving import receiving
from tests.support.seeds import over_seeds
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


class _Killed(BaseException):
    """Simulates a kill of the process. ``except Exception`` does not catch it."""


@pytest.fixture
def webhook():
    with receiving() as box:
        yield box


@pytest.fixture
def watching(writer, target, clock):
    """Return a function that writes a poll at the clock's time, with one checkpoint for each given outcome."""

    async def write(*outcomes):
        listed = [failed(i) if o == "expired" else completed(i) for i, o in enumerate(outcomes, start=1)]
        seen = job(listed)
        await writer.write(observation(target, seen, at=clock.at))

    return write


@pytest.fixture(autouse=True)
async def _only_expiry(engine):
    await switch_off_rules_but(engine, "CheckpointExpired", "TargetUnreachable", "Watchdog")


async def _episodes(engine):
    return await rows(engine, "SELECT id, state FROM alerts WHERE rule = 'CheckpointExpired' ORDER BY began_at")


async def test_a_page_says_what_to_do_first_and_its_resolution_does_not(engine, clock, watching, webhook):
    await watching("completed")
    ((job_id,),) = await rows(engine, "SELECT id FROM jobs")
    card = CardRecord(
        id="c", job_id=job_id, run_id="r", topic=Topic.MODE, kind="k", state=AdviceState.NEW, state_reason="given",
        created_at=clock.at, changed_at=clock.at, last_given_at=clock.at, applied_at=None,
        document={"headline": "Enable unaligned checkpoints."}, measured=None,
    )  # fmt: skip
    async with writing(engine) as connection:
        await add_card(connection, card)
    for kind in (ReceiverKind.ALERTMANAGER, ReceiverKind.WEBHOOK):
        await receiver_at(engine, clock, webhook.url, kind=kind, name=kind.value)
    alerting = Alerting(engine, clock)
    for outcomes in (["completed", "expired", "expired"], ["completed", "expired", "expired", *["completed"] * 3]):
        await watching(*outcomes)
        for _ in range(3):
            await alerting.round(seconds=2)

    sent = [
        a for taken in webhook.taken for a in (taken.body if isinstance(taken.body, list) else taken.body["alerts"])
    ]
    sent = [a["annotations"] for a in sent if a["labels"]["alertname"] == "CheckpointExpired"]
    told = [s for s in sent if "action" in s]
    assert len(told) >= 2
    assert len(sent) > len(told), "the resolutions"
    for texts in told:
        assert texts["action"] == "Enable unaligned checkpoints."
        assert f" Do first: Enable unaligned checkpoints. {texts['link']}" in texts["description"]
    assert not any("Do first" in s["description"] for s in sent if "action" not in s)


async def test_an_expired_checkpoint_pages_once_and_its_resolution_pages_once(engine, clock, watching, webhook):
    await receiver_at(engine, clock, webhook.url)
    alerting = Alerting(engine, clock)
    for outcomes in (["completed", "expired"], ["completed", "expired", "expired"]):
        await watching(*outcomes)
        for _ in range(3):
            await alerting.round(seconds=2)
        # A restart must neither lose a page nor repeat one.
        alerting = Alerting(engine, clock)
    await watching("completed", "expired", "expired", *["completed"] * 3)
    for _ in range(3):
        await alerting.round(seconds=2)

    ((episode, state),) = await _episodes(engine)
    assert state == AlertState.RESOLVED
    assert webhook.pages() == [(f"{episode}-firing", "firing"), (f"{episode}-resolved", "resolved")]
    first = webhook.taken[0].body
    assert (first["version"], first["receiver"], first["alerts"][0]["endsAt"]) == (
        "4",
        "on-call",
        "0001-01-01T00:00:00Z",
    )
    annotations = first["alerts"][0]["annotations"]
    job_id = annotations["job_id"]
    assert annotations["link"].startswith(f"{BASE_URL}/ui/jobs/{job_id}/runs/r")
    assert annotations["link"].endswith("/checkpoints/2")
    assert annotations["link"] in annotations["description"]
    assert annotations["runbook_url"] == f"{BASE_URL}/ui/runbooks/CheckpointExpired"
    for name in ("job", "vertex", "subtasks", "hosts", "phase"):
        assert annotations[name], name
    assert webhook.taken[1].body["alerts"][0]["endsAt"] > "2026-"


@over_seeds(2, more=10)
async def test_after_kills_at_any_moment_each_page_arrives_and_no_page_gets_a_second_key(
    seed, engine, clock, watching, webhook
):
    rnd = random.Random(seed)
    await receiver_at(engine, clock, webhook.url)
    deaths = []

    def failpoint(name):
        if len(deaths) < 3 and rnd.random() < 0.5:
            deaths.append(name)
            raise _Killed

    def reborn():
        return Alerting(engine, clock, holder=f"life {len(deaths)}", failpoint=failpoint)

    alerting = reborn()
    for outcomes in (["expired"], ["expired", "expired"], ["expired", "expired", *["completed"] * 3]):
        await watching(*outcomes)
        for _ in range(5):
            try:
                if rnd.random() < 0.2 and len(deaths) < 3:
                    # Kill the process after it has decided the alert, and before it delivers the page.
                    clock.at += timedelta(seconds=2)
                    await alerting.runner.evaluate_once()
                    deaths.append("decided")
                    raise _Killed
                await alerting.round(seconds=2)
            except* _Killed:
                alerting = reborn()
                # The lease of the killed process expires, and so do the deliveries that it claimed.
                async with engine.begin() as connection:
                    await connection.execute(text("UPDATE alert_evaluator SET expires_at = now() - interval '1 s'"))
                clock.at += timedelta(seconds=61)
                await watching(*outcomes)

    ((episode, state),) = await _episodes(engine)
    told = f"seed={seed} deaths={deaths} pages={webhook.pages()}"
    assert state == AlertState.RESOLVED, told
    keys = [key for key, _ in webhook.pages()]
    assert list(dict.fromkeys(keys)) == [f"{episode}-firing", f"{episode}-resolved"], told
    # A page may be repeated only if a kill comes after the receiver's response and before the delivery is recorded.
    # The repeated page has the same key.
    assert len(keys) <= 2 + deaths.count("sent"), told
    assert {row[0] for row in await rows(engine, "SELECT state FROM deliveries")} == {"delivered"}, told


async def test_a_receiver_that_is_down_then_broken_then_slow_gets_its_page_and_every_attempt_is_logged(
    engine, clock, watching, webhook
):
    with receiving() as other:
        port = int(other.url.split(":")[2].split("/")[0])
        dead_url = other.url
    await receiver_at(engine, clock, dead_url, name="down")
    await receiver_at(engine, clock, webhook.url, name="well")
    await watching("expired")
    alerting = Alerting(engine, clock, timeout_s=PATIENCE_S)
    impatient = Alerting(engine, clock, timeout_s=0.5)
    await alerting.round()
    assert len(webhook.taken) == 1, "a receiver that is down must not delay another one"

    with receiving(port) as late:
        late.status, late.answer = 500, b"<b>no\x00\x1b[31m disk</b>"
        for _ in range(4):
            await alerting.round(seconds=10)
            await watching("expired")
        assert late.posts
        late.status, before = 200, len(late.posts)
        late.released.clear()
        await impatient.round(seconds=60)
        assert len(late.posts) == before + 1
        late.released.set()
        await watching("expired")
        await alerting.round(seconds=120)

    log = await rows(
        engine,
        "SELECT a.number, a.is_ok, a.result FROM delivery_attempts a JOIN deliveries d ON d.id = a.delivery_id"
        " JOIN receivers r ON r.id = d.receiver_id WHERE r.name = 'down' ORDER BY 1",
    )
    assert log[0] == (1, False, "cannot connect")
    assert [n for n, _, _ in log] == list(range(1, len(log) + 1))
    assert (False, "HTTP 500: <b>no [31m disk</b>") in [(is_ok, result) for _, is_ok, result in log]
    assert log[-2][2] == "no answer within 0.5 s"
    assert log[-1][1:] == (True, "HTTP 200")
    ((state, attempts),) = await rows(
        engine,
        "SELECT d.state, attempt_count FROM deliveries d JOIN receivers r ON r.id = d.receiver_id WHERE name = 'down'",
    )
    assert (state, attempts) == ("delivered", len(log))


async def test_the_pause_between_failed_attempts_doubles_up_to_300_s(engine, clock, watching, webhook):
    webhook.status = 503
    await receiver_at(engine, clock, webhook.url)
    await watching("expired")
    alerting, pauses = Alerting(engine, clock), []
    await alerting.round()
    for _ in range(10):
        ((due_at,),) = await rows(engine, "SELECT next_attempt_at FROM deliveries")
        pauses.append(round((due_at - clock.at).total_seconds()))
        clock.at = due_at
        await alerting.runner.evaluate_once()
        await alerting.runner.deliver_once()

    assert len(webhook.posts) == 11
    assert pauses == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


async def test_a_released_lease_is_free_at_once_and_its_record_can_be_read(engine):
    term = await take_term(engine, holder="one", ttl_s=60)
    assert term is not None
    await release_term(engine, term)

    record = await evaluator_record(engine)
    other = await take_term(engine, holder="other", ttl_s=60)

    assert record is not None
    assert (record.holder, record.is_held) == ("one", False)
    assert other == Term("other", term.number + 1)


async def test_an_evaluator_that_lost_its_lease_writes_nothing(engine, clock, watching, webhook):
    await receiver_at(engine, clock, webhook.url)
    await watching("expired")
    stale, other = Alerting(engine, clock, holder="stale"), Alerting(engine, clock, holder="other")
    await stale.runner.evaluate_once()
    term = await take_term(engine, holder="stale", ttl_s=10)
    assert term is not None
    assert await take_term(engine, holder="other", ttl_s=10) is None
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alert_evaluator SET expires_at = now() - interval '1 s'"))
    await other.runner.evaluate_once()
    assert await take_term(engine, holder="other", ttl_s=10) == Term("other", term.number + 1)

    before = await rows(engine, "SELECT * FROM alerts ORDER BY id")
    await watching("expired", *["completed"] * 3)
    with pytest.raises(LeadershipLostError):
        await stale.evaluator.evaluate(term)
    with pytest.raises(LeadershipLostError):
        await stale.delivery.deliver_due(term)
    with pytest.raises(LeadershipLostError):
        await stale.delivery.resend(term)
    assert await rows(engine, "SELECT * FROM alerts ORDER BY id") == before
    assert webhook.posts == []


async def test_missing_data_resolves_no_alert(engine, clock, watching, webhook, writer, target):
    await receiver_at(engine, clock, webhook.url)
    await watching("expired")
    alerting = Alerting(engine, clock)
    await alerting.round()

    await writer.report_failure(target, kind=TargetState.UNREACHABLE, reason="cannot connect", at=clock.at)
    for _ in range(6):
        await alerting.round(seconds=60)

    ((_, state),) = await _episodes(engine)
    assert state == AlertState.FIRING
    assert [s for _, s in webhook.pages()] == ["firing", "firing"], (
        "one page for the checkpoint, and one for the target"
    )
    found = await rows(engine, "SELECT reading, reason FROM alerts WHERE rule = 'CheckpointExpired'")
    assert found == [("unknown", "its target is unreachable (cannot connect)")]


async def test_while_postgres_is_away_nothing_resolves_and_alertmanager_still_gets_alerts(
    engine, clock, watching, databases, database
):
    with receiving() as manager:
        await receiver_at(engine, clock, manager.url.removesuffix("/hook"), kind=ReceiverKind.ALERTMANAGER)
        await watching("expired")
        alerting = Alerting(engine, clock)
        await alerting.round()
        await alerting.runner.deliver_once()
        before = await _episodes(engine)
        name = database.rpartition("/")[2]
        databases.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        databases.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        told = len(manager.posts)
        try:
            for _ in range(4):
                clock.at += timedelta(seconds=61)
                with pytest.raises(StoreUnavailableError):
                    await alerting.runner.evaluate_once()
                with pytest.raises(StoreUnavailableError):
                    await alerting.runner.deliver_once()
        finally:
            databases.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        assert len(manager.posts) == told + 4
        ends = [p.body[0]["endsAt"] for p in manager.posts[told:]]
        assert all(a["endsAt"] > clock.at.isoformat() for a in manager.posts[-1].body), ends
        assert await _episodes(engine) == before


async def test_an_outage_of_postgres_causes_neither_a_resolution_nor_a_second_page(
    engine, clock, watching, webhook, databases, database
):
    await receiver_at(engine, clock, webhook.url)
    await watching("expired")
    alerting = Alerting(engine, clock)
    await alerting.round()
    (before,) = await _episodes(engine)
    name = database.rpartition("/")[2]

    async def outage(rounds):
        databases.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        databases.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        try:
            for _ in range(rounds):
                with pytest.raises(StoreUnavailableError):
                    await alerting.round(seconds=600)
        finally:
            databases.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    await outage(3)
    # The outage made the stored data old. This must neither resolve the alert nor send another page.
    for _ in range(3):
        await alerting.round()
    assert [s for _, s in webhook.pages()] == ["firing"]
    assert await rows(engine, "SELECT state, reading FROM alerts WHERE rule = 'CheckpointExpired'") == [
        ("firing", "unknown")
    ]
    # Collectors write again, and checkpoints still expire. Then PostgreSQL is unreachable once more.
    await watching("expired", "expired")
    await alerting.round()
    await outage(1)
    await watching("expired", "expired", *["completed"] * 3)
    await alerting.round()
    await alerting.round()

    assert [i for i, _ in await _episodes(engine)] == [before[0]]
    assert webhook.pages() == [(f"{before[0]}-firing", "firing"), (f"{before[0]}-resolved", "resolved")]


async def test_an_outage_of_postgres_between_a_delivery_and_its_record_does_not_page_twice(
    engine, clock, watching, webhook, databases, database
):
    await receiver_at(engine, clock, webhook.url)
    await watching("expired")
    name, outages = database.rpartition("/")[2], []

    def cut(moment):
        if moment == "sent" and not outages:
            outages.append(moment)
            databases.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            databases.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")

    alerting = Alerting(engine, clock, failpoint=cut)
    try:
        # The error may be wrapped in a group, because a task group runs the deliveries.
        with pytest.raises((StoreUnavailableError, BaseExceptionGroup)):
            await alerting.round()
    finally:
        databases.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    for _ in range(4):
        await watching("expired")
        await alerting.round(seconds=61)

    assert outages == ["sent"]
    assert [s for _, s in webhook.pages()] == ["firing"]
    assert await rows(engine, "SELECT state, attempt_count FROM deliveries") == [("delivered", 1)]


async def test_an_alert_is_sent_to_alertmanager_again_before_it_would_resolve(engine, clock, watching):
    with receiving() as manager:
        await receiver_at(engine, clock, manager.url.removesuffix("/hook"), kind=ReceiverKind.ALERTMANAGER)
        alerting = Alerting(engine, clock, options=DeliveryOptions(resend_s=60))
        for _ in range(20):
            await watching("expired")
            await alerting.round(seconds=20)

        told = [p.body for p in manager.posts if any(a["labels"]["alertname"] == "CheckpointExpired" for a in p.body)]
        assert {p.path for p in manager.posts} == {"/api/v2/alerts"}
        assert 6 <= len(told) <= 8, "one message a minute, for 400 s"
        assert len({a["startsAt"] for body in told for a in body if "job_name" in a["labels"]}) == 1
        ((count,),) = await rows(
            engine, "SELECT sent_count FROM deliveries d JOIN alerts a ON a.id = alert_id WHERE rule <> 'Watchdog'"
        )
        assert count == len(told)


async def _silence(engine, clock, *, seconds):
    at = clock.now()
    matchers = (Matcher("alertname", "CheckpointExpired"), Matcher("job_name", "other", is_equal=False))
    silence = Silence("s1", matchers, at, at + timedelta(seconds=seconds), "planned", "maria", at)
    async with writing(engine) as connection:
        await add_silence(connection, silence)


async def test_a_silenced_alert_is_delivered_if_it_still_fires_when_the_silence_ends(engine, clock, watching, webhook):
    await receiver_at(engine, clock, webhook.url)
    await _silence(engine, clock, seconds=30)
    alerting = Alerting(engine, clock)
    for _ in range(5):
        await watching("expired")
        await alerting.round(seconds=5)
    assert [s for _, s in await _episodes(engine)] == [AlertState.FIRING]
    assert webhook.posts == []

    for _ in range(3):
        await watching("expired")
        await alerting.round(seconds=5)
    assert [s for _, s in webhook.pages()] == ["firing"]


async def test_an_alert_that_was_silenced_until_it_resolved_is_never_delivered(engine, clock, watching, webhook):
    webhook.status = 500
    await receiver_at(engine, clock, webhook.url)
    await _silence(engine, clock, seconds=600)
    alerting = Alerting(engine, clock)
    await watching("expired")
    await alerting.round()
    await watching("expired", *["completed"] * 3)
    for _ in range(3):
        await alerting.round()

    assert [s for _, s in await _episodes(engine)] == [AlertState.RESOLVED]
    async with writing(engine) as connection:
        await end_silence(connection, "s1", at=clock.now())
    await alerting.round()
    assert webhook.posts == []


async def test_a_redirect_is_not_followed_and_a_credential_is_sent_in_the_header_only(
    engine, clock, watching, webhook, caplog
):
    receiver = await receiver_at(engine, clock, webhook.url)
    async with engine.begin() as connection:
        await connection.execute(
            text("UPDATE receivers SET credential = 'env:BARRIERSCOPE_SECRET_X' WHERE id = :id"), {"id": receiver.id}
        )
    webhook.status, webhook.location = 302, webhook.url.replace("/hook", "/elsewhere")
    await watching("expired")
    without = Alerting(engine, clock)
    await without.round()
    assert webhook.posts == [], "nothing may be sent without the credential"

    alerting = Alerting(engine, clock, secrets=lambda reference: {"env:BARRIERSCOPE_SECRET_X": "hunter2"}[reference])
    await alerting.round(seconds=70)

    (post,) = webhook.posts
    assert (post.path, post.headers["Authorization"]) == ("/hook", "Bearer hunter2")
    ((stored,),) = await rows(engine, "SELECT string_agg(result, ' | ' ORDER BY number) FROM delivery_attempts")
    assert stored == ("no credential at env:BARRIERSCOPE_SECRET_X | HTTP 302: redirects are not followed")
    assert "hunter2" not in caplog.text


async def test_retention_drops_old_resolved_alerts_with_their_history_and_keeps_open_ones(
    engine, clock, watching, webhook
):
    await receiver_at(engine, clock, webhook.url)
    await watching("expired")
    alerting = Alerting(engine, clock)
    await alerting.round()
    await watching("expired", *["completed"] * 3)
    await alerting.round()
    assert [state for _, state in await _episodes(engine)] == [AlertState.RESOLVED]

    await apply_retention(engine, Retention(timedelta(days=7)), clock.now() + timedelta(days=9))

    assert await rows(engine, "SELECT rule FROM alerts") == [("Watchdog",)]
    assert await rows(engine, "SELECT count(*) FROM deliveries") == [(0,)]
