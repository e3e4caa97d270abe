"""The summaries of the twin's proof, on rows that are counted by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.advisor.twin.model.outcomes import Tier
from tests.simulators import twin_table
from tests.simulators.twin_table import Row, families, order_of, summary, wilson

ROW = Row(
    tier=Tier.FAST,
    base="two-stages-aligned",
    changed="two-stages-unaligned",
    flink="2.3.0",
    change="mode=unaligned",
    measure="duration",
    measured=2000.0,
    measured_mean=2000.0,
    smallest=1900.0,
    largest=2100.0,
    predicted=2200.0,
    predicted_mean=2200.0,
    low=1950.0,
    high=2500.0,
    inside=8,
    count=10,
    formula=3000.0,
    replayed=None,
    replayed_low=None,
    replayed_high=None,
)


@pytest.mark.parametrize(
    ("measure", "measured", "predicted", "is_within"),
    [
        ("duration", 2000.0, 2399.0, True),
        ("duration", 2000.0, 2401.0, False),
        ("duration", 50.0, 99.0, True),
        ("duration", 50.0, 24.0, False),
        ("persisted", 1e6, 1.19e6, True),
        ("throughput", 1000.0, 1060.0, False),
    ],
)
def test_the_bars(measure: str, measured: float, predicted: float, is_within: bool):
    row = replace(ROW, measure=measure, measured=measured, predicted=predicted)

    assert row.is_within is is_within


def test_rows_are_kept_in_a_file(tmp_path: Path):
    path = tmp_path / "rows"
    twin_table.append(path, [ROW])
    twin_table.append(path, [replace(ROW, flink="1.20.5")])

    assert twin_table.read(path) == [ROW, replace(ROW, flink="1.20.5")]


def test_the_order_of_two_candidates_counts_if_they_differ():
    other = replace(ROW, changed="two-stages-timeout", measured=1000.0, predicted=2300.0, formula=1000.0)
    alike = replace(ROW, changed="wider-last-stage-aligned", measured=1990.0, predicted=1.0)

    # ROW and alike are nearly the same; other is predicted to be longer than both, and was shorter.
    assert order_of([ROW, other, alike]) == (0, 2)
    assert order_of([ROW, other], lambda r: r.formula) == (1, 1)
    assert order_of([ROW, replace(other, base="another")]) == (0, 0)


def test_the_summary_and_the_table_of_families():
    missed = replace(ROW, changed="hot-key-aligned", predicted=4000.0, low=3000.0, high=5000.0, inside=0)
    rows = [ROW, missed]

    first = next(summary(rows))
    assert first.startswith("duration: 1 of 2 within the bar; median error 55.0% (formula 50.0%)")
    assert "medians in the interval 1 of 2 (50.0%" in first
    assert "checkpoints in the interval 8 of 20 (40.0%" in first
    table = list(families(rows, "duration"))
    assert table[2] == "| two-stages | 1 | 1 | 10.0% | 50.0% | - | 1 | 80% |"
    assert table[3].startswith("| two-stages to hot-key | 1 | 0 | 100.0% |")
    assert table[4].startswith("| **all** | 2 | 1 |")


def test_wilsons_interval_of_half():
    assert wilson(5, 10) == (pytest.approx(0.237, abs=0.001), pytest.approx(0.763, abs=0.001))
