"""Goal: the same job, settings and seed always give the same trace (DET-4).

The trace depends neither on the steps in which the run advances, nor on whether it is observed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from backend.live.engine import build_live_engine
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.engine.simulate import simulate
from tests.support.runtime_jobs import PROTOCOLS, RECORDS, drawn_run, small_job

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_runs_of_one_seed_are_the_same(protocol: str) -> None:
    for seed in (3, 41):
        first, second = (simulate(drawn_run(protocol, seed), duration_us=3_000_000).to_json() for _ in range(2))
        assert json.dumps(first) == json.dumps(second), f"seed {seed}"


def test_another_seed_gives_another_trace() -> None:
    hashes = {simulate(small_job("unaligned", seed=s), duration_us=1_000_000).document["trace_hash"] for s in range(5)}
    assert len(hashes) == 5


def test_slicing_and_observing_the_run_change_nothing() -> None:
    whole = JobEngine(small_job("aligned-timeout", seed=5))
    whole.run_until(2_000_000)
    sliced = build_live_engine(small_job("aligned-timeout", seed=5))
    for at_us in range(0, 2_000_001, 7_919):
        sliced.run_until(at_us)
        sliced.view(job_id="x", origin_epoch_ms=0, lag_ms=0)
    sliced.run_until(2_000_000)
    assert sliced._engine.trace_hash == whole.trace_hash


def test_checkpointing_changes_timing_but_no_result() -> None:
    rows = []
    for protocol, interval in (("aligned", "100 ms"), ("unaligned", "37 ms"), ("capped", "53 ms")):
        engine = JobEngine(
            small_job(protocol, seed=9, config={"execution.checkpointing.interval": interval}), keeps_rows=True
        )
        engine.run_until(4_000_000)
        rows.append({(r.origin, r.key) for r in engine.ledger.rows})
    assert rows[0] == rows[1] == rows[2]
    assert len(rows[0]) == RECORDS


def test_a_change_of_settings_during_the_run_changes_the_trace() -> None:
    engines = [JobEngine(small_job("unaligned", seed=5, records=None)) for _ in range(2)]
    for engine in engines:
        engine.run_until(500_000)
    engines[0].set_config({"execution.checkpointing.interval": "50 ms"})
    for engine in engines:
        engine.run_until(1_000_000)
    assert engines[0].trace_hash != engines[1].trace_hash
    assert engines[0].coordinator.total_count > engines[1].coordinator.total_count


@cache
def _trace_of_another_process(python: str, hash_seed: str) -> bytes:
    environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(_ROOT), "PATH": os.defpath}
    command = [python, "-m", "tests.support.traced_runs"]
    done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_the_trace_is_the_same_byte_by_byte_whatever_the_hash_seed_is() -> None:
    first, second = (_trace_of_another_process(sys.executable, seed) for seed in ("1", "4242"))
    assert first.count(b"\n# ") == 2 * len(PROTOCOLS) - 1
    assert first.count(b"\n") > 1_000
    assert first == second


def _another_python() -> str | None:
    """Return the path of another version of Python, or None if there is none.

    The search covers the executable path and the versions of pyenv. It skips a Python that does not start, because
    it may be a shim.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}."
    named = (shutil.which(f"python3.{minor}") for minor in range(11, 16))
    kept = sorted(Path.home().glob(".pyenv/versions/3.1[1-5].*/bin/python"))
    for python in [*filter(None, named), *map(str, kept)]:
        ask = [python, "-c", "import platform; print(platform.python_version())"]
        told = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False)
        if told.returncode == 0 and not told.stdout.startswith(own):
            return python
    return None


def test_the_trace_is_the_same_byte_by_byte_under_another_version_of_python() -> None:
    other = _another_python()
    if other is None:
        pytest.skip("no other Python from 3.11 on starts on this machine")
    assert _trace_of_another_process(other, "7") == _trace_of_another_process(sys.executable, "1")
