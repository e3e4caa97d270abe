"""Runs the test plan of FLIP-76 as experiments (T-3 to T-6): ``make experiments [SEEDS=20]``.

All protocols process the same records in a job with two shuffles. Its slow sink keeps the channels of both
edges full. Each seed is a separate run. The report shows the median over the seeds and its 95 % confidence
interval, and the file contains every row. The runs model only record sizes: times, bytes and events are the
same as with payloads.

*times* (T-3): the end-to-end duration of checkpoints, at two speeds of the sink. *throughput* (T-4): the
records per second at the sink. *progress* (T-5): the records committed per second if the mean time between
failures is below, at and above the duration of an aligned checkpoint, and with far more in-flight data.
*overhead* (T-6): the throughput lost compared with a run without checkpoints, by checkpoint interval.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import comb
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import Any

from backend.runtime.core.prng import Stream
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec

_CP = "execution.checkpointing."
PROTOCOLS: Mapping[str, dict[str, object]] = {
    "none": {f"{_CP}interval": "7 d"},
    "aligned": {},
    "at-least-once": {f"{_CP}mode": "AT_LEAST_ONCE"},
    "aligned-timeout": {f"{_CP}unaligned.enabled": True, f"{_CP}aligned-checkpoint-timeout": "100 ms"},
    "chandy-lamport": {"runtime.chandy-lamport.enabled": True},
    "capped": {f"{_CP}unaligned.enabled": True, "runtime.inflight-cap.bytes": "32 kb"},
    "unaligned": {f"{_CP}unaligned.enabled": True},
    "last-barrier": {f"{_CP}unaligned.enabled": True, "runtime.unaligned.starts-with": "last-barrier"},
}
CHECKPOINTING = tuple(name for name in PROTOCOLS if name != "none")
_RECORD_BYTES = 1_000
_RESTART_US = 50_000
_OUTSIDE = 0.05
"""The largest allowed probability that an interval does not contain the true median."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one run: ``value`` in ``unit``. ``setting`` names what varies in addition to the protocol."""

    experiment: str
    protocol: str
    setting: str
    seed: int
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Median:
    """The median over the seeds of one protocol and setting, with its confidence interval from ``low`` to ``high``."""

    value: float
    low: float
    high: float


def slow_sink_job(
    protocol: str,
    *,
    seed: int,
    slow_us: int = 2_000,
    interval: str = "500 ms",
    min_pause: str = "0 ms",
    floating: int = 8,
    plan: tuple[FaultSpec, ...] = (),
) -> JobSpec:
    """Return a job with sources, a map and a slow sink, with two subtasks each.

    ``slow_us`` is the sink's time for a record. A larger number of ``floating`` buffers for each gate means more
    in-flight data.
    """
    common: dict[str, Any] = {"parallelism": 2, "record_bytes": _RECORD_BYTES}
    settings: dict[str, object] = {
        f"{_CP}interval": interval,
        f"{_CP}min-pause": min_pause,
        f"{_CP}timeout": "1 h",
        f"{_CP}tolerable-failed-checkpoints": "unlimited",
        "taskmanager.memory.segment-size": 4096,
        "taskmanager.network.memory.floating-buffers-per-gate": floating,
        "taskmanager.network.memory.max-buffers-per-channel": 10 + floating,
        "restart-strategy.fixed-delay.delay": f"{_RESTART_US // 1000} ms",
        "runtime.task-managers": 2,
        "runtime.fuzz-schedule": 1 + seed,
    }
    document = {
        "name": f"slow-sink-{protocol}",
        "seed": seed,
        "config": settings | PROTOCOLS[protocol],
        "vertex": [
            {"id": "source", "kind": "source", "keys": 1000, "cost_us": 20, **common},
            {"id": "map", "kind": "map", "cost_us": 50, **common},
            {"id": "sink", "kind": "keyed+sink", "cost_us": slow_us, **common},
        ],
        "edge": [
            {"from": "source", "to": "map", "partitioner": "rebalance"},
            {"from": "map", "to": "sink", "partitioner": "hash"},
        ],
        "store": {"latency": "10 ms", "bytes_per_s": "100 mb"},
    }
    return replace(load_job_document(document), faults=plan)


def _run(spec: JobSpec, for_us: int) -> JobEngine:
    engine = JobEngine(spec, is_size_only=True)
    engine.run_until(for_us)
    return engine


def _durations_ms(engine: JobEngine) -> list[float]:
    # Leave out the first checkpoint, because the buffers were still filling.
    return [(record.end_to_end_us or 0) / 1000 for record in engine.coordinator.all_completed][1:]


def _throughput(engine: JobEngine) -> float:
    at_sink = sum(task.records_in for task in engine.tasks if task.spec.id == "sink")
    return at_sink * 1e6 / engine.now_us


# --- experiments ------------------------------------------------------------------------------------------------------

SLOW_US = {"2 ms a record": 2_000, "8 ms a record": 8_000}
_TIMES_US = 12_000_000


def times(protocol: str, seed: int) -> Iterator[Row]:
    """Yield the median checkpoint duration of a run (T-3) and its throughput (T-4), at two speeds of the sink."""
    for setting, slow_us in SLOW_US.items():
        engine = _run(slow_sink_job(protocol, seed=seed, slow_us=slow_us), _TIMES_US)
        if protocol != "none":
            duration_ms = statistics.median(_durations_ms(engine))
            yield Row("times", protocol, setting, seed, duration_ms, "ms end to end")
        yield Row("throughput", protocol, setting, seed, _throughput(engine), "records/s")


_ALIGNED_US = 420_000
"""Approximate duration of an aligned checkpoint in microseconds.

It is that of the job with the smaller amount of in-flight data.
"""
MTBF = {"below": 0.6, "at": 1.3, "above": 4.0}
"""Mean time between failures, as a multiple of the duration of an aligned checkpoint."""
IN_FLIGHT = {"": 8, ", more in flight": 40}
_PROGRESS_US = 8_000_000


def failures(seed: int, mtbf_us: float) -> tuple[FaultSpec, ...]:
    """Return crashes at random times.

    The time from one crash to the next is ``mtbf_us``, plus or minus a fifth, plus the time of a restart.
    """
    draws = Stream(seed, "mtbf")
    at_us, plan = 0, []
    while at_us < _PROGRESS_US:
        at_us += _RESTART_US + int(mtbf_us * (0.8 + draws.below(401) / 1000))
        plan.append(FaultSpec("source.after-emit", at_us=at_us))
    return tuple(plan)


def progress(protocol: str, seed: int) -> Iterator[Row]:
    """Yield the results for every time between failures and both amounts of in-flight data (T-5)."""
    for more in IN_FLIGHT if protocol != "none" else ():
        for name in MTBF:
            yield from progress_of(protocol, seed, name, more)


def progress_of(protocol: str, seed: int, name: str, more: str = "", *, for_us: int = _PROGRESS_US) -> Iterator[Row]:
    """Yield the committed records per second. If a restart finished, also yield the median time until all tasks ran."""
    plan = failures(seed, MTBF[name] * _ALIGNED_US)
    # The pause before the first checkpoint lets the buffers fill, so that all checkpoints run under backpressure.
    spec = slow_sink_job(protocol, seed=seed, interval="60 ms", min_pause="60 ms", floating=IN_FLIGHT[more], plan=plan)
    engine = _run(spec, for_us)
    setting = f"failures {name}{more}"
    yield Row(
        "progress", protocol, setting, seed, engine.ledger.committed_count * 1e6 / engine.now_us, "useful records/s"
    )
    took = [r.running_at_us - r.deployed_at_us for r in engine.restarts if r.running_at_us and r.deployed_at_us]
    if took:
        yield Row("restart", protocol, setting, seed, statistics.median(took) / 1000, "ms until all run")


INTERVALS = ("100 ms", "500 ms", "2 s")
_OVERHEAD_US = 12_000_000


def overhead(protocol: str, seed: int) -> Iterator[Row]:
    """Yield the lost throughput in percent, compared with the same run without checkpoints, for each interval (T-6)."""
    if protocol == "none":
        return
    without = _throughput(_run(slow_sink_job("none", seed=seed), _OVERHEAD_US))
    for interval in INTERVALS:
        with_ = _throughput(_run(slow_sink_job(protocol, seed=seed, interval=interval), _OVERHEAD_US))
        yield Row("overhead", protocol, f"every {interval}", seed, 100 * (1 - with_ / without), "% of throughput")


EXPERIMENTS: Mapping[str, Callable[[str, int], Iterator[Row]]] = {
    "times": times,
    "progress": progress,
    "overhead": overhead,
}


# --- results ----------------------------------------------------------------------------------------------------------


def median_of(values: Sequence[float]) -> Median:
    """Return the median, and the two values that enclose the true median with 95 % confidence.

    With few values, these are the smallest and the largest value.
    """
    ordered = sorted(values)
    n = len(ordered)
    outside = 0
    while outside + 1 <= (n - 1) // 2 and 2 * sum(comb(n, i) for i in range(outside + 1)) / 2**n <= _OUTSIDE:
        outside += 1
    outside = max(0, outside - 1)
    return Median(statistics.median(ordered), ordered[outside], ordered[n - 1 - outside])


def medians(rows: Sequence[Row]) -> dict[tuple[str, str, str], Median]:
    """Return the median of each experiment, setting and protocol."""
    grouped: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        grouped[row.experiment, row.setting, row.protocol].append(row.value)
    return {key: median_of(values) for key, values in grouped.items()}


def _rows(job: tuple[str, str, int]) -> list[Row]:
    experiment, protocol, seed = job
    return list(EXPERIMENTS[experiment](protocol, seed))


def _table(rows: Sequence[Row]) -> Iterator[str]:
    units = {row.experiment: row.unit for row in rows}
    found = medians(rows)
    for experiment, setting in dict.fromkeys((e, s) for e, s, _ in found):
        yield f"{experiment}, {setting} ({units[experiment]})"
        for protocol in PROTOCOLS:
            one = found.get((experiment, setting, protocol))
            if one is not None:
                yield f"  {protocol:<16} {one.value:10.1f}   {one.low:10.1f} to {one.high:10.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiments, print the medians with their intervals, and write every row to a file."""
    parser = argparse.ArgumentParser(prog="make experiments", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", choices=[*EXPERIMENTS], action="append")
    parser.add_argument("--rows", type=Path, default=Path("build/experiments.jsonl"), help="file for every row")
    parser.add_argument("--processes", type=int, default=cpu_count() or 1)
    options = parser.parse_args(arguments)
    jobs = [(e, p, n) for e in options.only or EXPERIMENTS for p in PROTOCOLS for n in range(options.seeds)]
    rows: list[Row] = []
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    with get_context("spawn").Pool(options.processes) as pool, options.rows.open("w", encoding="utf-8") as kept:
        for done, found in enumerate(pool.imap(_rows, jobs), 1):
            rows += found
            kept.writelines(json.dumps(asdict(row)) + "\n" for row in found)
            print(f"{done}/{len(jobs)} runs", file=sys.stderr, end="\r", flush=True)
    print(*_table(rows), sep="\n")
    print(f"{len(rows)} rows in {options.rows}; medians over {options.seeds} seeds, with their 95 % intervals")
    return 0


if __name__ == "__main__":
    sys.exit(main())
