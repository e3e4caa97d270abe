"""Chooses and reads the checkpoint that the next start of the job restores (CO-13, CK-3).

There are two candidates: the newest completed checkpoint, and the checkpoint that the job was started or rescaled from.
Invariants: the newer of the two is restored, because its effects are committed. Everything that is restored comes from
the store.
"""

from __future__ import annotations

from backend.runtime.coordinator.coordinator import Coordinator
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.job.faults import InducedFailure, corrupted
from backend.runtime.job.graph import FaultAction, Graph
from backend.runtime.snapshot.completed import Completed
from backend.runtime.snapshot.metadata import ReadCheckpoint, StoredCheckpoint, read_checkpoint
from backend.runtime.snapshot.restoring import Assignment, assign, without_channel_state
from backend.runtime.task.environment import Environment


class RestorePoint:
    """Chooses and reads the restore point of one job.

    ``begun_from`` is a checkpoint of another run, or the one that the job was rescaled from.
    """

    def __init__(self, env: Environment, coordinator: Coordinator, begun_from: ReadCheckpoint | None) -> None:
        self._env = env
        self._coordinator = coordinator
        self.begun_from = begun_from

    def read(self) -> ReadCheckpoint | None:
        """Read the checkpoint that the next start of the job restores (CK-3). Return None if there is none.

        Raises:
            CorruptCheckpointError: the stored checkpoint is damaged.
            InducedFailure: an induced fault makes the read fail.
        """
        newest = self._newest_completed()
        if newest is None:
            return self.begun_from
        stored = newest.stored(newest.record.graph)
        fault = self._env.faults.message("store.read")
        if fault is not None and fault.action == FaultAction.ERROR:
            raise InducedFailure("store.read", None)
        if fault is not None and fault.action == FaultAction.CORRUPT:
            draw = newest.record.id ^ self._env.seed
            stored = StoredCheckpoint(*corrupted(stored.metadata, stored.files, draw=draw))
        return read_checkpoint(stored)

    def newest(self) -> ReadCheckpoint | None:
        """Return the checkpoint that a restart would restore now. Induced faults of the read do not apply here."""
        newest = self._newest_completed()
        return self.begun_from if newest is None else read_checkpoint(newest.stored(newest.record.graph))

    def _newest_completed(self) -> Completed | None:
        """Return the newest checkpoint of this run. Return None if there is none, or if ``begun_from`` is newer."""
        newest = self._coordinator.newest
        is_older = newest is not None and self.begun_from is not None and newest.record.id < self.begun_from.id
        return None if is_older else newest


def assigned(read: ReadCheckpoint | None, graph: Graph, config: RuntimeConfig) -> tuple[Assignment, bool, int]:
    """Distribute a checkpoint to the subtasks of a graph.

    Returns:
        What each subtask restores; whether this includes in-flight data; the bytes of in-flight data that were left out
        because the settings discard them (RC-8).

    Raises:
        PlanError: the checkpoint cannot be restored into the graph (see ``assign``).
    """
    if read is None:
        return Assignment({}, {}), False, 0
    lost_bytes = 0
    if read.id == config.drops_channel_state_of:
        read, lost_bytes = without_channel_state(read)
    return assign(read, graph), read.has_channel_state, lost_bytes
