"""A change that made the checkpoints worse is rolled back by itself: only if it may be, once, and with a history."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select

from backend.contracts.advice import CardOut
from backend.domain.advice import AdviceState, AdviceStep
from backend.domain.connection import ANYWHERE
from backend.domain.errors import (
    ConflictError,
    FieldProblem,
    InvalidInputError,
    TargetProtocolError,
    TargetUnavailableError,
)
from backend.domain.target import TargetOrigin
from backend.services.advice.cards import AdviceService
from backend.services.jobs.evidence import EvidenceReader
from backend.store.advice.cards import get_card, lock_job, move_card, note_step
from backend.store.postgres.connections import reading, writing
from backend.store.schema.tables import jobs
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.advised_jobs import DELAYS, EXACTLY_ONCE, readings, slow_run
from tests.support.advised_targets import TIMED, AdvisedTarget
from tests.support.handwritten_jobs import START, held_back, quick

pytestmark = pytest.mark.anyio

_UNALIGNED = "execution.checkpointing.unaligned.enabled"
_WORSE_MS = 30_000


@pytest.fixture
async def target(engine, writer, clock):
    clock.at = START + timedelta(seconds=60)
    url = "http://127.0.0.1:18050/runtime/v1"
    added = await TargetRepository(engine).add(NewTarget(url=url, name="demo", origin=TargetOrigin.API), at=START)
    return AdvisedTarget(writer, added.id, clock)


def _service(engine, clock, target, *, auto_roll_back=True):
    return AdviceService(engine, clock, EvidenceReader(clock), ANYWHERE, target.change, auto_roll_back=auto_roll_back)


async def _given(service, target, engine) -> CardOut:
    """Report a slow job, and return the card that the rules give for it."""
    await target.report(EXACTLY_ONCE, slow_run(12), readings(), at=START + timedelta(seconds=120))
    await service.keep_all()
    async with reading(engine) as connection:
        job = (await connection.execute(select(jobs.c.id))).scalar_one()
    (card,) = [c for c in (await service.of_job(job)).cards if _UNALIGNED in c.recommendation.how_to.patch]
    return card


async def _now(service, target, card) -> CardOut:
    """Return the card after the service has looked at it again, which it does once a minute."""
    target.clock.at += timedelta(seconds=61)
    await service.keep_all()
    return await service.card(card.job_id, card.id)


async def _report_worse(target, count, *, first=20):
    """Report that the new settings are in force, and then ``count`` checkpoints that are slower than before."""
    await target.report(TIMED, at=target.clock.at + timedelta(seconds=30))
    run = [quick(n, _WORSE_MS + 10 * (n % 3)) for n in range(first, first + 1 + count)]
    await target.report(TIMED, run, at=START + timedelta(seconds=10 * (first + count) + 60))


async def test_a_change_that_made_checkpoints_worse_is_rolled_back_once_and_its_history_says_so(engine, clock, target):
    service = _service(engine, clock, target)
    card = await _given(service, target, engine)
    await service.apply(card.job_id, card.id)
    assert [settings[_UNALIGNED] for _, _, settings in target.sent] == ["true"]

    await _report_worse(target, 11)
    await service.keep_all()
    regressed = await _now(service, target, card)

    assert regressed.state is AdviceState.REGRESSED
    assert regressed.effect.direction.value == "higher"
    assert [settings[_UNALIGNED] for _, _, settings in target.sent] == ["true", "false"]
    assert regressed.is_rolling_back
    steps = [(e.kind, e.state) for e in regressed.history]
    assert (AdviceStep.APPLY, AdviceState.ACCEPTED) in steps
    assert steps[-2:] == [
        (AdviceStep.AUTO_ROLL_BACK, AdviceState.REGRESSED),
        (AdviceStep.STATE, AdviceState.REGRESSED),
    ]
    assert all("checkpoints take 30" in e.reason for e in regressed.history[-2:])
    assert regressed.history[-1].reason.startswith("roll back sent to the target; waiting")
    # It is sent once, even if the engine does not report the earlier settings for a long time.
    clock.at += timedelta(minutes=10)
    await _now(service, target, card)
    assert len(target.sent) == 2

    await target.report(EXACTLY_ONCE, at=clock.at + timedelta(seconds=10))
    undone = await _now(service, target, card)
    assert undone.state is AdviceState.ROLLED_BACK
    assert undone.state_reason.startswith("rolled back automatically by Barrierscope, because checkpoints take 30")
    assert undone.state_reason.endswith("; the engine reports the earlier settings again")


async def test_without_the_setting_nothing_is_sent_and_a_person_can_roll_back(engine, clock, target):
    service = _service(engine, clock, target, auto_roll_back=False)
    card = await _given(service, target, engine)
    await service.apply(card.job_id, card.id)
    await _report_worse(target, 11)
    await service.keep_all()

    found = await _now(service, target, card)

    assert (found.state, found.can_roll_back) == (AdviceState.REGRESSED, True)
    assert len(target.sent) == 1


async def test_a_change_that_a_person_made_is_not_rolled_back(engine, clock, target):
    service = _service(engine, clock, target)
    card = await _given(service, target, engine)
    await service.accept(card.job_id, card.id)
    await _report_worse(target, 11)
    await service.keep_all()

    assert (await _now(service, target, card)).state is AdviceState.REGRESSED
    assert target.sent == []


async def test_an_automatic_roll_back_without_an_answer_is_sent_three_times_at_most(engine, clock, target):
    service = _service(engine, clock, target)
    card = await _given(service, target, engine)
    await service.apply(card.job_id, card.id)
    target.refuses = TargetUnavailableError(url="http://127.0.0.1:18050", reason="cannot connect")
    await _report_worse(target, 11)
    await service.keep_all()
    first = await _now(service, target, card)
    assert [e.kind for e in first.history[-2:]] == [AdviceStep.AUTO_ROLL_BACK, AdviceStep.STATE]
    assert "not answered" in first.history[-1].reason
    assert "cannot connect" in first.history[-1].reason

    for _ in range(5):
        last = await _now(service, target, card)

    assert [e.kind for e in last.history].count(AdviceStep.AUTO_ROLL_BACK) == 3
    # A person can still send it.
    target.refuses = None
    assert last.can_roll_back
    await service.roll_back(card.job_id, card.id)
    assert len(target.sent) == 2


async def test_a_refused_automatic_roll_back_is_not_repeated(engine, clock, target):
    service = _service(engine, clock, target)
    card = await _given(service, target, engine)
    await service.apply(card.job_id, card.id)
    target.refuses = InvalidInputError([FieldProblem("change", "no such key", "another")], what="change")
    await _report_worse(target, 11)
    await service.keep_all()
    await _now(service, target, card)
    target.refuses = None

    found = await _now(service, target, card)

    assert [e.kind for e in found.history[-2:]] == [AdviceStep.AUTO_ROLL_BACK, AdviceStep.STATE]
    assert found.history[-1].reason.startswith("refused, so nothing changed: ")
    assert (len(target.sent), found.can_roll_back) == (1, True)


async def test_only_a_change_with_a_guard_is_rolled_back_if_the_setting_is_off(engine, clock, target):
    service = _service(engine, clock, target, auto_roll_back=False)
    card = await _given(service, target, engine)
    applied = await service.apply(card.job_id, card.id, is_guarded=True)
    assert (applied.is_guarded, applied.is_applying, applied.can_apply) == (True, True, False)
    await _report_worse(target, 11)
    await service.keep_all()

    found = await _now(service, target, card)

    assert found.history[-2].kind is AdviceStep.AUTO_ROLL_BACK
    assert [settings[_UNALIGNED] for _, _, settings in target.sent] == ["true", "false"]
    # The advice that made the checkpoints worse is not given again.
    await target.report(EXACTLY_ONCE, slow_run(12), readings(), at=clock.at + timedelta(seconds=10))
    undone = await _now(service, target, card)
    assert undone.state is AdviceState.ROLLED_BACK
    given = [c for c in (await service.of_job(card.job_id)).cards if c.state.is_open]
    assert card.recommendation.kind not in [c.recommendation.kind for c in given]


async def test_a_process_that_ends_while_it_sends_leaves_a_trace_and_the_change_can_be_sent_again(
    engine, clock, target, monkeypatch
):
    service = _service(engine, clock, target)
    card = await _given(service, target, engine)
    target.refuses = _Killed()
    with pytest.raises(_Killed):
        await service.apply(card.job_id, card.id, is_guarded=True)
    target.refuses = None
    left = await service.card(card.job_id, card.id)
    assert (left.state, left.state_reason, left.can_apply) == (
        AdviceState.ACCEPTED,
        "sending the change to the target",
        False,
    )
    # Another process.
    service = _service(engine, clock, target)
    with pytest.raises(ConflictError, match="sent already"):
        await service.apply(card.job_id, card.id)

    found = await _now(service, target, card)

    assert "not known whether the target took it" in found.state_reason
    assert (found.can_apply, found.is_guarded, target.sent) == (True, True, [])
    assert (await service.apply(card.job_id, card.id)).state is AdviceState.ACCEPTED
    assert len(target.sent) == 1


async def test_an_automatic_roll_back_of_a_process_that_ended_is_sent_by_another(engine, clock, target):
    service = _service(engine, clock, target, auto_roll_back=False)
    card = await _given(service, target, engine)
    await service.apply(card.job_id, card.id, is_guarded=True)
    await _report_worse(target, 11)
    await service.keep_all()
    target.refuses = _Killed()
    with pytest.raises(_Killed):
        await _now(service, target, card)
    target.refuses = None
    assert len(target.sent) == 1

    service = _service(engine, clock, target, auto_roll_back=False)
    found = await _now(service, target, card)

    assert [settings[_UNALIGNED] for _, _, settings in target.sent] == ["true", "false"]
    assert [e.kind for e in found.history].count(AdviceStep.AUTO_ROLL_BACK) == 2
    assert found.history[-1].reason.startswith("roll back sent to the target")


async def test_what_an_earlier_version_sent_is_not_taken_for_cut_short(engine, clock, target):
    service = _service(engine, clock, target)
    card = await _given(service, target, engine)
    sent = "sent to the target; waiting for it to report the new settings"
    async with writing(engine) as connection:
        await lock_job(connection, card.job_id)
        record = await get_card(connection, card.job_id, card.id)
        await move_card(connection, record, AdviceState.ACCEPTED, sent, clock.now(), kind=AdviceStep.APPLY)
    await _now(service, target, card)

    assert (await _now(service, target, card)).state_reason == sent


async def test_an_automatic_roll_back_of_an_earlier_version_is_not_sent_again(engine, clock, target):
    service = _service(engine, clock, target, auto_roll_back=False)
    card = await _given(service, target, engine)
    await service.apply(card.job_id, card.id)
    await _report_worse(target, 11)
    await service.keep_all()
    assert (await _now(service, target, card)).state is AdviceState.REGRESSED
    async with writing(engine) as connection:
        await lock_job(connection, card.job_id)
        record = await get_card(connection, card.job_id, card.id)
        reason = f"automatic roll back: {record.state_reason}"
        await note_step(connection, record, reason, clock.now(), AdviceStep.AUTO_ROLL_BACK)

    service = _service(engine, clock, target)
    for _ in range(3):
        await _now(service, target, card)

    assert len(target.sent) == 1


async def test_a_refused_change_leaves_the_card_as_it_was(engine, clock, target):
    service = _service(engine, clock, target)
    card = await _given(service, target, engine)
    target.refuses = TargetProtocolError(url="http://127.0.0.1:18050", reason="HTTP 401", status=401)

    with pytest.raises(ConflictError, match="HTTP 401: it wants credentials") as refused:
        await service.apply(card.job_id, card.id)

    left = await service.card(card.job_id, card.id)
    assert refused.value.kind == "target-refused"
    assert (left.state, left.can_apply, left.is_guarded) == (AdviceState.NEW, True, False)
    assert left.state_reason.startswith("refused, so nothing changed: the target demo answered HTTP 401")


async def test_every_step_of_a_guarded_change_has_its_author_its_outcome_and_how_far_it_was_watched(
    engine, clock, target
):
    service = _service(engine, clock, target, auto_roll_back=False)
    card = await _given(service, target, engine)
    await service.accept(card.job_id, card.id, author="ann")
    await service.apply(card.job_id, card.id, is_guarded=True, author="bob")
    await target.report(TIMED, at=clock.at + timedelta(seconds=30))
    applied = await _now(service, target, card)
    assert applied.history[-1].reason.endswith("; 20 checkpoints are watched from now on")
    assert (applied.watch.checkpoint_count, applied.watch.of_count, applied.watch.is_over) == (0, 20, False)
    await _report_worse(target, 11)
    await service.keep_all()
    found = await _now(service, target, card)

    steps = [(e.kind.value, e.state.value, e.outcome and e.outcome.value, e.author) for e in found.history]
    assert steps == [
        ("state", "new", None, "the service"),
        ("state", "accepted", None, "ann"),
        ("guarded-apply", "accepted", "awaited", "bob"),
        ("state", "accepted", "sent", "the service"),
        ("state", "applied", None, "the service"),
        *[("state", "verified", None, "the service")] * (len(steps) - 8),
        ("state", "regressed", None, "the service"),
        ("auto-roll-back", "regressed", "awaited", "the service"),
        ("state", "regressed", "sent", "the service"),
    ]
    assert found.watch.is_over
    assert found.watch.checkpoint_count >= 10
    (listed,) = [c for c in (await service.of_job(card.job_id)).cards if c.id == card.id]
    assert listed.watch == found.watch


async def test_a_change_that_a_person_rolled_back_is_advised_again(engine, clock, target):
    service = _service(engine, clock, target)
    card = await _given(service, target, engine)
    await service.apply(card.job_id, card.id)
    await target.report(TIMED, at=clock.at + timedelta(seconds=30))
    assert (await _now(service, target, card)).state is AdviceState.APPLIED
    await service.roll_back(card.job_id, card.id)
    await target.report(EXACTLY_ONCE, at=clock.at + timedelta(seconds=30))
    assert (await _now(service, target, card)).state is AdviceState.ROLLED_BACK

    later = [held_back(n, DELAYS) for n in range(40, 52)]
    await target.report(EXACTLY_ONCE, later, readings(), at=clock.at + timedelta(seconds=200))
    await _now(service, target, card)

    again = [c for c in (await service.of_job(card.job_id)).cards if c.state is AdviceState.NEW]
    assert _UNALIGNED in again[0].recommendation.how_to.patch


class _Killed(BaseException):
    """The process ends."""


async def test_a_dry_run_says_what_would_be_sent_and_changes_nothing(engine, clock, target):
    service = _service(engine, clock, target)
    card = await _given(service, target, engine)

    tried = await service.dry_run(card.job_id, card.id)

    assert (tried.is_accepted, tried.is_checked, tried.refusals) == (True, True, [])
    assert (tried.target, tried.url) == ("demo", "http://127.0.0.1:18050/runtime/v1")
    assert [(c.current, c.proposed) for c in tried.changes if c.key == _UNALIGNED] == [("false", "true")]
    assert target.checked == [dict(card.recommendation.how_to.patch)]
    assert target.sent == []
    assert (await service.card(card.job_id, card.id)).state is AdviceState.NEW
    # There is nothing to roll back yet, so the target is not asked.
    undone = await service.dry_run(card.job_id, card.id, is_roll_back=True)
    assert (undone.is_accepted, undone.is_checked, len(target.checked)) == (False, False, 1)
    assert "it is new" in undone.refusals[0]


async def test_a_dry_run_says_why_the_target_would_refuse_it(engine, clock, target):
    service = _service(engine, clock, target)
    card = await _given(service, target, engine)
    target.refuses = InvalidInputError([FieldProblem("change", "no such key", "another")], what="change")
    refused = await service.dry_run(card.job_id, card.id)
    target.refuses = TargetUnavailableError(url="http://127.0.0.1:18050", reason="cannot connect")
    unreachable = await service.dry_run(card.job_id, card.id)

    assert (refused.is_accepted, refused.is_checked) == (False, True)
    assert "no such key" in refused.refusals[0]
    assert (unreachable.is_accepted, unreachable.is_checked) == (False, False)
