"""The port through which a collector gets event logs of Spark: from a history server, or from a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from backend.domain.engines import EngineCapabilities
from backend.domain.observation import PollCost
from collectors.spark.applications import Attempt
from collectors.spark.log_stream import LogRead


class LogFailedError(Exception):
    """A log could not be read. The text is a sentence about the application."""


@dataclass(slots=True)
class Cost:
    """What the reading of a target has cost it since the last poll."""

    request_count: int = 0
    response_bytes: int = 0
    taken_count: int = 0

    @property
    def total_count(self) -> int:
        """The requests of all polls."""
        return self.taken_count + self.request_count

    def taken(self, duration_ms: int) -> PollCost:
        """Return the cost of a poll, and begin again at 0."""
        found = PollCost(self.request_count, self.response_bytes, duration_ms)
        self.taken_count += self.request_count
        self.request_count = self.response_bytes = 0
        return found


class LogSource(Protocol):
    """Lists applications of Spark, and reads their event logs. Only one log is read at a time."""

    @property
    def url(self) -> str:
        """The address for messages, without credentials."""
        ...

    @property
    def clock_ahead(self) -> timedelta:
        """By how much the clock that dates the logs is ahead of ours, as far as its newest answer shows."""
        ...

    @property
    def engine(self) -> EngineCapabilities: ...

    @property
    def version(self) -> str | None:
        """The version of what answers; None before the first list, or if none answers."""
        ...

    @property
    def problem(self) -> str | None:
        """What the newest list leaves out, in words; None if it has everything."""
        ...

    @property
    def cost(self) -> Cost: ...

    async def check(self) -> None:
        """Check that Spark answers. This raises as ``list_since``."""
        ...

    async def list_since(self, since: datetime) -> list[Attempt]:
        """Return the attempts of the running applications, and of those that ended after ``since`` on our clock.

        Raises:
            TargetUnavailableError, TargetProtocolError: as ``collectors.base.Collector.collect``.
        """
        ...

    async def look_up(self, attempt: Attempt) -> list[Attempt]:
        """Return an attempt that is no longer listed; nothing if it is gone. This raises as ``list_since``."""
        ...

    async def fetch(self, attempt: Attempt, found: LogRead, before: Mapping[int, int]) -> None:
        """Read the log of ``attempt`` into ``found``, from the positions ``before``.

        Raises:
            LogFailedError: the log was not read to its end.
        """
        ...
