"""Backtests of a job over the API: queued, run by a worker of the Lab, read, cancelled, and refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from backend.contracts.backtests import BacktestOut
from backend.contracts.simulations import SimulationState
from backend.domain.advice import AdviceState
from backend.domain.target import TargetOrigin
from backend.domain.verdict import VerdictKind
from backend.services.backtests import replaying
from backend.services.simulations.simulating import Progress, SimulationStoppedError
from backend.services.simulations.worker import Pace, SimulationWorker
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.advised_jobs import EXACTLY_ONCE, persisting, readings, slow_run
from tests.support.advised_targets import TIMED, AdvisedTarget
from tests.support.handwritten_jobs import START, quick
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(engine, writer, clock):
    """Yield a client of the API. The store has a job whose barriers wait, and then its changed settings."""
    clock.at = START + timedelta(seconds=60)
    new = NewTarget(url="http://127.0.0.1:18050/runtime/v1", name="demo", origin=TargetOrigin.API)
    target = AdvisedTarget(writer, (await TargetRepository(engine).add(new, at=START)).id, clock)
    await target.report(EXACTLY_ONCE, slow_run(12), readings(), at=START + timedelta(seconds=120))
    await target.report(TIMED, at=START + timedelta(seconds=130))
    after = [persisting(quick(n, 230), 270_000) for n in range(27, 40)]
    await target.report(TIMED, after, at=START + timedelta(seconds=210))
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.fixture
def url(engine):
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture
def worker(engine, clock, url):
    others = {replaying.KIND: partial(replaying.run, url)}
    return SimulationWorker(engine, clock, name="in-process", pace=Pace(renew_s=0.01, look_s=0.01), others=others)


async def _root(client):
    (row,) = (await client.get("/api/v1/jobs")).json()["items"]
    return f"/api/v1/jobs/{row['id']}"


async def _post(client, body, status=202):
    answer = await client.post(f"{await _root(client)}/backtests", json=body)
    assert answer.status_code == status, answer.text
    return BacktestOut.model_validate_json(answer.content) if status == 202 else answer.json()


async def _get(client, backtest):
    answer = await client.get(f"{await _root(client)}/backtests/{backtest.id}")
    assert answer.status_code == 200, answer.text
    return BacktestOut.model_validate_json(answer.content)


async def test_a_backtest_is_queued_run_and_says_what_would_have_been_said(client, worker):
    asked = await _post(client, {})
    assert (asked.state, asked.result, asked.queue_position) == (SimulationState.QUEUED, None, 0)
    assert (await _post(client, {})).id == asked.id

    assert await worker.turn(asyncio.Event())

    done = await _get(client, asked)
    assert (done.state, done.reason) == (SimulationState.COMPLETED, None)
    assert done.result.warning.checkpoint_count == done.result.verdict.checkpoint_count > 15
    (episode,) = done.result.verdict.episodes
    assert (episode.kind, episode.vertex) == (VerdictKind.CAPACITY, "last")
    (card,) = [c for c in done.result.advice.cards if c.topic == "mode"]
    assert card.state is AdviceState.VERIFIED
    assert any(p.is_inside for p in card.predictions)
    assert "unaligned" in card.changes[0].key
    # It is no simulation of the Lab, nor a backtest of another job.
    assert (await client.get(f"/api/v1/simulations/{done.id}")).status_code == 404
    assert (await client.get(f"/api/v1/jobs/jother/backtests/{done.id}")).status_code == 404


async def test_only_the_asked_parts_of_the_newest_checkpoints_are_replayed(client, worker):
    asked = await _post(client, {"parts": ["verdict"], "checkpoint_count": 5})
    await worker.turn(asyncio.Event())

    result = (await _get(client, asked)).result

    assert (result.warning, result.advice) == (None, None)
    assert result.verdict.checkpoint_count == 5


async def test_a_queued_backtest_can_be_cancelled(client, worker):
    asked = await _post(client, {})
    answer = await client.delete(f"{await _root(client)}/backtests/{asked.id}")

    assert answer.status_code == 204
    assert (await _get(client, asked)).state is SimulationState.CANCELLED
    assert not await worker.turn(asyncio.Event())


async def test_a_running_one_stops_when_it_is_asked_to(client, url):
    job = (await _root(client)).rpartition("/")[2]
    document = {"job_id": job, "request": {}}

    with pytest.raises(SimulationStoppedError):
        await asyncio.to_thread(replaying.run, url, document, Progress(is_stopped=True))


async def test_bad_requests_are_refused(client):
    for body, pointer in (
        ({"parts": []}, "#/parts"),
        ({"parts": ["everything"]}, "#/parts/0"),
        ({"checkpoint_count": 0}, "#/checkpoint_count"),
        ({"checkpoint_count": 1_000_000}, "#/checkpoint_count"),
        ({"since": "yesterday"}, "#/since"),
        ({"unknown": 1}, "#/unknown"),
    ):
        problem = await _post(client, body, status=422)
        assert [e["pointer"] for e in problem["errors"]] == [pointer]
    assert (await client.post("/api/v1/jobs/jother/backtests", json={})).status_code == 404
