"""Builds the rows of evidence for advice on the mode, with their checkpoints, vertices, subtasks and time windows."""

from __future__ import annotations

import numpy as np

from backend.advisor.advice import EvidenceRow
from backend.advisor.situation import Recorded, Situation
from backend.analysis.numbers.arrays import indices_of, peak_of
from backend.analysis.numbers.statistics import median, ratio
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import BACKPRESSURED_HIGH_RATIO
from backend.domain.ids import VertexId
from backend.domain.verdict import Basis

# A row has at most this many readings. More are not visible in a small chart.
_READINGS_MAX = 60


def mode_rows(situation: Situation, held_id: VertexId | str, held: float) -> tuple[EvidenceRow, ...]:
    """Return rows for the durations, the travel time of the barrier, the back-pressure, the queues and the verdict.

    ``held_id`` is the most back-pressured vertex, and ``held`` is the ratio of its most back-pressured subtask.
    """
    slow = situation.slow or situation.recorded
    late_id, late = _latest(slow)
    ids = tuple(r.id for r in slow)
    travel = median(r.travel_ms for r in slow)
    part = median(ratio(r.travel_ms, r.duration_ms) for r in slow) or 0.0
    cut_off = ", cut off by their timeout" if situation.is_cut_off else ""
    begin, end = slow[0].checkpoint.header.triggered_at, slow[-1].checkpoint.header.triggered_at
    rows = [
        EvidenceRow(
            f"median duration of {len(situation.recorded)} checkpoints{cut_off}",
            "endToEndDuration",
            value=situation.duration_ms,
            unit="ms",
            checkpoint_ids=situation.ids,
            since=situation.recorded[0].checkpoint.header.triggered_at,
            until=situation.recorded[-1].checkpoint.header.triggered_at,
            values=tuple(r.duration_ms for r in situation.recorded),
        ),
        EvidenceRow(
            f"start delay and alignment, {say.percent(part)} of the duration",
            "startDelay",
            Basis.RECONSTRUCTED,
            travel,
            "ms",
            None if late_id is None else situation.name(late_id),
            late,
            ids,
            begin,
            end,
            tuple(r.travel_ms for r in slow),
        ),
        EvidenceRow(
            f"{situation.name(VertexId(held_id))} is back-pressured",
            "backpressureRatio",
            value=held,
            unit="ratio",
            vertex=situation.name(VertexId(held_id)),
            subtasks=_held_subtasks(situation, VertexId(held_id)),
            since=situation.since,
            until=situation.until,
            values=_held_readings(situation, VertexId(held_id)),
        ),
    ]
    if situation.queues is not None:
        count = situation.queues.reading_count
        text = "data in all queues, " + ("one reading" if count == 1 else f"median of {count} readings")
        rows.append(
            EvidenceRow(
                text,
                "outputQueueSize",
                value=situation.queues.total,
                unit="bytes",
                since=situation.since,
                until=situation.until,
                values=situation.queues.totals[-_READINGS_MAX:],
            )
        )
    rows.append(verdict_row(situation))
    return tuple(rows)


def _latest(slow: tuple[Recorded, ...]) -> tuple[VertexId | None, tuple[int, ...]]:
    """Return the vertex that the barrier reached last in the newest slow checkpoint, and its late subtasks.

    The latest subtask comes first. A subtask is late if its barrier took at least half of the longest time.
    """
    newest = next((r for r in reversed(slow) if r.phases), None)
    if newest is None:
        return None, ()
    ways = {
        v: np.where(np.isnan(rows.travel_ms), newest.duration_ms, rows.travel_ms) for v, rows in newest.phases.items()
    }
    vertex_id = max(ways, key=lambda v: ways[v].max(initial=0.0))
    way = ways[vertex_id]
    latest_first = np.argsort(-way, kind="stable")
    return vertex_id, tuple(latest_first[way[latest_first] >= way.max() / 2].tolist())


def _held_subtasks(situation: Situation, vertex_id: VertexId) -> tuple[int, ...]:
    load = situation.case.loads.get(vertex_id)
    if load is None:
        return ()
    return indices_of(load.backpressured >= BACKPRESSURED_HIGH_RATIO)


def _held_readings(situation: Situation, vertex_id: VertexId) -> tuple[float | None, ...]:
    """Return the back-pressure of the most back-pressured subtask of a vertex at each reading."""
    rows = [r for r in situation.evidence.pressure if r.vertex_id == vertex_id][-_READINGS_MAX:]
    return tuple(peak_of(r.backpressured_ratio) for r in rows)


def verdict_row(situation: Situation) -> EvidenceRow:
    """Return the verdict as a row: its sentence, vertex and subtasks."""
    verdict = situation.diagnosis.verdict
    return EvidenceRow(
        verdict.sentence,
        "verdict",
        Basis.RECONSTRUCTED,
        vertex=verdict.vertex,
        subtasks=verdict.subtasks,
        checkpoint_ids=situation.ids,
    )


def write_rows(situation: Situation) -> tuple[EvidenceRow, ...]:
    """Return rows for the time that writing takes and for the speed of the store."""
    rows = []
    writing = median(r.own_async_ms for r in situation.slow)
    if writing is not None:
        rows.append(
            EvidenceRow(
                "longest async part, median",
                "asyncDuration",
                value=writing,
                unit="ms",
                checkpoint_ids=tuple(r.id for r in situation.slow),
                values=tuple(r.own_async_ms for r in situation.slow),
            )
        )
    if situation.store_bytes_per_ms is not None:
        text = "speed of the store: bytes written over async time, whole checkpoints"
        rows.append(
            EvidenceRow(
                text,
                "checkpointedSize",
                Basis.RECONSTRUCTED,
                situation.store_bytes_per_ms * 1000,
                "bytes/s",
                checkpoint_ids=situation.ids,
                values=tuple(
                    None if r.store_bytes_per_ms is None else r.store_bytes_per_ms * 1000 for r in situation.recorded
                ),
            )
        )
    return tuple(rows)


def parallelism(situation: Situation) -> int:
    """Return the parallelism of the vertex that the verdict names."""
    verdict = situation.diagnosis.verdict
    vertex = situation.evidence.topology.vertex(verdict.vertex_id) if verdict.vertex_id is not None else None
    return vertex.parallelism if vertex is not None else len(verdict.subtasks)
