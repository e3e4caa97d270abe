"""Small jobs for tests of the runtime.

They have few records, small segments and short intervals, so that tests are quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from backend.runtime.core.prng import Stream
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.job import faults
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.operators.storage import Row

PROTOCOLS: dict[str, dict[str, object]] = {
    "aligned": {},
    "unaligned": {"execution.checkpointing.unaligned.enabled": True},
    "aligned-timeout": {
        "execution.checkpointing.unaligned.enabled": True,
        "execution.checkpointing.aligned-checkpoint-timeout": "40 ms",
    },
    "capped": {"execution.checkpointing.unaligned.enabled": True, "runtime.inflight-cap.bytes": "6 kb"},
    "last-barrier": {
        "execution.checkpointing.unaligned.enabled": True,
        "runtime.unaligned.starts-with": "last-barrier",
    },
    "chandy-lamport": {"runtime.chandy-lamport.enabled": True},
}
RECORDS = 400
STAYS: dict[str, object] = {"runtime.finish-protocol": "none"}
"""The tasks of a bounded job stay after the end of their data.

For tests that need more checkpoints than fit before the last record, or a job that goes on after it.
"""


def small_job(
    protocol: str,
    *,
    seed: int = 1,
    task_managers: int = 1,
    fuzz: int = 0,
    plan: tuple[FaultSpec, ...] = (),
    records: int | None = RECORDS,
    record_bytes: int = 120,
    parallelism: int = 2,
    config: dict[str, object] | None = None,
    keyed: dict[str, object] | None = None,
    mapped: dict[str, object] | None = None,
) -> JobSpec:
    """Build a job of sources, a map, and a slow keyed stage with the sink. It ends when every record is committed.

    ``keyed`` and ``mapped`` add settings to the keyed stage and the map.
    """
    settings: dict[str, object] = {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.timeout": "2 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
        "taskmanager.memory.segment-size": 512,
        "restart-strategy.fixed-delay.delay": "20 ms",
        "runtime.task-managers": task_managers,
        "runtime.fuzz-schedule": fuzz,
        "runtime.inflight-cap.stall": "200 ms",
    }
    settings |= PROTOCOLS[protocol] | (config or {})
    source: dict[str, Any] = {"id": "source", "kind": "source", "parallelism": parallelism, "keys": 20, "cost_us": 100}
    source["record_bytes"] = record_bytes
    if records is not None:
        source["limit"] = records
    document = {
        "name": f"small-{protocol}",
        "seed": seed,
        "config": settings,
        "vertex": [
            source,
            {"id": "map", "kind": "map", "parallelism": parallelism, "cost_us": 200} | (mapped or {}),
            {"id": "keyed", "kind": "keyed+sink", "parallelism": parallelism, "cost_us": 2000} | (keyed or {}),
        ],
        "edge": [
            {"from": "source", "to": "map", "partitioner": "rebalance"},
            {"from": "map", "to": "keyed", "partitioner": "hash"},
        ],
        "store": {"latency": "5 ms", "bytes_per_s": "10 mb"},
    }
    return replace(load_job_document(document), faults=plan)


def two_subtasks_job(
    *, store_ms: int = 10, plan: tuple[FaultSpec, ...] = (), seed: int = 1, **settings: str | int | bool
) -> JobSpec:
    """Build a job of one source and one sink that cost nothing, so that a checkpoint takes as long as the store.

    ``settings`` are settings of ``execution.checkpointing``, by the last part of their names.
    """
    config: dict[str, object] = {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
        "runtime.cost.rpc-latency": "1 us",
        "runtime.cost.barrier": "0 us",
        "runtime.cost.sync": "0 us",
        "restart-strategy.fixed-delay.delay": "30 ms",
        "web.checkpoints.history": 100,
    }
    config |= {f"execution.checkpointing.{name.replace('_', '-')}": value for name, value in settings.items()}
    document = {
        "name": "two",
        "seed": seed,
        "config": config,
        "vertex": [
            {"id": "source", "kind": "source", "rate": 200, "cost_us": 1},
            {"id": "sink", "kind": "sink", "cost_us": 1},
        ],
        "edge": [{"from": "source", "to": "sink", "partitioner": "forward"}],
        "store": {"latency": f"{store_ms} ms", "bytes_per_s": 1_000_000_000_000},
    }
    return replace(load_job_document(document), faults=plan)


def exactly_once_violations(rows: list[Row], records: int = RECORDS) -> list[str]:
    """Return the violations in committed rows: lost records, repeated records, and keys whose counts are not 1..n."""
    problems: list[str] = []
    origins = [row.origin for row in rows]
    if len(set(origins)) != len(origins):
        problems.append(f"{len(origins) - len(set(origins))} repeated records")
    if len(set(origins)) < records:
        problems.append(f"{records - len(set(origins))} records missing")
    by_key: dict[int, list[int]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row.value)
    for key, values in by_key.items():
        if sorted(values) != list(range(1, len(values) + 1)):
            problems.append(f"key {key} counted {sorted(values)[:5]}.. over {len(values)} records")
    return problems


def points_of(protocol: str) -> tuple[str, ...]:
    """Return the failpoints that a run of the protocol reaches."""
    points = (
        *faults.COORDINATOR_POINTS,
        *faults.TASK_POINTS,
        *faults.TIMER_POINTS,
        *faults.SINK_POINTS,
        *faults.SOURCE_POINTS,
        "recovery.before-output",
        "recovery.in-operator",
        "recovery.before-new-data",
    )
    if protocol == "aligned":
        return points
    if protocol == "chandy-lamport":
        # Markers overtake nothing, so a run persists no output and reaches no failpoint of output. A marker is
        # announced.
        return (*points, *faults.UNALIGNED_POINTS, "task.after-announcement", "recovery.mid-input")
    points = (*points, *faults.UNALIGNED_POINTS, "recovery.mid-output", "recovery.mid-input")
    return (*points, *faults.TIMEOUT_POINTS) if protocol == "aligned-timeout" else points


def late_triggers() -> list[FaultSpec]:
    """Return faults that delay every second trigger, so that the barriers of a task arrive far apart."""
    return [FaultSpec("rpc.trigger", hit=2, action=FaultAction.DELAY, delay_us=45_000) for _ in range(200)]


# A run reaches failpoints with these prefixes only a few times, and other failpoints dozens of times.
_OF_A_SWITCH = ("task.output-switch", "task.input-switch", "task.mid-channel-state", "recovery.mid")
_RARE = ("coordinator.", "recovery.", "task.output-switch", "task.input-switch", "task.mid-channel-state", "sink.")


@dataclass(frozen=True, slots=True)
class Needs:
    """The faults and settings that a run needs so that it reaches a failpoint."""

    plan: tuple[FaultSpec, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)
    task_managers: int | None = None
    has_timers: bool = False
    hit_most: int = 12
    """About how often a run reaches the failpoint. A crash can be planned at any of these hits."""


def needs_of(point: str, protocol: str) -> Needs:
    """Return the faults and settings with which a run reaches ``point``."""
    if point.startswith("recovery."):
        # The job must first take a checkpoint and crash, so that it has something to restore.
        return Needs((FaultSpec("coordinator.between-notifies", hit=3),), hit_most=3)
    if point == "coordinator.on-expiry":
        late = tuple(
            FaultSpec("rpc.ack", hit=3 + 5 * i, action=FaultAction.DELAY, delay_us=1_000_000) for i in range(3)
        )
        return Needs(late, {"execution.checkpointing.timeout": "300 ms"}, hit_most=2)
    if protocol == "aligned-timeout" and point.startswith(_OF_A_SWITCH):
        # Only jobs with two task managers have links, announcements and input queues (UC-10).
        managers = 2 if point == "task.input-switch" else None
        config = {"execution.checkpointing.aligned-checkpoint-timeout": "10 ms"}
        return Needs(config=config, task_managers=managers, hit_most=1)
    if point == "task.after-announcement":
        return Needs(task_managers=2)
    return Needs(has_timers=point in faults.TIMER_POINTS, hit_most=3 if point.startswith(_RARE) else 12)


def drawn_run(protocol: str, seed: int) -> JobSpec:
    """Build the run of one seed. Consecutive seeds rotate through the protocol's failpoints.

    The seed determines at random when the failpoint strikes, and adds further crashes.
    """
    draws = Stream(seed, "test faults")
    points = points_of(protocol)
    point = points[seed % len(points)]
    plan: list[FaultSpec] = []
    # A job that ends passes some failpoints only a few times, so in every second rotation the tasks stay.
    config: dict[str, object] = dict(STAYS) if seed // len(points) % 2 else {}
    if point.startswith("recovery."):
        # The job must first take a checkpoint and crash, so that it has something to restore.
        plan.append(FaultSpec("coordinator.between-notifies", hit=1 + draws.below(6)))
    if point == "coordinator.on-expiry":
        config["execution.checkpointing.timeout"] = "300 ms"
        plan += [FaultSpec("rpc.ack", hit=3 + 5 * i, action=FaultAction.DELAY, delay_us=1_000_000) for i in range(3)]
    if protocol == "aligned-timeout" and point.startswith(_OF_A_SWITCH):
        config["execution.checkpointing.aligned-checkpoint-timeout"] = "10 ms"
        plan.append(FaultSpec(point))
    else:
        most = 2 if point == "coordinator.on-expiry" else 3 if point.startswith(_RARE) else 12
        most = most if config.get("runtime.finish-protocol") else max(1, most // 3)
        plan.append(FaultSpec(point, hit=1 + draws.below(most)))
    plan += [FaultSpec(points[draws.below(len(points))], hit=1 + draws.below(20)) for _ in range(1 + draws.below(2))]
    if draws.below(2):
        plan += late_triggers()
    # With timers, the last stage holds back every record, and counts it when its timer fires. The same checks apply.
    has_timers = point in faults.TIMER_POINTS or draws.below(4) == 0
    config["execution.checkpointing.unaligned.interruptible-timers.enabled"] = draws.below(2) == 1
    # Only jobs with two task managers have links, announcements and input queues (UC-10).
    managers = 2 if point in ("task.after-announcement", "task.input-switch") else 1 + draws.below(2)
    return small_job(
        protocol,
        seed=seed,
        task_managers=managers,
        fuzz=draws.below(3) and 1 + seed,
        plan=tuple(plan),
        record_bytes=(60, 120, 700, 1500)[draws.below(4)],
        # With two channels per task, the second barrier is the last one. With three, one barrier arrives in between.
        parallelism=2 + draws.below(2),
        config=config,
        keyed={"kind": "timer+sink", "hold": "15 ms", "cost_us": 1800, "timer_cost_us": 200} if has_timers else None,
    )
