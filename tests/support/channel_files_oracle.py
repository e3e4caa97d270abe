"""Checks the files of channel state during a run (INV-7, SP-4, FM-3).

A file that a retained checkpoint uses exists and is readable. At the end, no file is left that nothing needs.
"""

from __future__ import annotations

from collections.abc import Iterator

from backend.domain.errors import CorruptCheckpointError, ProtocolViolationError
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.network.segments import Segment
from backend.runtime.snapshot.completed import Completed


class ChannelFilesOracle:
    """Watches one engine. Each method yields a pair (rule, problem) for each violation."""

    def __init__(self, engine: JobEngine) -> None:
        self._engine = engine

    def of_retained(self) -> Iterator[tuple[str, str]]:
        """Read every segment of the retained checkpoints."""
        for completed in self._engine.coordinator.completed:
            for segment in segments_of(completed):
                try:
                    bytes(segment)
                except CorruptCheckpointError as error:
                    yield "INV-7", f"checkpoint {completed.record.id} is retained: {error}"

    def at_the_end(self) -> Iterator[tuple[str, str]]:
        """Delete all checkpoints of the ended job, and check that no file remains."""
        engine = self._engine
        files, coordinator = engine.env.channel_files, engine.coordinator
        used = {segment.path for completed in coordinator.completed for segment in segments_of(completed)}
        try:
            for task in engine.tasks:
                task.checkpointing.channel_state.close()
            kept = coordinator.completed
            files.retain(kept[0].record.id if kept else 0, [completed.snapshots for completed in kept])
            if used - files.store.paths:
                yield "INV-7", f"files of retained checkpoints are deleted: {sorted(used - files.store.paths)}"
            # Act as a user who deletes the retained checkpoints. After that, no checkpoint uses a file any more.
            files.retain(1 + max((record.id for record in coordinator.history), default=0), [])
            files.close()
        except ProtocolViolationError as error:
            yield "INV-7", str(error)
        if files.store.paths:
            yield "INV-7", f"files that no checkpoint uses: {sorted(files.store.paths)}"


def segments_of(completed: Completed) -> Iterator[Segment]:
    """Return the segments of a completed checkpoint's channel state."""
    for snapshot in completed.snapshots.values():
        for side in (snapshot.channels.inputs, snapshot.channels.outputs):
            yield from (chunk for chunks in side.values() for chunk in chunks if isinstance(chunk, Segment))
