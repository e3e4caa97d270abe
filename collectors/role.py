"""The role ``collect``: composes store, Flink collectors and the manager, and runs them until told to stop.

It decides only what is wired to what. Found by the console command through the entry point ``barrierscope.roles``.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.store.ingest import IngestWriter
from backend.store.jobs.reader import list_unended
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.schema.partitions import Retention
from backend.store.targets.targets import TargetRepository
from backend.store.wall_clock import WallClock
from collectors.base import Collector, TargetRow, pause
from collectors.flink.client import open_transport
from collectors.flink.collector import FlinkCollector
from collectors.loop import LoopOptions
from collectors.manager import CollectorManager, ManagerOptions

_REQUEST_TIMEOUT_S = 10.0


@asynccontextmanager
async def open_flink(row: TargetRow, *, engine: AsyncEngine) -> AsyncIterator[Collector]:
    """A collector of a Flink-shaped target, with connections of its own; it knows the runs left unended in the store.

    Raises:
        InvalidInputError: the target's address is none.
        StoreUnavailableError: the store is away; try again.

    """
    async with open_transport(row.url, timeout_s=_REQUEST_TIMEOUT_S) as transport:
        async with reading(engine) as connection:
            known = await list_unended(connection, row.id)
        yield FlinkCollector(transport, target_id=row.id, known=known)


async def run(
    *, database_url: str, poll_interval_s: float, stop: asyncio.Event, retention_max_age_days: float = 7.0
) -> None:
    """Read every registered target each ``poll_interval_s`` and store what was read, until ``stop``.

    What was triggered more than ``retention_max_age_days`` ago is not stored: it would be dropped at once.

    Raises:
        InvalidInputError: ``database_url`` is no PostgreSQL URL.

    """
    engine = create_store_engine(database_url)
    manager = CollectorManager(
        TargetRepository(engine),
        IngestWriter(engine, retention=Retention(timedelta(days=retention_max_age_days))),
        partial(open_flink, engine=engine),
        # Two collectors on one machine are two holders.
        holder=f"{socket.gethostname()}:{os.getpid()}",
        clock=WallClock(),
        pause=pause,
        random=random.random,
        options=ManagerOptions(loop=LoopOptions(interval_s=poll_interval_s)),
    )
    try:
        await manager.run(stop)
    finally:
        await engine.dispose()
