"""The input of the analysis: the values known of one job, as the caller read them.

Invariant: nothing here is computed. A value that was not reported is None or absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointCounts, LateBarrier
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Placement, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvidence:
    """The values that a verdict may use.

    ``checkpoints`` and ``pressure`` are oldest first; a vertex may have several readings. ``late_barriers`` are by
    checkpoint id. ``placements`` has one entry for each vertex. ``now`` is when the evidence was read.
    """

    topology: Topology
    now: datetime
    config: CheckpointConfig | None = None
    counts: CheckpointCounts | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    pressure: tuple[VertexPressure, ...] = ()
    placements: tuple[Placement, ...] = ()
    late_barriers: Mapping[int, tuple[LateBarrier, ...]] = field(default_factory=dict)
    exceptions: tuple[tuple[datetime, str], ...] = ()
    restart_count: int | None = None
    is_micro_batched: bool = False
    """Whether the job is a Spark query: its checkpoints are micro-batches of one run, and it has no vertices."""

    def vertex_name(self, vertex_id: VertexId) -> str:
        """The vertex's name; its id if the topology does not have it."""
        vertex = self.topology.vertex(vertex_id)
        return vertex.name if vertex is not None else vertex_id

    def late(self, checkpoint_id: int) -> tuple[LateBarrier, ...]:
        """First barriers of the subtasks that had not acknowledged this checkpoint."""
        return self.late_barriers.get(checkpoint_id, ())

    def hosts(self, vertex_id: VertexId, subtasks: tuple[int, ...]) -> tuple[str, ...]:
        """Hosts of these subtasks, each once, in their order; empty if the engine does not report them."""
        placement = next((p for p in self.placements if p.vertex_id == vertex_id), None)
        if placement is None:
            return ()
        named = [placement.hosts[i] for i in subtasks if i < len(placement.hosts)]
        return tuple(dict.fromkeys(h for h in named if h))
