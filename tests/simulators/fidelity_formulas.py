"""Predictions of the plain formulas CM-1 to CM-5 (runtime.md 9.1) for a scenario, to compare with the runtime's.

There are two predictions. One uses only the scenario, as the runtime does, and assumes that all buffers before the
narrowest stage are full. The other also uses the queued bytes that were measured in the run, which the runtime does
not know. Costs of the snapshot are the runtime's own defaults. A formula gives the time of the last barrier, not its
parts, and no alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.runtime.job.config import RuntimeConfig
from backend.runtime.job.graph import StoreSpec
from tests.simulators.fidelity import Medians, Scenario

_STORE = StoreSpec()


@dataclass(frozen=True, slots=True)
class _Stage:
    """What drains a hop: the records per second that all its subtasks together can take, and its narrowest subtask."""

    capacity_per_s: float
    share: float
    """Share of the records that the narrowest subtask gets."""
    cost_us: float
    """Cost of a record at the narrowest subtask."""


def _stage(scenario: Scenario, stage: int) -> _Stage:
    mean = 1 / scenario.parallelism
    # A rough formula ignores a few per cent of unevenness, but not a hot key.
    is_hot = stage == scenario.stages and scenario.number("hot-key-ratio", 0) > 0
    share = scenario.flink_shares[0] if is_hot else mean
    cost_us = scenario.cost_us(stage) * scenario.straggling(stage)
    return _Stage(1e6 / cost_us / share, share, cost_us)


@dataclass(frozen=True, slots=True)
class _Hop:
    """Bytes before the narrowest subtask of a stage, the rate at which it takes them, and the stage's total."""

    queued_bytes: float
    drained_bytes_per_s: float
    all_bytes: float


def from_parameters(scenario: Scenario) -> Medians:
    """The formulas with the same inputs as the runtime."""
    stages = [_stage(scenario, i) for i in range(1, scenario.stages + 1)]
    per_s = _throughput(scenario, stages)
    narrowest = min(range(len(stages)), key=lambda i: stages[i].capacity_per_s)
    is_full = per_s == stages[narrowest].capacity_per_s
    hops = [_full(scenario, stage, per_s) for stage in stages[: narrowest + 1]] if is_full else []
    return _medians(scenario, stages, hops, per_s)


def from_queues(scenario: Scenario, queued_bytes: Sequence[float]) -> Medians:
    """The formulas with the total bytes queued before each stage."""
    stages = [_stage(scenario, i) for i in range(1, scenario.stages + 1)]
    per_s = _throughput(scenario, stages)
    hops = []
    for stage, queued in zip(stages, queued_bytes, strict=True):
        # If one subtask is narrow, all queued bytes are before it.
        share = stage.share if stage.capacity_per_s == per_s and _is_uneven(scenario, stage) else 1.0
        hops.append(_Hop(queued, per_s * share * scenario.record_bytes, queued))
    return _medians(scenario, stages, hops, per_s)


def _is_uneven(scenario: Scenario, stage: _Stage) -> bool:
    plain = {scenario.cost_us(i) for i in range(1, scenario.stages + 1)}
    return stage.share > 1 / scenario.parallelism or stage.cost_us not in plain


def _throughput(scenario: Scenario, stages: Sequence[_Stage]) -> float:
    rate = scenario.number("rate", 0)
    capacity = min(stage.capacity_per_s for stage in stages)
    return min(rate, capacity) if rate else capacity


def _full(scenario: Scenario, stage: _Stage, per_s: float) -> _Hop:
    """CM-5: all buffers of the senders, and of the receivers if channels are remote."""
    config, count = scenario.twin().config, scenario.parallelism
    pool = max(count + 1, count * config.exclusive_buffers + config.floating_buffers)
    remote = count - count // config.task_managers
    received = remote * config.exclusive_buffers + config.floating_buffers if remote else 0
    drained = per_s * stage.share * scenario.record_bytes
    # Evenly loaded receivers share each sender's pool; a narrow one fills its channels to their limit.
    in_front = count * min(pool, config.max_buffers_per_channel) if _is_uneven(scenario, stage) else pool
    queued = (in_front + received) * config.segment_bytes
    all_bytes = count * (pool + received) * config.segment_bytes
    if config.is_debloating:
        target_s = config.debloat_target_us / 1e6
        queued = min(queued, drained * target_s)
        all_bytes = min(all_bytes, per_s * scenario.record_bytes * target_s)
    return _Hop(queued, drained, all_bytes)


def _medians(scenario: Scenario, stages: Sequence[_Stage], hops: Sequence[_Hop], per_s: float) -> Medians:
    config: RuntimeConfig = scenario.twin().config
    rpc_ms, sync_ms, store_ms = config.rpc_latency_us / 1e3, config.sync_fixed_us / 1e3, _STORE.latency_us / 1e3
    steps_ms = sum(stage.cost_us for stage in stages) / 1e3
    aligned_ms = sum(hop.queued_bytes / hop.drained_bytes_per_s for hop in hops) * 1e3 + steps_ms / 2  # CM-1
    overtaking_ms = steps_ms  # CM-2: link latency is negligible in these runs, and tasks block between records
    timeout_ms = config.aligned_timeout_us / 1e3
    barrier_ms, persisted = aligned_ms, 0.0
    if config.is_unaligned and aligned_ms > timeout_ms:
        barrier_ms = min(aligned_ms, timeout_ms + overtaking_ms)
        persisted = sum(hop.all_bytes for hop in hops)  # CM-5
    written_ms = persisted / _STORE.bytes_per_s * 1e3
    return Medians(
        end_to_end_ms=2 * rpc_ms + barrier_ms + sync_ms + store_ms + written_ms,  # CM-3, CM-4
        start_delay_ms=rpc_ms + barrier_ms,
        alignment_ms=None,
        persisted_bytes=persisted,
        records_per_s=per_s,
    )
