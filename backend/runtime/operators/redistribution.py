"""Who gets which operator state at a restore (ST-2, RS-2), and which key groups (PT-2, PT-4). Pure.

Invariant: an entry in SPLIT mode goes to exactly one subtask; in UNION mode to all; BROADCAST copies are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from backend.domain.errors import PlanError
from backend.runtime.core.hashing import groups_of
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode

_T = TypeVar("_T")


def redistribute(mode: StateMode, entries: Sequence[Sequence[_T]], parallelism: int) -> list[tuple[_T, ...]]:
    """The entries of each new subtask, given those of each old one, by index (ST-2).

    SPLIT: with the parallelism unchanged everyone keeps its own; otherwise all entries, in order, are dealt out in even
    shares. UNION: everyone gets all, in order. BROADCAST: everyone gets the copy of one old subtask.
    """
    if mode is StateMode.UNION:
        everything = tuple(entry for own in entries for entry in own)
        return [everything] * parallelism
    if mode is StateMode.BROADCAST:
        return [tuple(entries[index % len(entries)]) if entries else () for index in range(parallelism)]
    if len(entries) == parallelism:
        return [tuple(own) for own in entries]
    flat = [entry for own in entries for entry in own]
    share, more = divmod(len(flat), parallelism)
    starts = [index * share + min(index, more) for index in range(parallelism + 1)]
    return [tuple(flat[starts[index] : starts[index + 1]]) for index in range(parallelism)]


def restored_operator(
    old: Sequence[OperatorSnapshot], subtask: int, *, parallelism: int, max_parallelism: int
) -> OperatorSnapshot:
    """What one subtask of an operator restores from, given the snapshots of all old subtasks, by index."""
    own = groups_of(subtask, parallelism, max_parallelism)
    keyed = {group: data for snapshot in old for group, data in snapshot.keyed.items() if group in own}
    modes = {state.name: state.mode for snapshot in old for state in snapshot.states}
    states = tuple(
        OperatorState(name, mode, redistribute(mode, [s.entries(name) for s in old], parallelism)[subtask])
        for name, mode in modes.items()
    )
    return OperatorSnapshot(keyed, states)


def restored_max_parallelism(recorded: int, explicit: int, *, vertex: str) -> int:
    """M of a restored vertex: the recorded one, which an explicit one must equal (PT-4).

    Raises:
        PlanError: it does not.

    """
    if explicit and explicit != recorded:
        raise PlanError(
            f"max_parallelism {explicit}, and the checkpoint has {recorded}",
            rule="PT-4",
            vertex=vertex,
            fix=f"set max_parallelism = {recorded}, or leave it out",
        )
    return recorded
