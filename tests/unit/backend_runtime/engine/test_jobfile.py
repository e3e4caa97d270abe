"""Tests of job files: valid files are read, and each error message names the allowed values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from backend.domain.errors import InvalidInputError, PlanError
from backend.runtime.demo import demo_names, demo_path
from backend.runtime.engine.jobfile import load_job, load_job_document, load_job_toml
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.config import KEYS, LIVE_CONFIG_KEYS, RuntimeConfig, change, show

_SMALL = """
name = "small"
[config]
execution.checkpointing.interval = "7 s"
[[vertex]]
id = "a"
kind = "source"
[[vertex]]
id = "b"
kind = "sink"
[[edge]]
from = "a"
to = "b"
partitioner = "rebalance"
"""


def test_a_small_job_is_read_with_its_defaults_and_dotted_keys() -> None:
    spec = load_job_toml(_SMALL)
    assert spec.name == "small"
    assert spec.config == RuntimeConfig(interval_us=7_000_000)
    assert [v.id for v in spec.graph.vertices] == ["a", "b"]


@pytest.mark.parametrize("name", demo_names())
def test_each_demo_job_can_be_read(name: str) -> None:
    spec = load_job(demo_path(name))
    assert spec.config.interval_us == 5_000_000
    assert spec.config.tolerable_failures == -1


@pytest.mark.parametrize(
    ("old", "new", "field", "allowed"),
    [
        ('kind = "sink"', 'kind = "sync"', "vertex[1].kind", "source, map, keyed"),
        ('"7 s"', '"7 parsecs"', "config.execution.checkpointing.interval", "a duration"),
        ("checkpointing.interval", "checkpointing.intervall", "config.execution.checkpointing.intervall", "interval"),
        ('id = "b"', 'id = "b"\nparallelism = 0', "vertex[1].parallelism", "from 1 to"),
        ('id = "b"', 'id = "b"\nparalelism = 2', "vertex[1].paralelism", "parallelism"),
        ('id = "b"', 'id = "b"\nrecord_bytes = 3', "vertex[1].record_bytes", "from 37"),
        ('id = "b"', 'id = "b"\nslow_subtasks = {"1" = 4}', "vertex[1].slow_subtasks", "subtasks 0 to 0"),
        ('name = "small"', "", "name", "text"),
        ('"rebalance"', '"hash"\nshares = [0, 0]', "edge[0].shares", "not all 0"),
        ('"rebalance"', '"hash"\nshares = [2]', "edge[0].shares", "from 0 to 1"),
        ('id = "b"', 'id = "b"\noutput_bytes = 3', "vertex[1].output_bytes", "from 37"),
        ('"rebalance"', '"rebalanced"', "edge[0].partitioner", "hash"),
    ],
)
def test_a_wrong_field_is_reported_with_the_allowed_values(old: str, new: str, field: str, allowed: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        load_job_toml(_SMALL.replace(old, new))
    problem = next(p for p in raised.value.problems if p.field == field)
    assert allowed in (problem.allowed or "")


def test_all_problems_are_listed_at_once() -> None:
    with pytest.raises(InvalidInputError) as raised:
        load_job_toml(_SMALL.replace('"7 s"', '"x"').replace('"sink"', '"x"').replace('"rebalance"', '"x"'))
    assert len(raised.value.problems) == 3


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ('to = "b"', 'to = "c"', "G-1"),
        ('from = "a"', 'from = "b"', "G-1"),
        ('id = "b"', 'id = "a"', "G-6"),
        ('[[edge]]', '[[vertex]]\nid = "b"\nkind = "sink"\n[[edge]]', "G-6"),
        ('[[edge]]', '[[edge]]\nfrom = "b"\nto = "b"\n[[edge]]', "G-1"),
        ('id = "b"', 'id = "b"\nparallelism = 300\nmax_parallelism = 200', "G-6"),
        ('kind = "sink"', 'kind = "keyed+sink"', "PT-2"),
        ('"7 s"', '"7 s"\nexecution.checkpointing.unaligned.enabled = true\n'
         "execution.checkpointing.max-concurrent-checkpoints = 2", "G-6"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_run_is_refused_with_its_rule(old: str, new: str, rule: str) -> None:
    with pytest.raises(PlanError) as raised:
        load_job_toml(_SMALL.replace(old, new))
    assert raised.value.rule == rule
    assert raised.value.fix


def test_forward_with_unequal_parallelism_is_refused() -> None:
    with pytest.raises(PlanError, match="G-6"):
        load_job_toml(_SMALL.replace('"rebalance"', '"forward"').replace('id = "b"', 'id = "b"\nparallelism = 2'))


@pytest.mark.parametrize("text", ["", "name = ", "[vertex]\nid='a'", "name = 3", "vertex = 3", "config = 1"])
def test_text_that_is_not_a_job_file_is_refused_with_a_message(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid job file"):
        load_job_toml(text)


def test_a_file_that_cannot_be_read_is_one_problem(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot read"):
        load_job(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="UTF-8"):
        load_job(tmp_path / "binary.toml")


def test_a_file_with_a_wrong_field_is_named_because_a_command_may_have_several(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("name = 3")
    with pytest.raises(InvalidInputError, match=re.escape(f"invalid job file {tmp_path / 'wrong.toml'}: name: ")):
        load_job(tmp_path / "wrong.toml")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text(_SMALL, encoding="utf-8-sig")
    assert load_job(tmp_path / "windows.toml") == load_job_toml(_SMALL)


@pytest.mark.parametrize(
    ("key", "problem", "allowed"),
    [
        ("execution.checkpointing.tiemout", "is not a setting", "execution.checkpointing.timeout"),
        ("nothing.like.it", "is not a setting", ", ".join(KEYS)),
        ("runtime.protocol", "is not implemented in this runtime", "leave it out"),
        ("runtime.initiation", "is not implemented in this runtime", "leave it out"),
    ],
)
def test_an_unknown_setting_is_reported_with_similar_ones(key: str, problem: str, allowed: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        change(RuntimeConfig(), {key: "1"})
    assert [(p.field, p.problem) for p in refused.value.problems] == [(f"config.{key}", problem)]
    assert refused.value.problems[0].allowed.startswith(allowed)


def test_the_text_of_every_setting_can_be_read_back() -> None:
    config = RuntimeConfig()
    shown = show(config)
    assert set(shown) == set(KEYS)
    assert change(config, shown) == config


def test_a_running_job_accepts_only_live_settings_and_all_or_none_of_them() -> None:
    config = RuntimeConfig()
    live = {"execution.checkpointing.interval": "3 s"}
    assert change(config, live, live=True).interval_us == 3_000_000
    with pytest.raises(InvalidInputError, match="cannot change while the job runs"):
        change(config, live | {"taskmanager.memory.segment-size": 4096}, live=True)
    assert "execution.checkpointing.unaligned.enabled" in LIVE_CONFIG_KEYS
    assert "taskmanager.memory.segment-size" not in LIVE_CONFIG_KEYS


# --- the job file -----------------------------------------------------------------------------------------------------


def _document(*rescales: object, **vertex: object) -> dict[str, Any]:
    return {
        "name": "asked",
        "vertex": [
            {"id": "s", "kind": "source", "rate": 10, "parallelism": 2},
            {"id": "k", "kind": "keyed+sink", "parallelism": 2} | vertex,
        ],
        "edge": [{"from": "s", "to": "k", "partitioner": "hash"}],
        "rescale": list(rescales),
    }


def test_a_job_file_has_the_time_and_the_origin_of_each_rescale() -> None:
    rows = (
        {"at": "9 s", "vertex": "k", "parallelism": 3, "from": "savepoint"},
        {"at": "4 s", "vertex": "k", "parallelism": 1},
        {"at": "4 s", "vertex": "s", "parallelism": 5},
    )
    one, other = load_job_document(_document(*rows)).rescales
    assert (one.at_us, one.parallelism, one.from_savepoint) == (4_000_000, {"k": 1, "s": 5}, False)
    assert (other.at_us, other.parallelism, other.from_savepoint) == (9_000_000, {"k": 3}, True)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({}, "rescale[0].at"),
        ({"at": "1 s", "parallelism": 2}, "rescale[0].vertex"),
        ({"at": "1 s", "vertex": "k"}, "rescale[0].parallelism"),
        ({"at": "1 s", "vertex": "x", "parallelism": 2}, "rescale[0].vertex"),
        ({"at": "soon", "vertex": "k", "parallelism": 2}, "rescale[0].at"),
        ({"at": "1 s", "vertex": "k", "parallelism": 0}, "rescale[0].parallelism"),
        ({"at": "1 s", "vertex": "k", "parallelism": 2, "from": "memory"}, "rescale[0].from"),
        ({"at": "1 s", "vertex": "k", "parallelism": 2, "to": 3}, "rescale[0].to"),
    ],
)
def test_problems_of_a_rescale_in_a_job_file_are_reported(row: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInputError) as wrong:
        load_job_document(_document(row))
    assert field in {problem.field for problem in wrong.value.problems}


def test_a_job_file_with_an_impossible_rescale_is_refused() -> None:
    asked = {"at": "1 s", "vertex": "k", "parallelism": 129}
    with pytest.raises(PlanError, match=r"G-6 at 'k': parallelism 129 above its maximum 128; "):
        load_job_document(_document(asked))
    assert load_job_document(_document(asked, max_parallelism=200)).rescales[0].parallelism == {"k": 129}
    twice = ({"at": "1 s", "vertex": "k", "parallelism": 1}, {"at": "1000 ms", "vertex": "k", "parallelism": 3})
    with pytest.raises(InvalidInputError, match="twice at one instant"):
        load_job_document(_document(*twice))
    forward = _document({"at": "1 s", "vertex": "s", "parallelism": 3})
    forward["vertex"][1]["kind"], forward["edge"][0]["partitioner"] = "sink", "forward"
    with pytest.raises(PlanError, match="G-6 at 'k': forward from parallelism 3 to 2"):
        load_job_document(forward)


def test_a_job_file_can_request_savepoints_at_given_times() -> None:
    document = {
        "name": "asks",
        "vertex": [{"id": "s", "kind": "source", "rate": 10}],
        "savepoint": [{"at": "1 s"}, {"at": "1500 ms", "format": "native"}],
    }
    engine = JobEngine(load_job_document(document))
    engine.run_until(2_000_000)
    asked = list(engine.coordinator.triggering.savepoint_requests.values())
    assert [(s.requested_at_us, s.format.value) for s in asked] == [(1_000_000, "CANONICAL"), (1_500_000, "NATIVE")]
    assert [s.reason for s in asked] == [None, None]
    for wrong in ({}, {"at": "soon"}, {"at": "1 s", "format": "zip"}, {"at": "1 s", "where": "/"}):
        with pytest.raises(InvalidInputError):
            load_job_document({**document, "savepoint": [wrong]})
