"""Reads the recorded logs of two real history servers, and those of servers that are slow, large, broken or hostile."""

from __future__ import annotations

import asyncio
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import orjson
import pytest
from aiohttp import web

from backend.domain.checkpoint import CheckpointStatus
from backend.domain.clock import from_epoch_ms
from backend.domain.connection import ANYWHERE
from backend.domain.errors import TargetProtocolError, TargetUnavailableError
from backend.domain.ids import target_id
from backend.domain.micro_batch import BatchPhase
from backend.domain.observation import JobObservation, JobState, KnownRun, Observation
from collectors.base import KnownRuns
from collectors.flink.client import open_transport
from collectors.spark.collector import LogCollector, LogOptions, tasks
from collectors.spark.history_server import HistoryServer as Server
from collectors.spark.kind import SPARK
from collectors.spark.read_application import APPLICATION_ENDED
from tests.support.recorded_flink import serve_app
from tests.support.spark_history import (
    STARTED_MS,
    Application,
    HistoryServer,
    batch_of,
    recorded,
    text_of,
    zipped,
    zstd,
)

pytestmark = pytest.mark.anyio


@dataclass
class Watch:
    """A collector of a served history server. ``s`` is its monotonic time."""

    server: HistoryServer
    collector: LogCollector
    url: str
    s: float = 0.0
    now_ms: int = STARTED_MS + 20_000

    async def poll(self) -> Observation:
        return await self.collector.collect(from_epoch_ms(self.now_ms))

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.s += seconds
        self.now_ms += round(1000 * seconds)

    async def logs_asked(self) -> list[str]:
        """Poll once, and return the logs that were asked for."""
        self.server.asked.clear()
        await self.poll()
        return [path for path, _ in self.server.asked if path.endswith("/logs")]


@dataclass
class Handler:
    """Answers with what the server says, as the types that a history server sends."""

    server: HistoryServer

    async def handle(self, request: web.Request) -> web.StreamResponse:
        status, body = self.server.answer(request.path_qs)
        if request.path.endswith("/logs") and status == 200:
            if "octet-stream" not in request.headers["Accept"]:
                return web.Response(status=406)
            return web.Response(body=body, content_type="application/octet-stream")
        return web.Response(status=status, body=body, content_type="application/json")


@asynccontextmanager
async def watching(
    *apps: Application,
    options: LogOptions | None = None,
    handler: Callable[[HistoryServer], object] = Handler,
    known: KnownRuns | None = None,
) -> AsyncIterator[Watch]:
    server = HistoryServer(list(apps))
    app = web.Application()
    app.router.add_get("/{path:.*}", handler(server).handle)  # type: ignore[attr-defined]
    async with (
        serve_app(app) as url,
        open_transport(url, timeout_s=30.0, engine="Spark") as transport,
        tasks() as start,
    ):
        watch: Watch
        collector = LogCollector(
            Server(transport), target_id(url=url), known or {}, lambda: watch.s, start, options or LogOptions()
        )
        watch = Watch(server, collector, url)
        yield watch
        collector.close()


def of_35() -> Application:
    """The recorded application of 3.5: one plain file."""
    return Application(id="local-35", files=[("local-35", text_of(recorded("35")))], ended_ms=STARTED_MS + 90_000)


def rolling(*parts: bytes, **more: object) -> Application:
    """An application with a rolling log, whose files a server sends in no order."""
    app = Application(**more)  # type: ignore[arg-type]
    app.files = [
        (f"eventlog_v2_{app.id}/appstatus_{app.id}", b""),
        *((f"eventlog_v2_{app.id}/events_{n}_{app.id}.zstd", zstd(part)) for n, part in enumerate(parts, 1)),
    ][::-1]
    return app


def lines(*numbers: int) -> bytes:
    """The events of the query with these batches."""
    events = [e for e in recorded() if "windowed" in str(e) or "LogStart" in e["Event"]]
    return text_of(e for e in events if batch_of(e) in numbers or (batch_of(e) == -1 and -1 in numbers))


def job_of(observation: Observation, name: str) -> JobObservation:
    return next(job for job in observation.jobs if job.name == f"orders-app: {name}")


def numbers_of(job: JobObservation) -> list[int]:
    return [c.header.checkpoint_id for c in job.checkpoints]


@pytest.mark.parametrize(
    "app", [of_35(), rolling(text_of(recorded()), ended_ms=STARTED_MS + 60_000)], ids=["3.5", "4.3"]
)
async def test_the_queries_of_a_real_application_are_read_as_its_listener_would_report_them(app):
    async with watching(app) as watch:
        found = await watch.poll()

    windowed, failing = job_of(found, "orders-windowed"), job_of(found, "orders-failing")
    assert {job.name for job in found.jobs} == {f"orders-app: orders-{n}" for n in ("windowed", "files", "failing")}
    assert (windowed.state, windowed.engine_state) == (JobState.ENDED, "STOPPED")
    assert (failing.state, failing.engine_state) == (JobState.ENDED, "FAILED")
    last = windowed.checkpoints[2]
    assert last.batch is not None
    assert last.header.end_to_end_duration_ms
    assert last.batch.phase_ms(BatchPhase.ADD_BATCH)
    assert last.batch.state is not None
    assert last.batch.state.store_count == 2
    broken = failing.checkpoints[-1].header
    assert (broken.checkpoint_id, broken.status) == (1, CheckpointStatus.FAILED)
    assert "order 60 has no customer" in str(broken.failure_message)
    assert not found.engine.is_pushed


async def test_a_log_is_parsed_from_where_it_was_read_whatever_the_order_of_its_files():
    app = rolling(lines(-1, 0, 1), lines(2))
    async with watching(app) as watch:
        first = await watch.poll()
        app.files = rolling(lines(-1, 0, 1), lines(2, 3), lines(4)).files
        app.updated_ms += 1
        watch.later(5)
        second = await watch.poll()

    assert numbers_of(job_of(first, "orders-windowed")) == [0, 1, 2]
    assert numbers_of(job_of(second, "orders-windowed")) == [3, 4]


async def test_a_file_that_compaction_has_made_repeats_nothing():
    app = rolling(lines(-1, 0), lines(1))
    async with watching(app) as watch:
        await watch.poll()
        folder = f"eventlog_v2_{app.id}"
        app.files = [
            (f"{folder}/events_2_{app.id}.zstd.compact", zstd(3 * lines(0, 1))),
            (f"{folder}/events_3_{app.id}.zstd", zstd(lines(2))),
        ]
        app.updated_ms += 1
        watch.later(5)
        found = await watch.poll()

    assert numbers_of(job_of(found, "orders-windowed")) == [2]


async def test_the_unfinished_end_of_a_log_is_read_once_it_is_whole():
    whole = lines(-1, 0, 1)
    app = Application(files=[("local-1.inprogress", whole[:-40])])
    async with watching(app) as watch:
        first = await watch.poll()
        app.files, app.updated_ms = [("local-1.inprogress", whole + lines(2)[:50])], app.updated_ms + 1
        watch.later(5)
        second = await watch.poll()
        app.files, app.ended_ms = [("local-1", whole + lines(2))], app.updated_ms
        app.updated_ms += 1
        third = await watch.poll()

    assert numbers_of(job_of(first, "orders-windowed")) == [0]
    assert numbers_of(job_of(second, "orders-windowed")) == [1]
    assert numbers_of(job_of(third, "orders-windowed")) == [2]
    ended = job_of(third, "orders-windowed")
    assert (ended.state, ended.ended_at) == (JobState.ENDED, from_epoch_ms(app.ended_ms or 0)) or (
        ended.engine_state == "STOPPED"
    )


async def test_a_query_without_an_end_has_ended_with_its_application():
    app = rolling(text_of(e for e in recorded() if not e["Event"].endswith("TerminatedEvent")))
    async with watching(app) as watch:
        running = await watch.poll()
        app.ended_ms = app.updated_ms = app.updated_ms + 5000
        watch.later(5)
        ended = await watch.poll()
        after = await watch.poll()

    assert job_of(running, "orders-windowed").state is JobState.RUNNING
    found = job_of(ended, "orders-windowed")
    assert (found.state, found.engine_state, found.ended_at) == (
        JobState.ENDED,
        APPLICATION_ENDED,
        from_epoch_ms(app.updated_ms),
    )
    assert after.jobs == ()


async def test_a_log_that_does_not_grow_leaves_open_whether_its_driver_runs():
    app = rolling(lines(-1, 0))
    async with watching(app) as watch:
        await watch.poll()
        watch.later(1790)
        job = job_of(await watch.poll(), "orders-windowed")

    assert job.state is JobState.UNKNOWN
    assert job.problems == ("its event log has not grown for 30 min, so it is not known whether its driver still runs",)


async def test_the_attempts_of_an_application_are_read_apart():
    first = rolling(lines(-1, 0), attempt="1", ended_ms=STARTED_MS + 9_000)
    async with watching(first) as watch:
        await watch.poll()
        assert [path for path, _ in watch.server.asked if "logs" in path] == [f"{first.path}"]
        assert "/1/logs" in first.path


# --- what it costs the history server -------------------------------------------------------------------------------


def thousand() -> list[Application]:
    """950 applications without a query, of which 20 run, and 50 that stream and run."""
    calm = Application(files=[("x", text_of(e for e in recorded() if "Streaming" not in e["Event"]))]).files
    apps = [
        Application(id=f"app-{n}", name=f"batch {n}", files=calm, ended_ms=None if n < 20 else STARTED_MS + n)
        for n in range(950)
    ]
    return apps + [rolling(lines(-1, 0), id=f"streaming-{n}", name=f"job {n}") for n in range(50)]


async def test_of_a_thousand_applications_only_those_with_queries_are_read_again():
    apps = thousand()
    async with watching(*apps, options=LogOptions(wait_s=120.0)) as watch:
        everything = await watch.logs_asked()
        idle = await watch.logs_asked()
        idle_requests, idle_bytes = len(watch.server.asked), sum(size for _, size in watch.server.asked)
        for app in apps:
            app.updated_ms += 1 if app.ended_ms is None else 0
        watch.later(5)
        busy = await watch.logs_asked()
        busy_requests, busy_bytes = len(watch.server.asked), sum(size for _, size in watch.server.asked)

    assert len(everything) == 1000
    assert (idle, idle_requests) == ([], 1)
    assert idle_bytes < 350_000
    assert sorted(busy) == sorted(app.path for app in apps if app.id.startswith("streaming"))
    assert busy_requests == 51
    assert busy_bytes < 450_000


async def test_a_large_log_is_fetched_less_often():
    app = rolling(lines(-1, 0))
    async with watching(app, options=LogOptions(rate_bytes_per_s=10.0)) as watch:
        await watch.poll()
        size = len(zipped(app.files))
        app.updated_ms += 1
        watch.later(size / 10 - 1)
        before = await watch.logs_asked()
        watch.later(2)
        after = await watch.logs_asked()

    assert (before, after) == ([], [app.path])


async def test_a_running_application_without_queries_is_looked_at_less_and_less_often():
    app = Application(files=[("x", text_of(e for e in recorded() if "Streaming" not in e["Event"]))])
    looked = []
    async with watching(app, options=LogOptions(quiet_first_s=10, quiet_most_s=40)) as watch:
        for second in range(0, 200, 5):
            app.updated_ms += 1
            if await watch.logs_asked():
                looked.append(second)
            watch.later(5)

    assert looked == [0, 10, 30, 70, 110, 150, 190]


# --- hostile and broken answers -------------------------------------------------------------------------------------

GOOD = rolling(lines(-1, 0), lines(1), lines(2)).files


def _cut() -> bytes:
    """The newest file is whole, and the one before it is not."""
    whole = zipped(GOOD)
    return whole[: whole.index(b"events_2_") + 100]


def _changed() -> bytes:
    whole = bytearray(zipped([("x", text_of(recorded()))]))
    whole[500] ^= 0xFF
    return bytes(whole)


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        pytest.param(b"<html>log in</html>", "it is no zip", id="page"),
        pytest.param(b"", "breaks off before its end", id="nothing"),
        pytest.param(_cut(), "breaks off before its end", id="cut"),
        pytest.param(_changed(), "damaged", id="changed"),
        pytest.param(zipped([("../../etc/events_1_x", b"{}")]), "leads out of the archive", id="path"),
        pytest.param(zipped([("/etc/events_1_x", b"{}")]), "leads out of the archive", id="root"),
        pytest.param(zipped([("events_2_x", b"\x00\x01binary")]), "it is no event log", id="binary"),
        pytest.param(zipped([("events_2_x", b"LZ4Block....")]), "spark.eventLog.compression.codec to zstd", id="codec"),
    ],
)
async def test_a_bad_archive_is_one_sentence_and_nothing_is_lost(archive, said):
    app = rolling(lines(-1, 0))
    async with watching(app) as watch:
        await watch.poll()
        app.files, app.archive = GOOD, archive
        app.updated_ms += 1
        watch.later(5)
        job = job_of(await watch.poll(), "orders-windowed")
        app.archive = None
        watch.later(60)
        again = job_of(await watch.poll(), "orders-windowed")

    assert job.state is JobState.UNREADABLE
    (problem,) = job.problems
    assert problem.startswith(f"the event log of orders-app ({app.id}) cannot be read: ")
    assert said in problem
    assert "\n" not in problem
    assert numbers_of(again) == [1, 2]
    assert again.state is JobState.RUNNING


async def test_an_archive_that_is_a_bomb_is_refused_in_bounded_memory(monkeypatch):
    monkeypatch.setattr("collectors.spark.log_stream.RATIO_FREE_BYTES", 8 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = b'{"Event":"x"}' + b" " * (1 << 20) + b"\n"
    packed = b"".join([packer.compress(block) for _ in range(256)] + [packer.flush()])
    head = b"PK\x03\x04\x14\x00\x08\x00\x08\x00" + bytes(16) + b"\x01\x00\x00\x00" + b"x"
    app = Application(archive=head + packed)
    async with watching(app) as watch:
        tracemalloc.start()
        with pytest.raises(TargetProtocolError, match="unpacks to more than 500 times its size"):
            await watch.poll()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert peak < 40 << 20


async def test_an_entry_with_a_huge_line_is_passed_over_and_what_follows_is_read(monkeypatch):
    monkeypatch.setattr("collectors.spark.log_stream.LINE_BYTES", 1 << 20)
    huge = b'{"Event":"' + b"StreamingQueryListener$Query" + b"x" * (4 << 20) + b'"}\n'
    app = Application(files=[("local-1", lines(-1, 0) + huge + lines(1))])
    async with watching(app) as watch:
        found = await watch.poll()

    assert numbers_of(job_of(found, "orders-windowed")) == [0, 1]


class Page:
    """Answers everything with a login page."""

    def __init__(self, server: HistoryServer) -> None:
        self.server = server

    async def handle(self, request: web.Request) -> web.Response:
        return web.Response(text='<html><input type="password"></html>', content_type="text/html")


class Hanging(Handler):
    """Begins to send a log, and never ends."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/logs"):
            return await super().handle(request)
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        await response.prepare(request)
        await response.write(zipped(GOOD)[:100])
        await asyncio.Event().wait()
        return response


async def test_a_log_that_never_ends_keeps_no_thread_for_ever(monkeypatch):
    monkeypatch.setattr("collectors.spark.history_server.WHOLE_S", 0.3)
    async with watching(rolling(lines(-1, 0)), handler=Hanging) as watch:
        with pytest.raises(TargetProtocolError, match="it did not arrive within"):
            await watch.poll()


async def test_a_login_page_is_told_from_spark():
    async with watching(handler=Page) as watch:
        with pytest.raises(TargetProtocolError, match="answers with a login page, not Spark's JSON"):
            await watch.poll()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"Spark is starting up. Please wait a while until it's ready.", "Spark is still starting there"),
        (b'[{"id": "a"}]', "has no 'name'"),
        (b'[{"id": "a", "name": "b", "attempts": [{"completed": 1}]}]', "true or false is needed"),
        (b'{"applications": []}', "an array is needed"),
    ],
)
async def test_a_wrong_list_is_one_sentence(body, said, monkeypatch):
    monkeypatch.setattr(HistoryServer, "_answer", lambda self, path: (200, body if "version" not in path else VERSION))
    async with watching() as watch:
        with pytest.raises(TargetProtocolError, match=said) as raised:
            await watch.poll()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("updated_ms", [2**63 - 1, -(2**63), 253_402_300_800_000, -62_135_596_800_001])
async def test_a_time_of_a_log_that_no_calendar_has_keeps_no_other_log_from_being_read(updated_ms):
    odd = Application(id="odd", files=[("odd", lines())], updated_ms=updated_ms)
    app = Application(files=[("local-1", lines(-1, 0))])
    async with watching(odd, app) as watch:
        found = await watch.poll()
        probed = await SPARK.probe(watch.url, 10.0, reach=ANYWHERE)  # type: ignore[misc]

    assert [numbers_of(job) for job in found.jobs] == [[0]]
    assert probed.summary.startswith("Spark history server 4.3.0")


VERSION = b'{"spark": "4.3.0"}'


async def test_a_server_that_has_just_started_lists_nothing_and_ends_no_query():
    app = rolling(lines(-1, 0))
    async with watching(app) as watch:
        await watch.poll()
        apps, watch.server.apps = watch.server.apps, []
        with pytest.raises(TargetUnavailableError, match="as a history server does that has just started"):
            await watch.poll()
        watch.server.apps = apps
        back = await watch.poll()
        watch.server.apps = []
        with pytest.raises(TargetUnavailableError):
            await watch.poll()
        watch.later(200)
        absent = await watch.poll()
        watch.later(600)
        gone = await watch.poll()
        after = await watch.poll()

    assert job_of(back, "orders-windowed").state is JobState.RUNNING
    (job,) = absent.jobs
    assert job.state is JobState.UNKNOWN
    assert job.problems == ("no application that is listed has this query, so it is not known whether it still runs",)
    assert [(job.state, job.engine_state) for job in gone.jobs] == [(JobState.ENDED, "NOT LISTED")]
    assert after.jobs == ()


async def known_of(app: Application) -> KnownRuns:
    """The runs of an application as the database has them after they were read."""
    async with watching(app) as watch:
        found = await watch.poll()
    return {(job.engine_run_id, job.started_at): KnownRun(job.name) for job in found.jobs}


async def test_a_collector_and_a_server_that_start_together_end_no_query():
    app = rolling(lines(-1, 0))
    async with watching(known=await known_of(app)) as watch:
        with pytest.raises(TargetUnavailableError, match="as a history server does that has just started"):
            await watch.poll()
        watch.server.apps = [app]
        found = await watch.poll()

    assert [job.state for job in found.jobs] == [JobState.RUNNING]


async def test_a_query_is_found_again_although_its_log_has_not_grown_since_before_the_collector_started():
    app = rolling(lines(-1, 0))
    other = rolling(lines(-1, 0), id="other", name="not known")
    async with watching(app, other, known=await known_of(app)) as watch:
        watch.later(2 * 3600)
        silent = await watch.logs_asked()
        found = await watch.poll()
        app.updated_ms = watch.now_ms
        watch.later(5)
        grown = await watch.poll()

    assert silent == [app.path]
    assert [(job.state, job.engine_state) for job in found.jobs] == [(JobState.UNKNOWN, "ACTIVE")]
    assert [job.state for job in grown.jobs] == [JobState.RUNNING]


async def test_a_server_that_lists_its_applications_little_by_little_ends_no_query():
    apps = [rolling(lines(-1, 0), id=f"app-{n}", name=f"job {n}") for n in range(22)]
    async with watching(*apps) as watch:
        await watch.poll()
        states = []
        for listed_count in (0, 1, 21, 22):
            watch.server.apps = apps[:listed_count]
            watch.later(40)
            with suppress(TargetUnavailableError):
                states += [{job.state for job in (await watch.poll()).jobs}]

    assert states == [{JobState.RUNNING, JobState.UNKNOWN}] * 2 + [{JobState.RUNNING}]


async def test_a_query_that_no_application_has_after_a_restart_ends_once_that_has_lasted():
    app, other = rolling(lines(-1, 0)), Application(id="other", files=[("x", b"")])
    async with watching(other, known=await known_of(app)) as watch:
        first = await watch.poll()
        watch.later(599)
        before = await watch.poll()
        watch.later(1)
        gone = await watch.poll()
        after = await watch.poll()

    states = [[(job.state, job.engine_state) for job in found.jobs] for found in (first, before, gone, after)]
    assert states == [[(JobState.UNKNOWN, "ACTIVE")]] * 2 + [[(JobState.ENDED, "NOT LISTED")], []]


async def test_an_application_that_is_absent_is_asked_for_now_and_then():
    app, other = rolling(lines(-1, 0)), Application(id="other", files=[("x", b"")])
    async with watching(app, other) as watch:
        await watch.poll()
        watch.server.apps = [other]
        watch.server.asked.clear()
        for _ in range(13):
            await watch.poll()
            watch.later(5)

    assert [path for path, _ in watch.server.asked].count(f"/api/v1/applications/{app.id}") == 3


async def test_an_application_that_fell_out_of_the_list_is_asked_for_by_its_id():
    app = rolling(lines(-1, 0))
    other = Application(id="other", files=[("x", b"")])
    async with watching(app, other) as watch:
        await watch.poll()
        app.ended_ms, app.updated_ms = app.updated_ms + 1, app.updated_ms + 2
        app.files = rolling(lines(-1, 0, 1)).files
        listed = HistoryServer._answer
        watch.server._answer = lambda path: (  # type: ignore[method-assign]
            (200, orjson.dumps([other.listed()])) if path == "/api/v1/applications" else listed(watch.server, path)
        )
        watch.later(5)
        found = job_of(await watch.poll(), "orders-windowed")

    assert (found.state, numbers_of(found)) == (JobState.ENDED, [1])


async def test_the_test_of_a_connection_says_what_answers_and_how_much_streams():
    apps = [rolling(lines(-1, 0)), Application(id="calm", name="calm", files=[("x", b"")])]
    async with watching(*apps) as watch:
        probed = await SPARK.probe(watch.url, 10.0, reach=ANYWHERE)  # type: ignore[misc]

    assert probed.summary == (
        "Spark history server 4.3.0, 2 applications running or ended within an hour, 1 with streaming queries"
    )
    assert probed.running_jobs == ("orders-app: orders-windowed",)
