"""After ``kill -9`` of PostgreSQL at any moment, every acknowledged checkpoint is stored once and whole.

The seed fixes when the kill comes. Like the collector's loop, writers write again what was not acknowledged.
To replay one: pytest tests/integration/test_store_survives_kill.py -k "seed-1"
"""

from __future__ import annotations

import asyncio
import os
import random
import signal

import pytest
from sqlalchemy import text

from backend.domain.errors import StoreUnavailableError
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.postgres.embedded import EmbeddedPostgres
from backend.store.schema import migrate
from backend.store.targets.targets import NewTarget, TargetRepository
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
    """Kills the server and its backends at the n-th acknowledgement, while other writes are in progress."""

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


async def _stored(engine):
    query = text(
        "SELECT r.target_id, c.checkpoint_id, count(d.vertex_id) FROM checkpoints c JOIN runs r ON r.id = c.run_id"
        " LEFT JOIN checkpoint_details d USING (run_id, checkpoint_id, triggered_on) GROUP BY 1, 2"
    )
    async with engine.connect() as connection:
        rows = (await connection.execute(query)).all()
    return {(target, checkpoint): vertices for target, checkpoint, vertices in rows}
