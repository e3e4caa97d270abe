"""The reader of growth: a job is in its answer only once its history was read, and each call reads a few jobs."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from backend.domain.observation import JobState
from backend.services.jobs import growth
from backend.services.jobs.growth import GrowthReader

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
pytestmark = pytest.mark.anyio


class SlowClock:
    """A clock that moves only if something takes time."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now(self) -> datetime:
        return NOW

    def monotonic_s(self) -> float:
        return self.at_s


def head(job_id: str, state: JobState = JobState.RUNNING) -> Any:
    run = SimpleNamespace(id=f"run of {job_id}", state=state)
    return SimpleNamespace(record=SimpleNamespace(id=job_id, run=run))


@pytest.fixture
def read(monkeypatch):
    """Replace the reading of a history by one of half a second that finds no growth; return the jobs that were read."""
    clock, found = SlowClock(), []

    async def slowly(_connection, job, _now):
        found.append(job.record.id)
        clock.at_s += 0.5
        if job.record.id == "huge":
            raise TimeoutError

    monkeypatch.setattr(growth, "_read", slowly)
    monkeypatch.setattr(growth, "limited", lambda *_, **__: nullcontext())
    return SimpleNamespace(clock=clock, jobs=found)


async def test_one_slow_history_is_read_at_a_time_and_the_others_stay_unknown(read):
    reader, heads = GrowthReader(read.clock), {name: head(name) for name in "abc"}

    assert await reader.of_jobs(None, heads) == {"a": None}
    assert await reader.of_jobs(None, heads) == {"a": None, "b": None}
    assert await reader.of_jobs(None, heads) == {"a": None, "b": None, "c": None}
    assert read.jobs == ["a", "b", "c"]
    await reader.of_jobs(None, heads)
    assert read.jobs == ["a", "b", "c"], "they are kept"


async def test_a_history_that_takes_too_long_leaves_its_job_unknown_and_is_tried_again_later(read):
    reader, heads = GrowthReader(read.clock), {name: head(name) for name in ("huge", "other")}

    assert await reader.of_jobs(None, heads) == {}
    assert await reader.of_jobs(None, heads) == {"other": None}
    assert await reader.of_jobs(None, heads) == {"other": None}
    assert read.jobs == ["huge", "other"]
    read.clock.at_s += 600
    assert await reader.of_jobs(None, heads) == {"other": None}
    assert read.jobs == ["huge", "other", "huge"]


async def test_a_job_that_does_not_run_stays_unknown_and_holds_up_no_other(read):
    reader = GrowthReader(read.clock)

    found = await reader.of_jobs(None, {"a": head("a", JobState.RESTARTING), "b": head("b")})
    assert found == {"b": None}
