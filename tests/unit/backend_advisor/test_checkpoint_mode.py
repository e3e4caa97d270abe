"""R-UC: when unaligned checkpoints are advised, when they are refused, and near the border between the two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.advice import NoAdvice, Recommendation
from backend.domain.advice import Metric, Mode
from tests.support.advised_jobs import (
    EXACTLY_ONCE,
    UNALIGNED,
    advised,
    expected,
    expired_run,
    mode_of,
    persisting,
    readings,
    recommended,
    silent,
    slow_run,
    with_timeout,
)
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, chain, completed, detail, quick
from tests.support.handwritten_runs import CALM, declined, snapshotting

# --- R-UC-1 ---


def test_barriers_behind_queued_data_are_advised_to_overtake_it():
    found = recommended(advised(slow_run()))

    assert found.rules[0] == "R-UC-1"
    assert found.proposed.mode is Mode.ALIGNED_WITH_TIMEOUT
    assert found.checkpoint_ids == (1, 2, 3, 4, 5, 6, 7, 8)
    duration, persisted = expected(found, Metric.DURATION), expected(found, Metric.PERSISTED)
    assert duration.before == 4_800
    assert duration.predicted.high < 1_000
    # Eight subtasks with 400 kB before them each.
    assert persisted.predicted.low < 3_200_000 < persisted.predicted.high
    assert {r.metric for r in found.evidence} >= {
        "endToEndDuration",
        "startDelay",
        "backpressureRatio",
        "outputQueueSize",
    }
    late = next(r for r in found.evidence if r.metric == "startDelay")
    assert (late.vertex, late.subtasks) == ("last", (0, 1, 2, 3))


def test_a_job_whose_checkpoints_are_all_cut_off_says_that_its_natural_duration_is_not_known():
    config = replace(EXACTLY_ONCE, timeout_ms=3_000)
    found = recommended(advised(expired_run(), config=config))

    assert expected(found, Metric.DURATION).is_before_at_least
    failures = expected(found, Metric.EXPIRED)
    assert (failures.before, failures.predicted.value) == (1.0, 0.0)
    assert found.confidence.value != "high"


def test_without_back_pressure_aligned_is_left_alone():
    silent(advised([quick(n) for n in range(1, 9)], CALM), "R-UC-12")


@pytest.mark.parametrize(("held", "speaks"), [(0.45, False), (0.5, True), (0.6, True)])
def test_back_pressure_must_be_high(held, speaks):
    found = mode_of(advised(slow_run(), readings(held=held)))
    assert isinstance(found, Recommendation) is speaks


@pytest.mark.parametrize(("waiting_ms", "speaks"), [(2_600, False), (3_200, True)])
def test_the_barriers_way_must_take_more_than_half_of_the_duration(waiting_ms, speaks):
    """The rest of 5.6 s is a sync part, which stays below half of it as well."""
    sync = 5_600 - waiting_ms
    last = detail(LAST, first=[waiting_ms] * 4, sync=sync)
    rows = [detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[900] * 4), last]
    found = mode_of(advised([completed(n, *rows) for n in range(1, 9)]))
    assert isinstance(found, Recommendation) is speaks, found
    if not speaks:
        assert found.rule in ("R-UC-1", "R-UC-4")


def test_without_readings_nothing_is_predicted_and_nothing_advised():
    assert "could not be read" in silent(advised(slow_run(), []), "R-UC-1").reason


def test_what_interval_and_timeout_leave_time_for_needs_no_other_mode():
    config = replace(EXACTLY_ONCE, interval_ms=600_000)
    assert "leave enough time" in silent(advised(slow_run(), config=config), "R-UC-12").reason


def test_at_least_once_is_told_what_it_lacks():
    silent(advised(slow_run(), config=replace(EXACTLY_ONCE, mode="at_least_once")), "R-UC-10")


def test_several_checkpoints_at_a_time_are_reported_as_a_conflict_and_not_changed():
    found = recommended(advised(slow_run(), config=replace(EXACTLY_ONCE, max_concurrent=3)))

    assert any(p.is_met is False and "now 3 may run" in p.text for p in found.preconditions)
    assert not any("max-concurrent" in c.key for c in found.changes)


@pytest.mark.parametrize("ship", ["BROADCAST", "FORWARD"])
def test_exchanges_that_no_barrier_overtakes_on_are_no_reason_for_unaligned(ship):
    silent(advised(slow_run(), topology=chain(ship=ship)), "R-UC-7")


@pytest.mark.parametrize("config", [UNALIGNED, with_timeout(200)])
def test_what_is_unaligned_and_healthy_already_gets_nothing_on_the_mode(config):
    run = [persisting(quick(n), 400_000) for n in range(1, 9)]
    assert isinstance(mode_of(advised(run, config=config)), NoAdvice)


# --- R-UC-2 ---


@pytest.mark.parametrize("async_ms", [3_000, 8_000])
def test_a_store_that_is_the_bottleneck_refuses_unaligned(async_ms):
    found = silent(advised([snapshotting(n, async_=async_ms) for n in range(1, 9)], CALM), "R-UC-2")

    assert found.vertex == "last"
    assert "incremental" in found.reason


@pytest.mark.parametrize(("async_ms", "refused"), [(2_000, False), (6_000, True)])
def test_near_the_border_the_larger_part_decides_between_store_and_queues(async_ms, refused):
    """The barrier's way is 4 s in each."""
    rows = [
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[1_500] * 4),
        detail(LAST, first=[4_000] * 4, async_=async_ms, size_bytes=20_000_000),
    ]
    found = mode_of(advised([completed(n, *rows) for n in range(1, 9)]))

    assert isinstance(found, NoAdvice) is refused, found
    if refused:
        assert found.rule == "R-UC-2"


def test_where_writing_the_queues_takes_as_long_as_waiting_for_them_the_store_is_named():
    """2 MB in 2 s a checkpoint: 3.2 MB more would take another three."""
    rows = [
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[1_500] * 4),
        detail(LAST, first=[4_000] * 4, async_=2_000, size_bytes=500_000),
    ]
    run = [completed(n, *rows) for n in range(1, 9)]
    sized = [replace(c, header=replace(c.header, checkpointed_size_bytes=2_000_000)) for c in run]
    found = silent(advised(sized), "R-UC-2")

    assert "MB/s" in found.reason


def test_a_subtask_that_fails_is_named_and_the_mode_is_left_alone():
    run = [quick(n) if n % 2 else declined(n, {2}) for n in range(1, 10)]
    found = silent(advised(run, CALM), "R-UC-1")

    assert (found.vertex, found.subtasks) == ("last", (2,))


def test_a_sync_part_is_shortened_by_no_mode():
    silent(advised([snapshotting(n, sync=4_000) for n in range(1, 9)], CALM), "R-UC-4")


def test_what_it_will_not_cure_names_the_vertex_that_lacks_capacity():
    found = recommended(advised(slow_run()))

    assert any("all 4 subtasks of last" in text for text in found.will_not_cure)
    assert any("savepoints stay aligned" in text for text in found.risks)
    assert found.withdrawn_if
