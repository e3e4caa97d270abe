"""Which checkpoints and readings of a run are evidence, and as of when."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.assembling import (
    EVIDENCE_COUNT,
    LOST_AFTER,
    MODEL_WINDOW,
    NEVER,
    NEWEST_READINGS,
    READINGS_NEAR,
    RunAt,
    first_trigger_under,
    is_governed,
    is_lost,
    model_readings_since,
    newest_readings,
    readings_around,
    with_earlier,
)
from backend.domain.engines import FLINK, RUNTIME, SPARK
from backend.domain.failure import FailureReason
from backend.domain.observation import JobState
from tests.support.handwritten_jobs import ALIGNED, LAST, START, chain, failed, in_progress, job, quick, reading

RUN = RunAt(topology=chain(), config=ALIGNED)


def seconds(value: float):
    return START + timedelta(seconds=value)


@pytest.mark.parametrize(("engine", "version"), [(FLINK, "1.20.5"), (RUNTIME, None), (SPARK, None)])
def test_only_an_engine_that_is_a_release_of_flink_has_a_flink_version(engine, version):
    evidence = replace(RUN, engine=engine, engine_version="1.20.5").evidence(now=START)

    assert evidence.flink_version == version
    assert evidence.is_micro_batched is engine.is_micro_batched


def test_readings_are_put_on_the_clock_of_the_engine():
    evidence = RUN.evidence(now=START, readings=[reading(LAST, [0.5], at_s=10)], ahead=timedelta(seconds=7))

    assert [r.observed_at for r in evidence.pressure] == [seconds(17)]


def test_what_the_end_of_the_run_aborted_says_nothing_on_the_job_but_has_a_verdict_of_its_own():
    ended = replace(RUN, state=JobState.ENDED, engine_state="CANCELED")
    checkpoints = [quick(1), failed(2, reason=FailureReason.COORDINATOR_SUSPENDED)]

    on_job = ended.evidence_on_job(now=seconds(60), checkpoints=checkpoints)
    on_checkpoint = ended.evidence(now=seconds(60), checkpoints=checkpoints)

    assert [c.header.checkpoint_id for c in on_job.checkpoints] == [1]
    assert [c.header.checkpoint_id for c in on_checkpoint.checkpoints] == [1, 2]


def test_an_open_checkpoint_is_lost_if_its_run_ended_or_no_longer_reports_it():
    opened, ended = in_progress(1).header, quick(2).header

    assert is_lost(opened, has_run_ended=True)
    assert not is_lost(opened, has_run_ended=False, unseen_for=LOST_AFTER)
    assert is_lost(opened, has_run_ended=False, unseen_for=LOST_AFTER + timedelta(seconds=1))
    assert not is_lost(ended, has_run_ended=True, unseen_for=2 * LOST_AFTER)


def test_the_newest_readings_are_those_of_some_time_before_the_last_one():
    found = newest_readings([reading(LAST, [0.5], at_s=float(s)) for s in range(0, 600, 10)])

    assert found[-1].observed_at == seconds(590)
    assert found[0].observed_at == seconds(590) - NEWEST_READINGS
    assert newest_readings([]) == ()


def test_readings_count_for_a_checkpoint_from_before_its_trigger_until_after_its_end_or_until_now():
    quick_one, opened = quick(4, 2_000).header, in_progress(4).header

    assert readings_around(quick_one, seconds(500)) == (seconds(20) - READINGS_NEAR, seconds(22) + READINGS_NEAR)
    assert readings_around(opened, seconds(500)) == (seconds(20) - READINGS_NEAR, seconds(500) + READINGS_NEAR)


def test_an_earlier_reading_counts_once_and_never_beside_the_newest_ones():
    evidence = job(pressure=[reading(LAST, [0.5], at_s=50)])
    earlier = [reading(LAST, [0.1], at_s=s) for s in (10, 20, 20, 30, 50, 60)]

    found = with_earlier(evidence, earlier, ALIGNED)

    assert [r.observed_at for r in found.earlier_pressure] == [seconds(s) for s in (10, 20, 30)]
    assert (found.pressure, found.config_before) == (evidence.pressure, ALIGNED)


def test_the_first_checkpoint_whose_end_was_known_after_a_change_may_have_begun_before_it():
    ended = [(seconds(5 * n + 2), seconds(5 * n)) for n in range(1, 6)]

    assert first_trigger_under(None, ended) is None
    assert first_trigger_under(seconds(13), ended) == seconds(20)
    assert first_trigger_under(seconds(24), ended) == NEVER
    assert [n for n in range(1, 6) if is_governed(quick(n).header, seconds(20))] == [4, 5]
    assert all(is_governed(quick(n).header, None) for n in range(1, 6))
    assert not is_governed(quick(EVIDENCE_COUNT).header, NEVER)


def test_readings_for_a_model_reach_back_to_its_first_checkpoint_but_not_for_ever():
    first = quick(2).header

    assert model_readings_since(first, seconds(100)) == seconds(10) - READINGS_NEAR
    assert model_readings_since(first, seconds(7_200)) == seconds(7_200) - MODEL_WINDOW
