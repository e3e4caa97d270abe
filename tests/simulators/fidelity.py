"""Runs of ``benchmarks/fidelity/FidelityJob.java`` on a real Flink, and equivalent jobs (twins) for the runtime.

A scenario contains the settings of the job and the cluster. The twin is built from these settings and from the
number of bytes that Flink adds to a payload. Nothing is fitted to measurements. ``recorded.json`` contains the
medians of every run, which ``tests/simulators/fidelity_recordings.py`` computes from recordings.
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
from backend.runtime.measure.measures import MeasuredCheckpoint

RECORDED = Path(__file__).parents[1] / "conformance" / "flink_running" / "recorded.json"
WARM_UP_SHARE = 1 / 3
"""Share of a run that is warm-up.

During the warm-up, buffers fill and debloating adapts. Checkpoints triggered in it do not count.
"""
WIRE_BYTES = 4 + 1 + 8 + 4 + 8 + 4
"""Number of bytes that Flink adds to a payload.

They are the length, tag and timestamp of the stream record, and the key, number and length of the payload.
"""
PASS_US = 20
"""Cost in microseconds of a record in a stage that does nothing.

Such a stage is never the bottleneck, so no result depends on this value.
"""
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
    """The settings of a run: the arguments of the job, and the cluster settings that differ from Flink's defaults."""

    name: str
    arguments: Mapping[str, str]
    cluster: Mapping[str, str]

    def number(self, argument: str, default: float) -> float:
        """Return an argument of the job as a number, or ``default`` if the job does not have this argument."""
        return float(self.arguments.get(argument, default))

    @property
    def stages(self) -> int:
        return int(self.arguments["stages"])

    @property
    def parallelism(self) -> int:
        return int(self.arguments["parallelism"])

    @property
    def record_bytes(self) -> int:
        """The size of a record on the wire, including its length field."""
        return int(self.arguments["payload-bytes"]) + WIRE_BYTES

    @property
    def is_unaligned(self) -> bool:
        return self.arguments["unaligned"] == "true"

    def cost_us(self, stage: int) -> int:
        """Return the cost of a record in a stage, without the straggler factor. Stages are numbered from 1."""
        cost = self.number("cost-us", 0) if stage == self.stages else self.number("inner-cost-us", 0)
        return int(cost) or PASS_US

    def straggling(self, stage: int) -> float:
        """Return the factor by which a record costs more at subtask 0 of this stage."""
        return self.number("straggler-factor", 1) if stage == self.number("straggler-stage", 0) else 1.0

    @property
    def flink_shares(self) -> Shares:
        """Each last-stage subtask's share of the records with Flink's key distribution, the largest share first."""
        keys = int(self.arguments["keys"])
        *_, shares = _shares(keys, self.parallelism, self.number("hot-key-ratio", 0), flinks_hash)
        return shares

    def twin_keys(self) -> int:
        """Return a number of keys for the twin.

        The runtime's hash spreads this number of keys as unevenly over subtasks as Flink spreads the job's keys. Even
        small differences have an effect: the subtask with the largest share has full channels, and the channels of all
        others run dry.
        """
        keys = int(self.arguments["keys"])
        return _as_uneven(self.flink_shares, 2 * keys, self.parallelism, self.number("hot-key-ratio", 0))

    def twin(self, seed: int = 1) -> JobSpec:
        """Return the equivalent job for the runtime."""
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

    Start delay and alignment are the longest of all subtasks in each checkpoint. None means that the source of the
    medians does not provide this value.
    """

    end_to_end_ms: float | None = None
    start_delay_ms: float | None = None
    alignment_ms: float | None = None
    persisted_bytes: float | None = None
    records_per_s: float | None = None


MEASURES = tuple(field.name for field in fields(Medians))


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded run of a scenario: its medians, and the values that are needed to interpret them."""

    flink: str
    medians: Medians
    checkpoints: int
    """The number of checkpoints that completed after the warm-up."""
    queued_bytes: tuple[float, ...]
    """Bytes queued before each stage, at the sender and the receiver of its channels. Each is a median over the run."""
    load_1min: float


def flinks_hash(key: int) -> int:
    """Return the hash of a 32-bit integer from which Flink derives its key group.

    It is computed from the four bytes.
    """
    unsigned = murmur3_32(key.to_bytes(4, "little", signed=True))
    signed = unsigned - (1 << 32) if unsigned >> 31 else unsigned
    return 0 if signed == -(1 << 31) else abs(signed)


def _our_hash(key: int) -> int:
    return murmur3_32(key.to_bytes(8, "little"))


def _shares(keys: int, parallelism: int, hot: float, hashed: Callable[[int], int]) -> Iterator[Shares]:
    """For each number of keys from 1 to ``keys``, yield the subtasks' shares of the records, largest share first."""
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
    """Read every recorded scenario with its runs."""
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
    """Return the median of each measure over several runs, or None if no run has this measure."""
    rows = list(values)
    known = {name: [v for row in rows if (v := getattr(row, name)) is not None] for name in MEASURES}
    return Medians(**{name: statistics.median(of) if of else None for name, of in known.items()})


def simulated(scenario: Scenario, *, seconds: float = 70, seed: int = 1) -> Medians:
    """Run the equivalent of the scenario's Flink job on the runtime, and return the predicted medians.

    The run models the sizes of records, but not their bytes.
    """
    engine = JobEngine(scenario.twin(seed), is_size_only=True)
    completed: list[MeasuredCheckpoint] = []
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
