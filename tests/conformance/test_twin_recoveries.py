"""Goal: the twin predicts how long a real Flink needs to recover from a killed TaskManager, before it has seen one die.

``tests/simulators/recovery_proof.py`` makes the predictions, and ``benchmarks/fidelity/record_twin.py`` the recordings.
"""

from __future__ import annotations

import gzip
from dataclasses import replace
from functools import cache
from statistics import median

import pytest

from tests.simulators.recovery_proof import BASE, FOLDER, RecoveryRow, compared
from tests.simulators.twin_recordings import Recording, Recovery, read_all
from tests.simulators.twin_runs import RUNS

_BAR = 0.25
_WITHIN_MIN = 0.9


@cache
def _recordings() -> dict[tuple[str, str], Recording]:
    return read_all(FOLDER)


@cache
def _rows() -> tuple[RecoveryRow, ...]:
    return tuple(compared(_recordings()))


def test_the_recordings_are_of_listed_runs_and_small_and_name_no_path_of_the_machine():
    assert {version for name, version in _recordings() if name == BASE} == {"1.20.5", "2.3.0"}
    for (name, _), recording in _recordings().items():
        run = RUNS[name]
        assert recording.arguments.items() >= run.arguments.items(), name
        assert len(recording.kills_s) == len(run.kills_s), name
    for path in FOLDER.glob("*.json.gz"):
        assert path.stat().st_size < 20_000, path.name
        assert b"/tmp" not in gzip.decompress(path.read_bytes()), path.name


def test_the_time_to_recover_is_within_a_quarter_for_nine_of_ten_kills():
    errors = [abs(row.error) for row in _rows()]

    assert len(errors) >= 10
    assert median(errors) <= _BAR / 2
    assert sum(e <= _BAR for e in errors) >= _WITHIN_MIN * len(errors)


def test_the_range_that_is_told_before_a_kill_contains_every_recovery():
    for row in _rows():
        assert row.low_ms <= row.recovery.caught_up_s * 1000 <= row.high_ms, row


def _killed(lags: list[tuple[float, float]]) -> tuple[Recovery, ...]:
    recording = _recordings()[BASE, "2.3.0"]
    return replace(recording, kills_s=(10.0,), lags=tuple(lags), seconds=60.0).recoveries()


def test_the_last_lag_before_the_kill_is_served_again_and_says_nothing_of_the_new_attempt():
    steady = [(float(at), 100.0) for at in range(5, 10)]
    silent = [*steady, (10.5, 120.0), (11.5, 120.0), (25.0, 120.0), (26.0, 120.0)]
    found = _killed([*silent, (27.0, 15_000.0), (28.0, 9000.0), (29.0, 300.0), (30.0, 100.0)])

    assert len(found) == 1
    assert (found[0].back_s, found[0].caught_up_s, found[0].lag_max_ms) == (15.0, 19.0, 15_000.0)
    assert _killed([*silent, (27.0, 15_000.0), (28.0, 9000.0)]) == ()


@pytest.mark.parametrize("before_ms", [100.0, 5000.0])
def test_a_kill_is_left_out_if_the_job_had_not_caught_up_from_the_one_before(before_ms: float):
    recording = _recordings()[BASE, "2.3.0"]
    first = [(8.0, 100.0), (9.0, 100.0), (20.0, 9000.0), (22.0, 100.0), (28.0, 100.0), (29.0, before_ms)]
    lags = (*first, (45.0, 12_000.0), (50.0, 100.0))
    found = replace(recording, kills_s=(10.0, 30.0), lags=lags, seconds=60.0).recoveries()

    assert len(found) == (2 if before_ms == 100.0 else 1)
