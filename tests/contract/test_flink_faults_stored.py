"""Goal: a failing target shows its reason and age and stops no other target; the store loses and duplicates nothing.

Method: recordings of a real Flink are served over HTTP. Faults are switched on and off between and during
polls. The collector's own loop and role write to a real PostgreSQL. The stored rows must equal those of a run
without faults.
"""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any

import orjson
import pytest
from aiohttp import web
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.errors import TargetProtocolError
from backend.domain.ids import TargetId
from backend.domain.stored_form import expand
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.targets.targets import NewTarget, TargetRecord, TargetRepository
from backend.store.wall_clock import WallClock
from collectors import role
from collectors.base import FlinkTransport, pause
from collectors.flink.client import open_transport
from collectors.flink.collector import FlinkCollector
from collectors.loop import LoopOptions, TargetLoop
from tests.support.databases import Databases
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, recording, serve_app
from tests.support.recorded_values import expected_columns, instant, recorded_entries, recorded_subtasks
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

BOMB = gzip.compress(b" " * (64 * 2**20))
JSON = {"Content-Type": "application/json"}


async def dropped(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def html(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<html><h1>Sign in</h1></html>", content_type="text/html")


async def internal_error(_: web.Request) -> web.StreamResponse:
    return web.json_response(
        {"errors": ["Internal server error.", "java.lang.NullPointerException\n\tat x"]}, status=500
    )


async def half_a_json(_: web.Request) -> web.StreamResponse:
    return web.Response(text='{"jobs": [{"jid": "0123', content_type="application/json")


async def other_json(_: web.Request) -> web.StreamResponse:
    return web.json_response({"status": "UP"})


async def huge(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers=JSON)
    await response.prepare(request)
    for _ in range(200 * 16):
        await response.write(b" " * 2**16)
    return response


async def bomb(_: web.Request) -> web.StreamResponse:
    return web.Response(body=BOMB, headers=JSON | {"Content-Encoding": "gzip"})


async def silent(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


async def trickle(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers=JSON)
    await response.prepare(request)
    await response.write(b'{"jobs": [')
    await asyncio.Event().wait()
    return response


async def redirect(_: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("http://169.254.169.254/latest/meta-data/")


FAULTS: dict[str, tuple[Handler, str, str]] = {
    "dropped": (dropped, "unreachable", "connection lost"),
    "silent": (silent, "unreachable", "no answer within 0.3 s"),
    "trickle": (trickle, "unreachable", "no answer within 0.3 s"),
    "html": (html, "malformed", "answers HTML, not Flink's JSON"),
    "internal-error": (internal_error, "malformed", "HTTP 500: Internal server error."),
    "half-a-json": (half_a_json, "malformed", "the answer is not JSON"),
    "other-json": (other_json, "malformed", "the answer has no '"),
    "200-MB": (huge, "malformed", "the answer is larger than 8 MiB"),
    "gzip-bomb": (bomb, "malformed", "the answer is larger than 8 MiB"),
    "redirect": (redirect, "malformed", "answers by a redirect"),
}


class Served:
    """A recorded Flink served over HTTP.

    While ``fault`` is set, this fault answers every path, except those for which ``spares`` is true.
    """

    def __init__(self, name: str = "B2", at_s: float = 40.0, now: datetime | None = None) -> None:
        self.flink = RecordedFlink(RECORDINGS / name, at_s=at_s, now=now)
        self.fault: Handler | None = None
        self.spares: Callable[[str], bool] = lambda _: False
        self.app = web.Application()
        self.app.router.add_get("/{path:.*}", self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.fault is not None and not self.spares(request.path):
            return await self.fault(request)
        status, body = self.flink.answer(request.path_qs)
        return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


class RecordedClock:
    """A clock that shows the time of a recording."""

    def __init__(self, flink: RecordedFlink) -> None:
        self._flink = flink
        self.now = lambda: flink.now

    def monotonic_s(self) -> float:
        return self._flink.at_s


@asynccontextmanager
async def store_of(database: str) -> AsyncIterator[AsyncEngine]:
    engine = create_store_engine(database)
    try:
        yield engine
    finally:
        await engine.dispose()


async def rows(engine: AsyncEngine, query: str) -> list[tuple[Any, ...]]:
    async with engine.connect() as connection:
        return [tuple(row) for row in await connection.execute(text(query))]


async def history(engine: AsyncEngine) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows that must be the same, no matter how often the target failed.

    Run and job ids depend on the address of the target, and transaction ids on the server. The time of observation
    depends on the polls. All of these are left out.
    """
    ids = "- 'run_id' - 'job_id' - 'observed_at' - 'changed_xid'"
    return {
        "checkpoints": await rows(engine, f"SELECT to_jsonb(c) {ids} FROM checkpoints c ORDER BY checkpoint_id"),
        "details": await rows(
            engine, f"SELECT to_jsonb(d) {ids} FROM checkpoint_details d ORDER BY checkpoint_id, vertex_id"
        ),
        "runs": await rows(engine, "SELECT engine_run_id, started_at, counts, checkpoint_count FROM runs"),
    }


class _ByFault:
    """A transport with a timeout of 0.3 s while the fault makes the server hang, and with a long timeout otherwise."""

    def __init__(self, served: Served, patient: FlinkTransport, impatient: FlinkTransport) -> None:
        self._served, self._patient, self._impatient = served, patient, impatient
        self.url = patient.url

    async def get(self, path: str) -> bytes:
        hangs = self._served.fault in (silent, trickle)
        return await (self._impatient if hangs else self._patient).get(path)


async def polled(engine: AsyncEngine, served: Served, *, faulty: range, fault: Handler | None) -> TargetRecord:
    """Poll twelve times, with ``fault`` during the polls numbered in ``faulty``.

    Return the target's record after the last faulty poll, or after the last poll if no poll was faulty.
    """
    flink = served.flink
    clock = RecordedClock(flink)
    record = None
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve_app(served.app))
        repository = TargetRepository(engine)
        target = await repository.add(NewTarget(url=url, name="flink", origin=TargetOrigin.API), at=flink.now)
        patient = await stack.enter_async_context(open_transport(url, timeout_s=PATIENCE_S))
        impatient = await stack.enter_async_context(open_transport(url, timeout_s=0.3))
        transport = _ByFault(served, patient, impatient)
        loop = TargetLoop(
            target.id,
            FlinkCollector(transport, target_id=target.id, monotonic_s=flink.monotonic_s),
            IngestWriter(engine, clock=clock),
            clock=clock,
            pause=pause,
            random=random.Random(1).random,
            options=LoopOptions(),
        )
        for n in range(12):
            served.fault = fault if n in faulty else None
            await loop.poll()
            if n in faulty:
                record = await repository.get(target.id)
            flink.at_s += 3.0
        last = await repository.get(target.id)
        assert (last.state, last.reason) == ("ok", None)
        assert loop.state.failures_in_a_row == 0
    return record or last


@pytest.fixture(scope="module")
def undisturbed(databases: Databases) -> dict[str, list[tuple[Any, ...]]]:
    """Return the stored rows of a run without faults."""

    async def read() -> dict[str, list[tuple[Any, ...]]]:
        async with store_of(url) as engine:
            await polled(engine, Served(), faulty=range(0), fault=None)
            return await history(engine)

    with databases.migrated() as url:
        found = asyncio.run(read())
    assert len(found["checkpoints"]) >= 12
    return found


@pytest.mark.parametrize("name", FAULTS)
async def test_a_failing_target_shows_reason_and_age_and_nothing_is_lost_or_duplicated(
    database: str, undisturbed: dict[str, list[tuple[Any, ...]]], name: str
) -> None:
    fault, state, reason = FAULTS[name]
    async with store_of(database) as engine:
        served = Served()
        began_at = served.flink.now
        record = await polled(engine, served, faulty=range(3, 7), fault=fault)
        assert await history(engine) == undisturbed
    assert record.state == state
    assert record.reason is not None
    assert reason in record.reason
    assert "\n" not in record.reason
    times = (record.last_success_at, record.since, record.last_attempt_at)
    assert [None if at is None else (at - began_at).total_seconds() for at in times] == [6.0, 9.0, 18.0]


@pytest.mark.parametrize("part", ["/checkpoints", "/subtasks/", "/details/"])
@pytest.mark.parametrize("name", ["dropped", "internal-error", "half-a-json", "200-MB"])
async def test_a_fault_during_polls_loses_and_duplicates_nothing(
    database: str, undisturbed: dict[str, list[tuple[Any, ...]]], name: str, part: str
) -> None:
    async with store_of(database) as engine:
        served = Served()
        served.spares = lambda path: part not in path
        await polled(engine, served, faulty=range(1, 9, 2), fault=FAULTS[name][0])
        assert await history(engine) == undisturbed


# --- a job that is restarted under the same id ------------------------------------------------------------------------


class Relived:
    """A ``FlinkTransport`` that plays one recording for the first ``left`` requests, and then another recording.

    Both recordings appear under the same job id and name, like a job that was submitted again under its old id.
    """

    def __init__(self, first: RecordedFlink, second: RecordedFlink) -> None:
        self._lives = (first, second)
        self.left = 10**9
        self.url = first.url
        self.delays_overview = False

    async def get(self, path: str) -> bytes:
        self.left -= 1
        first, second = self._lives
        is_first = self.left >= 0 or (path == "/jobs/overview" and self.delays_overview)
        life = first if is_first else second
        ours, theirs = first.recording.job_id, life.recording.job_id
        try:
            body = await life.get(path.replace(ours, theirs))
        except TargetProtocolError as error:
            raise TargetProtocolError(url=self.url, reason=error.reason, status=error.status) from None
        if path == "/jobs/overview":
            listed = orjson.loads(body)["jobs"]
            rows = [row | {"name": "job"} for row in listed if row["jid"] == theirs]
            body = orjson.dumps({"jobs": rows})
        return body.replace(theirs.encode(), ours.encode())


@pytest.mark.parametrize("is_first_poll", [True, False], ids=["new-job", "known-job"])
@pytest.mark.parametrize("is_list_cached", [False, True], ids=["fresh-list", "cached-list"])
async def test_a_job_started_again_under_its_id_at_any_request_of_a_poll_gets_a_separate_run(
    database: str, is_list_cached: bool, is_first_poll: bool
) -> None:
    async with store_of(database) as engine:
        left = 0
        while await relived(engine, left, is_list_cached=is_list_cached, is_first_poll=is_first_poll):
            left += 1
    assert left >= 3


async def relived(engine: AsyncEngine, left: int, *, is_list_cached: bool, is_first_poll: bool) -> bool:
    """Switch to the second recording after ``left`` requests of a poll, and check what the next polls store.

    Return whether the poll sent more than ``left`` requests, so that the switch happened during the poll.
    """
    first, second = RecordedFlink(RECORDINGS / "B2", at_s=40.0), RecordedFlink(RECORDINGS / "E", at_s=60.0)
    both, now = Relived(first, second), second.now
    new = NewTarget(url=f"http://f-{left}-{is_list_cached}-{is_first_poll}", name="f", origin=TargetOrigin.API)
    target = await TargetRepository(engine).add(new, at=now)
    writer = IngestWriter(engine, clock=RecordedClock(second))
    collector = FlinkCollector(both, target_id=target.id, monotonic_s=second.monotonic_s)
    if not is_first_poll:
        await take(collector, writer, now)
    both.left, both.delays_overview = left, is_list_cached
    await take(collector, writer, now)
    is_reached = both.left < 0
    # Flink caches the list of jobs for some seconds, so only the next poll gets the list of the second recording.
    both.left, both.delays_overview = -1, False
    for _ in range(3):
        await take(collector, writer, now)
    of_target = f"JOIN runs r ON r.id = x.run_id WHERE r.target_id = '{target.id}'"
    headers = await rows(
        engine,
        f"SELECT r.started_at, x.checkpoint_id, x.triggered_at FROM checkpoints x {of_target}",
    )
    details = await rows(
        engine,
        "SELECT r.started_at, x.checkpoint_id, x.vertex_id, x.ack_delay_ms, x.subtask_count"
        f" FROM checkpoint_details x {of_target}",
    )
    where = f"left={left} cached={is_list_cached} first={is_first_poll}"
    lives = {life.recording.run["started"]: life for life in (first, second)}
    for started_at, checkpoint_id, triggered_at in headers:
        entry = recorded_entries(nearest(lives, started_at).recording)[checkpoint_id]
        assert triggered_at == instant(entry["trigger_timestamp"]), (where, checkpoint_id)
    for started_at, checkpoint_id, vertex_id, stored, count in details:
        body = recorded_subtasks(nearest(lives, started_at).recording)[checkpoint_id, vertex_id]
        expected = expected_columns(body)["ack_delay_ms"]
        assert expand(stored, count) == expected, (where, checkpoint_id, vertex_id)
    answer = second.recording.last(f"/jobs/{second.recording.job_id}/checkpoints", second.at_s)
    assert answer is not None
    of_second = [cid for started_at, cid, _ in headers if nearest(lives, started_at) is second]
    assert sorted(of_second) == sorted(entry["id"] for entry in answer[1]["history"]), where
    return is_reached


def nearest(lives: dict[float, RecordedFlink], started_at: datetime) -> RecordedFlink:
    return lives[min(lives, key=lambda s: abs(s - started_at.timestamp()))]


async def take(collector: FlinkCollector, writer: IngestWriter, now: datetime) -> None:
    try:
        observation = await collector.collect(now)
    except TargetProtocolError:
        return
    await writer.write(observation)


# --- the collector's role with all faults at the same time ------------------------------------------------------------


async def test_broken_targets_do_not_stop_a_good_one_and_no_credential_is_logged(
    database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    # The recording ends now, because the store accepts only checkpoints within its retention.
    good = Served(at_s=recording(RECORDINGS / "B2").end_s, now=WallClock().now())
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(store_of(database))
        repository = TargetRepository(engine)

        async def add(url: str, name: str) -> TargetId:
            return (
                await repository.add(
                    NewTarget(url=url, name=name, origin=TargetOrigin.CONFIGURATION), at=WallClock().now()
                )
            ).id

        ids = {"good": await add(await stack.enter_async_context(serve_app(good.app)), "good")}
        for name, (handler, _, _) in FAULTS.items():
            served = Served()
            served.fault = handler
            url = await stack.enter_async_context(serve_app(served.app))
            ids[name] = await add(url.replace("http://", "http://operator:hunter2@"), name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ids["refused"] = await add(f"http://operator:hunter2@127.0.0.1:{free.getsockname()[1]}", "refused")
        ids["no-address"] = await add("gopher://operator:hunter2@x", "no-address")
        ids["no-name"] = await add("http://operator:hunter2@no-such-host.invalid", "no-name")

        async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE_S):
            group.create_task(role.run(database_url=database, poll_interval_s=0.1, stop=stop))
            while True:
                records = {name: await repository.get(target_id) for name, target_id in ids.items()}
                (count,) = (await rows(engine, "SELECT COALESCE(max(poll_count), 0) FROM target_health"))[0]
                # These targets hang. They fail only after the request timeout of 10 s, so the test does not wait for
                # them.
                slow = {"silent", "trickle"}
                if count >= 20 and all(r.state != "pending" for n, r in records.items() if n not in slow):
                    break
                await pause(0.02, stop)
            stop.set()
    output = "".join(capfd.readouterr())
    assert records["good"].state == "ok"
    for name, record in records.items():
        if name in FAULTS and name not in slow:
            assert record.state == FAULTS[name][1], name
            assert FAULTS[name][2] in (record.reason or ""), name
        assert "hunter2" not in (record.reason or ""), name
    assert (records["refused"].state, records["no-address"].state) == ("unreachable", "malformed")
    assert "the name does not resolve" in (records["no-name"].reason or "")
    assert "operator" not in output
    assert "hunter2" not in output
