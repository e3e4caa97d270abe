"""Refuses a job whose metrics contradict each other: a model of them would be of no job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from backend.advisor.twin.flows import VertexFlow
from backend.analysis.arrays import Floats, array_of, peak_of
from backend.analysis.evidence import JobEvidence
from backend.analysis.statistics import median
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.errors import NotModelledError
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Topology, Vertex

_RATE_FACTOR: Final = 1.5
_RATIO_SUM_MIN, _RATIO_SUM_MAX = 0.5, 1.5
_IDLE_RATIO: Final = 0.9
_CLOCKS_MS: Final = 1_000.0
_CLOCKS_RATIO: Final = 0.1
"""An alignment may be longer than its checkpoint by so much, because two clocks measure them."""


def refuse(evidence: JobEvidence, flows: Mapping[VertexId, VertexFlow], recorded: Sequence[Checkpoint]) -> None:
    """Raise an error if metrics contradict each other. ``flows`` has every vertex.

    Raises:
        NotModelledError: the message has the two values, and what would help.
    """
    topology = evidence.topology
    if all(np.nansum(f.records_in) + np.nansum(f.records_out) <= 0 for f in flows.values()):
        raise NotModelledError(
            "no record was read between the readings", fix="wait until the job reads records, then ask again"
        )
    idle = {v.id: _mean_of(_of(evidence.pressure, v.id), "idle_ratio") for v in topology.vertices}
    for vertex in topology.vertices:
        _refuse_shares(vertex, flows[vertex.id], idle[vertex.id])
    _refuse_rates(topology, flows, idle)
    _refuse_alignments(topology, recorded)


def same_counts(readings: Sequence[VertexPressure], vertex_id: VertexId) -> int:
    """Return how many of the newest readings of a vertex have the same counts of records. 0 if it reports none."""
    counts = [(r.records_in_count, r.records_out_count) for r in _of(readings, vertex_id)]
    if not counts or peak_of((*counts[-1][0], *counts[-1][1])) is None:
        return 0
    return next((n for n, row in enumerate(reversed(counts)) if row != counts[-1]), len(counts))


def _refuse_shares(vertex: Vertex, flow: VertexFlow, idle: float | None) -> None:
    if flow.busy.size != vertex.parallelism:
        raise NotModelledError(
            f"{vertex.name} has {vertex.parallelism} subtasks and readings of {flow.busy.size}",
            fix="wait for two readings after the last rescale",
        )
    shares = np.nan_to_num(flow.busy) + np.nan_to_num(flow.backpressured)
    if shares.max(initial=0.0) > _RATIO_SUM_MAX:
        raise NotModelledError(
            f"{vertex.name} reports to be busy and back-pressured for {shares.max():.0%} of the time",
            fix="check the clocks and the metrics of its task managers",
        )
    is_whole = not (np.isnan(flow.busy).any() or np.isnan(flow.backpressured).any())
    if idle is None or not is_whole or np.nansum(flow.records_in) + np.nansum(flow.records_out) <= 0:
        return
    total = float(shares.mean()) + idle
    if not _RATIO_SUM_MIN <= total <= _RATIO_SUM_MAX:
        raise NotModelledError(
            f"{vertex.name} reports to be busy, back-pressured or idle for {total:.0%} of the time in all",
            fix="check the metrics of its task managers: the three shares make 100 %",
        )


def _refuse_rates(
    topology: Topology, flows: Mapping[VertexId, VertexFlow], idle: Mapping[VertexId, float | None]
) -> None:
    names = {v.id: v.name for v in topology.vertices}
    for edge in topology.edges:
        sent, read = flows[edge.source], flows[edge.target]
        is_single = len(topology.downstream(edge.source)) == len(topology.upstream(edge.target)) == 1
        if not is_single or (edge.ship_strategy or "") == "BROADCAST":
            continue
        out, into = float(np.nansum(sent.records_out)), float(np.nansum(read.records_in))
        is_other = min(out, into) > 1.0 and max(out, into) > _RATE_FACTOR * min(out, into)
        # A receiver that is busy or back-pressured may read nothing for a while. An idle one reads what it gets.
        is_unread = into <= 1.0 < out and (idle[edge.target] or 0.0) >= _IDLE_RATIO
        if is_other or is_unread:
            raise NotModelledError(
                f"{names[edge.source]} reports {out:.0f} records/s sent and {names[edge.target]}"
                f" {into:.0f} records/s read",
                fix="wait for readings that span more time, or check the metrics of both vertices",
            )


def _refuse_alignments(topology: Topology, recorded: Sequence[Checkpoint]) -> None:
    """Refuse if most completed checkpoints report an alignment that is longer than the whole checkpoint."""
    completed = [c for c in recorded if c.header.status is CheckpointStatus.COMPLETED]
    found = [one for c in completed if (one := _too_long(c)) is not None]
    if not found or 2 * len(found) <= len(completed):
        return
    number, vertex_id, alignment_ms, duration_ms = found[-1]
    vertex = topology.vertex(vertex_id)
    raise NotModelledError(
        f"checkpoint {number} reports an alignment of {alignment_ms:.0f} ms at"
        f" {vertex_id if vertex is None else vertex.name} and took {duration_ms:.0f} ms in all",
        fix="check the clocks of the job manager and of its task managers",
    )


def _too_long(checkpoint: Checkpoint) -> tuple[int, VertexId, float, float] | None:
    duration_ms = checkpoint.header.end_to_end_duration_ms
    if duration_ms is None:
        return None
    most = max(((peak_of(d.alignment_duration_ms) or 0.0, d.vertex_id) for d in checkpoint.details), default=None)
    if most is None or most[0] <= duration_ms * (1 + _CLOCKS_RATIO) + _CLOCKS_MS:
        return None
    return checkpoint.header.checkpoint_id, most[1], most[0], float(duration_ms)


def _of(readings: Iterable[VertexPressure], vertex_id: VertexId) -> Iterator[VertexPressure]:
    return (r for r in readings if r.vertex_id == vertex_id)


def _mean_of(readings: Iterable[VertexPressure], name: str) -> float | None:
    """Return the median over the readings of the mean over the subtasks; None if a subtask does not report it."""
    means: list[float] = []
    for reading in readings:
        values: Floats = array_of(getattr(reading, name))
        if values.size and not np.isnan(values).any():
            means.append(float(values.mean()))
    return median(means)
