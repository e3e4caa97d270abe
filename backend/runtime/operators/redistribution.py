"""Distributes operator state (ST-2, RS-2) and key groups (PT-2, PT-4) over the subtasks of a restored job.

Invariant: a restore assigns each entry in SPLIT mode to exactly one subtask, and each entry in UNION mode to all
subtasks. In BROADCAST mode, all old subtasks stored equal copies. Subtasks that had finished stored nothing, so the
entries of the others are distributed as if there had been fewer subtasks (FN-13, FN-14, FN-17).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from backend.domain.errors import PlanError
from backend.runtime.core.hashing import groups_of
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode

_T = TypeVar("_T")


def redistribute(mode: StateMode, entries: Sequence[Sequence[_T]], parallelism: int) -> list[tuple[_T, ...]]:
    """Return the entries that each new subtask restores, by index (ST-2). ``entries`` has those of each old subtask.

    SPLIT: if the parallelism is unchanged, each subtask keeps its entries; otherwise the entries are distributed
    evenly, in order. UNION: each subtask restores all entries, in order. BROADCAST: each new subtask restores the copy
    of one old subtask.
    """
    if mode is StateMode.UNION:
        everything = tuple(entry for own in entries for entry in own)
        return [everything] * parallelism
    if mode is StateMode.BROADCAST:
        # A subtask that had finished stored no copy (FN-14).
        copies = [own for own in entries if own]
        return [tuple(copies[index % len(copies)]) if copies else () for index in range(parallelism)]
    if len(entries) == parallelism:
        return [tuple(own) for own in entries]
    flat = [entry for own in entries for entry in own]
    share, more = divmod(len(flat), parallelism)
    starts = [index * share + min(index, more) for index in range(parallelism + 1)]
    return [tuple(flat[starts[index] : starts[index + 1]]) for index in range(parallelism)]


def restored_operator(
    old: Sequence[OperatorSnapshot], subtask: int, *, parallelism: int, max_parallelism: int
) -> OperatorSnapshot:
    """Return the state that one subtask of an operator restores.

    ``old`` has the snapshots of all old subtasks, by index.
    """
    own = groups_of(subtask, parallelism, max_parallelism)
    keyed = {group: data for snapshot in old for group, data in snapshot.keyed.items() if group in own}
    modes = {state.name: state.mode for snapshot in old for state in snapshot.states}
    states = tuple(
        OperatorState(name, mode, redistribute(mode, [s.entries(name) for s in old], parallelism)[subtask])
        for name, mode in modes.items()
    )
    # With the same parallelism, the subtask owns the same key groups as before, and continues with the same files.
    increment = old[subtask].increment if len(old) == parallelism else None
    return OperatorSnapshot(keyed, states, increment)


def restored_max_parallelism(recorded: int, explicit: int, *, vertex: str) -> int:
    """Return the maximum parallelism of a restored vertex, which is the one that the checkpoint recorded (PT-4).

    Raises:
        PlanError: the job sets an ``explicit`` maximum, and it differs from ``recorded``.
    """
    if explicit and explicit != recorded:
        raise PlanError(
            f"max_parallelism {explicit}, and the checkpoint has {recorded}",
            rule="PT-4",
            vertex=vertex,
            fix=f"set max_parallelism = {recorded}, or leave it out",
        )
    return recorded
