"""The job of the recordings B2 (aligned) and C2 (unaligned), rebuilt for the runtime, and the recorded durations.

The job has three vertices, two shuffles and four subtasks per vertex. Records have 1 kB, and the last vertex takes 4
ms per record. The recordings' ``run.json`` has these arguments. ``tests/simulation/test_shape_of_flink.py`` and the
fidelity benchmark share this module.
"""

from __future__ import annotations

import gzip
import json
import statistics
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import MeasuredCheckpoint

_RECORDINGS = Path(__file__).parents[1] / "contract" / "recordings"
UNALIGNED = {"execution.checkpointing.unaligned.enabled": True}
RUN_US = 90_000_000


def lab_job(arguments: dict[str, Any], *, shuffles: int | None = None) -> JobSpec:
    """Build the job from its recorded arguments.

    Its vertices are: source -> (shuffle -> map) x (stages - 1) -> shuffle -> slow keyed stage.
    """
    stages = arguments["stages"] if shuffles is None else shuffles
    common = {"parallelism": arguments["parallelism"], "record_bytes": arguments["record-bytes"]}
    vertices: list[dict[str, Any]] = [
        {
            "id": "source",
            "kind": "source",
            "keys": arguments["keys"],
            "rate": arguments["rate"],
            "cost_us": 20,
            **common,
        }
    ]
    vertices += [{"id": f"stage-{i}", "kind": "map", "cost_us": 20, **common} for i in range(1, stages)]
    vertices.append({"id": "slow", "kind": "keyed+sink", "cost_us": arguments["slow-us"], **common})
    names = [v["id"] for v in vertices]
    edges: list[dict[str, Any]] = [{"from": a, "to": b, "partitioner": "hash"} for a, b in pairwise(names)]
    for edge in edges[:-1]:
        edge["hash_by"] = "origin"
    config = {
        "execution.checkpointing.interval": arguments["interval"],
        "execution.checkpointing.timeout": arguments["timeout"],
    }
    return load_job_document({"name": "lab", "seed": 5, "config": config, "vertex": vertices, "edge": edges})


def recorded_arguments(recording: str) -> dict[str, Any]:
    arguments: dict[str, Any] = json.loads((_RECORDINGS / recording / "run.json").read_text())["job_args"]
    return arguments


def completed_checkpoints(spec: JobSpec) -> tuple[list[MeasuredCheckpoint], JobEngine]:
    engine = JobEngine(spec, is_size_only=True)
    records: list[MeasuredCheckpoint] = []
    engine.coordinator.on_terminal = records.append
    engine.run_until(RUN_US)
    # Leave out the first two checkpoints, which ran while the buffers were filling.
    return [r for r in records if r.failed_at_us is None][2:], engine


def median_ms(records: list[MeasuredCheckpoint]) -> float:
    return statistics.median((r.end_to_end_us or 0) / 1000 for r in records)


def recorded_figures(recording: str) -> tuple[float, float]:
    """Return the median end-to-end duration in ms, and the largest total of outputQueueSize over all subtasks at any
    moment of the recording.
    """
    durations: dict[int, int] = {}
    queued: dict[str, float] = {}
    total = 0.0
    with gzip.open(_RECORDINGS / recording / "rest.jsonl.gz", "rt") as lines:
        for line in lines:
            row = json.loads(line)
            path, body = row["path"], row.get("body", row.get("answer"))
            if path.endswith("/checkpoints") and isinstance(body, dict):
                for entry in body.get("history", []):
                    if entry["status"] == "COMPLETED":
                        durations[entry["id"]] = entry["end_to_end_duration"]
            if "outputQueueSize" in path and isinstance(body, list):
                values = [float(v["value"]) for v in body if "outputQueueSize" in v["id"] and "value" in v]
                queued[path] = sum(values)
                total = max(total, sum(queued.values()))
    return statistics.median(durations.values()), total


@dataclass(frozen=True, slots=True)
class Comparison:
    """The median durations of aligned or of unaligned checkpoints, in milliseconds.

    ``recorded_ms`` is Flink's duration, ``runtime_ms`` the runtime's, and ``formula_ms`` is queued bytes / drain rate.
    """

    recording: str
    kind: str
    recorded_ms: float
    runtime_ms: float
    formula_ms: float | None

    @property
    def error(self) -> float:
        """The relative error of the runtime's duration. Positive if the runtime takes longer than the recording."""
        return self.runtime_ms / self.recorded_ms - 1

    @property
    def formula_error(self) -> float | None:
        """The relative error of the formula's duration, or None if the formula does not apply."""
        return None if self.formula_ms is None else self.formula_ms / self.recorded_ms - 1

    def line(self) -> str:
        """Return the durations and both errors as one line of text."""
        if self.formula_ms is None or self.formula_error is None:
            formula = "the formula does not cover unaligned checkpoints"
        else:
            formula = f"queued bytes / drain rate {self.formula_ms:7.0f} ms ({self.formula_error:+.0%})"
        return (
            f"{self.recording} {self.kind + ':':<10} recorded {self.recorded_ms:7.0f} ms,"
            f" runtime {self.runtime_ms:7.0f} ms ({self.error:+.0%}); {formula}"
        )


def compare(aligned: list[MeasuredCheckpoint], unaligned: list[MeasuredCheckpoint]) -> tuple[Comparison, Comparison]:
    """Compare the durations of the runtime's checkpoints with the recorded durations and with the formula."""
    recorded_aligned_ms, queued_bytes = recorded_figures("B2")
    recorded_unaligned_ms, _ = recorded_figures("C2")
    arguments = recorded_arguments("B2")
    drained_per_s = arguments["parallelism"] * arguments["record-bytes"] * 1e6 / arguments["slow-us"]
    return (
        Comparison("B2", "aligned", recorded_aligned_ms, median_ms(aligned), queued_bytes / drained_per_s * 1000),
        Comparison("C2", "unaligned", recorded_unaligned_ms, median_ms(unaligned), None),
    )
