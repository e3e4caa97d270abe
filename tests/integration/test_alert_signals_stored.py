"""Alerts from stored observations: ages follow the job's own clock, and one alert may span several runs of a job."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event

from backend.alerting.rules import RuleChange, changed
from backend.alerting.signals import JobSignal
from backend.domain import losses
from backend.domain.checkpoint import CheckpointConfig, CheckpointCounts
from backend.domain.engines import RUNTIME
from backend.domain.observation import JobState
from backend.domain.topology import Placement
from backend.domain.verdict import Health, VerdictKind
from backend.services.alerts import signals
from backend.services.alerts.signals import SignalReader
from backend.services.jobs import evidence
from backend.store.alerts.rules import rules_in_force, save_rule
from backend.store.jobs.reader import list_current
from backend.store.postgres.connections import writing
from backend.store.schema.partitions import Retention
from tests.support.alerting import Alerting, rows, switch_off_rules_but
from tests.support.observations import (
    CONFIG,
    NOW,
    SOURCE,
    SteppingClock,
    completed,
    failed,
    in_progress,
    job,
    observation,
    progress,
)

pytestmark = pytest.mark.anyio

# These settings give a health window of 40 s.
_CONFIG = replace(CONFIG, interval_ms=5000, timeout_ms=8000)


@pytest.fixture(autouse=True)
async def _only_these(engine):
    await switch_off_rules_but(
        engine, "NoCompletedCheckpoint", "CheckpointStuck", "JobRestarts", "RowsLost", "Watchdog"
    )


async def _states(engine):
    return await rows(engine, "SELECT rule, state, reading FROM alerts WHERE job_id IS NOT NULL ORDER BY began_at")


async def test_a_job_whose_clock_falls_behind_is_judged_by_that_clock(engine, clock, writer, target):
    alerting, lag_s = Alerting(engine, clock), 0.0
    for number in range(1, 18):
        # The machine is overloaded: with each step of 5 s, the job's clock falls behind by another 5 s.
        lag_s += 5
        own_now = clock.at - timedelta(seconds=lag_s)
        done = completed(number, triggered_at=own_now - timedelta(seconds=2))
        opened = in_progress(number + 1)
        opened = replace(opened, header=replace(opened.header, triggered_at=own_now - timedelta(seconds=1)))
        seen = replace(job([done, opened]), config=_CONFIG, clock_offset_ms=round(-lag_s * 1000))
        # The clock of another job on the same target is correct.
        other = replace(job(name="other", run="b" * 32), config=None, clock_offset_ms=0)
        wanted = observation(target, seen, other, at=clock.at)
        await writer.write(replace(wanted, engine=RUNTIME, clock_offset_ms=0))
        await alerting.round()

    assert lag_s > 2 * 40
    assert await _states(engine) == []


async def test_a_job_that_restarts_again_and_again_is_paged_from_its_stored_exceptions(engine, clock, writer, target):
    alerting = Alerting(engine, clock)
    for number in range(1, 5):
        at = clock.at
        well = completed(number, triggered_at=at)
        seen = replace(job([well]), config=_CONFIG, exceptions=((at, f"lost {number}"),), restart_count=number)
        await writer.write(observation(target, seen, at=at))
        await alerting.round(seconds=30)

    assert [state for _, state, _ in await _states(engine)] == ["firing"]
    (text,) = await rows(engine, "SELECT annotations ->> 'summary' FROM alerts WHERE rule = 'JobRestarts'")
    assert "the job restarts every 30.0 s" in text[0]


async def test_stored_losses_of_output_page_and_are_the_verdict_and_no_restarts(engine, clock, writer, target):
    alerting = Alerting(engine, clock)
    for number in range(1, 5):
        at = clock.at
        told = losses.read(at, f"sink/0: {losses.EXCEPTION}: {losses.timed_out(100 * number, 1, 1_000)}")
        effects = ((clock.at, "after the start from id 7, 9 records met another watermark than before"),)
        seen = replace(job([completed(number, triggered_at=at)]), config=_CONFIG, losses=(told,), effects=effects)
        # The engine lists a loss again in each answer.
        for _ in range(2):
            await writer.write(observation(target, seen, at=at))
        await alerting.round(seconds=30)

    assert [(rule, state) for rule, state, _ in await _states(engine)] == [("RowsLost", "firing")]
    (text,) = await rows(engine, "SELECT annotations ->> 'summary' FROM alerts WHERE rule = 'RowsLost'")
    assert "output is lost: 1000 rows in 4 transactions since" in text[0]
    kinds = await rows(
        engine, "SELECT kind, count(*) FROM job_events WHERE kind <> 'run-started' GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in kinds] == [("restored", 4), ("rows-lost", 4)], "each once, and no exception"
    async with engine.connect() as connection:
        (case,) = await evidence.EvidenceReader(clock).cases(connection, await list_current(connection))
    assert case.finding.diagnosis.verdict.kind is VerdictKind.LOST_ROWS
    assert "1000 rows in 4 transactions" in case.finding.diagnosis.verdict.sentence


async def test_checkpoints_that_only_the_counters_show_page_and_name_the_finished_source(engine, clock, writer, target):
    async with writing(engine) as connection:
        [rule] = [r for r in await rules_in_force(connection) if r.rule.name == "CheckpointsRefused"]
        await save_rule(connection, changed(rule, RuleChange(is_enabled=True)), at=clock.at)
    alerting, config = Alerting(engine, clock), replace(_CONFIG, ends_with_first_task=True)
    well = completed(1, triggered_at=clock.at)
    over = Placement(SOURCE, ("host-1",), (None,), (0,), ("FINISHED",))
    for failed_count in range(8):
        counts = CheckpointCounts(0, 1 + failed_count, 0, 1, failed_count)
        seen = replace(
            job([well]), config=config, counts=counts, placements=(over,), started_at=well.header.triggered_at
        )
        await writer.write(observation(target, seen, at=clock.at))
        await alerting.round(seconds=5)

    assert [(rule, state) for rule, state, _ in await _states(engine)] == [("CheckpointsRefused", "firing")]
    (text,) = await rows(engine, "SELECT annotations ->> 'description' FROM alerts WHERE rule = 'CheckpointsRefused'")
    assert "checkpoints in a row failed without starting. None has begun for" in text[0]
    assert "has finished, and the job takes no checkpoint after that" in text[0]
    async with engine.connect() as connection:
        reader = evidence.EvidenceReader(clock)
        (case,) = await reader.cases(connection, await list_current(connection))
    assert (case.finding.diagnosis.health, case.finding.diagnosis.verdict.kind) == (
        Health.FAILING,
        VerdictKind.REFUSED,
    )

    await writer.write(observation(target, replace(seen, checkpoints=(in_progress(2),)), at=clock.at))
    await alerting.round()
    assert [state for _, state, _ in await _states(engine)] == ["resolved"]


async def test_no_alert_tells_of_a_job_whose_checkpoints_are_off(engine, clock, writer, target):
    alerting = Alerting(engine, clock)
    for _ in range(3):
        seen = replace(job([]), config=CheckpointConfig(timeout_ms=8_000, is_off=True), started_at=clock.at)
        await writer.write(observation(target, seen, at=clock.at))
        await alerting.round(seconds=600)
    async with engine.connect() as connection:
        (case,) = await evidence.EvidenceReader(clock).cases(connection, await list_current(connection))

    assert await _states(engine) == []
    assert case.finding.diagnosis.health is Health.OFF


async def test_ages_are_measured_up_to_the_last_reading(engine, clock, writer, target):
    seen = replace(job([completed(1, triggered_at=clock.at - timedelta(seconds=30))]), config=_CONFIG)
    await writer.write(observation(target, seen, at=clock.at))
    alerting = Alerting(engine, clock)

    # There is no alert yet. The last reading is not stale, and the job may have completed a checkpoint since then.
    await alerting.round(seconds=29)
    assert await _states(engine) == []

    await writer.write(observation(target, replace(seen, checkpoints=()), at=clock.at))
    await alerting.round(seconds=0)
    assert await _states(engine) == [("NoCompletedCheckpoint", "pending", "active")]


async def test_a_job_that_is_redeployed_before_it_completes_a_checkpoint_pages_once(engine, clock, writer, target):
    alerting = Alerting(engine, clock)
    well = replace(job([completed(1, triggered_at=clock.at)], run="f" * 32), config=_CONFIG)
    await writer.write(observation(target, well, at=clock.at))
    await writer.write(
        observation(target, replace(well, state=JobState.ENDED, ended_at=clock.at), at=clock.at + timedelta(seconds=1))
    )
    clock.at += timedelta(seconds=5)
    seen_states = []
    for number in range(9):
        # Each run lasts ten seconds, and the next run starts five seconds later.
        run = replace(job([failed(number + 2)], run=f"{number:032x}"), started_at=clock.at, config=_CONFIG)
        header = replace(run.checkpoints[0].header, triggered_at=clock.at)
        run = replace(run, checkpoints=(replace(run.checkpoints[0], header=header),))
        for _ in range(2):
            await writer.write(observation(target, run, at=clock.at))
            await alerting.round()
        over = replace(run, state=JobState.ENDED, engine_state="FAILED", ended_at=clock.at)
        await writer.write(observation(target, over, at=clock.at))
        await alerting.round()
        seen_states.append([s for _, s, _ in await _states(engine)])

    assert seen_states[4] == []
    assert seen_states[-1] == ["firing"]
    assert all(s in ([], ["pending"], ["firing"]) for s in seen_states), seen_states
    assert await rows(engine, "SELECT reading FROM alerts WHERE job_id IS NOT NULL") == [("unknown",)]

    # No further run follows, so the job counts as gone.
    await writer.write(observation(target, at=clock.at + timedelta(seconds=361)))
    await alerting.round(seconds=361)
    assert [s for _, s, _ in await _states(engine)] == ["resolved"]


async def test_the_number_of_statements_in_a_round_does_not_grow_with_jobs_or_alerts(
    engine, clock, writer, target, monkeypatch
):
    # In this test, time alone never causes a finding to be computed again.
    monkeypatch.setattr(evidence, "_STEP_S", 10**9)
    alerting, counts = Alerting(engine, clock), []

    @event.listens_for(engine.sync_engine, "before_cursor_execute")
    def _count(*_):
        counts[-1] += 1

    for job_count in (2, 6):
        ids = range(job_count)
        opened = [failed(1), in_progress(2, acknowledged_count=4)]
        for _ in range(3):
            seen = [
                replace(job(opened, name=f"j{i}", run=f"{i:032x}"), progress=(progress(2, 4, clock.at),)) for i in ids
            ]
            counts.append(0)
            await writer.write(observation(target, *seen, at=clock.at))
            clock.at += timedelta(seconds=5)
            counts.append(0)
            await alerting.runner.evaluate_once()
        told = await rows(engine, "SELECT state, evaluated_at FROM alerts WHERE job_id IS NOT NULL")
        assert told == [("firing", clock.at)] * job_count
        await alerting.runner.deliver_once()
        counts.append(0)
        await alerting.runner.deliver_once()
        assert counts[-1] <= 1, "one statement at most if no delivery is due"
        del counts[-1]

    # For each number of jobs, compare the third round, because the first two rounds stored everything that was new.
    few, many = counts[5], counts[11]
    assert few == many <= 33, counts


class _SlowClock(SteppingClock):
    """Each look at the monotonic time takes a second."""

    looked_count = 0

    def monotonic_s(self) -> float:
        self.looked_count += 1
        return float(self.looked_count)


async def test_past_checkpoints_are_read_in_parts_and_those_of_the_longest_open_checkpoint_first(
    engine, writer, target, monkeypatch
):
    clock = _SlowClock(NOW)
    monkeypatch.setattr(signals, "_PAST_BATCH", 1)
    monkeypatch.setattr(signals, "_PAST_BUDGET_S", 1.5)
    for n, run in enumerate("abc"):
        done = [completed(i, triggered_at=clock.at - timedelta(minutes=5 - i)) for i in (1, 2)]
        opened = in_progress(3)
        header = replace(opened.header, triggered_at=clock.at - timedelta(seconds=10 * (n + 1)))
        seen = replace(job([*done, replace(opened, header=header)], name=run, run=run * 32), config=_CONFIG)
        await writer.write(observation(target, seen, at=clock.at))
    reader = SignalReader(engine, clock, evidence.EvidenceReader(clock))

    async def past_counts():
        async with engine.connect() as connection:
            found = await reader.read(connection)
        opens = {s.name: s.opened for s in found.signals if isinstance(s, JobSignal)}
        return {name: len(o.past) if o.is_past_read else None for name, o in opens.items()}

    assert await past_counts() == {"a": None, "b": None, "c": 2}
    assert await past_counts() == {"a": None, "b": 2, "c": 2}
    assert await past_counts() == {"a": 2, "b": 2, "c": 2}


async def test_a_history_that_does_not_fit_into_its_size_limit_fires_and_resolves(engine, clock, writer, target):
    async with writing(engine) as connection:
        [rule] = [r for r in await rules_in_force(connection) if r.rule.name == "HistoryTooShort"]
        await save_rule(connection, changed(rule, RuleChange(is_enabled=True)), at=clock.at)
    await writer.write(observation(target, job([completed(1)]), at=clock.at))
    states = "SELECT state, labels ->> 'severity' FROM alerts WHERE rule = 'HistoryTooShort'"
    small = Alerting(engine, clock, retention=Retention(max_size_bytes=1))

    await small.round()
    assert await rows(engine, states) == []
    # There is no forecast before there are two hours of data.
    await small.round(seconds=7200)
    assert await rows(engine, states) == [("pending", "warning")]
    await small.round(seconds=600)
    assert await rows(engine, states) == [("firing", "warning")]
    [(text,)] = await rows(engine, "SELECT annotations ->> 'description' FROM alerts WHERE rule = 'HistoryTooShort'")
    assert text.startswith("The history will hold 0.0 days instead of 7.")

    await Alerting(engine, clock, retention=Retention(max_size_bytes=2**40)).round()
    assert await rows(engine, states) == [("resolved", "warning")]
