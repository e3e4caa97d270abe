"""Runs the fast tier's code in the interpreter, for tests that must not wait until numba has compiled it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import numba

_COMPILED = (
    "backend.advisor.twin.fast.events",
    "backend.advisor.twin.fast.channels",
    "backend.advisor.twin.fast.barriers",
    "backend.advisor.twin.fast.loop",
)


@contextmanager
def interpreted_fast_tier() -> Iterator[None]:
    """Replace the fast tier's compiled functions by the functions of its source, some hundred times as slow.

    ``backend/advisor/twin/fast/fast.py`` imports them when it simulates, so it gets those that are in place then.
    """
    before = _taken()
    usual, numba.config.DISABLE_JIT = numba.config.DISABLE_JIT, 1
    try:
        yield
    finally:
        numba.config.DISABLE_JIT = usual
        _taken()
        sys.modules.update(before)


def _taken() -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in _COMPILED if name in sys.modules}
