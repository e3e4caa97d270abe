"""The base of the API's fakes that answer later: a queue without a worker, in which each reading advances the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, Protocol, Self, TypeVar

from backend.contracts.simulations import SimulationState


class Queued(Protocol):
    """An answer of the API with a state, such as a backtest."""

    @property
    def state(self) -> SimulationState: ...

    def model_copy(self, *, update: dict[str, Any]) -> Self: ...


OutT = TypeVar("OutT", bound=Queued)


class MadeUpQueue(ABC, Generic[OutT]):
    """Fake answers by their id. Each reading advances an unfinished one by one step, unless ``is_held``."""

    what: str
    """The word for one answer, in errors."""

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self.known: dict[str, OutT] = {}
        self.is_held = False

    def set(self, name: str, **changes: Any) -> None:
        """Change an answer."""
        self.known[name] = self.of(name).model_copy(update=changes)

    def of(self, name: str) -> OutT:
        """Return an answer; raise LookupError if there is none with this id."""
        if name not in self.known:
            raise LookupError(f"{self.what} {name!r}")
        return self.known[name]

    def read(self, name: str) -> OutT:
        """Return an answer, and advance it for the next reading."""
        found = self.of(name)
        if self.is_held or found.state.is_terminal:
            return found
        if found.state is SimulationState.QUEUED:
            started = {"started_at": self._now(), "queue_position": None}
            self.set(name, state=SimulationState.RUNNING, progress_ratio=0.4, **started)
        else:
            self.complete(name)
        return found

    def cancel(self, name: str) -> None:
        """Cancel an answer."""
        self.set(name, state=SimulationState.CANCELLED, queue_position=None)

    @abstractmethod
    def complete(self, name: str) -> None:
        """Give an answer its result."""
