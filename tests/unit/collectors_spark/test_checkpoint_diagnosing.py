"""Tests of ``diagnose --spark-checkpoint``: its three formats, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from backend.cli import app, roles
from tests.support.spark_checkpoints import QUERY, MadeCheckpoint

ROOT = Path(__file__).resolve().parents[3]
BLOCKED = str(ROOT / "tests" / "contract" / "recordings_spark_checkpoints" / "spark-2.3.1-inconsistent")


@pytest.fixture(autouse=True)
def _declared(monkeypatch):
    """Load the part as the project declares it, even if the environment was installed before."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["barrierscope.roles"]
    monkeypatch.setattr(roles, "load_role", lambda name: EntryPoint(name, points[name], "").load())


@pytest.fixture
def healthy(tmp_path):
    return str(MadeCheckpoint(tmp_path / "orders").run(range(3)).path)


def run(*words: str) -> int:
    return app.run(["diagnose", *words])


def test_the_text_has_the_query_the_finding_the_facts_and_what_is_missing(healthy, capsys):
    assert run("--spark-checkpoint", BLOCKED, "--spark-checkpoint", healthy) == 0

    text = capsys.readouterr().out
    assert text.startswith(f"{BLOCKED}\n  Query d4358946-170c-49a7-823b-d8e4e9126616. Batch 4 is the newest")
    assert "  * offsets/3 is missing before the newest batch 4" in text
    assert "    cure: restore the file from a copy" in text
    assert f"{healthy}\n  Query {QUERY}. Batch 2 is the newest" in text
    assert "(reconstructed)" in text
    assert "The folder does not show:" in text
    assert max(len(line) for line in text.splitlines() if line not in (BLOCKED, healthy)) <= 100


def test_json_and_markdown_have_the_same_findings(capsys):
    assert run("--spark-checkpoint", BLOCKED, "--format", "json") == 0
    (folder,) = json.loads(capsys.readouterr().out)["spark_checkpoints"]
    assert run("--spark-checkpoint", BLOCKED, "--format", "markdown") == 0
    markdown = capsys.readouterr().out

    assert (folder["findings"][0]["level"], folder["query_id"]) == ("blocks", "d4358946-170c-49a7-823b-d8e4e9126616")
    assert {fact["basis"] for fact in folder["facts"]} == {"measured"}
    assert "offsets/3 is missing before the newest batch 4" in markdown
    assert "| the folder shows | | |" in markdown


def test_names_from_the_folder_cannot_control_the_terminal(tmp_path, capsys):
    made = MadeCheckpoint(tmp_path / "orders").run(range(1))
    made.write("metadata", json.dumps({"id": "\x1b[31m red"}))
    made.write("state/0/_metadata/metadata", 'v1\n{"operatorInfo":{"operatorName":"a\\u001b[2Jb | c"}}')
    made.state("0/0/1.delta")

    for output_format in ("text", "markdown"):
        assert run("--spark-checkpoint", str(made.path), "--format", output_format) == 0
        shown = capsys.readouterr().out
        assert "\x1b" not in shown
        assert "state of operator 0 (a" in shown


@pytest.mark.parametrize(("condition", "code"), [("failing", 3), ("slow", 3), ("advice", 3)])
def test_a_blocked_start_meets_every_condition(condition, code, capsys):
    assert run("--spark-checkpoint", BLOCKED, "--fail-on", condition) == code

    assert "offsets/3 is missing" in capsys.readouterr().err


def test_trouble_meets_slow_and_not_failing_and_a_healthy_folder_meets_nothing(healthy, tmp_path, capsys):
    (Path(healthy) / "commits" / "1").unlink()
    sound = str(MadeCheckpoint(tmp_path / "sound").run(range(3)).path)

    assert run("--spark-checkpoint", healthy, "--fail-on", "failing") == 0
    capsys.readouterr()
    assert run("--spark-checkpoint", healthy, "--fail-on", "slow", "--format", "json") == 3
    (met,) = json.loads(capsys.readouterr().out)["fail_on"]["jobs"]
    assert met["reason"] == "commits has no file of batch 1, although later batches are committed"
    assert run("--spark-checkpoint", sound, "--fail-on", "advice") == 0


def test_a_copy_of_a_folder_is_told(healthy, tmp_path, capsys):
    copy = str(MadeCheckpoint(tmp_path / "copy").run(range(3)).path)

    assert run("--spark-checkpoint", healthy, "--spark-checkpoint", copy, "--spark-checkpoint", copy) == 0

    assert f"The query {QUERY} has 2 of these folders" in capsys.readouterr().out.replace("\n  ", " ")


@pytest.mark.parametrize(
    "more",
    [["http://127.0.0.1:8081"], ["--log", "a.log"], ["--event-log", "a"], ["--job", "orders"]],
    ids=lambda m: m[0],
)
def test_it_is_read_alone(more, healthy, capsys):
    assert run("--spark-checkpoint", healthy, *more) == 2

    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert "checkpoint folders are read alone" in shown.err


def test_another_folder_is_refused_in_one_line(tmp_path, capsys):
    assert run("--spark-checkpoint", str(tmp_path)) == 2

    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert "--spark-checkpoint: " in shown.err
    assert "is empty" in shown.err
