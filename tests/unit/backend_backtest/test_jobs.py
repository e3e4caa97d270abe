"""The result of a job does not depend on what is kept from one moment to the next to save time."""

from __future__ import annotations

from contextlib import nullcontext

from backend.backtest import jobs
from backend.backtest.cards import AdviceReplayer
from tests.support.handwritten_jobs import failed, quick
from tests.support.past_jobs import Past, loaded, slow, stored


def _past():
    rows = [*(quick(n, 400) for n in range(1, 9)), *slow(9, 12), failed(21, *quick(21).details, after_ms=9_000)]
    return Past(stored(rows), loaded(130))


def test_kept_arrays_and_a_shared_diagnosis_change_no_result(monkeypatch):
    found = jobs.result_of("j", _past())

    monkeypatch.setattr(jobs, "kept_arrays", nullcontext)
    add = AdviceReplayer.add
    monkeypatch.setattr(AdviceReplayer, "add", lambda self, moment, case, said=None: add(self, moment, case))
    plain = jobs.result_of("j", _past())

    assert found == plain
    assert found.advice.cards
    assert found.verdict.episodes
