"""The queue of requests for checkpoints and savepoints, and the choice of the next one (2.2).

The order is Flink's (CO-2): savepoints before checkpoints, forced requests before others, a user's requests before
periodic ones, then by time. Each tick of the timer adds a request, even while a checkpoint takes the only slot. A
checkpoint that lasts several intervals is therefore followed by several others without a pause, as in Flink.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TypeVar

from backend.runtime.measure.requested import Savepoint, UserCheckpoint

QUEUE_MAX = 1000
REQUESTS_KEPT = 1000


@dataclass(slots=True, order=True)
class Request:
    """One request. Requests compare by their place in the queue."""

    _turn: tuple[bool, bool, bool, int] = field(init=False)
    is_forced: bool = field(compare=False)
    number: int = field(compare=False)
    savepoint: Savepoint | None = field(default=None, compare=False)
    is_periodic: bool = field(default=False, compare=False)
    """Whether the timer made the request."""
    checkpoint: UserCheckpoint | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._turn = (self.savepoint is None, not self.is_forced, self.is_periodic, self.number)


@dataclass(frozen=True, slots=True)
class Start:
    """The request is next and may start."""

    request: Request


@dataclass(frozen=True, slots=True)
class TooEarly:
    """A periodic request is dropped because the pause is not over (CO-4). The timer asks again after ``delay_us``."""

    request: Request
    delay_us: int


@dataclass(frozen=True, slots=True)
class Slots:
    """The input of the choice besides the queue."""

    now_us: int
    pending: int
    max_concurrent: int
    pause_ends_us: int
    """When the pause after the last completion ends; an instant in the past if nothing has completed yet."""


class RequestQueue:
    """The waiting requests in order. Chooses the next one as Flink's ``CheckpointRequestDecider`` does."""

    def __init__(self, limit: int = QUEUE_MAX) -> None:
        self._limit = limit
        self._waiting: list[Request] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Request | None:
        """The next request; None if the queue is empty."""
        return self._waiting[0] if self._waiting else None

    @property
    def is_closed(self) -> bool:
        """Whether the queue is full of users' requests. New requests are then refused."""
        return len(self._waiting) >= self._limit and not self._waiting[-1].is_periodic

    def add(self, request: Request) -> Request | None:
        """Queue a request. Returns the request that found no room, which may be the new one, or None (CO-2)."""
        if self.is_closed:
            return request
        insort(self._waiting, request)
        return self._waiting.pop() if len(self._waiting) > self._limit else None

    def choose(self, slots: Slots) -> Start | TooEarly | None:
        """Remove and return the first request, as Start or TooEarly. None if it has to wait (CO-3, CO-4)."""
        if not self._waiting:
            return None
        first = self._waiting[0]
        if slots.pending >= slots.max_concurrent:
            return Start(self._waiting.pop(0)) if first.is_forced else None
        self._waiting.pop(0)
        if first.is_periodic and not first.is_forced and slots.pause_ends_us > slots.now_us:
            return TooEarly(first, slots.pause_ends_us - slots.now_us)
        return Start(first)

    def clear(self) -> list[Request]:
        """Empty the queue, and return the requests that were in it."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def drop_periodic(self) -> None:
        """Drop the timer's requests, because the job stops."""
        self._waiting = [r for r in self._waiting if not r.is_periodic]

    def keep_one_periodic(self) -> None:
        """Drop all but the first of the timer's requests, because the settings changed (PROTOCOL.md, CO-2)."""
        periodic = [r for r in self._waiting if r.is_periodic]
        for request in periodic[1:]:
            self._waiting.remove(request)


_Asked = TypeVar("_Asked", Savepoint, UserCheckpoint)


def keep(kept: dict[int, _Asked], asked: _Asked) -> None:
    """Store a request by its number. If there are too many, drop the oldest ones that have ended."""
    kept[asked.number] = asked
    while len(kept) > REQUESTS_KEPT:
        # A full queue and one request of each kind in progress may exceed the limit. Open requests are kept.
        over = next((n for n, each in kept.items() if each.ended_at_us is not None), None)
        if over is None:
            break
        del kept[over]
