"""Tests of how long the next poll of the checkpoint history may wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from backend.domain.checkpoint import CheckpointCounts, CheckpointHeader, CheckpointKind, CheckpointStatus
from collectors.flink.history import poll_within_s
from collectors.flink.parse import CheckpointsAnswer

# --- time to the next poll --------------------------------------------------------------------------------------------


def history(count: int, *, interval_s: float, total: int | None = None) -> CheckpointsAnswer:
    t0 = datetime(2026, 11, 21, tzinfo=UTC)
    headers = tuple(
        CheckpointHeader(
            n, CheckpointKind.CHECKPOINT, CheckpointStatus.COMPLETED, t0 + timedelta(seconds=n * interval_s)
        )
        for n in reversed(range(count))
    )
    return CheckpointsAnswer(CheckpointCounts(0, count if total is None else total, 0, count, 0), headers, None)


@pytest.mark.parametrize(
    ("answer", "interval_ms", "expected"),
    [
        # The history lists 10 of 50 checkpoints, so it holds ten. All ten are replaced within ten intervals.
        (history(10, interval_s=5, total=50), 5000, 25.0),
        # The history lists all checkpoints so far, so the number of checkpoints that it can list is not known. It is
        # at least ten, Flink's default.
        (history(3, interval_s=5), 5000, 25.0),
        (history(40, interval_s=5, total=900), 5000, 100.0),
        # Checkpoints come more often than configured (savepoints, or a changed setting), or less often.
        (history(10, interval_s=1, total=50), 5000, 5.0),
        (history(10, interval_s=60, total=50), 5000, 25.0),
        # The interval setting is unknown, so the observed interval counts.
        (history(10, interval_s=2, total=50), None, 10.0),
        (history(1, interval_s=2), None, None),
        (history(0, interval_s=2), None, None),
        (history(0, interval_s=2), 5000, 25.0),
        # The wait has a lower bound, whatever interval a target reports.
        (history(10, interval_s=0.001, total=50), 1, 0.2),
        (history(10, interval_s=0, total=50), 1, 0.2),
    ],
)
def test_the_next_poll_comes_before_half_of_the_history_is_replaced(
    answer: CheckpointsAnswer, interval_ms: int | None, expected: float | None
) -> None:
    assert poll_within_s(answer, interval_ms) == pytest.approx(expected)
