"""What is known of one job when it is judged: values only, gathered by the caller, complete or not.

Invariant: nothing here is computed; whatever was not reported is None or absent, and the rules live with that.
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
    """Everything a verdict may draw on.

    ``checkpoints`` are newest last; ``pressure`` is oldest first, several readings a vertex; ``late_barriers`` are by
    checkpoint id. ``placements`` holds one entry a vertex; ``now`` is the instant the evidence was gathered.
    """

    job_name: str
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
    """A Spark query: its checkpoints are micro-batches of one run, and there are no vertices."""

    def vertex_name(self, vertex_id: VertexId) -> str:
        """The vertex's name in one line; its id where the topology does not know it."""
        vertex = self.topology.vertex(vertex_id)
        return vertex.name if vertex is not None else vertex_id

    def late(self, checkpoint_id: int) -> tuple[LateBarrier, ...]:
        """First barriers of the subtasks of one checkpoint that had not acknowledged."""
        return self.late_barriers.get(checkpoint_id, ())

    def hosts(self, vertex_id: VertexId, subtasks: tuple[int, ...]) -> tuple[str, ...]:
        """Hosts of these subtasks, each once, in their order; empty where the engine does not say."""
        placement = next((p for p in self.placements if p.vertex_id == vertex_id), None)
        if placement is None:
            return ()
        named = [placement.hosts[i] for i in subtasks if i < len(placement.hosts)]
        return tuple(dict.fromkeys(h for h in named if h))
