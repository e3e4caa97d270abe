"""Runs of ``benchmarks/fidelity/FidelityJob.java`` on a running Flink, and equivalent jobs (twins) on the runtime.

A scenario holds the settings of the job and the cluster. The twin is built from these and from the bytes that Flink
adds to a payload; nothing is fitted to measurements. ``recorded.json`` holds the medians of every run;
``tests/simulators/fidelity_recordings.py`` computes them from recordings.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from backend.runtime.core.hashing import default_max_parallelism, murmur3_32, owner_of_group
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import CheckpointRecord

RECORDED = Path(__file__).parents[1] / "conformance" / "flink_running" / "recorded.json"
WARM_UP_SHARE = 1 / 3
"""Share of a run that is warm-up: buffers fill and debloating settles. Checkpoints triggered in it do not count."""
WIRE_BYTES = 4 + 1 + 8 + 4 + 8 + 4
"""Added to a payload: length, tag and timestamp of a stream record; key, number and length of the payload."""
PASS_US = 20
"""Cost of a record in a stage that does nothing. No figure depends on it: such a stage is never the narrowest."""
Shares = tuple[float, ...]
_NET = "taskmanager.network.memory."
_SETTINGS = (
    "taskmanager.memory.segment-size",
    f"{_NET}buffers-per-channel",
    f"{_NET}floating-buffers-per-gate",
    f"{_NET}max-buffers-per-channel",
    f"{_NET}buffer-debloat.enabled",
    f"{_NET}buffer-debloat.target",
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Settings of a run: the job's arguments, and the cluster settings that differ from Flink's defaults."""

    name: str
    arguments: Mapping[str, str]
    cluster: Mapping[str, str]

    def number(self, argument: str, default: float) -> float:
        """Return an argument of the job as a number."""
        return float(self.arguments.get(argument, default))

    @property
    def stages(self) -> int:
        return int(self.arguments["stages"])

    @property
    def parallelism(self) -> int:
        return int(self.arguments["parallelism"])

    @property
    def record_bytes(self) -> int:
        """Size of a record on the wire, including its length field."""
        return int(self.arguments["payload-bytes"]) + WIRE_BYTES

    @property
    def is_unaligned(self) -> bool:
        return self.arguments["unaligned"] == "true"

    def cost_us(self, stage: int) -> int:
        """Cost of a record in a stage (from 1), without the straggler factor."""
        cost = self.number("cost-us", 0) if stage == self.stages else self.number("inner-cost-us", 0)
        return int(cost) or PASS_US

    def straggling(self, stage: int) -> float:
        """Factor on the cost of subtask 0 in this stage."""
        return self.number("straggler-factor", 1) if stage == self.number("straggler-stage", 0) else 1.0

    @property
    def flink_shares(self) -> Shares:
        """Each last subtask's share of the records under Flink's key distribution, the largest share first."""
        keys = int(self.arguments["keys"])
        *_, shares = _shares(keys, self.parallelism, self.number("hot-key-ratio", 0), flinks_hash)
        return shares

    def twin_keys(self) -> int:
        """The number of keys that the runtime's hash spreads as unevenly as Flink spreads the job's keys.

        A few per cent matter: the subtask with the largest share has full channels, and all others run dry.
        """
        keys = int(self.arguments["keys"])
        return _as_uneven(self.flink_shares, 2 * keys, self.parallelism, self.number("hot-key-ratio", 0))

    def twin(self, seed: int = 1) -> JobSpec:
        """The same job for the runtime."""
        shape = {"parallelism": self.parallelism, "record_bytes": self.record_bytes}
        hot = self.number("hot-key-ratio", 0)
        source = {"keys": self.twin_keys(), "hot_key_ratio": hot, "rate": self.number("rate", 0)}
        vertices: list[dict[str, Any]] = [{"id": "source", "kind": "source", "cost_us": PASS_US, **source, **shape}]
        edges: list[dict[str, Any]] = []
        for stage in range(1, self.stages + 1):
            is_last = stage == self.stages
            vertex = {"id": f"stage-{stage}", "kind": "map+sink" if is_last else "map", "cost_us": self.cost_us(stage)}
            if self.straggling(stage) != 1:
                vertex["slow_subtasks"] = {"0": self.straggling(stage)}
            hash_by = "key" if is_last else "origin"
            ends = {"from": vertices[-1]["id"], "to": vertex["id"]}
            edges.append({**ends, "partitioner": "hash", "hash_by": hash_by})
            vertices.append(vertex | shape)
        config = {
            "execution.checkpointing.interval": self.arguments["interval"],
            "execution.checkpointing.unaligned.enabled": self.is_unaligned,
            "execution.checkpointing.aligned-checkpoint-timeout": self.arguments.get("aligned-timeout", "0 ms"),
            "runtime.task-managers": int(self.cluster.get("lab.taskmanagers", 1)),
            **{name: self.cluster[name] for name in _SETTINGS if name in self.cluster},
        }
        document = {"name": self.name, "seed": seed, "config": config, "vertex": vertices, "edge": edges}
        return load_job_document(document)


@dataclass(frozen=True, slots=True)
class Medians:
    """Medians over the checkpoints of one run.

    Start delay and alignment are, for each checkpoint, the longest of all subtasks. None means that the source does
    not provide the figure.
    """

    end_to_end_ms: float | None = None
    start_delay_ms: float | None = None
    alignment_ms: float | None = None
    persisted_bytes: float | None = None
    records_per_s: float | None = None


MEASURES = tuple(field.name for field in fields(Medians))


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded run of a scenario: its medians, and the facts that are needed to judge them."""

    flink: str
    medians: Medians
    checkpoints: int
    """Completed checkpoints after the warm-up."""
    queued_bytes: tuple[float, ...]
    """Bytes queued before each stage, on both sides of its channels: medians over the run."""
    load_1min: float


def flinks_hash(key: int) -> int:
    """Flink's key group of a 32-bit integer, before the modulus: the hash of its four bytes."""
    unsigned = murmur3_32(key.to_bytes(4, "little", signed=True))
    signed = unsigned - (1 << 32) if unsigned >> 31 else unsigned
    return 0 if signed == -(1 << 31) else abs(signed)


def _our_hash(key: int) -> int:
    return murmur3_32(key.to_bytes(8, "little"))


def _shares(keys: int, parallelism: int, hot: float, hashed: Callable[[int], int]) -> Iterator[Shares]:
    """For 1, 2, ... ``keys`` keys, yield each subtask's share of the records, the largest first."""
    groups, counts = default_max_parallelism(parallelism), [0] * parallelism
    owners = [owner_of_group(hashed(key) % groups, parallelism, groups) for key in range(keys)]
    for count, owner in enumerate(owners, start=1):
        counts[owner] += 1
        shares = [(1 - hot) * n / count for n in counts]
        shares[owners[0]] += hot
        yield tuple(sorted(shares, reverse=True))


@cache
def _as_uneven(wanted: Shares, keys_max: int, parallelism: int, hot: float) -> int:
    distances = (
        sum((a - b) ** 2 for a, b in zip(shares, wanted, strict=True))
        for shares in _shares(keys_max, parallelism, hot, _our_hash)
    )
    return min((distance, keys) for keys, distance in enumerate(distances, start=1))[1]


def recorded(path: Path = RECORDED) -> list[tuple[Scenario, list[Run]]]:
    """Every recorded scenario with its runs."""
    rows = json.loads(path.read_text())["scenarios"]
    return [
        (
            Scenario(row["name"], row["arguments"], row["cluster"]),
            [
                Run(
                    run["flink"],
                    Medians(**run["medians"]),
                    run["checkpoints"],
                    tuple(run["queued_bytes"]),
                    run["load_1min"],
                )
                for run in row["runs"]
            ],
        )
        for row in rows
    ]


def middle(values: Iterable[Medians]) -> Medians:
    """The median of each measure over runs; None if no run has it."""
    rows = list(values)
    known = {name: [v for row in rows if (v := getattr(row, name)) is not None] for name in MEASURES}
    return Medians(**{name: statistics.median(of) if of else None for name, of in known.items()})


def simulated(scenario: Scenario, *, seconds: float = 70, seed: int = 1) -> Medians:
    """The runtime's prediction for the scenario, by record sizes only."""
    engine = JobEngine(scenario.twin(seed), is_size_only=True)
    completed: list[CheckpointRecord] = []
    engine.coordinator.on_terminal = completed.append
    warm_us, end_us = int(seconds * WARM_UP_SHARE * 1e6), int(seconds * 1e6)
    engine.run_until(warm_us)
    last = [task for task in engine.tasks if task.spec.id == f"stage-{scenario.stages}"]
    before = sum(task.records_in for task in last)
    engine.run_until(end_us)
    counted = [r for r in completed if r.failed_at_us is None and r.triggered_at_us >= warm_us]
    measured = [[ack.measured for ack in r.acks.values()] for r in counted]
    return Medians(
        end_to_end_ms=_median((r.end_to_end_us or 0) / 1000 for r in counted),
        start_delay_ms=_median(max(m.start_delay_us for m in of) / 1000 for of in measured),
        alignment_ms=_median(max(m.alignment_us or 0 for m in of) / 1000 for of in measured),
        persisted_bytes=_median(r.persisted_bytes for r in counted),
        records_per_s=(sum(task.records_in for task in last) - before) * 1e6 / (end_us - warm_us),
    )


def _median(values: Iterable[float]) -> float | None:
    rows = list(values)
    return statistics.median(rows) if rows else None
