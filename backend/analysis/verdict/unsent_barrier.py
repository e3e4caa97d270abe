"""Rules about a barrier that a task gets, or should emit, but does not send on: one piece of work comes first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from backend.analysis.measures import freshness, pressure, samples
from backend.analysis.measures.critical_path import Phases
from backend.analysis.numbers.arrays import array_of
from backend.analysis.verdict import barrier_waits, piece_of_work
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import draft
from backend.analysis.verdict.rule import UNREAD, WAITING, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import BACKPRESSURED_MIN_RATIO, PHASE_MIN_RATIO
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.verdict import Confidence, Phase, Verdict, VerdictKind


@dataclass(frozen=True, slots=True)
class _Held:
    """The subtasks that got a barrier early and hold it, and when the last of them got it."""

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    met_ms: float


def _find_held(case: Case) -> _Held | None:
    """Return the subtasks that barriers reach early, and that then neither acknowledge nor pass them on.

    A task may work on its snapshot before it forwards the barrier, for example write or rewrite files. The gauge of the
    start delay shows that barriers arrived. It may still show an earlier checkpoint that completed, so it is used only
    if no checkpoint has completed since the tasks began.
    """
    if len(case.waiting) < (1 if case.is_of_one else 2) or not _is_gauge_new(case):
        return None
    topology = case.evidence.topology
    for vertex in topology.vertices:
        held = _met_early(case, vertex.id) if topology.upstream(vertex.id) else None
        if held is not None:
            return held
    return None


def _is_gauge_new(case: Case) -> bool:
    """Return whether no checkpoint has completed since the tasks began, so that the gauges cannot be from one.

    A restart begins the tasks again. All checkpoints since then are known if one from before it is known.
    """
    headers = [c.header for c in case.evidence.checkpoints]
    began_at = max((at for at, _ in case.evidence.exceptions), default=None)
    if began_at is not None and any(h.triggered_at <= began_at for h in headers):
        return not any(h.status is CheckpointStatus.COMPLETED and h.triggered_at > began_at for h in headers)
    return samples.none_completed(case.evidence)


def _met_early(case: Case, vertex_id: VertexId) -> _Held | None:
    upstream = case.evidence.topology.upstream(vertex_id)
    load = piece_of_work.load_of(case, vertex_id)
    # A job may have thousands of vertices, and most are ruled out by what costs least to know.
    if load is None or not load.full_subtasks:
        return None
    if any(phases[u].pending for phases, _ in case.waiting for u in upstream if u in phases):
        return None
    readings = piece_of_work.newest(case, vertex_id)
    gauges = array_of(readings[-1].start_delay_gauge_ms) if readings else array_of(())
    soon_ms = PHASE_MIN_RATIO * (case.typical_ms or 0.0)
    early = [i for i in load.full_subtasks if i < gauges.size and 0 < gauges[i] <= soon_ms]
    details = [d for c in case.evidence.checkpoints if (d := c.detail(vertex_id)) is not None] if early else []
    never = [i for i in early if not any(d.ack_delay_ms[i : i + 1] != (None,) for d in details)]
    still = set(barrier_waits.still_subtasks(case, vertex_id)) if details and never else set()
    held = tuple(i for i in never if i in still)
    return _Held(vertex_id, held, float(max(gauges[list(held)]))) if held else None


def _tell_held(case: Case, found: _Held) -> Verdict:
    vertex_id, held, met_ms = found.vertex_id, found.subtasks, found.met_ms
    where = say.where(case.name(vertex_id), held, case.subtask_count(vertex_id))
    is_one = len(held) == 1
    gets, does, works = ("gets", "does", "it works") if is_one else ("get", "do", "they work")
    below = [case.name(v) for v in case.evidence.topology.downstream(vertex_id)]
    before = f" before {'it forwards' if is_one else 'they forward'} it" if below else ""
    waits = f", and {say.listed(below)} {'waits' if len(below) == 1 else 'wait'} for it" if below else ""
    return draft(
        case,
        VerdictKind.SYNC,
        f"{where} {gets} the barrier within {say.duration(met_ms)} but {does} not acknowledge: {works} on"
        f" the snapshot{before} (a flush, or rewritten files){waits}",
        vertex_id=vertex_id,
        subtasks=held,
        phase=Phase.SYNC,
        explained_ms=case.typical_ms,
        evidence=[
            rows.number(f"{where}: latest time until the barrier", "checkpointStartDelayNanos", met_ms, "ms"),
            rows.number(f"{where}: records read between the readings, while busy", "numRecordsIn", 0, "count"),
            *rows.arrival(case, vertex_id),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=Confidence.MEDIUM,
        would_decide=(
            "the time of this work: raise the checkpoint timeout until a checkpoint completes, and read its sync part",
        ),
    )


BEFORE_FORWARDING = Rule("barrier held before it is forwarded", Explains.WAY, (WAITING,), _find_held, _tell_held)


def _find_silent_source(case: Case) -> VertexId | None:
    """Return the only source if no barrier leaves it, and it emits nothing although nothing holds it back.

    With several sources that are all silent, the trigger may not have reached them, so none is named.
    """
    topology = case.evidence.topology
    sources = [v.id for v in topology.vertices if not topology.upstream(v.id)]
    silent = [v for v in sources if _is_silent(case, v)]
    most = pressure.backpressured_max(case.loads)
    return silent[0] if len(silent) == 1 and most is not None and most[1] < BACKPRESSURED_MIN_RATIO else None


def _tell_silent_source(case: Case, source: VertexId) -> Verdict:
    subtasks = _silent_subtasks(case, source)
    where = say.where(case.name(source), subtasks, case.subtask_count(source))
    emits = "emits" if len(subtasks) == 1 else "emit"
    return draft(
        case,
        VerdictKind.LATE_INPUT,
        f"{where} {emits} neither the barrier nor any record: one piece of work, such as a snapshot of a table, holds"
        " the thread or the checkpoint lock of the source",
        vertex_id=source,
        subtasks=subtasks,
        phase=Phase.START_DELAY,
        explained_ms=case.typical_ms,
        evidence=[
            rows.number(f"{where}: records emitted between the readings", "numRecordsOut", 0, "count"),
            rows.note("none of these subtasks and none downstream acknowledged a checkpoint that waits"),
            *rows.calm(case),
            *rows.fare(case),
            *rows.restarts(case),
            *rows.settings(case),
        ],
        confidence=Confidence.LOW,
        would_decide=(
            f"{piece_of_work.DUMP}: what does the source do, and which thread holds its lock? If it only waits for"
            " input, its snapshot may hang instead",
        ),
    )


SILENT_SOURCE = Rule("silent source", Explains.TRIGGERS, (WAITING,), _find_silent_source, _tell_silent_source)


def _silent_subtasks(case: Case, vertex_id: VertexId) -> tuple[int, ...]:
    """Return the subtasks of a source that acknowledged none of the checkpoints that wait."""
    pending = [set(phases[vertex_id].pending) for phases, _ in case.waiting if vertex_id in phases]
    return tuple(sorted(set.intersection(*pending))) if pending else ()


def _is_silent(case: Case, vertex_id: VertexId) -> bool:
    """Return whether subtasks of the source acknowledge nothing, nor does any task below, and they emit no record.

    Without a task below, none can show whether the barrier went on, and the records of such a chain are not counted.
    """
    subtasks = _silent_subtasks(case, vertex_id)
    below = pressure.descendants(case.evidence.topology, vertex_id)
    if not below:
        return False
    acks = [phases[v].is_acknowledged.any() for phases, _ in case.waiting for v in below if v in phases]
    readings = [r for r in piece_of_work.newest(case, vertex_id) if all(_sent(r, i) is not None for i in subtasks)]
    if not subtasks or any(acks) or len(readings) < 2:
        return False
    seconds = (readings[-1].observed_at - readings[0].observed_at).total_seconds()
    first, last = readings[0], readings[-1]
    certain_s = seconds - freshness.doubt_s(case.evidence)
    return certain_s > 0 and all(_sent(first, i) == _sent(last, i) for i in subtasks)


def _sent(reading: VertexPressure, subtask: int) -> int | None:
    """Return how many records a subtask had emitted; None if it is not reported."""
    return reading.records_out_count[subtask] if subtask < len(reading.records_out_count) else None


def _find_stopped(case: Case) -> _Stopped | None:
    """Return the subtasks from which no barrier goes on, although all subtasks above them have sent it.

    Without them no subtask below can acknowledge, so that none does says nothing about the snapshots there.
    """
    stopped = [one for phases, _ in case.waiting if (one := _stopped_in(case, phases)) is not None]
    if not stopped or len(stopped) < PHASE_MIN_RATIO * len(case.waiting):
        return None
    vertex_id = Counter(v for v, _ in stopped).most_common(1)[0][0]
    always = set.intersection(*(set(subtasks) for v, subtasks in stopped if v == vertex_id))
    count = sum(v == vertex_id for v, _ in stopped)
    return _Stopped(vertex_id, tuple(sorted(always)), count) if always else None


@dataclass(frozen=True, slots=True)
class _Stopped:
    """The subtasks from which no barrier goes on, in so many checkpoints."""

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    checkpoint_count: int


def _stopped_in(case: Case, phases: Phases) -> tuple[VertexId, tuple[int, ...]] | None:
    topology = case.evidence.topology
    for vertex in topology.vertices:
        rows_ = phases.get(vertex.id)
        below = [phases[v] for v in pressure.descendants(topology, vertex.id) if v in phases]
        if rows_ is None or not rows_.pending or not below:
            continue
        # This is the first vertex with such a subtask, so all subtasks above it have sent their barriers.
        is_in_part = len(rows_.pending) < len(rows_)
        return (vertex.id, rows_.pending) if is_in_part and not any(p.is_acknowledged.any() for p in below) else None
    return None


def _tell_stopped(case: Case, stopped: _Stopped) -> Verdict:
    vertex, total = case.name(stopped.vertex_id), case.subtask_count(stopped.vertex_id)
    where = say.where(vertex, stopped.subtasks, total)
    sends = "sends" if len(stopped.subtasks) == 1 else "send"
    return draft(
        case,
        VerdictKind.UNDECIDED,
        f"{where} {sends} no barrier on, while the other subtasks of {vertex} do: a long record or other work holds the"
        " task, or records queue up in front of it",
        vertex_id=stopped.vertex_id,
        subtasks=stopped.subtasks,
        phase=Phase.START_DELAY,
        explained_ms=case.typical_ms,
        evidence=[
            rows.number(
                f"checkpoints that {where} did not acknowledge, nor any subtask downstream",
                "pending",
                stopped.checkpoint_count,
                "count",
            ),
            rows.note("back-pressure could not be read, as while the tasks of a job have just begun"),
            *rows.restarts(case),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=Confidence.LOW,
        would_decide=(
            f"{piece_of_work.DUMP}: what does it do?",
            "back-pressure and records of each subtask, read when the job has run for a minute",
        ),
    )


STOPPED = Rule("barrier stopped, without readings", Explains.THE_REST, (WAITING, UNREAD), _find_stopped, _tell_stopped)
