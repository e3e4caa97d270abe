"""Computes the facts that the rules of a verdict share: phases, paths and loads of the judged checkpoints.

A case is about a job (its newest terminal checkpoints) or about one checkpoint. It decides whether checkpoints suffer
(they fail or take long) and how the verdict's sentence begins. ``verdict`` decides on the culprit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from backend.analysis.health import health, leads
from backend.analysis.health.conditions import condition
from backend.analysis.health.health import HealthReport
from backend.analysis.health.outliers import Neighbours, neighbours_of
from backend.analysis.health.refusals import refusal_of
from backend.analysis.measures import pressure, samples, travel
from backend.analysis.measures.acknowledgements import wait_of_all_ms
from backend.analysis.measures.critical_path import CriticalPath, Phases, path_through
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.phases import VertexPhases, checkpoint_phases
from backend.analysis.measures.pressure import Suspect, VertexLoad
from backend.analysis.numbers.cache import kept
from backend.analysis.numbers.lazy import lazy
from backend.analysis.numbers.statistics import median
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import (
    CHECKPOINT_WINDOW_S,
    CHECKPOINTS_MAX,
    CONFIDENT_COUNT,
    PHASE_MIN_RATIO,
    SECOND_MIN_RATIO,
    STRUCK_READING_S,
    STRUCK_TIMES,
)
from backend.domain import known_messages
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.known_messages import MessageCause
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Topology
from backend.domain.verdict import Confidence, Health, Intermittence, Phase


@dataclass(frozen=True)
class Walked:
    """One checkpoint with its phases and its critical path.

    ``duration_ms`` is the time from the trigger to the end, or until now if the checkpoint is open.
    """

    checkpoint: Checkpoint
    phases: Phases
    topology: Topology
    duration_ms: int

    @lazy
    def path(self) -> CriticalPath | None:
        """The critical path, or None if no details of the subtasks are known."""
        return path_through(self.phases, self.topology, end_ms=self.checkpoint.header.end_to_end_duration_ms)

    @property
    def is_open(self) -> bool:
        """Whether the checkpoint is in progress."""
        return not self.checkpoint.header.status.is_terminal

    @property
    def is_completed(self) -> bool:
        """Whether the checkpoint completed."""
        return self.checkpoint.header.status is CheckpointStatus.COMPLETED

    @property
    def is_failed(self) -> bool:
        """Whether the checkpoint failed."""
        return self.checkpoint.header.status is CheckpointStatus.FAILED

    @property
    def is_expired(self) -> bool:
        """Whether the checkpoint failed because of its timeout."""
        return self.is_failed and self.checkpoint.header.failure_reason is FailureReason.EXPIRED


@dataclass(frozen=True, slots=True)
class Case:
    """The facts that the rules of a verdict use.

    ``lead`` is the first part of the verdict's sentence, which states the effect. ``is_suffering`` means that
    checkpoints fail or take long. ``apart`` is a warning if the readings of back-pressure are from another time than
    the checkpoint, otherwise None. ``is_of_one`` means that the case is about one checkpoint. It is False for a case
    about a job, even if the job has only one checkpoint. ``readings`` are the readings of back-pressure that count,
    oldest first.
    """

    evidence: JobEvidence
    report: HealthReport
    lead: str
    is_suffering: bool
    walked: tuple[Walked, ...]
    loads: dict[VertexId, VertexLoad]
    suspect: Suspect | None
    has_restarts: bool
    apart: str | None = None
    is_of_one: bool = False
    readings: tuple[VertexPressure, ...] = ()
    intermittence: Intermittence | None = None
    neighbours: Neighbours | None = None
    """The quick checkpoints before the one that the case is about, if it took many times as long; otherwise None."""
    slow_limit_ms: float | None = None
    """The duration at which a checkpoint of the job begins to count as slow; None if the settings are not known."""

    @property
    def typical_ms(self) -> float | None:
        """The median duration of the judged checkpoints, in milliseconds."""
        return median(w.duration_ms for w in self.walked)

    def least_ms(self, duration_ms: float) -> float:
        """Return the least time of a cause that is worth naming, in a checkpoint that took this long.

        It is a share of the checkpoint's time. A cause that takes less still counts if its time alone would make the
        checkpoints of the job slow.
        """
        share_ms = SECOND_MIN_RATIO * duration_ms
        return share_ms if self.slow_limit_ms is None else min(share_ms, self.slow_limit_ms)

    def name(self, vertex_id: VertexId) -> str:
        """Return the vertex's name, short enough for a sentence."""
        return say.vertex(self.evidence.vertex_name(vertex_id))

    @property
    def long_ones(self) -> tuple[tuple[Phases, int], ...]:
        """The phases and the duration of each judged checkpoint that has details of its subtasks."""
        return tuple((w.phases, w.duration_ms) for w in self.walked if w.phases)

    @property
    def open_ones(self) -> list[Walked]:
        """The checkpoints in progress, also those that are not overdue and say nothing on the job's health."""
        running = (c for c in self.evidence.checkpoints if c.header.status is CheckpointStatus.IN_PROGRESS)
        return [_walk(c, self.evidence) for c in running if c.details]

    @property
    def waiting(self) -> tuple[tuple[Phases, int], ...]:
        """The phases and the duration of each checkpoint that expired or has been open for too long."""
        return tuple(
            (w.phases, w.duration_ms)
            for w in self.walked
            if w.phases and (w.is_expired or (w.is_open and self.is_suffering))
        )

    @property
    def confidence(self) -> Confidence:
        """The highest confidence that is justified by the number of checkpoints and the age of the readings."""
        if self.apart is not None or not self.walked:
            return Confidence.LOW
        if len(self.walked) == 1:
            is_enough = self.is_of_one or self.report.is_recent
            return Confidence.MEDIUM if is_enough and self.loads else Confidence.LOW
        return Confidence.HIGH if len(self.walked) >= CONFIDENT_COUNT else Confidence.MEDIUM

    @property
    def travel_phase(self) -> Phase | None:
        """The phase, start delay or alignment, that takes more time on the critical paths.

        None if the checkpoints neither fail nor take long.
        """
        if not self.is_suffering:
            return None
        paths = [w.path for w in self.walked if w.path is not None]
        delay = median(p.phase_ms(Phase.START_DELAY) for p in paths)
        alignment = median(p.phase_ms(Phase.ALIGNMENT) for p in paths)
        return Phase.ALIGNMENT if (alignment or 0) > (delay or 0) else Phase.START_DELAY

    def subtask_count(self, vertex_id: VertexId) -> int:
        """Return the number of subtasks of the vertex, from the job graph or else from the checkpoints.

        If the checkpoints differ, return the largest number.
        """
        vertex = self.evidence.topology.vertex(vertex_id)
        if vertex is not None:
            return vertex.parallelism
        return max((len(p) for p in self.subtasks_of(vertex_id)), default=0)

    def subtasks_of(self, vertex_id: VertexId) -> list[VertexPhases]:
        """Return the phases of the vertex's subtasks in each checkpoint."""
        return [w.phases[vertex_id] for w in self.walked if vertex_id in w.phases]


def _is_of_transaction(exception: str) -> bool:
    message = known_messages.explained(exception)
    return message is not None and message.cause is MessageCause.TRANSACTION


def of_job(evidence: JobEvidence) -> Case:
    """Build the case of a job from its newest terminal checkpoints and its newest readings."""
    has_restarts = _has_restarts(evidence)
    report = health.report(
        evidence.checkpoints,
        evidence.config,
        has_restarts=has_restarts,
        now=evidence.now,
        restarted_at=[at for at, _ in evidence.exceptions],
        of_transactions_at=[at for at, text in evidence.exceptions if _is_of_transaction(text)],
    )
    report = _without_any(report, evidence)
    judged = health.judged_checkpoints(evidence.checkpoints, has_restarts=has_restarts)
    report = _with_standstill(report, judged, evidence)
    overdue = () if report.overdue is None else (report.overdue.checkpoint,)
    # If only some checkpoints are slow, the healthy ones do not show the cause, so they are left out.
    chosen = judged
    if report.is_recent:
        chosen = report.newest_slow
    elif report.is_mixed:
        chosen = report.struck[-CHECKPOINTS_MAX:]
    walked = tuple(_walk(c, evidence) for c in (*chosen, *overdue))
    parallelism = {v.id: v.parallelism for v in evidence.topology.vertices}
    readings = pressure.of_parallelism(evidence.pressure, parallelism)
    near = readings
    if report.is_mixed and not report.is_recent:
        readings = (*pressure.of_parallelism(evidence.earlier_pressure, parallelism), *readings)
        near = _near_any(walked, readings)
    loads, suspect = _pressure(evidence, near or readings, walked)
    intermittence = _intermittence(report, evidence, readings)
    when = "" if intermittence is None or intermittence.condition is None else f", {intermittence.condition}"
    lead = leads.of_job(report, has_all=samples.has_all(evidence), none_completed=samples.none_completed(evidence))
    return Case(
        evidence=evidence,
        report=report,
        lead=f"{lead}{when}",
        is_suffering=_is_job_suffering(report, judged, evidence),
        walked=walked,
        loads=loads,
        suspect=suspect,
        has_restarts=has_restarts,
        readings=readings,
        intermittence=intermittence,
        slow_limit_ms=health.slow_limit_ms(evidence.config),
    )


def _without_any(report: HealthReport, evidence: JobEvidence) -> HealthReport:
    """Return the report of a job that takes no checkpoints at present, or else ``report``.

    Its earlier checkpoints say nothing about it any more. A job that restarts again and again has another problem.
    """
    is_off = evidence.config is not None and evidence.config.is_off
    refusal = None if report.restarts else refusal_of(evidence)
    if not is_off and refusal is None:
        return report
    found = Health.OFF if is_off else Health.FAILING
    return HealthReport(found, report.completed, report.failed, report.duration_median_ms, refusal=refusal)


def _with_standstill(report: HealthReport, judged: Sequence[Checkpoint], evidence: JobEvidence) -> HealthReport:
    """Return the report of a slow job if the coordinator stood still in the newest checkpoint, or else ``report``.

    One checkpoint that takes many times as long as the others is otherwise no sign of a slow job. A coordinator that
    stood still may lose its leadership or its heartbeats next, so it is told at once.
    """
    usual, limit = report.duration_median_ms, health.slow_limit_ms(evidence.config)
    if report.health is not Health.HEALTHY or usual is None or limit is None or not judged:
        return report
    newest = judged[-1]
    took = newest.header.end_to_end_duration_ms
    if took is None or newest not in report.completed or took < max(limit, STRUCK_TIMES * usual):
        return report
    if wait_of_all_ms(_walk(newest, evidence).phases, PHASE_MIN_RATIO * took) is None:
        return report
    return replace(report, health=Health.SLOW, newest_slow=(newest,), is_recent=True)


def _intermittence(
    report: HealthReport, evidence: JobEvidence, readings: Sequence[VertexPressure]
) -> Intermittence | None:
    if not report.is_mixed or report.is_recent or report.health is Health.RESTARTING:
        return None
    return Intermittence(
        struck_count=len(report.struck),
        checkpoint_count=report.window_count,
        since=report.struck[0].header.triggered_at,
        condition=condition(report, evidence, readings),
    )


def of_checkpoint(checkpoint: Checkpoint, evidence: JobEvidence) -> Case:
    """Build the case of one checkpoint.

    It uses the readings taken while the checkpoint was open, or all readings if there are none from that time.
    """
    has_restarts = _has_restarts(evidence)
    walked = _walk(checkpoint, evidence)
    # The checkpoint's own parallelism has precedence, because the collector may read a changed job graph only after
    # the checkpoint.
    parallelism = {v.id: v.parallelism for v in evidence.topology.vertices}
    parallelism |= {d.vertex_id: d.subtask_count for d in checkpoint.details}
    readings = pressure.of_parallelism(evidence.pressure, parallelism)
    near = _near(checkpoint, walked.duration_ms, readings)
    loads, suspect = _pressure(evidence, near or readings, (walked,))
    limit = health.slow_limit_ms(evidence.config)
    is_long = limit is not None and walked.duration_ms >= limit
    is_timed = walked.is_completed or walked.is_expired or walked.is_open
    neighbours = neighbours_of(checkpoint, evidence, walked.duration_ms) if is_timed else None
    return Case(
        evidence=evidence,
        report=health.report((checkpoint,), evidence.config, has_restarts=has_restarts),
        lead=_checkpoint_lead(walked, neighbours),
        is_suffering=walked.is_failed or is_long or neighbours is not None,
        walked=(walked,),
        loads=loads,
        suspect=suspect,
        has_restarts=has_restarts,
        is_of_one=True,
        readings=near or readings,
        neighbours=neighbours,
        slow_limit_ms=limit,
        apart=None if near or not loads else "the readings are more than a minute away from this checkpoint",
    )


def _has_restarts(evidence: JobEvidence) -> bool:
    return bool(evidence.restart_count) or bool(evidence.exceptions)


def _pressure(
    evidence: JobEvidence, readings: Sequence[VertexPressure], walked: Sequence[Walked]
) -> tuple[dict[VertexId, VertexLoad], Suspect | None]:
    topology = evidence.topology
    loads = pressure.without_unset(topology, pressure.vertex_loads(readings))
    suspects = pressure.suspects(topology, loads)
    if not suspects:
        hops = travel.hops(topology, [(w.phases, w.duration_ms) for w in walked if w.phases])
        suspects = pressure.queued_suspects(topology, loads, {h.vertex_id: h.hop_ms for h in hops})
    return loads, pressure.root_suspect(topology, suspects)


def _walk(checkpoint: Checkpoint, evidence: JobEvidence) -> Walked:
    header = checkpoint.header
    late = evidence.late(header.checkpoint_id)
    duration = header.end_to_end_duration_ms
    if duration is None:
        end = header.failed_at or evidence.now
        duration = max(0, round((end - header.triggered_at).total_seconds() * 1000))
    phases = checkpoint_phases(checkpoint, evidence.config, late)
    topology = evidence.topology
    # What a walked checkpoint computes when it is first asked is then kept too.
    return kept(
        (checkpoint, phases, topology),
        ("walked", duration),
        lambda: Walked(checkpoint, phases, topology, duration),
    )


def _near(checkpoint: Checkpoint, duration_ms: int, readings: Sequence[VertexPressure]) -> tuple[VertexPressure, ...]:
    margin = timedelta(seconds=CHECKPOINT_WINDOW_S)
    begin = checkpoint.header.triggered_at
    end = begin + timedelta(milliseconds=duration_ms)
    return tuple(r for r in readings if begin - margin <= r.observed_at <= end + margin)


def _near_any(walked: Sequence[Walked], readings: Sequence[VertexPressure]) -> tuple[VertexPressure, ...]:
    """Return the readings taken while one of the checkpoints was open, and those that followed next."""
    spans = [
        (w.checkpoint.header.triggered_at, w.checkpoint.header.triggered_at + timedelta(milliseconds=w.duration_ms))
        for w in walked
    ]
    margin = timedelta(seconds=STRUCK_READING_S)
    return tuple(r for r in readings if any(begin <= r.observed_at <= end + margin for begin, end in spans))


def _is_job_suffering(report: HealthReport, judged: Sequence[Checkpoint], evidence: JobEvidence) -> bool:
    if report.health is not Health.TOO_FEW:
        return report.health not in (Health.HEALTHY, Health.RESTARTING, Health.OFF)
    limit = health.slow_limit_ms(evidence.config)
    return report.overdue is not None or any(
        c.header.status is CheckpointStatus.FAILED
        or (limit is not None and (c.header.end_to_end_duration_ms or 0) >= limit)
        for c in judged
    )


def _checkpoint_lead(walked: Walked, neighbours: Neighbours | None) -> str:
    header = walked.checkpoint.header
    took = say.duration(walked.duration_ms)
    finished = sum(int(phases.has_finished.sum()) for phases in walked.phases.values())
    notes = [f"{finished} of {header.subtask_count} subtasks had finished before"] if finished else []
    if neighbours is not None:
        quick = len(neighbours.quick)
        which = f"all {quick}" if quick == neighbours.count else f"{quick} of the {neighbours.count}"
        notes.append(f"{which} checkpoints before it took about {say.duration(neighbours.usual_ms)}")
    note = f" ({'; '.join(notes)})" if notes else ""
    if header.status is CheckpointStatus.IN_PROGRESS:
        done = f"{header.acknowledged_count - finished} of {header.subtask_count - finished} subtasks acknowledged"
        return f"Open for {took} with {done}{note}"
    if walked.is_expired:
        return f"Expired after {took}{note}"
    return f"Failed after {took}{note}" if walked.is_failed else f"Completed after {took}{note}"
