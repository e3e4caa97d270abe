"""The model of one job: what a tier needs to simulate its checkpoints.

Times are in microseconds where one record is meant, else in milliseconds. Sizes are in bytes. A tuple over subtasks has
one entry for each subtask of its vertex. A value that was not observed is assumed, and the model lists the assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from backend.advisor.advice import Interval
from backend.advisor.twin.model.hangs import NO_HANGS, Hangs, Schedule
from backend.domain.advice import Mode
from backend.domain.checkpoint import CheckpointConfig, Guarantee
from backend.domain.engines import EngineCapabilities
from backend.domain.ids import VertexId
from backend.domain.verdict import Basis

_HELD_MOST = 0.95
"""A callback leaves at least the rest of the time to the records, or else the job would never have run."""


class Partitioning(StrEnum):
    """How an edge chooses the subtask that gets a record."""

    HASH = "hash"
    REBALANCE = "rebalance"
    RESCALE = "rescale"
    FORWARD = "forward"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceModel:
    """The rate at which the input of a source grows, over all subtasks.

    ``rate_per_s`` is None if the source reads as fast as it can, so that its own speed or back-pressure limits it. A
    bursty source has ``burst_factor`` times its mean rate during ``burst_ratio`` of each period.
    """

    rate_per_s: float | None
    burst_period_ms: float | None = None
    burst_ratio: float = 1.0
    burst_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexModel:
    """One vertex.

    ``service_us`` is the time that a subtask needs for one input record (of a source: for one record that it emits).
    ``slow_host_factors`` is the part of ``service_us`` that a slow host causes: 1 if the host is not slow.
    ``input_shares`` are the shares of the vertex's input, which sum to 1. ``output_ratio`` is the number of records
    emitted on each output for one record read. ``upload_bytes`` is what a checkpoint writes of the operator state, and
    ``state_bytes`` what it needs to restore. ``async_fixed_ms`` is the part of the async part that does not depend on
    the bytes. ``callback_period_ms`` and ``callback_ms`` describe a long callback (timers, windows). All subtasks begin
    it together, once in each period, and take no record and no barrier during its time. The period is None if there is
    none. ``share_guesses`` are equally likely values of ``input_shares``, sorted by the load of the fullest subtask, if
    no reading shows how long the queue of each subtask is.
    """

    id: VertexId
    name: str
    service_us: tuple[float, ...]
    input_shares: tuple[float, ...]
    output_ratio: float = 1.0
    source: SourceModel | None = None
    sync_ms: tuple[float, ...] = ()
    async_fixed_ms: tuple[float, ...] = ()
    upload_bytes: tuple[float, ...] = ()
    state_bytes: tuple[float, ...] = ()
    state_growth_bytes_per_s: float = 0.0
    slow_host_factors: tuple[float, ...] = ()
    callback_period_ms: float | None = None
    callback_ms: tuple[float, ...] = ()
    max_parallelism: int | None = None
    share_guesses: tuple[tuple[float, ...], ...] = ()

    @property
    def parallelism(self) -> int:
        """The number of subtasks."""
        return len(self.service_us)

    def callback_ratio(self, subtask: int) -> float:
        """Return the share of the time that a subtask spends in its long callback."""
        period = self.callback_period_ms
        return min(_HELD_MOST, self.callback_ms[subtask] / period) if period and self.callback_ms else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeModel:
    """One exchange. ``record_bytes`` is the size of one record on the wire."""

    source: VertexId
    target: VertexId
    partitioning: Partitioning
    record_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkModel:
    """Buffers and the flush of writers. ``is_remote_ratio`` is the share of channels between two task managers."""

    segment_bytes: int = 32 * 1024
    exclusive_buffers_per_channel: int = 2
    floating_buffers_per_gate: int = 8
    max_buffers_per_channel: int = 10
    flush_ms: float = 100.0
    debloat_target_ms: float | None = None
    is_remote_ratio: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreModel:
    """The checkpoint store. ``noise_ratio`` is the standard deviation of an upload's time, as a share of that time.

    Uploads that hang are no part of the noise. No tier simulates them: ``hangs`` are added to what a tier simulated.
    """

    bytes_per_ms: float
    latency_ms: float = 0.0
    noise_ratio: float = 0.0
    shared_bytes_per_ms: float | None = None
    """The speed of all uploads of a checkpoint together; None if no upload was large enough to measure it."""
    small_bytes_per_ms: float | None = None
    """The same as small uploads show it; None if they do not. It prices what is written, and no tier simulates it."""
    hangs: Hangs = NO_HANGS


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """The checkpoint settings that the model runs under. A cap of None means that in-flight data has no limit."""

    mode: Mode
    aligned_timeout_ms: float | None
    interval_ms: float
    timeout_ms: float
    min_pause_ms: float = 0.0
    max_concurrent: int = 1
    is_exactly_once: bool = True
    inflight_cap_bytes: int | None = None

    @property
    def schedule(self) -> Schedule:
        """When checkpoints are triggered, and when they expire."""
        return Schedule(
            interval_ms=self.interval_ms,
            timeout_ms=self.timeout_ms,
            min_pause_ms=self.min_pause_ms,
            max_concurrent=self.max_concurrent,
        )

    @classmethod
    def of(cls, config: CheckpointConfig) -> Self:
        """Return the settings of a job whose interval and timeout are known."""
        assert config.interval_ms is not None
        assert config.timeout_ms is not None
        timeout = float(config.aligned_timeout_ms or 0) if config.is_unaligned_enabled else None
        mode = Mode.ALIGNED if timeout is None else Mode.ALIGNED_WITH_TIMEOUT if timeout else Mode.UNALIGNED
        return cls(
            mode=mode,
            aligned_timeout_ms=timeout,
            interval_ms=float(config.interval_ms),
            timeout_ms=float(config.timeout_ms),
            min_pause_ms=float(config.min_pause_ms or 0),
            max_concurrent=config.max_concurrent or 1,
            is_exactly_once=config.guarantee is not Guarantee.AT_LEAST_ONCE,
            inflight_cap_bytes=config.inflight_cap_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A value of the model that was not observed: which one, the value taken, and why."""

    subject: str
    taken: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureError:
    """How far the model's prediction of one measure was from a window that it was not fitted on.

    ``unexplained_spread`` is the standard deviation of the logarithm of the measured values, beyond that of the
    simulated ones.
    """

    measure: str
    unit: str
    measured: float
    predicted: float
    sample_count: int
    unexplained_spread: float = 0.0

    @property
    def error_ratio(self) -> float | None:
        """The distance as a share of the measured value; None if that is 0."""
        return self.predicted / self.measured - 1 if self.measured else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """On which checkpoints the model was fitted, and how well it predicted later checkpoints that it had not seen."""

    fitted_ids: tuple[int, ...]
    scored_ids: tuple[int, ...]
    errors: tuple[MeasureError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    """A job as a model. Vertices are in topological order, sources first.

    ``bases`` says of each group of values (such as ``service_us``) whether it was measured, reconstructed or assumed
    (predicted).
    """

    vertices: tuple[VertexModel, ...]
    edges: tuple[EdgeModel, ...]
    network: NetworkModel
    store: StoreModel
    settings: CheckpointSettings
    trigger_delay_ms: Interval
    """The time from the trigger at the coordinator until a source emits the barrier, without its queue."""
    assumptions: tuple[Assumption, ...] = ()
    bases: tuple[tuple[str, Basis], ...] = ()
    calibration: Calibration | None = None
    age_ms: float | None = None
    """How long the job had run when the evidence was read. Its queues had this time to fill."""
    outage_ms: Interval | None = None
    """The observed time from a failure until the job ran again. None if no failure was observed."""
    is_outage_of_lost_worker: bool = False
    """Whether the observed failures were deaths of workers, so that the time contains that until they were noticed."""
    engine: EngineCapabilities | None = None
    """What the job's engine can do. None if it is not known; no change is refused then because of the engine."""

    def vertex(self, vertex_id: VertexId) -> VertexModel:
        """Return the vertex with this id. Raises KeyError if there is none."""
        for vertex in self.vertices:
            if vertex.id == vertex_id:
                return vertex
        raise KeyError(vertex_id)
