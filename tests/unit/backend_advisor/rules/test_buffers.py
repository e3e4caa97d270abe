"""Tests of R-DB, R-BUF and R-NET: when debloating, or more buffers, are advised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.advice import NoAdvice, Recommendation
from backend.advisor.rules.buffers import advise_buffers
from backend.advisor.situation import situation
from backend.domain.advice import Metric, Topic
from backend.domain.engines import flink
from backend.domain.verdict import VerdictKind
from tests.support.advised_jobs import EXACTLY_ONCE, UNALIGNED, advised, expected, on, readings, slow_run
from tests.support.handwritten_jobs import LAST, MIDDLE, chain, job, quick

# Barriers do not overtake data on pointwise exchanges, so no mode is advised on them.
POINTWISE = chain(ship="RESCALE")
AT_LEAST_ONCE = replace(EXACTLY_ONCE, mode="at_least_once")


def buffers_of(advice):
    return on(Topic.BUFFERS, advice)


def rows(queued_bytes=400_000, record_bytes=400, **more):
    """Return readings in which 4 subtasks read 250 kB/s each, in records of ``record_bytes``."""
    found = []
    for r in readings(queued_bytes=queued_bytes, **more):
        counts = tuple(None if b is None else b // record_bytes for b in r.bytes_in_count)
        found.append(replace(r, records_in_count=counts))
    return found


def without_capacity(readings_):
    """Return the readings with a last vertex that is busy, but not all the time: no vertex is at its limit."""
    return [replace(r, busy_ratio=(0.8,) * 4) if r.vertex_id == LAST else r for r in readings_]


@pytest.mark.parametrize(
    ("queued_bytes", "speaks"), [(400_000, False), (499_000, False), (501_000, True), (900_000, True)]
)
def test_r_db_1_proposes_debloating_if_queues_take_twice_the_target_to_drain(queued_bytes, speaks):
    """Each vertex reads 250 kB/s a subtask, so 500 kB before each subtask drain in 2 s, twice the target."""
    advice = advised(slow_run(), without_capacity(rows(queued_bytes)), topology=POINTWISE)
    found = buffers_of(advice)

    assert isinstance(found, Recommendation) is speaks, found
    if speaks:
        assert found.rules == ("R-DB-1", "R-DB-2")
        assert "taskmanager.network.memory.buffer-debloat.enabled: true" in found.how_to.lines
        assert found.proposed.debloat_target_ms == 1_000
        after = expected(found, Metric.DURATION)
        assert after.predicted.low <= after.predicted.value < after.before
        assert {p.is_met for p in found.preconditions} == {True}


@pytest.mark.parametrize("kind", [VerdictKind.CALLBACK, VerdictKind.COMMIT])
def test_shorter_queues_are_not_advised_for_barriers_that_wait_for_one_piece_of_work(kind):
    evidence = job(slow_run(), without_capacity(rows(900_000)), topology=POINTWISE, config=EXACTLY_ONCE)
    known = situation(evidence, engine=flink("1.20.5"), version="1.20.5")
    verdict = replace(known.diagnosis.verdict, kind=kind)
    found = advise_buffers(replace(known, diagnosis=replace(known.diagnosis, verdict=verdict)))

    assert isinstance(advise_buffers(known), Recommendation)
    assert isinstance(found, NoAdvice)
    assert "long pieces of work" in found.reason


def test_r_db_2_does_not_debloat_below_the_size_of_records():
    """2 buffers for each of 4 channels and 8 a gate share 250 kB: records of 8 kB are large against 16 kB each."""
    fits = buffers_of(advised(slow_run(), without_capacity(rows(900_000, 7_500)), topology=POINTWISE))
    large = buffers_of(advised(slow_run(), without_capacity(rows(900_000, 8_000)), topology=POINTWISE))

    assert isinstance(fits, Recommendation), fits
    assert isinstance(large, NoAdvice)
    assert (large.rule, "min-segment-size" in large.reason) == ("R-DB-2", True)


def test_r_db_1_waits_for_unaligned_checkpoints_and_does_not_join_them():
    waits = buffers_of(advised(slow_run(), rows(900_000)))
    assert waits.reason.startswith("first follow the advice on the mode")
    unaligned = buffers_of(advised([quick(n) for n in range(1, 9)], rows(900_000), config=UNALIGNED))
    assert unaligned.rule == "R-CAP-1"


def test_r_db_1_leaves_healthy_jobs_alone():
    found = buffers_of(advised([quick(n) for n in range(1, 9)], without_capacity(rows(900_000)), topology=POINTWISE))
    assert "healthy" in found.reason


def test_r_db_3_adapts_faster_if_queues_stay_above_twice_the_target():
    config = replace(EXACTLY_ONCE, debloat_target_ms=1_000)
    slow = buffers_of(advised(slow_run(), without_capacity(rows(900_000)), config=config, topology=POINTWISE))
    near = buffers_of(advised(slow_run(), without_capacity(rows(450_000)), config=config, topology=POINTWISE))

    assert isinstance(slow, Recommendation), slow
    assert (slow.rules, slow.proposed.debloat_period_ms) == (("R-DB-3",), 100)
    assert slow.expected == ()
    assert slow.unpredicted[0].startswith("no prediction of durations")
    assert "debloating is on" in near.reason


@pytest.mark.parametrize(
    ("version", "settings", "period_ms"),
    [
        ("1.14.6", (), 250),
        ("1.15.4", (), 100),
        ("1.20.5", (("taskmanager.network.memory.buffer-debloat.period", "100 ms"),), 50),
    ],
)
def test_r_db_3_halves_the_period_that_is_set_or_that_of_the_version(version, settings, period_ms):
    config = replace(EXACTLY_ONCE, debloat_target_ms=1_000)
    pressure = without_capacity(rows(900_000))
    advice = advised(
        slow_run(), pressure, config=config, topology=POINTWISE, version=version, cluster_settings=settings
    )

    assert buffers_of(advice).proposed.debloat_period_ms == period_ms


def idle_receiver(rate_bytes_per_s, *, in_usage=0.0):
    found = []
    for r in readings(rate_bytes_per_s=rate_bytes_per_s):
        out = 1.0 if r.vertex_id == MIDDLE else 0.1
        into = in_usage if r.vertex_id == LAST else 0.5
        busy = 0.2 if r.vertex_id == LAST else r.busy_ratio[0]
        found.append(
            replace(r, out_pool_usage_ratio=(out,) * 4, in_pool_usage_ratio=(into,) * 4, busy_ratio=(busy,) * 4)
        )
    return found


def test_r_buf_1_gives_more_floating_buffers_if_they_do_not_carry_the_rate():
    """16 buffers of 32 KiB carry 524 MB/s in round trips of 1 ms."""
    found = buffers_of(advised(slow_run(), idle_receiver(1_000_000_000), config=AT_LEAST_ONCE))
    enough = buffers_of(advised(slow_run(), idle_receiver(500_000_000), config=AT_LEAST_ONCE))

    assert isinstance(found, Recommendation), found
    assert found.rules == ("R-BUF-1", "R-NET-1")
    assert found.how_to.lines == ("taskmanager.network.memory.floating-buffers-per-gate: 36",)
    assert "task manager" in found.how_to.file
    assert (enough.rule, "suffice" in enough.reason) == ("R-BUF-1", True)


def test_r_net_1_is_no_advice_on_flink_2_and_none_if_the_receiver_has_input():
    fixed = buffers_of(advised(slow_run(), idle_receiver(1_000_000_000), config=AT_LEAST_ONCE, version="2.1.0"))
    fed = buffers_of(advised(slow_run(), idle_receiver(1_000_000_000, in_usage=0.5), config=AT_LEAST_ONCE))

    assert (fixed.rule, "the network between them" in fixed.reason) == ("R-NET-1", True)
    assert fed.rule != "R-NET-1"


def test_without_readings_of_the_queues_there_is_no_advice_on_buffers():
    assert "could not be read" in buffers_of(advised(slow_run(), [])).reason
