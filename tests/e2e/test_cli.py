"""The console command as a process: what it prints, to which stream, and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.waiting import PATIENCE_S

_COMMAND = (sys.executable, "-P", "-m", "backend.cli")


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    shell = {k: v for k, v in os.environ.items() if not k.startswith("BARRIERSCOPE_")} | environment
    return subprocess.run([*_COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, env=shell)


_SIMULATE = ("simulate", "backpressured", "--duration", "25s", "--seed", "7")
_UNALIGNED = "execution.checkpointing.unaligned.enabled=true"


@pytest.fixture(scope="module")
def unaligned() -> subprocess.CompletedProcess[str]:
    return _run(*_SIMULATE, "--set", _UNALIGNED, "--format", "json", PYTHONHASHSEED="1")


def test_a_simulation_gives_the_same_bytes_every_time(unaligned):
    again = _run(*_SIMULATE, "--set", _UNALIGNED, "--format", "json", PYTHONHASHSEED="2", TZ="Asia/Tokyo")

    assert (unaligned.returncode, unaligned.stderr) == (0, "")
    assert unaligned.stdout == again.stdout
    document = json.loads(unaligned.stdout)
    assert document["seed"] == 7
    assert document["checkpoints"]
    assert {c["barrier"] for c in document["checkpoints"]} == {"unaligned"}


def test_another_seed_and_another_setting_give_other_results(unaligned):
    answers = [_run(*_SIMULATE[:-1], seed, "--format", "json") for seed in ("7", "8")]
    runs = [json.loads(answer.stdout) for answer in (*answers, unaligned)]

    assert len({r["trace_hash"] for r in runs}) == 3
    aligned_us, _, unaligned_us = (r["summary"]["end_to_end_us"]["median"] for r in runs)
    assert unaligned_us * 50 <= aligned_us


def test_a_simulation_as_text_has_a_header_and_each_vertex():
    answer = _run(*_SIMULATE)

    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert lines[0] == "orders-aligned: 25.0 s of virtual time, seed 7"
    assert {"orders", "enrich", "aggregate"} <= {line.split()[0] for line in lines if line}


def test_a_closed_standard_output_is_no_error():
    process = subprocess.Popen(
        [*_COMMAND, "simulate", "healthy", "--duration", "5s", "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    complaint = process.stderr.read()
    process.stderr.close()

    assert (process.wait(PATIENCE_S), complaint) == (0, b"")


@pytest.mark.parametrize("arguments", [("simulate", "nope"), ("up", "--port", "0"), ("nonsense",)], ids=" ".join)
def test_a_wrong_command_line_is_one_line_on_standard_error_and_exit_code_2(arguments):
    answer = _run(*arguments)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("barrierscope: ")
    assert answer.stderr.count("\n") == 1
