"""Simulations over a real store: the queue and its limits, results, cancelling, expiry, and a killed worker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.contracts.simulations import (
    SimulatedCheckpointOut,
    SimulationIn,
    SimulationOut,
    SimulationState,
    simulation_id_of,
)
from backend.services.simulations.catalog import LIMITS
from backend.services.simulations.simulating import SimulationStoppedError
from backend.services.simulations.simulating import run as simulate
from backend.services.simulations.worker import Pace, SimulationWorker
from collectors.base import pause
from tests.support.running_up import COMMAND
from tests.support.serving import api_over, asking
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

_SMALL = {"shape": "backpressured", "protocol": "aligned", "second_protocol": "unaligned", "duration_s": 6}
_LONG = {"shape": "backpressured", "protocol": "aligned", "duration_s": 300}


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.fixture
def worker(engine, clock):
    return SimulationWorker(engine, clock, name="in-process", pace=Pace(renew_s=0.01, look_s=0.01))


async def _submit(client, request=_SMALL, *, status=202):
    answer = await client.post("/api/v1/simulations", json=request)
    assert answer.status_code == status, answer.text
    return SimulationOut.model_validate_json(answer.content) if status == 202 else answer.json()


async def _read(client, simulation_id):
    answer = await client.get(f"/api/v1/simulations/{simulation_id}")
    assert answer.status_code == 200, answer.text
    return SimulationOut.model_validate_json(answer.content)


async def _until(client, simulation_id, condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition(await _read(client, simulation_id)):
            await pause(0.02, asyncio.Event())


async def test_a_simulation_is_queued_run_and_kept(client, worker):
    queued = await _submit(client)
    assert (queued.state, queued.queue_position, queued.runs) == (SimulationState.QUEUED, 0, [])

    assert await worker.turn(asyncio.Event())

    done = await _read(client, queued.id)
    assert (done.state, done.progress_ratio, done.queue_position) == (SimulationState.COMPLETED, 1.0, None)
    assert [r.protocol for r in done.runs] == ["aligned", "unaligned"]
    for run in done.runs:
        for checkpoint in run.checkpoints:
            answer = await client.get(checkpoint.link)
            found = SimulatedCheckpointOut.model_validate_json(answer.content)
            assert found.checkpoint.checkpoint_id == checkpoint.checkpoint_id
            assert found.barriers.events
    assert await _submit(client) == done.model_copy(update={"as_of": done.as_of})
    assert not await worker.turn(asyncio.Event())


async def test_what_does_not_exist_is_unknown(client, worker):
    queued = await _submit(client)
    await worker.turn(asyncio.Event())

    for path in ("snone", "snone/runs/0/checkpoints/1", f"{queued.id}/runs/0/checkpoints/99"):
        assert (await client.get(f"/api/v1/simulations/{path}")).status_code == 404
    assert (await client.delete("/api/v1/simulations/snone")).status_code == 404


async def test_a_simulation_that_is_too_large_is_refused_with_one_problem(client):
    problem = await _submit(client, _LONG | {"duration_s": 599}, status=422)

    assert problem["type"] == "urn:barrierscope:problem:simulation-too-large"
    assert "1,000,000" in problem["detail"]
    assert "run at most" in problem["detail"]
    assert [e["pointer"] for e in problem["errors"]] == ["duration_s"]


async def test_a_caller_has_a_limit_and_the_queue_too(engine, clock, client, worker):
    for seed in range(LIMITS.caller_max):
        await _submit(client, _SMALL | {"seed": seed})
    await _submit(client, _SMALL | {"seed": 0})
    assert "of your simulations" in (await _submit(client, _SMALL | {"seed": 100}, status=429))["detail"]

    async with engine.begin() as connection:
        await connection.execute(text("UPDATE simulations SET caller = 'another'"))
    async with engine.begin() as connection:
        for i in range(LIMITS.queue_max - LIMITS.caller_max):
            await connection.execute(
                text(
                    "INSERT INTO simulations (id, request, caller, state, queued_at)"
                    " SELECT :id, request, 'another', 'queued', queued_at FROM simulations LIMIT 1"
                ),
                {"id": f"s{i}"},
            )
    assert "queue is full" in (await _submit(client, _SMALL | {"seed": 100}, status=429))["detail"]

    await worker.turn(asyncio.Event())
    await _submit(client, _SMALL | {"seed": 100})


async def test_requests_at_the_same_time_do_not_exceed_the_limit(client):
    asked = [client.post("/api/v1/simulations", json=_SMALL | {"seed": s}) for s in range(2 * LIMITS.caller_max)]

    statuses = [a.status_code for a in await asyncio.gather(*asked)]
    assert sorted(statuses) == [202] * LIMITS.caller_max + [429] * LIMITS.caller_max


async def test_a_queued_simulation_can_be_cancelled_and_requested_again(client, worker):
    queued = await _submit(client)
    assert (await client.delete(f"/api/v1/simulations/{queued.id}")).status_code == 204

    assert (await _read(client, queued.id)).state is SimulationState.CANCELLED
    assert not await worker.turn(asyncio.Event())
    assert (await _submit(client)).state is SimulationState.QUEUED


async def test_a_running_simulation_is_cancelled(engine, clock, client):
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def until_stopped(request, progress, limits):
        progress.ratio = 0.25
        loop.call_soon_threadsafe(began.set)
        while not progress.is_stopped:
            pass
        raise SimulationStoppedError

    pace = Pace(renew_s=0.01, look_s=0.01)
    worker = SimulationWorker(engine, clock, name="in-process", pace=pace, simulate=until_stopped)
    queued = await _submit(client)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.turn(asyncio.Event()))
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        await _until(client, queued.id, lambda s: s.progress_ratio == 0.25)
        await client.delete(f"/api/v1/simulations/{queued.id}")

    ended = await _read(client, queued.id)
    assert (ended.state, ended.runs) == (SimulationState.CANCELLED, [])
    # Cancelling an ended simulation changes nothing.
    await client.delete(f"/api/v1/simulations/{queued.id}")
    assert await _read(client, queued.id) == ended


async def test_a_worker_that_stops_in_order_puts_its_simulation_back_into_the_queue(engine, clock, client):
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def with_stop(request, progress, limits):
        loop.call_soon_threadsafe(stop.set)
        return simulate(request, progress, limits)

    pace = Pace(renew_s=0.01, look_s=0.01)
    worker = SimulationWorker(engine, clock, name="in-process", pace=pace, simulate=with_stop)
    queued = await _submit(client, _LONG)
    await worker.run(stop)

    again = await _read(client, queued.id)
    assert (again.state, again.progress_ratio, again.started_at) == (SimulationState.QUEUED, 0.0, None)


async def test_a_bug_in_a_run_fails_that_simulation_only(engine, clock, client, worker):
    def broken(request, progress, limits):
        raise ZeroDivisionError

    queued = await _submit(client)
    await SimulationWorker(engine, clock, name="broken", simulate=broken).turn(asyncio.Event())

    failed = await _read(client, queued.id)
    assert failed.state is SimulationState.FAILED
    assert "unexpected error" in failed.reason


async def test_a_simulation_that_needs_too_much_cpu_fails_with_the_limit(engine, clock, client):
    queued = await _submit(client)
    limits = replace(LIMITS, cpu_max_s=0.0)
    await SimulationWorker(engine, clock, name="w", limits=limits).turn(asyncio.Event())

    assert "of CPU time" in (await _read(client, queued.id)).reason


async def test_an_idle_worker_keeps_a_result_of_the_example_for_visitors_who_come_without_a_request(
    engine, clock, client
):
    example = SimulationIn.model_validate(_SMALL | {"duration_s": 1})
    worker = SimulationWorker(engine, clock, name="w", example=example)
    await worker.keep_example()
    await worker.turn(asyncio.Event())

    kept = await _read(client, simulation_id_of(example))
    assert (kept.state, kept.is_example) == (SimulationState.COMPLETED, True)
    await worker.keep_example()
    assert not await worker.turn(asyncio.Event())
    clock.at += timedelta(seconds=LIMITS.kept_max_s)
    await worker.keep_example()
    assert (await _read(client, kept.id)).state is SimulationState.QUEUED


async def test_results_expire_and_only_the_newest_are_kept(engine, clock, client):
    worker = SimulationWorker(engine, clock, name="w", limits=replace(LIMITS, kept_max=2))
    ids = []
    for seed in range(3):
        ids.append((await _submit(client, _SMALL | {"seed": seed, "duration_s": 1})).id)
        await worker.turn(asyncio.Event())
        clock.at += timedelta(seconds=1)
    await worker.turn(asyncio.Event())

    statuses = [(await client.get(f"/api/v1/simulations/{i}")).status_code for i in ids]
    assert statuses == [404, 200, 200]
    clock.at += timedelta(seconds=LIMITS.kept_max_s)
    assert (await client.get(f"/api/v1/simulations/{ids[-1]}")).status_code == 404
    await worker.turn(asyncio.Event())
    async with engine.connect() as connection:
        for table in ("simulations", "simulated_checkpoints"):
            assert (await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one() == 0


async def test_a_killed_worker_leaves_a_failed_simulation_and_the_next_one_works_on(engine, database, client, worker):
    queued = await _submit(client, _LONG)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BARRIERSCOPE_")}
    environment["BARRIERSCOPE_DATABASE_URL"] = database
    process = subprocess.Popen([*COMMAND, "lab"], env=environment, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    try:
        await _until(client, queued.id, lambda s: s.state is SimulationState.RUNNING and s.progress_ratio > 0)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)

    assert not await worker.turn(asyncio.Event())
    assert (await _read(client, queued.id)).state is SimulationState.RUNNING, "its lease has not ended"
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE simulations SET lease_until = now() - interval '1 s'"))
    following = await _submit(client)
    assert await worker.turn(asyncio.Event())

    failed = await _read(client, queued.id)
    assert (failed.state, failed.runs) == (SimulationState.FAILED, [])
    assert "worker process ended" in failed.reason
    assert (await _read(client, following.id)).state is SimulationState.COMPLETED
