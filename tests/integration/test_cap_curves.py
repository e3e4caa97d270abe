"""Curves over the cap through the API and a real store: queued, run by the worker, kept, stopped and refused."""

from __future__ import annotations

import asyncio

import pytest

from backend.contracts.cap_curves import CapCurveOut
from backend.contracts.simulations import SimulationState
from backend.services.simulations import cap_curves
from backend.services.simulations.worker import Pace, SimulationWorker
from collectors.base import pause
from tests.support.serving import api_over, asking
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

_SMALL = {"shape": "backpressured", "parallelism": 2, "duration_s": 6, "caps_bytes": [8192, 0]}
_LONG = {"shape": "backpressured", "duration_s": 100}


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.fixture
def worker(engine, clock):
    pace = Pace(renew_s=0.01, look_s=0.01)
    return SimulationWorker(engine, clock, name="in-process", pace=pace, others={cap_curves.KIND: cap_curves.run})


async def _submit(client, request=_SMALL, *, status=202):
    answer = await client.post("/api/v1/cap-curves", json=request)
    assert answer.status_code == status, answer.text
    return CapCurveOut.model_validate_json(answer.content) if status == 202 else answer.json()


async def _read(client, curve):
    return CapCurveOut.model_validate_json((await client.get(f"/api/v1/cap-curves/{curve}")).content)


async def test_a_curve_is_queued_run_and_kept(client, worker):
    queued = await _submit(client)
    assert (queued.state, queued.queue_position, queued.points) == (SimulationState.QUEUED, 0, [])

    assert await worker.turn(asyncio.Event())

    done = await _read(client, queued.id)
    assert (done.state, done.progress_ratio) == (SimulationState.COMPLETED, 1.0)
    assert [(p.protocol, p.cap_bytes) for p in done.points] == [
        ("aligned", None), ("capped", 0), ("capped", 8192), ("unaligned", None),
    ]  # fmt: skip
    assert await _submit(client) == done.model_copy(update={"as_of": done.as_of})
    assert not await worker.turn(asyncio.Event())
    # It is no simulation, and no simulation is a curve.
    assert (await client.get(f"/api/v1/simulations/{queued.id}")).status_code == 404


async def test_a_running_curve_is_stopped_by_its_cancellation(client, worker):
    queued = await _submit(client, _LONG)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(worker.turn(asyncio.Event()))
        while (await _read(client, queued.id)).progress_ratio == 0:
            await pause(0.02, asyncio.Event())
        assert (await client.delete(f"/api/v1/cap-curves/{queued.id}")).status_code == 204

    assert (await _read(client, queued.id)).state is SimulationState.CANCELLED


async def test_what_cannot_be_drawn_is_refused_with_its_field(client):
    too_large = await _submit(client, _LONG | {"duration_s": 300}, status=422)
    assert too_large["type"] == "urn:barrierscope:problem:curve-too-large"
    assert [e["pointer"] for e in too_large["errors"]] == ["duration_s"]

    for wrong, pointer in (
        ({"caps_bytes": list(range(13))}, "caps_bytes"),
        ({"caps_bytes": []}, "caps_bytes"),
        ({"caps_bytes": [-1]}, "caps_bytes.0"),
        ({"shape": "round"}, "shape"),
        ({"settings": {"runtime.inflight-cap.bytes": "8 kb"}}, "settings.runtime.inflight-cap.bytes"),
    ):
        refused = await _submit(client, _SMALL | wrong, status=422)
        assert [e["pointer"].lstrip("#/").replace("/", ".") for e in refused["errors"]] == [pointer], refused


async def test_what_does_not_exist_is_unknown(client):
    assert (await client.get("/api/v1/cap-curves/cnone")).status_code == 404
    assert (await client.delete("/api/v1/cap-curves/cnone")).status_code == 404
