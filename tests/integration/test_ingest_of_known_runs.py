"""A writer that remembers what it wrote to a run stores the same rows as one that looks everything up."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from backend.domain.checkpoint import CheckpointCounts
from backend.domain.errors import UnknownEntityError
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin, TargetState
from backend.store import ingest
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import (
    NOW,
    SOURCE,
    SteppingClock,
    completed,
    failed,
    in_progress,
    job,
    observation,
    pressure,
    progress,
)
from tests.support.seeds import over_seeds

pytestmark = pytest.mark.anyio

_TABLES = (
    *("checkpoints", "checkpoint_details", "live_progress", "progress_points", "late_barriers", "job_events"),
    *("pressure", "runs", "target_health"),
)


def _plain(checkpoints, **changed):
    """Return an observed job without the graph and the settings, as most polls have it."""
    return replace(job(checkpoints), topology=None, config=None, **changed)


@pytest.fixture
def looked_up(monkeypatch) -> list[int]:
    """The number of observations of each write that looked up what is stored."""
    counts: list[int] = []
    look_up: Callable[..., Awaitable[Any]] = ingest._look_up

    async def counted(cursor, observations):
        counts.append(len(observations))
        return await look_up(cursor, observations)

    monkeypatch.setattr(ingest, "_look_up", counted)
    return counts


async def _rows(engine, query):
    async with engine.connect() as connection:
        return (await connection.execute(text(query))).all()


async def _store(engine):
    found = {}
    for table in _TABLES:
        # The number of the transaction is the only value that may differ.
        rows = await _rows(engine, f"SELECT to_jsonb(t) - 'changed_xid' FROM {table} t")
        found[table] = sorted(repr(row) for row in rows)
    return found


async def _target(engine):
    return (await TargetRepository(engine).add(NewTarget("http://f", "f", TargetOrigin.API), at=NOW)).id


def _polls(rnd):
    """Return the observed jobs of a run and their times. Checkpoints overlap, and some polls are old or repeated."""
    polls, lasting = [], [rnd.randint(1, 4) for _ in range(12)]
    for number in range(16):
        at = NOW + timedelta(seconds=2 * number)
        checkpoints = []
        for cid, polls_open in enumerate(lasting):
            age = number - cid
            if 0 <= age < polls_open:
                checkpoints.append(in_progress(cid, acknowledged_count=min(age, 5), with_details=rnd.random() < 0.3))
            elif age == polls_open or (age > polls_open and rnd.random() < 0.02):
                ended = failed(cid) if cid % 5 == 3 else completed(cid)
                # Sometimes the details come later, or never. A checkpoint may be discarded later.
                details = ended.details if rnd.random() < 0.8 else ()
                header = replace(ended.header, is_discarded=age > polls_open and rnd.random() < 0.5)
                checkpoints.append(replace(ended, header=header, details=details))
        ended_count = sum(1 for c, n in enumerate(lasting) if number - c >= n)
        seen = _plain(
            checkpoints,
            counts=None if rnd.random() < 0.1 else CheckpointCounts(0, number + 1, 0, ended_count, 0),
            restart_count=number // 6,
            placements=() if rnd.random() < 0.5 else job().placements,
            problems=("odd",) if rnd.random() < 0.1 else (),
            exceptions=((NOW, "boom"),) if rnd.random() < 0.2 else (),
            pressure=(pressure(SOURCE, at),) if rnd.random() < 0.05 else (),
            progress=tuple(
                progress(c.header.checkpoint_id, c.header.acknowledged_count, at)
                for c in checkpoints
                if not c.header.status.is_terminal
            ),
            clock_offset_ms=rnd.choice((None, 5, 7)),
            state=JobState.ENDED if number == 15 else JobState.RUNNING,
        )
        polls.append((seen, at))
    for _ in range(3):
        polls.insert(rnd.randrange(len(polls)), rnd.choice(polls))
    return polls


@over_seeds(2, more=20)
async def test_a_writer_that_remembers_its_runs_stores_what_one_that_looks_them_up_stores(databases, seed, looked_up):
    polls = _polls(random.Random(seed))
    stores, counts = [], []
    # One writer for all polls, a new writer for each poll, and two writers that take turns at random.
    for writer_count in (1, len(polls), 2):
        rnd = random.Random(seed)
        with databases.migrated() as url:
            engine = create_store_engine(url, pool_size=2, pool_overflow=0)
            target = await _target(engine)
            writers = [IngestWriter(engine, clock=SteppingClock()) for _ in range(writer_count)]
            looked_up.clear()
            for number, (seen, at) in enumerate(polls):
                writer = writers[number] if writer_count == len(polls) else rnd.choice(writers)
                await writer.write(observation(target, seen, at=at))
            counts.append(len(looked_up))
            stores.append(await _store(engine))
            await engine.dispose()

    for other in stores[1:]:
        for table in _TABLES:
            assert stores[0][table] == other[table], f"seed={seed}: {table} differs"
    assert len(stores[0]["checkpoints"]) == 12
    assert counts[0] < counts[1] == len(polls), f"seed={seed}: nothing was remembered"


async def test_a_poll_that_follows_the_last_write_looks_nothing_up(writer, target, engine, looked_up):
    await writer.write(observation(target, job([completed(1)])))
    looked_up.clear()
    for number in range(2, 6):
        at = NOW + timedelta(seconds=number)
        result = await writer.write(observation(target, _plain([completed(number)]), at=at))
        assert (result.new_count, result.detail_count) == (1, 2)
    await writer.write(observation(target, _plain(()), at=NOW + timedelta(seconds=9)))

    assert looked_up == []
    assert await _rows(engine, "SELECT checkpoint_count FROM runs") == [(5,)]
    assert await _rows(engine, "SELECT count(*) FROM checkpoint_details") == [(10,)]


async def test_a_checkpoint_that_another_process_has_stored_as_ended_is_never_open_again(writer, target, engine):
    await writer.write(observation(target, job([in_progress(1)])))
    ended = replace(completed(1), details=())
    other = IngestWriter(engine, clock=SteppingClock())
    await other.write(observation(target, _plain([ended]), at=NOW + timedelta(seconds=2)))

    outdated = _plain([in_progress(1, acknowledged_count=3)])
    await writer.write(observation(target, outdated, at=NOW + timedelta(seconds=4)))

    assert await _rows(engine, "SELECT status, acknowledged_count FROM checkpoints") == [("completed", 6)]


async def test_a_removed_target_is_noticed_although_its_runs_are_remembered(writer, target, engine):
    await writer.write(observation(target, job([completed(1)])))
    await TargetRepository(engine).remove(target, at=NOW)

    with pytest.raises(UnknownEntityError):
        await writer.write(observation(target, _plain([completed(2)]), at=NOW + timedelta(seconds=2)))

    assert await _rows(engine, "SELECT count(*) FROM checkpoints") == [(1,)]
    assert await _rows(engine, "SELECT count(*) FROM target_health") == [(0,)]


async def test_a_failed_poll_of_a_removed_target_does_not_hide_that_it_is_removed(writer, target, engine):
    await writer.write(observation(target, job([completed(1)])))
    await TargetRepository(engine).remove(target, at=NOW)

    failed_at = NOW + timedelta(seconds=2)
    await writer.report_failure(target, kind=TargetState.UNREACHABLE, reason="no answer", at=failed_at)
    with pytest.raises(UnknownEntityError):
        await writer.write(observation(target, _plain([completed(2)]), at=NOW + timedelta(seconds=4)))

    assert await _rows(engine, "SELECT count(*) FROM checkpoints") == [(1,)]
    assert await _rows(engine, "SELECT count(*) FROM target_health") == [(0,)]


async def test_a_run_that_retention_has_deleted_is_created_again(writer, target, engine):
    await writer.write(observation(target, job([completed(1)])))
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM jobs"))

    await writer.write(observation(target, _plain([completed(2)]), at=NOW + timedelta(seconds=2)))

    assert await _rows(engine, "SELECT checkpoint_count FROM runs") == [(1,)]


async def test_a_checkpoint_that_is_stored_without_the_memory_of_the_run_is_not_stored_twice(
    writer, target, engine, looked_up
):
    await writer.write(observation(target, job([completed(1)])))
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "INSERT INTO checkpoints SELECT (jsonb_populate_record(c, to_jsonb(c) || '{\"checkpoint_id\": 2}')).*"
                " FROM checkpoints c"
            )
        )
    looked_up.clear()

    again = replace(completed(2), header=replace(completed(2).header, triggered_at=completed(1).header.triggered_at))
    result = await writer.write(observation(target, _plain([again]), at=NOW + timedelta(seconds=2)))

    assert (result.new_count, result.detail_count, looked_up) == (0, 2, [1])
    assert await _rows(engine, "SELECT count(*), count(DISTINCT checkpoint_id) FROM checkpoints") == [(2, 2)]


async def test_counts_that_two_polls_leave_out_are_remembered_for_the_failures_before_a_restart(databases):
    # Of the polls without counts, the first makes the writer look up the run. At the second, the writer remembers it.
    left_out = pressure(SOURCE, NOW + timedelta(seconds=2))
    polls = [
        replace(job([completed(1)]), counts=CheckpointCounts(0, 10, 0, 7, 3)),
        _plain((), counts=None, pressure=(left_out,)),
        _plain((), counts=None),
        _plain((), counts=CheckpointCounts(0, 1, 0, 1, 0)),
    ]
    stores = []
    for is_remembered in (True, False):
        with databases.migrated() as url:
            engine = create_store_engine(url, pool_size=2, pool_overflow=0)
            target = await _target(engine)
            writer = IngestWriter(engine, clock=SteppingClock())
            for number, seen in enumerate(polls):
                at = NOW + timedelta(seconds=2 * number)
                await (writer if is_remembered else IngestWriter(engine, clock=SteppingClock())).write(
                    observation(target, seen, at=at)
                )
            stores.append(await _rows(engine, "SELECT failed_unlisted_past, revision FROM runs"))
            await engine.dispose()

    assert stores[0] == stores[1]
    assert stores[0][0].failed_unlisted_past == 3
