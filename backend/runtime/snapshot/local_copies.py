"""Copies of keyed state that workers keep beside what the store has, for a restart to read without a transfer (RC-10).

As at Flink only keyed state has one: what is dealt out anew to subtasks must come from the store. Invariant: a copy is
taken only for the checkpoint that is restored and for the key groups that it holds, so that the state is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backend.runtime.measure.measures import SubtaskSnapshot, TaskKey
from backend.runtime.operators.state import OperatorSnapshot


class LocalCopies:
    """The copies of all subtasks of one job, which outlive its attempts."""

    def __init__(self) -> None:
        self._copies: dict[TaskKey, dict[int, tuple[Mapping[int, bytes], ...]]] = {}

    def keep(self, task: TaskKey, checkpoint_id: int, operators: tuple[OperatorSnapshot, ...]) -> None:
        """A subtask acknowledges: its state is copied."""
        self._copies.setdefault(task, {})[checkpoint_id] = tuple(operator.keyed for operator in operators)

    def confirm(self, task: TaskKey, checkpoint_id: int) -> None:
        """The checkpoint is complete: no older one is restored any more."""
        copies = self._copies.get(task, {})
        for older in [k for k in copies if k < checkpoint_id]:
            del copies[older]

    def drop(self, task: TaskKey, checkpoint_id: int) -> None:
        """The checkpoint was given up."""
        self._copies.get(task, {}).pop(checkpoint_id, None)

    def clear(self) -> None:
        """Subtasks own other key groups from now on."""
        self._copies.clear()

    def restored(self, task: TaskKey, checkpoint_id: int, read: SubtaskSnapshot) -> tuple[SubtaskSnapshot, bool]:
        """(what the subtask begins with, whether its keyed state is the copy's), given what the store has."""
        copies = self._copies.get(task, {}).get(checkpoint_id)
        if copies is None or [set(copy) for copy in copies] != [set(operator.keyed) for operator in read.operators]:
            return read, False
        pairs = zip(read.operators, copies, strict=True)
        return replace(read, operators=tuple(replace(operator, keyed=copy) for operator, copy in pairs)), True
