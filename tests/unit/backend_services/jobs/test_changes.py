"""Tests of which checkpoints have a duration that counts: completed and expired ones, but no savepoints."""

from __future__ import annotations

from dataclasses import replace

from backend.domain.checkpoint import CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import JobId, RunId
from backend.services.jobs.changes import changes_out
from backend.store.checkpoints.reader import CheckpointRecord
from tests.support.observations import NOW, header


def _record(made: CheckpointHeader) -> CheckpointRecord:
    return CheckpointRecord(JobId("j"), RunId("r"), NOW.date(), made, None, None, None, None, NOW)


def _took(number: int, ms: int, **more: object) -> CheckpointRecord:
    return _record(replace(header(number), end_to_end_duration_ms=ms, **more))  # type: ignore[arg-type]


def _expired(number: int, ms: int, reason: FailureReason = FailureReason.EXPIRED) -> CheckpointRecord:
    return _took(number, ms, status=CheckpointStatus.FAILED, failure_reason=reason)


def test_a_median_of_expired_checkpoints_is_at_least_that():
    records = [*(_took(n, 1_000) for n in range(1, 11)), *(_expired(n, 10_000) for n in range(11, 21))]

    (change,) = changes_out(records)

    assert (change.checkpoint_id, change.before_median_ms, change.after_median_ms) == (11, 1_000, 10_000)
    assert (change.is_before_at_least, change.is_after_at_least) == (False, True)
    assert "is at least 10.0 s (of 10 checkpoints); before, it was 1.0 s (of 10)" in change.sentence


def test_a_few_that_expired_do_not_make_the_median_a_bound():
    records = [
        *(_took(n, 1_000) for n in range(1, 11)),
        *(_took(n, 5_000 + n) for n in range(11, 19)),
        _expired(19, 9_000),
    ]

    (change,) = changes_out(records)

    assert not change.is_after_at_least


def test_savepoints_and_other_failures_and_what_is_open_tell_nothing():
    calm = [_took(n, 1_000) for n in range(1, 21)]
    others = [
        *(_took(n, 30_000, kind=CheckpointKind.SAVEPOINT) for n in range(21, 31)),
        *(_expired(n, 30_000, FailureReason.DECLINED) for n in range(31, 41)),
        *(_took(n, None, status=CheckpointStatus.IN_PROGRESS) for n in range(41, 51)),
    ]

    assert changes_out([*calm, *others]) == []
