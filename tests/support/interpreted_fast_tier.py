"""Runs the fast tier's code in the interpreter, for tests that must not wait until numba has compiled it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numba

from backend.advisor.twin.fast.tables import Sim

_LOOP = "backend.advisor.twin.fast.loop"
_COMPILED = (
    "backend.advisor.twin.fast.events",
    "backend.advisor.twin.fast.channels",
    "backend.advisor.twin.fast.barriers",
    _LOOP,
)


@contextmanager
def interpreted_fast_tier() -> Iterator[None]:
    """Replace the fast tier's compiled functions by the functions of its source, some hundred times as slow.

    ``backend/advisor/twin/fast/fast.py`` imports them when it simulates, so it gets those that are in place then.
    """
    before = _taken()
    usual, numba.config.DISABLE_JIT = numba.config.DISABLE_JIT, 1
    try:
        loop: Any = import_module(_LOOP)
        loop.run = _on_objects(loop.run)
        yield
    finally:
        numba.config.DISABLE_JIT = usual
        _taken()
        sys.modules.update(before)


def _taken() -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in _COMPILED if name in sys.modules}


def _on_objects(run: Callable[..., None]) -> Callable[..., None]:
    """Let ``run`` work on Python objects: the interpreter takes ten times as long for a field of a numpy record."""

    def run_on_objects(sim: Sim, *limits: float) -> None:
        parts = [_objects_of(part) for part in sim]
        run(Sim(*parts), *limits)
        for part, objects in zip(sim, parts, strict=True):
            if isinstance(objects, _Rows):
                for at, row in objects.items():
                    part[at] = tuple(vars(row).values())
            elif isinstance(objects, SimpleNamespace):
                for name, value in vars(objects).items():
                    setattr(part, name, value)

    return run_on_objects


def _objects_of(part: Any) -> Any:
    if part.dtype.names is None:
        return part
    return _Rows(part) if part.ndim else _object_of(part)


def _object_of(row: Any) -> SimpleNamespace:
    return SimpleNamespace(**dict(zip(row.dtype.names, row.item(), strict=True)))


class _Rows(dict[int, SimpleNamespace]):
    """The rows of a table that have been read."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __missing__(self, at: int) -> SimpleNamespace:
        row = _object_of(self._table[at])
        super().__setitem__(at, row)
        return row

    def __setitem__(self, at: int, row: SimpleNamespace) -> None:
        vars(self[at]).update(vars(row))

    def __len__(self) -> int:
        return len(self._table)
