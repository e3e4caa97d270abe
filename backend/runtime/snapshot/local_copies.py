"""Copies of keyed state that workers keep in addition to the store, so that a restart needs no transfer (RC-10).

As in Flink, only keyed state has copies: operator state is redistributed on restore, so it must come from the store.
Invariant: a copy is used only for its own checkpoint and the same key groups, so the restored state is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backend.runtime.measure.measures import SubtaskSnapshot, TaskKey
from backend.runtime.operators.state import OperatorSnapshot


class LocalCopies:
    """The copies of all subtasks of one job. They survive its attempts."""

    def __init__(self) -> None:
        self._copies: dict[TaskKey, dict[int, tuple[Mapping[int, bytes], ...]]] = {}

    def keep(self, task: TaskKey, checkpoint_id: int, operators: tuple[OperatorSnapshot, ...]) -> None:
        """Copy the state that a subtask acknowledges."""
        self._copies.setdefault(task, {})[checkpoint_id] = tuple(operator.keyed for operator in operators)

    def confirm(self, task: TaskKey, checkpoint_id: int) -> None:
        """Drop older copies, because the checkpoint is complete and older ones are no longer restored."""
        copies = self._copies.get(task, {})
        for older in [k for k in copies if k < checkpoint_id]:
            del copies[older]

    def drop(self, task: TaskKey, checkpoint_id: int) -> None:
        """Drop the copy of a checkpoint that was aborted."""
        self._copies.get(task, {}).pop(checkpoint_id, None)

    def clear(self) -> None:
        """Drop all copies, because a rescale changes the key groups of subtasks."""
        self._copies.clear()

    def restored(self, task: TaskKey, checkpoint_id: int, read: SubtaskSnapshot) -> tuple[SubtaskSnapshot, bool]:
        """Return the snapshot to restore, and whether its keyed state is the local copy. ``read`` is the stored one."""
        copies = self._copies.get(task, {}).get(checkpoint_id)
        if copies is None or [set(copy) for copy in copies] != [set(operator.keyed) for operator in read.operators]:
            return read, False
        pairs = zip(read.operators, copies, strict=True)
        return replace(read, operators=tuple(replace(operator, keyed=copy) for operator, copy in pairs)), True
