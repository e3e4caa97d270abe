"""Chandy-Lamport compared with overtaking barriers, and how its checkpoints are triggered.

*chandy-lamport* compares protocols under even load and under skew: two sources feed a slow stage, and under skew one
source has little to send, so that its markers arrive early. *triggering* compares messages to the sources with messages
to all tasks, as the number of tasks grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from backend.experiments.model import Experiment, Ordering, Row, below, cannot, every, run_engine
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import MeasuredCheckpoint

_CP = "execution.checkpointing."
PROTOCOLS: Final[Mapping[str, Mapping[str, object]]] = {
    "aligned": {},
    "chandy-lamport": {"runtime.chandy-lamport.enabled": True},
    "unaligned": {f"{_CP}unaligned.enabled": True},
    "last-barrier": {f"{_CP}unaligned.enabled": True, "runtime.unaligned.starts-with": "last-barrier"},
}
LOADS: Final = ("even", "skewed")
_WARM_UP_US, _ENDED_US, _WIDE_ENDED_US = 500_000, 4_000_000, 1_000_000


def skewed_job(settings: Mapping[str, object], *, load: str, seed: int) -> JobSpec:
    """Return a job of two sources and a slow stage. Under skew, one of the sources has little to send."""
    common: dict[str, Any] = {"parallelism": 2, "record_bytes": 500}
    light: dict[str, Any] = {} if load == "even" else {"rate": 40}
    document = {
        "name": f"markers-{load}",
        "seed": seed,
        "config": {
            f"{_CP}interval": "1 h",
            "taskmanager.memory.segment-size": 4096,
            "runtime.task-managers": 2,
            "runtime.fuzz-schedule": 1 + seed,
            **settings,
        },
        "vertex": [
            {"id": "light", "kind": "source", "keys": 50, "cost_us": 20, **light, **common},
            {"id": "heavy", "kind": "source", "keys": 50, "cost_us": 20, **common},
            {"id": "work", "kind": "keyed+sink", "cost_us": 2_000, **common},
        ],
        "edge": [{"from": name, "to": "work", "partitioner": "hash"} for name in ("light", "heavy")],
        "store": {"latency": "5 ms", "bytes_per_s": "100 mb"},
    }
    return load_job_document(document)


def _checkpoint_of(spec: JobSpec, ended_us: int = _ENDED_US) -> tuple[MeasuredCheckpoint, JobEngine]:
    """Run the job. Return the only checkpoint that is triggered after the buffers have filled, and the engine."""
    engine = run_engine(spec, _WARM_UP_US)
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(ended_us)
    return engine.coordinator.completed[-1].record, engine


def _run_markers(task: str, seed: int, _: float) -> list[Row]:
    rows = []
    for load in LOADS:
        record, engine = _checkpoint_of(skewed_job(PROTOCOLS[task], load=load, seed=seed))
        work = [ack.measured for (vertex, _), ack in record.acks.items() if vertex == 2]
        taken_us = max(m.start_delay_us + m.before_snapshot_us for m in work)
        rows += [
            Row("duration", task, load, seed, (record.end_to_end_us or 0) / 1000, "ms end to end"),
            Row("state taken after", task, load, seed, taken_us / 1000, "ms since the trigger"),
            Row("persisted", task, load, seed, record.persisted_bytes / 1000, "kB in flight"),
            Row("throughput", task, load, seed, _at_work(engine), "records/s"),
        ]
    return rows


def _at_work(engine: JobEngine) -> float:
    return sum(task.records_in for task in engine.tasks if task.spec.id == "work") * 1e6 / engine.now_us


_S0 = "thread Checkpointing under backpressure, Flink's developer list"

MARKERS: Final = Experiment(
    name="chandy-lamport",
    title="Chandy-Lamport and overtaking barriers, under even load and skew",
    sentence="Markers wait behind queued data but block nothing; overtaking barriers wait for nothing but store more.",
    tasks=tuple(PROTOCOLS),
    run=_run_markers,
    orderings=(
        Ordering(
            "Without overtaking, a Chandy-Lamport checkpoint takes at least 0.7 times as long as an aligned one.",
            _S0,
            every(*(below("duration", load, "aligned", "chandy-lamport", times=0.7) for load in LOADS)),
        ),
        Ordering(
            "Overtaking barriers make the checkpoint at least five times shorter.",
            _S0,
            every(*(below("duration", load, "unaligned", "chandy-lamport", times=5) for load in LOADS)),
        ),
        Ordering(
            "Chandy-Lamport logs less than all queued data, which overtaking barriers store.",
            _S0,
            every(*(below("persisted", load, "chandy-lamport", "unaligned") for load in LOADS)),
        ),
        Ordering(
            "Under skew, the light channel starts the snapshot at least twice as early, and the log grows.",
            _S0,
            every(
                below("state taken after", "skewed", "chandy-lamport", "chandy-lamport", times=2, other="even"),
                below("persisted", "even", "chandy-lamport", "chandy-lamport", other="skewed"),
            ),
        ),
        Ordering(
            "Waiting for the last barrier stores at most as much as starting at the first one.",
            f"{_S0}: the last-barrier option",
            every(*(below("persisted", load, "last-barrier", "unaligned", or_equal=True) for load in LOADS)),
        ),
        Ordering(
            "Uncoordinated checkpoints are better under skew, and coordinated ones under even load.",
            "CheckMate, ICDE 2024",
            cannot("the runtime has coordinated protocols only"),
        ),
    ),
)

INITIATIONS: Final = {"sources": "sources", "all tasks": "all-tasks"}
PARALLELISMS: Final = (2, 8, 32)


def wide_job(initiation: str, parallelism: int, *, seed: int) -> JobSpec:
    """Return an idle job of three vertices. Sending a message takes the coordinator 1 ms."""
    common = {"parallelism": parallelism, "record_bytes": 100, "cost_us": 10}
    document = {
        "name": "triggering",
        "seed": seed,
        "config": {
            f"{_CP}interval": "1 h",
            "runtime.chandy-lamport.enabled": True,
            "runtime.chandy-lamport.initiation": initiation,
            "runtime.cost.trigger": "1 ms",
            "runtime.fuzz-schedule": 1 + seed,
        },
        "vertex": [
            {"id": "source", "kind": "source", "rate": 20 * parallelism, **common},
            {"id": "map", "kind": "map", **common},
            {"id": "sink", "kind": "keyed+sink", "state_bytes": 2_000, **common},
        ],
        "edge": [
            {"from": "source", "to": "map", "partitioner": "rebalance"},
            {"from": "map", "to": "sink", "partitioner": "hash"},
        ],
        "store": {"latency": "20 ms", "bytes_per_s": "100 mb"},
    }
    return load_job_document(document)


def tasks_word(parallelism: int) -> str:
    """Return the setting of a row as text: the number of tasks at this parallelism."""
    return f"{3 * parallelism} tasks"


def _run_triggering(task: str, seed: int, _: float) -> list[Row]:
    rows = []
    for parallelism in PARALLELISMS:
        record, _engine = _checkpoint_of(wide_job(INITIATIONS[task], parallelism, seed=seed), _WIDE_ENDED_US)
        setting = tasks_word(parallelism)
        delay_us = max(ack.measured.start_delay_us for ack in record.acks.values())
        rows += [
            Row("messages", task, setting, seed, record.trigger_count, "messages of the coordinator"),
            Row("writes at once", task, setting, seed, record.concurrent_writes_max, "writes to the store"),
            Row("start delay", task, setting, seed, delay_us / 1000, "ms until the last task began"),
            Row("duration", task, setting, seed, (record.end_to_end_us or 0) / 1000, "ms end to end"),
        ]
    return rows


_FEW, _MANY = tasks_word(PARALLELISMS[0]), tasks_word(PARALLELISMS[-1])

TRIGGERING: Final = Experiment(
    name="triggering",
    title="Chandy-Lamport: messages to the sources or to all tasks",
    sentence="What triggering every task costs the coordinator and the store as the number of tasks grows.",
    tasks=tuple(INITIATIONS),
    run=_run_triggering,
    orderings=(
        Ordering(
            "Triggering all tasks takes as many messages as there are tasks: three times those to the sources here.",
            _S0,
            every(*(below("messages", tasks_word(p), "sources", "all tasks", times=2.9) for p in PARALLELISMS)),
        ),
        Ordering(
            "Triggering all tasks makes more of them write to the store at once.",
            _S0,
            every(
                *(below("writes at once", tasks_word(p), "sources", "all tasks", or_equal=True) for p in PARALLELISMS)
            ),
            "In an idle job, markers reach every task within milliseconds, before the first write has ended, so both"
            " ways make all tasks write at once. Under backpressure, markers would spread the writes.",
        ),
        Ordering(
            "As tasks grow, the messages take longer than the markers, so triggering all tasks is not faster.",
            _S0,
            below("start delay", _MANY, "sources", "all tasks", or_equal=True),
            "A marker passes three vertices only, and a task that gets one need not wait for its own message, so both"
            " wait for the last message to a source.",
        ),
    ),
)
