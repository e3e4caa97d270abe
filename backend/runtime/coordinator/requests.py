"""The queue of requests for checkpoints and savepoints. It chooses the request that starts next (runtime.md 2.2).

The order is Flink's (CO-2): savepoints before checkpoints, then forced requests before others, then users' requests
before periodic ones, then older requests before newer ones. The timer adds a request at each tick, even while no slot
is free. If no minimum pause is set, a checkpoint that lasts several intervals is therefore followed by several others,
one right after the other, as in Flink.
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
    """One request for a checkpoint or savepoint. Requests compare by their position in the queue."""

    _turn: tuple[bool, bool, bool, int] = field(init=False)
    is_forced: bool = field(compare=False)
    number: int = field(compare=False)
    savepoint: Savepoint | None = field(default=None, compare=False)
    is_periodic: bool = field(default=False, compare=False)
    """Whether the request comes from the timer."""
    checkpoint: UserCheckpoint | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._turn = (self.savepoint is None, not self.is_forced, self.is_periodic, self.number)


@dataclass(frozen=True, slots=True)
class Start:
    """The result of ``RequestQueue.choose`` if a request has been taken from the queue and may start."""

    request: Request


@dataclass(frozen=True, slots=True)
class TooEarly:
    """The result of ``RequestQueue.choose`` if it dropped a periodic request during the minimum pause (CO-4).

    The timer makes a new request after ``delay_us``.
    """

    request: Request
    delay_us: int


@dataclass(frozen=True, slots=True)
class Slots:
    """The facts with which ``RequestQueue.choose`` decides whether the first request may start."""

    now_us: int
    pending: int
    max_concurrent: int
    pause_ends_us: int
    """When the pause after the last completion ends, or an instant in the past if no checkpoint has completed yet."""


class RequestQueue:
    """The waiting requests, in order. It chooses the next one as Flink's ``CheckpointRequestDecider`` does."""

    def __init__(self, limit: int = QUEUE_MAX) -> None:
        self._limit = limit
        self._waiting: list[Request] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Request | None:
        """The next request, or None if the queue is empty."""
        return self._waiting[0] if self._waiting else None

    @property
    def is_closed(self) -> bool:
        """Whether the queue is full of users' requests, so that new requests are refused."""
        return len(self._waiting) >= self._limit and not self._waiting[-1].is_periodic

    def add(self, request: Request) -> Request | None:
        """Add a request. If the queue is full, return the request that it drops, which may be the new one (CO-2)."""
        if self.is_closed:
            return request
        insort(self._waiting, request)
        return self._waiting.pop() if len(self._waiting) > self._limit else None

    def choose(self, slots: Slots) -> Start | TooEarly | None:
        """Remove the first request, and return it as Start or TooEarly (CO-3, CO-4).

        Return None if the queue is empty, or if the first request has to wait.
        """
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

    def keep_one_periodic(self) -> None:
        """Drop all of the timer's requests except the first. Called when the settings change (PROTOCOL.md, CO-2)."""
        periodic = [r for r in self._waiting if r.is_periodic]
        for request in periodic[1:]:
            self._waiting.remove(request)


_Asked = TypeVar("_Asked", Savepoint, UserCheckpoint)


def keep(kept: dict[int, _Asked], asked: _Asked) -> None:
    """Store a request under its number. If too many requests are stored, drop the oldest of those that have ended."""
    kept[asked.number] = asked
    while len(kept) > REQUESTS_KEPT:
        # Requests that have not ended are never dropped, so more of them than the limit may be stored: a full queue,
        # and one request of each kind in progress.
        over = next((n for n, each in kept.items() if each.ended_at_us is not None), None)
        if over is None:
            break
        del kept[over]
