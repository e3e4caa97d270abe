"""Computes the facts of one job that all rules share: recorded checkpoints, queues, rates and speeds.

The facts come from start delays and alignments of subtasks (ME-1, ME-2), readings of queues and back-pressure (ME-19,
ME-21), sizes and async parts (ME-6, ME-8). None means that a fact is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain

import numpy as np

from backend.advisor.predictor import Predictor
from backend.advisor.thresholds import WRITE_MEASURED_MIN_BYTES, WRITE_MEASURED_MIN_MS
from backend.advisor.tier_choice import Series
from backend.analysis.health.health import judged_checkpoints, slow_limit_ms
from backend.analysis.measures.critical_path import Phases, arrived_below_ms
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.phases import VertexPhases, checkpoint_phases
from backend.analysis.measures.pressure import backpressured_max
from backend.analysis.numbers.arrays import Floats, array_of, column_medians, highest_of, peak_of, stacked
from backend.analysis.numbers.cache import kept
from backend.analysis.numbers.statistics import highest, median
from backend.analysis.verdict import case as cases
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.verdict import diagnose
from backend.analysis.words.thresholds import BACKPRESSURED_OK_RATIO, SLOW_TRAVEL_MS
from backend.domain.advice import Mode
from backend.domain.checkpoint import Checkpoint, CheckpointStatus, Guarantee
from backend.domain.engines import EngineCapabilities
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.protocols import Protocol
from backend.domain.topology import Topology
from backend.domain.verdict import Basis, Diagnosis

_AROUND = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One terminal checkpoint, which completed or failed.

    ``duration_ms`` is the time from the trigger to the end; an expired checkpoint ended at its timeout. ``travel_ms``
    is the time until the barrier reached the last subtask. If the checkpoint ended before that, ``travel_ms`` is the
    checkpoint's duration, which is a lower bound.
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
        """The bytes that all subtasks together wrote."""
        return self.checkpoint.header.checkpointed_size_bytes

    @property
    def persisted_bytes(self) -> float | None:
        """The bytes of in-flight data that all subtasks together wrote."""
        return self.checkpoint.header.persisted_bytes

    @property
    def store_bytes_per_ms(self) -> float | None:
        """The speed of the store; None if the checkpoint wrote too little to measure it."""
        written, took_ms = self.written_bytes, self.own_async_ms
        if written is None or took_ms is None:
            return None
        is_enough = written >= WRITE_MEASURED_MIN_BYTES and took_ms >= WRITE_MEASURED_MIN_MS
        return written / took_ms if is_enough else None


@dataclass(frozen=True, slots=True)
class Queues:
    """The bytes queued at each vertex, by subtask, and the bytes of all queues together.

    The bytes of a subtask are the median of the readings. The sum is stored as median, smallest and largest value.
    """

    out_bytes: Mapping[VertexId, tuple[float, ...]]
    in_bytes: Mapping[VertexId, tuple[float, ...]]
    total: float
    total_min: float
    total_max: float
    reading_count: int
    totals: tuple[float, ...] = ()
    """The bytes of all queues at each reading, oldest first."""


@dataclass(frozen=True, slots=True)
class RecordRate:
    """Records in a second, and whether the engine reports this rate or two counts show it."""

    value: float
    is_measured: bool

    @property
    def basis(self) -> Basis:
        """The basis of the value. Counts may be as old as the engine's metrics, so their difference is no measure."""
        return Basis.MEASURED if self.is_measured else Basis.RECONSTRUCTED


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts that the rules use.

    ``held``: the most back-pressured vertex and its ratio. ``steps_ms``: time for one record at the slowest subtask of
    each vertex. ``drain_bytes_per_ms``: bytes that each vertex reads in a millisecond. ``intake_bytes_per_ms``: the
    same for each subtask. ``store_bytes_per_ms``: speed of the store over whole checkpoints; None if no checkpoint
    wrote enough to measure it. ``since`` and ``until``: times of the first and the last reading of back-pressure.
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
    record_bytes: Mapping[VertexId, float]
    """The mean size of the records that each vertex read."""
    records_per_s: Mapping[VertexId, RecordRate]
    """The records that each vertex read in a second."""
    store_bytes_per_ms: float | None
    since: datetime | None
    until: datetime | None
    peaks: tuple[tuple[datetime, float | None], ...] = ()
    """For each reading of back-pressure, its time and the ratio of the most back-pressured subtask."""
    modelled: JobEvidence | None = None
    """The evidence from which models of the job are built: readings of a longer time. None: that of the facts."""
    series: Series | None = None
    """The choices of settings that were followed before, of which the present ones are the last; None without any."""
    undecided: str | None = None
    """Why the fast simulation has not decided with which settings this job loses least (R-INT-1).

    The rules do not decide that in its place. None if it has decided, and if it cannot decide for this job.
    """
    predictor: Predictor = field(default_factory=Predictor, compare=False)
    """Has the answers to what-ifs, which are what cards predict; without any, their rules predict."""

    @property
    def engine_words(self) -> str:
        """The engine's name and version."""
        return f"{self.engine.name} {self.version or ''}".rstrip()

    @property
    def unread(self) -> str | None:
        """Which of back-pressure and queues could not be read, as the begin of a sentence; None if both were read."""
        if self.queues is not None and self.held is not None:
            return None
        if self.held is not None:
            return f"{self.engine_words} does not report how many bytes are in the queues"
        return "back-pressure" + ("" if self.queues is not None else " and queues") + " could not be read"

    @property
    def mode(self) -> Mode | None:
        """The current checkpoint mode; None if the settings are not known or not exactly-once."""
        config = self.evidence.config
        if config is None or config.is_unaligned_enabled is None or not self.is_exactly_once:
            return None
        if not config.is_unaligned_enabled:
            return Mode.ALIGNED
        return Mode.ALIGNED_WITH_TIMEOUT if config.aligned_timeout_ms else Mode.UNALIGNED

    @property
    def protocol(self) -> Protocol | None:
        """The protocol of checkpoints if it is neither aligned nor unaligned barriers."""
        return self.evidence.config.protocol if self.evidence.config is not None else None

    @property
    def aligned_timeout_ms(self) -> int | None:
        """The age at which a checkpoint becomes unaligned; None if unaligned checkpoints are off."""
        config = self.evidence.config
        if config is None or not config.is_unaligned_enabled:
            return None
        return config.aligned_timeout_ms or 0

    @property
    def is_exactly_once(self) -> bool:
        """Whether checkpoints are exactly-once; True if the settings do not show the guarantee."""
        config = self.evidence.config
        return config is None or config.mode is None or config.guarantee is Guarantee.EXACTLY_ONCE

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the recorded checkpoints."""
        return tuple(r.id for r in self.recorded)

    @property
    def duration_ms(self) -> float | None:
        """The median duration of the recorded checkpoints; an expired one counts with the time until it expired."""
        return median(r.duration_ms for r in self.recorded)

    @property
    def every_ms(self) -> float | None:
        """The time from the begin of a checkpoint to that of the next one; None if the interval is not known.

        It is the interval, or the duration and the minimum pause if these are longer.
        """
        config = self.evidence.config
        if config is None or not config.interval_ms:
            return None
        return max(float(config.interval_ms), (self.duration_ms or 0.0) + (config.min_pause_ms or 0))

    @property
    def is_cut_off(self) -> bool:
        """Whether more than half of the recorded checkpoints expired."""
        return sum(r.is_expired for r in self.recorded) * 2 > len(self.recorded)

    @property
    def expired_ratio(self) -> float | None:
        """The share of the recorded checkpoints that expired; None if there are none."""
        return sum(r.is_expired for r in self.recorded) / len(self.recorded) if self.recorded else None

    @property
    def slow(self) -> tuple[Recorded, ...]:
        """The checkpoints that expired, took too long for the job's settings, or had a barrier that travelled long."""
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
        """The checkpoints that did not fail and during which nothing was back-pressured.

        Back-pressure is judged by the readings around the checkpoint (ME-20: OK).
        """
        found = []
        for r in self.recorded:
            begin = r.checkpoint.header.triggered_at - _AROUND
            end = r.checkpoint.header.triggered_at + timedelta(milliseconds=r.duration_ms) + _AROUND
            most = highest(peak for at, peak in self.peaks if begin <= at <= end)
            if not r.is_failed and most is not None and most <= BACKPRESSURED_OK_RATIO:
                found.append(r)
        return tuple(found)

    def name(self, vertex_id: VertexId) -> str:
        """Return the short name of the vertex."""
        return self.case.name(vertex_id)


def situation(
    evidence: JobEvidence,
    *,
    engine: EngineCapabilities,
    version: str | None,
    settings_since: datetime | None = None,
    case: Case | None = None,
    diagnosis: Diagnosis | None = None,
) -> Situation:
    """Compute the facts of a job.

    Checkpoints before ``settings_since`` are left out, because they ran under other settings. ``case`` is the case of
    the job from the same evidence, and ``diagnosis`` what ``diagnose`` says of it, if the caller has them already.
    """
    if settings_since is not None:
        kept = tuple(c for c in evidence.checkpoints if c.header.triggered_at >= settings_since)
        if len(kept) < len(evidence.checkpoints):
            evidence, case, diagnosis = replace(evidence, checkpoints=kept), None, None
    case = case or cases.of_job(evidence)
    judged = judged_checkpoints(evidence.checkpoints, has_restarts=case.has_restarts)
    walked = {w.checkpoint.header.checkpoint_id: w.phases for w in case.walked}
    recorded = tuple(_recorded(c, evidence, walked.get(c.header.checkpoint_id)) for c in judged)
    readings = evidence.pressure
    taken = _taken(readings)
    intake = _intake(taken)
    return Situation(
        evidence=evidence,
        engine=engine,
        version=version,
        case=case,
        diagnosis=diagnosis or diagnose(evidence, case),
        recorded=recorded,
        queues=_queues(readings),
        held=backpressured_max(case.loads),
        steps_ms=_steps(taken),
        drain_bytes_per_ms={v: sum(row) for v, row in intake.items() if sum(row) > 0},
        intake_bytes_per_ms=intake,
        record_bytes=_record_sizes(taken),
        records_per_s=_record_rates(taken),
        store_bytes_per_ms=_store_speed(recorded),
        since=min((r.observed_at for r in readings), default=None),
        until=max((r.observed_at for r in readings), default=None),
        peaks=tuple((r.observed_at, peak_of(r.backpressured_ratio)) for r in readings),
    )


def widened(before: Situation, count_max: int) -> Situation:
    """Return the situation with up to ``count_max`` recorded checkpoints. Everything else stays as it is."""
    newest = judged_checkpoints(before.evidence.checkpoints, has_restarts=before.case.has_restarts, count_max=count_max)
    there = {r.id: r for r in before.recorded}
    rows = tuple(there.get(c.header.checkpoint_id) or _recorded(c, before.evidence, None) for c in newest)
    return replace(before, recorded=rows, store_bytes_per_ms=_store_speed(rows))


def drain_times(situation: Situation) -> list[float]:
    """Return the milliseconds that the queues before each vertex take to drain, of those whose rate is known."""
    if situation.queues is None:
        return []
    topology, queues = situation.evidence.topology, situation.queues
    times_ms = []
    for vertex in topology.vertices:
        speed = situation.drain_bytes_per_ms.get(vertex.id)
        queued = sum(sum(queues.out_bytes.get(u, ())) for u in topology.upstream(vertex.id))
        queued += sum(queues.in_bytes.get(vertex.id, ()))
        if speed and topology.upstream(vertex.id):
            times_ms.append(queued / speed)
    return times_ms


def _recorded(checkpoint: Checkpoint, evidence: JobEvidence, walked: Phases | None) -> Recorded:
    """Return the facts of one checkpoint. ``walked`` has its phases, if they are already computed."""
    header = checkpoint.header
    phases = walked
    if phases is None:
        phases = checkpoint_phases(checkpoint, evidence.config, evidence.late(header.checkpoint_id))
    duration = header.end_to_end_duration_ms
    if duration is None:
        end = header.failed_at or evidence.now
        duration = max(0, round((end - header.triggered_at).total_seconds() * 1000))
    length_ms = float(duration)
    return kept(
        (checkpoint, phases, evidence.topology),
        ("recorded", evidence.config, length_ms),
        lambda: _facts(checkpoint, evidence, phases, length_ms),
    )


def _facts(checkpoint: Checkpoint, evidence: JobEvidence, phases: Phases, duration_ms: float) -> Recorded:
    header = checkpoint.header
    is_failed = header.status is CheckpointStatus.FAILED
    is_awaited = any(_awaits(rows, evidence, v) for v, rows in phases.items())
    sources = [v.id for v in evidence.topology.vertices if not evidence.topology.upstream(v.id)]
    return Recorded(
        checkpoint=checkpoint,
        phases=phases,
        duration_ms=duration_ms,
        is_expired=is_failed and header.failure_reason is FailureReason.EXPIRED,
        is_failed=is_failed,
        travel_ms=duration_ms if is_awaited else highest(highest_of(rows.travel_ms) for rows in phases.values()),
        source_delay_ms=highest(highest_of(phases[v].first_barrier_ms) for v in sources if v in phases),
        sync_ms=highest(highest_of(rows.sync_duration_ms) for rows in phases.values()),
        own_async_ms=highest(highest_of(own_async_ms(evidence, v, phases)) for v in phases),
    )


def _awaits(rows: VertexPhases, evidence: JobEvidence, vertex_id: VertexId) -> bool:
    """Return whether a subtask still waited for its last barrier when the checkpoint ended.

    The gauges of a subtask that has not acknowledged tell when its first barrier arrived. If it aligns several
    channels, the others may have held it until the end. The subtasks that acknowledged in time do not show that wait.
    """
    if bool(np.isnan(rows.travel_ms).any()):
        return True
    config = evidence.config
    if config is None or config.overtakes or rows.is_complete:
        return False
    return not _has_one_channel(evidence.topology, vertex_id)


def _has_one_channel(topology: Topology, vertex_id: VertexId) -> bool:
    """Return whether each subtask of a vertex reads one channel at most, so that its first barrier is its last."""
    senders = [topology.vertex(e.source) for e in topology.inputs(vertex_id) if e.ship_strategy != "FORWARD"]
    counts = [v.parallelism for v in senders if v is not None]
    return len(topology.inputs(vertex_id)) - len(senders) + sum(counts) <= 1


def own_async_ms(evidence: JobEvidence, vertex_id: VertexId, phases: Phases) -> Floats:
    """Return the async part of each subtask of a vertex, without the waits for its input and output barriers."""
    rows = phases[vertex_id]
    topology, config = evidence.topology, evidence.config
    if config is None or not config.overtakes or not topology.downstream(vertex_id):
        return rows.own_async_ms
    released = arrived_below_ms(topology, vertex_id, phases)
    return np.minimum(rows.own_async_ms, np.maximum(0.0, rows.async_end_ms - released))


def _queues(readings: Sequence[VertexPressure]) -> Queues | None:
    reported = [r for r in readings if any(v is not None for v in chain(r.queued_out_bytes, r.queued_in_bytes))]
    if not reported:
        return None
    # All vertices are read equally often, one after the other. So the last readings of all vertices form one round,
    # the readings before them form the round before, and so on.
    by_vertex = _by_vertex(reported)
    out_bytes = {v: stacked([array_of(r.queued_out_bytes) for r in rows]) for v, rows in by_vertex.items()}
    in_bytes = {v: stacked([array_of(r.queued_in_bytes) for r in rows]) for v, rows in by_vertex.items()}
    totals = [np.nansum(out_bytes[v], axis=1) + np.nansum(in_bytes[v], axis=1) for v in by_vertex]
    rounds = range(1, min(len(t) for t in totals) + 1)
    sums = [sum(float(t[-n]) for t in totals) for n in rounds]
    return Queues(
        out_bytes=_medians(out_bytes),
        in_bytes=_medians(in_bytes),
        total=median(sums) or 0.0,
        total_min=min(sums),
        total_max=max(sums),
        reading_count=len(rounds),
        totals=tuple(reversed(sums)),
    )


def _medians(readings: Mapping[VertexId, Floats]) -> dict[VertexId, tuple[float, ...]]:
    return {v: tuple(np.nan_to_num(column_medians(rows)).tolist()) for v, rows in readings.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """What each subtask of a vertex read between the first and the last reading, and how busy it was in the last.

    ``rates`` are the records that each subtask read in a second as the engine reports them: the median of the readings,
    NaN for a subtask without one.
    """

    elapsed_s: float
    busy: Floats
    records: Floats
    bytes_in: Floats
    rates: Floats

    @property
    def elapsed_ms(self) -> float:
        return self.elapsed_s * 1000

    @property
    def is_metered(self) -> bool:
        """Whether the engine reports the rate of every subtask."""
        return self.rates.size > 0 and not np.isnan(self.rates).any()

    @property
    def records_per_s(self) -> Floats:
        """What each subtask read in a second: the engine's rates, or the difference of the counts."""
        if self.is_metered or self.elapsed_s <= 0:
            return self.rates
        return self.records / self.elapsed_s

    @property
    def bytes_per_ms(self) -> Floats:
        """The bytes that each subtask read in a millisecond. Bytes are counted with the records, at the same age."""
        counted = self.bytes_in / self.elapsed_ms
        if not self.is_metered or self.rates.size != self.records.size or self.rates.size != counted.size:
            return counted
        # A subtask that read nothing between the readings shows no size of a record.
        size = self.bytes_in / np.where(self.records > 0, self.records, np.nan)
        return np.where(np.isnan(size), counted, self.rates * size / 1000)


def _taken(readings: Sequence[VertexPressure]) -> dict[VertexId, _Taken]:
    return {
        vertex_id: _Taken(
            elapsed_s=(rows[-1].observed_at - rows[0].observed_at).total_seconds(),
            busy=array_of(rows[-1].busy_ratio),
            records=_grown(rows[0].records_in_count, rows[-1].records_in_count),
            bytes_in=_grown(rows[0].bytes_in_count, rows[-1].bytes_in_count),
            rates=column_medians(stacked([array_of(r.records_in_per_s) for r in rows])),
        )
        for vertex_id, rows in _by_vertex(readings).items()
    }


def _steps(taken: Mapping[VertexId, _Taken]) -> dict[VertexId, float]:
    """Return the busy milliseconds per record at the slowest subtask of each vertex."""
    steps: dict[VertexId, float] = {}
    for vertex_id, own in taken.items():
        rates = own.records_per_s
        count = min(own.busy.size, rates.size)
        costs = own.busy[:count] * 1000 / np.where(rates[:count] > 0, rates[:count], np.nan)
        most = highest_of(costs)
        if most is not None:
            steps[vertex_id] = most
    return steps


def _intake(taken: Mapping[VertexId, _Taken]) -> dict[VertexId, tuple[float, ...]]:
    """Return the bytes per millisecond that each subtask read."""
    return {
        vertex_id: tuple(own.bytes_per_ms.tolist())
        for vertex_id, own in taken.items()
        if own.elapsed_ms > 0 and own.bytes_in.sum() > 0
    }


def _record_sizes(taken: Mapping[VertexId, _Taken]) -> dict[VertexId, float]:
    """Return the mean bytes of a record that each vertex read."""
    sums = {v: (float(own.records.sum()), float(own.bytes_in.sum())) for v, own in taken.items()}
    return {v: size / count for v, (count, size) in sums.items() if count > 0 and size > 0}


def _record_rates(taken: Mapping[VertexId, _Taken]) -> dict[VertexId, RecordRate]:
    """Return the records that each vertex read in a second."""
    rates = {v: RecordRate(float(own.records_per_s.sum()), own.is_metered) for v, own in taken.items()}
    return {v: rate for v, rate in rates.items() if rate.value > 0}


def _grown(before: Sequence[int | None], after: Sequence[int | None]) -> Floats:
    """Return by how much each counter has grown; 0 if it did not grow or is not known."""
    count = min(len(before), len(after))
    grown = array_of(after[:count]) - array_of(before[:count])
    return np.where(grown > 0, grown, 0.0)


def _by_vertex(readings: Sequence[VertexPressure]) -> dict[VertexId, list[VertexPressure]]:
    vertex_pressures: dict[VertexId, list[VertexPressure]] = {}
    for reading in readings:
        vertex_pressures.setdefault(reading.vertex_id, []).append(reading)
    return vertex_pressures


def _store_speed(recorded: Sequence[Recorded]) -> float | None:
    return median(r.store_bytes_per_ms for r in recorded)
