"""Tests of the runs that ``diagnose --watch`` puts together from what each poll of Spark hands on."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.engines import SPARK
from backend.domain.errors import TargetUnavailableError
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.micro_batch import MicroBatch
from backend.domain.observation import JobObservation, JobState, Observation, PollCost
from collectors.spark.watched import BATCHES_MAX, WatchedSpark
from tests.support.observations import NOW, SteppingClock

pytestmark = pytest.mark.anyio


def _batch(number: int, *, is_open: bool = False) -> Checkpoint:
    header = CheckpointHeader(
        checkpoint_id=number,
        kind=CheckpointKind.CHECKPOINT,
        status=CheckpointStatus.IN_PROGRESS if is_open else CheckpointStatus.COMPLETED,
        triggered_at=NOW + timedelta(seconds=number),
        end_to_end_duration_ms=None if is_open else 400,
    )
    return Checkpoint(header, batch=MicroBatch())


def _run(name: str, *batches: Checkpoint, state: JobState = JobState.RUNNING) -> JobObservation:
    return JobObservation(EngineRunId(f"{name}/1"), name, state, "ACTIVE", NOW, checkpoints=batches)


@dataclass
class _Driver:
    """Hands on one list of runs with each poll; None is a poll that fails."""

    polls: list[list[JobObservation] | None]
    driver: Any = "driver"
    logs: Any = None
    server: Any = field(default_factory=lambda: SimpleNamespace(version="4.3.0"))

    async def collect(self, now: Any) -> Observation:
        jobs = self.polls.pop(0)
        if jobs is None:
            raise TargetUnavailableError(url="http://spark", reason="refused")
        return Observation(TargetId("t"), now, SPARK, "4.3.0", tuple(jobs), PollCost(1, 1, 1))


def _watched(*polls: list[JobObservation] | None, job: str | None = None) -> WatchedSpark:
    return WatchedSpark(_Driver(list(polls)), job=job, clock=SteppingClock())  # type: ignore[arg-type]


def _numbers(job: Any) -> list[tuple[int, str]]:
    return [(c.header.checkpoint_id, c.header.status.value) for c in job.checkpoints]


async def test_a_batch_that_ended_replaces_the_open_one_and_older_batches_stay():
    watched = _watched([_run("a", _batch(1), _batch(2, is_open=True))], [_run("a", _batch(2), _batch(3, is_open=True))])
    await watched.read()

    (job,) = await watched.read()
    assert _numbers(job) == [(1, "completed"), (2, "completed"), (3, "in-progress")]
    assert (watched.engine, watched.names) == ("Spark driver 4.3.0", ["a"])
    assert job.is_micro_batched


async def test_a_poll_without_news_keeps_what_is_shown_and_one_that_fails_is_said():
    watched = _watched([_run("a", _batch(1))], [_run("a")], None, [])
    first = await watched.read()

    assert _numbers((await watched.read())[0]) == _numbers(first[0])
    with pytest.raises(TargetUnavailableError):
        await watched.read()
    assert _numbers((await watched.read())[0]) == _numbers(first[0])


async def test_only_the_newest_batches_are_kept():
    watched = _watched([_run("a", *(_batch(n) for n in range(BATCHES_MAX + 10)))])

    (job,) = await watched.read()
    assert [number for number, _ in _numbers(job)] == list(range(10, BATCHES_MAX + 10))


async def test_ended_queries_are_shown_only_if_none_runs():
    ended = _run("b", _batch(1), state=JobState.ENDED)
    watched = _watched([_run("a", _batch(1)), ended], [_run("a", state=JobState.ENDED)])

    assert [job.name for job in await watched.read()] == ["a"]
    assert sorted(job.name for job in await watched.read()) == ["a", "b"]
