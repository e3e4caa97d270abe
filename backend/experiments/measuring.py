"""Measures single checkpoints: jobs, measures and comparisons that several experiments share.

An experiment of this kind is a table of variants, a table of jobs and a list of measures. Each run triggers checkpoints
after the buffers have filled, and measures them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from backend.experiments.flip76 import slow_sink_job
from backend.experiments.markers import THREAD as THREAD
from backend.experiments.markers import skewed_job
from backend.experiments.model import Experiment, Ordering, Row, run_engine
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec, Graph
from backend.runtime.measure.measures import MeasuredCheckpoint

Settings = dict[str, object]
Job = Callable[[int], JobSpec]
"""Builds a job from a seed."""

CP: Final = "execution.checkpointing."
UNALIGNED: Final[Settings] = {f"{CP}unaligned.enabled": True}
CHANDY_LAMPORT: Final[Settings] = {"runtime.chandy-lamport.enabled": True}
LAST_BARRIER: Final[Settings] = UNALIGNED | {"runtime.unaligned.starts-with": "last-barrier"}
ALIGNED_TIMEOUT: Final = f"{CP}aligned-checkpoint-timeout"

_WARM_UP_US: Final = 1_000_000
_WINDOW_US: Final = 500_000
_GAP_US: Final = 103_700
"""The least time from one trigger of a run to the next.

It is no multiple of the periods of sources, so that the checkpoints begin at different moments of them.
"""
_STEP_US: Final = 50_000
_LONGEST_US: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class Variant:
    """What one variant changes: settings of the job, and fields of its sources."""

    settings: Settings = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)

    def of(self, spec: JobSpec) -> JobSpec:
        """Return the job with the changes."""
        sources = [v.id for v in spec.graph.vertices if v.kind.is_source] if self.source else []
        for vertex in sources:
            spec = with_vertex(spec, vertex, **self.source)
        return spec.with_config({f"{CP}interval": "1 h", **self.settings})


@dataclass(frozen=True, slots=True)
class Measured:
    """A completed checkpoint, its engine, and the records per second of the last vertex after the trigger."""

    record: MeasuredCheckpoint
    engine: JobEngine
    sink_records_per_s: float

    def longest_start_us(self, vertex: int | None = None) -> int:
        """Return the longest start delay of the subtasks of a vertex, or of all subtasks."""
        acks = self.record.acks.items()
        return max(ack.measured.start_delay_us for (v, _), ack in acks if vertex in (None, v))

    @property
    def input_bytes(self) -> int:
        """Persisted bytes that were queued at receivers, or arrived there while the checkpoint ran."""
        return sum(p.size_bytes for ack in self.record.acks.values() for p in ack.measured.inputs.values())

    @property
    def last_vertex(self) -> int:
        """The index of the last vertex."""
        return len(self.record.graph.vertices) - 1


MEASURES: Final[Mapping[str, tuple[str, Callable[[Measured], float]]]] = {
    "duration": ("ms end to end", lambda m: (m.record.end_to_end_us or 0) / 1000),
    "start delay": ("ms until the last task began", lambda m: m.longest_start_us() / 1000),
    "at the last vertex": ("ms until the barrier arrived", lambda m: m.longest_start_us(m.last_vertex) / 1000),
    "persisted": ("kB in flight", lambda m: m.record.persisted_bytes / 1000),
    "persisted input": ("kB in flight", lambda m: m.input_bytes / 1000),
    "messages": ("messages of the coordinator", lambda m: m.record.trigger_count),
    "writes at once": ("writes to the store", lambda m: m.record.concurrent_writes_max),
    "other messages waited": ("ms at most", lambda m: m.engine.env.message_wait_max_us / 1000),
    "processed meanwhile": ("records/s in the half second after the trigger", lambda m: m.sink_records_per_s),
}
"""Unit and value of each measure of a checkpoint."""


def checkpoints_of(spec: JobSpec, count: int = 1) -> list[Measured]:
    """Run the job until its buffers have filled. Trigger checkpoints one after the other, and return all of them.

    Raises:
        RuntimeError: a checkpoint does not complete within a minute of virtual time.
    """
    engine = run_engine(spec, _WARM_UP_US)
    return [_checkpoint(engine, _WINDOW_US if count == 1 else _GAP_US) for _ in range(count)]


def _checkpoint(engine: JobEngine, window_us: int) -> Measured:
    began_us, before, known = engine.now_us, _at_last(engine), engine.coordinator.completed_count
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(began_us + window_us)
    rate = (_at_last(engine) - before) * 1e6 / window_us
    while engine.coordinator.completed_count == known:
        if engine.now_us > began_us + _LONGEST_US:
            raise RuntimeError(f"a checkpoint of {engine.spec.name} does not complete")
        engine.run_until(engine.now_us + _STEP_US)
    return Measured(engine.coordinator.all_completed[-1], engine, rate)


def _at_last(engine: JobEngine) -> int:
    last = engine.env.graph.vertices[-1].id
    return sum(task.records_in for task in engine.tasks if task.spec.id == last)


def comparison(
    name: str,
    title: str,
    sentence: str,
    *,
    variants: Mapping[str, Variant],
    jobs: Mapping[str, Job],
    measures: Sequence[str],
    orderings: tuple[Ordering, ...],
    checkpoints: int = 1,
) -> Experiment:
    """Return an experiment that measures checkpoints of each job with each variant.

    The names of ``jobs`` are the settings of the rows. ``measures`` are names of ``MEASURES``. A row is the mean over
    the ``checkpoints`` of a run.
    """

    def run(task: str, seed: int, _: float) -> list[Row]:
        rows = []
        for setting, job in jobs.items():
            measured = checkpoints_of(variants[task].of(job(seed)), checkpoints)
            for measure in measures:
                unit, value = MEASURES[measure]
                rows.append(Row(measure, task, setting, seed, statistics.mean(map(value, measured)), unit))
        return rows

    return Experiment(name, title, sentence, tuple(variants), run, orderings)


def with_vertex(spec: JobSpec, vertex_id: str, **changes: Any) -> JobSpec:
    """Return the job with changed fields of one vertex."""
    vertices = tuple(replace(v, **changes) if v.id == vertex_id else v for v in spec.graph.vertices)
    return replace(spec, graph=Graph(vertices, spec.graph.edges))


# --- jobs -------------------------------------------------------------------------------------------------------------


def busy_job(seed: int) -> JobSpec:
    """Return a job with a slow sink, which keeps the channels of both shuffles full."""
    return slow_sink_job("aligned", seed=seed)


def flowing_job(seed: int) -> JobSpec:
    """Return a job whose sources send 60 % of what the sink can process, so that records wait but no channel fills."""
    return with_vertex(busy_job(seed), "source", rate=600)


def light_job(seed: int) -> JobSpec:
    """Return a job whose sources send 6 % of what the sink can process."""
    return with_vertex(slow_sink_job("aligned", seed=seed, slow_us=200), "source", rate=600)


def even_job(seed: int) -> JobSpec:
    """Return a job in which two sources keep all channels of a slow stage full."""
    return skewed_job({}, load="even", seed=seed)


def uneven_job(seed: int) -> JobSpec:
    """Return the same job with one source that has little to send."""
    return skewed_job({}, load="skewed", seed=seed)


def late(job: Job, *, hit: int = 2, times: int = 1, delay_us: int = 45_000) -> Job:
    """Return the job with trigger messages that arrive late, so that the barriers of a task arrive apart.

    The ``hit``-th message is late, then the ``hit``-th after that one, until ``times`` messages were late.
    """
    fault = FaultSpec("rpc.trigger", hit=hit, action=FaultAction.DELAY, delay_us=delay_us)
    return lambda seed: replace(job(seed), faults=(fault,) * times)


_CHAIN: Final = ("source", "first", "second", "third", "sink")


def chain_job(seed: int, *, sync: str, order: str | None = None) -> JobSpec:
    """Return an idle chain of five tasks, each of which does synchronous work when it takes its snapshot.

    The vertex named "second" also reads another source. ``order`` is the order of the phases of its checkpoints, which
    are then Chandy-Lamport checkpoints.
    """
    phases = {} if order is None else {**CHANDY_LAMPORT, "runtime.phase-order": order}
    document: dict[str, Any] = {
        "name": "chain",
        "seed": seed,
        "config": {"runtime.cost.sync": sync, "runtime.fuzz-schedule": 1 + seed, **phases},
        "vertex": [
            {"id": "source", "kind": "source", "rate": 100},
            {"id": "late", "kind": "source", "rate": 100},
            *({"id": name, "kind": "map"} for name in _CHAIN[1:-1]),
            {"id": "sink", "kind": "sink"},
        ],
        "edge": [
            *({"from": a, "to": b, "partitioner": "shuffle"} for a, b in pairwise(_CHAIN)),
            {"from": "late", "to": "second", "partitioner": "shuffle"},
        ],
    }
    return load_job_document(document)
