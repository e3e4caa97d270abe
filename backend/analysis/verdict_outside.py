"""Rules about causes outside the subtasks: the coordinator, restarts, and the replay of data after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from backend.analysis import rows
from backend.analysis import sentences as say
from backend.analysis.arrays import Floats, highest_of, median_of
from backend.analysis.case import Case, Walked
from backend.analysis.phases import longest_ms
from backend.analysis.statistics import median
from backend.analysis.thresholds import (
    ACK_WAIT_MIN_RATIO,
    PERSISTED_MIN_BYTES,
    PHASE_MIN_MS,
    PHASE_MIN_RATIO,
    SECOND_MIN_RATIO,
    SIBLINGS_BUSY_RATIO,
    STANDOUT_RATIO,
)
from backend.analysis.verdict_draft import by_count, draft
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Phase, Verdict, VerdictKind

_RECOVERING = "INITIALIZING"
_SOURCES_MIN = 2
# Start delays that are at least this share of the longest one are equally long.
_ALIKE_RATIO = 0.7


def restart_loop(case: Case) -> Verdict | None:
    """Return the verdict if the job restarts again and again although its checkpoints are well."""
    times = case.report.restarts
    if not times or case.is_suffering:
        return None
    newest = max(case.evidence.exceptions)[1].splitlines()[0][:160]
    took = case.report.duration_median_ms
    well = "" if took is None else f" ({say.duration(took)})"
    usual = median((b - a).total_seconds() * 1000 for a, b in pairwise(times)) or 0.0
    return draft(
        case,
        VerdictKind.RESTARTS,
        f'its checkpoints are well{well}, so they are not the cause. The newest exception is "{newest}"',
        evidence=[
            rows.number("restarts of the job that follow each other closely", "exceptions", len(times), "count"),
            rows.reconstructed("time from one restart to the next, median", "exceptions", usual, "ms"),
            *rows.restarts(case),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=by_count(len(times)),
    )


def replaying(case: Case) -> Verdict | None:
    """Return the verdict if subtasks still process restored in-flight data, so that no checkpoint can begin."""
    if not case.evidence.exceptions and not case.evidence.restart_count:
        return None
    completed = [c for c in case.evidence.checkpoints if c.header.status is CheckpointStatus.COMPLETED]
    persisted = completed[-1].header.persisted_bytes if completed else None
    if persisted is None or persisted < PERSISTED_MIN_BYTES:
        return None
    busy = [
        (p.vertex_id, tuple(i for i, s in enumerate(p.statuses) if s == _RECOVERING)) for p in case.evidence.placements
    ]
    waiting = [(v, subtasks) for v, subtasks in busy if subtasks]
    if not waiting:
        return None
    vertex_id, subtasks = max(waiting, key=lambda w: len(w[1]))
    where = say.where(case.name(vertex_id), subtasks, case.subtask_count(vertex_id))
    still = "processes" if len(subtasks) == 1 else "process"
    number = completed[-1].header.checkpoint_id
    return draft(
        case,
        VerdictKind.REPLAY,
        f"{where} still {still} in-flight data of checkpoint {number} after the restart: until then, no checkpoint"
        " can begin",
        vertex_id=vertex_id,
        subtasks=subtasks,
        evidence=[
            rows.number(f"in-flight data that checkpoint {number} persisted", "persisted", persisted, "bytes"),
            *[
                rows.number(f"{case.name(v)}: subtasks that are still restoring", "status", len(s), "count")
                for v, s in waiting
            ],
            *rows.restarts(case),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=Confidence.MEDIUM,
    )


def late_coordinator(case: Case) -> Verdict | None:
    """Return the verdict if the subtasks are in time, but the coordinator triggers them or counts them late."""
    if not case.is_suffering:
        return None
    waits = [w for w in case.walked if w.phases]
    late = [ms for w in waits if (ms := _ack_wait_ms(w)) is not None]
    if late and len(late) >= PHASE_MIN_RATIO * len(waits):
        took = median(late) or 0.0
        return draft(
            case,
            VerdictKind.COORDINATOR,
            f"the coordinator (JobManager) is late: it counts acknowledgements {say.duration(took)} after the subtasks"
            " have finished",
            phase=Phase.ACK_WAIT,
            explained_ms=took,
            evidence=[
                rows.reconstructed("longest wait of an acknowledgement, median", "ack - async end", took, "ms"),
                rows.number("checkpoints in which acknowledgements waited", "latest_ack_timestamp", len(late), "count"),
                rows.note("subtasks of all vertices wait, so no subtask and no host is the cause"),
                *rows.fare(case),
                *rows.calm(case),
                *rows.settings(case),
            ],
        )
    sources = [v.id for v in case.evidence.topology.vertices if not case.evidence.topology.upstream(v.id)]
    if not all(_is_free(case, v) for v in sources):
        return None
    triggers = [ms for w in waits if (ms := _trigger_ms(w, sources)) is not None]
    if not triggers or len(triggers) < PHASE_MIN_RATIO * len(waits):
        return None
    took = median(triggers) or 0.0
    return draft(
        case,
        VerdictKind.COORDINATOR,
        f"the coordinator (JobManager) is late: its trigger reaches every source only after {say.duration(took)}",
        phase=Phase.START_DELAY,
        explained_ms=took,
        evidence=[
            rows.number("start delay of the sources, median", "start_delay", took, "ms"),
            rows.note("all sources begin late by the same time, and none of them is busy"),
            *rows.fare(case),
            *rows.calm(case),
            *rows.settings(case),
        ],
    )


def _ack_wait_ms(walked: Walked) -> float | None:
    """Return the longest wait of an acknowledgement, if subtasks of all vertices wait; None otherwise.

    The wait is the time from the end of a subtask's async part to the arrival of its acknowledgement.
    """
    least = max(PHASE_MIN_MS, SECOND_MIN_RATIO * walked.duration_ms)
    if longest_ms(walked.phases, Phase.ACK_WAIT) < least:
        return None
    by_vertex: list[Floats] = []
    for phases in walked.phases.values():
        waits = np.where(phases.has_clock_skew, np.nan, phases.ack_ms - phases.async_end_ms)
        if np.isnan(waits).all():
            continue
        by_vertex.append(waits[~np.isnan(waits)])
    if not by_vertex:
        return None
    waits = np.concatenate(by_vertex)
    longest = highest_of(waits) or 0.0
    if longest < least:
        return None
    # The coordinator handles the messages one after the other, so the first ones may wait little.
    is_waiting = waits >= min(PHASE_MIN_MS, STANDOUT_RATIO * longest)
    is_everywhere = all(highest_of(row) is not None and row.max() >= PHASE_MIN_MS for row in by_vertex)
    return longest if is_everywhere and is_waiting.mean() >= ACK_WAIT_MIN_RATIO else None


def _trigger_ms(walked: Walked, sources: Sequence[VertexId]) -> float | None:
    """Return the start delay of the sources if all are equally late; None otherwise."""
    rows_ = [walked.phases[v].first_barrier_ms for v in sources if v in walked.phases]
    delays = np.concatenate(rows_) if rows_ else np.empty(0)
    if delays.size < _SOURCES_MIN or np.isnan(delays).any():
        return None
    least, longest = float(delays.min()), float(delays.max())
    is_long = least >= max(PHASE_MIN_MS, SECOND_MIN_RATIO * walked.duration_ms)
    return median_of(delays) if is_long and least >= _ALIKE_RATIO * longest else None


def _is_free(case: Case, vertex_id: VertexId) -> bool:
    """Return whether the readings show that the source could have taken the trigger at once."""
    load = case.loads.get(vertex_id)
    if load is None:
        return False
    held = (highest_of(load.busy) or 0.0, highest_of(load.backpressured) or 0.0)
    return max(held) < SIBLINGS_BUSY_RATIO
