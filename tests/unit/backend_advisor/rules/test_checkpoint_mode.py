"""Tests of R-UC: when unaligned checkpoints are advised, when they are refused, and what decides near the border."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor.advice import NoAdvice, Recommendation
from backend.advisor.lifecycle import is_in_force
from backend.advisor.rules.checkpoint_mode import advise_mode, refusal_of_modes
from backend.advisor.situation import situation
from backend.domain.advice import Metric, Mode, Topic
from backend.domain.checkpoint import LateBarrier
from backend.domain.engines import flink
from backend.domain.protocols import Protocol
from backend.domain.verdict import VerdictKind
from tests.support.advised_jobs import (
    EXACTLY_ONCE,
    UNALIGNED,
    advised,
    expected,
    expired_run,
    mode_of,
    on,
    persisting,
    readings,
    recommended,
    silent,
    slow_run,
    with_timeout,
)
from tests.support.handwritten_jobs import (
    LAST,
    MIDDLE,
    SOURCE,
    START,
    chain,
    completed,
    detail,
    failed,
    job,
    quick,
    reading,
)
from tests.support.handwritten_runs import CALM, declined, snapshotting

# --- R-UC-1 ---


def test_unaligned_checkpoints_are_advised_if_barriers_wait_behind_queued_data():
    found = recommended(advised(slow_run()))

    assert found.rules[0] == "R-UC-1"
    assert found.proposed.mode is Mode.ALIGNED_WITH_TIMEOUT
    assert found.checkpoint_ids == (1, 2, 3, 4, 5, 6, 7, 8)
    duration, persisted = expected(found, Metric.DURATION), expected(found, Metric.PERSISTED)
    assert duration.before == 4_800
    assert duration.predicted.high < 1_000
    # There are eight subtasks, and 400 kB of queued data before each of them.
    assert persisted.predicted.low < 3_200_000 < persisted.predicted.high
    assert {r.metric for r in found.evidence} >= {
        "endToEndDuration",
        "startDelay",
        "backpressureRatio",
        "outputQueueSize",
    }
    late = next(r for r in found.evidence if r.metric == "startDelay")
    assert (late.vertex, late.subtasks) == ("last", (0, 1, 2, 3))


def test_what_is_already_set_is_not_advised():
    found = recommended(advised(slow_run()))
    there = replace(EXACTLY_ONCE, is_unaligned_enabled=True, aligned_timeout_ms=found.proposed.aligned_timeout_ms)

    assert "that are already set" in silent(advised(slow_run(), config=there), "R-UC-1").reason


def test_no_mode_is_advised_to_a_job_with_another_protocol():
    config = replace(EXACTLY_ONCE, is_unaligned_enabled=True, aligned_timeout_ms=0, protocol=Protocol.CHANDY_LAMPORT)

    assert "Chandy-Lamport" in silent(advised(slow_run(), config=config), "R-UC-1").reason


def test_if_all_checkpoints_expired_the_advice_says_that_their_full_duration_is_not_known():
    config = replace(EXACTLY_ONCE, timeout_ms=3_000)
    found = recommended(advised(expired_run(), config=config))

    assert expected(found, Metric.DURATION).is_before_at_least
    failures = expected(found, Metric.EXPIRED)
    assert (failures.before, failures.predicted.value) == (1.0, 0.0)
    assert found.confidence.value != "high"


@pytest.mark.parametrize(("ship", "speaks"), [("HASH", True), ("FORWARD", False)])
def test_a_subtask_whose_first_barrier_came_early_may_still_wait_for_its_last_one(ship, speaks):
    """Of one subtask, a gauge shows the first barrier. With several channels, others held it until the timeout."""
    rows = (
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[900] * 4),
        detail(LAST, first=[1_500, 1_500, 1_500, None], alignment=300),
    )
    runs = [failed(n, *rows, after_ms=10_000) for n in range(1, 9)]
    gauge = LateBarrier(vertex_id=LAST, subtask=3, start_delay_ms=1_300, seen_at=START, resolution_ms=4_000)
    config = replace(EXACTLY_ONCE, timeout_ms=10_000)
    late = {c.header.checkpoint_id: (gauge,) for c in runs}
    found = mode_of(advised(runs, config=config, topology=chain(ship=ship), late_barriers=late))

    assert isinstance(found, Recommendation) is speaks, found
    if not speaks:
        assert "the barrier travels for 18 % of the duration" in found.reason


def test_without_back_pressure_no_other_mode_is_advised():
    calm = silent(advised([quick(n) for n in range(1, 9)], CALM), "R-UC-12")
    unread = silent(advised([quick(n) for n in range(1, 9)], []), "R-UC-12")

    assert "nothing is back-pressured" in calm.reason
    assert unread.reason.endswith("whether a vertex is back-pressured is not known")


@pytest.mark.parametrize(("held", "speaks"), [(0.45, False), (0.5, True), (0.6, True)])
def test_unaligned_is_not_advised_under_low_back_pressure(held, speaks):
    found = mode_of(advised(slow_run(), readings(held=held)))
    assert isinstance(found, Recommendation) is speaks


@pytest.mark.parametrize(("waiting_ms", "speaks"), [(2_600, False), (3_200, True)])
def test_unaligned_is_advised_only_if_travel_takes_more_than_half_of_the_duration(waiting_ms, speaks):
    """The checkpoint takes 5.6 s: first the barrier travels, then a sync phase takes the rest of the time."""
    sync = 5_600 - waiting_ms
    last = detail(LAST, first=[waiting_ms] * 4, sync=sync)
    rows = [detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[900] * 4), last]
    found = mode_of(advised([completed(n, *rows) for n in range(1, 9)]))
    assert isinstance(found, Recommendation) is speaks, found
    if not speaks:
        assert found.rule in ("R-UC-1", "R-UC-4")


def test_without_readings_nothing_is_predicted_or_advised():
    assert "could not be read" in silent(advised(slow_run(), []), "R-UC-1").reason


def test_if_only_the_queues_are_not_reported_the_reason_does_not_say_that_back_pressure_was_not_read():
    """Flink 1.13 and 1.14 report how many buffers are queued, but not their bytes."""
    seen = [replace(r, queued_in_bytes=(), queued_out_bytes=()) for r in readings()]

    reason = silent(advised(slow_run(), pressure=seen), "R-UC-1").reason

    assert "does not report how many bytes are in the queues" in reason
    assert "back-pressure" not in reason


def test_checkpoints_within_interval_and_timeout_need_no_other_mode():
    config = replace(EXACTLY_ONCE, interval_ms=600_000)
    assert "leave enough time" in silent(advised(slow_run(), config=config), "R-UC-12").reason


def test_an_at_least_once_job_gets_the_reason_for_no_advice():
    silent(advised(slow_run(), config=replace(EXACTLY_ONCE, mode="at_least_once")), "R-UC-10")


def test_several_checkpoints_at_a_time_become_one_because_flink_starts_no_job_with_both():
    config = replace(EXACTLY_ONCE, max_concurrent=3)
    found = recommended(advised(slow_run(), config=config))

    assert any("now 3 may run, and the change allows one" in p.text for p in found.preconditions)
    assert found.how_to.lines[-1] == "execution.checkpointing.max-concurrent-checkpoints: 1"
    assert found.how_to.rollback_lines[-1] == "execution.checkpointing.max-concurrent-checkpoints: 3"
    assert is_in_force(found.proposed, replace(config, is_unaligned_enabled=True, aligned_timeout_ms=200)) is False
    unaligned = recommended(advised(slow_run()))
    assert not any("max-concurrent" in c.key for c in unaligned.changes)


def test_unaligned_checkpoints_are_forced_where_flink_refuses_them_for_a_custom_partitioner():
    found = recommended(advised(slow_run(), topology=chain(ship="CUSTOM")))

    assert "execution.checkpointing.unaligned.forced: true" in found.how_to.lines
    assert any("custom partitioner" in risk for risk in found.risks)
    assert not any("forced" in c.key for c in recommended(advised(slow_run())).changes)


@pytest.mark.parametrize("ship", ["BROADCAST", "FORWARD"])
def test_unaligned_is_not_advised_for_exchanges_at_which_barriers_do_not_overtake(ship):
    silent(advised(slow_run(), topology=chain(ship=ship)), "R-UC-7")


@pytest.mark.parametrize("config", [UNALIGNED, with_timeout(200)])
def test_unaligned_and_healthy_checkpoints_get_no_advice_on_the_mode(config):
    run = [persisting(quick(n), 400_000) for n in range(1, 9)]
    assert isinstance(mode_of(advised(run, config=config)), NoAdvice)


# --- R-UC-2 ---


@pytest.mark.parametrize("async_ms", [3_000, 8_000])
def test_unaligned_is_not_advised_if_the_store_is_the_bottleneck(async_ms):
    found = silent(advised([snapshotting(n, async_=async_ms) for n in range(1, 9)], CALM), "R-UC-2")

    assert found.vertex == "last"
    assert "incremental" in found.reason


@pytest.mark.parametrize(("async_ms", "refused"), [(2_000, False), (6_000, True)])
def test_near_the_border_the_larger_part_decides_between_store_and_queues(async_ms, refused):
    """The barrier travels for 4 s in both cases; only the time for the store differs."""
    rows = [
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[1_500] * 4),
        detail(LAST, first=[4_000] * 4, async_=async_ms, size_bytes=20_000_000),
    ]
    found = mode_of(advised([completed(n, *rows) for n in range(1, 9)]))

    assert isinstance(found, NoAdvice) is refused, found
    if refused:
        assert found.rule == "R-UC-2"


def test_the_store_is_named_if_writing_the_queues_takes_as_long_as_waiting():
    """A checkpoint writes 2 MB in 2 s, so the 3.2 MB in the queues would take another 3 s."""
    rows = [
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[1_500] * 4),
        detail(LAST, first=[4_000] * 4, async_=2_000, size_bytes=500_000),
    ]
    run = [completed(n, *rows) for n in range(1, 9)]
    sized = [replace(c, header=replace(c.header, checkpointed_size_bytes=2_000_000)) for c in run]
    found = silent(advised(sized), "R-UC-2")

    assert "MB/s" in found.reason


def test_a_failing_subtask_is_named_and_no_mode_is_advised():
    run = [quick(n) if n % 2 else declined(n, {2}) for n in range(1, 10)]
    found = silent(advised(run, CALM), "R-UC-1")

    assert (found.vertex, found.subtasks) == ("last", (2,))


def test_no_mode_is_advised_for_a_long_sync_part():
    silent(advised([snapshotting(n, sync=4_000) for n in range(1, 9)], CALM), "R-UC-4")


def test_no_mode_is_advised_if_the_barrier_was_forwarded_in_time_although_the_phase_of_the_snapshot_is_not_decided():
    """Goal: a full subtask with a queue in front of it is no reason if the barrier did not wait in this queue."""
    rows = [detail(v, first=[None if (v, i) == (MIDDLE, 0) else 5 for i in range(4)]) for v in (SOURCE, MIDDLE, LAST)]
    run = [failed(n, *rows, after_ms=5_000) for n in range(1, 9)]
    shares = {MIDDLE: ((1.0, 0.2, 0.2, 0.2), (0.0,) * 4), LAST: ((0.1,) * 4, (0.0,) * 4)}
    pressure = [
        replace(r, busy_ratio=shares[r.vertex_id][0], backpressured_ratio=shares[r.vertex_id][1], records_in_count=())
        if r.vertex_id in shares
        else r
        for r in readings()
    ]

    found = silent(advised(run, pressure), "R-UC-4")

    assert "middle subtask 0 forwarded the barrier in time" in found.reason


@pytest.mark.parametrize("place", [None, LAST])
def test_no_mode_is_advised_if_it_is_not_decided_what_the_barriers_wait_for(place):
    """Goal: barriers that may wait for one piece of work get no advice that helps in queues only."""
    known = situation(job(slow_run(), readings(), config=EXACTLY_ONCE), engine=flink("1.20.5"), version="1.20.5")
    verdict = replace(known.diagnosis.verdict, kind=VerdictKind.UNDECIDED, vertex_id=place)
    found = advise_mode(replace(known, diagnosis=replace(known.diagnosis, verdict=verdict)))

    # A place that is not decided is a full subtask: it has more records or takes longer for each.
    assert isinstance(found, NoAdvice) is (place is None)
    if isinstance(found, NoAdvice):
        assert "it is not decided what the barriers wait for" in found.reason


@pytest.mark.parametrize(("wait_ms", "is_queued"), [(92_000, True), (12_000, False)])
def test_only_barriers_that_wait_for_the_record_in_work_are_said_to_do_so_whatever_the_mode(wait_ms, is_queued):
    """Goal: barriers that wait behind fifteen records are not said to wait as long if they overtake them."""
    rows = [
        completed(
            n,
            detail(SOURCE, first=[5] * 2),
            detail(MIDDLE, first=[wait_ms, 5]),
            detail(LAST, first=[wait_ms] * 2),
            every_s=95,
        )
        for n in (1, 2, 3)
    ]
    pressure = [
        reading(SOURCE, [0.05] * 2, records=[6_000] * 2),
        replace(reading(MIDDLE, [1.0, 0.0], records=[50, 4_000]), records_in_per_s=(1 / 6, 40.0)),
        reading(LAST, [0.05] * 2, records=[6_000] * 2),
    ]
    evidence = job(
        rows,
        pressure,
        topology=chain(parallelism=2),
        config=EXACTLY_ONCE,
        started_at=START - timedelta(minutes=5),
    )
    known = situation(evidence, engine=flink("1.20.5"), version="1.20.5")
    found = advise_mode(known)

    assert known.diagnosis.verdict.kind is VerdictKind.CALLBACK
    assert isinstance(found, NoAdvice)
    assert ("overtake these, but still wait for the one in work, about 6.0 s" in found.reason) is is_queued
    assert ("whatever the mode" in found.reason) is not is_queued
    assert ("timeout must cover" in found.reason) is not is_queued


def test_the_limits_of_the_advice_name_the_vertex_that_lacks_capacity():
    found = recommended(advised(slow_run()))

    assert any("all 4 subtasks of last" in text for text in found.will_not_cure)
    assert any("savepoints stay aligned" in text for text in found.risks)
    assert found.withdrawn_if


# --- each kind of verdict ---

_REFUSED = {
    VerdictKind.FAILING_SUBTASK: "R-UC-1",
    VerdictKind.STORE: "R-UC-2",
    VerdictKind.SYNC: "R-UC-4",
    VerdictKind.LATE_INPUT: "R-UC-5",
    VerdictKind.CALLBACK: "R-UC-6",
    VerdictKind.COMMIT: "R-UC-6",
    VerdictKind.COORDINATOR: "R-UC-1",
    VerdictKind.REPLAY: "R-UC-1",
    VerdictKind.RESTARTS: "R-UC-1",
    VerdictKind.REFUSED: "R-UC-1",
    VerdictKind.GROWTH: "R-UC-1",
    VerdictKind.CHECKPOINTING_OFF: "R-UC-1",
}
_NOT_REFUSED = {
    VerdictKind.NONE,
    VerdictKind.UNDECIDED,
    VerdictKind.CAPACITY,
    VerdictKind.SKEW,
    VerdictKind.STRAGGLER,
    VerdictKind.SLOW_HOST,
    VerdictKind.LOST_ROWS,
}


@pytest.mark.parametrize("kind", VerdictKind)
def test_causes_that_no_mode_cures_refuse_every_mode_however_long_the_queues_are(kind):
    known = situation(job(slow_run(), readings(), config=EXACTLY_ONCE), engine=flink("1.20.5"), version="1.20.5")
    verdict = replace(known.diagnosis.verdict, kind=kind)
    found = advise_mode(replace(known, diagnosis=replace(known.diagnosis, verdict=verdict)))

    assert (kind in _REFUSED) is (kind not in _NOT_REFUSED), "decide whether another mode cures it"
    if kind in _REFUSED:
        assert isinstance(found, NoAdvice), found.headline
        assert found.rule == _REFUSED[kind]
    else:
        assert isinstance(found, Recommendation), found


@pytest.mark.parametrize(
    ("async_ms", "refused"),
    [
        ([50, 50, 50, 50, 50, 9_000, 50, 9_000], False),
        ([9_000, 50, 9_000, 50, 9_000, 50, 9_000, 9_000], False),
        ([50, 9_000, 9_000, 9_000, 9_000, 9_000, 9_000, 9_000], True),
        ([6_000] * 8, True),
        # Writing takes long, but barriers take longer.
        ([2_000] * 8, False),
    ],
    ids=["writes hang now and then", "most hang", "hardly any is quick", "each write takes long", "a small part"],
)
def test_a_simulation_may_change_the_mode_if_usual_writes_are_a_small_part(async_ms, refused):
    rows = [
        completed(
            n,
            detail(SOURCE, first=[5] * 4),
            detail(MIDDLE, first=[1_500] * 4),
            detail(LAST, first=[4_000] * 4, async_=ms, size_bytes=50_000_000),
        )
        for n, ms in enumerate(async_ms, start=1)
    ]
    known = situation(job(rows, readings(), config=EXACTLY_ONCE), engine=flink("1.20.5"), version="1.20.5")
    verdict = replace(known.diagnosis.verdict, kind=VerdictKind.STORE)
    found = refusal_of_modes(replace(known, diagnosis=replace(known.diagnosis, verdict=verdict)))

    assert (found is not None) is refused
    assert not refused or "the checkpoint store is the bottleneck" in found


def test_advice_to_enable_unaligned_checkpoints_names_what_it_takes_away():
    found = recommended(advised(slow_run()))

    assert any("no tool reads" in p.text for p in found.preconditions)
    # R-UC-9
    assert any("current watermark" in risk for risk in found.risks)
    assert any("job graph" in risk for risk in found.risks)


def test_a_store_that_refuses_is_not_called_a_bottleneck():
    """Without the rule, the advice is to write less, although writing ends with an error at changing subtasks."""
    run = [declined(n, {n % 4}) for n in range(1, 7)]
    found = on(Topic.MODE, advised(run, readings(held=0.0, busy=0.3)))

    assert isinstance(found, NoAdvice)
    assert "writing to the checkpoint store fails" in found.reason
    assert "bottleneck" not in found.reason
