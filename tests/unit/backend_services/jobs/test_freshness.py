"""The stale rows of the board are counted by reason, and the time of a pushed reading is on the service's clock."""

from __future__ import annotations

from datetime import timedelta

from backend.domain.freshness import Freshness
from backend.services.jobs.freshness import is_as_stale, stale_by_reason
from tests.support.api_examples import example

_ROW = example("job")


def _row(state, target, *, seconds=0):
    read_at = _ROW.freshness.read_at + timedelta(seconds=seconds)
    dated = _ROW.freshness.model_copy(update={"state": state, "is_stale": state.is_stale, "read_at": read_at})
    return _ROW.model_copy(update={"freshness": dated, "target_name": target})


def test_the_reason_with_the_most_rows_comes_first_and_names_up_to_three_targets():
    rows = [_row(Freshness.NO_COLLECTOR, f"t{i}", seconds=i) for i in range(5)]
    rows += [_row(Freshness.JOB_SILENT, "spark"), _row(Freshness.FRESH, "well"), _row(Freshness.FINAL, "ended")]
    first, second = stale_by_reason(rows)
    assert (first.state, first.job_count, first.target_names, first.target_count) == (
        Freshness.NO_COLLECTOR,
        5,
        ["t0", "t1", "t2"],
        5,
    )
    assert first.read_at == rows[4].freshness.read_at
    assert (second.state, second.job_count) == (Freshness.JOB_SILENT, 1)


def test_a_new_reading_alone_is_no_change_and_another_reason_is():
    before, later = (_row(Freshness.FRESH, "t", seconds=s).freshness for s in (0, 2))
    assert is_as_stale(before, later)
    assert not is_as_stale(before, _row(Freshness.NOT_READ, "t").freshness)
    assert not is_as_stale(None, before)
