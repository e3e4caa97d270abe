"""The other runs of a Spark query, as the store has them: when each was last heard, and whether it is silent."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.domain.engines import SPARK, SPARK_DRIVER, SPARK_HISTORY
from backend.domain.ids import EngineRunId
from backend.domain.observation import JobState
from backend.store.jobs.other_runs import other_runs_of
from backend.store.jobs.reader import list_current
from backend.store.postgres.connections import reading
from tests.support.observations import NOW, completed, job, observation

pytestmark = pytest.mark.anyio
_QUERY = "3ed69ee6-85ac-4b2d-ad36-2e73daf8e15a"


def _run(name, began_min, *batches_min, **more):
    """Return a run. The times are minutes after ``NOW``; each batch takes about 300 ms."""
    batches = [completed(n, triggered_at=NOW + timedelta(minutes=at)) for n, at in enumerate(batches_min)]
    began_at = NOW + timedelta(minutes=began_min)
    made = replace(job(batches), topology=None, placements=(), config=None, counts=None, pressure=())
    return replace(made, engine_run_id=EngineRunId(f"{_QUERY}/{name}"), started_at=began_at, **more)


async def _other(engine, writer, target, spark, *runs, at_min):
    observed = observation(target, *runs, at=NOW + timedelta(minutes=at_min))
    await writer.write(replace(observed, engine=spark))
    async with reading(engine) as connection:
        (newest,) = await list_current(connection)
        ((other,),) = (await other_runs_of(connection, [newest.run.id])).values()
    return other


@pytest.mark.parametrize("spark", [SPARK_HISTORY, SPARK_DRIVER])
async def test_a_polled_run_was_last_heard_at_the_end_of_its_newest_batch(engine, writer, target, spark):
    old, new = _run("old", 0, 0, 1, 9), _run("new", 10, 10, 29)
    other = await _other(engine, writer, target, spark, old, new, at_min=30)

    assert timedelta() < other.heard_at - (NOW + timedelta(minutes=9)) < timedelta(seconds=1)
    assert not other.is_silent


async def test_a_polled_run_without_a_batch_was_last_heard_at_its_start(engine, writer, target):
    other = await _other(engine, writer, target, SPARK_HISTORY, _run("old", 0), _run("new", 10, 10), at_min=30)

    assert other.heard_at == NOW


async def test_a_run_that_pushes_was_last_heard_at_its_newest_event(engine, writer, target):
    other = await _other(engine, writer, target, SPARK, _run("old", 0, 1), _run("new", 10, 10), at_min=30)

    assert other.heard_at == NOW + timedelta(minutes=30)


async def test_a_run_that_may_have_been_killed_is_silent(engine, writer, target):
    old = _run("old", 0, 0, 9, state=JobState.UNKNOWN)
    other = await _other(engine, writer, target, SPARK_HISTORY, old, _run("new", 10, 10), at_min=30)

    assert other.is_silent
