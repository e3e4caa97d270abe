"""The roles api, collect and runtime run as in the chart, with one token, real sockets and a real store."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import pytest
import uvicorn
from sqlalchemy import text
from starlette.applications import Starlette

from backend.api import server
from backend.cli.built_in import watch_built_in
from backend.contracts.advice import RecommendationOut
from backend.domain.advice import AdviceState, Topic
from backend.domain.connection import ANYWHERE
from backend.domain.engines import RUNTIME
from backend.domain.errors import InvalidInputError, TargetProtocolError
from backend.domain.job_request import AbortCheckpoint, StartFrom, StopWithSavepoint, TriggerSavepoint
from backend.live.access import TokenToChange
from backend.live.driver import LiveJob, RuntimeDriver
from backend.live.engine import build_live_engine, job_run_id
from backend.live.rest import PREFIX, create_runtime_app
from backend.store.advice.cards import CardRecord, add_card
from backend.store.jobs.reader import list_current
from backend.store.postgres.connections import reading, writing
from backend.store.schema.partitions import Retention
from backend.store.wall_clock import WallClock
from collectors import role
from collectors.probe import probe
from collectors.settings import change_settings
from tests.support.advised_jobs import advised, mode_of, slow_run
from tests.support.running_up import free_port
from tests.support.runtime_jobs import small_job
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.anyio

TOKEN = "a-token-that-api-and-runtime-share"
_BEARER = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class Listener:
    """ASGI middleware that records the method, path and credential of each request."""

    app: Any
    heard: list[tuple[str, str, str]] = field(default_factory=list)

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"").decode()
            self.heard.append((scope["method"], scope["path"], given))
        await self.app(scope, receive, send)


@contextmanager
def _serving(app, port):
    running = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", ws="none"))
    thread = threading.Thread(target=running.run, name=f"serves-{port}")
    thread.start()
    try:
        until(lambda: running.started, "the server listens")
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join(PATIENCE_S)


@pytest.fixture
def live_job():
    """Return a job of the runtime that has run for two seconds and then no longer advances."""
    spec = small_job("aligned", records=None)
    began = time.time() - 2
    job = LiveJob(job_run_id(spec.name, int(began * 1000)), build_live_engine(spec), int(began * 1000), 0.0)
    job.engine.run_until(2_000_000)
    return job


@pytest.fixture
def runtime(live_job):
    app = TokenToChange(create_runtime_app(RuntimeDriver([live_job], lambda: 2.0), version="0.1.0"), TOKEN)
    listener = Listener(app)
    with _serving(listener, free_port()) as root:
        yield f"{root}{PREFIX}", listener


@pytest.fixture
def api_root(database):
    port = free_port()
    app = server.build(
        database,
        server.Listening("127.0.0.1", port, TOKEN),
        server.Parts(lambda **_: Starlette(), probe, change_settings),
        targets=ANYWHERE,
        retention=Retention(),
        alerting=server.AlertingOptions(),
    )
    with _serving(app, port) as root:
        yield f"{root}/api/v1"


async def _advise(engine, record):
    """Store a recommendation for the job, like those that the rules give, and return its settings as a patch."""
    card = mode_of(advised(slow_run(), engine=RUNTIME, version="0.1.0"))
    now = WallClock().now()
    document = RecommendationOut.model_validate(card).model_dump(mode="json")
    async with writing(engine) as connection:
        await add_card(
            connection,
            CardRecord(
                id="r1",
                job_id=record.id,
                run_id=record.run.id,
                topic=Topic.MODE,
                kind=card.kind,
                state=AdviceState.NEW,
                state_reason="given by the rules",
                created_at=now,
                changed_at=now,
                last_given_at=now,
                applied_at=None,
                document=document,
                measured=None,
            ),
        )
    return card.how_to.patch


async def _collected(engine, database):
    """Run the role ``collect`` until it has stored the job, and return the job."""
    stop = asyncio.Event()
    found = []
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(role.run(database_url=database, poll_interval_s=0.2, stop=stop))
        while not found:
            await asyncio.sleep(0.05)
            async with reading(engine) as connection:
                found = await list_current(connection)
        stop.set()
    return found[0]


async def test_settings_are_applied_to_our_own_runtime_and_its_token_is_sent_nowhere_else(
    engine, database, runtime, live_job, api_root
):
    root, listener = runtime
    await watch_built_in(database, root, WallClock())
    record = await _collected(engine, database)
    patch = await _advise(engine, record)
    before = dict(live_job.engine.settings())
    path = f"{api_root}/jobs/{record.id}/recommendations/r1/apply"

    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        assert (await client.post(path)).status_code == 401
        assert (await client.get(f"{api_root}/jobs", headers={"Authorization": "Bearer wrong"})).status_code == 401
        assert listener.heard
        assert {given for _, _, given in listener.heard} == {""}, "reading needs no credential, as with a real Flink"

        # A target that was added through the API never receives the token, even if its address is that of our
        # runtime, because it may be a foreign server.
        async with engine.begin() as connection:
            await connection.execute(text("UPDATE targets SET origin = 'api'"))
        answer = await client.post(path, headers=_BEARER)
        assert answer.status_code == 409, answer.text
        assert "answered HTTP 401: it wants credentials" in answer.json()["detail"]
        assert "a change needs the bearer token" in answer.json()["detail"]
        assert {given for _, _, given in listener.heard} == {""}
        assert live_job.engine.settings() == before

        async with engine.begin() as connection:
            await connection.execute(text("UPDATE targets SET origin = 'built-in'"))
        answer = await client.post(path, headers=_BEARER)
    assert (answer.status_code, answer.json()["state"]) == (200, "accepted"), answer.text
    assert TOKEN not in answer.text
    changed = {k: v for k, v in live_job.engine.settings().items() if before[k] != v}
    assert set(changed) == set(patch)
    told = [(method, path) for method, path, given in listener.heard if given]
    assert told == [("PATCH", f"{PREFIX}/jobs/{live_job.id}/settings")]


async def test_the_token_is_not_sent_to_the_target_of_a_redirect(runtime):
    root, listener = runtime

    async def elsewhere(scope, receive, send):
        if scope["method"] == "GET":
            # This server answers reads like a runtime, and redirects a change of settings.
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
            )
            await send({"type": "http.response.body", "body": config})
            return
        headers = [(b"location", f"{root}/jobs/x/settings".encode())]
        await send({"type": "http.response.start", "status": 307, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async with httpx.AsyncClient() as client:
        config = (await client.get(f"{root}/config")).content
    listener.heard.clear()
    with _serving(elsewhere, free_port()) as other, pytest.raises(TargetProtocolError, match="redirect"):
        await change_settings(
            other, "a" * 32, {"execution.checkpointing.interval": "1 s"}, 5.0, TOKEN, kind="flink", reach=ANYWHERE
        )
    assert listener.heard == []


async def test_requests_reach_the_live_runtime_with_the_token_only(runtime, live_job):
    root, listener = runtime
    send = partial(change_settings, root, live_job.id, timeout_s=5.0, kind="flink", reach=ANYWHERE)
    await send(TriggerSavepoint(), token=TOKEN)
    view = live_job.engine.view(job_id=live_job.id, origin_epoch_ms=0, lag_ms=0)
    pending = next(c for c in view.history if c.savepoint_format is not None)

    await send(AbortCheckpoint(pending.id), token=TOKEN)
    view = live_job.engine.view(job_id=live_job.id, origin_epoch_ms=0, lag_ms=0)
    aborted = next(c for c in view.history if c.id == pending.id)
    assert aborted.failure_message == "Checkpoint was aborted by a user."
    with pytest.raises(InvalidInputError, match="cannot be aborted"):
        await send(AbortCheckpoint(pending.id), token=TOKEN)
    with pytest.raises(TargetProtocolError, match="401"):
        await send(TriggerSavepoint(), token=None)
    given = [path for method, path, has_token in listener.heard if has_token]
    listener.heard.clear()
    await send(StopWithSavepoint(), token=TOKEN)
    location = f"runtime:/{live_job.id}/chk-1"
    with pytest.raises(InvalidInputError, match="SNK-3: the job still runs"):
        await send(StartFrom(location), token=TOKEN)
    with pytest.raises(TargetProtocolError, match="401"):
        await send(StartFrom(location), token=None)
    changes = {path for method, path, has_token in listener.heard if has_token}
    assert changes == {f"{PREFIX}/jobs/{live_job.id}/stop", f"{PREFIX}/jobs"}
    assert given[0] == f"{PREFIX}/jobs/{live_job.id}/savepoints"
    assert set(given[1:]) == {f"{PREFIX}/jobs/{live_job.id}/checkpoints/{pending.id}/abort"}
