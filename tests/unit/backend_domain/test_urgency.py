"""Tests of the order in which jobs are listed."""

from __future__ import annotations

from backend.domain.urgency import URGENCY, urgency_key
from backend.domain.verdict import Health, VerdictKind

_MINUTE_MS = 60_000.0


def _key(health, kind=VerdictKind.CAPACITY, debt_min=0.0, *, has_ended=False):
    return urgency_key(health, kind, debt_ms=debt_min * _MINUTE_MS, has_ended=has_ended)


def test_every_health_has_a_rank_and_a_failing_job_comes_before_a_slow_one_whatever_its_debt():
    assert set(Health) <= set(URGENCY)
    assert _key(Health.FAILING) < _key(Health.SLOW, debt_min=1e9) < _key(Health.HEALTHY, debt_min=1e9)


def test_at_equal_health_the_larger_replay_debt_comes_first_and_then_the_job_with_a_known_cause():
    keys = [
        _key(Health.FAILING, debt_min=35.0),
        _key(Health.FAILING, debt_min=2.0),
        _key(Health.FAILING, debt_min=0.5),
        _key(Health.FAILING, VerdictKind.UNDECIDED, debt_min=0.5),
    ]

    assert keys == sorted(set(keys))


def test_jobs_do_not_change_places_at_each_checkpoint():
    assert _key(Health.SLOW, debt_min=0.1) == _key(Health.SLOW, debt_min=0.9)
    assert _key(Health.SLOW, debt_min=17.0) == _key(Health.SLOW, debt_min=31.0)


def test_a_job_that_has_ended_comes_last_however_bad_it_was():
    assert _key(Health.FAILING, debt_min=1e9, has_ended=True) > _key(Health.HEALTHY, VerdictKind.NONE)


def test_a_job_of_unknown_debt_and_health_has_a_place():
    assert urgency_key(None, None, debt_ms=None) > _key(Health.SLOW, VerdictKind.NONE)
