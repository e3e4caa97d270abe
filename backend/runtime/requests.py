"""Requests for checkpoints and savepoints that wait for their turn, and what becomes of a requested savepoint (2.2).

The order is Flink's (CO-2): savepoints before checkpoints, forced ones before others, then by time. A periodic request
that comes while another waits would ask for the same, so that one at most waits.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from enum import StrEnum

from backend.domain.failure import FailureReason

QUEUE_MAX = 1000


class SavepointFormat(StrEnum):
    """What a savepoint was asked to be written as (SV-2); here both hold the same."""

    CANONICAL = "CANONICAL"
    NATIVE = "NATIVE"


@dataclass(slots=True)
class Savepoint:
    """One requested savepoint and how far it has come; instants are virtual microseconds."""

    number: int
    format: SavepointFormat
    requested_at_us: int
    checkpoint_id: int | None = None
    ended_at_us: int | None = None
    reason: FailureReason | None = None
    message: str | None = None

    @property
    def request_to_end_us(self) -> int | None:
        """SV-4: how long the user waited; None while it is under way."""
        return None if self.ended_at_us is None else self.ended_at_us - self.requested_at_us


@dataclass(slots=True, order=True)
class Request:
    """One request; requests compare by their turn."""

    _turn: tuple[bool, bool, int] = field(init=False)
    is_forced: bool = field(compare=False)
    at_us: int = field(compare=False)
    number: int = field(compare=False)
    savepoint: Savepoint | None = field(default=None, compare=False)
    """None: a periodic checkpoint."""

    def __post_init__(self) -> None:
        self._turn = (self.savepoint is None, not self.is_forced, self.number)

    @property
    def is_periodic(self) -> bool:
        """Whether the timer asked for it."""
        return self.savepoint is None


class RequestQueue:
    """Requests by turn. The periodic one is always the last: whatever a user asks for goes before it."""

    def __init__(self, limit: int = QUEUE_MAX) -> None:
        self._limit = limit
        self._waiting: list[Request] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Request | None:
        """Whose turn it is."""
        return self._waiting[0] if self._waiting else None

    @property
    def has_periodic(self) -> bool:
        """Whether a periodic request waits."""
        return bool(self._waiting) and self._waiting[-1].is_periodic

    def add(self, request: Request) -> Request | None:
        """Queue a request; returns the one that found no room, which may be the new one (CO-2)."""
        if request.is_periodic and self.has_periodic:
            return request
        if len(self._waiting) < self._limit:
            insort(self._waiting, request)
            return None
        if not self.has_periodic:
            return request
        dropped = self._waiting.pop()
        insort(self._waiting, request)
        return dropped

    def pop(self) -> Request:
        """Take the first."""
        return self._waiting.pop(0)

    def clear(self) -> list[Request]:
        """Give all of them up."""
        waiting, self._waiting = self._waiting, []
        return waiting
