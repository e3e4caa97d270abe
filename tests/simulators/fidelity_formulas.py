"""Predicts a scenario with the plain formulas CM-1 to CM-5 (runtime.md 9.1), to compare them with the runtime.

There are two predictions. One uses only the scenario, as the runtime does, and assumes that all buffers before
the bottleneck stage are full. The other also uses the queued bytes measured in the run, which the runtime does
not know. The costs of the snapshot are the runtime's own defaults. A formula gives the time of the last
barrier, but neither its parts nor the alignment.
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
    """The speed of a stage.

    It contains the records per second that all subtasks together can process, and the values of the bottleneck
    subtask, which is the one that limits the stage.
    """

    capacity_per_s: float
    share: float
    """Share of the records that the bottleneck subtask receives."""
    cost_us: float
    """Cost of a record at the bottleneck subtask, in microseconds."""


def _stage(scenario: Scenario, stage: int) -> _Stage:
    mean = 1 / scenario.parallelism
    # The formulas ignore small differences between the shares of the subtasks, but not a hot key.
    is_hot = stage == scenario.stages and scenario.number("hot-key-ratio", 0) > 0
    share = scenario.flink_shares[0] if is_hot else mean
    cost_us = scenario.cost_us(stage) * scenario.straggling(stage)
    return _Stage(1e6 / cost_us / share, share, cost_us)


@dataclass(frozen=True, slots=True)
class _Hop:
    """The bytes queued before a stage.

    It contains the bytes before the bottleneck subtask, the rate at which this subtask reads them, and the bytes
    before all subtasks of the stage.
    """

    queued_bytes: float
    drained_bytes_per_s: float
    all_bytes: float


def from_parameters(scenario: Scenario) -> Medians:
    """Predict the medians from the scenario alone, as the runtime does."""
    stages = [_stage(scenario, i) for i in range(1, scenario.stages + 1)]
    per_s = _throughput(scenario, stages)
    narrowest = min(range(len(stages)), key=lambda i: stages[i].capacity_per_s)
    is_full = per_s == stages[narrowest].capacity_per_s
    hops = [_full(scenario, stage, per_s) for stage in stages[: narrowest + 1]] if is_full else []
    return _medians(scenario, stages, hops, per_s)


def from_queues(scenario: Scenario, queued_bytes: Sequence[float]) -> Medians:
    """Predict the medians from the scenario and the total bytes queued before each stage in the run."""
    stages = [_stage(scenario, i) for i in range(1, scenario.stages + 1)]
    per_s = _throughput(scenario, stages)
    hops = []
    for stage, queued in zip(stages, queued_bytes, strict=True):
        # If one subtask is slower than the others, all queued bytes are before it, and they drain at its share of the
        # throughput.
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
    """Compute the hop before a stage, under the assumption that all buffers are full (CM-5).

    These are the buffers of the senders and, if channels are remote, those of the receivers.
    """
    config, count = scenario.twin().config, scenario.parallelism
    pool = max(count + 1, count * config.exclusive_buffers + config.floating_buffers)
    remote = count - count // config.task_managers
    received = remote * config.exclusive_buffers + config.floating_buffers if remote else 0
    drained = per_s * stage.share * scenario.record_bytes
    # Evenly loaded receivers share the buffers of each sender's pool. A slower receiver fills its channels up to
    # their limit.
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
    aligned_ms = sum(hop.queued_bytes / hop.drained_bytes_per_s for hop in hops) * 1e3 + steps_ms / 2  # formula CM-1
    overtaking_ms = steps_ms  # CM-2 without two terms: links are fast, and no task blocks within a record
    timeout_ms = config.aligned_timeout_us / 1e3
    barrier_ms, persisted = aligned_ms, 0.0
    if config.is_unaligned and aligned_ms > timeout_ms:
        barrier_ms = min(aligned_ms, timeout_ms + overtaking_ms)
        persisted = sum(hop.all_bytes for hop in hops)  # formula CM-5
    written_ms = persisted / _STORE.bytes_per_s * 1e3
    return Medians(
        end_to_end_ms=2 * rpc_ms + barrier_ms + sync_ms + store_ms + written_ms,  # formulas CM-3, CM-4
        start_delay_ms=rpc_ms + barrier_ms,
        alignment_ms=None,
        persisted_bytes=persisted,
        records_per_s=per_s,
    )
