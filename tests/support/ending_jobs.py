"""Jobs whose sources end, all of them or only some, for the tests of checkpoints after tasks finished."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from backend.runtime.measure.measures import MeasuredCheckpoint

_SETTINGS: dict[str, object] = {
    "execution.checkpointing.interval": "50 ms",
    "execution.checkpointing.timeout": "2 s",
    "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
    "taskmanager.memory.segment-size": 512,
    "restart-strategy.fixed-delay.delay": "20 ms",
    "web.checkpoints.history": 1000,
    "runtime.finish-protocol": "revised",
}


def ending_job(
    vertices: list[dict[str, Any]],
    edges: list[tuple[str, str, str]],
    *,
    plan: tuple[FaultSpec, ...] = (),
    seed: int = 1,
    **settings: object,
) -> JobSpec:
    """Build a job. ``settings`` maps full names of settings, in which ``_`` may replace ``.``, to their values."""
    document = {
        "name": "ending",
        "seed": seed,
        "config": _SETTINGS | settings,
        "vertex": vertices,
        "edge": [{"from": a, "to": b, "partitioner": how} for a, b, how in edges],
        "store": {"latency": "5 ms", "bytes_per_s": "10 mb"},
    }
    return replace(load_job_document(document), faults=plan)


def source(name: str, *, limit: int | None = None, **more: object) -> dict[str, Any]:
    """Return a source with 1000 records per second. Without ``limit`` it never ends."""
    spec: dict[str, Any] = {"id": name, "kind": "source", "keys": 10, "rate": 1000, "cost_us": 100, "record_bytes": 60}
    return spec | ({} if limit is None else {"limit": limit}) | more


def bounded_and_unbounded(*, plan: tuple[FaultSpec, ...] = (), seed: int = 1, **settings: object) -> JobSpec:
    """Build FLIP-147's example (FN-27): D reads C and ends with C, and E also reads A, which does not end."""
    return ending_job(
        [
            source("a"),
            source("c", limit=200, parallelism=2),
            {"id": "d", "kind": "keyed+sink", "cost_us": 50, "parallelism": 2},
            {"id": "e", "kind": "keyed+sink", "cost_us": 50},
        ],
        [("c", "d", "hash"), ("c", "e", "hash"), ("a", "e", "hash")],
        plan=plan,
        seed=seed,
        **settings,
    )


def cascade(stages: int = 3, *, plan: tuple[FaultSpec, ...] = (), seed: int = 1, **settings: object) -> JobSpec:
    """Build a bounded chain of keyed stages in front of a transactional sink."""
    names = [f"stage{n}" for n in range(stages)]
    vertices = [source("source", limit=300, parallelism=2)]
    vertices += [{"id": name, "kind": "keyed", "cost_us": 50, "parallelism": 2} for name in names[:-1]]
    vertices.append({"id": names[-1], "kind": "keyed+sink", "cost_us": 50, "parallelism": 2})
    edges = [(a, b, "hash") for a, b in zip(["source", *names], names, strict=False)]
    return ending_job(vertices, edges, plan=plan, seed=seed, **settings)


def run(spec: JobSpec, until_us: int = 5_000_000) -> tuple[JobEngine, list[MeasuredCheckpoint]]:
    """Run the job until it ends, at most until ``until_us``. Return the engine and all ended checkpoints."""
    engine = JobEngine(spec, keeps_rows=True)
    ended: list[MeasuredCheckpoint] = []
    engine.coordinator.on_terminal = ended.append
    while engine.ended_at_us is None and engine.now_us < until_us:
        engine.run_until(engine.now_us + 20_000)
    return engine, ended


def steps_of(engine: JobEngine, vertex: str, subtask: int = 0) -> list[str]:
    """Return the steps by which one subtask of the last attempt has ended, in order, without their prefix."""
    index = next(n for n, spec in enumerate(engine.env.graph.vertices) if spec.id == vertex)
    return [
        step.value.removeprefix("finish.") + ("" if which is None else f"({which})")
        for _, task, step, which in engine.env.finish_steps
        if task == (index, subtask)
    ]
