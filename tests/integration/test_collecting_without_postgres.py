"""While PostgreSQL is killed, the role ``collect`` keeps reading, and stores everything in order afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta

import psycopg
import pytest

from backend.domain.target import TargetOrigin
from backend.store.postgres.connections import create_store_engine
from backend.store.postgres.embedded import EmbeddedPostgres
from backend.store.schema import migrate
from backend.store.targets.targets import NewTarget, TargetRepository
from backend.store.wall_clock import WallClock
from collectors import role
from collectors.base import pause
from tests.integration.test_toy_collector import installed_toy
from tests.support.clusters import copy_cluster
from tests.support.collector_targets import ToySource, serving
from tests.support.observations import NOW
from tests.support.waiting import PATIENCE_S

__all__ = ["installed_toy"]
pytestmark = pytest.mark.anyio


@pytest.fixture
def server(made_cluster, tmp_path):
    made = EmbeddedPostgres(copy_cluster(made_cluster, tmp_path / "postgres"))
    migrate.upgrade(made.start())
    yield made
    made.stop()


def _stored(url):
    try:
        with psycopg.connect(url) as connection:
            return [row[0] for row in connection.execute("SELECT checkpoint_id FROM checkpoints ORDER BY 1").fetchall()]
    except psycopg.OperationalError:
        return None


async def _until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await pause(0.05, asyncio.Event())


async def test_what_is_read_while_postgres_is_killed_is_stored_afterwards(server, tmp_path, installed_toy):
    url = server.start()
    source = ToySource(began_at=WallClock().now() - timedelta(hours=1))
    spool = tmp_path / "spool"
    stop = asyncio.Event()
    async with serving(source) as served, asyncio.TaskGroup() as group:
        engine = create_store_engine(url)
        new = NewTarget(served.url, "toy", TargetOrigin.CONFIGURATION, kind="toy")
        await TargetRepository(engine).add(new, at=NOW)
        await engine.dispose()
        group.create_task(role.run(database_url=url, poll_interval_s=0.1, stop=stop, spool_dir=spool))
        await _until(lambda: _stored(url) == [0, 1, 2])

        os.killpg(server.pid, signal.SIGKILL)
        source.checkpoint_count = 5
        await _until(lambda: list(spool.glob("*.spool")))
        source.checkpoint_count = 9
        assert server.start() == url
        await _until(lambda: _stored(url) == list(range(9)))
        await _until(lambda: not list(spool.glob("*.spool")))
        stop.set()
