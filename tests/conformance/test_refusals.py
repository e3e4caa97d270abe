"""Every rejected plan or option raises one typed error that names the rule, the vertex if there is one, and a fix.

The tests try each rule that rejects a job or a setting, and search the code for rejections that omit one of
these parts. They also load randomly generated documents, which must not raise any other error.
"""

from __future__ import annotations

import ast
import copy
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backend.runtime
from backend.domain.errors import InvalidInputError, PlanError
from backend.runtime.core.elements import Alignment, Barrier, SnapshotType
from backend.runtime.engine.jobfile import load_job_document, load_job_toml
from backend.runtime.job.config import KEYS, RuntimeConfig, change

_CP = "execution.checkpointing."
_RULES = set(re.findall(r"\b[A-Z]{1,4}-\d+\b", (Path(backend.runtime.__file__).parent / "PROTOCOL.md").read_text()))


def _document(**more: Any) -> dict[str, Any]:
    """Return a job document with a source, a map and a keyed vertex, changed by ``more``.

    A dictionary under the id of a vertex, or under ``first`` or ``second`` for an edge, changes that table. Lists
    under ``vertices`` and ``edges`` add tables. Any other key is added to the document.
    """
    return {
        "name": "small",
        "config": more.pop("config", {}),
        "vertex": [
            {"id": "source", "kind": "source", "parallelism": 2} | more.pop("source", {}),
            {"id": "map", "kind": "map", "parallelism": 2} | more.pop("map", {}),
            {"id": "keyed", "kind": "keyed+sink", "parallelism": 2} | more.pop("keyed", {}),
            *more.pop("vertices", []),
        ],
        "edge": [
            {"from": "source", "to": "map", "partitioner": "rebalance"} | more.pop("first", {}),
            {"from": "map", "to": "keyed", "partitioner": "hash"} | more.pop("second", {}),
            *more.pop("edges", []),
        ],
    } | more


_UNALIGNED = {f"{_CP}unaligned.enabled": True}
_LAST = {"runtime.unaligned.starts-with": "last-barrier"}
_CL = "runtime.chandy-lamport."
_MARKERS = {"runtime.chandy-lamport.enabled": True}
_MANY = [{"id": f"map-{n}", "kind": "map", "parallelism": 1000} for n in range(5)]
_TO_MANY = [{"from": "source", "to": f"map-{n}", "partitioner": "shuffle"} for n in range(5)]


@pytest.mark.parametrize(
    ("more", "rule", "vertex"),
    [
        ({"edges": [{"from": "keyed", "to": "map", "partitioner": "hash"}]}, "G-1", "map"),
        ({"first": {"to": "gone"}}, "G-1", "source -> gone"),
        ({"vertices": [{"id": "alone", "kind": "map"}]}, "G-1", "alone"),
        ({"vertices": [{"id": "more", "kind": "map"}], "edges": [
            {"from": "keyed", "to": "more", "partitioner": "hash"}]}, "G-1", "keyed"),
        ({"edges": [{"from": "map", "to": "source", "partitioner": "hash"}]}, "G-1", "source"),
        ({"source": {"kind": "map"}}, "G-1", None),
        ({"vertices": [{"id": "map", "kind": "map"}]}, "G-6", "map"),
        ({"map": {"parallelism": 9, "max_parallelism": 8}}, "G-6", "map"),
        ({"first": {"partitioner": "forward"}, "map": {"parallelism": 3}}, "G-6", "map"),
        ({"vertices": _MANY, "edges": _TO_MANY}, "G-6", "map-0"),
        ({"second": {"partitioner": "shuffle"}}, "PT-2", "keyed"),
        ({"second": {"hash_by": "origin"}}, "PT-2", "keyed"),
        ({"second": {"shares": [0.5, 0.5]}}, "PT-2", "keyed"),
        ({"second": {"shares": [0.1] * 4}}, "PT-1", "keyed"),
        ({"first": {"shares": [0.5, 0.5], "partitioner": "rebalance"}}, "PT-1", "map"),
        ({"source": {"burst_period": "1 s"}}, "SRC-4", "source"),
        ({"source": {"rate": 1e-300}}, "SRC-4", "source"),
        ({"rescale": [{"at": "1 s", "vertex": "map", "parallelism": 3}], "first": {"partitioner": "forward"}},
         "G-6", "map"),
        ({"rescale": [{"at": "1 s", "vertex": "keyed", "parallelism": 9}], "keyed": {"max_parallelism": 8}},
         "G-6", "keyed"),
        ({"config": _UNALIGNED | {f"{_CP}max-concurrent-checkpoints": 2}}, "G-6", None),
        ({"config": _UNALIGNED | {f"{_CP}mode": "AT_LEAST_ONCE"}}, "ALO-5", None),
        ({"config": _UNALIGNED | _LAST | {f"{_CP}aligned-checkpoint-timeout": "1 s"}}, "UL-1", None),
        ({"config": _UNALIGNED | _LAST | {"runtime.inflight-cap.bytes": "1 kb"}}, "UL-1", None),
        ({"config": _UNALIGNED | _LAST | {"runtime.concurrent-unaligned": True}}, "UL-1", None),
        ({"config": _UNALIGNED | _MARKERS}, "CL-1", None),
        ({"config": _MARKERS | {f"{_CP}mode": "AT_LEAST_ONCE"}}, "CL-1", None),
        ({"config": _MARKERS | {f"{_CP}max-concurrent-checkpoints": 2}}, "CL-1", None),
        ({"config": _MARKERS | {f"{_CL}markers-overtake": True, f"{_CL}marked-channels": "block"}}, "CL-11", None),
        ({"config": _MARKERS | {"runtime.phase-order": "A-S-F"}}, "PH-1", None),
        ({"config": {f"{_CP}min-pause": "1 s", f"{_CP}max-concurrent-checkpoints": 2}}, "G-6", None),
        ({"config": _UNALIGNED | {"runtime.concurrent-unaligned": True, "runtime.inflight-cap.bytes": "1 kb"}},
         "CC-4", None),
        ({"config": _UNALIGNED | {"runtime.concurrent-unaligned": True, f"{_CP}aligned-checkpoint-timeout": "1 s"}},
         "CC-4", None),
        ({"config": {f"{_CP}interval-during-backlog": "1 s"}}, "SRC-5", None),
        ({"config": {"runtime.phase-order": "L-S-F"}}, "PH-1", None),
        ({"config": {"taskmanager.memory.segment-size": 256, "taskmanager.memory.min-segment-size": 512}},
         "DB-4", None),
    ],
)  # fmt: skip
def test_a_rejected_plan_names_rule_vertex_and_fix(more: dict[str, Any], rule: str, vertex: str | None) -> None:
    with pytest.raises(PlanError) as raised:
        load_job_document(_document(**copy.deepcopy(more)))
    error = raised.value
    assert (error.rule, error.vertex) == (rule, vertex)
    assert error.fix
    assert error.fix in str(error)
    assert rule in str(error)


def test_the_unchanged_job_of_the_table_is_accepted() -> None:
    assert load_job_document(_document()).graph.vertices[2].id == "keyed"


@pytest.mark.parametrize(
    "illegal",
    [
        lambda: Barrier(1, 0, Alignment.UNALIGNED, aligned_timeout_us=5),
        lambda: Barrier(1, 0, Alignment.UNALIGNED, snapshot_type=SnapshotType.SAVEPOINT),
        lambda: Barrier(1, 0, Alignment.UNALIGNED, snapshot_type=SnapshotType.SAVEPOINT_TERMINATE),
        lambda: Barrier(1, 0, Alignment.ALIGNED, snapshot_type=SnapshotType.SAVEPOINT).as_unaligned(),
    ],
)
def test_a_barrier_that_no_settings_produce_cannot_be_created(illegal: Any) -> None:
    with pytest.raises(PlanError) as raised:
        illegal()
    assert (raised.value.rule, raised.value.vertex) == ("OPT-4", None)
    assert raised.value.fix


@pytest.mark.parametrize(
    ("point", "action", "allowed"),
    [
        ("rpc.ack", "crash", "drop, duplicate, delay"),
        ("coordinator.after-id", "drop", "crash"),
        ("store.write", "drop", "error, delay"),
        ("coordinator.metadata", "delay", "error"),
        ("store.read", "delay", "error, corrupt"),
        ("link.send", "error", "delay, stall"),
    ],
)
def test_a_fault_that_cannot_happen_at_its_point_is_refused(point: str, action: str, allowed: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        load_job_document(_document(fault=[{"point": point, "action": action}]))
    (problem,) = raised.value.problems
    assert (problem.field, problem.allowed) == ("fault[0].action", allowed)


def _raised_plan_errors() -> list[tuple[str, ast.Call]]:
    sources = ((path, path.read_text(encoding="utf-8")) for path in Path(backend.runtime.__file__).parent.rglob("*.py"))
    return [
        (f"{path.name}:{node.lineno}", node)
        for path, source in sources
        if "PlanError(" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "PlanError"
    ]


def test_each_refusal_in_the_code_names_a_rule_of_the_protocol_and_a_fix() -> None:
    calls = _raised_plan_errors()
    assert len(calls) > 25
    for where, call in calls:
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        assert set(named) == {"rule", "vertex", "fix"}, where
        rule, fix = named["rule"], named["fix"]
        assert isinstance(rule, ast.Constant), where
        assert rule.value in _RULES, where
        assert not isinstance(fix, ast.Constant) or fix.value, where


_ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 10**30, 10**5000, 0.5, float("nan"), float("inf"), 5e-324, "", "x", "\x00", "\ud800",
    "9" * 5000, "1e999 s", "-1 s", "7 d", [], [[]], [{}], {}, {"0": 4.0}, {"9" * 5000: 1}, "hash", "source", "keyed",
)  # fmt: skip
_NAMES = ("id", "kind", "parallelism", "from", "to", "partitioner", "at", "point", "vertex", "slow_subtasks", "rate")


def _odd_document(rng: random.Random) -> dict[str, Any]:
    document = _document(
        fault=[{"point": "rpc.ack", "action": "drop"}],
        savepoint=[{"at": "1 s"}],
        rescale=[{"at": "2 s", "vertex": "map", "parallelism": 3}],
        store={"latency": "5 ms"},
        config={f"{_CP}interval": "1 s"},
    )
    for _ in range(rng.choice([1, 1, 2])):
        tables = [document, *(t for each in document.values() if isinstance(each, list) for t in each)]
        tables += [each for each in document.values() if isinstance(each, dict)]
        table = rng.choice([each for each in tables if isinstance(each, dict)])
        names = [*table, *_NAMES, rng.choice(list(KEYS))]
        table[rng.choice(names)] = copy.deepcopy(rng.choice(_ODD))
    return document


def _refusal(call: Callable[[], object]) -> InvalidInputError | PlanError | None:
    try:
        call()
    except (InvalidInputError, PlanError) as error:
        return error
    return None


def test_every_document_is_accepted_or_refused_without_another_error() -> None:
    refused: Counter[type | None] = Counter()
    for seed in range(300):
        document = _odd_document(random.Random(seed))
        try:
            refusal = _refusal(lambda document=document: load_job_document(document))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {document}") from error
        refused[type(refusal)] += 1
        if isinstance(refusal, InvalidInputError):
            assert all(problem.field and problem.problem for problem in refusal.problems), f"seed {seed}"
        elif refusal is not None:
            assert refusal.rule in _RULES, f"seed {seed}"
            assert refusal.fix, f"seed {seed}"
    assert len(refused) == 3, refused


@pytest.mark.parametrize("name", sorted(KEYS))
def test_every_value_of_a_setting_is_accepted_or_refused_without_another_error(name: str) -> None:
    refused = [_refusal(lambda value=value: change(RuntimeConfig(), {name: value})) for value in _ODD]
    assert sum(refusal is not None for refusal in refused) > 10, name


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 5000, "seed = 0x" + "f" * 5000])
def test_text_that_python_cannot_parse_is_refused_with_a_message(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid job file"):
        load_job_toml(text)


def test_settings_nested_too_deeply_are_refused() -> None:
    nested: dict[str, Any] = {"interval": "1 s"}
    for _ in range(900):
        nested = {"execution": nested}
    with pytest.raises(InvalidInputError, match="is nested too deeply"):
        load_job_document(_document(config=nested))
