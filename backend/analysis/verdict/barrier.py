"""Rules about the travel of the barrier: a late source, a full vertex or subtask, a slow host, a long hop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan

import numpy as np

from backend.analysis.measures import hosts, travel
from backend.analysis.measures.hosts import SlowHost, StillHost
from backend.analysis.measures.pressure import Suspect, VertexLoad
from backend.analysis.measures.travel import Hop, LateSource
from backend.analysis.numbers.arrays import highest_of
from backend.analysis.numbers.statistics import median
from backend.analysis.verdict import barrier_waits
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import are, draft, weaker
from backend.analysis.verdict.last_subtask import last_of
from backend.analysis.verdict.rule import FULL, SUFFERING, UNREAD, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import (
    BACKPRESSURED_HIGH_RATIO,
    BACKPRESSURED_OK_RATIO,
)
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Evidence, Phase, Verdict, VerdictKind

_HELD_ALWAYS_RATIO = 0.8
DUMP = "a thread dump of the task while a checkpoint is open"


def _find_late_source(case: Case) -> LateSource | None:
    """Return the source that emits its barrier late although nothing holds the source back."""
    late = travel.late_source(case.evidence.topology, case.long_ones, case.least_ms)
    if late is None:
        return None
    load = case.loads.get(late.vertex_id)
    held = None if load is None else highest_of(load.backpressured[[i for i in late.subtasks if i < load.busy.size]])
    if load is not None and held is not None and held >= BACKPRESSURED_HIGH_RATIO and not _is_held_alike(load, late):
        # A subtask with this much back-pressure cannot process the trigger in time, so the cause is downstream of it.
        return None
    return late


@dataclass(frozen=True, slots=True)
class _StillSource:
    """A source that emits its barrier late because its host stands still."""

    late: LateSource
    host: StillHost


def _find_still_host(case: Case) -> _StillSource | None:
    """Return the late source whose host stands still: the first barriers of all its subtasks are as late."""
    late = _find_late_source(case)
    if late is None:
        return None
    seen = [phases for phases, _ in case.long_ones]
    host = hosts.still_host(case.evidence, seen, late.vertex_id, late.subtasks, late.start_delay_ms)
    return None if host is None else _StillSource(late, host)


def _tell_still_host(case: Case, found: _StillSource) -> Verdict:
    late, host = found.late, found.host
    where = say.where(case.name(late.vertex_id), late.subtasks, case.subtask_count(late.vertex_id))
    others = say.listed([case.name(v) for v in host.vertices])
    emits = "emits its barrier" if len(late.subtasks) == 1 else "emit their barriers"
    return draft(
        case,
        VerdictKind.SLOW_HOST,
        f"host {host.host} stands still or cannot be reached for a while: {where} {emits} only"
        f" {say.duration(late.start_delay_ms)} after the trigger, and {others} on this host get none for as long,"
        " although the other hosts do",
        vertex_id=late.vertex_id,
        subtasks=late.subtasks,
        phase=Phase.START_DELAY,
        explained_ms=late.start_delay_ms,
        evidence=[
            rows.number(f"{where}: largest start delay, mean", "start_delay", late.start_delay_ms, "ms"),
            rows.number(f"{others}: earliest first barrier on {host.host}, median", "start_delay", host.there_ms, "ms"),
            rows.number(f"{others}: first barrier on the other hosts, median", "start_delay", host.elsewhere_ms, "ms"),
            rows.number(
                f"checkpoints in which all on {host.host} were late", "start_delay", host.checkpoint_count, "count"
            ),
            *rows.fare(case),
            *rows.calm(case),
            *rows.settings(case),
        ],
        # The queue of a single full subtask would look the same.
        confidence=case.confidence if len(host.vertices) > 1 else weaker(case.confidence, Confidence.MEDIUM),
        would_decide=(
            f"the garbage collection log of the TaskManager on {host.host}, and whether this host gave it CPU time and"
            " a connection",
        ),
    )


STILL_HOST = Rule("host that stands still", Explains.TRIGGERS, (SUFFERING,), _find_still_host, _tell_still_host)


def _tell_late_source(case: Case, late: LateSource) -> Verdict:
    vertex = case.name(late.vertex_id)
    where = say.where(vertex, late.subtasks, case.subtask_count(late.vertex_id))
    machines = case.evidence.hosts(late.vertex_id, late.subtasks)
    if (
        len(machines) == 1
        and len(case.evidence.hosts(late.vertex_id, tuple(range(case.subtask_count(late.vertex_id))))) > 1
    ):
        where = f"{where} on {say.hosts(machines)}"
    below = [case.name(v) for v in case.evidence.topology.downstream(late.vertex_id)]
    waits = f"{say.listed(below)} {'waits' if len(below) == 1 else 'wait'} for its barrier"
    return draft(
        case,
        VerdictKind.LATE_INPUT,
        f"{where} emit{'s' if len(late.subtasks) == 1 else ''} the barrier only "
        f"{say.duration(late.start_delay_ms)} after the trigger: the delay is in the source, and not downstream of it",
        vertex_id=late.vertex_id,
        subtasks=late.subtasks,
        phase=Phase.START_DELAY,
        explained_ms=late.start_delay_ms,
        evidence=[
            rows.number(f"{vertex}: largest start delay, mean", "start_delay", late.start_delay_ms, "ms"),
            rows.number("checkpoints in which it emitted late", "start_delay", late.checkpoint_count, "count"),
            *([rows.note(waits)] if below else []),
            *rows.fare(case),
            *rows.calm(case),
            *rows.settings(case),
        ],
    )


LATE_SOURCE = Rule("late source", Explains.TRIGGERS, (SUFFERING,), _find_late_source, _tell_late_source)


def _is_held_alike(load: VertexLoad, late: LateSource) -> bool:
    """Return whether other subtasks of the source are on time although they are held back as much as the late ones.

    A subtask that is held back nearly always may be late by chance, so it is not compared.
    """
    others = [i for i in load.known_subtasks if i not in late.subtasks]
    mine = [i for i in load.known_subtasks if i in late.subtasks]
    if not others or not mine or (highest_of(load.backpressured) or 0.0) >= _HELD_ALWAYS_RATIO:
        return False
    least = float(np.nanmin(load.backpressured[others]))
    return (highest_of(load.backpressured[mine]) or 0.0) <= least + BACKPRESSURED_OK_RATIO


@dataclass(frozen=True, slots=True)
class OnHost:
    """A full subtask that is slow because of its host, which is slow in other vertices too."""

    suspect: Suspect
    host: SlowHost


def find_slow_host(case: Case) -> OnHost | None:
    suspect = case.suspect
    if suspect is None or suspect.kind is not VerdictKind.STRAGGLER:
        return None
    slow = hosts.slow_host(case.evidence, case.loads, suspect.vertex_id, suspect.full)
    return None if slow is None else OnHost(suspect, slow)


def _find_suspect(case: Case) -> Suspect | None:
    """Return the full subtasks downstream of a back-pressured one, even if no checkpoint is late."""
    return case.suspect


def _tell_suspect(case: Case, suspect: Suspect) -> Verdict:
    is_undecided = suspect.kind is VerdictKind.UNDECIDED
    is_whole = suspect.kind is VerdictKind.CAPACITY
    named = tuple(range(case.subtask_count(suspect.vertex_id))) if is_whole else suspect.full
    verdict = draft(
        case,
        suspect.kind,
        reason(case, suspect),
        vertex_id=suspect.vertex_id,
        subtasks=named,
        phase=case.travel_phase,
        explained_ms=explained_ms(case, suspect.vertex_id),
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
        would_decide=(
            "records read by each subtask, from readings a minute apart",
            *([DUMP] if is_undecided and suspect.queue_ms is not None else []),
        )
        if is_undecided or suspect.is_contradicted
        else (f"{DUMP}: is the sink in a record, or in a commit?",)
        if _may_commit(case, suspect)
        else (),
    )
    return replace(verdict, last=last_of(case, suspect.vertex_id)) if is_whole else verdict


FULL_SUBTASKS = Rule("full vertex or subtask", Explains.WAY, (FULL,), _find_suspect, _tell_suspect)


def explained_ms(case: Case, vertex_id: VertexId) -> float | None:
    """Return how long the barrier took from the sources to the last subtask of a vertex: the median over checkpoints.

    A culprit holds back the vertices above it, so the time before them is due to it too.
    """
    if not case.is_suffering:
        return None
    topology = case.evidence.topology
    sources = [v.id for v in topology.vertices if not topology.upstream(v.id)]
    spent: list[float | None] = []
    for walked in case.walked:
        phases = walked.phases.get(vertex_id)
        if phases is None:
            continue
        begun = max(
            (highest_of(walked.phases[s].first_barrier_ms) or 0.0 for s in sources if s in walked.phases), default=0.0
        )
        travel_ms = phases.travel_ms
        # If the time of a subtask is missing (NaN), the maximum is missing too.
        reached = float(np.maximum.reduce(travel_ms)) if travel_ms.size else None
        if reached is not None and isnan(reached):
            reached = float(walked.duration_ms)
        spent.append(None if reached is None else max(0.0, reached - begun))
    return median(spent)


def tell_slow_host(case: Case, found: OnHost) -> Verdict:
    suspect, slow = found.suspect, found.host
    named = [case.name(v) for v in slow.cost_ratios]
    least = say.times(min(slow.cost_ratios.values()))
    return draft(
        case,
        VerdictKind.SLOW_HOST,
        f"host {slow.host} is slow: at {say.listed(named)}, a record takes at least {least} as long there as on other"
        " hosts",
        vertex_id=suspect.vertex_id,
        subtasks=suspect.full,
        phase=case.travel_phase,
        explained_ms=explained_ms(case, suspect.vertex_id),
        evidence=[
            *(
                rows.reconstructed(
                    f"{case.name(v)}: busy time per record on {slow.host}, divided by that on other hosts",
                    "busyRatio / numRecordsIn",
                    times,
                    "ratio",
                )
                for v, times in slow.cost_ratios.items()
            ),
            *rows.load(case, suspect),
            *rows.arrival(case, suspect.vertex_id),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=_confidence(case, suspect),
    )


SLOW_HOST = Rule("slow host", Explains.WAY, (FULL,), find_slow_host, tell_slow_host)


def _find_long_hop(case: Case) -> Hop | None:
    """Return the long hop of the barrier to the most downstream vertex with one: a queue shows as a long hop."""
    return travel.lowest_long_hop(travel.hops(case.evidence.topology, case.long_ones))


def _tell_long_hop(case: Case, hop: Hop) -> Verdict:
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
        explained_ms=hop.longest_ms,
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


LONG_HOP = Rule("long hop without readings", Explains.THE_REST, (UNREAD, SUFFERING), _find_long_hop, _tell_long_hop)


def reason(case: Case, suspect: Suspect) -> str:
    """Return the second part of the verdict's sentence: the culprit and the cause."""
    vertex, total = case.name(suspect.vertex_id), case.subtask_count(suspect.vertex_id)
    who, where = say.subtasks(suspect.full, total), say.where(vertex, suspect.full, total)
    busy, verb = say.percent(suspect.busy), are(suspect.full)
    others = say.percent(suspect.siblings_busy or 0.0)
    share, cost = suspect.share_ratio, suspect.cost_ratio
    when = "" if suspect.without is None else f" outside {suspect.without}"
    if suspect.kind is VerdictKind.CAPACITY:
        if total == 1:
            return f"{vertex} is at capacity: its only subtask is busy {busy} of the time{when}"
        rest = "" if suspect.siblings_busy is None else f" and the others {others}"
        last, often, one = last_of(case, suspect.vertex_id), "", ""
        if last is not None:
            one = f", and its subtask {last.subtask} gets the barrier last"
            often = f"; last in {last.last_count} of {say.checkpoints(last.checkpoint_count)}"
        return f"{vertex} is at capacity{one}: {who} {verb} busy {busy}{rest} of the time{when}{often}"
    if suspect.kind is VerdictKind.SKEW:
        gets = "gets" if len(suspect.full) == 1 else "get"
        if share is None or share == float("inf"):
            return f"{where} {gets} all the records (key skew)"
        return f"{where} {gets} {say.times(share)} the records of a sibling (key skew)"
    if suspect.kind is VerdictKind.STRAGGLER and cost is not None:
        machines = case.evidence.hosts(suspect.vertex_id, suspect.full)
        at = f" on {say.hosts(machines)}" if machines else ""
        slow = f"{where}{at} {verb} slow"
        return f"{slow}: each record takes {say.times(cost)} as long as at a sibling (straggler)"
    text = f"{where} {verb} busy {busy} of the time{when} and the others {others}"
    if suspect.queue_ms is not None:
        # A queue is one explanation. With nothing back-pressured, it may also be that there is none.
        return f"{text}, but nothing is back-pressured: one long piece of work, a straggler, or key skew"
    return f"{text}: key skew or a straggler"


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
    if suspect.without is not None or _may_commit(case, suspect):
        return weaker(case.confidence, Confidence.MEDIUM)
    # If the checkpoints neither fail nor take long, only the readings decide, and the number of checkpoints does not
    # matter.
    few = Confidence.MEDIUM if case.loads[suspect.vertex_id].reading_count < 2 else Confidence.HIGH
    base = weaker(few, case.confidence) if case.is_suffering or case.apart is not None else few
    is_clear = suspect.feeder_backpressured >= BACKPRESSURED_HIGH_RATIO and not suspect.is_contradicted
    return base if is_clear else weaker(base, Confidence.MEDIUM)


def _may_commit(case: Case, suspect: Suspect) -> bool:
    """Return whether the suspect may be a sink that only waits for its commits: it reads at changing rates."""
    is_whole = suspect.kind is VerdictKind.CAPACITY and case.is_suffering
    return is_whole and barrier_waits.may_follow_commits(case, suspect.vertex_id, suspect.full)
