"""Refuses a job whose metrics contradict each other: a model built from them would describe no real job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from backend.advisor.twin.model.flows import VertexFlow
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.numbers.arrays import Floats, array_of, peak_of
from backend.analysis.numbers.statistics import median
from backend.analysis.words import sentences as say
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.errors import NotModelledError
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Topology, Vertex

_COUNT_FACTOR: Final = 1.5
_CHANGES_MIN: Final = 6
"""A count with fewer different values is a few steps, and says little of a rate."""
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
        if any(np.nansum(f.counted_in) > 0 or np.nansum(f.out_rates_per_s) > 0 for f in flows.values()):
            raise NotModelledError(
                "records were read in bursts that are so far apart that no rate can be measured",
                fix="ask again when the job reads records most of the time",
            )
        raise NotModelledError(
            "no record was read between the readings", fix="wait until the job reads records, then ask again"
        )
    # Once for all: a fleet's large jobs have tens of thousands of readings.
    readings = _by_vertex(evidence.pressure)
    for vertex in topology.vertices:
        _refuse_shares(vertex, flows[vertex.id], readings.get(vertex.id, ()))
    _refuse_counts(topology, readings)
    _refuse_alignments(topology, recorded)


def same_counts(readings: Sequence[VertexPressure], vertex_id: VertexId) -> int:
    """Return how many of the newest readings of a vertex have the same counts of records. 0 if it reports none."""
    own = _by_vertex(r for r in readings if r.vertex_id == vertex_id).get(vertex_id, ())
    counts = [(r.records_in_count, r.records_out_count) for r in own]
    if not counts or peak_of((*counts[-1][0], *counts[-1][1])) is None:
        return 0
    return next((n for n, row in enumerate(reversed(counts)) if row != counts[-1]), len(counts))


def _refuse_shares(vertex: Vertex, flow: VertexFlow, readings: Sequence[VertexPressure]) -> None:
    """Refuse if most readings of a vertex have shares of time that make far more or far less than 100 %.

    Each reading is judged alone. Shares of different readings make any sum, because the load changes between them.
    """
    if flow.busy.size != vertex.parallelism:
        raise NotModelledError(
            f"{vertex.name} has {vertex.parallelism} subtasks and readings of {flow.busy.size}",
            fix="wait for two readings after the last rescale",
        )
    held: list[float] = []
    totals: list[float] = []
    for reading in readings:
        rows = [array_of(r) for r in (reading.busy_ratio, reading.backpressured_ratio, reading.idle_ratio)]
        if any(row.size != vertex.parallelism for row in rows[:2]):
            continue
        both = np.nan_to_num(rows[0]) + np.nan_to_num(rows[1])
        held.append(float(both.max(initial=0.0)))
        if rows[2].size == vertex.parallelism and not any(np.isnan(row).any() for row in rows):
            totals.append(float((both + rows[2]).mean()))
    if (most := median(held)) is not None and most > _RATIO_SUM_MAX:
        raise NotModelledError(
            f"{vertex.name} reports to be busy and back-pressured for {say.percent(most)} of the time",
            fix="check the clocks and the metrics of its task managers",
        )
    total = median(totals)
    if total is None or np.nansum(flow.records_in) + np.nansum(flow.records_out) <= 0:
        return
    if not _RATIO_SUM_MIN <= total <= _RATIO_SUM_MAX:
        raise NotModelledError(
            f"{vertex.name} reports to be busy, back-pressured or idle for {say.percent(total)} of the time in all",
            fix="check the metrics of its task managers: the three shares make 100 %",
        )


def _refuse_counts(topology: Topology, readings: Mapping[VertexId, Sequence[VertexPressure]]) -> None:
    """Refuse if a vertex sent far more or far fewer records than the only vertex behind it read in the same time.

    What a burst or a window holds back is no contradiction, so both counts may also differ by as much as they swing
    around a steady flow. Counts that changed only a few times show nothing.
    """
    names = {v.id: v.name for v in topology.vertices}
    for edge in topology.edges:
        strategy = (edge.ship_strategy or "").upper()
        is_single = len(topology.downstream(edge.source)) == len(topology.upstream(edge.target)) == 1
        if not is_single or strategy in {"", "BROADCAST"}:
            continue
        sent = _since_restart(readings.get(edge.source, ()), "records_out_count")
        read = _since_restart(readings.get(edge.target, ()), "records_in_count")
        if not sent or not read:
            continue
        begin, end = max(sent[0][0], read[0][0]), min(sent[-1][0], read[-1][0])
        outs, ins = (np.array([row for row in rows if begin <= row[0] <= end]) for rows in (sent, read))
        if len(outs) < _CHANGES_MIN or len(ins) < _CHANGES_MIN or np.unique(outs[:, 1]).size < _CHANGES_MIN:
            continue
        out, into = float(np.ptp(outs[:, 1])), float(np.ptp(ins[:, 1]))
        is_steady = np.unique(ins[:, 1]).size >= _CHANGES_MIN
        # A receiver that is busy or back-pressured may read nothing for a while. An idle one reads what it gets.
        is_unread = into <= 0 and _idle(readings[edge.target], begin) >= _IDLE_RATIO
        is_other = max(out, into) > _COUNT_FACTOR * min(out, into) + _swing(outs) + _swing(ins)
        if is_other and (is_steady or is_unread):
            seconds = end - begin
            raise NotModelledError(
                f"{names[edge.source]} reports {say.rate(out / seconds, 'records')} sent and {names[edge.target]}"
                f" {say.rate(into / seconds, 'records')} read",
                fix="check the metrics of both vertices",
            )


def _since_restart(readings: Iterable[VertexPressure], name: str) -> list[tuple[float, float]]:
    """Return the time in seconds and the count of the whole vertex, for each of its readings since its last restart."""
    kept: list[tuple[float, float]] = []
    before = np.zeros(0)
    for reading in readings:
        counts = array_of(getattr(reading, name))
        if not counts.size or np.isnan(counts).any():
            continue
        if counts.size != before.size or (counts < before).any():
            kept = []
        kept.append((reading.observed_at.timestamp(), float(counts.sum())))
        before = counts
    return kept


def _swing(rows: Floats) -> float:
    """Return the range of the distances between the counts and a steady flow, in records."""
    times, counts = rows[:, 0] - rows[0, 0], rows[:, 1]
    return float(np.ptp(counts - counts[0] - times * (counts[-1] - counts[0]) / times[-1]))


def _idle(readings: Iterable[VertexPressure], begin_s: float) -> float:
    """Return the median share of idle time in a vertex's readings since ``begin_s``; 0 if it reports none."""
    since = (r for r in readings if r.observed_at.timestamp() >= begin_s)
    return _mean_of(since, "idle_ratio") or 0.0


def _refuse_alignments(topology: Topology, recorded: Sequence[Checkpoint]) -> None:
    """Refuse if most completed checkpoints report an alignment that is longer than the whole checkpoint."""
    completed = [c for c in recorded if c.header.status is CheckpointStatus.COMPLETED]
    too_long = [one for c in completed if (one := _too_long(c)) is not None]
    if not too_long or 2 * len(too_long) <= len(completed):
        return
    number, vertex_id, alignment_ms, duration_ms = too_long[-1]
    vertex = topology.vertex(vertex_id)
    raise NotModelledError(
        f"checkpoint {number} reports an alignment of {say.duration(alignment_ms)} at"
        f" {vertex_id if vertex is None else vertex.name} and took {say.duration(duration_ms)} in all",
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


def _by_vertex(readings: Iterable[VertexPressure]) -> dict[VertexId, list[VertexPressure]]:
    """Return the readings of each vertex, oldest first."""
    vertex_pressures: dict[VertexId, list[VertexPressure]] = {}
    for reading in readings:
        vertex_pressures.setdefault(reading.vertex_id, []).append(reading)
    for own in vertex_pressures.values():
        own.sort(key=lambda r: r.observed_at)
    return vertex_pressures


def _mean_of(readings: Iterable[VertexPressure], name: str) -> float | None:
    """Return the median over the readings of the mean over the subtasks; None if a subtask does not report it."""
    means: list[float] = []
    for reading in readings:
        values: Floats = array_of(getattr(reading, name))
        if values.size and not np.isnan(values).any():
            means.append(float(values.mean()))
    return median(means)
