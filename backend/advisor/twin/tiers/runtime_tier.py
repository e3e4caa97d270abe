"""The most detailed tier: the model as a job of the reference runtime, run in virtual time with sizes only.

The runtime decides how barriers move, what queues hold, and what is persisted. The rest is added afterwards to each
subtask of each checkpoint, because a job file has no noise and no state of a given size: the fixed async part, the time
to write state and in-flight data, and the spread of the trigger delay.

A run is bounded. If the job handles too many records for it, several records are simulated as one that is as many times
larger and takes as many times longer. If checkpoints are far apart, the interval is shortened as long as the queues
have time to fill again. Both are said in the notes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any, Final

from backend.advisor.advice import Interval
from backend.advisor.twin.model.model import JobModel, Partitioning, VertexModel
from backend.advisor.twin.model.outcomes import Simulated, SimulatedCheckpoint, Tier
from backend.advisor.twin.model.rates import Throughput, odd_multiple_ms, phases_ms, throughput_of
from backend.domain.advice import Mode
from backend.domain.errors import TooLargeError
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.runtime.core.elements import RECORD_BYTES_MIN
from backend.runtime.core.scheduler import EventClass
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint
from backend.runtime.task.task import Task

STEPS_MAX: Final = 300_000
"""The largest number of records that all vertices together process in one run: a few seconds of computing."""
SUBTASKS_MAX: Final = 512
_WARM_UP_SHARE: Final = 1 / 3
_CHECKPOINTS_WANTED: Final = 12
_RUN_MIN_MS: Final = 60_000.0
_RUN_MAX_MS: Final = 600_000.0
_RECORDS_PER_BUFFER_MIN: Final = 4
_FILLS_BETWEEN: Final = 2.0
_SAME_RATIO: Final = 0.02
_CP: Final = "execution.checkpointing."
_NET: Final = "taskmanager.network.memory."
_SLICE_US: Final = 200_000
_PHASES: Final = 8
"""In how many phases of a long callback checkpoints are simulated, as far as there are so many."""
_FACTOR_MIN, _FACTOR_MAX = 0.01, 10_000.0

OnProgress = Callable[[float], None]
"""Called with the share of the run that is done. It may raise an error to cancel the run."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How the run is made smaller: records simulated as one, the interval, and the virtual time of the run."""

    bundle: int
    interval_ms: float
    run_ms: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuntimeRun:
    """A finished run: its prediction, the engine, and the measured checkpoints that the prediction counts."""

    simulated: Simulated
    engine: JobEngine
    counted: tuple[MeasuredCheckpoint, ...]
    scale: Scale


def simulate(
    model: JobModel, *, seed: int = 1, scale: Scale | None = None, on_progress: OnProgress | None = None
) -> Simulated:
    """Run the model and return its checkpoints after the warm-up. ``scale`` replaces the usual size of the run.

    Raises:
        TooLargeError: the job is too large for this tier.
    """
    return run(model, seed=seed, scale=scale, on_progress=on_progress).simulated


def run(
    model: JobModel, *, seed: int = 1, scale: Scale | None = None, on_progress: OnProgress | None = None
) -> RuntimeRun:
    """Run the model, and return the engine as well, for its barriers. Raises the same error as ``simulate``."""
    _refuse_large(model)
    scale = scale or scale_of(model, throughput_of(model))
    engine = JobEngine(job_of(model, scale, seed=seed), is_size_only=True)
    ended: list[MeasuredCheckpoint] = []
    engine.coordinator.on_terminal = ended.append
    _begin_callbacks(model, engine, random.Random(f"callbacks/{seed}"))  # noqa: S311 - phases of a simulation
    warm_us, end_us = round(scale.run_ms * _WARM_UP_SHARE * 1000), round(scale.run_ms * 1000)
    sources = {v.id for v in model.vertices if v.source is not None}
    before = 0
    for share in _slices(engine, warm_us, end_us):
        if share < 0:
            before = _emitted(engine, sources)
        elif on_progress is not None:
            on_progress(share)
    emitted = _emitted(engine, sources) - before
    counted = tuple(
        r
        for r in ended
        if r.triggered_at_us >= warm_us
        and (r.state is CheckpointState.COMPLETED or r.reason is FailureReason.EXPIRED)
        and r.acks
    )
    draws = random.Random(f"twin/{seed}")  # noqa: S311 - noise of a simulation
    simulated = Simulated(
        tier=Tier.RUNTIME,
        seed=seed,
        checkpoints=tuple(_checkpoint(model, r, draws) for r in counted),
        records_per_s=emitted * scale.bundle * 1e6 / (end_us - warm_us),
        notes=scale.notes,
    )
    return RuntimeRun(simulated, engine, counted, scale)


def scale_of(model: JobModel, flow: Throughput) -> Scale:
    """Return how to make the run small enough for ``STEPS_MAX`` records."""
    settings, notes = model.settings, []
    wanted = model.age_ms or _RUN_MIN_MS
    fill_ms = flow.queued_bytes_max / flow.bytes_per_ms if flow.bytes_per_ms > 0 else 0.0
    run_ms = min(max(wanted, _RUN_MIN_MS, 2 * fill_ms), _RUN_MAX_MS)
    interval = settings.interval_ms
    room_ms = run_ms * (1 - _WARM_UP_SHARE)
    if room_ms / interval < _CHECKPOINTS_WANTED:
        shorter = max(_FILLS_BETWEEN * fill_ms, room_ms / _CHECKPOINTS_WANTED, 1000.0)
        if shorter < interval:
            notes.append(f"checkpoints are simulated every {shorter / 1000:.3g} s, not every {interval / 1000:.3g} s")
            interval = shorter
    records = flow.steps_per_ms * run_ms
    bundle = max(1, ceil(records / STEPS_MAX))
    smallest = min((e.record_bytes for e in model.edges), default=100.0)
    bundle = max(bundle, ceil(RECORD_BYTES_MIN / max(smallest, 1.0)))
    largest = max((e.record_bytes for e in model.edges), default=100.0)
    most = max(1, int(model.network.segment_bytes / _RECORDS_PER_BUFFER_MIN / max(largest, 1.0)))
    if bundle > most:
        # Larger records would change how buffers fill, so the run is made shorter instead.
        bundle = most
        run_ms = max(STEPS_MAX * bundle / flow.steps_per_ms, 2 * fill_ms)
        room_ms = run_ms * (1 - _WARM_UP_SHARE)
        interval = min(interval, max(room_ms / _CHECKPOINTS_WANTED, _FILLS_BETWEEN * fill_ms, 200.0))
        notes = [f"only {run_ms / 1000:.3g} s are simulated, with a checkpoint every {interval / 1000:.3g} s"]
    # Last, because no later change may bring the interval back to a multiple of the callback's period.
    apart = phases_ms(model, phases=_PHASES, has_bursts=False)
    if apart is not None and interval >= 2 * apart:
        interval = odd_multiple_ms(interval, apart)
        notes.append(f"checkpoints are simulated every {interval / 1000:.3g} s, to meet a callback at all its times")
    if bundle > 1:
        notes.append(f"{bundle} records are simulated as one")
    return Scale(bundle, interval, run_ms, tuple(notes))


def job_of(model: JobModel, scale: Scale, *, seed: int = 1) -> JobSpec:
    """Return the model as a job of the reference runtime."""
    document = {
        "name": "twin",
        "seed": seed,
        "config": _config(model, scale),
        "store": {"latency": "0 us", "bytes_per_s": 10**12},
        "vertex": [_vertex(model, v, scale.bundle) for v in model.vertices],
        "edge": [
            {"from": str(e.source), "to": str(e.target), **_partitioning(model, e.partitioning, e.target)}
            for e in model.edges
        ],
    }
    return load_job_document(document)


def _refuse_large(model: JobModel) -> None:
    subtasks = sum(v.parallelism for v in model.vertices)
    if subtasks > SUBTASKS_MAX:
        raise TooLargeError(
            "job",
            f"it has {subtasks} subtasks; the tier runtime takes {SUBTASKS_MAX}",
            field="tier",
            fix="use another tier",
        )


def _slices(engine: JobEngine, warm_us: int, end_us: int) -> Iterator[float]:
    """Run the job in slices. Yield -1 at the end of the warm-up, and the share that is done after each slice."""
    engine.run_until(warm_us)
    yield -1.0
    at_us = warm_us
    while at_us < end_us and engine.ended_at_us is None:
        at_us = min(end_us, at_us + _SLICE_US)
        engine.run_until(at_us)
        yield at_us / end_us


def _begin_callbacks(model: JobModel, engine: JobEngine, draws: random.Random) -> None:
    """Let the subtasks run their long callbacks: each is a mail, between two records, like a timer of Flink."""
    for vertex in model.vertices:
        if vertex.callback_period_ms is not None:
            begins_us = round(draws.uniform(0.0, vertex.callback_period_ms) * 1000)
            engine.scheduler.at(begins_us, EventClass.TIMER, _fire, (engine, vertex, vertex.callback_period_ms))


def _fire(row: tuple[JobEngine, VertexModel, float]) -> None:
    engine, vertex, period_ms = row
    tasks = [t for t in engine.tasks if t.spec.id == vertex.id]
    for task, lasts_ms in zip(tasks, vertex.callback_ms, strict=True):
        task.mail(_occupy, (task, round(lasts_ms * 1000)))
    engine.scheduler.after(round(period_ms * 1000), EventClass.TIMER, _fire, row)


def _occupy(row: tuple[Task, int]) -> None:
    task, lasts_us = row
    task.cost_us += lasts_us


def _emitted(engine: JobEngine, sources: set[VertexId]) -> int:
    outputs = {s: max(1, len(engine.spec.graph.outputs(s))) for s in sources}
    return sum(t.records_out // outputs[VertexId(t.spec.id)] for t in engine.tasks if t.spec.id in sources)


def _config(model: JobModel, scale: Scale) -> dict[str, Any]:
    settings, network = model.settings, model.network
    own_ms = max((_written_ms(model, v, i, 0.0) for v in model.vertices for i in range(v.parallelism)), default=0.0)
    unaligned = settings.mode is not Mode.ALIGNED
    config: dict[str, Any] = {
        f"{_CP}interval": _ms(scale.interval_ms),
        f"{_CP}timeout": _ms(settings.timeout_ms),
        f"{_CP}max-concurrent-checkpoints": settings.max_concurrent,
        f"{_CP}mode": "EXACTLY_ONCE" if settings.is_exactly_once else "AT_LEAST_ONCE",
        f"{_CP}unaligned.enabled": unaligned,
        f"{_CP}aligned-checkpoint-timeout": _ms(settings.aligned_timeout_ms or 0.0),
        f"{_CP}tolerable-failed-checkpoints": "unlimited",
        "taskmanager.memory.segment-size": network.segment_bytes,
        f"{_NET}buffers-per-channel": network.exclusive_buffers_per_channel,
        f"{_NET}floating-buffers-per-gate": network.floating_buffers_per_gate,
        f"{_NET}max-buffers-per-channel": network.max_buffers_per_channel,
        "execution.buffer-timeout.interval": _ms(max(1.0, network.flush_ms)),
        "runtime.cost.rpc-latency": f"{max(1, round(model.trigger_delay_ms.value * 1000))} us",
        "runtime.task-managers": round(1 / (1 - min(network.is_remote_ratio, 0.95))),
    }
    if unaligned and (model.engine is None or model.engine.overtakes_everywhere):
        config[f"{_CP}unaligned.forced"] = True
    if settings.max_concurrent == 1:
        # Writing is added after the run. The pause keeps the next trigger behind it.
        config[f"{_CP}min-pause"] = _ms(settings.min_pause_ms + own_ms)
    if network.debloat_target_ms is not None:
        config[f"{_NET}buffer-debloat.enabled"] = True
        config[f"{_NET}buffer-debloat.target"] = _ms(network.debloat_target_ms)
    if settings.inflight_cap_bytes is not None and unaligned:
        config["runtime.inflight-cap.bytes"] = str(settings.inflight_cap_bytes)
    return config


def _ms(value: float) -> str:
    return f"{round(value * 1000)} us"


def _vertex(model: JobModel, vertex: VertexModel, bundle: int) -> dict[str, Any]:
    outputs = [e.record_bytes for e in model.edges if e.source == vertex.id]
    is_source = vertex.source is not None
    service_us = median(vertex.service_us) * bundle
    row: dict[str, Any] = {
        "id": str(vertex.id),
        "kind": "source" if is_source else "map" if outputs else "map+sink",
        "name": vertex.name[:200],
        "parallelism": vertex.parallelism,
        "cost_us": max(1, round(service_us)),
        "slow_subtasks": _factors(vertex.service_us),
    }
    if vertex.sync_ms:
        row["sync"] = f"{round(max(vertex.sync_ms) * 1000)} us"
        row["slow_syncs"] = _factors(vertex.sync_ms, max(vertex.sync_ms))
    if outputs:
        size = max(RECORD_BYTES_MIN, round(sum(outputs) / len(outputs) * bundle))
        row["record_bytes"] = size
        inputs = [e.record_bytes * bundle for e in model.edges if e.target == vertex.id]
        # A map that passes records unchanged is simulated several times as fast, so small differences are left out.
        if not is_source and any(abs(i - size) > _SAME_RATIO * size for i in inputs):
            row["output_bytes"] = size
        if not is_source and abs(vertex.output_ratio - 1.0) > _SAME_RATIO:
            row["fan_out"] = vertex.output_ratio
    source = vertex.source
    if source is not None and source.rate_per_s is not None:
        row["rate"] = source.rate_per_s / bundle
        if source.burst_period_ms is not None and source.burst_factor > 1.0:
            row["burst_period"] = _ms(source.burst_period_ms)
            row["burst_ratio"] = max(0.001, min(1.0, source.burst_ratio))
            row["burst_share"] = max(0.001, min(1.0, source.burst_ratio * source.burst_factor))
    return row


def _factors(values: Sequence[float], base: float | None = None) -> dict[str, float]:
    middle = base if base is not None else median(values)
    if middle <= 0:
        return {}
    factors = [min(max(v / middle, _FACTOR_MIN), _FACTOR_MAX) for v in values]
    return {str(i): f for i, f in enumerate(factors) if f != 1.0}


def _partitioning(model: JobModel, partitioning: Partitioning, target: VertexId) -> Mapping[str, Any]:
    if partitioning is Partitioning.HASH:
        shares = model.vertex(target).input_shares
        return {"partitioner": "hash", "shares": [min(1.0, max(0.0, s)) for s in shares]}
    return {"partitioner": partitioning.value}


def _written_ms(model: JobModel, vertex: VertexModel, subtask: int, persisted_bytes: float) -> float:
    """Return the time that a subtask needs after its sync part, without noise."""
    fixed = vertex.async_fixed_ms[subtask] if vertex.async_fixed_ms else 0.0
    upload = vertex.upload_bytes[subtask] if vertex.upload_bytes else 0.0
    written = upload + persisted_bytes
    latency = model.store.latency_ms if written else 0.0
    return fixed + latency + written / model.store.bytes_per_ms


def _checkpoint(model: JobModel, r: MeasuredCheckpoint, draws: random.Random) -> SimulatedCheckpoint:
    shift_ms = drawn(model.trigger_delay_ms, draws.random()) - model.trigger_delay_ms.value
    duration = travel = alignment = sync = 0.0
    uploaded = 0.0
    writes: list[tuple[float, float, float]] = []
    for (number, subtask), ack in r.acks.items():
        m, vertex = ack.measured, model.vertices[number]
        noise = max(0.1, draws.gauss(1.0, model.store.noise_ratio)) if model.store.noise_ratio else 1.0
        reached = (m.start_delay_us + m.before_snapshot_us + (m.sync_us or 0) + (m.async_us or 0)) / 1000
        own = vertex.upload_bytes[subtask] if vertex.upload_bytes else 0.0
        if model.store.shared_bytes_per_ms is None:
            duration = max(duration, reached + noise * _written_ms(model, vertex, subtask, float(m.persisted_bytes)))
        else:
            fixed = vertex.async_fixed_ms[subtask] if vertex.async_fixed_ms else 0.0
            writes.append((reached, own + m.persisted_bytes, fixed))
        travel = max(travel, (m.start_delay_us + (m.alignment_us or 0)) / 1000)
        alignment = max(alignment, (m.alignment_us or 0) / 1000)
        sync = max(sync, (m.sync_us or 0) / 1000)
        uploaded += own
    if model.store.shared_bytes_per_ms is not None:
        noise = max(0.5, draws.gauss(1.0, min(0.3, model.store.noise_ratio)))
        duration = _shared_end_ms(writes, model.store.shared_bytes_per_ms / noise)
    timeout = model.settings.timeout_ms
    duration = max(0.0, duration + shift_ms)
    is_expired = r.reason is FailureReason.EXPIRED or duration >= timeout
    persisted = float(r.persisted_bytes)
    return SimulatedCheckpoint(
        checkpoint_id=r.id,
        triggered_ms=r.triggered_at_us / 1000,
        duration_ms=timeout if is_expired else duration,
        is_expired=is_expired,
        persisted_bytes=persisted,
        checkpointed_bytes=persisted + uploaded,
        travel_ms=timeout if r.reason is FailureReason.EXPIRED else travel,
        alignment_ms=alignment,
        sync_ms=sync,
    )


def _shared_end_ms(writes: Sequence[tuple[float, float, float]], bytes_per_ms: float) -> float:
    """Return when the last of several writes to one store ends; each is its begin, its bytes and a fixed time after it.

    The store is never idle while a write waits, so the order of the writes does not matter for the end of the last one.
    """
    busy_until = ends = 0.0
    for begin, size, fixed in sorted(writes):
        busy_until = max(busy_until, begin) + size / bytes_per_ms
        ends = max(ends, begin + fixed, busy_until + fixed if size else 0.0)
    return ends


def drawn(interval: Interval, quantile: float) -> float:
    """Return a quantile of a distribution whose 5 %, 50 % and 95 % quantiles are the interval, linear in between."""
    if quantile <= 0.5:
        return interval.low + (interval.value - interval.low) * max(0.0, quantile - 0.05) / 0.45
    return interval.value + (interval.high - interval.value) * min(0.45, quantile - 0.5) / 0.45
