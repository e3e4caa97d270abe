"""The collector reads the output that a job of the live runtime lost, while the job runs on without a restart."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain.ids import target_id
from backend.domain.verdict import VerdictKind
from collectors.flink.collector import FlinkCollector
from collectors.readings import Gathered
from tests.support.runtime_jobs import small_job
from tests.support.simulated_target import SimulatedTarget


@pytest.mark.anyio
async def test_losses_are_read_again_whenever_there_are_new_ones_and_are_no_exceptions_of_restarts():
    spec = small_job("aligned", records=None, config={"runtime.transaction-timeout": "100ms"})
    async with SimulatedTarget([spec]) as target:
        collector = FlinkCollector(target, target_id=target_id(url=target.url), monotonic_s=target.monotonic_s)
        found = []
        for seconds in (0.5, 0.5, 5.0):
            await target.sleep(seconds)
            found.append((await collector.collect(target.now())).jobs[0])
    first, _, last = found
    gathered = Gathered(first)
    gathered.add(first, target.now(), timedelta())
    diagnosis = diagnose(gathered.evidence())

    before, after = (sum(loss.row_count for loss in job.losses) for job in (first, last))
    assert 0 < before < after
    assert {loss.timeout_ms for loss in last.losses} == {100}
    assert [(job.exceptions, job.restart_count) for job in found] == [((), 0)] * 3
    assert diagnosis.verdict.kind is VerdictKind.LOST_ROWS
