"""The replay debt of a job: its age as of the newest reading, and the records and the catch-up time that follow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from backend.advisor.twin.model.outages import RESTART_MS
from backend.domain.checkpoint import CheckpointConfig, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.engines import FLINK
from backend.domain.observation import JobState
from backend.domain.replay_debt import DebtOrigin
from backend.services.jobs.replay_debt import debt_fields

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
AHEAD = timedelta(minutes=3)
"""The engine's clock is ahead of ours by this."""


def head(*, read_ago_s: float = 0.0, age_s: float = 2100.0, state: JobState = JobState.RUNNING) -> Any:
    header = CheckpointHeader(
        checkpoint_id=63,
        kind=CheckpointKind.CHECKPOINT,
        status=CheckpointStatus.COMPLETED,
        triggered_at=NOW + AHEAD - timedelta(seconds=age_s),
    )
    record = SimpleNamespace(
        run=SimpleNamespace(started_at=NOW - timedelta(days=1), counts=None, state=state, engine=FLINK),
        engine_now=lambda now: now + AHEAD,
        read_at_engine=NOW + AHEAD - timedelta(seconds=read_ago_s),
    )
    shape = SimpleNamespace(config=CheckpointConfig())
    return SimpleNamespace(record=record, shape=shape, headers=[SimpleNamespace(header=header)])


def load(*, input_per_s: float | None = 100.0, use_ratio: float | None = 0.5) -> Any:
    return SimpleNamespace(input_per_s=input_per_s, use_ratio=use_ratio)


def test_the_debt_has_the_records_of_its_time_and_the_time_to_catch_up():
    found = debt_fields(head(), load(), NOW)

    debt = found["replay_debt"]
    assert debt is not None
    assert (debt.origin, debt.checkpoint_id) == (DebtOrigin.CHECKPOINT, 63)
    assert found["replay_debt_ms"] == 2_100_000.0
    assert found["replay_debt_records"] == 210_000.0
    # Half of the capacity is free, so the backlog takes as long again as it grew.
    assert found["replay_debt_catch_up_ms"] == pytest.approx(2_100_000.0 + RESTART_MS.value)


def test_without_rates_nothing_is_claimed_of_records_and_catch_up():
    for finding in (None, load(input_per_s=None, use_ratio=None)):
        found = debt_fields(head(), finding, NOW)
        assert found["replay_debt_ms"] == 2_100_000.0
        assert (found["replay_debt_records"], found["replay_debt_catch_up_ms"]) == (None, None)


def test_the_debt_of_a_job_that_is_read_no_more_does_not_grow():
    found = debt_fields(head(read_ago_s=2000.0), load(), NOW)

    assert found["replay_debt_ms"] == 100_000.0


def test_a_job_that_has_ended_has_no_debt():
    assert set(debt_fields(head(state=JobState.ENDED), load(), NOW).values()) == {None}
