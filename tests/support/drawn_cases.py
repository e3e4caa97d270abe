"""Draw other jobs with the same trouble from a described case: other names, parallelism, version, times and sizes.

All times of a job are multiplied by one factor, also its interval and its timeout, so the trouble stays the same. So
are all sizes, and all rates. The trouble moves to other subtasks, the subtasks are spread over other hosts, and some
jobs have one more vertex behind the source that has no trouble of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.support.described_checkpoints import Document, each

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
_BRANCH_SHARE: Final = 0.5
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
    subtasks: dict[str, int]
    """The parallelism, by the name in the case. A vertex with one subtask keeps it."""
    shift: int
    """By how many subtasks what is told of single subtasks moves."""
    hosts_count: int
    branch: str | None
    """The name of a vertex behind the first source that is not in the case, or None."""

    def moved(self, name: str, index: int) -> int:
        """Return the subtask that has in the drawn job the part that the subtask ``index`` has in the case."""
        return (index + self.shift) % self.subtasks[name]


def drawn(case: Document, versions: tuple[str, ...], rng: random.Random) -> tuple[Document, Draw]:
    """Return another job with the trouble of ``case``, under one of ``versions``, and what was drawn for it."""
    told = case["flink"]
    names = _names(told, rng)
    draw = Draw(
        names=names,
        times=rng.uniform(0.6, 1.6),
        sizes=rng.uniform(0.4, 3.0),
        rates=rng.uniform(0.4, 2.5),
        queues=rng.uniform(0.7, 1.4),
        subtasks=_parallelism(told["vertices"], rng.uniform(0.6, 2.0)),
        shift=rng.randrange(20),
        hosts_count=rng.randint(1, 4),
        branch="audit-copy" if rng.random() < _BRANCH_SHARE else None,
    )
    made = {
        **told,
        "version": rng.choice(versions),
        "started_ago_s": told.get("started_ago_s", 86_400) * draw.times,
        "vertices": [_vertex(vertex, draw) for vertex in told["vertices"]],
        "edges": [[names[a], names[b], rng.choice(_SHIPPING)] for a, b, _ in told["edges"]],
        "config": _config(told.get("config", {}), draw.times),
        "exceptions": [{**one, "ago_s": one["ago_s"] * draw.times} for one in told.get("exceptions", [])],
        "checkpoints": [_checkpoint(one, draw) for one in told["checkpoints"]],
    }
    if draw.branch is not None:
        _add_branch(made, draw.branch)
    return {**case, "name": f"{case['name']}-{rng.randrange(10**6)}", "flink": made}, draw


def _names(told: Document, rng: random.Random) -> dict[str, str]:
    behind = {edge[1] for edge in told["edges"]}
    names = [vertex["name"] for vertex in told["vertices"]]
    sources, others = iter(rng.sample(_SOURCES, 5)), iter(rng.sample(_OTHERS, 8))
    return {name: next(others) if name in behind else next(sources) for name in names}


def _parallelism(vertices: list[Document], factor: float) -> dict[str, int]:
    """Return the drawn parallelism. It is at least the count of subtasks of which something is told singly."""
    found = {}
    for vertex in vertices:
        singly = [len(value) for value in vertex.values() if isinstance(value, list)]
        found[vertex["name"]] = 1 if vertex["p"] == 1 else max(2, *singly, round(vertex["p"] * factor))
    return found


def _vertex(told: Document, draw: Draw) -> Document:
    count = draw.subtasks[told["name"]]
    made = {**told, "name": draw.names[told["name"]], "p": count}
    made["hosts"] = [f"host-{index % draw.hosts_count + 1}" for index in range(count)]
    for key, value in told.items():
        if isinstance(value, list):
            made[key] = [each(value, count)[(index - draw.shift) % count] for index in range(count)]
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


def _add_branch(made: Document, name: str) -> None:
    """Add a vertex behind the first source. Its parts of the checkpoints are like those of the source."""
    source = made["vertices"][0]
    made["vertices"].append({"name": name, "p": source["p"], "busy": 0.02, "in": source.get("out", 0)})
    made["edges"].append([source["name"], name, "REBALANCE"])
    for checkpoint in made["checkpoints"]:
        if source["name"] in checkpoint["v"]:
            checkpoint["v"][name] = checkpoint["v"][source["name"]]


def _config(told: Document, times: float) -> Document:
    full = _FULL_CONFIG | told
    return {key: round(value * times) if key in _CONFIG_TIMES else value for key, value in full.items()}


def _checkpoint(told: Document, draw: Draw) -> Document:
    made = {**told, "ago_s": told["ago_s"] * draw.times}
    if "duration_ms" in told:
        made["duration_ms"] = round(told["duration_ms"] * draw.times)
    if "repeat" in told:
        made["repeat"] = {**told["repeat"], "every_s": told["repeat"]["every_s"] * draw.times}
    made["v"] = {draw.names.get(name, name): _numbers(name, numbers, draw) for name, numbers in told["v"].items()}
    return made


def _numbers(name: str, told: Document, draw: Draw) -> Document:
    def factor(key: str) -> float | None:
        return draw.times if key in _CHECKPOINT_TIMES else draw.sizes if key in _SIZES else None

    made = {key: value if (by := factor(key)) is None else _scaled(value, by) for key, value in told.items()}
    if isinstance(told.get("pending"), list):
        made["pending"] = [draw.moved(name, index) for index in told["pending"]]
    return made


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
    subtask: int | None = None
    """The only subtask of it that holds the barrier, by its number in the case."""
    lint: str | None = None
    adapt: Callable[[Document, Draw], Document] | None = None


NEWER: Final = ("1.13.6", "1.14.6", "1.15.4", "1.16.3", "1.17.2", "1.18.1", "1.19.3", "1.20.5", "2.0.2", "2.3.0")
FAMILIES: Final = (
    Family("reader-with-queue-of-splits", NEWER, "failing", "long-callback", "reader"),
    Family("committer-after-checkpoint", NEWER, "slow", "outside-commit", "committer -> Sink: table"),
    Family("source-holds-lock", NEWER, "failing", "late-input", "Source: rows"),
    Family(
        "declined-not-ready", ("1.9.0", "1.9.2", "1.9.3"), "failing", "refused", "Source: events -> split", subtask=3
    ),
    Family("jobmanager-stands-still", NEWER, "slow", "coordinator"),
    Family("store-directory-full", NEWER, "failing", "store", "aggregate"),
    Family("one-writer-cannot-upload", NEWER, "failing", "failing-subtask", "writer", subtask=1),
    Family("pause-longer-than-interval", NEWER, "healthy", "store", lint="min-pause-decides"),
    Family("pause-not-kept", ("1.11.0", "1.11.1"), "slow", "store", lint="FLINK-18856"),
    Family("union-state-multiplies", NEWER, "healthy", "none", lint="state-multiplies", adapt=union_state),
    Family("writer-rewrites-files", NEWER, "failing", "sync", "bucket-write"),
)


def _behind_full_source(busy: list[float], rate: float, pending: Document, below: Document) -> Document:
    """Return a job whose second vertex is full at one subtask. ``below`` is what the vertex after it tells."""
    quick = {"start": 5, "async": 30, "size": 20_000}
    subtasks = {"tickets": quick, "aggregate": {**quick, **pending}, "store": {**quick, **below}}
    expired = {"status": "FAILED", "duration_ms": 600_000, "repeat": {"times": 5, "every_s": 600}}
    return {
        "name": "forwarded",
        "flink": {
            "version": "1.18.1",
            "vertices": [
                {"name": "tickets", "p": 4, "busy": 0.02, "bp": 0.95, "out": rate},
                {"name": "aggregate", "p": 4, "busy": busy, "in": rate, "out": rate},
                {"name": "store", "p": 4, "busy": 0.05, "in": rate},
            ],
            "edges": [["tickets", "aggregate", "HASH"], ["aggregate", "store", "HASH"]],
            "config": {"tolerable_failed_checkpoints": 20},
            "checkpoints": [
                {"id": 40, "ago_s": 620, **expired, "v": subtasks},
                {"id": 41, "ago_s": 8, "status": "IN_PROGRESS", "v": subtasks},
            ],
        },
    }


_ONE_FULL: Final = [0.02, 0.02, 1.0, 0.02]
_ONE_WAITS: Final = {"pending": [2]}
FORWARDED: Final = {
    "forwarded, stands still": (
        Family("", NEWER, "failing", "sync", "aggregate", subtask=2),
        _behind_full_source(_ONE_FULL, 0, _ONE_WAITS, {}),
    ),
    "forwarded, reads on": (
        Family("", NEWER, "failing", "store", "aggregate", subtask=2),
        _behind_full_source(_ONE_FULL, 800, _ONE_WAITS, {}),
    ),
    "not forwarded, a queue": (
        Family("", NEWER, "failing", "capacity", "aggregate"),
        _behind_full_source([1.0] * 4, 800, {"pending": "all"}, {"pending": "all"}),
    ),
}
"""Subtasks that forwarded the barrier and do not acknowledge, and a vertex that did not: the family, and its case."""


# --- a second trouble beside the first ------------------------------------------------------------------------------


def unaligned(told: Document) -> Document:
    """Switch unaligned checkpoints on. They change nothing where a barrier does not wait for data."""
    return {**told, "config": {**told["config"], "unaligned_checkpoints": True}}


def at_capacity(told: Document) -> Document:
    """Bring the second vertex to its capacity, so that the source stands under back pressure."""
    source, second, *others = told["vertices"]
    second = {**second, "busy": 1.0, "in_pool": 1.0, "in_queue": 2_000_000}
    return {**told, "vertices": [{**source, "busy": 0.02, "bp": 0.97}, second, *others]}


def slow_store(told: Document) -> Document:
    """Let the second vertex write for 5 s to the checkpoint store."""
    name = told["vertices"][1]["name"]
    checkpoints = [
        {**one, "v": {**one["v"], name: {**one["v"][name], "async": 5_000, "size": 300_000_000}}}
        for one in told["checkpoints"]
    ]
    return {**told, "checkpoints": checkpoints}


Beside = Callable[[Document], Document]

_BESIDE: Final[dict[str, tuple[Beside, ...]]] = {
    "reader-with-queue-of-splits": (unaligned,),
    "committer-after-checkpoint": (slow_store,),
    "source-holds-lock": (unaligned,),
    "declined-not-ready": (at_capacity, unaligned),
    "jobmanager-stands-still": (at_capacity, slow_store, unaligned),
    "store-directory-full": (at_capacity, unaligned),
    "one-writer-cannot-upload": (at_capacity, unaligned),
    "writer-rewrites-files": (unaligned,),
}


def mixed() -> list[tuple[Family, Beside]]:
    """Return the families whose answer must stay the same with a second trouble beside theirs."""
    return [(family, beside) for family in FAMILIES for beside in _BESIDE.get(family.base, ())]
