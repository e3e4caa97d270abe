"""Rules about one piece of work that holds the thread of a task: a record or a split, a flush, work after a completion.

A task takes barriers in the thread that processes its records, and takes none in the middle of a piece of work. If a
piece takes seconds, the task is busy all the time and reads hardly a record. It differs from its neighbours:

* a vertex that lacks capacity reads many records, and each takes a short time;
* a subtask that is stuck in its sync part has forwarded the barrier, so the subtasks downstream acknowledge;
* a subtask whose snapshot is only being written goes on reading records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from backend.analysis.measures import freshness, pressure, travel
from backend.analysis.measures.pressure import VertexLoad
from backend.analysis.numbers.arrays import Floats, array_of, highest_of, indices_of, mean_of
from backend.analysis.numbers.statistics import known
from backend.analysis.verdict import barrier as verdict_barrier
from backend.analysis.verdict import barrier_waits
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import are, draft, weaker
from backend.analysis.verdict.last_subtask import last_of
from backend.analysis.verdict.rule import FULL, SUFFERING, WELL, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import (
    BACKPRESSURED_OK_RATIO,
    PHASE_MIN_RATIO,
    PIECE_MIN_MS,
    PRESSURE_WINDOW_S,
    QUEUED_MIN_COUNT,
    RATE_WINDOW_S,
    SLOW_TRAVEL_MS,
)
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.verdict import Confidence, Evidence, Phase, Verdict, VerdictKind

# With fewer records of a subtask, the time between two readings only bounds the time of one record.
_COUNTED_MIN = 5
# The engine's own rates are means over a minute.
_RATE_MEAN_S = 60.0
# The long records of such a suspect say more than that it is full. The cost for each record of a straggler, or of its
# slow host, is a cause already.
_LIKE_FULL = (VerdictKind.CAPACITY, VerdictKind.UNDECIDED)
# The reader of a list of splits is busy until the list ends, whatever its capacity.
_IS_LIST = "whether the records are a list that ends, such as splits: then each of them should be shorter"
_ENDS = "whether the records are a list that ends, such as splits: if it never ends, the vertex is at capacity"
DUMP = verdict_barrier.DUMP


@dataclass(frozen=True, slots=True)
class Piece:
    """How long one record holds subtasks of a vertex.

    It ``is_at_least`` this long if hardly a record was read and the engine reports no rate. ``wait_ms`` is the longest
    mean wait of a barrier in front of these subtasks. ``records`` were read in ``over_s`` seconds.
    """

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    record_ms: float
    is_at_least: bool
    wait_ms: float
    records: int
    over_s: float
    busy: float | None
    rate_per_s: float | None = None
    is_queued: bool = False
    """Whether the barrier waits for so many records, or records so short, that it helps to overtake them."""

    @property
    def is_without_record(self) -> bool:
        """Whether no record was read, so that even the kind of the work is not known."""
        return not self.records and not self.rate_per_s


def _find_piece(case: Case) -> Piece | None:
    """Return the piece of work that barriers wait for, at the most downstream vertex that has one.

    The piece is a single record, or work during which no record is read.
    """
    hops = {h.vertex_id: h.hop_ms for h in travel.hops(case.evidence.topology, case.long_ones)}
    lowest_first = [v.id for v in reversed(case.evidence.topology.vertices) if case.evidence.topology.upstream(v.id)]
    return next((p for v in lowest_first if (p := _piece_at(case, v, hops)) is not None), None)


def _tell_piece(case: Case, piece: Piece) -> Verdict:
    if piece.is_queued:
        return _tell_queued(case, piece)
    is_commit = piece.is_without_record and _may_commit(case, piece.vertex_id)
    return draft(
        case,
        VerdictKind.COMMIT if is_commit else VerdictKind.CALLBACK,
        _reason(case, piece, is_commit=is_commit),
        vertex_id=piece.vertex_id,
        subtasks=piece.subtasks,
        phase=Phase.START_DELAY,
        explained_ms=piece.wait_ms or verdict_barrier.explained_ms(case, piece.vertex_id),
        evidence=[
            *_piece_rows(case, piece),
            *rows.arrival(case, piece.vertex_id),
            *rows.fare(case),
            *rows.late(case, piece.vertex_id),
            *rows.settings(case),
        ],
        confidence=weaker(case.confidence, Confidence.LOW if piece.is_without_record else Confidence.MEDIUM),
        would_decide=(f"{DUMP}: is it in a record, in a commit, or in the sync part of its snapshot?",)
        if piece.is_without_record
        else (),
    )


def _tell_queued(case: Case, piece: Piece) -> Verdict:
    # The queue of a few subtasks does not show that the vertex lacks capacity.
    is_whole = len(piece.subtasks) == case.subtask_count(piece.vertex_id)
    verdict = draft(
        case,
        VerdictKind.CAPACITY if is_whole else VerdictKind.CALLBACK,
        _reason(case, piece, is_commit=False),
        vertex_id=piece.vertex_id,
        subtasks=piece.subtasks,
        phase=case.travel_phase,
        explained_ms=verdict_barrier.explained_ms(case, piece.vertex_id),
        evidence=[
            *_piece_rows(case, piece),
            *rows.arrival(case, piece.vertex_id),
            *rows.fare(case),
            *rows.late(case, piece.vertex_id),
            *rows.settings(case),
        ],
        confidence=weaker(case.confidence, Confidence.MEDIUM),
        would_decide=(_IS_LIST,),
    )
    return replace(verdict, last=last_of(case, piece.vertex_id)) if is_whole else verdict


def _piece_at(case: Case, vertex_id: VertexId, hops: dict[VertexId, Floats]) -> Piece | None:
    load = load_of(case, vertex_id)
    if load is None:
        return None
    hop = hops.get(vertex_id)
    least = max(PIECE_MIN_MS, min(SLOW_TRAVEL_MS, case.least_ms(case.typical_ms or 0.0)))
    is_suspect = case.suspect is not None and case.suspect.vertex_id == vertex_id
    if is_suspect and verdict_barrier.find_slow_host(case) is not None:
        # The records are long because of the host, as those of other vertices are there.
        return None
    # A task whose busy time is not reported may be busy, unless it reports back-pressure.
    full = load.full_subtasks if load.has_busy else indices_of(load.backpressured <= BACKPRESSURED_OK_RATIO)
    waiting = tuple(i for i in full if hop is not None and i < hop.size and hop[i] >= least)
    subtasks = full if is_suspect else waiting
    if not subtasks:
        return None
    wait_ms = 0.0 if hop is None else highest_of(hop[[i for i in subtasks if i < hop.size]]) or 0.0
    busy = mean_of(load.busy[list(subtasks)]) if load.has_busy else None
    found = of_counts(case, vertex_id, subtasks, busy)
    if found is None or (busy is None and found.is_without_record):
        return None
    piece = replace(found, wait_ms=wait_ms)
    if _is_queued(piece, least):
        is_named = is_suspect and case.suspect is not None and case.suspect.kind in _LIKE_FULL
        return replace(piece, is_queued=True) if is_named and piece.record_ms >= PIECE_MIN_MS else None
    return piece if _is_long(case, piece, least) else None


def _is_queued(piece: Piece, least: float) -> bool:
    """Return whether the barrier waits behind many queued records, each of which takes only a short time."""
    if piece.busy is None or piece.is_at_least or piece.record_ms >= SLOW_TRAVEL_MS:
        return False
    count = piece.wait_ms / piece.record_ms
    return count >= QUEUED_MIN_COUNT or (piece.record_ms < least and count * PHASE_MIN_RATIO >= 1)


def _is_long(case: Case, piece: Piece, least: float) -> bool:
    """Return whether a piece that is known to take a second takes ``least`` milliseconds, as far as that is known."""
    if not piece.is_at_least:
        return piece.record_ms >= least
    if not piece.is_without_record:
        # One record more may have been read between the readings, and none of the records took less than this. The
        # readings may lie too close together to show a long record, but all records since the task began may show it.
        is_shown = piece.record_ms * (1 + len(piece.subtasks) / piece.records) >= least
        return is_shown or has_hardly_read(case, piece.vertex_id, piece.subtasks, least)
    # Counters may not have changed by chance, or because they are not updated. A rate is a mean over a minute.
    is_shown = piece.rate_per_s == 0.0 or piece.record_ms >= SLOW_TRAVEL_MS
    return is_shown or has_hardly_read(case, piece.vertex_id, piece.subtasks, least)


def has_hardly_read(case: Case, vertex_id: VertexId, subtasks: Sequence[int], least_ms: float) -> bool:
    """Return whether each of the subtasks has read so few records since it began that one may take ``least_ms``."""
    begun, readings = _begun_at(case), newest(case, vertex_id)
    if begun is None or not readings:
        return False
    last = readings[-1]
    counts = known(last.records_in_count[i] for i in subtasks if i < len(last.records_in_count))
    if len(counts) < len(subtasks):
        return False
    return 1000 * (last.observed_at - begun).total_seconds() >= least_ms * max([*counts, 1.0])


def of_counts(case: Case, vertex_id: VertexId, subtasks: tuple[int, ...], busy: float | None) -> Piece | None:
    """Return how long a record takes, or None if the counts do not show that it takes long.

    The engine's own rate is a mean over a minute, so it is more exact than two counts that lie seconds apart.
    """
    readings = newest(case, vertex_id)
    pairs = list(barrier_waits.records_between(readings, subtasks))
    seconds = sum((after - before).total_seconds() for before, after, _ in pairs)
    count = sum(records for *_, records in pairs)
    doubt_s = freshness.doubt_s(case.evidence)
    certain_s = seconds - doubt_s
    rate = _rate_of(readings, subtasks)
    if certain_s <= 0:
        return _of_one_reading(case, vertex_id, subtasks, busy, rate)
    # Without a rate, the counts must show that a record takes long. With one, they must not contradict it.
    longest_s = seconds + doubt_s if rate else certain_s
    if count and 1000 * longest_s * len(subtasks) / count < PIECE_MIN_MS:
        return None
    each, spent = count / len(subtasks), 1.0 if busy is None else busy
    is_at_least = not rate and each < _COUNTED_MIN
    if rate:
        record_ms = 1000 * spent / rate
    elif count:
        # If a record took less than this, one more would have been read.
        record_ms = 1000 * spent * (certain_s / (each + 1) if is_at_least else seconds / each)
    else:
        record_ms = 1000 * (certain_s if rate is None else max(certain_s, _RATE_MEAN_S))
    return Piece(vertex_id, subtasks, record_ms, is_at_least, 0.0, round(count), seconds, busy, rate)


def _rate_of(readings: Sequence[VertexPressure], subtasks: tuple[int, ...]) -> float | None:
    """Return the mean of the engine's own rates of the subtasks, in records a second; None if one is missing."""
    if not readings:
        return None
    rates = [r for i in subtasks if i < len(readings[-1].records_in_per_s) for r in [readings[-1].records_in_per_s[i]]]
    return mean_of(array_of(rates)) if len(known(rates)) == len(subtasks) else None


def _of_one_reading(
    case: Case, vertex_id: VertexId, subtasks: tuple[int, ...], busy: float | None, rate: float | None
) -> Piece | None:
    """Return how long a record takes by the engine's rate alone, if all records since the task began confirm it.

    A counter may stand still between two readings only because it is not updated. Since the task began, it was.
    """
    begun, readings = _begun_at(case), newest(case, vertex_id)
    if begun is None or not readings or not rate or busy is None:
        return None
    counts = known(readings[-1].records_in_count[i] for i in subtasks if i < len(readings[-1].records_in_count))
    lasted_s = (readings[-1].observed_at - begun).total_seconds()
    if lasted_s < _RATE_MEAN_S or len(counts) < len(subtasks) or 1000 * lasted_s < PIECE_MIN_MS * max([*counts, 1]):
        return None
    return Piece(vertex_id, subtasks, 1000 * busy / rate, False, 0.0, round(sum(counts)), lasted_s, busy, rate)


def newest(case: Case, vertex_id: VertexId) -> list[VertexPressure]:
    """Return the newest readings of a vertex, oldest first."""
    own = [r for r in case.readings if r.vertex_id == vertex_id]
    return [r for r in own if (own[-1].observed_at - r.observed_at).total_seconds() <= PRESSURE_WINDOW_S]


def load_of(case: Case, vertex_id: VertexId) -> VertexLoad | None:
    """Return the load of a vertex, also if it looks like one that is not set yet but the task has run for long.

    A task shows as always busy in its first seconds, and so does one that a single piece of work holds.
    """
    load = case.loads.get(vertex_id)
    if load is not None:
        return load
    begun, readings = _begun_at(case), newest(case, vertex_id)
    if begun is None or not readings or (readings[0].observed_at - begun).total_seconds() < RATE_WINDOW_S:
        return None
    return pressure.vertex_loads(readings).get(vertex_id)


def _begun_at(case: Case) -> datetime | None:
    """Return when the tasks of the job last began, as far as it is known."""
    begun = case.evidence.started_at
    return None if begun is None else max([begun, *(at for at, _ in case.evidence.exceptions)])


def _may_commit(case: Case, vertex_id: VertexId) -> bool:
    """Return whether the vertex is a sink of a job whose checkpoints complete. Without a completion, none commits."""
    is_completed = any(c.header.status is CheckpointStatus.COMPLETED for c in case.evidence.checkpoints)
    return is_completed and not case.evidence.topology.downstream(vertex_id)


def _reason(case: Case, piece: Piece, *, is_commit: bool) -> str:
    where = say.where(case.name(piece.vertex_id), piece.subtasks, case.subtask_count(piece.vertex_id))
    is_one = len(piece.subtasks) == 1
    took = f"{'at least' if piece.is_at_least else 'about'} {say.duration(piece.record_ms)}"
    if not piece.is_without_record:
        each = f"{where} {are(piece.subtasks)} busy for {took} with each record"
        if piece.is_queued:
            return f"{each}, and the barrier waits up to {say.duration(piece.wait_ms)} behind the queued ones"
        return f"{each}, and no barrier gets through meanwhile"
    has, it = ("has", "it") if is_one else ("have", "they")
    # A shorter time only shows how far apart the readings were.
    read = f"no record for {took}" if piece.record_ms >= SLOW_TRAVEL_MS else f"hardly a record since {it} began"
    what = (
        "work after a completed checkpoint, such as a commit or a compaction, holds the thread"
        if is_commit
        else "a record takes long, or a timer, a flush or other work holds the thread"
    )
    waits = f", and the barrier waits up to {say.duration(piece.wait_ms)}" if piece.wait_ms else ""
    return f"{where} {are(piece.subtasks)} busy but {has} read {read}: {what}{waits}"


def _piece_rows(case: Case, piece: Piece) -> list[Evidence]:
    where = say.where(case.name(piece.vertex_id), piece.subtasks, case.subtask_count(piece.vertex_id))
    text = f"{where}: time for one record, from its busy time (if reported) and the records that it read"
    if piece.is_without_record:
        text = f"{where}: time without a record, although it was busy"
    row = rows.reconstructed(text, "busyRatio / numRecordsIn", piece.record_ms, "ms")
    over = say.duration(1000 * piece.over_s)
    return [
        replace(row, is_lower_bound=piece.is_at_least),
        rows.number(f"{where}: records read in {over}", "numRecordsIn", piece.records, "count"),
        *([] if piece.busy is None else [rows.number(f"{where} busy", "busyRatio", piece.busy, "ratio")]),
        rows.note(
            "a barrier that overtakes the queue still waits for the record in work"
            if piece.is_queued
            else "a vertex that lacks capacity reads many records in this time, and each takes a short time"
        ),
    ]


LONG_PIECE = Rule("long piece of work", Explains.WAY, (SUFFERING,), _find_piece, _tell_piece)


def queued_before(case: Case, verdict: Verdict) -> Piece | None:
    """Return the long records behind which the barriers wait at the subtasks of the verdict; None if there are none."""
    piece = _find_piece(case) if verdict.kind is VerdictKind.CALLBACK and case.is_suffering else None
    is_same = piece is not None and (piece.vertex_id, piece.subtasks) == (verdict.vertex_id, verdict.subtasks)
    return piece if piece is not None and piece.is_queued and is_same else None


def _find_lasting(case: Case) -> Piece | None:
    """Return the long records of full subtasks that hold back the vertices above them, if no checkpoint is late."""
    suspect = case.suspect
    if suspect is None or suspect.kind not in _LIKE_FULL:
        return None
    load = load_of(case, suspect.vertex_id)
    busy = mean_of(load.busy[list(suspect.full)]) if load is not None and load.has_busy else None
    found = None if busy is None else of_counts(case, suspect.vertex_id, suspect.full, busy)
    return found if found is not None and _is_long(case, found, PIECE_MIN_MS) else None


def _tell_lasting(case: Case, piece: Piece) -> Verdict:
    # Some full subtasks do not show that the vertex lacks capacity.
    is_whole = len(piece.subtasks) == case.subtask_count(piece.vertex_id)
    where = say.where(case.name(piece.vertex_id), piece.subtasks, case.subtask_count(piece.vertex_id))
    return draft(
        case,
        VerdictKind.CALLBACK,
        f"{_lasts(piece, where)}, and each barrier waits for the end of such work",
        vertex_id=piece.vertex_id,
        subtasks=piece.subtasks,
        evidence=[
            *_piece_rows(case, piece),
            *rows.arrival(case, piece.vertex_id),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=weaker(case.confidence, Confidence.LOW if piece.is_without_record else Confidence.MEDIUM),
        would_decide=(_ENDS if is_whole else DUMP,),
    )


def _lasts(piece: Piece, where: str) -> str:
    took = f"{'at least' if piece.is_at_least else 'about'} {say.duration(piece.record_ms)}"
    if piece.is_without_record:
        return f"{where} {are(piece.subtasks)} busy all the time and read no record for {took}"
    return f"{where} {are(piece.subtasks)} busy for {took} with each record"


LASTING_PIECES = Rule(
    "long pieces of work, no checkpoint is late", Explains.WAY, (WELL, FULL), _find_lasting, _tell_lasting
)
