"""The result of a job does not depend on what is kept from one moment to the next to save time."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from backend.backtest import jobs, report
from backend.backtest.cards import AdviceReplayer
from tests.support.handwritten_jobs import failed, quick
from tests.support.long_pasts import LongPast
from tests.support.past_jobs import Past, loaded, slow, stored


def _past():
    rows = [*(quick(n, 400) for n in range(1, 9)), *slow(9, 12), failed(21, *quick(21).details, after_ms=9_000)]
    return Past(stored(rows), loaded(130))


def _long_past():
    """Return the history of a larger job that is well, then full, then expires, and has single slow checkpoints."""
    drawn = LongPast(vertices=4, parallelism=5, checkpoints=110, seed=4)
    past = Past(stored(list(drawn.rows())), list(drawn.readings()))
    (run,) = past.runs.values()
    versions = {"topology": [(drawn.begin, drawn.topology())], "config": [(drawn.begin, drawn.config())]}
    past.runs = {"r": replace(run, versions=versions)}
    return past


@pytest.mark.parametrize("made", [_past, _long_past])
def test_kept_values_and_a_shared_diagnosis_change_no_result(made, monkeypatch):
    found = jobs.result_of("j", made())

    monkeypatch.setattr(jobs, "kept_arrays", nullcontext)
    monkeypatch.setattr(jobs, "kept_values", nullcontext)
    add = AdviceReplayer.add
    monkeypatch.setattr(AdviceReplayer, "add", lambda self, moment, case, said=None: add(self, moment, case))
    plain = jobs.result_of("j", made())

    assert found == plain
    assert found.advice.cards
    assert found.verdict.episodes


def test_the_table_of_a_fleet_scrolls_so_that_the_charts_stay_within_reach():
    found = jobs.result_of("j", _past())
    page = report.page([(f"job-{n}", found) for n in range(40)], title="Backtest", script="")

    assert ".scroll{overflow:auto;max-height:" in page
    assert page.count('<div class="scroll" tabindex="0">\n<table') == 5
    assert page.count("<tr><td>job-39") >= 3
