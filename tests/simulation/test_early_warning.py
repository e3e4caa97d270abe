"""The early warning on drawn jobs of the reference runtime, beside the plain rule; `make early-warning` draws more."""

from __future__ import annotations

from backend.backtest.early_warning import Tally, tally_of, watched
from tests.simulators.early_warning_jobs import checkpoints_of, drawn

JOBS = ("bursts/0", "rise/0", "restarts/5")


def test_the_prediction_warns_earlier_than_the_plain_rule_of_as_many_and_pages_no_more_in_vain():
    tally = Tally()
    for name in JOBS:
        tally.add(tally_of(list(watched(checkpoints_of(drawn(name))))))

    assert tally.predicted.expired_count > 40
    assert tally.predicted.recall_ratio >= 0.9
    assert tally.predicted.lead_ratio >= 0.30
    assert tally.plain.lead_ratio < 0.2
    assert tally.predicted.false_page_count <= tally.plain.false_page_count / 2
    for band in tally.bands:
        assert abs(band.held_count - band.stated_count) <= 0.08 * band.count, band
