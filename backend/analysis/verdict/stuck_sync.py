"""The rule about a sync part that does not end: the subtask took the barrier, and reads no records since."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

from backend.analysis.measures import pressure, snapshots
from backend.analysis.measures.snapshots import Unanswered
from backend.analysis.numbers.arrays import highest_of
from backend.analysis.numbers.statistics import highest, known, median
from backend.analysis.verdict import barrier_waits, piece_of_work
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict import snapshot as verdict_snapshot
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import are, draft
from backend.analysis.verdict.rule import WAITING, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import BUSY_MIN_RATIO, HOP_MIN_MS, PIECE_MIN_MS
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.verdict import Confidence, Phase, Verdict, VerdictKind

# So many earlier checkpoints show how soon a sink takes a barrier.
_EARLIER_MIN = 2
# A busy ratio that is averaged over a minute grows by this much in two seconds.
_BUSIER_MIN = 0.03


@dataclass(frozen=True, slots=True)
class _Stuck:
    """The subtasks that do not end their sync part."""

    vertex_id: VertexId
    subtasks: tuple[int, ...]


def _find_stuck(case: Case) -> _Stuck | None:
    """Return the subtasks that do not end their sync part.

    It forwards the barrier before the sync part, so all other subtasks acknowledge, also those downstream of it. Its
    snapshot does not reach the store then, which looks like a slow store. But a subtask whose snapshot is only being
    written goes on reading records, and this one stands still. It is busy meanwhile: one that waits for records, such
    as between two bursts of the input, stands still too.
    """
    first = [snapshots.unanswered(case.evidence.topology, [one], has_readings=True) for one in case.waiting]
    found = next((one for one in first if one is not None), None)
    stuck = () if found is None else still_at_work(case, found.vertex_id, found.subtasks)
    if found is None or not stuck or not _is_forwarded(case, found.vertex_id, stuck):
        return None
    return _Stuck(found.vertex_id, stuck)


def _tell_stuck(case: Case, at: _Stuck) -> Verdict:
    stuck = at.subtasks
    vertex, total = case.name(at.vertex_id), case.subtask_count(at.vertex_id)
    where = say.where(vertex, stuck, total)
    it, has = ("it", "has") if len(stuck) == 1 else ("they", "have")
    is_sink = not case.evidence.topology.downstream(at.vertex_id)
    is_source = not case.evidence.topology.upstream(at.vertex_id)
    moved, counter = ("emitted", "numRecordsOut") if is_source else ("read", "numRecordsIn")
    is_met = not is_sink or _has_met_barrier(case, at.vertex_id, stuck)
    shown = f"{it} took earlier barriers at once" if is_sink else f"{it} forwarded the barrier"
    sign = f"all other subtasks acknowledged a checkpoint, also those downstream of {vertex}"
    if is_sink:
        sign = "all other subtasks acknowledged a checkpoint, and nothing is downstream of this vertex"
    return draft(
        case,
        VerdictKind.SYNC,
        f"{where} {are(stuck)} stuck in the sync part: {shown} and {has} {moved} no records since",
        vertex_id=at.vertex_id,
        subtasks=stuck,
        phase=Phase.SYNC,
        explained_ms=case.typical_ms,
        evidence=[
            rows.number(f"{where}: records {moved} between the readings, while it was busy", counter, 0, "count"),
            *([rows.note(sign)] if _is_alone(case, at.vertex_id, stuck) else []),
            *rows.fare(case),
            *rows.late(case, at.vertex_id),
            *rows.calm(case),
            *rows.settings(case),
        ],
        confidence=Confidence.MEDIUM if is_met else Confidence.LOW,
        would_decide=()
        if is_met
        else (f"{piece_of_work.DUMP}: is it in a record, or in the sync part of its snapshot?",),
    )


STUCK_SYNC = Rule("stuck sync part", Explains.WAY, (WAITING,), _find_stuck, _tell_stuck)


def _is_alone(case: Case, vertex_id: VertexId, subtasks: tuple[int, ...]) -> bool:
    """Return whether all other subtasks are known to have acknowledged one of the checkpoints that wait."""
    known_ids = {v.id for v in case.evidence.topology.vertices}
    return any(
        known_ids.issubset(phases)
        and all(set(p.pending) <= (set(subtasks) if v == vertex_id else set()) for v, p in phases.items())
        for phases, _ in case.waiting
    )


def _is_forwarded(case: Case, vertex_id: VertexId, subtasks: tuple[int, ...]) -> bool:
    """Return whether the barrier is known to have reached these subtasks, and to have gone on from them.

    While a subtask holds a barrier back, no subtask downstream acknowledges, so acknowledgements there prove that it
    was forwarded. Nothing is downstream of a sink. For a sink, it is enough that its first barriers were seen. It is
    also enough that the sink took earlier barriers at once and the vertices upstream acknowledged these checkpoints:
    the first excludes work that lasts, and the second a record that suddenly hangs.
    """
    below = pressure.descendants(case.evidence.topology, vertex_id)
    if below:
        return not _are_mostly_pending(case, below)
    if _has_met_barrier(case, vertex_id, subtasks):
        return True
    above = pressure.ancestors(case.evidence.topology, vertex_id)
    return not _are_mostly_pending(case, above) and _took_barriers_at_once(case, vertex_id, subtasks)


def _are_mostly_pending(case: Case, vertices: Collection[VertexId]) -> bool:
    """Return whether some subtask of these vertices did not acknowledge, in most of the checkpoints that wait."""
    pending = [any(phases[v].pending for v in vertices if v in phases) for phases, _ in case.waiting]
    return sum(pending) * 2 > len(pending)


def _has_met_barrier(case: Case, vertex_id: VertexId, subtasks: tuple[int, ...]) -> bool:
    """Return whether a first barrier is known at one of the subtasks although the vertex did not acknowledge."""
    met = [p.first_barrier_ms[list(subtasks)] for w in case.walked if (p := w.phases.get(vertex_id)) and p.pending]
    return any(highest_of(one) is not None for one in met)


def _took_barriers_at_once(case: Case, vertex_id: VertexId, subtasks: tuple[int, ...]) -> bool:
    details = [
        detail
        for c in case.evidence.checkpoints
        if c.header.status is CheckpointStatus.COMPLETED and (detail := c.detail(vertex_id)) is not None
    ]
    delays = [highest(d.start_delay_ms[i] for i in subtasks if i < d.subtask_count) for d in details]
    usual = median(delays)
    return usual is not None and len(known(delays)) >= _EARLIER_MIN and usual < HOP_MIN_MS


def find_unanswered(case: Case) -> Unanswered | None:
    """Return the subtasks whose snapshots do not reach the store, unless they stand still at their work.

    A subtask whose snapshot is only being written goes on reading records. One that is always busy and has read hardly
    a record since it began may not even have taken the barrier.
    """
    found = verdict_snapshot.unanswered(case)
    if found is None:
        return None
    load = piece_of_work.load_of(case, found.vertex_id)
    is_full = load is not None and set(found.subtasks) <= set(load.full_subtasks)
    # A source reads no records from another task, so its count says nothing.
    is_fed = bool(case.evidence.topology.upstream(found.vertex_id))
    if is_fed and is_full and piece_of_work.has_hardly_read(case, found.vertex_id, found.subtasks, PIECE_MIN_MS):
        return None
    standing = still_at_work(case, found.vertex_id, found.subtasks)
    return None if len(standing) == len(found.subtasks) or _is_held_above(case, found.vertex_id) else found


UNANSWERED = Rule(
    "snapshot that does not arrive",
    Explains.THE_REST,
    (WAITING,),
    find_unanswered,
    verdict_snapshot.tell_unanswered,
)


def _is_held_above(case: Case, vertex_id: VertexId) -> bool:
    """Return whether a subtask upstream of the vertex did not acknowledge either, and stands still at its work."""
    for above in pressure.ancestors(case.evidence.topology, vertex_id):
        pending = {i for phases, _ in case.waiting if above in phases for i in phases[above].pending}
        if still_at_work(case, above, sorted(pending)):
            return True
    return False


def still_at_work(case: Case, vertex_id: VertexId, subtasks: Sequence[int]) -> tuple[int, ...]:
    """Return those of the subtasks that are busy but have read no record in the newest readings.

    A source reads no records from another task, so it stands still only if it is known to send none. A vertex without
    any other vertex never counts a record, so none of its subtasks is returned.
    """
    topology = case.evidence.topology
    if not topology.upstream(vertex_id) and not topology.downstream(vertex_id):
        return ()
    still = set(barrier_waits.still_subtasks(case, vertex_id))
    is_fed = bool(topology.upstream(vertex_id))
    readings = [r for r in case.readings if r.vertex_id == vertex_id] if still else []
    return tuple(i for i in subtasks if i in still and _is_at_work(readings, i, is_fed=is_fed))


def _is_at_work(of_vertex: Sequence[VertexPressure], subtask: int, *, is_fed: bool) -> bool:
    """Return whether a subtask was busy while its last readings show no record read, and sent no record meanwhile.

    An engine averages the busy time over up to a minute. So it may still be low, but then it grows.
    """
    readings = [r for r in of_vertex if subtask < len(r.records_in_count)]
    last = readings[-1]
    same = takewhile(lambda r: r.records_in_count[subtask] == last.records_in_count[subtask], reversed(readings))
    *_, first = same
    sent = [r.records_out_count[subtask] for r in (first, last) if subtask < len(r.records_out_count)]
    if len(set(sent)) > 1 or (not is_fed and (not sent or None in sent)):
        # A source reads no records from another task, so only the records that it sends show that it goes on.
        return False
    busy = [r.busy_ratio[subtask] for r in (first, last) if subtask < len(r.busy_ratio)]
    before, now = busy[0] if busy else None, busy[-1] if busy else None
    if before is None or now is None:
        return False
    return now >= BUSY_MIN_RATIO or now >= before + _BUSIER_MIN
