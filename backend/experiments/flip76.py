"""The test plan of FLIP-76 (T-3 to T-6): unaligned checkpoints compared with all other protocols.

All protocols process the same records in a job with two shuffles. Its slow sink keeps the channels of both edges full.

*times* (T-3): the end-to-end duration of checkpoints, at two speeds of the sink. *throughput* (T-4): the records per
second at the sink. *progress* (T-5): the records committed per second if the mean time between failures is below, at
and above the duration of an aligned checkpoint, and with far more in-flight data. *overhead* (T-6): the throughput lost
compared with a run without checkpoints, by checkpoint interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from backend.experiments.model import (
    Experiment,
    Found,
    Judgement,
    Ordering,
    Row,
    about_equal,
    at_most,
    below,
    every,
    run_engine,
)
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


def slow_sink_job(
    protocol: str,
    *,
    seed: int,
    slow_us: int = 2_000,
    interval: str = "500 ms",
    min_pause: str = "0 ms",
    floating: int = 8,
    maps: int = 1,
    record_bytes: int = _RECORD_BYTES,
    plan: tuple[FaultSpec, ...] = (),
) -> JobSpec:
    """Return a job with sources, maps and a slow sink, with two subtasks each.

    ``maps`` is the number of maps, which is one less than the number of shuffles. ``slow_us`` is the sink's time for a
    record. A larger number of ``floating`` buffers for each gate means more
    in-flight data.
    """
    common: dict[str, Any] = {"parallelism": 2, "record_bytes": record_bytes}
    between = ["map", *(f"map-{i}" for i in range(2, maps + 1))]
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
            *({"id": name, "kind": "map", "cost_us": 50, **common} for name in between),
            {"id": "sink", "kind": "keyed+sink", "cost_us": slow_us, **common},
        ],
        "edge": [
            *({"from": a, "to": b, "partitioner": "rebalance"} for a, b in pairwise(["source", *between])),
            {"from": between[-1], "to": "sink", "partitioner": "hash"},
        ],
        "store": {"latency": "10 ms", "bytes_per_s": "100 mb"},
    }
    return replace(load_job_document(document), faults=plan)


def _durations_ms(engine: JobEngine) -> list[float]:
    # Leave out the first checkpoint, because the buffers were still filling.
    return [(record.end_to_end_us or 0) / 1000 for record in engine.coordinator.all_completed][1:]


def _throughput(engine: JobEngine) -> float:
    at_sink = sum(task.records_in for task in engine.tasks if task.spec.id == "sink")
    return at_sink * 1e6 / engine.now_us


SLOW_US = {"2 ms a record": 2_000, "8 ms a record": 8_000}
_TIMES_US = 12_000_000


def times(protocol: str, seed: int, ratio: float = 1.0) -> Iterator[Row]:
    """Yield the median checkpoint duration of a run (T-3) and its throughput (T-4), at two speeds of the sink."""
    for setting, slow_us in SLOW_US.items():
        engine = run_engine(slow_sink_job(protocol, seed=seed, slow_us=slow_us), round(ratio * _TIMES_US))
        if protocol != "none":
            duration_ms = statistics.median(_durations_ms(engine))
            yield Row("times", protocol, setting, seed, duration_ms, "ms end to end")
        yield Row("throughput", protocol, setting, seed, _throughput(engine), "records/s")


_ALIGNED_US = 420_000
"""Approximate duration of an aligned checkpoint in microseconds.

It was measured with the smaller of the two amounts of in-flight data.
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


def progress(protocol: str, seed: int, ratio: float = 1.0) -> Iterator[Row]:
    """Yield the results for every time between failures and both amounts of in-flight data (T-5)."""
    for more in IN_FLIGHT if protocol != "none" else ():
        for name in MTBF:
            yield from progress_of(protocol, seed, name, more, for_us=round(ratio * _PROGRESS_US))


def progress_of(protocol: str, seed: int, name: str, more: str = "", *, for_us: int = _PROGRESS_US) -> Iterator[Row]:
    """Yield the committed records per second. If a restart finished, also yield the median time until all tasks run."""
    plan = failures(seed, MTBF[name] * _ALIGNED_US)
    # The pause before the first checkpoint lets the buffers fill, so that all checkpoints run under backpressure.
    spec = slow_sink_job(protocol, seed=seed, interval="60 ms", min_pause="60 ms", floating=IN_FLIGHT[more], plan=plan)
    engine = run_engine(spec, for_us)
    setting = f"failures {name}{more}"
    yield Row(
        "progress", protocol, setting, seed, engine.ledger.committed_count * 1e6 / engine.now_us, "useful records/s"
    )
    took = [r.running_at_us - r.deployed_at_us for r in engine.restarts if r.running_at_us and r.deployed_at_us]
    if took:
        yield Row("restart", protocol, setting, seed, statistics.median(took) / 1000, "ms until all run")


INTERVALS = ("100 ms", "500 ms", "2 s")
_OVERHEAD_US = 12_000_000


def overhead(protocol: str, seed: int, ratio: float = 1.0) -> Iterator[Row]:
    """Yield the lost throughput in percent, compared with the same run without checkpoints, for each interval (T-6)."""
    if protocol == "none":
        return
    for_us = round(ratio * _OVERHEAD_US)
    without = _throughput(run_engine(slow_sink_job("none", seed=seed), for_us))
    for interval in INTERVALS:
        with_ = _throughput(run_engine(slow_sink_job(protocol, seed=seed, interval=interval), for_us))
        yield Row("overhead", protocol, f"every {interval}", seed, 100 * (1 - with_ / without), "% of throughput")


_PARTS: Final[Mapping[str, Callable[[str, int, float], Iterator[Row]]]] = {
    "times": times,
    "progress": progress,
    "overhead": overhead,
}


def _run(task: str, seed: int, ratio: float) -> list[Row]:
    part, _, protocol = task.partition("/")
    return list(_PARTS[part](protocol, seed, ratio))


_FAST, _SLOW = SLOW_US


def _less_sensitive(medians: Found) -> Judgement:
    aligned, unaligned = (medians["times", _SLOW, p].value / medians["times", _FAST, p].value for p in _COMPARED)
    return Judgement(2 * unaligned < aligned, f"aligned grows {aligned:.3g} times, unaligned {unaligned:.3g} times")


_COMPARED = ("aligned", "unaligned")
_PR_32 = "flink-benchmarks PR 32 (2021)"
_PR_54 = "flink-benchmarks PR 54 (2022)"
_FLIP = "FLIP-76"

EXPERIMENT: Final = Experiment(
    name="flip-76",
    title="Unaligned checkpoints: the test plan of FLIP-76",
    sentence="Two shuffles and a slow sink: checkpoint times, throughput, progress under failures, and cost.",
    tasks=tuple(
        f"{part}/{protocol}" for part in _PARTS for protocol in PROTOCOLS if part == "times" or protocol != "none"
    ),
    run=_run,
    orderings=(
        Ordering(
            "Under backpressure, unaligned checkpoints are shorter than those with an aligned timeout, which are"
            " shorter than aligned ones.",
            f"{_PR_32}: 2.5, 133 and 879 ms",
            every(
                *(
                    below("times", setting, small, large)
                    for setting in SLOW_US
                    for small, large in (("unaligned", "aligned-timeout"), ("aligned-timeout", "aligned"))
                )
            ),
        ),
        Ordering(
            "Unaligned checkpoints are at least 133 times shorter than aligned ones.",
            f"{_PR_32}: 356 times; {_PR_54}: 133 to 293 times",
            every(*(below("times", setting, "unaligned", "aligned", times=133) for setting in SLOW_US)),
            "The factor depends on the data in flight and on the fixed cost of a checkpoint. This job has small"
            " buffers, two subtasks for each vertex, and a store that takes 10 ms for a write. The benchmark has"
            " larger buffers, more subtasks and no such store.",
        ),
        Ordering(
            "A sink that is four times slower makes aligned checkpoints at least three times longer, and unaligned ones"
            " less than half as sensitive.",
            f"{_PR_54}: aligned 1.6 to 13.3 s, unaligned 12 to 45 ms",
            every(below("times", _FAST, "aligned", "aligned", times=3, other=_SLOW), _less_sensitive),
        ),
        Ordering(
            "The protocol does not change the throughput under backpressure.",
            f"{_FLIP}, test plan",
            every(*(about_equal("throughput", setting, tuple(PROTOCOLS), share=0.03) for setting in SLOW_US)),
        ),
        Ordering(
            "If failures are more frequent than aligned checkpoints can complete, only unaligned ones make progress.",
            f"{_FLIP}, motivation",
            below("progress", "failures below", "aligned", "unaligned", times=10),
        ),
        Ordering(
            "Much in-flight data slows the recovery from unaligned checkpoints.",
            f"{_FLIP}, limitations; FLINK-35761",
            below(
                "restart", "failures above", "unaligned", "unaligned", times=2, other="failures above, more in flight"
            ),
        ),
        Ordering(
            "Checkpoints every 2 s cost at most 2 % of the throughput, with every protocol.",
            f"{_FLIP}, test plan",
            at_most("overhead", "every 2 s", CHECKPOINTING, 2.0),
        ),
    ),
)
