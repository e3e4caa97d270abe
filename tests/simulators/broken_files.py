"""Broken variants of spilling and of merged files, each with the job in which an invariant catches it (T-9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from backend.runtime.core.elements import Barrier
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.measures import SubtaskSnapshot, TaskKey
from backend.runtime.network.segments import Segment
from backend.runtime.snapshot.merging import FileMerging, LogicalFile
from backend.runtime.snapshot.spill_logs import SpillLogs
from backend.runtime.task import spilling
from backend.runtime.task.channel_writing import Positions, Segments
from backend.runtime.task.spilling import SpillLogWriter
from tests.simulators.broken_protocols import Variant


def discard_a_file_that_a_newer_checkpoint_uses(patch: pytest.MonkeyPatch) -> None:
    """Do not record that a newer checkpoint uses what an older one wrote (FM-3)."""

    def forgetful(self: FileMerging, logical: LogicalFile, checkpoint_id: int) -> bool:
        return not logical.is_discarded

    patch.setattr(FileMerging, "reuse", forgetful)


def begin_segments_one_byte_early(patch: pytest.MonkeyPatch) -> None:
    """Refer to a part of a segment at a wrong offset (FM-5)."""
    part = Segment.part

    def early(self: Segment, at: int, end: int) -> Segment:
        return part(self, at - 1, end - 1) if at else part(self, at, end)

    patch.setattr(Segment, "part", early)


def keep_the_files_of_aborted_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """Drop nothing when checkpoints fail or are subsumed (CC-5)."""
    patch.setattr(FileMerging, "all_aborted", lambda self, checkpoint_id: None)
    patch.setattr(FileMerging, "all_subsumed", lambda self, checkpoint_id: None)


def refer_to_data_of_another_offset(patch: pytest.MonkeyPatch) -> None:
    """Compute the offsets of the input data as if the receiver had processed nothing (FM-5)."""
    snapshot = Segments.snapshot

    def shifted(self: Segments, barrier: Barrier) -> None:
        snapshot(self, barrier)
        found = self._positions[barrier.checkpoint_id]
        self._positions[barrier.checkpoint_id] = Positions(found.sent, dict.fromkeys(found.consumed, 0))

    patch.setattr(Segments, "snapshot", shifted)


def lose_spilled_data_on_abort(patch: pytest.MonkeyPatch) -> None:
    """Drop the data that is not written yet when the checkpoints that wait for a failed write are aborted (SP-2)."""
    on_not_written = SpillLogWriter._on_not_written

    def lossy(self: SpillLogWriter, nothing: object) -> None:
        self._durable += len(self._pending)
        self._pending.clear()
        on_not_written(self, nothing)

    patch.setattr(SpillLogWriter, "_on_not_written", lossy)


def do_not_wait_for_the_log(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge a checkpoint before its log is written up to the barrier (SP-2)."""
    patch.setattr(SpillLogWriter, "_mark", lambda self, sent: 0)


def restore_what_was_consumed(patch: pytest.MonkeyPatch) -> None:
    """Restore data that the receiver had processed before its snapshot (SP-3)."""
    positions_of = spilling.positions_of

    def behind(task: Any) -> Positions:
        found = positions_of(task)
        return Positions(found.sent, {key: max(0, at - 700) for key, at in found.consumed.items()})

    patch.setattr(spilling, "positions_of", behind)


def truncate_below_the_newest_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Delete log files that only an older retained checkpoint uses (SP-4)."""
    retain = SpillLogs.retain

    def hasty(self: SpillLogs, retained: Iterable[Mapping[TaskKey, SubtaskSnapshot]]) -> None:
        retain(self, list(retained)[-1:])

    patch.setattr(SpillLogs, "retain", hasty)


_CP = "execution.checkpointing."
_CONTINUOUS: dict[str, object] = {"runtime.spilling": "continuous", f"{_CP}file-merging.max-file-size": "4 kb"}
_INCREMENTAL: dict[str, object] = {"runtime.incremental-channel-state": True, f"{_CP}interval": "40 ms"}
_ACROSS: dict[str, object] = {
    f"{_CP}file-merging.enabled": True,
    f"{_CP}file-merging.across-checkpoint-boundary": True,
    f"{_CP}file-merging.max-file-size": "4 kb",
}
_FAILED_WRITES = tuple(FaultSpec("store.write", hit=2, action=FaultAction.ERROR, times=2) for n in range(40))
_LOST = tuple(FaultSpec("rpc.ack", hit=3 + 4 * n, action=FaultAction.DROP) for n in range(4))

VARIANTS: dict[str, Variant] = {
    each.breaks.__name__: each
    for each in (
        Variant(discard_a_file_that_a_newer_checkpoint_uses, "INV-7", config=_INCREMENTAL),
        Variant(begin_segments_one_byte_early, "INV-2", config=_CONTINUOUS),
        Variant(keep_the_files_of_aborted_checkpoints, "INV-7", plan=_LOST, config=_ACROSS),
        Variant(refer_to_data_of_another_offset, "INV-2", config=_INCREMENTAL),
        Variant(lose_spilled_data_on_abort, "INV-8", plan=_FAILED_WRITES, config=_CONTINUOUS),
        Variant(do_not_wait_for_the_log, "INV-8", config=_CONTINUOUS),
        Variant(restore_what_was_consumed, "INV-2", config=_CONTINUOUS),
        Variant(truncate_below_the_newest_checkpoint, "INV-7", config=_CONTINUOUS | {f"{_CP}num-retained": 3}),
    )
}
