"""Tests of the experiments: the confidence interval of a median, and the rows that are stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.simulators.experiments import (
    Median,
    Row,
    main,
    median_of,
    medians,
)


def test_the_interval_of_a_median_is_that_of_its_order_statistics() -> None:
    assert median_of([float(n) for n in range(1, 21)]) == Median(10.5, 6, 15)
    assert median_of([3.0, 1.0, 2.0]) == Median(2, 1, 3)
    rows = [Row("times", "aligned", "x", seed, float(seed), "ms") for seed in range(5)]
    assert medians(rows) == {("times", "x", "aligned"): Median(2, 0, 4)}


def test_every_row_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tests.simulators.experiments.EXPERIMENTS", {"progress": _one_row})
    monkeypatch.setattr("tests.simulators.experiments.get_context", _InThisProcess)
    kept = tmp_path / "rows" / "all.jsonl"
    assert main(["--seeds", "2", "--rows", str(kept)]) == 0
    rows = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    assert {(row["protocol"], row["seed"]) for row in rows} >= {("aligned", 0), ("unaligned", 1)}
    out = capsys.readouterr().out
    assert "progress, failures below (useful records/s)" in out
    assert "  unaligned               0.5          0.0 to        1.0" in out


def _one_row(protocol: str, seed: int) -> list[Row]:
    return [Row("progress", protocol, "failures below", seed, seed, "useful records/s")]


class _InThisProcess:
    """A replacement for a pool of processes. Its ``imap`` runs everything in this process."""

    def __init__(self, *_: object) -> None:
        self.imap = map

    def Pool(self, _: int) -> _InThisProcess:
        return self

    def __enter__(self) -> _InThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        return None
