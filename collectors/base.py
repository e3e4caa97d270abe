"""Defines the interfaces of the collectors: those that read a target, transport its bytes and store its observations.

``CollectorKind`` describes the collector for one kind of target; an entry point of ``barrierscope.collectors``
provides it. Invariants of every ``Collector``: a poll that raises returns nothing and loses nothing, because the next
poll reads the same data. A poll may return only a part of the new data, and the next polls return the rest. Data that
was returned is not read again until ``forget`` is called. ``tests/contract/collector_contract.py`` tests these
invariants for every collector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from backend.domain.connection import ConnectionOptions, Reach
from backend.domain.engines import EngineCapabilities
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.inspection import Inspected, InspectionRequest
from backend.domain.job_request import JobRequest
from backend.domain.observation import KnownRun, Observation
from backend.domain.target import TargetOrigin, TargetState

if TYPE_CHECKING:
    from backend.store.ingest import RunChange


class Effort(IntEnum):
    """How much one poll reads. A collector process that cannot keep up with its targets reads less in each poll."""

    HEADERS = 0
    """No details of checkpoints, and no backpressure."""
    NEWEST = 1
    """Of each job, the details of the newest checkpoint only."""
    FULL = 2


class Collector(Protocol):
    """Reads one target. Only one poll may run at a time."""

    @property
    def poll_within_s(self) -> float | None:
        """The longest time until the next poll, in seconds, in which the target drops no unread data.

        None means no limit.
        """
        ...

    async def collect(self, now: datetime, *, effort: Effort = Effort.FULL) -> Observation:
        """Read the data of the target that is new since the last poll.

        What ``effort`` leaves out is read by a later poll, if the target still has it. Otherwise it is counted as shed.
        A collector whose polls are cheap may ignore ``effort``.

        Raises:
            TargetUnavailableError: the target is unreachable, or did not respond in time.
            TargetProtocolError: the response is not valid for a target of this kind.
        """
        ...

    def forget(self) -> None:
        """Read everything again at the next poll.

        Call this if returned data was lost, or if another process now responds at the target's address.
        """
        ...


class FlinkTransport(Protocol):
    """Sends GET requests to one target and returns complete response bodies."""

    @property
    def url(self) -> str:
        """The target's root URL without credentials, for messages."""
        ...

    async def get(self, path: str) -> bytes:
        """Return the body of the response to ``path``, if its status is 200.

        ``path`` begins with ``/`` and includes the query.

        Raises:
            TargetUnavailableError: there was no connection, or no response in time.
            TargetProtocolError: the response has another status (in ``status``), is a redirect, is HTML or is too
                large.
        """
        ...


class ObservationSink(Protocol):
    """Stores observations. Implemented by ``backend.store.ingest.IngestWriter``."""

    async def write(self, observation: Observation) -> object:
        """Store and commit an observation.

        Raises:
            StoreUnavailableError: the store is unreachable; try again.
            UnknownEntityError: the target is no longer watched.
        """
        ...

    async def report_failure(self, target_id: TargetId, *, kind: TargetState, reason: str, at: datetime) -> None:
        """Record a failed poll. ``kind`` is ``unreachable`` or ``malformed``."""
        ...


class Judging(Protocol):
    """Computes what readers need of the data that was just stored, so that they find it computed."""

    def note(self, changes: Sequence[RunChange]) -> None:
        """Note what a write has stored and committed. Return at once."""
        ...

    async def run(self) -> None:
        """Compute what is noted, until the task is cancelled."""
        ...


class TargetRow(Protocol):
    """An enabled target as the store lists it."""

    @property
    def id(self) -> TargetId: ...

    @property
    def kind(self) -> str: ...

    @property
    def url(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...

    @property
    def origin(self) -> TargetOrigin: ...

    @property
    def connection(self) -> ConnectionOptions: ...

    @property
    def interval_s(self) -> float | None: ...


class TargetSource(Protocol):
    """Leases targets to this process. Implemented by ``backend.store.targets.leases.TargetLeases``."""

    async def take(self) -> Sequence[TargetRow]:
        """Take every target that no other process holds. Return all targets that this process must poll.

        Raises:
            StoreUnavailableError: the store is unreachable; try again.
        """
        ...

    async def release(self, target_ids: Collection[TargetId]) -> None:
        """Release the leases of these targets. Raise the same error as ``take``."""
        ...


KnownRuns: TypeAlias = Mapping[tuple[EngineRunId, datetime], KnownRun]
"""The runs that had not ended when the target was last read, by (engine's run id, start time)."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What a target reports in a connection test: its engine and version, and the names of its running jobs.

    ``summary`` says in words what answers, if the name of the engine does not say it.
    """

    engine: EngineCapabilities
    version: str | None
    running_jobs: tuple[str, ...]
    summary: str | None = None


class OpenTarget(Protocol):
    """Opens a target for polling. The target's connections are closed when the context ends."""

    def __call__(self, target: TargetRow, known: KnownRuns, *, reach: Reach) -> AbstractAsyncContextManager[Collector]:
        """Return a collector of ``target``, which connects as ``reach`` says.

        If the target no longer lists a run of ``known``, the collector reports that the run has ended. If the target
        has dropped checkpoints that are newer than the newest one stored, the collector counts them as shed.

        Raises:
            InvalidInputError: the target's address is not valid for this kind.
            TargetUnavailableError, TargetProtocolError: as ``Collector.collect``.
        """
        ...


class ProbeTarget(Protocol):
    """Tests the connection to the target at ``url`` once. The result is not stored.

    Each request may take ``timeout_s`` seconds. ``reach`` has the allowed addresses and the credentials.
    """

    async def __call__(self, url: str, timeout_s: float, *, reach: Reach) -> Probed:
        """Return what the target reports.

        Raises:
            InvalidInputError, TargetUnavailableError, TargetProtocolError: as ``OpenTarget``.
        """
        ...


class ChangeTargetSettings(Protocol):
    """Changes settings of a running job, either all of them or none, or sends it a request.

    ``reach`` has the allowed addresses and the credentials.
    """

    async def __call__(
        self,
        url: str,
        engine_run_id: str,
        change: Mapping[str, str] | JobRequest,
        timeout_s: float,
        token: str | None,
        *,
        reach: Reach,
    ) -> None:
        """Change the job that runs as ``engine_run_id``. ``token`` is sent to ``url`` only.

        Raises:
            ConflictError: the engine at ``url`` cannot do this while a job runs.
            InvalidInputError: the target refuses the values, or ``url`` is not a valid address.
            TargetUnavailableError, TargetProtocolError: as ``Collector.collect``.
        """
        ...


class InspectTarget(Protocol):
    """Reads the threads or the sampled stacks of a running subtask. The result is not stored.

    ``reach`` has the allowed addresses and the credentials.
    """

    async def __call__(
        self, url: str, engine_run_id: str, request: InspectionRequest, timeout_s: float, *, reach: Reach
    ) -> Inspected:
        """Return a ``ThreadDump`` for ``ReadThreads``, and a ``FlameGraph`` for ``SampleStacks``.

        Raises:
            ConflictError: the engine at ``url`` does not offer this, or one of its settings switches it off.
            InvalidInputError, TargetUnavailableError, TargetProtocolError: as ``OpenTarget``.
        """
        ...


@dataclass(frozen=True, slots=True)
class CollectorKind:
    """Describes how targets of one kind are read.

    ``kind`` is the value of ``targets.kind`` and the name of the entry point. ``engines`` are the engines that may run
    at such a target, in their newest versions. ``open`` is None if such a target is not polled because its jobs push
    their data. ``probe``, ``change_settings`` and ``inspect`` are None if the kind does not support them.
    """

    kind: str
    engines: tuple[EngineCapabilities, ...]
    open: OpenTarget | None = None
    probe: ProbeTarget | None = None
    change_settings: ChangeTargetSettings | None = None
    inspect: InspectTarget | None = None


Pause = Callable[[float, asyncio.Event], Awaitable[None]]
"""Waits for a number of seconds, or until the event is set, whichever comes first."""


async def pause(seconds: float, stop: asyncio.Event) -> None:
    """Wait in real time, as ``Pause`` describes."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
