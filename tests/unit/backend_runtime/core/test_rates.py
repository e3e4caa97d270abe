"""Tests of rates over a sliding window, and of the waiting times of mails (ME-22)."""

from __future__ import annotations

from backend.runtime.core.rates import MailLatency, Rates, Totals


def test_a_rate_is_the_growth_over_the_window_and_the_window_slides() -> None:
    rates = Rates(1_000_000, samples=2)
    assert rates.per_s() == (0.0,) * len(Totals()), "nothing was sampled yet"
    rates.sample(1_000_000, Totals(records_in=5))
    assert rates.per_s() == (0.0,) * len(Totals()), "no time has passed"
    rates.sample(3_000_000, Totals(records_in=25, fired_timers=4))
    # The window begins at the start, so it contains 25 records and 4 timers in two seconds.
    assert (rates.per_s()[0], rates.per_s()[Totals._fields.index("fired_timers")]) == (12.5, 2.0)
    rates.sample(5_000_000, Totals(records_in=95, fired_timers=4))
    # The start is no longer in the window, which now has 90 records (from 5 to 95) in four seconds.
    assert rates.per_s()[0] == 22.5
    rates.sample(7_000_000, Totals(records_in=95, fired_timers=4))
    assert (rates.per_s()[0], rates.per_s()[Totals._fields.index("fired_timers")]) == (17.5, 0.0)


def test_the_last_waits_of_mails_are_kept_and_shown_sorted() -> None:
    latency = MailLatency()
    assert (latency.count, latency.row_us()) == (0, [])
    for wait_us in (30, 10, 20):
        latency.add(wait_us)
    assert (latency.count, latency.row_us()) == (3, [10, 20, 30])
    for _ in range(256):
        latency.add(7)
    assert (latency.count, latency.row_us()) == (259, [7] * 256)
