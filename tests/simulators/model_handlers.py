"""Copy and compare the runtime's real input handlers, which are part of each state of the model (T-8).

``Meter`` supplies the amounts of in-flight data that handlers with a cap read.
"""

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
from backend.runtime.protocols.last_barrier import LastBarrier
from backend.runtime.protocols.mode import Cap, InFlight
from backend.runtime.protocols.unaligned import Unaligned


class ModelError(AssertionError):
    """Raised if a state breaks an invariant. ``path`` lists the steps that lead to the state."""

    def __init__(self, problem: str, path: tuple[str, ...]) -> None:
        self.path = path
        super().__init__(f"{problem}; by {' '.join(path)}")


class Meter:
    """The amounts of in-flight data that handlers with a cap read.

    All states share one meter. Before each call of a handler, the model sets ``now`` to the amounts in the current
    state.
    """

    def __init__(self) -> None:
        self.now = InFlight(0, 0)


# ``Unaligned`` includes ``ChandyLamport``, which is its subclass.
_OF_ONE_CHECKPOINT = Unaligned | Aligned | AlignedTimeout | Capped | LastBarrier
# Attributes of handlers that hold functions. All states share these functions, so they are not compared.
_ASKED = ("_make", "_in_flight", "_has_front", "_decided", "_view")


def copied(value: Any) -> Any:
    """Return a copy of a handler, including its sets, its counts and the handler nested in it."""
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
    """Return a ``Cap`` with the functions through which a handler reads the cap and the in-flight data of its task."""
    return Cap(lambda: cap or 0, lambda: meter.now, lambda: OnCap(on_cap), lambda _: None, lambda: 0)
