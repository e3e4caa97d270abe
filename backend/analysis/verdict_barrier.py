"""Rules about the travel of the barrier: a late source, a full vertex or subtask, a long time in the queues."""

from __future__ import annotations

from backend.analysis import rows, travel
from backend.analysis import sentences as say
from backend.analysis.arrays import highest_of
from backend.analysis.case import Case
from backend.analysis.pressure import Suspect
from backend.analysis.thresholds import BACKPRESSURED_HIGH_RATIO
from backend.analysis.verdict_draft import are, draft, weaker
from backend.domain.verdict import Confidence, Evidence, Phase, Verdict, VerdictKind


def late_source(case: Case) -> Verdict | None:
    """Return the verdict if a source emits its barrier late although nothing holds the source back."""
    if not case.is_suffering:
        return None
    late = travel.late_source(case.evidence.topology, case.long_ones)
    if late is None:
        return None
    load = case.loads.get(late.vertex_id)
    held = highest_of(load.backpressured) if load is not None else None
    if held is not None and held >= BACKPRESSURED_HIGH_RATIO:
        # A source with this much back-pressure cannot process the trigger in time, so the cause is downstream of the
        # source.
        return None
    vertex = case.name(late.vertex_id)
    where = say.where(vertex, late.subtasks, case.subtask_count(late.vertex_id))
    below = [case.name(v) for v in case.evidence.topology.downstream(late.vertex_id)]
    waits = f"{say.listed(below)} {'waits' if len(below) == 1 else 'wait'} for its barrier"
    return draft(
        case,
        VerdictKind.LATE_INPUT,
        f"{where} emit{'s' if len(late.subtasks) == 1 else ''} the barrier only "
        f"{say.duration(late.start_delay_ms)} after the trigger: the delay is in the source, not below it",
        vertex_id=late.vertex_id,
        subtasks=late.subtasks,
        phase=Phase.START_DELAY,
        evidence=[
            rows.number(f"{vertex}: largest start delay, mean", "start_delay", late.start_delay_ms, "ms"),
            rows.number("checkpoints in which it emitted late", "start_delay", late.checkpoint_count, "count"),
            *([rows.note(waits)] if below else []),
            *rows.fare(case),
            *rows.calm(case),
            *rows.settings(case),
        ],
    )


def by_pressure(case: Case) -> Verdict | None:
    """Return the verdict if a full subtask is downstream of a back-pressured one, even if no checkpoint is late."""
    suspect = case.suspect
    if suspect is None:
        return None
    is_undecided = suspect.kind is VerdictKind.UNDECIDED
    is_whole = suspect.kind is VerdictKind.CAPACITY
    named = tuple(range(case.subtask_count(suspect.vertex_id))) if is_whole else suspect.full
    return draft(
        case,
        suspect.kind,
        reason(case, suspect),
        vertex_id=suspect.vertex_id,
        subtasks=named,
        phase=case.travel_phase,
        evidence=[
            *rows.load(case, suspect),
            *rows.arrival(case, suspect.vertex_id),
            *rows.hiding(case),
            *_meaning(case, suspect),
            *rows.fare(case),
            *rows.travel(case, suspect.vertex_id),
            *rows.lateness(case, suspect.vertex_id),
            *rows.late(case, suspect.vertex_id),
            *rows.persistence(case, suspect.vertex_id, named),
            *rows.broadcast(case, suspect.vertex_id),
            *([] if case.apart is None else [rows.note(case.apart)]),
            *rows.settings(case),
        ],
        confidence=_confidence(case, suspect),
        would_decide=("records read by each subtask, from readings a minute apart",)
        if is_undecided or suspect.is_contradicted
        else (),
    )


def by_travel(case: Case) -> Verdict | None:
    """Return the verdict if there are no readings of back-pressure: it names the most downstream vertex with a queue.

    A queue shows as a long hop of the barrier to the vertex.
    """
    if case.loads or not case.is_suffering:
        return None
    hop = travel.lowest_long_hop(travel.hops(case.evidence.topology, case.long_ones))
    if hop is None:
        return None
    vertex, total, waiting = case.name(hop.vertex_id), hop.hop_ms.size, hop.long_subtasks
    is_most = len(waiting) * 2 > total
    longest = say.duration(hop.longest_ms)
    text = f"the barrier waits up to {longest} in the queues before {say.where(vertex, waiting, total)}"
    if is_most:
        text = f"{vertex} is at capacity: the barrier waits up to {longest} in the queues before it"
    return draft(
        case,
        VerdictKind.CAPACITY if is_most else VerdictKind.UNDECIDED,
        text,
        vertex_id=hop.vertex_id,
        subtasks=tuple(range(total)) if is_most else waiting,
        phase=case.travel_phase,
        evidence=[
            rows.reconstructed(f"{vertex}: longest hop of the barrier, mean", "start_delay", hop.longest_ms, "ms"),
            rows.reconstructed(f"{vertex}: subtasks with a long hop, of {total}", "start_delay", len(waiting), "count"),
            rows.note("back-pressure could not be read: one slow subtask and a slow vertex look alike"),
            *rows.fare(case),
            *rows.travel(case, hop.vertex_id),
            *rows.late(case, hop.vertex_id),
            *rows.settings(case),
        ],
        confidence=Confidence.LOW,
        would_decide=("back-pressure of each vertex, read while the job runs", "records read by each subtask"),
    )


def reason(case: Case, suspect: Suspect) -> str:
    """Return the second part of the verdict's sentence: the culprit and the cause."""
    vertex, total = case.name(suspect.vertex_id), case.subtask_count(suspect.vertex_id)
    who, where = say.subtasks(suspect.full, total), say.where(vertex, suspect.full, total)
    busy, verb = say.percent(suspect.busy), are(suspect.full)
    others = say.percent(suspect.siblings_busy or 0.0)
    share, cost = suspect.share_ratio, suspect.cost_ratio
    if suspect.kind is VerdictKind.CAPACITY:
        if total == 1:
            return f"{vertex} is at capacity: its only subtask is busy {busy} of the time"
        rest = "" if suspect.siblings_busy is None else f" and the others {others}"
        return f"{vertex} is at capacity: {who} {verb} busy {busy}{rest} of the time"
    if suspect.kind is VerdictKind.SKEW:
        gets = "gets" if len(suspect.full) == 1 else "get"
        if share is None or share == float("inf"):
            return f"{where} {gets} all the records (key skew)"
        return f"{where} {gets} {say.times(share)} the records of a sibling (key skew)"
    if suspect.kind is VerdictKind.STRAGGLER and cost is not None:
        hosts = case.evidence.hosts(suspect.vertex_id, suspect.full)
        at = f" on {say.listed(hosts)}" if hosts else ""
        slow = f"{where}{at} {verb} slow"
        return f"{slow}: each record takes {say.times(cost)} as long as at a sibling (straggler)"
    return f"{where} {verb} busy {busy} of the time and the others {others}: key skew or a straggler"


def _meaning(case: Case, suspect: Suspect) -> list[Evidence]:
    """Return a row that explains the kind of the verdict, if it needs an explanation."""
    match suspect.kind:
        case VerdictKind.STRAGGLER:
            return [rows.note("a slow host or slow code, not key skew: its share of the records is too small for that")]
        case VerdictKind.UNDECIDED:
            return [rows.note("the readings do not show whether it gets more records or needs longer for each")]
        case _:
            return []


def _confidence(case: Case, suspect: Suspect) -> Confidence:
    if suspect.kind is VerdictKind.UNDECIDED:
        return Confidence.LOW
    # If the checkpoints neither fail nor take long, only the readings decide, and the number of checkpoints does not
    # matter.
    few = Confidence.MEDIUM if case.loads[suspect.vertex_id].reading_count < 2 else Confidence.HIGH
    base = weaker(few, case.confidence) if case.is_suffering or case.apart is not None else few
    is_clear = suspect.feeder_backpressured >= BACKPRESSURED_HIGH_RATIO and not suspect.is_contradicted
    return base if is_clear else weaker(base, Confidence.MEDIUM)
