"""Measures the CPU time of a verdict compared with the time to read each of its values once.

The job has five vertices. Its barriers wait in front of a vertex with slow subtasks, so that every rule which looks at
subtasks runs. A verdict uses ten checkpoints and the readings of backpressure of two minutes, one every five seconds.
The readings include queues, so the advice replays the checkpoints under other modes.

The floor turns each value of the same checkpoints and readings into an array once, and takes the largest value of each
array: no verdict can be cheaper while checkpoints and readings are tuples.

Verdict and floor alternate (A B A B ...), so that a busy machine affects both. A ratio is the median over the pairs,
with the range of the middle half. No database takes part.

    python benchmarks/verdict_bench.py [--pairs 15] [--json]
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import pairwise

import numpy as np

from backend.advisor import advise
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.verdict import case as cases
from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    VertexDetail,
)
from backend.domain.engines import FLINK
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Edge, Topology, Vertex
from tests.support.benchmarking import cpu_s_of, parser_of, spread, spread_words
from tests.support.observations import NOW

SIZES = (41, 1_000, 10_000)
_CHECKPOINTS = 10
_READINGS = 24
_SLOW = 3
"""The index of the vertex whose first half of subtasks is slow."""
_INTERVAL_S = 30


@dataclass(frozen=True, slots=True)
class Result:
    """The CPU time of the verdicts on one job, and its ratio to the floor: (median, lower quartile, upper quartile)."""

    subtasks: int
    pairs: int
    floor_cpu_ms: float
    checkpoint_cpu_ms: float
    checkpoint_ratio: tuple[float, float, float]
    job_cpu_ms: float
    job_ratio: tuple[float, float, float]
    job_with_advice_cpu_ms: float


def evidence_of(subtasks: int, seed: int = 1) -> JobEvidence:
    """Build the evidence on a job with this many subtasks; ``seed`` fixes its numbers."""
    rnd = random.Random(seed)
    quarter = (subtasks - 1) // 4
    widths = (quarter, quarter, quarter, subtasks - 1 - 3 * quarter, 1)
    vertices = tuple(Vertex(VertexId(f"{i:032x}"), f"vertex {i}", width) for i, width in enumerate(widths))
    edges = tuple(Edge(a.id, b.id, "HASH") for a, b in pairwise(vertices))
    begin = NOW - timedelta(seconds=_INTERVAL_S * _CHECKPOINTS)
    checkpoints = []
    for number in range(_CHECKPOINTS):
        details = tuple(_detail(rnd, i, vertex) for i, vertex in enumerate(vertices))
        header = CheckpointHeader(
            checkpoint_id=number + 1,
            kind=CheckpointKind.CHECKPOINT,
            status=CheckpointStatus.COMPLETED,
            triggered_at=begin + timedelta(seconds=_INTERVAL_S * number),
            end_to_end_duration_ms=max(v for d in details for v in d.ack_delay_ms if v is not None),
            subtask_count=subtasks,
            acknowledged_count=subtasks,
        )
        checkpoints.append(Checkpoint(header, details))
    return JobEvidence(
        topology=Topology(vertices, edges),
        now=NOW,
        config=CheckpointConfig(
            mode="exactly_once", interval_ms=_INTERVAL_S * 1000, timeout_ms=60_000, is_unaligned_enabled=False
        ),
        checkpoints=tuple(checkpoints),
        pressure=tuple(_reading(rnd, n, i, v) for n in range(_READINGS) for i, v in enumerate(vertices)),
    )


def _detail(rnd: random.Random, index: int, vertex: Vertex) -> VertexDetail:
    def values(most: int) -> tuple[int, ...]:
        return tuple(rnd.randrange(most) for _ in range(vertex.parallelism))

    wait_ms = 25_000 if index >= _SLOW else 100 * index
    first = tuple(wait_ms + v for v in values(400))
    parts = values(200), values(20), values(90)
    acks = tuple(sum(row) + 3 for row in zip(first, *parts, strict=True))
    sizes = values(10**6)
    return VertexDetail(vertex.id, first, *parts, acks, sizes, sizes, sizes, sizes, values(1))


def _reading(rnd: random.Random, number: int, index: int, vertex: Vertex) -> VertexPressure:
    width = vertex.parallelism
    busy = tuple(0.98 if i < width // 2 else 0.3 for i in range(width)) if index == _SLOW else (0.2,) * width
    held = tuple(0.5 + 0.3 * rnd.random() if index < _SLOW else 0.0 for _ in range(width))
    return VertexPressure(
        vertex_id=vertex.id,
        observed_at=NOW - timedelta(seconds=5 * (_READINGS - number)),
        busy_ratio=busy,
        backpressured_ratio=held,
        idle_ratio=tuple(max(0.0, 1 - b - h) for b, h in zip(busy, held, strict=True)),
        records_in_count=tuple(1_000 * (number + 1) + rnd.randrange(100) for _ in range(width)),
        bytes_in_count=tuple(10**6 * (number + 1) + rnd.randrange(1_000) for _ in range(width)),
        queued_out_bytes=tuple(rnd.randrange(10**6) if index < _SLOW else 0 for _ in range(width)),
        queued_in_bytes=(0,) * width,
    )


def floor_of(checkpoints: Sequence[Checkpoint], pressure: Sequence[VertexPressure]) -> float:
    """Read every value that the verdict uses once, and return the largest one."""
    details = [d for c in checkpoints for d in c.details]
    rows = [
        *(row for d in details for row in (d.start_delay_ms, d.alignment_duration_ms, d.ack_delay_ms)),
        *(row for d in details for row in (d.sync_duration_ms, d.async_duration_ms)),
        *(row for r in pressure for row in (r.busy_ratio, r.backpressured_ratio, r.idle_ratio)),
    ]
    return max(float(np.array(row, dtype=np.float64).max()) for row in rows)


def _with_advice(evidence: JobEvidence) -> object:
    case = cases.of_job(evidence)
    return diagnose(evidence, case), advise(evidence, engine=FLINK, version="1.20.5", case=case)


def measure(subtasks: int, pairs: int) -> Result:
    """Run all pairs on a job of one size, and return the result."""
    evidence = evidence_of(subtasks)
    newest = evidence.checkpoints[-1]
    calls: tuple[Callable[[], object], ...] = (
        lambda: floor_of([newest], evidence.pressure),
        lambda: checkpoint_verdict(newest, evidence),
        lambda: floor_of(evidence.checkpoints, evidence.pressure),
        lambda: diagnose(evidence),
        lambda: _with_advice(evidence),
    )
    for call in calls:
        call()
    costs = [[1000 * cpu_s_of(call) for call in calls] for _ in range(pairs)]
    middle = [round(statistics.median(column), 2) for column in zip(*costs, strict=True)]
    return Result(
        subtasks=subtasks,
        pairs=pairs,
        floor_cpu_ms=middle[2],
        checkpoint_cpu_ms=middle[1],
        checkpoint_ratio=spread([row[1] / row[0] for row in costs]),
        job_cpu_ms=middle[3],
        job_ratio=spread([row[3] / row[2] for row in costs]),
        job_with_advice_cpu_ms=middle[4],
    )


def main(arguments: Sequence[str]) -> None:
    """Measure every size and print its result."""
    parser = parser_of(__doc__)
    parser.add_argument("--pairs", type=int, default=15, help="pairs of runs per size, at least 3 [15]")
    options = parser.parse_args(arguments)
    for subtasks in SIZES:
        result = measure(subtasks, max(3, options.pairs))
        if options.json:
            print(json.dumps(asdict(result)))
            continue
        print(
            f"{subtasks} subtasks: verdict on a checkpoint {result.checkpoint_cpu_ms} ms of CPU, on the job"
            f" {result.job_cpu_ms} ms, with advice {result.job_with_advice_cpu_ms} ms\n"
            f"  x reading each value once: checkpoint {spread_words(result.checkpoint_ratio)},"
            f" job {spread_words(result.job_ratio)} ({result.pairs} pairs)"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
