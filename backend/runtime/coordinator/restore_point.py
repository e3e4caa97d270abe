"""What a start of the job restores: its newest checkpoint, or the one that it was begun or rescaled from (CO-13, CK-3).

Invariant: of two the newer one, for what that holds is committed; and only what lies in the store is read.
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
    """Of one job. ``begun_from`` is a checkpoint of another run, or the one that the job was rescaled from."""

    def __init__(self, env: Environment, coordinator: Coordinator, begun_from: ReadCheckpoint | None) -> None:
        self._env = env
        self._coordinator = coordinator
        self.begun_from = begun_from

    def read(self) -> ReadCheckpoint | None:
        """A restart reads what lies in the store and nothing else (CK-3).

        Raises:
            CorruptCheckpointError: what lies there is damaged.
            InducedFailure: a fault says that it cannot be read.

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
        """What a restart would restore; asking is not reading it."""
        newest = self._newest_completed()
        return self.begun_from if newest is None else read_checkpoint(newest.stored(newest.record.graph))

    def _newest_completed(self) -> Completed | None:
        """The newest checkpoint of this run; None where the one that it was started or rescaled from is newer."""
        newest = self._coordinator.newest
        is_older = newest is not None and self.begun_from is not None and newest.record.id < self.begun_from.id
        return None if is_older else newest


def assigned(read: ReadCheckpoint | None, graph: Graph, config: RuntimeConfig) -> tuple[Assignment, bool, int]:
    """(what every subtask begins with, whether data was in flight, bytes of it that are left out on demand).

    Raises:
        PlanError: as ``assign``.

    """
    if read is None:
        return Assignment({}, {}), False, 0
    lost_bytes = 0
    if read.id == config.drops_channel_state_of:
        read, lost_bytes = without_channel_state(read)
    return assign(read, graph), read.has_channel_state, lost_bytes
