"""Copies of keyed state that workers keep in addition to the store, so that a restart needs no transfer (RC-10).

As in Flink, only keyed state is copied. Operator state is redistributed by a restore, so it must come from the store.
Invariant: a copy is used only for its own checkpoint and only if its key groups match those of the stored snapshot, so
the restored state is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backend.runtime.measure.measures import SubtaskSnapshot, TaskKey
from backend.runtime.operators.state import OperatorSnapshot


class LocalCopies:
    """The local copies of all subtasks of one job. They survive a restart of the job."""

    def __init__(self) -> None:
        self._copies: dict[TaskKey, dict[int, tuple[Mapping[int, bytes], ...]]] = {}

    def keep(self, task: TaskKey, checkpoint_id: int, operators: tuple[OperatorSnapshot, ...]) -> None:
        """Keep a copy of the keyed state that a subtask acknowledges."""
        self._copies.setdefault(task, {})[checkpoint_id] = tuple(operator.keyed for operator in operators)

    def confirm(self, task: TaskKey, checkpoint_id: int) -> None:
        """Drop the copies of older checkpoints, which are no longer restored because this one is complete."""
        copies = self._copies.get(task, {})
        for older in [k for k in copies if k < checkpoint_id]:
            del copies[older]

    def drop(self, task: TaskKey, checkpoint_id: int) -> None:
        """Drop the copy of one checkpoint, because the checkpoint was aborted."""
        self._copies.get(task, {}).pop(checkpoint_id, None)

    def clear(self) -> None:
        """Drop all copies, because rescaling changes the key groups of the subtasks."""
        self._copies.clear()

    def restored(self, task: TaskKey, checkpoint_id: int, read: SubtaskSnapshot) -> tuple[SubtaskSnapshot, bool]:
        """Return the snapshot to restore, and whether its keyed state is the local copy.

        ``read`` is the stored snapshot. It is returned unchanged if no copy matches it.
        """
        copies = self._copies.get(task, {}).get(checkpoint_id)
        if copies is None or [set(copy) for copy in copies] != [set(operator.keyed) for operator in read.operators]:
            return read, False
        pairs = zip(read.operators, copies, strict=True)
        return replace(read, operators=tuple(replace(operator, keyed=copy) for operator, copy in pairs)), True
