"""The rule about a queue in which barriers wait, before a vertex that is full only while much input comes."""

from __future__ import annotations

from dataclasses import dataclass

from backend.analysis.measures import hosts, travel
from backend.analysis.measures.pressure import Suspect, suspect_of
from backend.analysis.measures.travel import Hop
from backend.analysis.numbers.arrays import highest_of, indices_of, mean_of
from backend.analysis.verdict import barrier as verdict_barrier
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import draft, weaker
from backend.analysis.verdict.rule import NOT_FULL, READ, STRUCK, SUFFERING, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import (
    BACKPRESSURED_MIN_RATIO,
    HOP_MIN_MS,
    SIBLINGS_BUSY_RATIO,
    STANDOUT_RATIO,
)
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Verdict, VerdictKind


@dataclass(frozen=True, slots=True)
class _Queue:
    """A queue in which barriers wait: the hop, and the vertex and subtasks that do not work it off in time."""

    hop: Hop
    suspect: Suspect
    waiting: tuple[int, ...]


def _find_queue(case: Case) -> _Queue | None:
    """Return the queue in which barriers wait long, before a vertex that is not always full.

    This is so if the input comes in bursts. Averages of a minute then show the vertex as idle most of the time, so the
    time of the barrier decides, and the readings decide between one slow subtask and a slow vertex. If the vertex is
    held back by a busier one below it, that one is named: it fills the queues above it.
    """
    hop = travel.lowest_long_hop(travel.hops(case.evidence.topology, case.long_ones))
    if hop is None or hop.vertex_id not in case.loads:
        return None
    named_id = _holder_of(case, hop.vertex_id)
    load = case.loads[named_id]
    feeders = [u for u in case.evidence.topology.upstream(named_id) if u in case.loads]
    most = max(feeders, key=lambda u: highest_of(case.loads[u].backpressured) or 0.0, default=None)
    if most is None:
        return None
    waiting = indices_of(hop.hop_ms >= max(HOP_MIN_MS, STANDOUT_RATIO * hop.longest_ms))
    if named_id != hop.vertex_id:
        waiting = indices_of(load.busy >= STANDOUT_RATIO * (highest_of(load.busy) or 0.0))
    rest = [i for i in load.known_subtasks if i not in waiting]
    if (mean_of(load.busy[list(waiting)]) or 0.0) < (mean_of(load.busy[rest]) or 0.0):
        # The subtasks with a queue are less busy than their siblings, so they do not work off the queue.
        return None
    held = highest_of(case.loads[most].backpressured) or 0.0
    return _Queue(hop, suspect_of(load, waiting, (most, held)), waiting)


def _tell_queue(case: Case, queue: _Queue) -> Verdict:
    hop, suspect, waiting, named_id = queue.hop, queue.suspect, queue.waiting, queue.suspect.vertex_id
    slow = hosts.slow_host(case.evidence, case.loads, named_id, waiting)
    if slow is not None and suspect.kind is VerdictKind.STRAGGLER:
        return verdict_barrier.tell_slow_host(case, verdict_barrier.OnHost(suspect, slow))
    vertex, total = case.name(named_id), case.subtask_count(named_id)
    # Between the bursts all subtasks are idle, so the busy times are compared with each other and not with a limit.
    are_alike = 0 < SIBLINGS_BUSY_RATIO * suspect.busy <= (suspect.siblings_busy or 0.0)
    is_whole = suspect.kind is VerdictKind.CAPACITY or are_alike or len(waiting) * 2 > total
    kind = VerdictKind.CAPACITY if is_whole else suspect.kind
    where = vertex if is_whole else say.where(vertex, waiting, total)
    is_one = len(waiting) == 1
    why = {
        VerdictKind.CAPACITY: "it cannot keep up when much input comes",
        VerdictKind.SKEW: f"{'it gets' if is_one else 'they get'} more records than {'its' if is_one else 'their'}"
        " siblings (key skew)",
        VerdictKind.STRAGGLER: f"{'it needs' if is_one else 'they need'} longer for a record than"
        f" {'its' if is_one else 'their'} siblings (straggler)",
    }.get(kind, "because of key skew or of a straggler")
    return draft(
        case,
        kind,
        f"{_queue_text(case, hop, named_id, where=where, is_one=is_whole or is_one)}: {why}",
        vertex_id=named_id,
        subtasks=tuple(range(total)) if is_whole else waiting,
        phase=case.travel_phase,
        explained_ms=verdict_barrier.explained_ms(case, named_id),
        evidence=[
            rows.reconstructed(
                f"{case.name(hop.vertex_id)}: longest hop of the barrier, mean", "start_delay", hop.longest_ms, "ms"
            ),
            *rows.load(case, suspect),
            *rows.fare(case),
            *rows.travel(case, named_id),
            *rows.settings(case),
        ],
        confidence=weaker(case.confidence, Confidence.LOW if kind is VerdictKind.UNDECIDED else Confidence.MEDIUM),
        would_decide=("records read by each subtask, from readings a minute apart",)
        if kind is VerdictKind.UNDECIDED
        else (),
    )


QUEUE = Rule("queue of a burst", Explains.WAY, (SUFFERING, STRUCK, READ, NOT_FULL), _find_queue, _tell_queue)


def _holder_of(case: Case, vertex_id: VertexId) -> VertexId:
    """Return the vertex that holds this one back: the end of the way down on which each vertex is busier.

    The vertex itself is returned if nothing downstream holds it back.
    """
    while True:
        load = case.loads[vertex_id]
        busy = highest_of(load.busy) or 0.0
        below = {
            v: highest_of(case.loads[v].busy) or 0.0
            for v in case.evidence.topology.downstream(vertex_id)
            if v in case.loads
        }
        lower = max(below, key=lambda v: below[v], default=None)
        held = highest_of(load.backpressured) or 0.0
        if lower is None or held < BACKPRESSURED_MIN_RATIO or below[lower] <= busy:
            return vertex_id
        vertex_id = lower


def _queue_text(case: Case, hop: Hop, named_id: VertexId, *, where: str, is_one: bool) -> str:
    longest = say.duration(hop.longest_ms)
    if named_id == hop.vertex_id:
        return f"the barrier waits up to {longest} in the queue before {where}"
    front = case.name(hop.vertex_id)
    return f"{where} {'holds' if is_one else 'hold'} back {front}, and the barrier waits up to {longest} before {front}"
