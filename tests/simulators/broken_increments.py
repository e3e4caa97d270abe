"""Broken variants of incremental checkpoints (T-9). Each variant has one error, which an invariant must catch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.operators.backends.base import Piece
from backend.runtime.operators.backends.diff import DiffBackend
from backend.runtime.operators.backends.sst import SstBackend
from backend.runtime.operators.changes import LoggedValues
from backend.runtime.operators.state import FileHandle
from backend.runtime.snapshot.registry import SharedStateRegistry
from backend.runtime.snapshot.shared_files import SharedFiles
from backend.runtime.task.increments import Increments
from tests.simulators.broken_protocols import Variant


def share_files_of_a_checkpoint_that_is_only_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """Refer to the files of an acknowledged checkpoint by placeholders, before it is confirmed (IN-2)."""
    acknowledged = Increments.acknowledged

    def hasty(self: Increments, checkpoint_id: int, operators: Any) -> Any:
        done = acknowledged(self, checkpoint_id, operators)
        for piece in self._taken.get(checkpoint_id, ()):
            piece.is_confirmed = True
        return done

    patch.setattr(Increments, "acknowledged", hasty)


def delete_files_that_the_oldest_retained_checkpoint_uses(patch: pytest.MonkeyPatch) -> None:
    """Drop the entries that the lowest retained checkpoint used last (IN-16)."""
    unused = SharedStateRegistry.unregister_unused
    patch.setattr(SharedStateRegistry, "unregister_unused", lambda self, lowest_id: unused(self, lowest_id + 1))


def never_delete_shared_files(patch: pytest.MonkeyPatch) -> None:
    """Drop entries of the registry, but not their files (IN-19)."""
    patch.setattr(SharedFiles, "_delete", lambda self, handle: None)


def leave_the_files_of_aborted_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """Do not delete the files that a subtask wrote for a checkpoint that was aborted (CC-5)."""
    patch.setattr(Increments, "_sweep", lambda self, completed_id: None)
    patch.setattr(Increments, "owned", ())


def delete_files_that_the_registry_owns(patch: pytest.MonkeyPatch) -> None:
    """Let a subtask delete files that it has handed over (IN-18)."""
    patch.setattr(SharedFiles, "release", lambda self, handle: handle not in self or self._delete(handle))


def do_not_advance_the_last_use_of_a_file(patch: pytest.MonkeyPatch) -> None:
    """Do not advance the last use of a file that a later checkpoint names by a placeholder (IN-15)."""
    register = SharedStateRegistry.register

    def stuck(self: SharedStateRegistry, handle: FileHandle, checkpoint_id: int) -> FileHandle:
        if handle.is_placeholder and handle.key in self._entries:
            return self._entries[handle.key].handle
        return register(self, handle, checkpoint_id)

    patch.setattr(SharedStateRegistry, "register", stuck)


def compare_with_a_base_that_a_pending_checkpoint_does_not_use(patch: pytest.MonkeyPatch) -> None:
    """Use the newest confirmed base although pending checkpoints, which may still complete, use another base."""
    patch.setattr(DiffBackend, "_usable_base", lambda self: self._base)


def leave_out_a_difference(patch: pytest.MonkeyPatch) -> None:
    """Leave the newest difference out of the chain (IN-11)."""
    extended = DiffBackend.extended

    def shorter(self: DiffBackend, checkpoint_id: int, *, is_base: bool) -> Sequence[Piece]:
        pieces = extended(self, checkpoint_id, is_base=is_base)
        return pieces if len(pieces) < 3 else (*pieces[:-2], pieces[-1])

    patch.setattr(DiffBackend, "extended", shorter)


def do_not_record_assignments(patch: pytest.MonkeyPatch) -> None:
    """Record only new keys, not the values that are assigned to existing ones (IN-6)."""
    assign = LoggedValues.__setitem__

    def silent(self: LoggedValues, key: int, value: int) -> None:
        if key in self:
            dict.__setitem__(self, key, value)
        else:
            assign(self, key, value)

    patch.setattr(LoggedValues, "__setitem__", silent)


def merge_the_oldest_row_last(patch: pytest.MonkeyPatch) -> None:
    """Let the rows of older files win when files are merged (IN-14)."""
    merge = SstBackend._merge

    def reversed_merge(self: SstBackend) -> None:
        assert self._chain is not None
        self._chain.reverse()
        merge(self)

    patch.setattr(SstBackend, "_merge", reversed_merge)


def _settings(backend: str, **more: object) -> dict[str, object]:
    return {
        "runtime.state-backend": backend,
        "execution.checkpointing.incremental": True,
        "execution.checkpointing.timeout": "250 ms",
        "runtime.sst.runs-max": 2,
        "runtime.changelog.flush-interval": "10 ms",
        "runtime.finish-protocol": "none",
    } | more


_LOST = tuple(FaultSpec("rpc.ack", hit=3 + 4 * n, action=FaultAction.DROP) for n in range(4))
_CONCURRENT: dict[str, object] = {
    "execution.checkpointing.max-concurrent-checkpoints": 3,
    "execution.checkpointing.interval": "20 ms",
}
_SLOW = tuple(FaultSpec("store.write", hit=5 + 6 * n, action=FaultAction.DELAY, delay_us=60_000) for n in range(6))

# The runtime itself detects a placeholder for an unknown file, and a file that is deleted twice.
VARIANTS: dict[str, Variant] = {
    each.breaks.__name__: each
    for each in (
        Variant(
            share_files_of_a_checkpoint_that_is_only_acknowledged,
            "INV-8",
            protocol="aligned",
            plan=_LOST,
            config=_settings("sst"),
        ),
        Variant(delete_files_that_the_oldest_retained_checkpoint_uses, "IN-19", "aligned", config=_settings("sst")),
        Variant(never_delete_shared_files, "IN-19", protocol="aligned", config=_settings("diff")),
        Variant(leave_the_files_of_aborted_checkpoints, "IN-19", "aligned", _LOST, _settings("diff")),
        Variant(delete_files_that_the_registry_owns, "IN-19", protocol="aligned", config=_settings("sst")),
        Variant(do_not_advance_the_last_use_of_a_file, "IN-19", protocol="aligned", config=_settings("diff")),
        Variant(
            compare_with_a_base_that_a_pending_checkpoint_does_not_use,
            "INV-8",
            protocol="aligned",
            plan=_SLOW,
            config=_settings("diff", **_CONCURRENT),
        ),
        Variant(leave_out_a_difference, "IN-3", protocol="aligned", config=_settings("diff")),
        Variant(do_not_record_assignments, "IN-3", protocol="aligned", config=_settings("changelog")),
        Variant(merge_the_oldest_row_last, "IN-3", protocol="aligned", config=_settings("sst")),
    )
}
