"""AD-1: each rule where it speaks, where it does not, and near the border between the two."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor import advise
from backend.advisor.advice import Recommendation, Silence
from backend.advisor.aligned_timeout import nice_ms
from backend.domain.advice import Metric, Mode
from backend.domain.observation import Engine
from tests.support.advised_jobs import (
    EXACTLY_ONCE,
    advised,
    expired_run,
    in_flight_of,
    mode_of,
    persisting,
    readings,
    slow_run,
)
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, chain, completed, detail, in_progress, job, quick
from tests.support.handwritten_runs import CALM, declined, snapshotting

UNALIGNED = replace(EXACTLY_ONCE, is_unaligned_enabled=True, aligned_timeout_ms=0)


def with_timeout(ms):
    return replace(EXACTLY_ONCE, is_unaligned_enabled=True, aligned_timeout_ms=ms)


def recommended(advice) -> Recommendation:
    found = mode_of(advice)
    assert isinstance(found, Recommendation), found
    return found


def silent(advice, rule) -> Silence:
    found = mode_of(advice)
    assert isinstance(found, Silence), found
    assert found.rule == rule, found
    return found


def expected(advice: Recommendation, metric: Metric):
    return next(e for e in advice.expected if e.metric is metric)


# --- AD-3 ---


@pytest.mark.parametrize(("count", "speaks"), [(0, False), (4, False), (5, True)])
def test_below_five_checkpoints_nothing_is_advised_and_the_reason_says_how_many(count, speaks):
    for run in (slow_run(count), expired_run(count)):
        advice = advised(run)
        assert bool(advice.recommendations) is speaks
        if not speaks:
            assert {s.rule for s in advice.silences} == {"AD-3"}
            assert f"only {count} checkpoint" in advice.silences[0].reason


def test_checkpoints_taken_under_other_settings_do_not_count():
    run = slow_run(8)
    evidence = job(run, readings(), config=EXACTLY_ONCE)
    since = run[4].header.triggered_at
    assert advise(evidence, engine=Engine.FLINK, version=None, settings_since=since).recommendations == ()
    since = run[3].header.triggered_at
    assert advise(evidence, engine=Engine.FLINK, version=None, settings_since=since).recommendations


def test_one_checkpoint_that_is_open_for_long_is_no_reason_to_change_anything():
    run = [persisting(quick(n, 1_000), 200_000) for n in range(1, 9)]
    rows = (detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[None] * 4), detail(LAST, first=[None] * 4))
    open_now = in_progress(11, *rows)
    found = silent(advised([*run, open_now], config=with_timeout(1_000)), "AD-3")

    assert "the one that is open" in found.reason


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
    assert "no need" in silent(advised(slow_run(), config=config), "R-UC-12").reason


def test_at_least_once_is_told_what_it_lacks():
    silent(advised(slow_run(), config=replace(EXACTLY_ONCE, mode="at_least_once")), "R-UC-10")


def test_several_checkpoints_at_a_time_are_reported_as_a_conflict_and_not_changed():
    found = recommended(advised(slow_run(), config=replace(EXACTLY_ONCE, max_concurrent=3)))

    assert any(p.is_met is False and "3 may run now" in p.text for p in found.preconditions)
    assert not any("max-concurrent" in c.key for c in found.changes)


@pytest.mark.parametrize("ship", ["BROADCAST", "FORWARD"])
def test_exchanges_that_no_barrier_overtakes_on_are_no_reason_for_unaligned(ship):
    silent(advised(slow_run(), topology=chain(ship=ship)), "R-UC-7")


@pytest.mark.parametrize("config", [UNALIGNED, with_timeout(200)])
def test_what_is_unaligned_and_healthy_already_gets_nothing_on_the_mode(config):
    run = [persisting(quick(n), 400_000) for n in range(1, 9)]
    assert isinstance(mode_of(advised(run, config=config)), Silence)


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

    assert isinstance(found, Silence) is refused, found
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


# --- R-AT ---


@pytest.mark.parametrize(("value", "nice"), [(0.5, 1), (1, 1), (150, 200), (200, 200), (201, 500), (501, 1_000)])
def test_proposed_timeouts_are_round(value, nice):
    assert nice_ms(value) == nice


def test_r_at_1_keeps_the_timeout_above_the_way_of_healthy_barriers():
    """Of old the barrier took 600 ms without back-pressure: overtaking before 900 ms would persist data for nothing."""
    calm = [
        replace(r, observed_at=r.observed_at.replace(minute=0, second=s))
        for s, r in zip([10] * 3, CALM[::2], strict=False)
    ]
    healthy = [quick(n, 600, every_s=1) for n in range(6, 12)]
    slow = [c for c in slow_run(20) if c.header.checkpoint_id >= 16]
    config = replace(EXACTLY_ONCE, interval_ms=8_000)
    found = recommended(advised([*healthy, *slow], [*calm, *_later(readings())], config=config))

    assert "R-AT-1" in found.rules
    assert found.proposed.aligned_timeout_ms == 1_000
    assert any("without back-pressure (p99)" in r.statement for r in found.evidence)


def _later(rows):
    return [replace(r, observed_at=r.observed_at + timedelta(seconds=45)) for r in rows]


def test_r_at_1_without_a_healthy_checkpoint_says_what_it_takes_instead():
    found = recommended(advised(slow_run()))

    assert found.proposed.aligned_timeout_ms == 200
    assert any("no checkpoint without back-pressure was recorded" in r.statement for r in found.evidence)


@pytest.mark.parametrize(("timeout_ms", "proposed"), [(20, 1_000), (900, None)])
def test_r_at_1_raises_a_timeout_that_makes_healthy_checkpoints_persist(timeout_ms, proposed):
    run = [persisting(quick(n, 400, every_s=1), 1_000) for n in range(48, 56)]
    found = mode_of(
        advised(run, [replace(r, queued_out_bytes=(500,) * 4) for r in CALM], config=with_timeout(timeout_ms))
    )

    assert isinstance(found, Recommendation) is (proposed is not None), found
    if proposed is not None:
        assert found.proposed.aligned_timeout_ms == proposed
        assert found.changes[0].key == "execution.checkpointing.aligned-checkpoint-timeout"


@pytest.mark.parametrize(("interval_ms", "timeout_ms", "bound"), [(5_000, 600_000, 2_500), (60_000, 3_000, 1_500)])
def test_r_at_2_keeps_the_timeout_below_what_interval_and_checkpoint_timeout_leave(interval_ms, timeout_ms, bound):
    config = replace(EXACTLY_ONCE, interval_ms=interval_ms, timeout_ms=timeout_ms)
    found = recommended(advised(expired_run() if timeout_ms == 3_000 else slow_run(), config=config))

    assert "R-AT-2" in found.rules
    timeouts = [c.aligned_timeout_ms for c in found.candidates if c.aligned_timeout_ms is not None]
    assert max(timeouts) <= bound
    assert found.proposed.aligned_timeout_ms < bound


def test_r_at_3_shows_what_each_candidate_would_have_done():
    found = recommended(advised(slow_run()))
    by_timeout = {c.aligned_timeout_ms: c for c in found.candidates}

    assert by_timeout[None].is_current
    assert by_timeout[200].is_proposed
    timed = [by_timeout[t] for t in sorted(t for t in by_timeout if t is not None)]
    durations = [c.duration_ms.value for c in timed]
    persisted = [c.persisted_bytes.value for c in timed]
    assert durations == sorted(durations)
    assert persisted == sorted(persisted, reverse=True)
    # At 2 s the barrier is past the first exchange, and 2.8 of 3.3 s before the end of the second.
    assert by_timeout[2_000].persisted_bytes.value == pytest.approx(1.1 * 1_600_000 * 2_800 / 3_300, rel=0.01)


@pytest.mark.parametrize(("interval_ms", "crossed"), [(300, True), (500, False)])
def test_r_at_4_says_where_no_timeout_serves_both_and_takes_0_under_constant_back_pressure(interval_ms, crossed):
    config = replace(EXACTLY_ONCE, interval_ms=interval_ms)
    found = recommended(advised(slow_run(), config=config))

    assert ("R-AT-4" in found.rules) is crossed
    assert (found.proposed.mode is Mode.UNALIGNED) is crossed


def test_r_at_5_says_of_deep_graphs_only_that_the_clock_is_the_checkpoints():
    assert "R-AT-5" in recommended(advised(slow_run())).rules
    two = chain(SOURCE, LAST)
    run = [completed(n, detail(SOURCE, first=[5] * 4), detail(LAST, first=[4_800] * 4)) for n in range(1, 9)]
    found = recommended(advised(run, [r for r in readings() if r.vertex_id != MIDDLE], topology=two))
    assert "R-AT-5" not in found.rules


def test_r_at_6_explains_what_0_means():
    found = recommended(advised(slow_run(), config=replace(EXACTLY_ONCE, interval_ms=300)))

    assert "R-AT-6" in found.rules
    assert any("0 makes every checkpoint unaligned" in r.statement for r in found.evidence)
    assert isinstance(mode_of(advised(slow_run(), config=UNALIGNED)), Silence)


def test_a_timeout_near_the_natural_duration_is_lowered():
    run = [persisting(c, 100_000) for c in slow_run(8, last_ms=4_200)]
    found = recommended(advised(run, config=with_timeout(4_000)))

    assert found.proposed.aligned_timeout_ms == 200
    assert [c.key for c in found.changes] == ["execution.checkpointing.aligned-checkpoint-timeout"]


# --- R-CAP-1 ---


def writing_too_much(subtask_bytes=2_000_000, async_ms=2_400):
    """24 MB a checkpoint at 10 MB/s."""
    return [persisting(quick(n, 50), subtask_bytes, async_ms) for n in range(1, 9)]


def test_r_cap_1_caps_what_writing_has_no_time_for_on_the_runtime_only():
    config = replace(UNALIGNED, timeout_ms=60_000)
    fast = readings(rate_bytes_per_s=5_000_000)
    advice = advised(writing_too_much(), fast, config=config, engine=Engine.RUNTIME, version="0.1.0")
    found = in_flight_of(advice)

    assert isinstance(found, Recommendation), found
    assert found.rules == ("R-CAP-1",)
    assert dict(found.how_to.patch) == {"runtime.inflight-cap.bytes": str(found.proposed.inflight_cap_bytes)}
    assert found.proposed.inflight_cap_bytes == 1_000_000
    assert not found.how_to.needs_restart


def test_r_cap_1_on_flink_is_debloating_since_flink_has_no_cap_in_bytes():
    found = in_flight_of(advised(writing_too_much(), readings(rate_bytes_per_s=250_000), config=UNALIGNED))

    assert isinstance(found, Recommendation), found
    assert not any("runtime." in line for line in found.how_to.lines)
    assert "taskmanager.network.memory.buffer-debloat.enabled: true" in found.how_to.lines
    assert found.proposed.debloat_target_ms is not None


@pytest.mark.parametrize(("async_ms", "speaks"), [(1_100, False), (1_300, True)])
def test_r_cap_1_speaks_from_half_of_the_time_that_the_interval_leaves_on(async_ms, speaks):
    """Half of half of 5 s is 1.25 s."""
    config = replace(UNALIGNED, timeout_ms=60_000)
    run = writing_too_much(async_ms=async_ms)
    found = in_flight_of(advised(run, readings(rate_bytes_per_s=5_000_000), config=config, engine=Engine.RUNTIME))
    assert isinstance(found, Recommendation) is speaks, found


def test_r_cap_1_leaves_writing_no_more_than_a_sixth_of_the_timeout_either():
    config = replace(UNALIGNED, interval_ms=60_000, timeout_ms=3_000)
    run = writing_too_much(async_ms=700)
    found = in_flight_of(advised(run, readings(rate_bytes_per_s=5_000_000), config=config, engine=Engine.RUNTIME))
    assert "fits what writing" not in found.reason


def test_r_cap_1_says_nothing_of_a_cap_that_is_small_enough_already():
    config = replace(UNALIGNED, timeout_ms=60_000, inflight_cap_bytes=1_000_000)
    fast = readings(rate_bytes_per_s=5_000_000)
    found = in_flight_of(advised(writing_too_much(), fast, config=config, engine=Engine.RUNTIME))
    assert isinstance(found, Silence), found
    assert "no larger than it should be" in found.reason


def test_r_cap_1_is_silent_where_in_flight_data_fits_or_there_is_none():
    fits = [persisting(quick(n), 400_000) for n in range(1, 9)]
    assert isinstance(in_flight_of(advised(fits, config=UNALIGNED)), Silence)
    assert "aligned" in in_flight_of(advised(slow_run())).reason


def test_spark_has_no_such_settings_and_is_told_so():
    advice = advised(slow_run(), engine=Engine.SPARK)

    assert advice.recommendations == ()
    assert all("spark has no such setting" in s.reason for s in advice.silences)


# --- what is proposed ---


@pytest.mark.parametrize(
    ("version", "key", "file"),
    [
        ("1.20.5", "execution.checkpointing.unaligned.enabled", "conf/config.yaml"),
        ("2.3.0", "execution.checkpointing.unaligned.enabled", "conf/config.yaml"),
        ("1.17.2", "execution.checkpointing.unaligned", "conf/flink-conf.yaml"),
    ],
)
def test_the_lines_are_those_of_the_version(version, key, file):
    how_to = recommended(advised(slow_run(), version=version)).how_to

    assert how_to.lines == (f"{key}: true", "execution.checkpointing.aligned-checkpoint-timeout: 200 ms")
    assert how_to.rollback_lines == (f"{key}: false", "execution.checkpointing.aligned-checkpoint-timeout: 0 ms")
    assert how_to.file.startswith(file)
    assert how_to.needs_restart
    assert how_to.patch == {}


def test_before_aligned_timeouts_count_from_the_trigger_none_is_proposed():
    found = recommended(advised(slow_run(), version="1.13.6"))

    assert found.how_to.lines == ("execution.checkpointing.unaligned: true",)


def test_the_runtime_changes_while_it_runs_by_a_patch_that_can_be_undone():
    how_to = recommended(advised(slow_run(), engine=Engine.RUNTIME, version="0.1.0")).how_to

    assert not how_to.needs_restart
    assert how_to.patch["execution.checkpointing.unaligned.enabled"] == "true"
    assert how_to.rollback_patch["execution.checkpointing.unaligned.enabled"] == "false"


def test_nothing_ever_raises_the_checkpoint_timeout():
    for config in (EXACTLY_ONCE, replace(EXACTLY_ONCE, timeout_ms=3_000)):
        for run in (slow_run(), expired_run()):
            for found in advised(run, config=config).recommendations:
                assert not any(c.key == "execution.checkpointing.timeout" for c in found.changes)


def test_what_it_will_not_cure_names_the_vertex_that_lacks_capacity():
    found = recommended(advised(slow_run()))

    assert any("all 4 subtasks of last" in text for text in found.will_not_cure)
    assert any("savepoints stay aligned" in text for text in found.risks)
    assert found.withdrawn_if
