"""The real input handlers as parts of a state of the model (T-8): copy and compare them, and supply in-flight data."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from backend.runtime.job.config import OnCap
from backend.runtime.protocols.aligned import Aligned
from backend.runtime.protocols.aligned_timeout import AlignedTimeout
from backend.runtime.protocols.at_least_once import AtLeastOnce
from backend.runtime.protocols.capped import Capped
from backend.runtime.protocols.gatekeeper import Gatekeeper
from backend.runtime.protocols.mode import Cap, InFlight
from backend.runtime.protocols.unaligned import Unaligned


class ModelError(AssertionError):
    """A forbidden state; ``path`` leads to it."""

    def __init__(self, problem: str, path: tuple[str, ...]) -> None:
        self.path = path
        super().__init__(f"{problem}; by {' '.join(path)}")


class Meter:
    """In-flight data of the current state, for capped handlers.

    All states share one meter, which is set before each call.
    """

    def __init__(self) -> None:
        self.now = InFlight(0, 0)


_OF_ONE_CHECKPOINT = Unaligned | Aligned | AlignedTimeout | Capped
# Functions that handlers call; all states share them.
_ASKED = ("_make", "_in_flight", "_decided")


def copied(value: Any) -> Any:
    """Copy a handler, including its sets, counts and nested handler."""
    new = copy(value)
    for name, held in vars(value).items():
        if isinstance(held, set | dict):
            setattr(new, name, held.copy())
        elif isinstance(held, _OF_ONE_CHECKPOINT):
            setattr(new, name, copied(held))
        elif isinstance(held, list):
            setattr(new, name, [replace(count, arrived=set(count.arrived)) for count in held])
    return new


def key_of(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return frozenset(value)
    if isinstance(value, dict):
        return tuple(value)
    if isinstance(value, list):
        return tuple((c.id, c.target, frozenset(c.arrived), c.is_given_up, c.is_aborted) for c in value)
    if isinstance(value, Gatekeeper | AtLeastOnce | _OF_ONE_CHECKPOINT):
        return tuple(key_of(held) for name, held in sorted(vars(value).items()) if name not in _ASKED)
    return value


def asked_of(meter: Meter, cap: int | None, on_cap: str) -> Cap:
    """The functions through which a capped handler asks its task."""
    return Cap(lambda: cap or 0, lambda: meter.now, lambda: OnCap(on_cap), lambda _: None)
