"""Rules about the barrier's way: a source that is late, a vertex or subtask that is full, and the way itself."""

from __future__ import annotations

from backend.analysis import rows, travel
from backend.analysis import sentences as say
from backend.analysis.case import Case
from backend.analysis.pressure import Suspect
from backend.analysis.statistics import highest, median
from backend.analysis.thresholds import BACKPRESSURED_HIGH_RATIO
from backend.analysis.verdict_draft import are, draft, parallelism, weaker
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Phase, Verdict, VerdictKind

_LATE_NAMED_MAX = 4


def late_source(case: Case) -> Verdict | None:
    """A source whose own barrier enters late, without being held back itself."""
    if not case.is_suffering:
        return None
    late = travel.late_source(case.evidence.topology, case.long_ones)
    if late is None:
        return None
    load = case.loads.get(late.vertex_id)
    held = highest(load.backpressured) if load is not None else None
    if held is not None and held >= BACKPRESSURED_HIGH_RATIO:
        # A source held back hard cannot take the trigger either: whoever holds it back is the one to name.
        return None
    vertex = case.name(late.vertex_id)
    where = say.where(vertex, late.subtasks, parallelism(case, late.vertex_id))
    below = say.listed([case.name(v) for v in case.evidence.topology.downstream(late.vertex_id)])
    waits = f", and {below} waits for it" if below else ""
    return draft(
        case,
        VerdictKind.LATE_INPUT,
        f"{where} let{'s' if len(late.subtasks) == 1 else ''} the barrier into the job only "
        f"{say.duration(late.start_delay_ms)} after the trigger{waits}: the input is late, not what is below it",
        vertex_id=late.vertex_id,
        subtasks=late.subtasks,
        phase=Phase.START_DELAY,
        evidence=[
            rows.number(f"{vertex}: largest start delay, mean", "start_delay", late.start_delay_ms, "ms"),
            rows.number("checkpoints in which it entered late", "start_delay", late.checkpoint_count, "count"),
            *rows.fare(case),
            *rows.calm(case),
        ],
    )


def by_pressure(case: Case) -> Verdict | None:
    """A full subtask below something held back, whether or not the checkpoints suffer from it."""
    suspect = case.suspect
    if suspect is None:
        return None
    is_undecided = suspect.kind is VerdictKind.UNDECIDED
    is_whole = suspect.kind is VerdictKind.CAPACITY
    return draft(
        case,
        suspect.kind,
        _arrival_and_guilt(case, suspect),
        vertex_id=suspect.vertex_id,
        subtasks=tuple(range(parallelism(case, suspect.vertex_id))) if is_whole else suspect.full,
        phase=case.travel_phase,
        evidence=[
            *rows.load(case, suspect),
            *rows.travel(case, suspect.vertex_id),
            *rows.lateness(case, suspect.vertex_id),
            *rows.late(case, suspect.vertex_id),
            *rows.fare(case),
            *rows.persistence(case, suspect.vertex_id),
            *rows.hiding(case),
            *rows.broadcast(case, suspect.vertex_id),
            *([] if case.apart is None else [rows.note(case.apart)]),
        ],
        confidence=_confidence(case, suspect),
        would_decide=("records read by each subtask, from readings a minute apart",)
        if is_undecided or suspect.is_contradicted
        else (),
    )


def by_travel(case: Case) -> Verdict | None:
    """For want of readings: the lowest vertex before which the barrier met a queue."""
    if case.loads or not case.is_suffering:
        return None
    hop = travel.lowest_long_hop(travel.hops(case.evidence.topology, case.long_ones))
    if hop is None:
        return None
    vertex, total, waiting = case.name(hop.vertex_id), len(hop.hop_ms), hop.long_subtasks
    is_most = len(waiting) * 2 > total
    queue = (
        f"the barrier spends up to {say.duration(hop.longest_ms)} in the queues before {vertex} "
        f"{say.subtasks(waiting, total)}"
    )
    answer = (
        "and not below it, so most likely the vertex is at capacity, but no back-pressure could be read"
        if is_most
        else "but without back-pressure readings it is open whether the vertex or one subtask is the cause"
    )
    return draft(
        case,
        VerdictKind.CAPACITY if is_most else VerdictKind.UNDECIDED,
        f"{queue}, {answer}",
        vertex_id=hop.vertex_id,
        subtasks=tuple(range(total)) if is_most else waiting,
        phase=case.travel_phase,
        evidence=[
            rows.reconstructed(f"{vertex}: longest hop of the barrier, mean", "start_delay", hop.longest_ms, "ms"),
            rows.reconstructed(f"{vertex}: subtasks with a long hop, of {total}", "start_delay", len(waiting), "count"),
            *rows.travel(case, hop.vertex_id),
            *rows.late(case, hop.vertex_id),
            *rows.fare(case),
        ],
        confidence=Confidence.LOW,
        would_decide=("back-pressure of each vertex, read while the job runs", "records read by each subtask"),
    )


def _arrival_and_guilt(case: Case, suspect: Suspect) -> str:
    arrival = _arrival(case, suspect.vertex_id) if case.is_suffering else None
    if arrival is None:
        return _guilt(case, suspect, case.name(suspect.vertex_id))
    return f"{arrival}; {_guilt(case, suspect, 'the vertex')}"


def _guilt(case: Case, suspect: Suspect, vertex: str) -> str:
    who = say.subtasks(suspect.full, parallelism(case, suspect.vertex_id))
    busy = say.percent(suspect.busy)
    feeder = case.name(suspect.feeder_id)
    behind = f"while {feeder} before it is back-pressured {say.percent(suspect.feeder_backpressured)}"
    if suspect.queue_ms is not None:
        behind = f"while the barrier spends {say.duration(suspect.queue_ms)} in the queue before it"
    if suspect.kind is VerdictKind.CAPACITY:
        if parallelism(case, suspect.vertex_id) == 1:
            return f"{vertex} is at capacity: its only subtask is busy {busy}, {behind}"
        if suspect.siblings_busy is not None:
            busy = f"{busy} and the others {say.percent(suspect.siblings_busy)}"
        return f"{vertex} is at capacity, not one subtask: {who} {are(suspect.full)} busy {busy}, {behind}"
    whose = f"its {who}" if vertex == "the vertex" else f"{vertex} {who}"
    others = say.percent(suspect.siblings_busy or 0.0)
    return f"{whose} {are(suspect.full)} busy {busy}, the others only {others}, {behind}: {_one_subtask(case, suspect)}"


def _one_subtask(case: Case, suspect: Suspect) -> str:
    share, cost = suspect.share_ratio, suspect.cost_ratio
    if suspect.kind is VerdictKind.SKEW:
        if share is None or share == float("inf"):
            return "key skew, it gets all the records"
        return f"key skew, it gets {say.times(share)} the records of a sibling"
    if suspect.kind is VerdictKind.STRAGGLER and share is not None and cost is not None:
        hosts = case.evidence.hosts(suspect.vertex_id, suspect.full)
        at = f" on {say.listed(hosts)}" if hosts else ""
        return (
            f"a straggler, each record takes it {say.times(cost)} as long as a sibling at {say.times(share)} the "
            f"records, so it is a slow host or slow code{at} and not the keys"
        )
    return "whether it gets more records (skew) or is slower (straggler) is not told by what was read"


def _arrival(case: Case, vertex_id: VertexId) -> str | None:
    """When the barrier came to the vertex, as a clause; None where it is not known."""
    vertex, total = case.name(vertex_id), parallelism(case, vertex_id)
    for walked in reversed(case.walked):
        late = [
            (p.first_barrier_ms, p.subtask)
            for p in walked.phases.get(vertex_id, ())
            if not p.is_acknowledged and p.first_barrier_ms is not None
        ]
        if late:
            named = sorted(late)[-_LATE_NAMED_MAX:]
            times = say.listed([say.beside(ms, walked.duration_ms) for ms, _ in named])
            others = sum(not p.is_acknowledged for p in walked.phases[vertex_id]) - len(named)
            more = f" ({others} more had not acknowledged either)" if others else ""
            which = f"in checkpoint {walked.checkpoint.header.checkpoint_id} " if len(case.walked) > 1 else ""
            who = say.subtasks([i for _, i in named])
            return f"{which}the barrier reached {vertex} {who} only at {times}{more}"
    pending = [sum(not p.is_acknowledged for p in found) for found in case.subtasks_of(vertex_id)]
    waiting = median(n for n in pending if n)
    if waiting is not None and sum(n > 0 for n in pending) * 2 >= len(pending):
        if len(pending) > 1:
            return f"typically {waiting:.0f} of the {total} subtasks of {vertex} had not acknowledged"
        silent = [p.subtask for p in case.subtasks_of(vertex_id)[0] if not p.is_acknowledged]
        return f"no acknowledgement came from {say.where(vertex, silent, total)}"
    reached = median(highest(p.travel_ms for p in found) for found in case.subtasks_of(vertex_id))
    return None if reached is None else f"the barrier is through to {vertex} only after {say.duration(reached)}"


def _confidence(case: Case, suspect: Suspect) -> Confidence:
    if suspect.kind is VerdictKind.UNDECIDED:
        return Confidence.LOW
    # Where nothing suffers the readings alone tell, however few checkpoints there are.
    few = Confidence.MEDIUM if case.loads[suspect.vertex_id].reading_count < 2 else Confidence.HIGH
    base = weaker(few, case.confidence) if case.is_suffering or case.apart is not None else few
    is_clear = suspect.feeder_backpressured >= BACKPRESSURED_HIGH_RATIO and not suspect.is_contradicted
    return base if is_clear else weaker(base, Confidence.MEDIUM)
