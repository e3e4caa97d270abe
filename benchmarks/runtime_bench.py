"""Measures the cost of the reference runtime compared with a minimal simulation, and the cost of its protocols.

The minimal simulation, called the floor, is the same pipeline (source -> map -> keyed stage with a sink, two shuffles,
bounded queues, the same virtual costs and keys) as one plain loop over a heap of times and one deque per subtask. It
moves tuples. It has no bytes, buffers, credits, measurements, checkpoints or recovery. The runtime and the floor must
count the same records of every key, otherwise nothing is printed. Then the benchmark compares the runtime with a
checkpoint every 100 ms to the runtime without checkpoints, for every protocol.

All variants alternate, so that a busy machine affects all of them. The CPU time of this process is counted. A ratio is
the median over the pairs, with the range of the middle half.

    python benchmarks/runtime_bench.py [--pairs 5] [--json]
"""

from __future__ import annotations

import heapq
import json
import statistics
import sys
from collections import Counter, deque
from collections.abc import Sequence

from backend.runtime.core.hashing import key_group, owner_of_group
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.operators.operators import Keyed
from backend.runtime.operators.sources import Source
from tests.support.benchmarking import cpu_s_of, parser_of, spread, spread_words

_RECORDS = 12_000
_SUBTASKS = 4
_KEYS = 500
_COSTS_US = (20, 20, 400)
_MAX_PARALLELISM = 128
# About as many records as the runtime's queues between two subtasks hold in this job.
_QUEUE_RECORDS = 40
_PROTOCOLS: dict[str, dict[str, object]] = {
    "aligned": {},
    "unaligned": {"execution.checkpointing.unaligned.enabled": True},
    "aligned with timeout": {
        "execution.checkpointing.unaligned.enabled": True,
        "execution.checkpointing.aligned-checkpoint-timeout": "50 ms",
    },
    "capped": {"execution.checkpointing.unaligned.enabled": True, "runtime.inflight-cap.bytes": "64 kb"},
}


def _job(config: dict[str, object]) -> JobSpec:
    common = {"parallelism": _SUBTASKS, "record_bytes": 200}
    kinds = ("source", "map", "keyed+sink")
    vertices: list[dict[str, object]] = [
        {"id": kind, "kind": kind, "cost_us": cost, "max_parallelism": _MAX_PARALLELISM, **common}
        for kind, cost in zip(kinds, _COSTS_US, strict=True)
    ]
    vertices[0] |= {"keys": _KEYS, "limit": _RECORDS}
    edges = [
        {"from": "source", "to": "map", "partitioner": "rebalance"},
        {"from": "map", "to": "keyed+sink", "partitioner": "hash"},
    ]
    settings = {"taskmanager.memory.segment-size": 2048, "runtime.task-managers": 2, "web.checkpoints.history": 100}
    return load_job_document(
        {"name": "bench", "seed": 1, "config": settings | config, "vertex": vertices, "edge": edges}
    )


def _runtime(spec: JobSpec) -> tuple[JobEngine, Counter[int]]:
    engine = JobEngine(spec)
    keyed = [t for t in engine.tasks if t.spec.kind.is_keyed]
    while sum(t.records_in for t in keyed) < _RECORDS:
        engine.run_until(engine.now_us + 10_000)
        keyed = [t for t in engine.tasks if t.spec.kind.is_keyed]
    counts: Counter[int] = Counter()
    for task in keyed:
        operator = task.operators[0]
        assert isinstance(operator, Keyed)
        counts.update(operator.counts)
    return engine, counts


class _Floor:
    """Runs the pipeline as one loop.

    The heap holds (time, sequence, stage, subtask). Every subtask has a bounded deque as its queue.
    """

    def __init__(self, spec: JobSpec) -> None:
        source = spec.graph.vertices[0]
        self.sources = [Source(source, n, seed=spec.seed) for n in range(_SUBTASKS)]
        self.queues = [[deque[tuple[int, int]]() for _ in range(_SUBTASKS)] for _ in range(3)]
        self.held: list[list[tuple[int, int] | None]] = [[None] * _SUBTASKS for _ in range(3)]
        self.is_busy = [[False] * _SUBTASKS for _ in range(3)]
        self.waiting: list[list[deque[int]]] = [[deque() for _ in range(_SUBTASKS)] for _ in range(3)]
        self.counts: Counter[int] = Counter()
        self.heap: list[tuple[int, int, int, int]] = []
        self.sequence = 0
        self.next_map = list(range(_SUBTASKS))
        self.owners: dict[int, int] = {}

    def run(self) -> Counter[int]:
        for subtask in range(_SUBTASKS):
            self._begin(0, subtask, 0)
        while self.heap:
            now, _, stage, subtask = heapq.heappop(self.heap)
            self._done(stage, subtask, now)
        return self.counts

    def _begin(self, stage: int, subtask: int, now: int) -> None:
        if self.is_busy[stage][subtask]:
            return
        if stage == 0:
            source = self.sources[subtask]
            if source.due_us() is None:
                return
            record = source.poll()
            self.held[0][subtask] = (record.key, record.origin)
        else:
            queue = self.queues[stage][subtask]
            if not queue:
                return
            self.held[stage][subtask] = queue.popleft()
            self.is_busy[stage][subtask] = True
            waiting = self.waiting[stage][subtask]
            if waiting:
                self._deliver(stage - 1, waiting.popleft(), now)
        self.is_busy[stage][subtask] = True
        self.sequence += 1
        heapq.heappush(self.heap, (now + _COSTS_US[stage], self.sequence, stage, subtask))

    def _done(self, stage: int, subtask: int, now: int) -> None:
        if stage < 2:
            self._deliver(stage, subtask, now)
            return
        record = self.held[2][subtask]
        assert record is not None
        self.counts[record[0]] += 1
        self.is_busy[2][subtask] = False
        self._begin(2, subtask, now)

    def _deliver(self, stage: int, subtask: int, now: int) -> None:
        record = self.held[stage][subtask]
        assert record is not None
        target = self._target(stage, subtask, record[0])
        queue = self.queues[stage + 1][target]
        if len(queue) >= _QUEUE_RECORDS * _SUBTASKS:
            self.waiting[stage + 1][target].append(subtask)
            return
        if stage == 0:
            self.next_map[subtask] = (target + 1) % _SUBTASKS
        queue.append(record)
        self.is_busy[stage][subtask] = False
        self._begin(stage + 1, target, now)
        self._begin(stage, subtask, now)

    def _target(self, stage: int, subtask: int, key: int) -> int:
        if stage == 0:
            return self.next_map[subtask]
        owner = self.owners.get(key)
        if owner is None:
            owner = self.owners[key] = owner_of_group(key_group(key, _MAX_PARALLELISM), _SUBTASKS, _MAX_PARALLELISM)
        return owner


def measure(pairs: int) -> dict[str, object]:
    """Return all figures, measured over ``pairs`` rounds."""
    quiet = _job({"execution.checkpointing.interval": "7 d"})
    with_checkpoints = {
        name: _job({"execution.checkpointing.interval": "100 ms"} | config) for name, config in _PROTOCOLS.items()
    }
    engine, counted = _runtime(quiet)
    expected = _Floor(quiet).run()
    if counted != expected or sum(expected.values()) != _RECORDS:
        raise SystemExit("the runtime and the floor counted different records: they do not do the same work")
    completed = {name: _runtime(spec)[0].coordinator.completed_count for name, spec in with_checkpoints.items()}
    floor_s, quiet_s = [], []
    costs: dict[str, list[float]] = {name: [] for name in with_checkpoints}
    for _ in range(pairs):
        floor_s.append(cpu_s_of(lambda: _Floor(quiet).run()))
        quiet_s.append(cpu_s_of(lambda: _runtime(quiet)))
        for name, spec in with_checkpoints.items():
            costs[name].append(cpu_s_of(lambda spec=spec: _runtime(spec)) / quiet_s[-1])  # type: ignore[misc]
    return {
        "records": _RECORDS,
        "virtual_s": engine.now_us / 1e6,
        "runtime_records_per_cpu_s": _RECORDS / statistics.median(quiet_s),
        "floor_records_per_cpu_s": _RECORDS / statistics.median(floor_s),
        "runtime_over_floor_cpu": spread([a / b for a, b in zip(quiet_s, floor_s, strict=True)]),
        "virtual_over_cpu_time": engine.now_us / 1e6 / statistics.median(quiet_s),
        "checkpoints_completed": completed,
        "with_checkpoints_over_without_cpu": {name: spread(values) for name, values in costs.items()},
    }


def main(arguments: Sequence[str]) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="rounds [5]")
    options = parser.parse_args(arguments)
    found = measure(max(1, options.pairs))
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['records']} records, 3 stages of {_SUBTASKS} subtasks, {found['virtual_s']:.2f} s of virtual time")
    print(
        f"  floor {found['floor_records_per_cpu_s']:>9.0f} records/CPU-s, runtime"
        f" {found['runtime_records_per_cpu_s']:>9.0f} records/CPU-s"
    )
    print(f"  runtime / floor, CPU: {_shown(found['runtime_over_floor_cpu'])}")
    print(f"  virtual time / CPU time: {found['virtual_over_cpu_time']:.1f}")
    costs, completed = found["with_checkpoints_over_without_cpu"], found["checkpoints_completed"]
    assert isinstance(costs, dict)
    assert isinstance(completed, dict)
    for name, cost in costs.items():
        print(f"  a checkpoint every 100 ms / none, CPU, {name} ({completed[name]} completed): {_shown(cost)}")


def _shown(found: object) -> str:
    assert isinstance(found, tuple)
    return spread_words(found)


if __name__ == "__main__":
    main(sys.argv[1:])
