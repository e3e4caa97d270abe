"""``barrierscope experiment`` writes rows and a report, and refuses what it does not know."""

from __future__ import annotations

import sys

import pytest

from backend.cli.app import run
from backend.experiments import catalog
from backend.experiments.model import Experiment, Ordering, Row, below


@pytest.fixture
def toy(monkeypatch):
    def one(task, seed, ratio):
        return [Row("ms", task, "", seed, {"a": 1.0, "b": 9.0}[task], "ms")]

    found = Experiment("toy", "Toy", "A toy.", ("a", "b"), one, (Ordering("a < b", "x", below("ms", "", "a", "b")),))
    monkeypatch.setitem(catalog.EXPERIMENTS, "toy", found)


def _call(tmp_path, *more):
    return run(["experiment", "toy", "--seeds", "2", "--processes", "1", "--out", str(tmp_path), *more])


def test_the_report_contains_its_charts_and_the_table_is_printed(toy, tmp_path, capsys):
    assert _call(tmp_path) == 0

    out = capsys.readouterr().out
    assert "came out: a < b" in out
    assert "4 rows of 2 seeds" in out
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Plotly" in page
    assert len(page) > 1_000_000
    assert (tmp_path / "rows.parquet").stat().st_size > 0
    assert _call(tmp_path) == 0
    assert capsys.readouterr().out == out


def test_without_pyarrow_the_rows_are_written_as_csv_and_one_line_says_so(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert _call(tmp_path) == 0

    assert "so the rows are written as CSV" in capsys.readouterr().err
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 5


def test_the_list_names_every_experiment(capsys):
    assert run(["experiment", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in catalog.EXPERIMENTS)


@pytest.mark.parametrize("arguments", [["nope"], []])
def test_an_unknown_experiment_is_refused_with_the_names(capsys, arguments):
    assert run(["experiment", *arguments]) == 2
    assert "flip-76" in capsys.readouterr().err
