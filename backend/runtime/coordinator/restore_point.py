"""Chooses and reads the checkpoint that the next start of the job restores (CO-13, CK-3).

The candidates are the newest completed checkpoint and the one that the job was begun or rescaled from. Invariant: the
newer one is restored, because its effects are committed; and only the store is read.
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
    """The restore point of one job.

    ``begun_from`` is a checkpoint of another run, or the one that the job was rescaled from.
    """

    def __init__(self, env: Environment, coordinator: Coordinator, begun_from: ReadCheckpoint | None) -> None:
        self._env = env
        self._coordinator = coordinator
        self.begun_from = begun_from

    def read(self) -> ReadCheckpoint | None:
        """Read the checkpoint to restore from the store (CK-3); None if there is none.

        Raises:
            CorruptCheckpointError: the stored checkpoint is damaged.
            InducedFailure: an induced fault fails the read.

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
        """The checkpoint that a restart would restore now. Induced read faults do not apply."""
        newest = self._newest_completed()
        return self.begun_from if newest is None else read_checkpoint(newest.stored(newest.record.graph))

    def _newest_completed(self) -> Completed | None:
        """The newest checkpoint of this run; None if there is none, or if ``begun_from`` is newer."""
        newest = self._coordinator.newest
        is_older = newest is not None and self.begun_from is not None and newest.record.id < self.begun_from.id
        return None if is_older else newest


def assigned(read: ReadCheckpoint | None, graph: Graph, config: RuntimeConfig) -> tuple[Assignment, bool, int]:
    """Return the subtasks' assignment, whether it has in-flight data, and the bytes of in-flight data left out (RC-8).

    Raises:
        PlanError: as ``assign``.

    """
    if read is None:
        return Assignment({}, {}), False, 0
    lost_bytes = 0
    if read.id == config.drops_channel_state_of:
        read, lost_bytes = without_channel_state(read)
    return assign(read, graph), read.has_channel_state, lost_bytes
