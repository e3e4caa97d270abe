"""Tests of the soak run: its plan of crashes, its bound on memory and its exit codes."""

from __future__ import annotations

from itertools import count

import pytest

from tests.simulators import soak
from tests.simulators.soak import growth_allowed_bytes, main, soak_job


def test_a_job_crashes_once_in_fifty_checkpoints_at_times_drawn_from_its_seed():
    plan = soak_job("aligned", records=200_000, seed=3).spec.faults

    assert len(plan) == 4
    assert [fault.at_us for fault in plan] == sorted(fault.at_us for fault in plan)
    assert plan == soak_job("aligned", records=200_000, seed=3).spec.faults
    assert plan != soak_job("aligned", records=200_000, seed=4).spec.faults


def test_memory_may_grow_by_a_tenth_and_8_mib():
    assert growth_allowed_bytes(100 << 20) == (110 << 20) + (8 << 20)


def test_a_run_in_bounded_memory_that_commits_every_record_passes(capsys):
    assert main(["--records", "50000"]) == 0

    assert capsys.readouterr().out.startswith("50000 of 50000 records, ")


def test_a_run_whose_memory_grows_fails(monkeypatch: pytest.MonkeyPatch, capsys):
    sizes = count(1 << 20, 50 << 20)
    monkeypatch.setattr(soak, "resident_bytes", lambda: next(sizes))

    assert main(["--records", "50000"]) == 1

    assert "GROWS" in capsys.readouterr().out
