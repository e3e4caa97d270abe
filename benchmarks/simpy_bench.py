"""Compares the reference runtime with SimPy, on the same bounded pipeline with barriers, alignment and measurements.

The pipeline is source -> map -> keyed stage, with four subtasks each, two shuffles, bounded queues, a checkpoint per
second, and Flink's default buffers of 32 KiB. A second variant has buffers of ten records, with which the runtime can
plan few steps ahead. In SimPy, a subtask is a process and its input is one ``Store``, which is SimPy's fastest form.
The SimPy pipeline moves tuples, aligns by setting records aside, copies its counts and measures times. It has no bytes,
segments, credits, mailbox, recovery or trace. The runtime and SimPy get the same source records. They must count the
same records of every key, otherwise nothing is printed.

The runtime is measured by sizes (with the sizes of records, but without their bytes) and with bytes, and with and
without checkpoints. The last variant is a job of six vertices with sixteen subtasks each and a slow sink. It measures
the virtual time that passes per second of CPU.

In a round, all variants alternate in turns of half a virtual second, so that a temporarily slow machine affects all of
them. The CPU time of this process is counted, with the garbage collector off, as ``timeit`` does. A ratio is the median
over the rounds with its 95 % interval. A target is met if the worse end of the interval meets it.

    python benchmarks/simpy_bench.py [--pairs 7] [--json] [--gate]
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import simpy

from backend.runtime.core.hashing import key_group, owner_of_group
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.operators.operators import Keyed
from backend.runtime.operators.sources import Source
from tests.support.benchmarking import parser_of, spread_words

_RECORDS = 160_000
_SUBTASKS = 4
_COSTS_US = (20, 20, 400)
_MAX_PARALLELISM = 128
_INTERVAL_US = 1_000_000
_SEGMENT_BYTES = 32 * 1024
_SMALL_SEGMENT_BYTES = 2048
_RECORD_BYTES = 200
# About as many buffers as the runtime's queues between two subtasks hold with Flink's defaults: two per channel and
# eight per gate, on either side.
_QUEUE_BUFFERS = 8
_BESIDE_SIMPY_MIN = {"by sizes": 5.0, "with bytes": 3.0}
_PROTOCOL_COST_MAX = {"aligned": 1.1, "unaligned": 1.1, "aligned with timeout": 1.25, "capped": 1.25}
_PROTOCOLS: dict[str, dict[str, object]] = {
    "aligned": {},
    "unaligned": {"execution.checkpointing.unaligned.enabled": True},
    "aligned with timeout": {
        "execution.checkpointing.unaligned.enabled": True,
        "execution.checkpointing.aligned-checkpoint-timeout": "50 ms",
    },
    "capped": {"execution.checkpointing.unaligned.enabled": True, "runtime.inflight-cap.bytes": "64 kb"},
}
_UNALIGNED = _PROTOCOLS["unaligned"]
# These are measured too, without a target: Flink does not have them.
_OTHERS: dict[str, dict[str, object]] = {
    "Chandy-Lamport": {"runtime.chandy-lamport.enabled": True},
    "unaligned on the last barrier": _UNALIGNED | {"runtime.unaligned.starts-with": "last-barrier"},
    "unaligned with continuous spilling": _UNALIGNED | {"runtime.spilling": "continuous"},
}
_WIDE_VERTICES, _WIDE_SUBTASKS, _WIDE_S = 6, 16, 3.0
_TURN_US = 500_000
_SIMPY, _QUIET = "SimPy", "without checkpoints"

Side = Callable[[], Iterator[object]]
"""Begins a run of one variant. Each step of the returned iterator runs one turn, until the run is over."""


def _job(
    config: dict[str, object], *, interval: str = f"{_INTERVAL_US} us", segment_bytes: int = _SEGMENT_BYTES
) -> JobSpec:
    common = {"parallelism": _SUBTASKS, "record_bytes": _RECORD_BYTES, "max_parallelism": _MAX_PARALLELISM}
    kinds = ("source", "map", "keyed+sink")
    vertices: list[dict[str, object]] = [
        {"id": kind, "kind": kind, "cost_us": cost, **common} for kind, cost in zip(kinds, _COSTS_US, strict=True)
    ]
    vertices[0] |= {"keys": 500, "limit": _RECORDS}
    settings: dict[str, object] = {
        "execution.checkpointing.interval": interval,
        "taskmanager.memory.segment-size": segment_bytes,
        "runtime.task-managers": 2,
        "web.checkpoints.history": 100,
    }
    edges = [
        {"from": "source", "to": "map", "partitioner": "rebalance"},
        {"from": "map", "to": "keyed+sink", "partitioner": "hash"},
    ]
    return load_job_document(
        {"name": "beside-simpy", "seed": 1, "config": settings | config, "vertex": vertices, "edge": edges}
    )


def _wide_job(config: dict[str, object]) -> JobSpec:
    """Return a job in which every vertex but the last has spare capacity. Its source has no rate limit."""
    common: dict[str, object] = {"parallelism": _WIDE_SUBTASKS, "record_bytes": 200, "cost_us": 200}
    names = [f"stage-{n}" for n in range(_WIDE_VERTICES)]
    vertices = [{"id": name, "kind": "map", **common} for name in names]
    vertices[0] |= {"kind": "source", "keys": 5_000}
    vertices[-1] |= {"kind": "keyed+sink", "cost_us": 10_000}
    edges = [{"from": a, "to": b, "partitioner": "hash" if b == names[-1] else "rebalance"} for a, b in pairwise(names)]
    settings: dict[str, object] = {
        "execution.checkpointing.interval": "500 ms",
        "taskmanager.memory.segment-size": _SMALL_SEGMENT_BYTES,
        "runtime.task-managers": 4,
    }
    return load_job_document(
        {"name": "wide", "seed": 1, "config": settings | config, "vertex": vertices, "edge": edges}
    )


# --- the runtime ------------------------------------------------------------------------------------------------------


def _run(spec: JobSpec, *, is_size_only: bool) -> JobEngine:
    *_, engine = _turns(spec, is_size_only=is_size_only)
    return engine


def _turns(spec: JobSpec, *, is_size_only: bool) -> Iterator[JobEngine]:
    engine = JobEngine(spec, is_size_only=is_size_only)
    while sum(t.records_in for t in engine.tasks if t.spec.kind.is_keyed) < _RECORDS:
        engine.run_until(engine.now_us + _TURN_US)
        yield engine


def _counts(engine: JobEngine) -> Counter[int]:
    counts: Counter[int] = Counter()
    for task in engine.tasks:
        operator = task.operators[0]
        if isinstance(operator, Keyed):
            counts.update(operator.counts)
    return counts


# --- SimPy ------------------------------------------------------------------------------------------------------------

_Item = tuple[int, int]
"""(sender, key) for a record, or (sender, -1 - checkpoint) for a barrier."""


@dataclass(slots=True)
class _Measured:
    """The measurements of one subtask: the delays of its checkpoints, and how it spent its time."""

    first_us: dict[int, float] = field(default_factory=dict)
    alignments_us: list[float] = field(default_factory=list)
    start_delays_us: list[float] = field(default_factory=list)
    busy_us: float = 0
    idle_us: float = 0
    backpressured_us: float = 0


class _SimPyPipeline:
    """The same pipeline in SimPy: a process for every subtask, and a bounded store for its input."""

    def __init__(self, spec: JobSpec, *, interval_us: int) -> None:
        vertex = spec.graph.vertices[0]
        self.env = simpy.Environment()
        self.interval_us = interval_us
        self.sources = [Source(vertex, n, seed=spec.seed) for n in range(_SUBTASKS)]
        capacity = _QUEUE_BUFFERS * spec.config.segment_bytes // _RECORD_BYTES * _SUBTASKS
        self.inputs = [[simpy.Store(self.env, capacity=capacity) for _ in range(_SUBTASKS)] for _ in range(2)]
        self.counts: list[Counter[int]] = [Counter() for _ in range(_SUBTASKS)]
        self.snapshots: list[Counter[int]] = []
        self.measured = [[_Measured() for _ in range(_SUBTASKS)] for _ in range(3)]
        self.triggered_us: dict[int, float] = {}
        self.acknowledged: Counter[int] = Counter()
        self.end_to_end_us: dict[int, float] = {}
        self.owners: dict[int, int] = {}

    def turns(self) -> Iterator[_SimPyPipeline]:
        for n in range(_SUBTASKS):
            self.env.process(self._source(n))
            self.env.process(self._map(n))
            self.env.process(self._sink(n))
        while sum(counts.total() for counts in self.counts) < _RECORDS:
            self.env.run(until=self.env.now + _TURN_US)
            yield self

    def _source(self, n: int) -> Generator[Any, Any, None]:
        env, source, measured, cost_us = self.env, self.sources[n], self.measured[0][n], _COSTS_US[0]
        target, checkpoint, due_us = n, 0, self.interval_us
        while source.due_us() is not None:
            if env.now >= due_us:
                checkpoint, due_us = checkpoint + 1, due_us + self.interval_us
                self.triggered_us.setdefault(checkpoint, env.now)
                self._acknowledge(checkpoint)
                for store in self.inputs[0]:
                    yield store.put((n, -1 - checkpoint))
            yield env.timeout(cost_us)
            measured.busy_us += cost_us
            before_us = env.now
            yield self.inputs[0][target].put((n, source.poll().key))
            measured.backpressured_us += env.now - before_us
            target = (target + 1) % _SUBTASKS

    def _map(self, n: int) -> Generator[Any, Any, None]:
        env, measured, cost_us, owners = self.env, self.measured[1][n], _COSTS_US[1], self.owners
        aside: deque[_Item] = deque()
        blocked: set[int] = set()
        store = self.inputs[0][n]
        while True:
            before_us = env.now
            item = aside.popleft() if aside and not blocked else (yield store.get())
            measured.idle_us += env.now - before_us
            sender, key = item
            if sender in blocked:
                aside.append(item)
            elif key < 0:
                if self._aligned(measured, blocked, item):
                    for target in self.inputs[1]:
                        yield target.put((n, key))
            else:
                yield env.timeout(cost_us)
                measured.busy_us += cost_us
                owner = owners.get(key)
                if owner is None:
                    group = key_group(key, _MAX_PARALLELISM)
                    owner = owners[key] = owner_of_group(group, _SUBTASKS, _MAX_PARALLELISM)
                before_us = env.now
                yield self.inputs[1][owner].put((n, key))
                measured.backpressured_us += env.now - before_us

    def _sink(self, n: int) -> Generator[Any, Any, None]:
        env, measured, counts, cost_us = self.env, self.measured[2][n], self.counts[n], _COSTS_US[2]
        aside: deque[_Item] = deque()
        blocked: set[int] = set()
        store = self.inputs[1][n]
        while True:
            before_us = env.now
            item = aside.popleft() if aside and not blocked else (yield store.get())
            measured.idle_us += env.now - before_us
            sender, key = item
            if sender in blocked:
                aside.append(item)
            elif key < 0:
                if self._aligned(measured, blocked, item):
                    self.snapshots.append(counts.copy())
            else:
                yield env.timeout(cost_us)
                measured.busy_us += cost_us
                counts[key] += 1

    def _aligned(self, measured: _Measured, blocked: set[int], item: _Item) -> bool:
        """Handle a barrier. Return whether it was the checkpoint's last one, which opens the channels again."""
        sender, now = item[0], self.env.now
        checkpoint = -1 - item[1]
        first_us = measured.first_us.setdefault(checkpoint, now)
        blocked.add(sender)
        if len(blocked) < _SUBTASKS:
            return False
        blocked.clear()
        measured.start_delays_us.append(first_us - self.triggered_us[checkpoint])
        measured.alignments_us.append(now - first_us)
        self._acknowledge(checkpoint)
        return True

    def _acknowledge(self, checkpoint: int) -> None:
        self.acknowledged[checkpoint] += 1
        if self.acknowledged[checkpoint] == 3 * _SUBTASKS:
            self.end_to_end_us[checkpoint] = self.env.now - self.triggered_us[checkpoint]


# --- measuring --------------------------------------------------------------------------------------------------------


def _cpu_s(run: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        run()
        return time.process_time() - began
    finally:
        gc.enable()


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of ``values`` and the ends of its 95 % interval, from order statistics."""
    ordered, n = sorted(values), len(values)
    rank, missed = 0, 0.0
    while rank < n // 2 and (missed := missed + 2 * math.comb(n, rank) / 2**n) <= 0.05:
        rank += 1
    low = max(0, rank - 1)
    return statistics.median(ordered), ordered[low], ordered[n - 1 - low]


def _round(sides: Mapping[str, Side]) -> dict[str, float]:
    """Run one round, in which the variants alternate in turns. Return the CPU seconds of each variant."""
    spent_s = dict.fromkeys(sides, 0.0)
    going = {name: begin() for name, begin in sides.items()}
    gc.collect()
    gc.disable()
    try:
        while going:
            for name, run in list(going.items()):
                began = time.process_time()
                is_over = next(run, None) is None
                spent_s[name] += time.process_time() - began
                if is_over:
                    del going[name]
    finally:
        gc.enable()
    return spent_s


def measure(pairs: int) -> dict[str, Any]:
    """Return all figures, measured over ``pairs`` rounds."""
    quiet, aligned = _job({}, interval="7 d"), _job({})
    *_, peer = _SimPyPipeline(aligned, interval_us=_INTERVAL_US).turns()
    expected: Counter[int] = sum(peer.counts, Counter())
    engines = [_run(spec, is_size_only=flag) for spec in (aligned, quiet) for flag in (True, False)]
    if any(_counts(engine) != expected for engine in engines) or sum(expected.values()) != _RECORDS:
        raise SystemExit("the runtime and SimPy counted different records: they do not do the same work")
    with_checkpoints = {name: _job(config) for name, config in (_PROTOCOLS | _OTHERS).items()}
    completed = {n: _run(s, is_size_only=True).coordinator.completed_count for n, s in with_checkpoints.items()}
    small = _job({}, segment_bytes=_SMALL_SEGMENT_BYTES)
    sides: dict[str, Side] = {
        _SIMPY: lambda: _SimPyPipeline(aligned, interval_us=_INTERVAL_US).turns(),
        "by sizes": partial(_turns, aligned, is_size_only=True),
        "by sizes, small buffers": partial(_turns, small, is_size_only=True),
        "with bytes": partial(_turns, aligned, is_size_only=False),
        _QUIET: partial(_turns, quiet, is_size_only=False),
        **{name: partial(_turns, spec, is_size_only=False) for name, spec in with_checkpoints.items()},
    }
    rounds = [_round(sides) for _ in range(pairs)]
    beside = [name for name in sides if name not in (_SIMPY, _QUIET, *with_checkpoints)]
    return {
        "records": _RECORDS,
        "simpy_records_per_cpu_s": _RECORDS / statistics.median(r[_SIMPY] for r in rounds),
        "runtime_records_per_cpu_s": {k: _RECORDS / statistics.median(r[k] for r in rounds) for k in beside},
        "runtime_over_simpy": {k: _interval([r[_SIMPY] / r[k] for r in rounds]) for k in beside},
        "simpy_checkpoints_completed": len(peer.end_to_end_us),
        "checkpoints_completed": completed,
        "with_checkpoints_over_without_cpu": {
            k: _interval([r[k] / r[_QUIET] for r in rounds]) for k in with_checkpoints
        },
        "wide": _measure_wide(min(pairs, 3)),
    }


def _measure_wide(rounds: int) -> dict[str, Any]:
    """Return the virtual seconds per second of CPU for the wide job, as medians over the rounds."""
    found: dict[str, Any] = {}
    for name in ("aligned", "unaligned"):
        spec, ratios = _wide_job(_PROTOCOLS[name]), []
        for _ in range(rounds):
            engine = JobEngine(spec, is_size_only=True)
            engine.run_until(1_000_000)  # fill the queues before the measurement begins
            ratios.append(_WIDE_S / _cpu_s(lambda engine=engine: engine.run_until(1_000_000 + int(_WIDE_S * 1e6))))  # type: ignore[misc]
        found[name] = {"virtual_over_cpu_time": statistics.median(ratios), "events": engine.event_count}
    return found


def _missed(found: dict[str, Any]) -> list[str]:
    """Return a line for each target that the worse end of an interval misses."""
    beside, costs = found["runtime_over_simpy"], found["with_checkpoints_over_without_cpu"]
    missed = [
        f"{beside[name][1]:.2f} x SimPy {name}, not {least}"
        for name, least in _BESIDE_SIMPY_MIN.items()
        if beside[name][1] < least
    ]
    return missed + [
        f"checkpoints cost {high:.2f} times the run without ({name}), not {most}"
        for name, most in _PROTOCOL_COST_MAX.items()
        if (high := costs[name][2]) > most
    ]


def main(arguments: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--pairs", type=int, default=7, help="rounds [7]")
    parser.add_argument("--gate", action="store_true", help="fail if a target is missed")
    options = parser.parse_args(arguments)
    found = measure(max(1, options.pairs))
    missed = found["missed"] = _missed(found)
    print(json.dumps(found, indent=2) if options.json else "\n".join(_lines(found)))
    if options.gate and missed:
        raise SystemExit(1)


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['records']} records, 3 stages of {_SUBTASKS} subtasks, a checkpoint every {_INTERVAL_US // 1000} ms"
        f" (SimPy completed {found['simpy_checkpoints_completed']})",
        f"  SimPy {found['simpy_records_per_cpu_s']:>9.0f} records/CPU-s",
    ]
    for name, per_s in found["runtime_records_per_cpu_s"].items():
        lines.append(
            f"  runtime {name} {per_s:>9.0f} records/CPU-s, {spread_words(found['runtime_over_simpy'][name])} x SimPy"
            + (f" (target {_BESIDE_SIMPY_MIN[name]})" if name in _BESIDE_SIMPY_MIN else "")
        )
    for name, spread in found["with_checkpoints_over_without_cpu"].items():
        lines.append(
            f"  with checkpoints / without, CPU, {name} ({found['checkpoints_completed'][name]} completed):"
            f" {spread_words(spread)}" + (f" (target {_PROTOCOL_COST_MAX[name]})" if name in _PROTOCOL_COST_MAX else "")
        )
    for name, wide in found["wide"].items():
        lines.append(
            f"  {_WIDE_VERTICES} vertices x {_WIDE_SUBTASKS} subtasks, backpressured, {name}:"
            f" {wide['virtual_over_cpu_time']:.2f} simulated s per CPU-s"
        )
    return lines + [f"  missed: {line}" for line in found["missed"]]


if __name__ == "__main__":
    main(sys.argv[1:])
