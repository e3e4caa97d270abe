"""Tests of what all the advisor's rules share: how many checkpoints a rule needs, and which of them count (AD-3)."""

from __future__ import annotations

import pytest

from backend.advisor import advise
from backend.advisor.recommending import topics_of
from backend.domain.advice import Topic
from backend.domain.engines import FLINK, RUNTIME, SPARK, EngineCapabilities, flink
from tests.support.advised_jobs import (
    EXACTLY_ONCE,
    advised,
    expired_run,
    persisting,
    readings,
    silent,
    slow_run,
    with_timeout,
)
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, detail, in_progress, job, quick

# --- AD-3 ---


@pytest.mark.parametrize(("count", "speaks"), [(0, False), (4, False), (5, True)])
def test_below_five_checkpoints_there_is_no_advice_and_the_reason_has_their_number(count, speaks):
    for run in (slow_run(count), expired_run(count)):
        advice = advised(run)
        assert bool(advice.recommendations) is speaks
        if not speaks:
            assert {s.rule for s in advice.silences} == {"AD-3"}
            assert f"{f'only {count}' if count else 'no'} checkpoint" in advice.silences[0].reason


def test_checkpoints_taken_under_other_settings_do_not_count():
    run = slow_run(8)
    evidence = job(run, readings(), config=EXACTLY_ONCE)
    since = run[4].header.triggered_at
    assert advise(evidence, engine=FLINK, version=None, settings_since=since).recommendations == ()
    since = run[3].header.triggered_at
    assert advise(evidence, engine=FLINK, version=None, settings_since=since).recommendations


def test_one_checkpoint_that_is_open_for_long_is_no_reason_to_change_anything():
    run = [persisting(quick(n, 1_000), 200_000) for n in range(1, 9)]
    rows = (detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[None] * 4), detail(LAST, first=[None] * 4))
    open_now = in_progress(11, *rows)
    found = silent(advised([*run, open_now], config=with_timeout(1_000)), "AD-3")

    assert "only the checkpoint in progress" in found.reason


def test_an_engine_without_any_settings_gets_one_reason():
    advice = advised(slow_run(), engine=EngineCapabilities(kind="toy", name="Toy", source="a test"))

    assert advice.recommendations == ()
    assert [(s.topic, s.reason) for s in advice.silences] == [(Topic.MODE, "Toy has no such setting")]


def test_an_engine_is_advised_only_on_settings_that_it_has():
    assert topics_of(SPARK) == (Topic.PARALLELISM, Topic.STATE, Topic.BATCH_SIZE, Topic.INTERVAL)
    assert Topic.RETENTION in topics_of(flink("1.20.5"))
    assert Topic.RETENTION not in topics_of(RUNTIME)
    assert Topic.PARALLELISM in topics_of(flink("1.16.3"))
