"""After ``kill -9`` of PostgreSQL at any moment, every acknowledged checkpoint is stored once and completely.

The seed determines the moment of the kill. Like the collector's loop, the writers repeat every write that was
not acknowledged. To replay one run: pytest tests/integration/test_store_survives_kill.py -k "seed-1"
"""

from __future__ import annotations

import asyncio
import os
import random
import signal

import psycopg
import pytest
from sqlalchemy import text

from backend.domain.errors import StoreUnavailableError
from backend.domain.target import TargetOrigin
from backend.store import rewriting
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine, session
from backend.store.postgres.embedded import EmbeddedPostgres
from backend.store.rewriting import Rewrite
from backend.store.schema import migrate, tables
from backend.store.schema.partitions import Partitions
from backend.store.targets.targets import NewTarget, TargetRepository
from collectors.base import pause
from tests.support.clusters import copy_cluster
from tests.support.observations import NOW, completed, job, observation
from tests.support.seeds import over_seeds
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio
_WRITERS = 4
_CHECKPOINTS_EACH = 12


@pytest.fixture
def server(made_cluster, tmp_path):
    made = EmbeddedPostgres(copy_cluster(made_cluster, tmp_path / "postgres"))
    migrate.upgrade(made.start())
    yield made
    made.stop()


class _Killer:
    """Kills the server and its backends at the n-th acknowledged write, while other writes are in progress."""

    def __init__(self, server, after):
        self._server, self._left, self.acknowledged = server, after, []

    def acknowledge(self, checkpoint):
        self.acknowledged.append(checkpoint)
        self._left -= 1
        if self._left == 0:
            os.killpg(self._server.pid, signal.SIGKILL)


@over_seeds(1, more=5)
async def test_every_acknowledged_checkpoint_is_stored_once_and_whole(server, clock, seed):
    engine = create_store_engine(server.start())
    targets = TargetRepository(engine)
    ids = [(await targets.add(NewTarget(f"http://{n}", f"{n}", TargetOrigin.API), at=NOW)).id for n in range(_WRITERS)]
    killer = _Killer(server, random.Random(seed).randint(2, _WRITERS * _CHECKPOINTS_EACH - _WRITERS))
    unwritten = {(t, c) for t in ids for c in range(_CHECKPOINTS_EACH)}

    async def write(writer, target, numbers):
        for number in numbers:
            try:
                await writer.write(observation(target, job([completed(number)])))
            except StoreUnavailableError:
                return
            killer.acknowledge((target, number))

    async with asyncio.TaskGroup() as group:
        for target in ids:
            group.create_task(write(IngestWriter(engine, clock=clock), target, range(_CHECKPOINTS_EACH)))
    await engine.dispose()
    assert unwritten - set(killer.acknowledged), f"seed={seed}: the kill came too late"
    server._process.wait(PATIENCE_S)

    engine = create_store_engine(server.start())
    found = await _stored(engine)
    assert set(killer.acknowledged) <= set(found), f"seed={seed}"
    for target in ids:
        await write(IngestWriter(engine, clock=clock), target, range(_CHECKPOINTS_EACH))
    found = await _stored(engine)
    await engine.dispose()

    assert sorted(found) == sorted(unwritten), f"seed={seed}"
    assert set(found.values()) == {2}, f"seed={seed}: a checkpoint without all of its vertices"


# The writer uses COPY for this many checkpoints, and INSERT for a few.
_COPIED_COUNT = 6
# This trigger makes a COPY wait in its middle until the lock is free.
_WAIT_IN_COPY = """
CREATE FUNCTION wait_in_copy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.checkpoint_id = 3 THEN PERFORM pg_advisory_xact_lock(13); END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER wait_in_copy BEFORE INSERT ON checkpoint_details FOR EACH ROW EXECUTE FUNCTION wait_in_copy();
"""
_COPIED = "SELECT tuples_processed FROM pg_stat_progress_copy WHERE relid = 'checkpoint_details'::regclass"


async def test_of_a_copy_in_whose_middle_the_postmaster_is_killed_nothing_is_stored(server, clock):
    url = server.start()
    engine = create_store_engine(url)
    target = (await TargetRepository(engine).add(NewTarget("http://f", "f", TargetOrigin.API), at=NOW)).id
    poll = observation(target, job([completed(number) for number in range(_COPIED_COUNT)]))
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(_WAIT_IN_COPY)
        other.execute("SELECT pg_advisory_lock(13)")
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(_refused(IngestWriter(engine, clock=clock), poll))
            async with asyncio.timeout(PATIENCE_S):
                while other.execute(_COPIED).fetchall() != [(6,)]:
                    await pause(0.02, asyncio.Event())
            # Only the postmaster is killed. Its backends notice that and end.
            os.kill(server.pid, signal.SIGKILL)
            assert await writing
    await engine.dispose()
    server._process.wait(PATIENCE_S)

    assert server.start() == url
    engine = create_store_engine(url)
    assert await _stored(engine) == {}
    writer = IngestWriter(engine, clock=clock)
    assert (await writer.write(poll)).new_count == _COPIED_COUNT
    assert await _stored(engine) == {(target, number): 2 for number in range(_COPIED_COUNT)}
    await engine.dispose()


async def _refused(writer, poll):
    try:
        await writer.write(poll)
    except StoreUnavailableError:
        return True
    return False


async def test_a_rewrite_of_a_day_continues_after_postgres_was_killed(server, monkeypatch):
    day, notes, note = NOW.date(), [], rewriting.note
    monkeypatch.setattr(rewriting, "BATCH_BLOCKS", 2)
    target = Rewrite(tables.checkpoint_details, day, "done")
    rows = "SELECT array_agg(checkpoint_id ORDER BY checkpoint_id) FROM checkpoint_details"

    async def rewritten():
        async def condition():
            return "mod(t.checkpoint_id, 7) = 0"

        engine = create_store_engine(server.start())
        await Partitions(engine).ensure([day])
        try:
            async with session(engine, statement_timeout_s=60) as connection:
                return await rewriting.rewrite(connection, target, condition)
        finally:
            await engine.dispose()

    async def noted(connection, table, comment):
        await note(connection, table, comment)
        notes.append(comment)
        if len(notes) == 5:
            os.killpg(server.pid, signal.SIGKILL)

    engine = create_store_engine(server.start())
    await Partitions(engine).ensure([day])
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "INSERT INTO checkpoint_details (run_id, checkpoint_id, vertex_id, triggered_on, subtask_count,"
                " start_delay_ms) SELECT 'r', n, 'v', :day, 1, array_fill(1, ARRAY[100]) FROM generate_series(0, 599) n"
            ),
            {"day": day},
        )
    await engine.dispose()
    monkeypatch.setattr(rewriting, "note", noted)

    with pytest.raises(StoreUnavailableError):
        await rewritten()
    server._process.wait(PATIENCE_S)
    with psycopg.connect(server.start()) as connection:
        assert connection.execute(rows).fetchone() == (list(range(600)),)
    assert await rewritten()

    with psycopg.connect(server.start()) as connection:
        assert connection.execute(rows).fetchone() == (list(range(0, 600, 7)),)
    # At most the batch whose commit was interrupted is copied again.
    assert len(notes) - len(set(notes)) <= 1


async def _stored(engine):
    query = text(
        "SELECT r.target_id, c.checkpoint_id, count(d.vertex_id) FROM checkpoints c JOIN runs r ON r.id = c.run_id"
        " LEFT JOIN checkpoint_details d USING (run_id, checkpoint_id, triggered_on) GROUP BY 1, 2"
    )
    async with engine.connect() as connection:
        rows = (await connection.execute(query)).all()
    return {(target, checkpoint): vertices for target, checkpoint, vertices in rows}
