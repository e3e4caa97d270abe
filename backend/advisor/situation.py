"""The facts of one job that all rules use, computed once: recorded checkpoints, queues, rates and speeds.

Sources: start delays and alignments of subtasks (ME-1, ME-2), readings of queues and back-pressure (ME-19, ME-21),
sizes and async parts (ME-6, ME-8). None means not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from backend.advisor.thresholds import WRITE_MEASURED_MIN_BYTES, WRITE_MEASURED_MIN_MS
from backend.analysis import case as cases
from backend.analysis.case import Case
from backend.analysis.critical_path import Phases, arrived_below_ms
from backend.analysis.evidence import JobEvidence
from backend.analysis.health import judged_checkpoints, slow_limit_ms
from backend.analysis.phases import checkpoint_phases
from backend.analysis.pressure import backpressured_max
from backend.analysis.statistics import highest, known, median
from backend.analysis.thresholds import BACKPRESSURED_OK_RATIO, SLOW_TRAVEL_MS
from backend.analysis.verdict import diagnose
from backend.domain.advice import Mode
from backend.domain.checkpoint import Checkpoint, CheckpointStatus, Guarantee
from backend.domain.engines import EngineCapabilities
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.verdict import Diagnosis

_AROUND = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One terminal checkpoint. ``duration_ms`` is the time to its end; an expired one ended at its timeout.

    ``travel_ms``: the time until the barrier reached the last subtask. If the checkpoint expired before that, it is
    the checkpoint's duration, a lower bound.
    """

    checkpoint: Checkpoint
    phases: Phases
    duration_ms: float
    is_expired: bool
    is_failed: bool
    travel_ms: float | None
    source_delay_ms: float | None
    sync_ms: float | None
    own_async_ms: float | None

    @property
    def id(self) -> int:
        """The engine's id of the checkpoint."""
        return self.checkpoint.header.checkpoint_id

    @property
    def written_bytes(self) -> float | None:
        """Bytes that all subtasks wrote."""
        return self.checkpoint.header.checkpointed_size_bytes

    @property
    def persisted_bytes(self) -> float | None:
        """Bytes of in-flight data that all subtasks wrote."""
        return self.checkpoint.header.persisted_bytes


@dataclass(frozen=True, slots=True)
class Queues:
    """Bytes queued at each vertex, by subtask (median of the readings); the sum of all: median, smallest, largest."""

    out_bytes: Mapping[VertexId, tuple[float, ...]]
    in_bytes: Mapping[VertexId, tuple[float, ...]]
    total: float
    total_min: float
    total_max: float
    reading_count: int


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts that the rules use.

    ``held``: the most back-pressured vertex and its ratio. ``steps_ms``: time for one record at the slowest subtask of
    each vertex. ``drain_bytes_per_ms``: bytes that each vertex reads; ``intake_bytes_per_ms``: the same by subtask.
    ``store_bytes_per_ms``: speed of the store over whole checkpoints, if one wrote enough to measure it.
    """

    evidence: JobEvidence
    engine: EngineCapabilities
    version: str | None
    case: Case
    diagnosis: Diagnosis
    recorded: tuple[Recorded, ...]
    queues: Queues | None
    held: tuple[VertexId, float] | None
    steps_ms: Mapping[VertexId, float]
    drain_bytes_per_ms: Mapping[VertexId, float]
    intake_bytes_per_ms: Mapping[VertexId, tuple[float, ...]]
    store_bytes_per_ms: float | None
    since: datetime | None
    until: datetime | None

    @property
    def engine_words(self) -> str:
        """The engine's name and version."""
        return f"{self.engine.name} {self.version or ''}".rstrip()

    @property
    def mode(self) -> Mode | None:
        """The current mode of checkpoints; None if the settings are not known or not exactly-once."""
        config = self.evidence.config
        if config is None or config.is_unaligned_enabled is None or not self.is_exactly_once:
            return None
        if not config.is_unaligned_enabled:
            return Mode.ALIGNED
        return Mode.ALIGNED_WITH_TIMEOUT if config.aligned_timeout_ms else Mode.UNALIGNED

    @property
    def aligned_timeout_ms(self) -> int | None:
        """The age at which a checkpoint becomes unaligned; None if unaligned checkpoints are off."""
        config = self.evidence.config
        if config is None or not config.is_unaligned_enabled:
            return None
        return config.aligned_timeout_ms or 0

    @property
    def is_exactly_once(self) -> bool:
        """Whether checkpoints are exactly-once; True if the settings do not say."""
        config = self.evidence.config
        return config is None or config.mode is None or config.guarantee is Guarantee.EXACTLY_ONCE

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the recorded checkpoints."""
        return tuple(r.id for r in self.recorded)

    @property
    def duration_ms(self) -> float | None:
        """The median duration; that of an expired checkpoint is the time to its expiry."""
        return median(r.duration_ms for r in self.recorded)

    @property
    def is_cut_off(self) -> bool:
        """Whether more than half of the recorded checkpoints expired."""
        return sum(r.is_expired for r in self.recorded) * 2 > len(self.recorded)

    @property
    def expired_ratio(self) -> float | None:
        """The share of the recorded checkpoints that expired."""
        return sum(r.is_expired for r in self.recorded) / len(self.recorded) if self.recorded else None

    @property
    def slow(self) -> tuple[Recorded, ...]:
        """The checkpoints that expired, were slow for the job's settings, or whose barrier travelled too long."""
        limit = slow_limit_ms(self.evidence.config)
        return tuple(
            r
            for r in self.recorded
            if r.is_expired
            or (limit is not None and r.duration_ms >= limit)
            or (r.travel_ms is not None and r.travel_ms >= SLOW_TRAVEL_MS)
        )

    @property
    def healthy(self) -> tuple[Recorded, ...]:
        """The checkpoints during which nothing was back-pressured, by the readings around them (ME-20: OK)."""
        found = []
        for r in self.recorded:
            begin = r.checkpoint.header.triggered_at - _AROUND
            end = r.checkpoint.header.triggered_at + timedelta(milliseconds=r.duration_ms) + _AROUND
            near = [v for p in self.evidence.pressure if begin <= p.observed_at <= end for v in p.backpressured_ratio]
            most = highest(near)
            if not r.is_failed and most is not None and most <= BACKPRESSURED_OK_RATIO:
                found.append(r)
        return tuple(found)

    def name(self, vertex_id: VertexId) -> str:
        """The vertex's name, short."""
        return self.case.name(vertex_id)


def situation(
    evidence: JobEvidence, *, engine: EngineCapabilities, version: str | None, settings_since: datetime | None = None
) -> Situation:
    """Compute the facts of a job; checkpoints before ``settings_since``, under other settings, are left out."""
    if settings_since is not None:
        kept = tuple(c for c in evidence.checkpoints if c.header.triggered_at >= settings_since)
        evidence = replace(evidence, checkpoints=kept)
    case = cases.of_job(evidence)
    judged = judged_checkpoints(evidence.checkpoints, has_restarts=case.has_restarts)
    recorded = tuple(_recorded(c, evidence) for c in judged)
    readings = evidence.pressure
    intake = _intake(readings)
    return Situation(
        evidence=evidence,
        engine=engine,
        version=version,
        case=case,
        diagnosis=diagnose(evidence),
        recorded=recorded,
        queues=_queues(readings),
        held=backpressured_max(case.loads),
        steps_ms=_steps(readings),
        drain_bytes_per_ms={v: sum(row) for v, row in intake.items() if sum(row) > 0},
        intake_bytes_per_ms=intake,
        store_bytes_per_ms=_store_speed(recorded),
        since=min((r.observed_at for r in readings), default=None),
        until=max((r.observed_at for r in readings), default=None),
    )


def _recorded(checkpoint: Checkpoint, evidence: JobEvidence) -> Recorded:
    header = checkpoint.header
    phases = checkpoint_phases(checkpoint, evidence.config, evidence.late(header.checkpoint_id))
    duration = header.end_to_end_duration_ms
    if duration is None:
        end = header.failed_at or evidence.now
        duration = max(0, round((end - header.triggered_at).total_seconds() * 1000))
    is_failed = header.status is CheckpointStatus.FAILED
    every = [p for rows in phases.values() for p in rows]
    is_awaited = any(p.travel_ms is None for p in every)
    sources = [v.id for v in evidence.topology.vertices if not evidence.topology.upstream(v.id)]
    return Recorded(
        checkpoint=checkpoint,
        phases=phases,
        duration_ms=float(duration),
        is_expired=is_failed and header.failure_reason is FailureReason.EXPIRED,
        is_failed=is_failed,
        travel_ms=float(duration) if is_awaited and every else highest(p.travel_ms for p in every),
        source_delay_ms=highest(p.first_barrier_ms for v in sources for p in phases.get(v, ())),
        sync_ms=highest(p.sync_duration_ms for p in every),
        own_async_ms=highest(_own_async_ms(evidence, v, phases) for v in phases),
    )


def _own_async_ms(evidence: JobEvidence, vertex_id: VertexId, phases: Phases) -> float | None:
    """The longest async part of a vertex, without the waits for its input barriers and for its output barriers."""
    rows = phases[vertex_id]
    topology, config = evidence.topology, evidence.config
    if config is None or not config.is_unaligned_enabled or not topology.downstream(vertex_id):
        return highest(p.own_async_ms for p in rows)
    released = arrived_below_ms(topology, vertex_id, phases)
    return highest(
        min(p.own_async_ms, max(0.0, p.async_end_ms - r))
        for p, r in zip(rows, released, strict=True)
        if p.own_async_ms is not None and p.async_end_ms is not None and r is not None
    )


def _queues(readings: Sequence[VertexPressure]) -> Queues | None:
    reported = [r for r in readings if any(v is not None for v in (*r.queued_out_bytes, *r.queued_in_bytes))]
    if not reported:
        return None
    # All vertices are read equally often, one after the other: the last reading of each makes one round, and so on.
    rows = list(_by_vertex(reported).values())
    rounds = [[r[-n] for r in rows] for n in range(1, min(len(r) for r in rows) + 1)]
    sums = [sum(known((*(v for r in one for v in (*r.queued_out_bytes, *r.queued_in_bytes)),))) for one in rounds]
    return Queues(
        out_bytes=_medians(reported, lambda r: r.queued_out_bytes),
        in_bytes=_medians(reported, lambda r: r.queued_in_bytes),
        total=median(sums) or 0.0,
        total_min=min(sums),
        total_max=max(sums),
        reading_count=len(rounds),
    )


def _medians(
    readings: Sequence[VertexPressure], values: Callable[[VertexPressure], Sequence[int | None]]
) -> dict[VertexId, tuple[float, ...]]:
    by_vertex: dict[VertexId, list[Sequence[int | None]]] = {}
    for reading in readings:
        by_vertex.setdefault(reading.vertex_id, []).append(values(reading))
    return {
        v: tuple(median(row[i] for row in rows if i < len(row)) or 0.0 for i in range(max(len(r) for r in rows)))
        for v, rows in by_vertex.items()
    }


def _steps(readings: Sequence[VertexPressure]) -> dict[VertexId, float]:
    """Busy milliseconds per record at the slowest subtask, between the first and the last reading."""
    found: dict[VertexId, float] = {}
    for vertex_id, rows in _by_vertex(readings).items():
        first, last = rows[0], rows[-1]
        elapsed_ms = (last.observed_at - first.observed_at).total_seconds() * 1000
        counts = zip(last.busy_ratio, first.records_in_count, last.records_in_count, strict=False)
        costs = [
            busy * elapsed_ms / (b - a)
            for busy, a, b in counts
            if busy is not None and a is not None and b is not None and b > a
        ]
        most = highest(costs)
        if most is not None:
            found[vertex_id] = most
    return found


def _intake(readings: Sequence[VertexPressure]) -> dict[VertexId, tuple[float, ...]]:
    """Bytes per millisecond that each subtask read between the first and the last reading."""
    found: dict[VertexId, tuple[float, ...]] = {}
    for vertex_id, rows in _by_vertex(readings).items():
        first, last = rows[0], rows[-1]
        elapsed_ms = (last.observed_at - first.observed_at).total_seconds() * 1000
        pairs = list(zip(first.bytes_in_count, last.bytes_in_count, strict=False))
        taken = tuple(float(b - a) if a is not None and b is not None and b > a else 0.0 for a, b in pairs)
        if elapsed_ms > 0 and sum(taken) > 0:
            found[vertex_id] = tuple(t / elapsed_ms for t in taken)
    return found


def _by_vertex(readings: Sequence[VertexPressure]) -> dict[VertexId, list[VertexPressure]]:
    found: dict[VertexId, list[VertexPressure]] = {}
    for reading in readings:
        found.setdefault(reading.vertex_id, []).append(reading)
    return found


def _store_speed(recorded: Sequence[Recorded]) -> float | None:
    speeds = [
        r.written_bytes / r.own_async_ms
        for r in recorded
        if r.written_bytes is not None
        and r.written_bytes >= WRITE_MEASURED_MIN_BYTES
        and r.own_async_ms is not None
        and r.own_async_ms >= WRITE_MEASURED_MIN_MS
    ]
    return median(speeds)
