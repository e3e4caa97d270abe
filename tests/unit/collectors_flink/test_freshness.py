"""Tests of when metrics are read: two readings that count come from two fetches of the engine."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from collectors.flink.freshness import FetchInterval, Freshness, Step

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
DEFAULT = FetchInterval(timedelta(seconds=10))


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def a_reading(records: int, at_s: float) -> VertexPressure:
    return VertexPressure(VertexId("v"), after(at_s), (1.0,), (0.0,), (0.0,), records_in_count=(records,))


class JobManager:
    """Fetches the metrics if a request comes later than the interval, and answers from the values before."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.fetched_s = -1e9

    def answer(self, at_s: float) -> float:
        """Return the time of the values in the answer to a request at ``at_s``."""
        held = self.fetched_s
        if at_s > self.fetched_s + self.interval_s:
            self.fetched_s = at_s
        return held


@pytest.mark.parametrize("seed", range(50), ids=lambda seed: f"seed-{seed}")
def test_the_values_of_each_reading_were_fetched_after_those_of_the_reading_before(seed):
    """Another client, such as Flink's own page, asks for metrics at any time too."""
    rnd = random.Random(seed)
    interval_s = rnd.choice([1.0, 10.0, 30.0])
    interval, jm, freshness = FetchInterval(timedelta(seconds=interval_s)), JobManager(interval_s), Freshness()
    fetched: list[tuple[float, float]] = []
    at_s = 0.0
    for _ in range(200):
        at_s += rnd.uniform(0.5, 4.0)
        if rnd.random() < 0.3:
            jm.answer(at_s - 0.2)
        now = after(at_s)
        step = freshness.step(now, poll_began_at=now, every=timedelta(seconds=5), interval=interval)
        if step is Step.PREPARE:
            jm.answer(at_s)
            freshness = freshness.prepared(now, interval)
        elif step is Step.READ:
            fetched.append((at_s, jm.answer(at_s)))
            freshness, counts = freshness.read([a_reading(1, at_s)], now, interval)
            assert counts

    assert len(fetched) > 5
    for (read_s, _), (_, next_s) in pairwise(fetched):
        assert next_s >= read_s - 1e-6, f"seed={seed}: a reading repeats the values of the one before"


def test_an_engine_that_keeps_no_copies_is_read_at_once():
    none = FetchInterval(timedelta(0))

    assert Freshness().step(START, poll_began_at=START, every=timedelta(0), interval=none) is Step.READ


def test_a_request_in_the_same_poll_does_not_make_the_values_new():
    freshness = Freshness().prepared(START, DEFAULT)

    due = {"every": timedelta(0), "interval": DEFAULT}
    assert freshness.step(after(0.1), poll_began_at=START, **due) is Step.NOTHING
    assert freshness.step(after(2), poll_began_at=after(2), **due) is Step.READ


def test_before_the_first_fetch_values_may_be_of_any_age():
    due = {"poll_began_at": START, "interval": DEFAULT}

    assert not Freshness().has_fetched(**due)
    assert not Freshness().prepared(START, DEFAULT).has_fetched(**due), "the same poll"
    assert Freshness().prepared(after(-2), DEFAULT).has_fetched(**due)
    assert Freshness().has_fetched(poll_began_at=START, interval=FetchInterval(timedelta(0)))


def test_a_request_soon_after_a_reading_prepares_nothing():
    freshness, _ = Freshness().read([], START, DEFAULT)

    assert freshness.prepared(after(9), DEFAULT).prepared_at is None
    assert freshness.prepared(after(10), DEFAULT).prepared_at == after(10)


def test_if_the_interval_is_not_known_a_reading_without_any_change_does_not_count():
    unknown = FetchInterval(timedelta(seconds=10), is_known=False)
    freshness, first = Freshness().read([a_reading(1, 0)], after(0), unknown)
    freshness, second = freshness.read([a_reading(1, 13)], after(13), unknown)
    freshness, third = freshness.read([a_reading(2, 26)], after(26), unknown)
    _, later = freshness.read([a_reading(2, 150)], after(150), unknown)

    assert (first, second, third) == (True, False, True)
    assert later, "after minutes without any change, the job stands still"
