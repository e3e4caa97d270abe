"""Checks the files of incremental checkpoints during a run (IN-3, IN-19).

At each snapshot, the whole state is copied. When the checkpoint completes, the checkpoint is read back from its bytes,
and must contain the same bytes of state.
"""

from __future__ import annotations

from collections.abc import Iterator

from backend.domain.errors import CorruptCheckpointError, ProtocolViolationError
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import TaskKey
from backend.runtime.operators.backends.base import Chain
from backend.runtime.snapshot.completed import Completed
from backend.runtime.snapshot.metadata import read_checkpoint
from backend.runtime.task.task import Task


class SharedFilesOracle:
    """Watches one engine. The methods that check yield a pair (rule, problem) for each violation."""

    def __init__(self, engine: JobEngine) -> None:
        self._engine = engine
        self._whole: dict[tuple[int, TaskKey], dict[int, bytes]] = {}
        self.shared_count = 0
        """Number of checkpoints so far that used files of earlier ones."""

    def on_snapshot(self, checkpoint_id: int, task: Task) -> None:
        """Copy the whole state of a subtask that takes a snapshot now."""
        backend = task.increments.backend
        if backend is not None:
            self._whole[checkpoint_id, task.key] = backend.states.dump()

    def forget(self, checkpoint_id: int) -> None:
        """Drop the copies of a checkpoint."""
        for key in [key for key in self._whole if key[0] == checkpoint_id]:
            del self._whole[key]

    def of_completed(self, completed: Completed) -> Iterator[tuple[str, str]]:
        """Compare a completed checkpoint with the copies."""
        k, graph = completed.record.id, completed.record.graph
        whole = {key: data for (of, key), data in self._whole.items() if of == k}
        self.forget(k)
        if not whole:
            return
        try:
            read = read_checkpoint(completed.stored(graph))
        except CorruptCheckpointError as error:
            yield "IN-19", f"checkpoint {k}: {error}"
            return
        self.shared_count += completed.record.is_incremental
        for (v, subtask), data in whole.items():
            operator = read.vertices[graph.vertices[v].id].subtasks[subtask].operators[0]
            if isinstance(completed.snapshots[v, subtask].operators[0].keyed, Chain) and operator.keyed != data:
                yield "IN-3", f"checkpoint {k} of {graph.vertices[v].id}/{subtask} restores another state"

    def of_retained(self) -> Iterator[tuple[str, str]]:
        """Check that each file of a retained checkpoint exists."""
        files = self._engine.env.files
        for completed in self._engine.coordinator.completed:
            for path in completed.shared_files:
                if path not in files.paths:
                    yield "IN-19", f"checkpoint {completed.record.id} is retained, and its file {path} is deleted"

    def at_the_end(self) -> Iterator[tuple[str, str]]:
        """Check that the job left only files that are needed, and none once its checkpoints are deleted."""
        engine = self._engine
        files, retained = engine.env.files, engine.coordinator.completed
        lowest = retained[0].record.id if retained else 0
        needed = {path for completed in retained for path in completed.shared_files}
        for task in engine.tasks:
            needed |= {piece.handle.path for piece in task.increments.owned if piece.handle is not None}
        # As in Flink, the files that a failed checkpoint used last stay until all older ones are subsumed.
        needed |= {path for path in files.registry.paths if files.registry.last_used_by(path) > lowest}
        if files.paths - needed:
            yield "IN-19", f"files that nothing needs: {sorted(files.paths - needed)}"
        try:
            for task in engine.tasks:
                task.increments.close()
            # Act as a user who deletes the retained checkpoints. After that, no checkpoint uses a file any more.
            registry = files.registry
            registry.unregister_unused(1 + max(map(registry.last_used_by, registry.paths), default=0))
        except ProtocolViolationError as error:
            yield "IN-19", str(error)
        if files.paths:
            yield "IN-19", f"files that no checkpoint uses: {sorted(files.paths)}"
