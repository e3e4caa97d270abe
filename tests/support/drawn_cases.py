"""Draw other jobs with the same trouble from a described case: other names, parallelism, version, times and sizes.

All times of a job are multiplied by one factor, also its interval and its timeout, so the trouble stays the same. So
are all sizes, and all rates.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Document = dict[str, Any]

_SOURCES: Final = (
    "Source: clicks",
    "Source: meter-readings -> parse",
    "Source: Custom Source -> Map",
    "Source: payments[1] -> Calc[2]",
    "Source: tickets -> Timestamps/Watermarks",
)
_OTHERS: Final = (
    "enrich -> filter",
    "GroupAggregate[4] -> Calc[5]",
    "score",
    "window(60s) -> format",
    "ledger",
    "KeyedProcess -> Sink: warehouse",
    "Sink: archive",
    "publish",
)
_SHIPPING: Final = ("HASH", "REBALANCE")
_FULL_CONFIG: Final = {"interval": 60_000, "timeout": 600_000, "min_pause": 0}
_CONFIG_TIMES: Final = frozenset(_FULL_CONFIG)
_CHECKPOINT_TIMES: Final = frozenset({"ago_s", "every_s", "start", "align", "sync", "async", "wait"})
_SIZES: Final = frozenset({"size", "state", "persisted", "processed"})
_PIECES_PER_S: Final = 1.0
"""A vertex that reads fewer records than this works for long on each, so its rate falls as its times grow."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What is drawn for one job."""

    names: dict[str, str]
    times: float
    sizes: float
    rates: float
    queues: float
    counts: float
    """The factor of the parallelism. A vertex with one subtask keeps it."""


def drawn(case: Document, versions: tuple[str, ...], rng: random.Random) -> tuple[Document, Draw]:
    """Return another job with the trouble of ``case``, under one of ``versions``, and what was drawn for it."""
    told = case["flink"]
    draw = Draw(
        names=_names(told, rng),
        times=rng.uniform(0.6, 1.6),
        sizes=rng.uniform(0.4, 3.0),
        rates=rng.uniform(0.4, 2.5),
        queues=rng.uniform(0.7, 1.4),
        counts=rng.uniform(0.6, 2.0),
    )
    made = {
        **told,
        "version": rng.choice(versions),
        "started_ago_s": told.get("started_ago_s", 86_400) * draw.times,
        "vertices": [_vertex(vertex, draw) for vertex in told["vertices"]],
        "edges": [[draw.names[a], draw.names[b], rng.choice(_SHIPPING)] for a, b, _ in told["edges"]],
        "config": _config(told.get("config", {}), draw.times),
        "exceptions": [{**one, "ago_s": one["ago_s"] * draw.times} for one in told.get("exceptions", [])],
        "checkpoints": [_checkpoint(one, draw) for one in told["checkpoints"]],
    }
    return {**case, "name": f"{case['name']}-{rng.randrange(10**6)}", "flink": made}, draw


def _names(told: Document, rng: random.Random) -> dict[str, str]:
    behind = {edge[1] for edge in told["edges"]}
    names = [vertex["name"] for vertex in told["vertices"]]
    sources, others = (n for n in rng.sample(_SOURCES, 5)), (n for n in rng.sample(_OTHERS, 8))
    return {name: next(others) if name in behind else next(sources) for name in names}


def _vertex(told: Document, draw: Draw) -> Document:
    made = {**told, "name": draw.names[told["name"]]}
    if told["p"] > 1:
        # Each subtask that differs from the others stays.
        listed = [len(value) for value in told.values() if isinstance(value, list)]
        made["p"] = (
            max(2, *listed, round(told["p"] * draw.counts)) if listed else max(2, round(told["p"] * draw.counts))
        )
    for key in ("in", "out"):
        if key in told:
            slow = told[key] < _PIECES_PER_S
            made[key] = told[key] / draw.times if slow else told[key] * draw.rates
    for key in ("in_queue", "out_queue"):
        if key in told:
            made[key] = _scaled(told[key], draw.queues)
    if "gauge_start_ms" in told:
        made["gauge_start_ms"] = _scaled(told["gauge_start_ms"], draw.times)
    return made


def _config(told: Document, times: float) -> Document:
    full = _FULL_CONFIG | told
    return {key: round(value * times) if key in _CONFIG_TIMES else value for key, value in full.items()}


def _checkpoint(told: Document, draw: Draw) -> Document:
    made = {**told, "ago_s": told["ago_s"] * draw.times}
    if "duration_ms" in told:
        made["duration_ms"] = round(told["duration_ms"] * draw.times)
    if "repeat" in told:
        made["repeat"] = {**told["repeat"], "every_s": told["repeat"]["every_s"] * draw.times}
    made["v"] = {draw.names.get(name, name): _numbers(numbers, draw) for name, numbers in told["v"].items()}
    return made


def _numbers(told: Document, draw: Draw) -> Document:
    def factor(key: str) -> float | None:
        return draw.times if key in _CHECKPOINT_TIMES else draw.sizes if key in _SIZES else None

    return {key: value if (by := factor(key)) is None else _scaled(value, by) for key, value in told.items()}


def _scaled(value: Any, factor: float) -> Any:
    return [round(one * factor) for one in value] if isinstance(value, list) else round(value * factor)


def union_state(case: Document, draw: Draw) -> Document:
    """Let the state of a drawn job multiply by the parallelism of its vertex, as union list state does."""
    grown, told = draw.names["writer"], case["flink"]
    count = next(vertex["p"] for vertex in told["vertices"] if vertex["name"] == grown)
    checkpoints = []
    for power, one in enumerate(told["checkpoints"]):
        size = round(120 * draw.sizes) * count**power
        checkpoints.append({**one, "v": {**one["v"], grown: {**one["v"][grown], "size": size}}})
    return {**case, "flink": {**told, "checkpoints": checkpoints}}


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of trouble: the case from which jobs are drawn, and what the answer to each of them must be."""

    base: str
    versions: tuple[str, ...]
    health: str
    kind: str
    culprit: str | None = None
    """The vertex that holds the barrier, by its name in the case."""
    lint: str | None = None
    adapt: Callable[[Document, Draw], Document] | None = None


NEWER: Final = ("1.13.6", "1.14.6", "1.15.4", "1.16.3", "1.17.2", "1.18.1", "1.19.3", "1.20.5", "2.0.2", "2.3.0")
FAMILIES: Final = (
    Family("reader-with-queue-of-splits", NEWER, "failing", "long-callback", "reader"),
    Family("committer-after-checkpoint", NEWER, "slow", "outside-commit", "committer -> Sink: table"),
    Family("source-holds-lock", NEWER, "failing", "late-input", "Source: rows"),
    Family("declined-not-ready", ("1.9.0", "1.9.2", "1.9.3"), "failing", "refused", "Source: events -> split"),
    Family("jobmanager-stands-still", NEWER, "slow", "coordinator"),
    Family("store-directory-full", NEWER, "failing", "store", "aggregate"),
    Family("one-writer-cannot-upload", NEWER, "failing", "failing-subtask", "writer"),
    Family("pause-longer-than-interval", NEWER, "healthy", "store", lint="min-pause-decides"),
    Family("pause-not-kept", ("1.11.0", "1.11.1"), "slow", "store", lint="FLINK-18856"),
    Family("union-state-multiplies", NEWER, "healthy", "none", lint="state-multiplies", adapt=union_state),
    Family("writer-rewrites-files", NEWER, "failing", "sync", "bucket-write"),
)
