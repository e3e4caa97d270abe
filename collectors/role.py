"""The role ``collect``: composes store, collectors and the manager, and runs them until ``stop`` is set.

A target's kind decides which collector reads it (``collectors.kinds``). The console command finds this role through
the entry point ``barrierscope.roles``.
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

from backend.domain.errors import TargetUnavailableError
from backend.store.ingest import IngestWriter
from backend.store.jobs.reader import list_unended
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.schema.partitions import Retention
from backend.store.targets.targets import TargetRepository
from backend.store.wall_clock import WallClock
from collectors.base import Collector, TargetRow, pause
from collectors.kinds import find_kind
from collectors.loop import LoopOptions
from collectors.manager import CollectorManager, ManagerOptions


@asynccontextmanager
async def open_target(row: TargetRow, *, engine: AsyncEngine) -> AsyncIterator[Collector]:
    """A collector of the target's kind; it gets the runs that have not ended according to the store.

    Raises:
        InvalidInputError: the target's address is not valid for its kind.
        TargetUnavailableError: no collector for its kind is installed, or targets of its kind are not polled.
        StoreUnavailableError: the store is away; try again.

    """
    kind = find_kind(row.kind, url=row.url)
    if kind.open is None:
        reason = f"jobs of a target of kind {row.kind!r} push what they have to report: there is no address to poll"
        raise TargetUnavailableError(url=row.url, reason=reason)
    async with reading(engine) as connection:
        known = await list_unended(connection, row.id)
    async with kind.open(row, known) as collector:
        yield collector


async def run(
    *, database_url: str, poll_interval_s: float, stop: asyncio.Event, retention_max_age_days: float = 7.0
) -> None:
    """Read every registered target each ``poll_interval_s`` and store what was read, until ``stop``.

    Checkpoints triggered more than ``retention_max_age_days`` ago are not stored: retention would drop them at once.

    Raises:
        InvalidInputError: ``database_url`` is not a PostgreSQL URL.

    """
    engine = create_store_engine(database_url)
    manager = CollectorManager(
        TargetRepository(engine),
        IngestWriter(engine, retention=Retention(timedelta(days=retention_max_age_days))),
        partial(open_target, engine=engine),
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
