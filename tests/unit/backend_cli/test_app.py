"""Tests of all commands: each has help with an example, errors of one line, and exit codes that scripts can use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import typer.main

from backend.cli.app import app, run
from backend.runtime.demo import demo_path
from backend.settings import PREFIX, Settings
from tests.support.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)


def _paths(command, path=()):
    yield path
    for name, sub in getattr(command, "commands", {}).items():
        yield from _paths(sub, (*path, name))


_PATHS = list(_paths(typer.main.get_command(app)))
_GROUPS = {(), ("targets",), ("receivers",)}


def test_every_promised_subcommand_exists():
    assert {p[0] for p in _PATHS if p} == {
        *("up", "demo", "diagnose", "advise", "simulate", "targets", "version", "export", "backup", "restore"),
        *("api", "runtime", "collect", "alert", "alerts", "receivers", "migrate", "spark-demo", "lab", "pipeline"),
        *("executor", "experiment", "whatif", "backtest", "compare", "spark-jar", "completion", "start"),
    }
    of_targets = {p[1] for p in _PATHS if p[:1] == ("targets",) and len(p) == 2}
    assert of_targets == {"add", "change", "check", "list", "test", "links", "remove"}


@pytest.mark.parametrize("path", _PATHS, ids=lambda p: " ".join(p) or "root")
def test_every_subcommand_has_help_with_an_example_of_itself(path, capsys):
    assert run([*path, "--help"]) == 0

    text = capsys.readouterr().out
    example = text.partition("Example: ")[2].split()
    assert example[: 1 + len(path)] == ["barrierscope", *path] or path in _GROUPS
    assert example[0] == "barrierscope"


@pytest.mark.parametrize("path", [p for p in _PATHS if p in _GROUPS], ids=lambda p: " ".join(p) or "root")
def test_a_group_without_a_subcommand_shows_its_help(path, capsys):
    assert run(list(path)) == 0

    assert "Usage: barrierscope" in capsys.readouterr().out


_PRINTS_DATA = [
    ("version",),
    ("diagnose",),
    ("simulate",),
    ("start",),
    *[("targets", n) for n in ("add", "change", "list", "test", "links", "remove")],
    ("alerts",),
    ("alerts", "silence"),
    *[("receivers", n) for n in ("add", "list", "test")],
]


@pytest.mark.parametrize("path", _PRINTS_DATA, ids=" ".join)
def test_every_command_that_prints_data_can_print_json(path, capsys):
    run([*path, "--help"])

    assert "--format" in capsys.readouterr().out


def test_the_version_is_printed_as_text_and_as_json(capsys):
    assert run(["version"]) == 0
    text = capsys.readouterr().out.strip()
    assert run(["version", "--format", "json"]) == 0

    assert json.loads(capsys.readouterr().out) == {"version": text}


_REFUSED = [
    (["nonsense"], "'nonsense'. (see `barrierscope --help`)"),
    (["targets", "ad", "x"], "'ad'. Did you mean 'add'? (see `barrierscope targets --help`)"),
    (["up", "--data-dir", ""], "--data-dir: it is empty"),
    (["up", "--port", "0"], "--port"),
    (["diagnose", "http://x", "--fail-on", "a"], "'--fail-on': 'a' is not one of 'failing', 'slow', 'advice'."),
    (["up", "--port", "http"], "--port"),
    (["up", "--poll-interval", "5"], "--poll-interval: '5' is not a duration"),
    (["up", "--poll-interval", "10ms"], "0.2s to 3600s"),
    (["up", "--port", "9000", "--runtime-port", "9000"], "--runtime-port: 9000 is already the port of the pages"),
    (["up", "--host", "0.0.0.0"], "BARRIERSCOPE_API_TOKEN"),
    (["api", "--host", "::", "--database-url", "postgresql://x"], "BARRIERSCOPE_API_TOKEN"),
    (["api"], "BARRIERSCOPE_DATABASE_URL"),
    (["up", "--host", "0.0.0.0"], "export BARRIERSCOPE_API_TOKEN=$(openssl rand -hex 32)"),
    (["collect"], "BARRIERSCOPE_DATABASE_URL"),
    (["alert"], "BARRIERSCOPE_DATABASE_URL"),
    (["alert", "--database-url", "postgresql://x", "--interval", "soon"], "--interval: 'soon' is not a duration"),
    (["alerts", "silence", "job", "--for", "2h", "--reason", "planned"], "LABEL=VALUE: 'job' is not a key=value pair"),
    (["alerts", "silence", "job=a", "--for", "2", "--reason", "planned"], "--for: '2' is not a duration"),
    (["receivers", "add", "http://x", "--name", "a", "--kind", "pigeon"], "pigeon"),
    (["migrate", "--database-url", "postgresql://x", "--wait", "soon"], "--wait: 'soon' is not a duration"),
    (["migrate"], "BARRIERSCOPE_DATABASE_URL"),
    (["runtime", "--job", "no-such-job"], "one of backpressured"),
    (["runtime", "--job", "healthy", "--job", "healthy"], "several jobs have the name"),
    (["simulate"], "JOB"),
    (["simulate", "no-such-job"], "no demo job or file has the name 'no-such-job'"),
    (["simulate", "healthy", "--duration", "soon"], "--duration"),
    (["simulate", "healthy", "--duration", "0s"], "0.001s to 86400s"),
    (["simulate", "healthy", "--seed", "-1"], "--seed"),
    (["simulate", "healthy", "--set", "interval"], "key=value"),
    (["simulate", "healthy", "--set", "execution.checkpointing.intervall=1s"], "execution.checkpointing.intervall"),
    (["simulate", "healthy", "--set", "execution.checkpointing.interval=never"], "execution.checkpointing.interval"),
    (["simulate", "healthy", "--format", "xml"], "xml"),
    (["diagnose", "http://127.0.0.1:1", "--format", "xml"], "xml"),
    (["targets", "add", "http://x", "--label", "team"], "--label: 'team' is not a key=value pair"),
]


@pytest.mark.parametrize(("arguments", "words"), _REFUSED, ids=[" ".join(a) for a, _ in _REFUSED])
def test_a_wrong_command_line_is_refused_in_one_line_with_the_allowed_values(arguments, words, capsys):
    assert run(arguments) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("barrierscope: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err


_MALFORMED = {
    "no-toml": ("name = \n", "line 1"),
    "unknown-key": ('name = "x"\nspeed = 3\n', "speed"),
    "no-vertex": ('name = "x"\n', "vertex"),
    "bad-number": ('name = "x"\n[[vertex]]\nid = "a"\nkind = "source"\nparallelism = 0\n', "vertex[0].parallelism"),
}


@pytest.mark.parametrize("text", _MALFORMED, ids=str)
def test_a_malformed_job_file_is_refused_in_one_line_that_names_the_field(text, capsys, tmp_path):
    document, words = _MALFORMED[text]
    path = tmp_path / "job.toml"
    path.write_text(document)

    assert run(["simulate", str(path)]) == 2

    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert words in error


def test_an_invalid_environment_variable_is_refused_in_one_line_that_names_it(monkeypatch, capsys):
    monkeypatch.setenv("BARRIERSCOPE_PORT", "http")

    assert run(["up"]) == 2

    assert "BARRIERSCOPE_PORT" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["up"], ["api", "--database-url", "postgresql://x"], ["targets", "list"]])
def test_an_invalid_token_is_refused_in_one_line_and_not_shown(command, monkeypatch, capsys):
    monkeypatch.setenv("BARRIERSCOPE_API_TOKEN", "hunter2")

    assert run(command) == 2

    error = capsys.readouterr().err
    assert error.startswith("barrierscope: invalid environment: BARRIERSCOPE_API_TOKEN: ")
    assert error.count("\n") == 1
    assert "hunter2" not in error


def test_an_unreachable_api_is_reported_in_one_line_with_exit_code_1(capsys):
    assert run(["targets", "list", "--api", "http://127.0.0.1:1"]) == 1

    error = capsys.readouterr().err
    assert "start it with `barrierscope up`" in error
    assert error.count("\n") == 1


def test_an_endless_job_file_is_refused_in_one_line(capsys):
    assert run(["simulate", "/dev/zero"]) == 2

    assert capsys.readouterr().err == (
        "barrierscope: invalid job file: file: /dev/zero is larger than 1048576 bytes (allowed: a job file)\n"
    )


def test_a_job_file_can_be_a_pipe(capsys, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = demo_path("healthy").read_text()
    with ThreadPoolExecutor(1) as writer:
        written = writer.submit(pipe.write_text, text)
        assert run(["simulate", str(pipe), "--duration", "1s"]) == 0
        written.result(10)

    assert capsys.readouterr().out.startswith("orders-healthy: 1.0 s")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every folder")
def test_a_data_folder_without_write_access_is_reported_in_one_line(capsys, tmp_path):
    tmp_path.chmod(0o500)

    assert run(["up", "--data-dir", str(tmp_path)]) == 1

    assert "is not writable" in capsys.readouterr().err


def test_a_file_in_place_of_the_data_folder_is_reported_in_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("")

    assert run(["up", "--data-dir", str(tmp_path / "file")]) == 1

    error = capsys.readouterr().err
    assert "is not writable" in error
    assert error.count("\n") == 1


def test_a_part_of_the_product_that_is_not_installed_is_named(monkeypatch, capsys):
    monkeypatch.setattr("backend.cli.entry_points.metadata.entry_points", lambda **_: ())

    assert run(["diagnose", "http://127.0.0.1:1"]) == 1

    assert capsys.readouterr().err == (
        "barrierscope: the part 'diagnose' is not installed; install Barrierscope again\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_to_a_full_disk_is_reported_in_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "backend.cli", "version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == "barrierscope: the disk is full (No space left on device); make room on it\n"
