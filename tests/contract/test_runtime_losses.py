"""The collector reads what a job of the live runtime lost, and what a restore changed, while the job runs on."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain.ids import target_id
from backend.domain.observation import JobState
from backend.domain.verdict import VerdictKind
from backend.live import starting
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


@pytest.mark.anyio
@pytest.mark.parametrize("stores", [False, True])
async def test_a_job_that_continues_another_says_how_many_records_met_another_watermark(stores: bool):
    """Rows 68 and 69. It is no exception and no restart, and it is read once it is known."""
    keyed: dict[str, object] = {"kind": "tag+sink", "store_watermark": stores}
    async with SimulatedTarget([small_job("unaligned", parallelism=1, records=None, keyed=keyed)]) as target:
        await target.sleep(1.0)
        first = target.driver.views()[0]
        assert first.latest_completed is not None
        target.driver.cancel(first.id)
        body = json.dumps({"savepointPath": first.latest_completed.external_path}).encode()
        starting.start(target.driver, starting.wanted_start(body))
        collector = FlinkCollector(target, target_id=target_id(url=target.url), monotonic_s=target.monotonic_s)
        found = []
        for seconds in (0.001, 6.0):
            await target.sleep(seconds)
            jobs = (await collector.collect(target.now())).jobs
            found.append(next(job for job in jobs if job.state is JobState.RUNNING))
        (restart,) = target.driver.job(target.driver.views()[1].id).engine.restarts()
    early, late = found
    assert (early.effects, [job.exceptions for job in found]) == ((), [(), ()])
    ((at, said),) = late.effects
    assert at <= target.now()
    assert said.startswith(f"after the start from {first.latest_completed.external_path}, ")
    met, without = restart["records_with_other_watermark"], restart["records_before_watermark"]  # type: ignore[index,call-overload]
    assert (met == 0) is stores
    assert f"{met} records met another watermark than before" in said
    assert (f"without store_watermark it would be {without}" in said) is stores
