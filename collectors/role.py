"""The role ``collect``: connects store, collectors and manager, and runs them until ``stop`` is set.

A target's kind decides which collector reads it (``collectors.kinds``). The console command finds this role through
the entry point ``barrierscope.roles``.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.connection import ANYWHERE, Reach
from backend.domain.errors import TargetUnavailableError
from backend.domain.observation import JobState, KnownRun, Observation
from backend.metrics.registry import register
from backend.store.ingest import IngestWriter
from backend.store.jobs.cluster_history import ClusterHistory
from backend.store.jobs.reader import list_unended
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.schema.partitions import Retention
from backend.store.targets.declared import DeclaredTargets
from backend.store.targets.leases import CollectorSession, TargetLeases
from backend.store.wall_clock import WallClock
from collectors.base import Collector, Judging, KnownRuns, TargetRow, pause
from collectors.discovery.metrics import source_metrics
from collectors.discovery.watch import DiscoveryWatch, finder_of
from collectors.kinds import find_kind
from collectors.loop import LoopOptions
from collectors.manager import CollectorManager, ManagerOptions
from collectors.sink import SpoolingSink
from collectors.spool import Spool
from collectors.targets_file import TargetsFileWatch


@asynccontextmanager
async def open_target(
    row: TargetRow, *, engine: AsyncEngine, limits: Reach, spool: Spool | None = None
) -> AsyncIterator[Collector]:
    """Open a collector for the target.

    The collector receives the runs that have not ended, according to the store and the observations in ``spool``,
    which will be stored later. ``limits`` do not apply to targets that the operator declared.

    Raises:
        InvalidInputError: the target's address is not valid for its kind.
        TargetUnavailableError: no collector for its kind is installed, or targets of its kind are not polled.
        StoreUnavailableError: the store is unreachable; try again.
    """
    kind = find_kind(row.kind, url=row.url)
    if kind.open is None:
        reason = f"jobs of a target of kind {row.kind!r} push their data, so there is no address to poll"
        raise TargetUnavailableError(url=row.url, reason=reason)
    async with reading(engine) as connection:
        stored = await list_unended(connection, row.id)
    known = with_waiting(stored, [] if spool is None else spool.waiting(row.id))
    reach = limits.towards(row.connection, row.origin)
    async with kind.open(row, known, reach=reach) as collector:
        yield collector


def with_waiting(stored: KnownRuns, waiting: Iterable[Observation]) -> KnownRuns:
    """Return the stored runs, updated by the ``waiting`` observations, which will be stored later.

    ``waiting`` is in order of time, oldest first.
    """
    known = dict(stored)
    for observation in waiting:
        for job in observation.jobs:
            key = (job.engine_run_id, job.started_at)
            if job.state is JobState.ENDED:
                known.pop(key, None)
                continue
            ids = [c.header.checkpoint_id for c in job.checkpoints if c.header.status.is_terminal]
            before = known.get(key, KnownRun(job.name))
            # A later observation may contain only older checkpoints, for example if their details were read late. So
            # the largest id counts.
            known[key] = KnownRun(
                job.name, max(ids + ([] if before.newest_id is None else [before.newest_id]), default=None)
            )
    return known


async def run(
    *,
    database_url: str,
    poll_interval_s: float,
    stop: asyncio.Event,
    retention: Retention | None = None,
    limits: Reach = ANYWHERE,
    targets_file: Path | None = None,
    spool_dir: Path | None = None,
    spool_max_mib: int = 256,
    judge: Judging | None = None,
) -> None:
    """Read every registered target each ``poll_interval_s`` seconds and store the data, until ``stop`` is set.

    Checkpoints that are older than the age limits in ``retention`` are not stored, because they would be dropped at
    once. Targets that were added through the API are read only as ``limits`` allow. The targets of ``targets_file`` are
    read too, and the file is read again when it changes. While PostgreSQL is
    slow or unreachable, observations wait in ``spool_dir``. If ``spool_dir`` is None, a few observations of each target
    wait in memory. ``judge`` is notified of each commit.

    Raises:
        InvalidInputError: ``database_url`` is not a PostgreSQL URL.
        HostError: ``spool_dir`` is not writable, or another process uses it.
    """
    spool = None
    if spool_dir is not None:
        spool = Spool(spool_dir, size_max_bytes=spool_max_mib * 2**20, monotonic_s=WallClock().monotonic_s)
    # With the process id, two collectors on one machine are two different holders of leases.
    holder = f"{socket.gethostname()}:{os.getpid()}"
    engine = create_store_engine(database_url, plans_once=True)
    # Leases have a connection of their own, so that they never wait for the connections of many writers.
    lease_engine = create_store_engine(database_url, pool_size=1, pool_overflow=0)
    writer = IngestWriter(engine, retention=retention, on_commit=None if judge is None else judge.note)
    sink = None if spool is None else SpoolingSink(writer, spool, pause=pause)
    manager = CollectorManager(
        TargetLeases(lease_engine, holder=holder),
        sink or writer,
        partial(open_target, engine=engine, limits=limits, spool=spool),
        clock=WallClock(),
        pause=pause,
        random=random.random,
        options=ManagerOptions(loop=LoopOptions(interval_s=poll_interval_s)),
    )
    declared = None if targets_file is None else _declared(targets_file, engine, limits)
    unregister = register(partial(_own_metrics, manager, spool, spool_max_mib, declared))
    try:
        with CollectorSession(database_url, holder=holder):
            async with asyncio.TaskGroup() as group:
                if sink is not None:
                    group.create_task(sink.replay(stop), name="replay")
                judging = None if judge is None else group.create_task(judge.run(), name="judge")
                if declared is not None:
                    group.create_task(declared.file.run(stop), name="targets file")
                    group.create_task(declared.discovery.run(stop), name="discovery")
                await manager.run(stop)
                if judging is not None:
                    judging.cancel()
    finally:
        unregister()
        if spool is not None:
            spool.close()
        await lease_engine.dispose()
        await engine.dispose()


@dataclass(frozen=True, slots=True)
class _Declared:
    """The watch of the targets file, and that of the sections in it."""

    file: TargetsFileWatch
    discovery: DiscoveryWatch


def _declared(path: Path, engine: AsyncEngine, limits: Reach) -> _Declared:
    store, clock = DeclaredTargets(engine), WallClock()
    finder = partial(finder_of, limits=limits, pause=pause)
    discovery = DiscoveryWatch(store, finder, clock=clock, pause=pause, history=ClusterHistory(engine))
    file = TargetsFileWatch(path, store, clock=clock, pause=pause, notify=discovery.change)
    return _Declared(file, discovery)


def _own_metrics(
    manager: CollectorManager, spool: Spool | None, spool_max_mib: int, declared: _Declared | None = None
) -> Iterable[Metric]:
    """Return what this process knows of itself: its targets, its failed loops and its spool."""
    values = [
        (
            "collector_targets",
            "The targets that this process polls, because it holds their leases.",
            len(manager.watched),
        ),
        (
            "collector_loops_failed",
            "How often a loop of a target ended with an unexpected error.",
            manager.broken_count,
        ),
    ]
    if spool is not None:
        values += [
            ("spool_observations", "The observations that wait on disk until the store takes them.", len(spool)),
            ("spool_size_bytes", "The size of the observations that wait on disk.", spool.size_bytes),
            ("spool_size_limit_bytes", "The size at which the spool takes no more.", spool_max_mib * 2**20),
        ]
    own = [GaugeMetricFamily(f"barrierscope_{name}", words, value=value) for name, words, value in values]
    return own if declared is None else [*own, *source_metrics(declared.file.state, declared.discovery.states)]
