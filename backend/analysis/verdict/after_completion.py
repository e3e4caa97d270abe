"""The rule about work after each completed checkpoint that the barrier of the next one waits for, or expires in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backend.analysis.measures import freshness
from backend.analysis.measures.pressure import VertexLoad
from backend.analysis.numbers.arrays import highest_of, mean_of
from backend.analysis.numbers.statistics import known, median
from backend.analysis.verdict import barrier_waits, piece_of_work
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import draft, weaker
from backend.analysis.verdict.rule import SUFFERING, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import BACKPRESSURED_OK_RATIO, HOP_MIN_MS, PHASE_MIN_RATIO
from backend.domain.checkpoint import CheckpointStatus, VertexDetail
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Evidence, Phase, Verdict, VerdictKind

# The times from a completion to the next barrier differ by at most this share if the same work lies between them.
_ALIKE_RATIO = 0.2
_BRIDGED_MIN = 2
# If no checkpoint expired meanwhile, only the times show the work. A queue does not have the same length that often.
_SAME_RATIO = 0.05
_SAME_MIN = 6
_SAME_OF_ALL_RATIO = 0.8
# A checkpoint that begins at most this share of the work after the completion meets all of it.
_AT_ONCE_RATIO = 0.1


def _find_work(case: Case) -> _Work | None:
    """Return the subtasks that take a barrier only a certain time after each completed checkpoint.

    The work after a completion then lasts longer than the timeout: the checkpoint that follows a completed one expires,
    and a later one completes quickly, because it begins when the work is nearly done. In a queue, a barrier that begins
    later does not wait for a shorter time. With triggers at even times, a store that hangs in every second checkpoint
    gives the same times. So the subtask must be one that did not acknowledge the expired checkpoints, and it must not
    read on while it is said to work.
    """
    known_ids = {c.header.checkpoint_id for c in case.evidence.checkpoints}
    if not known_ids.issuperset(w.checkpoint.header.checkpoint_id for w in case.walked):
        return None
    for vertex in reversed(case.evidence.topology.vertices):
        load = piece_of_work.load_of(case, vertex.id)
        if load is None or not load.full_subtasks or not case.evidence.topology.upstream(vertex.id):
            continue
        spans = _spans(case, vertex.id)
        are_bridged = any(s.expired_ms for s in spans)
        subtasks = _without_acknowledgement(load.full_subtasks, spans) if are_bridged else load.full_subtasks
        if are_bridged:
            is_work = _are_of_one_work(spans)
        else:
            are_same = _are_of_same_length(case, vertex.id, spans)
            is_work = are_same and not _is_of_one_record(case, vertex.id, load, spans)
        if subtasks and is_work and not _reads_on(case, vertex.id, subtasks, spans):
            return _Work(vertex.id, subtasks, tuple(spans))
    return None


@dataclass(frozen=True, slots=True)
class _Span:
    """From a completion to the arrival of the next barrier that completed, with the expired checkpoints in between.

    ``gap_ms`` is the time from the completion to the trigger of the checkpoint that completed next.

    ``pending`` has the subtasks that had not acknowledged each expired checkpoint when it ended, if that is known.
    """

    began_at: datetime
    gap_ms: float
    took_ms: float
    wait_ms: float
    expired_ms: tuple[float, ...]
    pending: tuple[frozenset[int], ...]


@dataclass(frozen=True, slots=True)
class _Work:
    """The subtasks that work after each completion, and the spans in which they do."""

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    spans: tuple[_Span, ...]


def _spans(case: Case, vertex_id: VertexId) -> list[_Span]:
    """Return the spans of the newest checkpoints in a row, oldest first. A gap or another failure ends the row."""
    spans: list[_Span] = []
    ended: datetime | None = None
    expired: list[float] = []
    pending: list[frozenset[int]] = []
    number: int | None = None
    for checkpoint in case.evidence.checkpoints:
        header, detail = checkpoint.header, checkpoint.detail(vertex_id)
        took = header.end_to_end_duration_ms
        if number is not None and header.checkpoint_id != number + 1:
            spans, ended, expired, pending = [], None, [], []
        number = header.checkpoint_id
        if header.status is CheckpointStatus.IN_PROGRESS:
            continue
        waits = known(() if detail is None else detail.start_delay_ms)
        if header.failure_reason is FailureReason.EXPIRED and took is not None:
            expired.append(float(took))
            pending.extend([] if detail is None else [_late_in(detail, took)])
            continue
        if header.status is not CheckpointStatus.COMPLETED or took is None or not waits:
            spans, ended, expired, pending = [], None, [], []
            continue
        if ended is not None:
            arrived = header.triggered_at + timedelta(milliseconds=max(waits))
            took_ms = (arrived - ended) / timedelta(milliseconds=1)
            gap_ms = (header.triggered_at - ended) / timedelta(milliseconds=1)
            spans.append(_Span(ended, gap_ms, took_ms, max(waits), tuple(expired), tuple(pending)))
        ended, expired, pending = header.triggered_at + timedelta(milliseconds=took), [], []
    return spans


def _late_in(detail: VertexDetail, took_ms: int) -> frozenset[int]:
    """Return the subtasks that had not acknowledged when the checkpoint ended.

    Flink keeps an acknowledgement that arrives after the end, and shows it as any other.
    """
    return frozenset(i for i, ms in enumerate(detail.ack_delay_ms) if ms is None or ms > took_ms)


def _are_of_one_work(spans: Sequence[_Span]) -> bool:
    bridged = [s for s in spans if s.expired_ms]
    if len(bridged) < _BRIDGED_MIN or len(bridged) < len(spans):
        return False
    usual = median(s.took_ms for s in spans) or 0.0
    are_alike = all(abs(s.took_ms - usual) <= _ALIKE_RATIO * usual for s in spans)
    return are_alike and all(s.wait_ms <= PHASE_MIN_RATIO * min(s.expired_ms) for s in bridged)


def _are_of_same_length(case: Case, vertex_id: VertexId, spans: Sequence[_Span]) -> bool:
    """Return whether nearly all barriers right after a completion wait equally long, with nothing back-pressured.

    The length of a queue changes from one checkpoint to the next, unless it is as long as the buffers allow: then the
    vertex before it is back-pressured.
    """
    usual = median(s.took_ms for s in spans) or 0.0
    if len(spans) < _SAME_MIN or usual < HOP_MIN_MS:
        return False
    alike = [s for s in spans if abs(s.took_ms - usual) <= _SAME_RATIO * usual and s.gap_ms <= _AT_ONCE_RATIO * usual]
    # A barrier may come before the work begins, when the completion of the checkpoint before it is late.
    are_same = len(alike) >= _SAME_OF_ALL_RATIO * len(spans)
    above = [case.loads[v] for v in case.evidence.topology.upstream(vertex_id) if v in case.loads]
    held = [highest_of(load.backpressured) for load in above]
    return are_same and bool(held) and all(one is not None and one <= BACKPRESSURED_OK_RATIO for one in held)


def _is_of_one_record(case: Case, vertex_id: VertexId, load: VertexLoad, spans: Sequence[_Span]) -> bool:
    """Return whether the counts show that a record takes about as long as the usual span.

    Then each barrier may wait for the record in work, and the completion has nothing to do with it.
    """
    usual = median(s.took_ms for s in spans) or 0.0
    busy = mean_of(load.busy[list(load.full_subtasks)]) if load.has_busy else None
    piece = piece_of_work.of_counts(case, vertex_id, load.full_subtasks, busy)
    if piece is None or piece.is_without_record:
        return False
    return PHASE_MIN_RATIO * usual <= piece.record_ms <= usual / PHASE_MIN_RATIO


def _without_acknowledgement(subtasks: tuple[int, ...], spans: Sequence[_Span]) -> tuple[int, ...]:
    """Return those of the subtasks that acknowledged none of the expired checkpoints, as far as these are known."""
    seen = [one for s in spans for one in s.pending]
    return tuple(i for i in subtasks if all(i in one for one in seen)) if len(seen) >= _BRIDGED_MIN else ()


def _reads_on(case: Case, vertex_id: VertexId, subtasks: tuple[int, ...], spans: Sequence[_Span]) -> bool:
    """Return whether the subtasks are known to read many records in the times in which they are said to work.

    Only the first half of each time counts: in the second half, they may already process the queue that has grown
    meanwhile. The time after the newest completion counts too.
    """
    usual = median(s.took_ms for s in spans) or 0.0
    ends = [
        c.header.triggered_at + timedelta(milliseconds=c.header.end_to_end_duration_ms)
        for c in case.evidence.checkpoints
        if c.header.status is CheckpointStatus.COMPLETED and c.header.end_to_end_duration_ms is not None
    ]
    begins = [*((s.began_at, s.took_ms) for s in spans), *((at, usual) for at in ends[-1:])]
    # The value of a reading may be from before the completion.
    old = timedelta(seconds=freshness.doubt_s(case.evidence))
    halves = [(at + old, at + timedelta(milliseconds=took_ms / 2)) for at, took_ms in begins]
    reads = barrier_waits.reads_in(case, vertex_id, subtasks, halves, overlap_min=1.0)
    return reads is not None and not reads.are_few


def _tell_work(case: Case, work: _Work) -> Verdict:
    vertex_id, subtasks, spans = work.vertex_id, work.subtasks, work.spans
    where = say.where(case.name(vertex_id), subtasks, case.subtask_count(vertex_id))
    usual = median(s.took_ms for s in spans) or 0.0
    are_bridged = any(s.expired_ms for s in spans)
    works, lets = ("works", "lets") if len(subtasks) == 1 else ("work", "let")
    return draft(
        case,
        VerdictKind.COMMIT,
        f"{where} {works} about {say.duration(usual)} after each completed checkpoint and {lets} no barrier through"
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
            *(_bridged_rows(where, spans) if are_bridged else _same_rows(spans)),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=weaker(case.confidence, Confidence.MEDIUM),
    )


def _bridged_rows(where: str, spans: Sequence[_Span]) -> list[Evidence]:
    text = f"{where}: longest wait of a barrier of the checkpoints that began later and completed"
    return [
        rows.number(text, "start_delay", max(s.wait_ms for s in spans), "ms"),
        rows.note("in a queue, a barrier that begins later does not wait for a shorter time"),
    ]


def _same_rows(spans: Sequence[_Span]) -> list[Evidence]:
    usual = median(s.took_ms for s in spans) or 0.0
    text = "how far these times are from their median, median"
    return [
        rows.reconstructed(text, "start_delay", median(abs(s.took_ms - usual) for s in spans) or 0.0, "ms"),
        rows.note("nothing is back-pressured, and a queue does not have the same length in each checkpoint"),
    ]


AFTER_COMPLETIONS = Rule("work after each completion", Explains.WAY, (SUFFERING,), _find_work, _tell_work)
