"""Tests of the program that runs storms: its output, its exit codes and an interrupt."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulators.fault_plans import Case
from tests.simulators.storms import case_of, main

_TOLD = {"task.in-sync": 2, "rescale.savepoint": 1, "partial cap": 1, "overtook partly": 1}


def test_the_runner_tells_what_failed_and_how_to_run_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(case: Case) -> Counter[str]:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(Case, "run", broken)
    assert main(["--seeds", "3", "--first", "7", "--processes", "1"]) == 1
    out = capsys.readouterr().out
    assert f"  make sim SEEDS=1 ARGS='--replay {case_of(7)}'" in out
    told = "0 rescales (0 from savepoints, 0 with data in flight), 0 continued in another run, 3 failed"
    assert f"3 runs, 0 faults struck, {told}" in out
    monkeypatch.setattr(Case, "run", lambda case: Counter(_TOLD))
    assert main(["--replay", "aligned/rescaled-storm/5"]) == 0
    out = capsys.readouterr().out
    assert "1 runs, 2 faults struck, 1 rescales (1 from savepoints, 0 with" in out
    assert "concurrent unaligned 0 (side by side: 0), partial cap 1 (overtook partly: 1), state first 0, local" in out
    with pytest.raises(SystemExit):
        main(["--replay", "aligned/nothing/5"])


def test_the_runner_stops_when_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(case: Case) -> Counter[str]:
        if case == case_of(2):
            raise KeyboardInterrupt
        return Counter()

    monkeypatch.setattr(Case, "run", stopped)
    assert main(["--seeds", "9", "--processes", "1"]) == 130
    assert "2 runs, 0 faults struck, 0 rescales" in capsys.readouterr().out
