"""The states of a recommendation in a real store: new, accepted, applied, verified, dismissed and rolled back."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from backend.advisor.recommending import topics_of
from backend.contracts import advice
from backend.contracts.api import JobOut, Page, Problem
from backend.domain.address_rules import EVERYWHERE, AddressRules
from backend.domain.advice import AdviceState, AdviceStep, Metric, Topic
from backend.domain.connection import ANYWHERE
from backend.domain.engines import FLINK, RUNTIME
from backend.domain.errors import InvalidInputError
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin
from backend.services.advice.cards import AdviceService
from backend.services.jobs.evidence import EvidenceReader
from backend.store.advice import cards as store
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.advised_jobs import EXACTLY_ONCE, persisting, readings, slow_run
from tests.support.advised_targets import TIMED, AdvisedTarget
from tests.support.handwritten_jobs import START, quick
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio


@pytest.fixture
async def target(engine, writer, clock):
    clock.at = START + timedelta(seconds=60)
    url = "http://127.0.0.1:18050/runtime/v1"
    added = await TargetRepository(engine).add(NewTarget(url=url, name="demo", origin=TargetOrigin.API), at=START)
    return AdvisedTarget(writer, added.id, clock)


@pytest.fixture
async def client(engine, clock, target):
    async with asking(api_over(engine, clock, change_settings=target.change)) as opened:
        yield opened


async def get(client, path, model=advice.JobAdviceOut):
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return model.model_validate_json(answer.content)


async def post(client, path, body=None, *, status=200):
    answer = await client.post(path, json=body) if body is not None else await client.post(path)
    assert answer.status_code == status, answer.text
    return (advice.CardOut if status == 200 else Problem).model_validate_json(answer.content)


async def root_of(client):
    (row,) = (await get(client, "/api/v1/jobs", Page[JobOut])).items
    return f"/api/v1/jobs/{row.id}"


async def test_computing_the_same_advice_again_keeps_the_card(client, target):
    await target.report_slow()
    root = await root_of(client)

    (first,) = (await get(client, f"{root}/advice")).cards
    target.clock.at += timedelta(minutes=2)
    again = await get(client, f"{root}/advice")

    assert (first.state, first.can_apply) == (AdviceState.NEW, True)
    assert [c.id for c in again.cards] == [first.id]
    assert {s.topic for s in again.silences} == set(topics_of(RUNTIME)) - {Topic.MODE}
    history = await get(client, f"{root}/recommendations", Page[advice.CardOut])
    assert [(c.id, [e.state for e in c.history]) for c in history.items] == [(first.id, [AdviceState.NEW])]
    (row,) = (await get(client, "/api/v1/jobs", Page[JobOut])).items
    assert row.open_advice_count == 1


async def test_a_new_card_shows_the_newest_numbers_and_an_accepted_one_those_that_were_accepted(client, target):
    await target.report_slow()
    root = await root_of(client)
    (first,) = (await get(client, f"{root}/advice")).cards
    for seconds in (50, 100):
        run = slow_run(8 + seconds // 10)
        await target.report(EXACTLY_ONCE, run, readings(), at=START + timedelta(seconds=62 + seconds))
        (card,) = (await get(client, f"{root}/advice")).cards
    accepted = await post(client, f"{root}/recommendations/{card.id}/accept")
    await target.report(EXACTLY_ONCE, slow_run(26), readings(), at=START + timedelta(seconds=262))
    (later,) = (await get(client, f"{root}/advice")).cards

    assert first.id == card.id == later.id
    assert max(card.recommendation.checkpoint_ids) > max(first.recommendation.checkpoint_ids)
    assert later.recommendation == accepted.recommendation == card.recommendation
    # Each card states when its own numbers were computed.
    assert first.computed_at == START + timedelta(seconds=62)
    assert later.computed_at == accepted.computed_at == card.computed_at == START + timedelta(seconds=162)


async def test_a_new_card_of_a_job_that_ended_expires_instead_of_showing_old_numbers(client, target):
    await target.report_slow()
    root = await root_of(client)
    (card,) = (await get(client, f"{root}/advice")).cards
    await target.report(EXACTLY_ONCE, at=START + timedelta(seconds=70), state=JobState.ENDED)
    for minutes in (9, 11):
        target.clock.at = START + timedelta(seconds=62, minutes=minutes)
        shown = [c.id for c in (await get(client, f"{root}/advice")).cards]
        assert shown == ([card.id] if minutes < 10 else [])
    past = await get(client, f"{root}/recommendations/{card.id}", advice.CardOut)

    assert (past.state, past.state_reason) == (AdviceState.EXPIRED, "the rules no longer give it: the job ended")


async def test_processes_that_compute_advice_at_the_same_time_write_one_card(engine, clock, target):
    await target.report_slow()
    rules = EVERYWHERE
    services = [AdviceService(engine, clock, EvidenceReader(clock), rules, target.change) for _ in range(4)]
    await asyncio.gather(*(s.keep_all() for s in services))

    async with engine.connect() as connection:
        from sqlalchemy import text

        assert (await connection.execute(text("SELECT count(*) FROM recommendations"))).scalar_one() == 1


async def test_a_card_is_applied_once_the_engine_reports_it_and_verified_after_five_checkpoints(client, target):
    await target.report_slow()
    root = await root_of(client)
    (card,) = (await get(client, f"{root}/advice")).cards
    sent = await post(client, f"{root}/recommendations/{card.id}/apply")

    assert sent.state is AdviceState.ACCEPTED
    ((url, run, patch),) = target.sent
    assert (url, run) == ("http://127.0.0.1:18050/runtime/v1", "a" * 32)
    assert patch == card.recommendation.how_to.patch
    # The recommendation stays accepted until the engine reports the new settings.
    assert (await get(client, f"{root}/advice")).cards[0].state is AdviceState.ACCEPTED

    await target.report_timed(4)
    (applied,) = (await get(client, f"{root}/advice")).cards
    assert (applied.state, applied.measured) == (AdviceState.APPLIED, ())

    await target.report_timed(5)
    (verified,) = (await get(client, f"{root}/advice")).cards
    assert verified.state is AdviceState.VERIFIED
    rows = {m.metric: m for m in verified.measured}
    assert (rows[Metric.DURATION].measured, rows[Metric.DURATION].is_inside) == (230, True)
    assert rows[Metric.PERSISTED].measured == 12 * 270_000
    assert rows[Metric.EXPIRED].measured == 0
    # The single values before and after are kept with the card.
    assert (rows[Metric.DURATION].values, rows[Metric.EXPIRED].values) == ((230.0,) * 5, ())
    before = next(e for e in verified.recommendation.expected if e.metric is Metric.DURATION).before_values
    assert len(before) == len(verified.recommendation.checkpoint_ids) == 8
    assert verified.measured_ids == (19, 20, 21, 22, 23)
    assert verified.measured_run_id == verified.run_id
    assert [e.state for e in verified.history] == ["new", "accepted", "accepted", "applied", "verified"]

    await target.report(EXACTLY_ONCE, at=START + timedelta(seconds=300))
    (undone,) = (await get(client, f"{root}/advice")).cards
    assert undone.state is AdviceState.ROLLED_BACK


async def test_an_applied_change_is_rolled_back_to_the_values_that_the_engine_had(client, target):
    await target.report_slow()
    root = await root_of(client)
    (card,) = (await get(client, f"{root}/advice")).cards
    problem = await post(client, f"{root}/recommendations/{card.id}/roll-back", status=409)
    assert problem.type.endswith("recommendation-not-in-force")
    assert (card.can_roll_back, target.sent) == (False, [])

    await target.report_timed(4)
    (applied,) = (await get(client, f"{root}/advice")).cards
    assert (applied.state, applied.can_roll_back) == (AdviceState.APPLIED, True)
    sent = await post(client, f"{root}/recommendations/{card.id}/roll-back")

    ((_, _, settings),) = target.sent
    assert settings["execution.checkpointing.unaligned.enabled"] == "false"
    assert settings.keys() == card.recommendation.how_to.patch.keys()
    # The change is in force until the engine reports the earlier settings.
    assert sent.state is AdviceState.APPLIED
    assert (sent.history[-2].kind, sent.is_rolling_back, sent.can_roll_back) == (AdviceStep.ROLL_BACK, True, False)
    assert sent.history[-1].reason.startswith("roll back sent to the target")
    # A second press sends nothing, and the response states why.
    again = await post(client, f"{root}/recommendations/{card.id}/roll-back", status=409)
    assert again.type.endswith("roll-back-sent")
    assert "already" in again.detail
    assert len(target.sent) == 1

    await target.report(EXACTLY_ONCE, at=START + timedelta(seconds=300))
    (undone,) = (await get(client, f"{root}/advice")).cards
    assert (undone.state, undone.can_roll_back) == (AdviceState.ROLLED_BACK, False)
    assert [(e.kind, e.state) for e in undone.history[-3:]] == [
        (AdviceStep.ROLL_BACK, AdviceState.APPLIED),
        (AdviceStep.STATE, AdviceState.APPLIED),
        (AdviceStep.STATE, AdviceState.ROLLED_BACK),
    ]
    assert not undone.is_rolling_back
    await post(client, f"{root}/recommendations/{card.id}/roll-back", status=409)
    assert len(target.sent) == 1


async def test_a_roll_back_that_has_no_effect_can_be_sent_again_after_minutes(client, target):
    await target.report_slow()
    root = await root_of(client)
    await get(client, f"{root}/advice")
    await target.report_timed(4)
    (card,) = (await get(client, f"{root}/advice")).cards
    await post(client, f"{root}/recommendations/{card.id}/roll-back")

    # The engine reports the new settings for ever, for example because it restarted from its own configuration.
    target.clock.at += timedelta(minutes=4)
    await post(client, f"{root}/recommendations/{card.id}/roll-back", status=409)
    target.clock.at += timedelta(minutes=2)
    stuck = await get(client, f"{root}/recommendations/{card.id}", advice.CardOut)
    assert (stuck.is_rolling_back, stuck.can_roll_back) == (False, True)
    again = await post(client, f"{root}/recommendations/{card.id}/roll-back")

    assert (again.is_rolling_back, again.can_roll_back) == (True, False)
    assert [e.kind for e in again.history[-4:]] == [AdviceStep.ROLL_BACK, AdviceStep.STATE] * 2
    assert len(target.sent) == 2


async def test_an_engine_that_reads_settings_at_the_start_is_not_rolled_back(client, target):
    target.engine = FLINK
    await target.report_slow()
    root = await root_of(client)
    card, other = (await get(client, f"{root}/advice")).cards
    assert [c.recommendation.topic for c in (card, other)] == [Topic.MODE, Topic.PARALLELISM]
    await target.report_timed(4)
    applied, _ = (await get(client, f"{root}/advice")).cards
    problem = await post(client, f"{root}/recommendations/{card.id}/roll-back", status=409)

    assert (applied.state, applied.can_roll_back) == (AdviceState.APPLIED, False)
    assert problem.type.endswith("restart-needed")
    assert target.sent == []


async def test_a_measurement_outside_the_prediction_is_marked_as_outside(client, target):
    await target.report_slow()
    root = await root_of(client)
    await get(client, f"{root}/advice")
    await target.report_timed(5, duration_ms=2_000)
    (card,) = (await get(client, f"{root}/advice")).cards
    if card.state is AdviceState.APPLIED:
        (card,) = (await get(client, f"{root}/advice")).cards

    duration = next(m for m in card.measured if m.metric is Metric.DURATION)
    assert (duration.measured, duration.is_inside) == (2_000, False)


async def test_a_dismissed_card_stays_dismissed_with_its_reason(client, target):
    await target.report_slow()
    root = await root_of(client)
    (card,) = (await get(client, f"{root}/advice")).cards
    gone = await post(client, f"{root}/recommendations/{card.id}/dismiss", {"reason": "we scale up next week"})

    assert (gone.state, gone.state_reason) == (AdviceState.DISMISSED, "we scale up next week")
    target.clock.at += timedelta(hours=2)
    assert (await get(client, f"{root}/advice")).cards == []
    problem = await post(client, f"{root}/recommendations/{card.id}/accept", status=409)
    assert problem.type.endswith("recommendation-decided")
    assert "we scale up next week" in problem.detail


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "  "}, {"reason": "x" * 501}, {"why": "x"}])
async def test_a_dismissal_without_a_valid_reason_is_refused_by_field(client, target, body):
    await target.report_slow()
    root = await root_of(client)
    (card,) = (await get(client, f"{root}/advice")).cards
    problem = await post(client, f"{root}/recommendations/{card.id}/dismiss", body, status=422)

    assert problem.errors[0].pointer in ("#/reason", "#/why")


async def test_on_flink_advice_cannot_be_applied_because_it_needs_a_restart(client, target):
    target.engine = FLINK
    await target.report_slow()
    root = await root_of(client)
    card, other = (await get(client, f"{root}/advice")).cards
    assert [c.recommendation.topic for c in (card, other)] == [Topic.MODE, Topic.PARALLELISM]
    problem = await post(client, f"{root}/recommendations/{card.id}/apply", status=409)

    assert not card.can_apply
    assert problem.type.endswith("restart-needed")
    assert target.sent == []


async def test_a_forbidden_target_gets_no_request_and_a_refusal_by_the_target_is_reported(engine, clock, target):
    await target.report_slow()
    rules = AddressRules(is_everything_allowed=False, allowed=("flink.example",))
    async with asking(api_over(engine, clock, rules=rules, change_settings=target.change)) as client:
        root = await root_of(client)
        (card,) = (await get(client, f"{root}/advice")).cards
        problem = await post(client, f"{root}/recommendations/{card.id}/apply", status=422)
        assert "not allowed here" in problem.errors[0].detail
        assert target.sent == []

    async def refuse(url, run, settings, timeout_s, token, *, kind, reach):
        raise InvalidInputError([], what="change")

    async with asking(api_over(engine, clock, change_settings=refuse)) as client:
        await post(client, f"{root}/recommendations/{card.id}/apply", status=422)
        assert (await get(client, f"{root}/advice")).cards[0].state is AdviceState.NEW
    async with asking(api_over(engine, clock)) as client:
        await post(client, f"{root}/recommendations/{card.id}/apply", status=503)


async def test_advice_that_the_rules_no_longer_give_expires_after_ten_minutes(client, target):
    await target.report_slow()
    root = await root_of(client)
    (card,) = (await get(client, f"{root}/advice")).cards
    healthy = [quick(n) for n in range(30, 42)]
    await target.report(EXACTLY_ONCE, healthy, readings(held=0.0, queued_bytes=0), at=START + timedelta(seconds=300))
    assert (await get(client, f"{root}/advice")).cards[0].state is AdviceState.NEW

    target.clock.at += timedelta(minutes=11)
    told = await get(client, f"{root}/advice")
    assert told.cards == []
    expired = await get(client, f"{root}/recommendations/{card.id}", advice.CardOut)
    assert expired.state is AdviceState.EXPIRED
    assert "healthy" in expired.state_reason


async def test_unknown_ids_are_answered_with_problem_json(client, target):
    await target.report_slow()
    root = await root_of(client)
    for path in ("/api/v1/jobs/jnone/advice", f"{root}/recommendations/anone"):
        answer = await client.get(path)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"


async def test_advice_is_verified_on_a_target_whose_clock_falls_behind(client, target):
    """The verification uses checkpoints that were observed after the change of settings.

    The target's clock is minutes behind, so the trigger times of these checkpoints lie before the change.
    """
    await target.report_slow()
    root = await root_of(client)
    await get(client, f"{root}/advice")
    await target.report(TIMED, at=START + timedelta(seconds=400))
    run = [persisting(quick(n, 230), 270_000) for n in range(18, 24)]
    await target.report(TIMED, run, at=START + timedelta(seconds=460))
    await get(client, f"{root}/advice")
    (card,) = (await get(client, f"{root}/advice")).cards

    assert card.state is AdviceState.VERIFIED
    assert card.measured_ids == (19, 20, 21, 22, 23)


async def test_cards_are_updated_if_their_job_changed_and_otherwise_every_minute(engine, clock, target, monkeypatch):
    looked = []
    lock = store.lock_job

    async def noting(connection, job_id):
        looked.append(job_id)
        await lock(connection, job_id)

    monkeypatch.setattr(store, "lock_job", noting)
    service = AdviceService(engine, clock, EvidenceReader(clock), ANYWHERE, target.change)

    async def looks_after(seconds) -> int:
        clock.at += timedelta(seconds=seconds)
        before = len(looked)
        assert not await service.keep_all()
        return len(looked) - before

    await target.report_slow()
    assert await looks_after(0) == 1
    assert await looks_after(5) == 0
    assert await looks_after(56) == 1
    assert await looks_after(5) == 0
    await target.report(EXACTLY_ONCE, slow_run(9), readings(), at=clock.at)
    assert await looks_after(5) == 1
