"""Rules about subtasks that stand still: a long callback, a sink that waits for a commit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from backend.analysis.health.conditions import input_rates
from backend.analysis.measures.pressure import Suspect
from backend.analysis.numbers.arrays import array_of, highest_of
from backend.analysis.numbers.statistics import highest, known, median, quantile
from backend.analysis.verdict import barrier as verdict_barrier
from backend.analysis.verdict import barrier_waits
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.barrier_waits import Wait
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import are, draft, weaker
from backend.analysis.verdict.rule import FULL, SUFFERING, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import BACKPRESSURED_OK_RATIO, HOP_MIN_MS
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Evidence, Phase, Verdict, VerdictKind

# Two readings are inside a span if nearly all of the time between them is.
_INSIDE = 0.9
# A sink that reads at most this share of its usual records from a completion to the next barrier waits for its commit.
_STILL_RATIO = 0.2
_RATES_MIN = 4
# A source that emits less than this share of the input fills no queue.
_LARGE_RATIO = 0.1
# While a queue is worked off, a subtask reads at least this share of what it can read.
_QUEUE_RATIO = 0.75
# The input is steady if its rates differ from the median by at most this factor. Bursts differ by more.
_STEADY_TIMES = 1.25
# A vertex that is busy for at most this share of the time has room for a burst of its input.
_SPARE_RATIO = 0.6
# If it stands still in every checkpoint, it is busy with that. A queue that is there at every trigger needs more.
_SPARE_ALWAYS_RATIO = 0.75


@dataclass(frozen=True, slots=True)
class Stall:
    """A wait of barriers for subtasks that stand still, in a long callback or in a commit.

    ``before`` is the vertex in front of which the barriers wait. It is upstream of the vertex that stands still if that
    one holds it back. ``front`` is the vertex in front of which the time of ``wait`` was measured. ``is_to_last`` is
    whether the wait lasts until the last barrier, and not only until the first. ``no_queue`` is why no queue delayed
    the barriers, if the input shows it.
    """

    kind: VerdictKind
    wait: Wait
    before: VertexId
    front: VertexId
    is_to_last: bool
    no_queue: str | None = None


def stall_of(case: Case) -> Stall | None:
    """Return the wait of barriers for subtasks that stand still; None if there is none. It may be harmless."""
    lowest = barrier_waits.lowest_wait(case)
    if lowest is not None and lowest.stands_still:
        stall = Stall(VerdictKind.CALLBACK, lowest, lowest.vertex_id, lowest.vertex_id, is_to_last=False)
    elif (unexplained := _unexplained(case)) is not None:
        stall = unexplained
    else:
        return None
    is_sink = not case.evidence.topology.downstream(stall.wait.vertex_id)
    return replace(stall, kind=VerdictKind.COMMIT) if is_sink and _follows_completion(case, stall.wait) else stall


def _tell_stall(case: Case, stall: Stall) -> Verdict:
    kind, wait = stall.kind, stall.wait
    vertex, total = case.name(wait.vertex_id), case.subtask_count(wait.vertex_id)
    where = say.where(vertex, wait.subtasks, total)
    longest = say.duration(wait.longest_ms)
    stands, them = ("stands", "it") if len(wait.subtasks) == 1 else ("stand", "them")
    reason = (
        f"{where} {stands} still for up to {longest} in a long callback: a timer, a window or user code holds {them}"
    )
    if kind is VerdictKind.COMMIT:
        waits = "waits" if len(wait.subtasks) == 1 else "wait"
        reason = f"{where} {waits} up to {longest} for an outside commit: each wait follows a completed checkpoint"
    return draft(
        case,
        kind,
        reason,
        vertex_id=wait.vertex_id,
        subtasks=wait.subtasks,
        phase=Phase.START_DELAY,
        explained_ms=wait.longest_ms,
        evidence=[
            *_still_rows(case, stall, where),
            *rows.fare(case),
            *rows.travel(case, wait.vertex_id),
            *rows.calm(case),
            *rows.settings(case),
        ],
        confidence=case.confidence if wait.reads is not None and case.loads else Confidence.MEDIUM,
    )


STANDING_STILL = Rule("subtasks that stand still", Explains.WAY, (SUFFERING,), stall_of, _tell_stall)


@dataclass(frozen=True, slots=True)
class _Commit:
    """The sink that waits for outside commits, and the usual time from a completion to the next barrier."""

    suspect: Suspect
    usual_ms: float


def _find_commit(case: Case) -> _Commit | None:
    """Return the sink that waits for an outside commit from each completion to the next barrier.

    Such a sink is busy all the time, as one that lacks capacity. But it reads records only between the end of the
    commit and the barrier, so the number of records follows that of the barriers.
    """
    suspect = case.suspect
    if suspect is None or case.evidence.topology.downstream(suspect.vertex_id):
        return None
    spans: list[tuple[datetime, datetime]] = []

    def arrivals() -> list[datetime]:
        spans.extend(barrier_waits.completions_to_barriers(case, suspect.vertex_id))
        return [at for _, at in spans] if len(spans) >= barrier_waits.COMMITS_MIN else []

    if not barrier_waits.come_with_barriers(case, suspect.vertex_id, suspect.full, arrivals):
        return None
    usual = median((b - a) / timedelta(milliseconds=1) for a, b in spans) or 0.0
    return None if usual < HOP_MIN_MS else _Commit(suspect, usual)


def _tell_commit(case: Case, commit: _Commit) -> Verdict:
    suspect, usual = commit.suspect, commit.usual_ms
    vertex, total = case.name(suspect.vertex_id), case.subtask_count(suspect.vertex_id)
    where = say.where(vertex, suspect.full, total)
    waits = "waits" if len(suspect.full) == 1 else "wait"
    return draft(
        case,
        VerdictKind.COMMIT,
        f"{where} {waits} up to {say.duration(usual)} for an outside commit: each wait follows a completed checkpoint",
        vertex_id=suspect.vertex_id,
        subtasks=suspect.full,
        phase=Phase.START_DELAY,
        explained_ms=verdict_barrier.explained_ms(case, suspect.vertex_id),
        evidence=[
            rows.reconstructed(
                f"{where}: time from the completion of a checkpoint to the next barrier, median",
                "start_delay",
                usual,
                "ms",
            ),
            rows.note(f"{where} {are(suspect.full)} busy all the time, but read records only together with barriers"),
            *rows.load(case, suspect),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=weaker(case.confidence, Confidence.MEDIUM),
    )


COMMITTING = Rule("sink that waits for its commits", Explains.WAY, (SUFFERING, FULL), _find_commit, _tell_commit)


def _unexplained(case: Case) -> Stall | None:
    """Return the lowest wait if it has no reason but that a vertex stood still; None if there may have been a queue.

    The vertex has time to spare, and its sources emit as many records as ever, so no queue built up. Readings that
    are too far apart to show what it read while the barrier waited show this much. If the vertex is held back itself,
    the one that stood still is further downstream, and the result is about that one.
    """
    if case.suspect is not None or not case.readings:
        return None
    # If the vertex stands still now and then, the barriers of the struck checkpoints wait from the first one on. If it
    # does so always, it may be at the same time as the trigger, and the first barrier gets through.
    is_mixed = case.report.is_mixed
    wait = barrier_waits.lowest_wait(case, to_last=not is_mixed)
    if wait is None:
        return None
    if wait.reads is not None and (is_mixed or not wait.reads.are_few) and not _caught_up(case, wait):
        return None
    before = wait.vertex_id
    wait, front = _at_holder(case, wait)
    readings = [r for r in case.readings if r.vertex_id == wait.vertex_id]
    busy = [highest_of(array_of(r.busy_ratio)[list(wait.subtasks)]) for r in readings if r.busy_ratio]
    if not known(busy):
        return None
    spare_ratio = _SPARE_RATIO if is_mixed else _SPARE_ALWAYS_RATIO
    most_busy = quantile(busy, 0.9) or 0.0
    sources = _large_sources(case)
    if most_busy > _SPARE_ALWAYS_RATIO or not sources:
        return None
    if most_busy <= spare_ratio and all(_is_steady(rates) for rates in sources):
        said = "its input is steady"
    elif all(_is_only_held_back(rates, wait.peak_ms) for rates in sources):
        said = "its input falls behind for no longer than barriers waited"
    else:
        return None
    no_queue = f"{case.name(wait.vertex_id)} has time to spare and {said}, so no queue delayed the barriers"
    return Stall(VerdictKind.CALLBACK, wait, before, front, is_to_last=not is_mixed, no_queue=no_queue)


_Rates = list[tuple[datetime, datetime, float]]


def _large_sources(case: Case) -> list[_Rates]:
    """Return the rates between readings of every source that ever emits a tenth of the input or more.

    A source of which no or few rates were read may emit in bursts, so none is returned then.
    """
    topology = case.evidence.topology
    sources = [v.id for v in topology.vertices if not topology.upstream(v.id)]
    found = [input_rates([r for r in case.readings if r.vertex_id == v]) for v in sources]
    if any(len(rates) < _RATES_MIN for rates in found):
        return []
    total = sum(median(rate for *_, rate in rates) or 0.0 for rates in found)
    # A source that usually emits little may emit much in a burst, so its highest rate counts.
    return [rates for rates in found if max(rate for *_, rate in rates) >= _LARGE_RATIO * total]


def _is_steady(found: _Rates) -> bool:
    rates = [rate for *_, rate in found]
    usual = median(rates) or 0.0
    return max(rates) <= _STEADY_TIMES * usual and min(rates) * _STEADY_TIMES >= usual


def _is_only_held_back(rates: _Rates, peak_ms: float) -> bool:
    """Return whether a source departs from a steady flow by no more than barriers waited.

    A vertex that stands still holds back its source at most for that time, and then the source catches up. A source
    that emits in bursts departs by more: by the time between the bursts, and by that of the queue that they make.
    """
    seconds = np.array([(until - since).total_seconds() for since, until, _ in rates])
    records = np.array([rate for *_, rate in rates]) * seconds
    if records.sum() <= 0:
        return False
    times, counts = (np.append(0.0, np.cumsum(row)) for row in (seconds, records))
    per_s, begin = np.polyfit(times, counts, 1)
    return per_s > 0 and float(np.ptp(counts - begin - per_s * times) / per_s) * 1000 <= peak_ms


def _caught_up(case: Case, wait: Wait) -> bool:
    """Return whether the subtasks may have read their records after the wait, and not during it.

    Readings that are further apart than the wait is long then show as many records as ever.
    """
    load = case.loads.get(wait.vertex_id)
    if wait.reads is None or load is None:
        return False
    busy = highest_of(load.busy[[i for i in wait.subtasks if i < load.busy.size]])
    if busy is None:
        return False
    if case.is_of_one:
        return busy <= wait.reads.free_ratio
    # A subtask that works off a queue is busy all that time, so it reads several times as many records as usual.
    return wait.reads.rate_ratio * busy <= _QUEUE_RATIO * (1 - wait.reads.free_ratio)


def _at_holder(case: Case, wait: Wait) -> tuple[Wait, VertexId]:
    """Return the wait at the vertex that holds back the one before which the barrier waits, or else the same wait.

    If the barrier waited longer above this vertex, which it holds back, that is how long it stood still. The second
    value is the vertex in front of which the barrier waited that long.
    """
    vertex_id = wait.vertex_id
    while (load := case.loads.get(vertex_id)) is not None:
        below = [v for v in case.evidence.topology.downstream(vertex_id) if v in case.loads]
        if not below or (highest_of(load.backpressured) or 0.0) <= BACKPRESSURED_OK_RATIO:
            break
        vertex_id = max(below, key=lambda v: highest_of(case.loads[v].busy) or 0.0)
    front = wait.vertex_id
    if load is None:
        return wait, front
    longest_ms = wait.longest_ms
    if vertex_id == wait.vertex_id:
        longest_ms, front = _wait_above(case, vertex_id)
        if longest_ms <= wait.longest_ms:
            return wait, wait.vertex_id
    # Its subtasks that are busy stood still; how long is known only from the wait above them.
    most = highest_of(load.busy) or 0.0
    return replace(wait, vertex_id=vertex_id, wait_ms=np.where(load.busy * 2 >= most, longest_ms, 0.0)), front


def _wait_above(case: Case, vertex_id: VertexId) -> tuple[float, VertexId]:
    """Return the longest wait, in milliseconds, before a vertex that this one holds back, and that vertex.

    If there is no such wait, return 0 and this vertex.
    """
    waits = [
        (wait.longest_ms, v)
        for v in case.evidence.topology.upstream(vertex_id)
        if (load := case.loads.get(v)) is not None
        and (highest_of(load.backpressured) or 0.0) > BACKPRESSURED_OK_RATIO
        and (wait := barrier_waits.wait_before(case, v)) is not None
    ]
    return max(waits, key=lambda one: one[0], default=(0.0, vertex_id))


def _still_rows(case: Case, stall: Stall, where: str) -> list[Evidence]:
    """Return rows on the wait: how long it was, what was read meanwhile, and why no queue explains it."""
    wait, barrier = stall.wait, "last barrier" if stall.is_to_last else "first barrier"
    front, before = (where if v == wait.vertex_id else case.name(v) for v in (stall.front, stall.before))
    # The wait above the vertex that is held back is that of the first barrier.
    measured = barrier if stall.front == stall.before else "first barrier"
    text = f"time for which the {measured} waited in front of {front}, mean"
    found = [rows.reconstructed(text, "start_delay", wait.longest_ms, "ms")]
    if wait.reads is not None:
        text = f"{before}: share of the time for which the {barrier} waited there, in which no record was read"
        found.append(rows.reconstructed(text, "numRecordsIn", wait.reads.still_ratio, "ratio"))
        text = f"{before}: records read in a second while the {barrier} waited there, divided by their usual number"
        found.append(rows.reconstructed(text, "numRecordsIn", wait.reads.rate_ratio, "ratio"))
    if stall.no_queue is not None:
        found.append(rows.note(stall.no_queue))
    if wait.is_overtaking:
        found.append(rows.note("the barriers overtake queues, so no queue delayed them"))
    return found


def _follows_completion(case: Case, wait: Wait) -> bool:
    """Return whether the subtasks stand still from the completion of one checkpoint to the barrier of the next.

    A commit begins when a checkpoint completes. A timer or a window also leaves time in which records are read.
    """
    ended = {
        c.header.checkpoint_id: c.header.triggered_at + timedelta(milliseconds=c.header.end_to_end_duration_ms)
        for c in case.evidence.checkpoints
        if c.header.status is CheckpointStatus.COMPLETED and c.header.end_to_end_duration_ms is not None
    }
    spans: list[tuple[datetime, datetime]] = []
    for walked in case.walked:
        phases, header = walked.phases.get(wait.vertex_id), walked.checkpoint.header
        before = max((at for k, at in ended.items() if k < header.checkpoint_id), default=None)
        if phases is None or before is None:
            continue
        arrived = highest(phases.first_barrier_of(i) for i in wait.subtasks if i < len(phases))
        if arrived is not None and arrived >= HOP_MIN_MS:
            spans.append((before, header.triggered_at + timedelta(milliseconds=arrived)))
    reads = barrier_waits.reads_in(case, wait.vertex_id, wait.subtasks, spans, overlap_min=_INSIDE)
    return reads is not None and reads.rate_ratio <= _STILL_RATIO
