"""Reduces recordings of ``FidelityJob`` on a real Flink to medians.

A recording is a folder. ``run.json`` contains ``scenario``, ``flink_version``, ``job_id``, ``job_args``,
``cluster_settings`` and ``host_load_1min_mean``. ``rest.jsonl.gz`` contains a line for every response of
Flink's REST API: ``dt`` (seconds from the start), ``path``, ``status``, ``body``, and ``phase`` ("run" while
the job ran). About every two seconds, it contains ``/jobs/ID``, the job's checkpoints, their details by
vertex, and the metrics of the subtasks.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.simulators.fidelity import RECORDED, WARM_UP_SHARE, Medians, Run, Scenario

_DETAILS = re.compile(r"/jobs/\w+/checkpoints/details/(\d+)(?:/subtasks/(\w+))?$")
_METRICS = re.compile(r"/jobs/\w+/vertices/(\w+)/subtasks/metrics\?")
_OURS = ("name", "checkpoint-dir")
_CLUSTER = re.compile(r"taskmanager\.(memory\.segment-size|network\..*|numberOfTaskSlots)|lab\.taskmanagers")
_REPEAT = re.compile(r"-\d+$")
"""The suffix that numbers a repetition in the name of a scenario."""


class _Recording:
    def __init__(self, folder: Path) -> None:
        self.run: dict[str, Any] = json.loads((folder / "run.json").read_text())
        self.seconds = self.run["stopped"] - self.run["started"]
        self.vertices: list[str] = []
        self.checkpoints: dict[int, dict[str, Any]] = {}
        self.subtasks: dict[int, dict[str, list[dict[str, Any]]]] = defaultdict(dict)
        self.read: list[tuple[float, int]] = []
        self.queues: dict[tuple[str, str], list[float]] = defaultdict(list)
        for row in _rows(folder):
            if row["status"] == 200:
                self._add(row["path"], row["dt"], row["body"], is_running=row["phase"] == "run")

    def _add(self, path: str, at_s: float, body: Any, *, is_running: bool) -> None:
        if path == f"/jobs/{self.run['job_id']}":
            self.vertices = [vertex["id"] for vertex in body["vertices"]]
            metrics = body["vertices"][-1]["metrics"]
            if is_running and metrics.get("read-records-complete") and at_s >= self.warm_s:
                self.read.append((at_s, metrics["read-records"]))
        elif match := _DETAILS.match(path):
            if match[2] is None:
                self.checkpoints[int(match[1])] = body
            else:
                self.subtasks[int(match[1])][match[2]] = body.get("subtasks", [])
        elif (match := _METRICS.match(path)) and is_running and at_s >= self.warm_s:
            for side in ("input", "output"):
                sums = {m["id"].rpartition(".")[2]: m["sum"] for m in body if "sum" in m}
                if f"{side}QueueSize" in sums:
                    self.queues[match[1], side].append(sums[f"{side}QueueSize"])

    @property
    def warm_s(self) -> float:
        return self.seconds * WARM_UP_SHARE

    def counted(self) -> list[dict[str, Any]]:
        """Return the completed checkpoints that were triggered after the warm-up."""
        since_ms = (self.run["started"] + self.warm_s) * 1000
        done = (c for c in self.checkpoints.values() if c["status"] == "COMPLETED")
        return [c for c in done if c["trigger_timestamp"] >= since_ms]

    def subtasks_of(self, checkpoint_id: int) -> list[dict[str, Any]]:
        rows = (row for of in self.subtasks[checkpoint_id].values() for row in of)
        return [row for row in rows if row.get("status") == "completed" and "start_delay" in row]

    def queued_bytes(self) -> tuple[float, ...]:
        """Return the median of the bytes queued before each vertex except the first."""
        hops = zip(self.vertices, self.vertices[1:], strict=False)
        return tuple(
            _median(self.queues[sender, "output"]) + _median(self.queues[receiver, "input"])
            for sender, receiver in hops
        )


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(folder / "rest.jsonl.gz", "rt") as lines:
        yield from map(json.loads, lines)


def _median(values: Iterable[float]) -> float:
    return statistics.median([*values] or [0.0])


def cluster_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a cluster that influence checkpoints: its network and the number of its slots."""
    return {name: str(value) for name, value in settings.items() if _CLUSTER.fullmatch(name)}


def reduced(folder: Path) -> tuple[Scenario, Run]:
    """Read one recording, and return its scenario and its medians."""
    recording = _Recording(folder)
    counted = recording.counted()
    subtasks = [recording.subtasks_of(c["id"]) for c in counted]
    medians = Medians()
    if counted:
        (began_s, began), (ended_s, ended) = recording.read[0], recording.read[-1]
        medians = Medians(
            end_to_end_ms=_median(c["end_to_end_duration"] for c in counted),
            start_delay_ms=_median(max(row["start_delay"] for row in of) for of in subtasks),
            alignment_ms=_median(max(row["alignment"]["duration"] for row in of) for of in subtasks),
            persisted_bytes=_median(c["persisted_data"] for c in counted),
            records_per_s=round((ended - began) / (ended_s - began_s), 1),
        )
    run = recording.run
    arguments = {k: str(v) for k, v in run["job_args"].items() if k not in _OURS}
    cluster = cluster_settings(run["cluster_settings"])
    return (
        Scenario(_REPEAT.sub("", run["scenario"]), arguments, cluster),
        Run(run["flink_version"], medians, len(counted), recording.queued_bytes(), run["host_load_1min_mean"]),
    )


def reduced_all(folders: Iterable[Path]) -> list[tuple[Scenario, list[Run]]]:
    """Return every scenario of these recordings with its runs.

    Raises:
        ValueError: if two recordings of one scenario have different arguments or cluster settings.
    """
    scenarios: dict[str, tuple[Scenario, list[Run]]] = {}
    for folder in folders:
        scenario, run = reduced(folder)
        known, runs = scenarios.setdefault(scenario.name, (scenario, []))
        if known != scenario:
            raise ValueError(f"{folder}: {scenario.name} has other settings than an earlier recording")
        runs.append(run)
    return list(scenarios.values())


def write(scenarios: Iterable[tuple[Scenario, list[Run]]], path: Path = RECORDED) -> None:
    """Write the medians that the tests read to a file."""
    rows = [
        {
            "name": scenario.name,
            "arguments": dict(scenario.arguments),
            "cluster": dict(scenario.cluster),
            "runs": [asdict(run) for run in sorted(runs, key=lambda run: run.flink)],
        }
        for scenario, runs in scenarios
    ]
    path.write_text(json.dumps({"scenarios": rows}, indent=1) + "\n")
