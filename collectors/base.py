"""Ports of the collectors: what reads a target, what carries its bytes, and where readings go.

They decide nothing. Invariant: a collector that raised has handed on nothing of that poll and forgotten nothing it
read before, so the next poll reads the rest; what it handed on it does not read again, unless it is told to forget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Protocol

from backend.domain.ids import TargetId
from backend.domain.observation import Observation


class Collector(Protocol):
    """Reads one target. One poll at a time."""

    @property
    def poll_within_s(self) -> float | None:
        """The longest the next poll may wait without the target forgetting something unread; None: any time."""
        ...

    async def collect(self, now: datetime) -> Observation:
        """Read what is new.

        Raises:
            TargetUnavailableError: it did not answer, or not in time.
            TargetProtocolError: it answered, but not as its kind answers.

        """
        ...

    def forget(self) -> None:
        """Read everything again: something that was handed on is lost, or another process answers now."""
        ...


class FlinkTransport(Protocol):
    """Carries GET requests to one target and whole bodies back."""

    @property
    def url(self) -> str:
        """The target's root, without credentials: for messages."""
        ...

    async def get(self, path: str) -> bytes:
        """The body of a 200 answer to ``path`` (with its query, from ``/``).

        Raises:
            TargetUnavailableError: no connection, or no answer in time.
            TargetProtocolError: another status (in ``status``), a redirect, too large, or no JSON by its own word.

        """
        ...


class ObservationSink(Protocol):
    """Where readings go: ``backend.store.ingest.IngestWriter``."""

    async def write(self, observation: Observation) -> object:
        """Keep it; when this returns, it is committed.

        Raises:
            StoreUnavailableError: try again.
            UnknownEntityError: the target is no longer watched.

        """
        ...

    async def report_failure(self, target_id: TargetId, *, kind: str, reason: str, at: datetime) -> None:
        """Keep that a poll failed; ``kind`` is ``unreachable`` or ``malformed``."""
        ...


class TargetRow(Protocol):
    """One enabled target as the store lists it."""

    @property
    def id(self) -> TargetId: ...

    @property
    def url(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...


class TargetSource(Protocol):
    """What is to be watched, and by whom: ``backend.store.targets.targets.TargetRepository``."""

    async def list_enabled(self) -> Sequence[TargetRow]:
        """Every target that is to be watched."""
        ...

    async def lease(self, target_id: TargetId, *, holder: str, ttl_s: float) -> bool:
        """Take or renew the sole right to read a target; False where another holds it."""
        ...

    async def release(self, target_id: TargetId, *, holder: str) -> None:
        """Give the right back."""
        ...


Pause = Callable[[float, asyncio.Event], Awaitable[None]]
"""Waits that many seconds, or until the event is set, whichever is first."""


async def pause(seconds: float, stop: asyncio.Event) -> None:
    """``Pause`` in real time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
