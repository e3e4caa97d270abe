"""An alert on a job whose checkpoints nearly all fail is one episode, from the first forecast to the recovery.

The job is the demo ``orders-aligned`` in virtual time. The collector reads it, the store keeps what was read, and the
alert role evaluates the rules. The engine's clock is 22 minutes behind the clock of the service.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.alerting.rules import RuleName, rule_of
from backend.domain.observation import JobState
from backend.runtime.demo import demo_path
from backend.runtime.engine.jobfile import load_job
from collectors.flink.collector import FlinkCollector
from tests.support.alerting import Alerting, rows, switch_off_rules_but
from tests.support.simulated_target import SimulatedTarget

pytestmark = pytest.mark.anyio

_POLL_S = 2.5
_FAILING_S, _HEALTHY_S = 180, 80
_RULES = (RuleName.CHECKPOINT_WILL_TIME_OUT, RuleName.CONSECUTIVE_FAILURES)


class _Watched:
    """The job, what collects it, and the alert role."""

    def __init__(self, job, engine, clock, writer, target):
        self.job, self.engine, self.clock, self.writer = job, engine, clock, writer
        self.collector = FlinkCollector(job, target_id=target, monotonic_s=job.monotonic_s)
        self.ends = {}

    async def run(self, seconds, *, restart_every_s):
        """Poll the job and evaluate the rules. Every ``restart_every_s``, another process takes over the alert role."""
        for number in range(round(seconds / _POLL_S)):
            if number % round(restart_every_s / _POLL_S) == 0:
                await self._take_over(f"process {number}")
            await self.job.sleep(_POLL_S)
            self.clock.at = self.job.now()
            observation = await self.collector.collect(self.clock.at)
            (seen,) = observation.jobs
            assert seen.state is JobState.RUNNING
            self.ends |= {c.header.checkpoint_id: c.header for c in seen.checkpoints if c.header.status.is_terminal}
            await self.writer.write(observation)
            await self.alerting.round(seconds=0)

    async def _take_over(self, holder):
        async with self.engine.begin() as connection:
            await connection.execute(text("UPDATE alert_evaluator SET expires_at = now() - interval '1 s'"))
        self.alerting = Alerting(self.engine, self.clock, holder=holder)


async def _episodes(engine):
    found = await rows(engine, "SELECT rule, state, began_at, ended_at FROM alerts WHERE job_id IS NOT NULL")
    return {rule: [tuple(rest) for name, *rest in found if name == rule] for rule in _RULES}


async def test_a_job_that_fails_every_time_has_one_episode_which_ends_soon_after_the_recovery(
    engine, clock, writer, target
):
    await switch_off_rules_but(engine, *_RULES, "Watchdog")
    async with SimulatedTarget([load_job(demo_path("backpressured"))], ahead_s=1320) as job:
        watched = _Watched(job, engine, clock, writer, target)
        await watched.run(_FAILING_S, restart_every_s=50)

        failing = await _episodes(engine)
        assert [state for state, *_ in failing[RuleName.CHECKPOINT_WILL_TIME_OUT]] == ["firing"]
        # More checkpoints failed than the list of the newest ones contains.
        in_a_row = max(watched.ends) - max(i for i, h in watched.ends.items() if h.failed_at is None)
        assert in_a_row > 16
        ((said,),) = await rows(
            engine, "SELECT annotations->>'summary' FROM alerts WHERE rule = 'ConsecutiveFailures' AND ended_at IS NULL"
        )
        assert said == f"orders-aligned: the last {in_a_row} checkpoints failed"

        changed_at = job.now()
        job.change_settings(0, {"execution.checkpointing.timeout": "1 min"})
        await watched.run(_HEALTHY_S, restart_every_s=50)

    recovered = await _episodes(engine)
    for rule in _RULES:
        assert [state for state, *_ in recovered[rule]] == ["resolved"] * len(recovered[rule])
    ((_, began_at, ended_at),) = recovered[RuleName.CHECKPOINT_WILL_TIME_OUT]
    assert began_at == failing[RuleName.CHECKPOINT_WILL_TIME_OUT][0][1]
    # The episode ends ``keep_firing_for_s`` after the second completed checkpoint. A checkpoint that is in progress
    # when the timeout is changed has the longer timeout too, so it may be the first of the two.
    done = sorted(
        completed_at
        for h in watched.ends.values()
        if h.failed_at is None
        and (completed_at := h.triggered_at + timedelta(seconds=1320, milliseconds=h.end_to_end_duration_ms))
        > changed_at
    )
    over_at = done[1] + timedelta(seconds=rule_of(RuleName.CHECKPOINT_WILL_TIME_OUT).keep_firing_for_s)
    assert over_at <= ended_at <= over_at + timedelta(seconds=3 * _POLL_S)
