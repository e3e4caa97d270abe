"""What can be simulated: the shapes of jobs, the protocols, the settings, and the limits.

A request is checked here, before it is queued. The number of records that a run will process is estimated from the
rates, costs and parallelism of its vertices: the vertex with the least capacity for its load slows all others down.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from backend.contracts.simulations import (
    ProtocolGroup,
    ProtocolOut,
    ShapeOut,
    SimulationCatalogOut,
    SimulationIn,
    SimulationLimitsOut,
)
from backend.domain.errors import FieldProblem, InvalidInputError, PlanError, TooLargeError
from backend.runtime.demo import demo_path
from backend.runtime.engine.jobfile import JobSpec, load_job
from backend.runtime.job import config, graph
from backend.runtime.job.settings_refused import not_taken
from backend.services.simulations.offered_settings import offered, values_of

_US = 1_000_000
_CP = "execution.checkpointing."
_ALIGNED_TIMEOUT = f"{_CP}aligned-checkpoint-timeout"
CAP: Final = "runtime.inflight-cap.bytes"
# The settings that select a protocol. Each protocol replaces some of them, so the shape's own protocol does not matter.
_PLAIN: Final[Mapping[str, str]] = {
    f"{_CP}mode": "EXACTLY_ONCE",
    f"{_CP}unaligned.enabled": "false",
    _ALIGNED_TIMEOUT: "0 s",
    CAP: "unlimited",
    "runtime.unaligned.starts-with": "first-barrier",
    "runtime.chandy-lamport.enabled": "false",
    "runtime.chandy-lamport.initiation": "sources",
    "execution.checkpointing.incremental": "false",
    "runtime.state-backend": "full",
}
_UNALIGNED: Final = {f"{_CP}unaligned.enabled": "true"}
_CHANDY_LAMPORT: Final = {"runtime.chandy-lamport.enabled": "true"}
_INCREMENTAL: Final = {"execution.checkpointing.incremental": "true"}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of simulations. ``SimulationLimitsOut`` describes each field."""

    virtual_max_s: float = 600.0
    subtasks_max: int = 96
    checkpoints_max: int = 200
    record_steps_max: int = 1_000_000
    curve_record_steps_max: int = 3_000_000
    cpu_max_s: float = 120.0
    queue_max: int = 16
    caller_max: int = 4
    kept_max: int = 100
    kept_max_s: float = 24 * 3600.0


LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class _Shape:
    title: str
    sentence: str
    job: str
    """The name of the demo job that has this shape."""


@dataclass(frozen=True, slots=True)
class _Protocol:
    title: str
    sentence: str
    settings: Mapping[str, str]
    """The settings that replace those of the plain aligned protocol."""
    group: ProtocolGroup = ProtocolGroup.BARRIERS


_SHAPES: Final[Mapping[str, _Shape]] = {
    "backpressured": _Shape(
        "Slow keyed stage",
        "Two shuffles lead to a stage that is slower than the source. Barriers wait behind queued data.",
        "backpressured",
    ),
    "healthy": _Shape("Healthy", "The same stages with spare capacity.", "healthy"),
    "hot-key": _Shape(
        "Hot key", "One key has a large share of the records, so one subtask has most of the work.", "hot-key"
    ),
    "middle-straggler": _Shape(
        "Straggler", "One subtask in the middle of the job is slower than its siblings.", "middle-straggler"
    ),
    "slow-store": _Shape("Slow store", "State is large and the checkpoint storage is slow.", "slow-store"),
    "large-kv": _Shape(
        "Large keyed state",
        "A view with hundreds of megabytes of keyed state, of which a small part changes between checkpoints.",
        "large_kv",
    ),
    "bounded": _Shape(
        "Bounded sources", "Two sources of different length end one after the other, and the job ends too.", "bounded"
    ),
    "bounded-join": _Shape(
        "Bounded join",
        "A source that ends is joined with one that does not. Checkpoints continue without the subtasks that finished.",
        "bounded-join",
    ),
    "partly-finished": _Shape(
        "Partly finished job",
        "The rules and half of the orders have ended when the job fails at 30 s. It is restored with the rest.",
        "partly-finished",
    ),
    "legacy-source": _Shape(
        "Legacy source",
        "Two sources feed a slow stage. The legacy one blocks in the middle of a record, and its barrier waits.",
        "legacy-source",
    ),
    "fan-out": _Shape(
        "Fan-out",
        "A subtask turns one record into 500 in one step, so barriers reach the next stage at different times.",
        "fan-out",
    ),
    "busy-sync": _Shape(
        "Busy sync",
        "Five stages, each of which does nothing else for 100 ms while it takes its snapshot.",
        "busy-sync",
    ),
    "changing-load": _Shape(
        "Changing load",
        "Three quarters of the records of each 40 s come in its first 10 s, so only some checkpoints meet full queues.",
        "changing-load",
    ),
}
_PROTOCOLS: Final[Mapping[str, _Protocol]] = {
    "aligned": _Protocol(
        "Aligned", "A subtask waits for the barrier of every channel before it takes its snapshot.", {}
    ),
    "unaligned": _Protocol(
        "Unaligned", "The first barrier overtakes queued data, which the checkpoint persists.", _UNALIGNED
    ),
    "aligned-timeout": _Protocol(
        "Aligned with timeout",
        "The checkpoint begins aligned and becomes unaligned after the timeout.",
        _UNALIGNED | {_ALIGNED_TIMEOUT: "1 s"},
    ),
    "capped": _Protocol(
        "Unaligned with a cap",
        "A subtask persists at most this much in-flight data and processes the rest first.",
        _UNALIGNED | {CAP: "64 kb"},
    ),
    "last-barrier": _Protocol(
        "Unaligned on the last barrier",
        "A subtask overtakes queued data when its last barrier has arrived, not at the first one.",
        _UNALIGNED | {"runtime.unaligned.starts-with": "last-barrier"},
    ),
    "chandy-lamport": _Protocol(
        "Chandy-Lamport",
        "A subtask takes its snapshot at the first marker and logs the other channels until their markers arrive.",
        _CHANDY_LAMPORT,
    ),
    "chandy-lamport-all": _Protocol(
        "Chandy-Lamport, all tasks triggered",
        "The coordinator triggers every subtask, not only the sources, so no snapshot waits for a marker.",
        _CHANDY_LAMPORT | {"runtime.chandy-lamport.initiation": "all-tasks"},
    ),
    "at-least-once": _Protocol(
        "At least once",
        "Subtasks process all channels while barriers arrive. After a failure, records may count twice.",
        {f"{_CP}mode": "AT_LEAST_ONCE"},
    ),
    "incremental-changelog": _Protocol(
        "Incremental: changelog",
        "The states record their changes, and a checkpoint writes those since the last one (option I).",
        _INCREMENTAL | {"runtime.state-backend": "changelog"},
        ProtocolGroup.STATE,
    ),
    "incremental-diff": _Protocol(
        "Incremental: difference",
        "A checkpoint compares the state with that of the last confirmed one and writes the difference (option II).",
        _INCREMENTAL | {"runtime.state-backend": "diff"},
        ProtocolGroup.STATE,
    ),
    "incremental-sst": _Protocol(
        "Incremental: sorted files",
        "Changed rows go to sorted immutable files, which checkpoints share and the backend merges, as RocksDB does.",
        _INCREMENTAL | {"runtime.state-backend": "sst"},
        ProtocolGroup.STATE,
    ),
    "finish-revised": _Protocol(
        "Finish after a final checkpoint",
        "A subtask whose input has ended waits for one more checkpoint, which commits its last records (FLIP-147).",
        {"runtime.finish-protocol": "revised"},
        ProtocolGroup.END,
    ),
    "finish-legacy": _Protocol(
        "Finish at once",
        "A subtask whose input has ended finishes at once, as in Flink before 1.14. Its last records stay uncommitted.",
        {"runtime.finish-protocol": "legacy"},
        ProtocolGroup.END,
    ),
}
_SETTINGS: Final = offered({name: p.settings for name, p in _PROTOCOLS.items()}, _PLAIN)


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of a simulation: a protocol, and the job that uses it."""

    protocol: str
    spec: JobSpec


@cache
def catalog(limits: Limits = LIMITS) -> SimulationCatalogOut:
    """Return what can be simulated."""
    return SimulationCatalogOut(
        shapes=[_shape_out(name) for name in _SHAPES],
        protocols=[
            ProtocolOut(name=name, title=p.title, sentence=p.sentence, group=p.group, settings=dict(p.settings))
            for name, p in _PROTOCOLS.items()
        ],
        settings=list(_SETTINGS.values()),
        limits=SimulationLimitsOut.of(limits),
    )


def _shape_out(name: str) -> ShapeOut:
    shape, spec = _SHAPES[name], _spec_of(name)
    return ShapeOut(
        name=name,
        title=shape.title,
        sentence=shape.sentence,
        vertex_count=len(spec.graph.vertices),
        parallelism=max(v.parallelism for v in spec.graph.vertices),
        settings=values_of(spec.config, _SETTINGS),
    )


@cache
def _spec_of(shape: str) -> JobSpec:
    return load_job(demo_path(_SHAPES[shape].job))


def plan(request: SimulationIn, limits: Limits = LIMITS) -> list[PlannedRun]:
    """Check a request. Return its runs, in the order of its protocols.

    Raises:
        InvalidInputError: a word or a setting is unknown, or a value is out of bounds.
        PlanError: the settings contradict each other.
        TooLargeError: the simulation would exceed a limit.
    """
    _check_words(request)
    protocols = [p for p in (request.protocol, request.second_protocol) if p is not None]
    spec = replace(_spec_of(request.shape), seed=request.seed)
    if request.parallelism is not None:
        spec = _with_parallelism(spec, request.parallelism, limits)
    runs = [PlannedRun(protocol, _configured(spec, protocol, request.settings)) for protocol in protocols]
    _check_size(runs, request, limits)
    return runs


def _check_words(request: SimulationIn) -> None:
    problems = []
    if request.shape not in _SHAPES:
        problems.append(FieldProblem("shape", f"{request.shape!r} is not a shape", ", ".join(_SHAPES)))
    asked = {"protocol": request.protocol, "second_protocol": request.second_protocol}
    for field, word in asked.items():
        if word is not None and word not in _PROTOCOLS:
            problems.append(FieldProblem(field, f"{word!r} is not a protocol", ", ".join(_PROTOCOLS)))
    if request.second_protocol == request.protocol:
        problems.append(FieldProblem("second_protocol", "is the first protocol", "another protocol, or none"))
    for key in request.settings:
        setting = _SETTINGS.get(key)
        if setting is None and key in config.KEYS:
            problems.append(FieldProblem(f"settings.{key}", "is decided by the protocol", "choose another protocol"))
        elif setting is None:
            problems.append(not_taken(key, f"settings.{key}", tuple(_SETTINGS), is_known=False))
        elif setting.protocols is not None and not set(setting.protocols) & set(asked.values()):
            words = " or ".join(_PROTOCOLS[name].title for name in setting.protocols)
            problems.append(FieldProblem(f"settings.{key}", "is used by no chosen protocol", f"with {words}"))
    if problems:
        raise InvalidInputError(problems, what="simulation")


def _with_parallelism(spec: JobSpec, parallelism: int, limits: Limits) -> JobSpec:
    if parallelism * len(spec.graph.vertices) > limits.subtasks_max:
        _refuse_subtasks(parallelism * len(spec.graph.vertices), limits)
    named = [i for v in spec.graph.vertices for i in (*v.slow_factors, *v.slow_upload_factors, *v.slow_sync_factors)]
    if named and parallelism <= max(named):
        allowed = f"at least {max(named) + 1}, because subtask {max(named)} of this shape is a slow one"
        raise InvalidInputError([FieldProblem("parallelism", "is too small", allowed)], what="simulation")
    vertices = [replace(v, parallelism=parallelism) for v in spec.graph.vertices]
    changed = graph.ordered(vertices, list(spec.graph.edges))
    graph.validate(changed)
    return replace(spec, graph=changed)


def _configured(spec: JobSpec, protocol: str, settings: Mapping[str, str]) -> JobSpec:
    own = {
        key: value
        for key, value in settings.items()
        if (protocols := _SETTINGS[key].protocols) is None or protocol in protocols
    }
    try:
        return spec.with_config({**_PLAIN, **_PROTOCOLS[protocol].settings, **own})
    except InvalidInputError as error:
        problems = [replace(p, field=f"settings.{p.field}") for p in error.problems]
        raise InvalidInputError(problems, what="simulation") from None
    except PlanError as error:
        # The correction names the settings that contradict each other. The request has set at least one of them.
        named = [key for key in own if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.-])", error.fix)]
        field = f"settings.{named[0]}" if named else "settings"
        raise InvalidInputError([FieldProblem(field, f"{error.problem}; {error.fix}")], what="simulation") from None


def _check_size(runs: list[PlannedRun], request: SimulationIn, limits: Limits) -> None:
    duration_s, spec = request.duration_s, runs[0].spec
    if duration_s > limits.virtual_max_s:
        raise TooLargeError(
            "simulation",
            f"{duration_s:g} s of virtual time is more than {limits.virtual_max_s:g} s",
            field="duration_s",
            fix=f"run at most {limits.virtual_max_s:g} s",
        )
    subtasks = sum(v.parallelism for v in spec.graph.vertices)
    if subtasks > limits.subtasks_max:
        _refuse_subtasks(subtasks, limits)
    interval_s = spec.config.interval_us / _US
    if duration_s / interval_s > limits.checkpoints_max:
        raise TooLargeError(
            "simulation",
            f"{duration_s / interval_s:.0f} checkpoints a run are more than {limits.checkpoints_max}",
            field="duration_s",
            fix="run a shorter time or set a longer interval",
        )
    steps = sum(record_steps_per_s(run.spec.graph) * duration_s for run in runs)
    if steps > limits.record_steps_max:
        raise TooLargeError(
            "simulation",
            f"about {steps:,.0f} records to process are more than {limits.record_steps_max:,}",
            field="duration_s",
            fix=f"run at most {int(duration_s * limits.record_steps_max / steps)} s, or with less parallelism",
        )


def _refuse_subtasks(subtasks: int, limits: Limits) -> None:
    raise TooLargeError(
        "simulation",
        f"{subtasks} subtasks are more than {limits.subtasks_max}",
        field="parallelism",
        fix="set a smaller parallelism",
    )


def record_steps_per_s(job: graph.Graph) -> float:
    """Estimate how many records all vertices together process in a second, if the load is spread evenly."""
    load: dict[str, float] = {}  # what each vertex emits
    steps, share = 0.0, 1.0
    for vertex in job.vertices:
        capacity = vertex.parallelism * _US / max(1, vertex.cost_us)
        sources = [job.edges[e].source for e in job.inputs(vertex.id)]
        if sources:
            rate = sum(load[source] for source in sources)
            share = min(share, capacity / rate) if rate > 0 else share
        else:
            rate = min(vertex.rate or capacity, capacity)
        load[vertex.id] = rate * vertex.fan_out
        steps += rate
    return share * steps
