"""The evidence at the end of each checkpoint holds what was known then, and nothing that became known later."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

from backend.analysis.assembling import EVIDENCE_COUNT
from backend.backtest.moments import Moments
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus, LateBarrier
from backend.domain.engines import FLINK
from backend.domain.failure import FailureReason
from tests.support.advised_jobs import EXACTLY_ONCE, UNALIGNED
from tests.support.handwritten_jobs import LAST, START, failed, quick
from tests.support.past_jobs import BEGIN, Past, loaded, slow, stored
from tests.support.seeds import over_seeds


def _moments(past: Past) -> list:
    made = Moments(past.runs)
    return [*(m for chunk in past.chunks() for m in made.feed(chunk)), *made.finish()]


def _drawn(rng: random.Random) -> Past:
    """Draw a job with slow, quick, failed and overlapping checkpoints, changed settings, restarts and exceptions."""
    rows = []
    for number in range(1, 40):
        kind = rng.choice(["quick", "slow", "expired", "long", "savepoint"])
        checkpoint = quick(number, rng.randrange(20, 900))
        if kind == "slow":
            (checkpoint,) = slow(number, 1, last_ms=rng.randrange(2_000, 4_900))
        elif kind == "expired":
            checkpoint = failed(number, *quick(number).details, after_ms=rng.randrange(1_000, 12_000))
        elif kind == "long":
            # It ends after later ones were triggered.
            (checkpoint,) = slow(number, 1, last_ms=rng.randrange(6_000, 17_000))
        elif kind == "savepoint":
            checkpoint = replace(checkpoint, header=replace(checkpoint.header, kind=CheckpointKind.SAVEPOINT))
        seen = START + timedelta(seconds=5 * number + rng.randrange(12))
        late = (LateBarrier(LAST, 1, rng.randrange(5_000), seen, 1_000),) if rng.random() < 0.3 else ()
        rows.append(replace(stored([checkpoint])[0], late=late))
    within = [START + timedelta(seconds=rng.randrange(200)) for _ in range(5)]
    early, late_at = sorted(within[:2])
    return Past(
        rows,
        loaded(210),
        configs=[(BEGIN, EXACTLY_ONCE), (early, UNALIGNED), (late_at, EXACTLY_ONCE)],
        restarts=sorted((at, n) for n, at in enumerate(within[2:4], 1)),
        exceptions=[(within[4], "java.io.IOException")],
        chunk_count=rng.randrange(1, 15),
    )


def _as_of(past: Past, at) -> Past:
    """Return what was stored at a time. The end of a checkpoint that was in progress is changed to another one."""
    rows = []
    for row in past.checkpoints:
        if row.ended_at > at:
            took_ms = row.header.end_to_end_duration_ms or 0
            values = {"failed_at": row.ended_at, "persisted_bytes": 1, "end_to_end_duration_ms": took_ms + 1}
            other = replace(row.header, status=CheckpointStatus.FAILED, failure_reason=FailureReason.ABORTED, **values)
            row = replace(row, checkpoint=replace(row.checkpoint, header=other))
        if row.header.triggered_at <= at:
            rows.append(replace(row, late=tuple(b for b in row.late if b.seen_at <= at)))
    return replace(
        past,
        checkpoints=rows,
        readings=[r for r in past.readings if r.observed_at <= at],
        configs=[c for c in past.configs if c[0] <= at],
        restarts=[r for r in past.restarts if r[0] <= at],
        exceptions=[e for e in past.exceptions if e[0] <= at],
    )


@over_seeds(3, more=30)
def test_what_became_known_later_changes_nothing(seed):
    past = _drawn(random.Random(seed))
    known = {m.stored.header.checkpoint_id: m for m in _moments(past)}
    assert len(known) == sum(s.header.kind is CheckpointKind.CHECKPOINT for s in past.checkpoints)

    for number, moment in known.items():
        then = next(m for m in _moments(_as_of(past, moment.at)) if m.stored.header.checkpoint_id == number)
        assert then.evidence == moment.evidence, (seed, number)
        assert then.first_trigger_at == moment.first_trigger_at
        assert all(r.observed_at <= moment.at for r in moment.evidence.pressure)


def test_moments_come_in_the_order_of_the_ends_and_open_checkpoints_are_in_progress():
    (long,) = slow(1, 1, last_ms=12_000)
    past = Past(stored([long, quick(2), quick(3)]))

    made = _moments(past)

    assert [m.stored.header.checkpoint_id for m in made] == [2, 3, 1]
    opened = made[0].evidence.checkpoints[0].header
    assert (opened.checkpoint_id, opened.status) == (1, CheckpointStatus.IN_PROGRESS)
    # Its source and its middle had acknowledged by then.
    assert (opened.acknowledged_count, opened.end_to_end_duration_ms) == (8, None)


def test_at_most_so_many_checkpoints_are_evidence_and_the_newest_readings():
    past = Past(stored([quick(n) for n in range(1, 60)]), loaded(300))

    last = _moments(past)[-1]

    assert len(last.evidence.checkpoints) == EVIDENCE_COUNT
    newest = last.evidence.pressure[-1].observed_at
    assert last.at - newest < timedelta(seconds=10)
    assert newest - last.evidence.pressure[0].observed_at <= timedelta(seconds=150)


def test_under_new_settings_the_first_checkpoint_that_ended_is_left_out():
    changed_at = START + timedelta(seconds=52)
    past = Past(stored([quick(n) for n in range(1, 21)]), configs=[(BEGIN, EXACTLY_ONCE), (changed_at, UNALIGNED)])

    made = {m.stored.header.checkpoint_id: m for m in _moments(past)}

    assert (made[10].first_trigger_at, made[10].evidence.config) == (None, EXACTLY_ONCE)
    assert made[11].evidence.config == UNALIGNED
    assert [h.checkpoint_id for h in made[11].under_settings] == []
    assert [h.checkpoint_id for h in made[14].under_settings] == [12, 13, 14]
    assert made[14].settings_since == changed_at


def test_hosts_are_not_known_before_a_later_restart():
    past = Past(stored([quick(n) for n in range(1, 9)]), restarts=[(START + timedelta(seconds=22), 1)])
    past.runs["r"].placements = ("here",)

    made = {m.stored.header.checkpoint_id: m.evidence for m in _moments(past)}

    assert (made[4].placements, made[4].restart_count) == ((), None)
    assert (made[5].placements, made[5].restart_count) == (("here",), 1)


def test_the_start_of_the_run_and_the_engine_are_known_at_each_moment():
    past = Past(stored([quick(n) for n in range(1, 9)]), engine=FLINK)

    assert {(m.evidence.started_at, m.evidence.flink_version) for m in _moments(past)} == {(BEGIN, "1.20.5")}
