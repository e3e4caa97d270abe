"""The evidence for advice on the mode, with its checkpoints, vertices, subtasks and time windows."""

from __future__ import annotations

from backend.advisor.advice import EvidenceRow
from backend.advisor.situation import Recorded, Situation
from backend.analysis import sentences as say
from backend.analysis.statistics import median, ratio
from backend.analysis.thresholds import BACKPRESSURED_HIGH_RATIO
from backend.domain.ids import VertexId
from backend.domain.verdict import Basis


def mode_rows(known: Situation, held_id: VertexId | str, held: float) -> tuple[EvidenceRow, ...]:
    """Durations, travel time of the barrier, back-pressure, queues and the verdict."""
    slow = known.slow
    late_id, late = _latest(slow)
    ids = tuple(r.id for r in slow)
    travel = median(r.travel_ms for r in slow)
    part = median(ratio(r.travel_ms, r.duration_ms) for r in slow) or 0.0
    cut_off = ", cut off by their timeout" if known.is_cut_off else ""
    begin, end = slow[0].checkpoint.header.triggered_at, slow[-1].checkpoint.header.triggered_at
    rows = [
        EvidenceRow(
            f"median duration of {len(known.recorded)} checkpoints{cut_off}",
            "endToEndDuration",
            value=known.duration_ms,
            unit="ms",
            checkpoint_ids=known.ids,
            since=known.recorded[0].checkpoint.header.triggered_at,
            until=known.recorded[-1].checkpoint.header.triggered_at,
        ),
        EvidenceRow(
            f"start delay and alignment, {say.percent(part)} of the duration",
            "startDelay",
            Basis.RECONSTRUCTED,
            travel,
            "ms",
            None if late_id is None else known.name(late_id),
            late,
            ids,
            begin,
            end,
        ),
        EvidenceRow(
            f"{known.name(VertexId(held_id))} is back-pressured",
            "backpressureRatio",
            value=held,
            unit="ratio",
            vertex=known.name(VertexId(held_id)),
            subtasks=_held_subtasks(known, VertexId(held_id)),
            since=known.since,
            until=known.until,
        ),
    ]
    if known.queues is not None:
        count = known.queues.reading_count
        text = "data in all queues, " + ("one reading" if count == 1 else f"median of {count} readings")
        rows.append(
            EvidenceRow(
                text, "outputQueueSize", value=known.queues.total, unit="bytes", since=known.since, until=known.until
            )
        )
    rows.append(verdict_row(known))
    return tuple(rows)


def _latest(slow: tuple[Recorded, ...]) -> tuple[VertexId | None, tuple[int, ...]]:
    """The vertex that the barrier reached last in the newest slow checkpoint, and its subtasks, latest first."""
    newest = next((r for r in reversed(slow) if r.phases), None)
    if newest is None:
        return None, ()
    ways = {
        v: {p.subtask: newest.duration_ms if p.travel_ms is None else p.travel_ms for p in rows}
        for v, rows in newest.phases.items()
    }
    vertex_id = max(ways, key=lambda v: max(ways[v].values(), default=0.0))
    most = max(ways[vertex_id].values())
    named = sorted((i for i, w in ways[vertex_id].items() if w >= most / 2), key=lambda i: -ways[vertex_id][i])
    return vertex_id, tuple(named)


def _held_subtasks(known: Situation, vertex_id: VertexId) -> tuple[int, ...]:
    load = known.case.loads.get(vertex_id)
    if load is None:
        return ()
    return tuple(i for i, h in enumerate(load.backpressured) if h is not None and h >= BACKPRESSURED_HIGH_RATIO)


def verdict_row(known: Situation) -> EvidenceRow:
    """The verdict's sentence, with its vertex and subtasks."""
    verdict = known.diagnosis.verdict
    return EvidenceRow(
        verdict.sentence,
        "verdict",
        Basis.RECONSTRUCTED,
        vertex=verdict.vertex,
        subtasks=verdict.subtasks,
        checkpoint_ids=known.ids,
    )


def write_rows(known: Situation) -> tuple[EvidenceRow, ...]:
    """The time that writing takes, and the speed of the store."""
    rows = []
    writing = median(r.own_async_ms for r in known.slow)
    if writing is not None:
        rows.append(
            EvidenceRow(
                "longest async part, median", "asyncDuration", value=writing, unit="ms", checkpoint_ids=known.ids
            )
        )
    if known.store_bytes_per_ms is not None:
        text = "speed of the store: bytes written over async time, whole checkpoints"
        rows.append(
            EvidenceRow(
                text,
                "checkpointedSize",
                Basis.RECONSTRUCTED,
                known.store_bytes_per_ms * 1000,
                "bytes/s",
                checkpoint_ids=known.ids,
            )
        )
    return tuple(rows)


def parallelism(known: Situation) -> int:
    """The parallelism of the vertex that the verdict names."""
    verdict = known.diagnosis.verdict
    vertex = known.evidence.topology.vertex(verdict.vertex_id) if verdict.vertex_id is not None else None
    return vertex.parallelism if vertex is not None else len(verdict.subtasks)
