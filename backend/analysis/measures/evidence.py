"""The input of the analysis: the known values of one job, as ``assembling`` puts them together.

Invariant: nothing here is computed. A value that was not reported is None or absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointCounts, ClusterSettings, LateBarrier
from backend.domain.checkpoint_files import CheckpointFiles
from backend.domain.ids import VertexId
from backend.domain.losses import Loss
from backend.domain.observation import JobState
from backend.domain.pod_ends import PodEnd
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Placement, Topology


@dataclass(frozen=True, slots=True)
class OtherRun:
    """Another run of a Spark query, under the same checkpoint folder.

    ``heard_at`` is the time of its last report: of a run that is read from outside, the end of its newest batch.
    ``ended_at`` is None if it has not reported its end, and ``error`` is None if it has not failed. ``query`` is the
    name under which it runs, if that is another one. ``is_silent`` is whether it has not reported for so long that it
    is not known whether it runs.
    """

    started_at: datetime
    heard_at: datetime
    ended_at: datetime | None = None
    error: str | None = None
    query: str | None = None
    is_silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvidence:
    """The values of a job that a verdict may use.

    ``checkpoints`` and ``pressure`` are oldest first; a vertex may have several readings of pressure.
    ``late_barriers`` maps the id of a checkpoint to the first barriers of the subtasks that had not acknowledged it.
    ``placements`` has one entry for each vertex. ``now`` is the time at which the evidence was read.
    """

    topology: Topology
    now: datetime
    config: CheckpointConfig | None = None
    counts: CheckpointCounts | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    pressure: tuple[VertexPressure, ...] = ()
    earlier_pressure: tuple[VertexPressure, ...] = ()
    """Older readings, from the time of checkpoints that a cause struck and of some others to compare with."""
    config_before: CheckpointConfig | None = None
    """The settings at an earlier checkpoint with which one checkpoint is compared; None if they are not read."""
    placements: tuple[Placement, ...] = ()
    late_barriers: Mapping[int, tuple[LateBarrier, ...]] = field(default_factory=dict)
    exceptions: tuple[tuple[datetime, str], ...] = ()
    losses: tuple[Loss, ...] = ()
    """The newest losses of output. The job did not restart because of them."""
    pod_ends: tuple[PodEnd, ...] = ()
    """The newest ends of pods of TaskManagers. Their times are on the engine's clock."""
    other_runs: tuple[OtherRun, ...] = ()
    """Of a Spark query, the newest other runs with the same id, newest first. Each restart is a run of its own."""
    folders: tuple[tuple[datetime, CheckpointFiles], ...] = ()
    """Of a Spark query, the new readings of the checkpoint folders with its id. Each has its time, on our clock."""
    restart_count: int | None = None
    cluster_settings: ClusterSettings | None = None
    """The settings of the cluster that concern checkpoints; None if they are not known."""
    state: JobState | None = None
    """The state of the run when it was last read; None if it is not known."""
    engine_state: str | None = None
    """The engine's own word for the state."""
    started_at: datetime | None = None
    counted_at: datetime | None = None
    """When ``counts`` were read. Like ``started_at``, on the engine's clock."""
    failed_unlisted_count: int | None = None
    """The failures that the coordinator counted but never listed, over all readings; None if only the last is known."""
    flink_version: str | None = None
    is_micro_batched: bool = False
    """Whether the job is a Spark query. Its checkpoints are then micro-batches of one run, and it has no vertices."""

    def vertex_name(self, vertex_id: VertexId) -> str:
        """Return the vertex's name, or its id if the topology does not have the vertex."""
        vertex = self.topology.vertex(vertex_id)
        return vertex.name if vertex is not None else vertex_id

    def late(self, checkpoint_id: int) -> tuple[LateBarrier, ...]:
        """Return the first barriers of the subtasks that had not acknowledged this checkpoint."""
        return self.late_barriers.get(checkpoint_id, ())

    def hosts(self, vertex_id: VertexId, subtasks: tuple[int, ...]) -> tuple[str, ...]:
        """Return the hosts of these subtasks, each once, in the order of the subtasks.

        The result is empty if the engine does not report hosts.
        """
        placement = next((p for p in self.placements if p.vertex_id == vertex_id), None)
        if placement is None:
            return ()
        named = [placement.hosts[i] for i in subtasks if i < len(placement.hosts)]
        return tuple(dict.fromkeys(h for h in named if h))
