"""Keeps what was computed from an immutable value, for code that analyses the same values again and again.

A backtest judges a job at the end of each checkpoint, and each checkpoint is evidence at many of these moments. What
follows from the checkpoint alone is then computed once. Outside the block of ``kept_values`` nothing is kept.

The values are found by the identity of their owner. Only those of the newest owners are kept, so that the memory does
not grow with the number of checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

T = TypeVar("T")

_OWNERS_MAX: Final = 256

# For the ids of some owners: the owners themselves, so that their ids stay their own, and the values.
_kept: ContextVar[dict[tuple[int, ...], tuple[tuple[object, ...], dict[Hashable, Any]]] | None] = ContextVar(
    "_kept", default=None
)


@contextmanager
def kept_values() -> Iterator[None]:
    """Keep the values of ``kept`` while the block runs. Nobody may change them."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def kept(owners: tuple[object, ...], key: Hashable, compute: Callable[[], T]) -> T:
    """Return the value that is kept for these owners and ``key``, or compute it.

    It must follow from both: from the owners, which nobody changes, and from ``key``. The first part of ``key`` names
    what is computed.
    """
    everything = _kept.get()
    if everything is None:
        return compute()
    place = tuple(map(id, owners))
    entry = everything.get(place)
    if entry is None:
        if len(everything) >= _OWNERS_MAX:
            del everything[next(iter(everything))]
        entry = everything[place] = owners, {}
    values = entry[1]
    if key not in values:
        values[key] = compute()
    value: T = values[key]
    return value
