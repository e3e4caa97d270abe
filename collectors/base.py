"""Ports of the collectors: the interfaces that read a target, transport its bytes and store its observations.

``CollectorKind`` describes the collector for one kind of target; an entry point of ``barrierscope.collectors`` offers
it. Invariants of every ``Collector``: if a poll raises, it returns nothing and loses nothing, so the next poll reads
the rest. Returned data is not read again until ``forget`` is called. ``tests/contract/collector_contract.py`` tests
these promises for every collector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from backend.domain.engines import EngineCapabilities
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.observation import Observation
from backend.domain.target import TargetState


class Collector(Protocol):
    """Reads one target. One poll at a time."""

    @property
    def poll_within_s(self) -> float | None:
        """Seconds within which the next poll must come, before the target drops unread data; None: no limit."""
        ...

    async def collect(self, now: datetime) -> Observation:
        """Read new data.

        Raises:
            TargetUnavailableError: the target did not answer, or not in time.
            TargetProtocolError: the answer is not one of the target's kind.

        """
        ...

    def forget(self) -> None:
        """Read everything again at the next poll: returned data was lost, or another process answers now."""
        ...


class FlinkTransport(Protocol):
    """Sends GET requests to one target and returns whole bodies."""

    @property
    def url(self) -> str:
        """The target's root without credentials, for messages."""
        ...

    async def get(self, path: str) -> bytes:
        """Return the body of a 200 answer to ``path`` (from ``/``, with its query).

        Raises:
            TargetUnavailableError: no connection, or no answer in time.
            TargetProtocolError: another status (in ``status``), a redirect, a body that is too large, or HTML.

        """
        ...


class ObservationSink(Protocol):
    """Stores observations. Implemented by ``backend.store.ingest.IngestWriter``."""

    async def write(self, observation: Observation) -> object:
        """Store and commit an observation.

        Raises:
            StoreUnavailableError: try again.
            UnknownEntityError: the target is no longer watched.

        """
        ...

    async def report_failure(self, target_id: TargetId, *, kind: TargetState, reason: str, at: datetime) -> None:
        """Record a failed poll; ``kind`` is ``unreachable`` or ``malformed``."""
        ...


class TargetRow(Protocol):
    """One enabled target as the store lists it."""

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


class TargetSource(Protocol):
    """Lists and leases targets: ``backend.store.targets.targets.TargetRepository``."""

    async def list_enabled(self) -> Sequence[TargetRow]:
        """Return every target to poll."""
        ...

    async def lease(self, target_id: TargetId, *, holder: str, ttl_s: float) -> bool:
        """Take or renew the lease to read a target; return False if another process holds it."""
        ...

    async def release(self, target_id: TargetId, *, holder: str) -> None:
        """Release the lease."""
        ...


KnownRuns: TypeAlias = Mapping[tuple[EngineRunId, datetime], str]
"""Runs that had not ended when the target was last read: (engine's run id, start time) and the name of the job."""


@dataclass(frozen=True, slots=True)
class Probed:
    """A target's answer to a connection test: its engine and version, and the names of its running jobs."""

    engine: EngineCapabilities
    version: str | None
    running_jobs: tuple[str, ...]


class OpenTarget(Protocol):
    """Opens a target for polling; its connections are closed when the context ends."""

    def __call__(self, target: TargetRow, known: KnownRuns) -> AbstractAsyncContextManager[Collector]:
        """A collector of ``target``. It reports a run of ``known`` that the target no longer has as ended.

        Raises:
            InvalidInputError: the target's address is not valid for this kind.
            TargetUnavailableError, TargetProtocolError: as ``Collector.collect``.

        """
        ...


class ProbeTarget(Protocol):
    """Asks the target at ``url`` once and stores nothing; each request takes at most ``timeout_s`` seconds."""

    async def __call__(self, url: str, timeout_s: float) -> Probed:
        """Raise ``InvalidInputError``, ``TargetUnavailableError`` or ``TargetProtocolError``, as ``OpenTarget``."""
        ...


class ChangeTargetSettings(Protocol):
    """Changes settings of a running job: all of them, or none."""

    async def __call__(
        self, url: str, engine_run_id: str, settings: Mapping[str, str], timeout_s: float, token: str | None
    ) -> None:
        """Change ``settings`` of the job that runs as ``engine_run_id``; ``token`` goes to ``url`` only.

        Raises:
            ConflictError: the engine at ``url`` cannot change settings of a running job.
            InvalidInputError: the target refuses the values, or ``url`` is not a valid address.
            TargetUnavailableError, TargetProtocolError: as ``Collector.collect``.

        """
        ...


@dataclass(frozen=True, slots=True)
class CollectorKind:
    """How targets of one kind are read; ``kind`` is the value of ``targets.kind`` and the name of the entry point.

    ``engines`` are the engines that may run at such a target, in their newest versions. ``open`` is None if the jobs of
    such a target push. ``probe`` and ``change_settings`` are None if the kind does not support them.
    """

    kind: str
    engines: tuple[EngineCapabilities, ...]
    open: OpenTarget | None = None
    probe: ProbeTarget | None = None
    change_settings: ChangeTargetSettings | None = None


Pause = Callable[[float, asyncio.Event], Awaitable[None]]
"""Waits for a number of seconds, or until the event is set, whichever comes first."""


async def pause(seconds: float, stop: asyncio.Event) -> None:
    """``Pause`` in real time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
