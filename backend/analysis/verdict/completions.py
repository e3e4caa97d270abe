"""The rule about work after each completed checkpoint that lasts longer than the timeout of the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backend.analysis.numbers.statistics import known, median
from backend.analysis.verdict import pieces, rows
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import draft, weaker
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import PHASE_MIN_RATIO
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Phase, Verdict, VerdictKind

# The times from a completion to the next barrier differ by at most this share if the same work lies between them.
_ALIKE_RATIO = 0.2
_BRIDGED_MIN = 2


def after_completions(case: Case) -> Verdict | None:
    """Return the verdict if a subtask takes a barrier only a certain time after each completed checkpoint.

    The work after a completion then lasts longer than the timeout: the checkpoint that follows a completed one expires,
    and a later one completes quickly, because it begins when the work is nearly done. In a queue, a barrier that begins
    later does not wait for a shorter time.
    """
    known_ids = {c.header.checkpoint_id for c in case.evidence.checkpoints}
    if not case.is_suffering or not known_ids.issuperset(w.checkpoint.header.checkpoint_id for w in case.walked):
        return None
    for vertex in reversed(case.evidence.topology.vertices):
        load = pieces.load_of(case, vertex.id)
        if load is None or not load.full_subtasks or not case.evidence.topology.upstream(vertex.id):
            continue
        spans = _spans(case, vertex.id)
        if _are_of_one_work(spans):
            return _after_completions(case, vertex.id, load.full_subtasks, spans)
    return None


@dataclass(frozen=True, slots=True)
class _Span:
    """From a completion to the arrival of the next barrier that completed, with the expired checkpoints in between."""

    took_ms: float
    wait_ms: float
    expired_ms: tuple[float, ...]


def _spans(case: Case, vertex_id: VertexId) -> list[_Span]:
    """Return the spans of the newest checkpoints in a row, oldest first. A gap or another failure ends the row."""
    found: list[_Span] = []
    ended: datetime | None = None
    expired: list[float] = []
    number: int | None = None
    for checkpoint in case.evidence.checkpoints:
        header, detail = checkpoint.header, checkpoint.detail(vertex_id)
        took = header.end_to_end_duration_ms
        if number is not None and header.checkpoint_id != number + 1:
            found, ended, expired = [], None, []
        number = header.checkpoint_id
        if header.status is CheckpointStatus.IN_PROGRESS:
            continue
        waits = known(() if detail is None else detail.start_delay_ms)
        if header.failure_reason is FailureReason.EXPIRED and took is not None:
            expired.append(float(took))
            continue
        if header.status is not CheckpointStatus.COMPLETED or took is None or not waits:
            found, ended, expired = [], None, []
            continue
        if ended is not None:
            arrived = header.triggered_at + timedelta(milliseconds=max(waits))
            found.append(_Span((arrived - ended) / timedelta(milliseconds=1), max(waits), tuple(expired)))
        ended, expired = header.triggered_at + timedelta(milliseconds=took), []
    return found


def _are_of_one_work(spans: Sequence[_Span]) -> bool:
    bridged = [s for s in spans if s.expired_ms]
    if len(bridged) < _BRIDGED_MIN or len(bridged) < len(spans):
        return False
    usual = median(s.took_ms for s in spans) or 0.0
    are_alike = all(abs(s.took_ms - usual) <= _ALIKE_RATIO * usual for s in spans)
    return are_alike and all(s.wait_ms <= PHASE_MIN_RATIO * min(s.expired_ms) for s in bridged)


def _after_completions(case: Case, vertex_id: VertexId, subtasks: tuple[int, ...], spans: list[_Span]) -> Verdict:
    where = say.where(case.name(vertex_id), subtasks, case.subtask_count(vertex_id))
    usual = median(s.took_ms for s in spans) or 0.0
    works = "works" if len(subtasks) == 1 else "work"
    return draft(
        case,
        VerdictKind.COMMIT,
        f"{where} {works} about {say.duration(usual)} after each completed checkpoint and lets no barrier through"
        " meanwhile: a commit, a compaction, or other work on completion",
        vertex_id=vertex_id,
        subtasks=subtasks,
        phase=Phase.START_DELAY,
        explained_ms=case.typical_ms,
        evidence=[
            rows.reconstructed(
                f"{where}: time from the completion of a checkpoint to the next barrier that it took, median of"
                f" {len(spans)}",
                "start_delay",
                usual,
                "ms",
            ),
            rows.number(
                f"{where}: longest wait of a barrier of the checkpoints that began later and completed",
                "start_delay",
                max(s.wait_ms for s in spans),
                "ms",
            ),
            rows.note("in a queue, a barrier that begins later does not wait for a shorter time"),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=weaker(case.confidence, Confidence.MEDIUM),
    )
