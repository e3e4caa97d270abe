"""Chandy-Lamport compared with overtaking barriers, under even load and under skew.

Two sources feed a slow stage. Under skew, one source has little to send, so that its markers arrive early.
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


THREAD: Final = "thread Checkpointing under backpressure, Flink's developer list"

MARKERS: Final = Experiment(
    name="chandy-lamport",
    title="Chandy-Lamport and overtaking barriers, under even load and skew",
    sentence="Markers wait behind queued data but block nothing; overtaking barriers wait for nothing but store more.",
    tasks=tuple(PROTOCOLS),
    run=_run_markers,
    orderings=(
        Ordering(
            "Without overtaking, a Chandy-Lamport checkpoint takes at least 0.7 times as long as an aligned one.",
            THREAD,
            every(*(below("duration", load, "aligned", "chandy-lamport", times=0.7) for load in LOADS)),
            says="Chandy Lamport still waits for all barriers to arrive naturally, logging on the way. If data"
            " processing is slow, this can still take quite a while.",
        ),
        Ordering(
            "Overtaking barriers make the checkpoint at least five times shorter.",
            THREAD,
            every(*(below("duration", load, "unaligned", "chandy-lamport", times=5) for load in LOADS)),
            says='I think for the end-to-end checkpoint duration, an "overtake buffers" approach yields faster'
            " checkpoints",
        ),
        Ordering(
            "Chandy-Lamport logs less than all queued data, which overtaking barriers store.",
            THREAD,
            every(*(below("persisted", load, "chandy-lamport", "unaligned") for load in LOADS)),
            says="Chandy Lamport seems only need to snaphost (n-1) input channels after the first barrier arrives,"
            " which might reduce the state sizea bit.",
        ),
        Ordering(
            "Under skew, the light channel starts the snapshot at least twice as early, and the log grows.",
            THREAD,
            every(
                below("state taken after", "skewed", "chandy-lamport", "chandy-lamport", times=2, other="even"),
                below("persisted", "even", "chandy-lamport", "chandy-lamport", other="skewed"),
            ),
            says="In the backpressure caused by data skew, the first barrier in almost empty input channel should"
            " arrive much eariler than the last heavy load input channel, so the Chandy Lamport could benefit well.",
        ),
        Ordering(
            "Waiting for the last barrier stores at most as much as starting at the first one.",
            f"{THREAD}: the last-barrier option",
            every(*(below("persisted", load, "last-barrier", "unaligned", or_equal=True) for load in LOADS)),
            says="there will be an option to trigger the unaligned checkpoints on the last barrier of all input"
            " channels instead of the first",
        ),
        Ordering(
            "Uncoordinated checkpoints are better under skew, and coordinated ones under even load.",
            "CheckMate, ICDE 2024",
            cannot("the runtime has coordinated protocols only"),
        ),
    ),
)
