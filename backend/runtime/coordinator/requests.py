"""The queue of requests for checkpoints and savepoints, and the choice of the next one (2.2).

The order is Flink's (CO-2): savepoints before checkpoints, forced requests before others, a user's before periodic
ones, then by time. While a checkpoint takes the slot, each tick of the timer adds a request. A checkpoint that lasts
several intervals is therefore followed by several others without a pause, as in Flink.
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
    """One request; requests compare by their turn."""

    _turn: tuple[bool, bool, bool, int] = field(init=False)
    is_forced: bool = field(compare=False)
    number: int = field(compare=False)
    savepoint: Savepoint | None = field(default=None, compare=False)
    is_periodic: bool = field(default=False, compare=False)
    """Whether the timer asked for it."""
    checkpoint: UserCheckpoint | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._turn = (self.savepoint is None, not self.is_forced, self.is_periodic, self.number)


@dataclass(frozen=True, slots=True)
class Start:
    """It is this one's turn, and it may start."""

    request: Request


@dataclass(frozen=True, slots=True)
class TooEarly:
    """A periodic request is given up, for the pause is not over (CO-4); the timer asks again after ``delay_us``."""

    request: Request
    delay_us: int


@dataclass(frozen=True, slots=True)
class Slots:
    """What the choice looks at besides the queue."""

    now_us: int
    pending: int
    max_concurrent: int
    pause_ends_us: int
    """The last completion and the pause behind it; the distant past where nothing was completed."""


class RequestQueue:
    """Requests by turn, and the choice of the one that starts, as Flink's ``CheckpointRequestDecider`` makes it."""

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
    def is_closed(self) -> bool:
        """Whether it is full of what users asked for: whatever comes is refused, and nothing is chosen over it."""
        return len(self._waiting) >= self._limit and not self._waiting[-1].is_periodic

    def add(self, request: Request) -> Request | None:
        """Queue a request; returns the one that found no room, which may be the new one (CO-2)."""
        if self.is_closed:
            return request
        insort(self._waiting, request)
        return self._waiting.pop() if len(self._waiting) > self._limit else None

    def choose(self, slots: Slots) -> Start | TooEarly | None:
        """CO-3, CO-4: what the first in the queue may do now; whatever is chosen has left it."""
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
        """Give all of them up."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def drop_periodic(self) -> None:
        """The job stops: the timer asks for nothing any more."""
        self._waiting = [r for r in self._waiting if not r.is_periodic]

    def keep_one_periodic(self) -> None:
        """Forget the ticks that piled up: other settings hold now, as for a job that was started anew with them."""
        periodic = [r for r in self._waiting if r.is_periodic]
        for request in periodic[1:]:
            self._waiting.remove(request)


_Asked = TypeVar("_Asked", Savepoint, UserCheckpoint)


def keep(kept: dict[int, _Asked], asked: _Asked) -> None:
    """Remember one more request by its number, and let go of the oldest that are over where there are too many."""
    kept[asked.number] = asked
    while len(kept) > REQUESTS_KEPT:
        # As many as the queue takes may be under way, and one more of each kind.
        over = next((n for n, each in kept.items() if each.ended_at_us is not None), None)
        if over is None:
            break
        del kept[over]
