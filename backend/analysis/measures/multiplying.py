"""Finds state that becomes many times as large with each restart of the job, and keeps its size in between.

Flink gives the whole of union list state to every subtask. If each of them adds it to what it writes next, the state is
as many times as large after each restore as the vertex has subtasks. The size alone does not show which state it is.
Growth by input is told apart: it goes on between restarts, and no restart multiplies it. One restart decides nothing,
but a factor that is the number of subtasks is worth a line: the next restart decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.numbers.statistics import median
from backend.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointStatus
from backend.domain.ids import VertexId

# Twice the size may be a change of the input; three times in a row is none.
_FACTOR_MIN = 3.0
_STEPS_MIN = 2
# Between two restarts the state keeps its size within this factor.
_FLAT_MAX = 1.25
_SIZE_MIN_BYTES = 1 << 20
# Two factors are alike, or as large as the parallelism, within this factor.
_ALIKE_MAX = 1.5
# The factor of one restart is the number of subtasks within this factor. Two subtasks are too few to tell.
_SAME_MAX = 1.25
_SUBTASKS_MIN = 3


@dataclass(frozen=True, slots=True)
class Multiplying:
    """State of one vertex that each of the newest restarts multiplied. ``sizes_bytes`` has one size for each period."""

    vertex_id: VertexId
    subtask_count: int
    sizes_bytes: tuple[float, ...]

    @property
    def factors(self) -> tuple[float, ...]:
        """How many times as large the state was after each restart."""
        return tuple(b / a for a, b in pairwise(self.sizes_bytes))

    @property
    def is_decided(self) -> bool:
        """Whether several restarts multiplied the state. A single one may go with a change of the input or the job."""
        return len(self.factors) >= _STEPS_MIN

    @property
    def is_by_parallelism(self) -> bool:
        """Whether each restart multiplied the state by about the number of subtasks, as union list state does it."""
        return all(_are_alike(f, self.subtask_count) for f in self.factors)


def of_job(evidence: JobEvidence) -> Multiplying | None:
    """Return the vertex whose state restarts multiply; the largest if there are several, None if there is none."""
    restarts = sorted({at for at, _ in evidence.exceptions})
    completed = [
        c
        for c in evidence.checkpoints
        if c.header.status is CheckpointStatus.COMPLETED and c.header.kind is CheckpointKind.CHECKPOINT and c.details
    ]
    periods = _periods(completed, restarts)
    if len(periods) < 2:
        return None
    vertices = {d.vertex_id for c in completed for d in c.details}
    multiplying = [m for v in sorted(vertices) if (m := _of_vertex(v, periods)) is not None]
    return max(multiplying, key=lambda m: (m.is_decided, m.sizes_bytes[-1]), default=None)


def _periods(completed: Sequence[Checkpoint], restarts: Sequence[datetime]) -> list[list[Checkpoint]]:
    """Return the checkpoints between each two restarts, oldest first. Restarts without a checkpoint between are one."""
    checkpoints: dict[int, list[Checkpoint]] = {}
    for checkpoint in completed:
        checkpoints.setdefault(sum(at <= checkpoint.header.triggered_at for at in restarts), []).append(checkpoint)
    return [checkpoints[n] for n in sorted(checkpoints)]


def _of_vertex(vertex_id: VertexId, periods: Sequence[Sequence[Checkpoint]]) -> Multiplying | None:
    rows = [[size for c in period if (size := _size_bytes(c, vertex_id)) is not None] for period in periods]
    sizes: list[float] = []
    for row in reversed(rows):
        size = median(row)
        is_step = not sizes or (size is not None and sizes[-1] >= _FACTOR_MIN * size)
        if not size or not is_step or max(row) > _FLAT_MAX * min(row):
            break
        sizes.append(size)
    sizes.reverse()
    counts = {d.subtask_count for p in periods[-len(sizes) :] for c in p if (d := c.detail(vertex_id)) is not None}
    # A size that is known once may be one point of steady growth.
    repeated = sum(len(row) > 1 for row in rows[-len(sizes) :]) if sizes else 0
    if len(sizes) < 2 or sizes[-1] < _SIZE_MIN_BYTES or len(counts) != 1 or repeated < _STEPS_MIN:
        return None
    multiplying = Multiplying(vertex_id, counts.pop(), tuple(sizes))
    if multiplying.is_decided:
        return multiplying if _are_alike(min(multiplying.factors), max(multiplying.factors)) else None
    is_same = _are_alike(multiplying.factors[0], multiplying.subtask_count, _SAME_MAX)
    return multiplying if is_same and multiplying.subtask_count >= _SUBTASKS_MIN else None


def _size_bytes(checkpoint: Checkpoint, vertex_id: VertexId) -> float | None:
    """Return the full state of the vertex; None unless every subtask reports it."""
    detail = checkpoint.detail(vertex_id)
    sizes = () if detail is None else detail.full_state_size_bytes
    known = [s for s in sizes if s is not None]
    return float(sum(known)) if known and len(known) == len(sizes) else None


def _are_alike(one: float, other: float, limit: float = _ALIKE_MAX) -> bool:
    return max(one, other) <= limit * min(one, other)
