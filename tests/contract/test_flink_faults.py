"""Unreachable and broken targets over real HTTP: the error is clear, memory is bounded, and no checkpoint is lost."""

from __future__ import annotations

import asyncio
import gzip
import socket
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable

import orjson
import pytest
from aiohttp import web

from backend.domain.errors import (
    InvalidInputError,
    TargetProtocolError,
    TargetUnavailableError,
    UpstreamError,
)
from backend.domain.ids import TargetId
from backend.domain.observation import JobState
from collectors.flink.client import BODY_MAX_BYTES, open_transport, parse_target_url
from collectors.flink.collector import FlinkCollector
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, serve, serve_app, web_app
from tests.support.waiting import PATIENCE_S

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

pytestmark = pytest.mark.anyio


def app_of(handler: Handler) -> web.Application:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    return app


async def error_of(handler: Handler, *, timeout_s: float = PATIENCE_S) -> UpstreamError:
    """Send a GET to a server that answers every path with ``handler``, and return the error that it raises."""
    async with serve_app(app_of(handler)) as url, open_transport(url, timeout_s=timeout_s) as transport:
        with pytest.raises(UpstreamError) as caught:
            await transport.get("/jobs/overview?secret=1")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(url + "/jobs/overview: ")
    assert len(str(caught.value)) < 500
    return caught.value


async def test_a_refused_connection_is_unavailable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with open_transport(f"http://127.0.0.1:{port}", timeout_s=PATIENCE_S) as transport:
        with pytest.raises(TargetUnavailableError, match=r"cannot connect: .*refused"):
            await transport.get("/config")


async def test_a_name_that_does_not_resolve_is_unavailable() -> None:
    async with open_transport("http://no-such-host.invalid:8081", timeout_s=PATIENCE_S) as transport:
        with pytest.raises(TargetUnavailableError, match="does not resolve"):
            await transport.get("/config")


async def test_html_is_reported_as_html() -> None:
    async def html(_: web.Request) -> web.Response:
        return web.Response(text="<html><body>Welcome to nginx</body></html>", content_type="text/html")

    error = await error_of(html)
    assert isinstance(error, TargetProtocolError)
    assert "answers HTML, not Flink's JSON" in str(error)


async def test_html_with_the_content_type_of_json_is_recognised() -> None:
    async def html(_: web.Request) -> web.Response:
        return web.Response(text=" <!doctype html>", content_type="application/json")

    async with serve_app(app_of(html)) as url, open_transport(url, timeout_s=PATIENCE_S) as transport:
        with pytest.raises(TargetProtocolError, match=r"/config: the answer is not JSON .*: it looks like HTML"):
            await FlinkCollector(transport, target_id=TargetId("t")).collect(RecordedFlink(RECORDINGS / "A").now)


async def test_an_internal_error_gives_its_first_line_and_no_stack_trace() -> None:
    async def broken(_: web.Request) -> web.Response:
        trace = "java.util.NoSuchElementException: No value present\n\tat java.util.Optional.get"
        return web.json_response({"errors": ["Internal server error.", trace]}, status=500)

    error = await error_of(broken)
    assert isinstance(error, TargetProtocolError)
    assert error.status == 500
    assert error.reason == "HTTP 500: Internal server error."


async def test_truncated_json_is_malformed() -> None:
    async def half(_: web.Request) -> web.Response:
        return web.Response(text='{"jobs": [{"jid": "0123', content_type="application/json")

    async with serve_app(app_of(half)) as url, open_transport(url, timeout_s=PATIENCE_S) as transport:
        with pytest.raises(TargetProtocolError, match="the answer is not JSON"):
            await FlinkCollector(transport, target_id=TargetId("t")).collect(RecordedFlink(RECORDINGS / "A").now)


async def test_an_answer_that_breaks_off_is_malformed() -> None:
    async def broken_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"jobs": ')
        assert request.transport is not None
        request.transport.close()
        return response

    error = await error_of(broken_off)
    assert isinstance(error, TargetProtocolError)
    assert "broke off" in str(error)


@pytest.mark.parametrize("is_announced", [True, False], ids=["announced", "chunked"])
async def test_an_endless_answer_is_dropped_at_the_limit(is_announced: bool) -> None:
    written = 0

    async def huge(request: web.Request) -> web.StreamResponse:
        nonlocal written
        headers = {"Content-Type": "application/json"}
        if is_announced:
            headers["Content-Length"] = str(200 * 2**20)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        block = b" " * 2**16
        for _ in range(200 * 16):
            await response.write(block)
            written += len(block)
        return response

    tracemalloc.start()
    try:
        error = await error_of(huge)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, TargetProtocolError)
    assert "larger than 8 MiB" in str(error)
    assert written < 100 * 2**20
    assert peak_bytes < 8 * BODY_MAX_BYTES


async def test_a_gzip_bomb_is_dropped_at_the_limit() -> None:
    # Twice as large as the memory that is permitted. A larger one takes seconds to compress and proves no more.
    unpacked_bytes = 8 * BODY_MAX_BYTES
    bomb = gzip.compress(b" " * unpacked_bytes)
    assert len(bomb) < 2**20

    async def bombed(_: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        return web.Response(body=bomb, headers=headers)

    tracemalloc.start()
    try:
        error = await error_of(bombed)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "larger than 8 MiB" in str(error)
    assert peak_bytes < 4 * BODY_MAX_BYTES


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_compressed_answers_are_read(encoding: str) -> None:
    body = b'{"jobs": []}' * 1000
    packed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)

    async def compressed(_: web.Request) -> web.Response:
        return web.Response(body=packed, headers={"Content-Encoding": encoding, "Content-Type": "application/json"})

    async with serve_app(app_of(compressed)) as url, open_transport(url, timeout_s=PATIENCE_S) as transport:
        assert await transport.get("/jobs/overview") == body


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", b"not gzip at all"), ("gzip", gzip.compress(b"x" * 10_000)[:-20]), ("br", b"x")],
    ids=["garbage", "cut short", "not asked for"],
)
async def test_a_broken_encoding_is_malformed(encoding: str, body: bytes) -> None:
    async def compressed(_: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Encoding": encoding, "Content-Type": "application/json"})

    assert isinstance(await error_of(compressed), TargetProtocolError)


async def test_a_slow_answer_is_unavailable() -> None:
    never = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    error = await error_of(slow, timeout_s=0.2)
    assert isinstance(error, TargetUnavailableError)
    assert error.reason == "no answer within 0.2 s"


async def test_an_answer_that_trickles_is_unavailable() -> None:
    never = asyncio.Event()

    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b"{")
        await never.wait()
        return response

    assert isinstance(await error_of(trickle, timeout_s=0.2), TargetUnavailableError)


async def test_a_redirect_is_refused_and_not_followed() -> None:
    followed = []

    async def redirect(request: web.Request) -> web.Response:
        followed.append(request.path)
        raise web.HTTPFound("/elsewhere")

    error = await error_of(redirect)
    assert isinstance(error, TargetProtocolError)
    assert "redirect" in str(error)
    assert followed == ["/jobs/overview"]


async def test_a_server_that_does_not_speak_http_is_an_upstream_error() -> None:
    async def gibberish(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(gibberish, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with open_transport(f"http://127.0.0.1:{port}", timeout_s=PATIENCE_S) as transport:
            with pytest.raises(UpstreamError):
                await transport.get("/config")


async def test_credentials_are_sent_and_never_shown() -> None:
    seen = []

    async def refuse(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(status=401)

    async with serve_app(app_of(refuse)) as url:
        with_password = url.replace("http://", "http://operator:hunter2@")
        async with open_transport(with_password, timeout_s=PATIENCE_S) as transport:
            with pytest.raises(TargetProtocolError) as caught:
                await transport.get("/config")
            assert transport.url == url
    assert seen[0] is not None
    assert seen[0].startswith("Basic ")
    assert "hunter2" not in str(caught.value)
    assert "operator" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "flink:8081",
        "ftp://flink",
        "file:///etc/passwd",
        "http://",
        "http://flink:99999",
        "http://f/?a=b",
        "http://f/#x",
    ],
)
async def test_an_invalid_target_address_is_refused_by_field(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_target_url(text)
    assert caught.value.problems[0].field == "url"
    assert caught.value.problems[0].allowed


async def test_a_path_in_the_address_is_kept() -> None:
    asked = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path_qs)
        return web.json_response({})

    async with (
        serve_app(app_of(handle)) as url,
        open_transport(url + "/runtime/v1/", timeout_s=PATIENCE_S) as transport,
    ):
        await transport.get("/jobs/0/metrics?get=a.b,c")
    assert asked == ["/runtime/v1/jobs/0/metrics?get=a.b,c"]


# --- the collector over real HTTP ---------------------------------------------------------------------------------


@pytest.fixture
def flink() -> RecordedFlink:
    recorded = RecordedFlink(RECORDINGS / "B2")
    recorded.at_s = 40.0
    return recorded


async def test_the_collector_reads_the_same_over_http_as_in_memory(flink: RecordedFlink) -> None:
    in_memory = FlinkCollector(flink, target_id=TargetId("t"), monotonic_s=flink.monotonic_s)
    expected = await in_memory.collect(flink.now)
    async with serve(flink) as url, open_transport(url, timeout_s=PATIENCE_S) as transport:
        collector = FlinkCollector(transport, target_id=TargetId("t"), monotonic_s=flink.monotonic_s)
        seen = await collector.collect(flink.now)
    assert seen.jobs == expected.jobs
    assert seen.cost == expected.cost
    assert seen.cost.response_bytes > 10_000


class Breaking:
    """A recorded Flink that raises ``error`` for all requests after the first ``left``.

    Only requests whose path satisfies ``only`` are counted, and only these fail.
    """

    def __init__(self, flink: RecordedFlink, error: Exception) -> None:
        self._flink = flink
        self._error = error
        self.left = 10**9
        self.only: Callable[[str], bool] = lambda _: True
        self.url = flink.url

    async def get(self, path: str) -> bytes:
        if self.only(path):
            self.left -= 1
            if self.left < 0:
                raise self._error
        return await self._flink.get(path)


async def test_a_poll_that_fails_at_any_request_loses_and_duplicates_nothing(flink: RecordedFlink) -> None:
    whole = await FlinkCollector(flink, target_id=TargetId("t"), monotonic_s=flink.monotonic_s).collect(flink.now)
    expected = {c.header.checkpoint_id: c for c in whole.jobs[0].checkpoints}
    for left in range(whole.cost.request_count):
        breaking = Breaking(flink, TargetUnavailableError(url="x", reason="gone"))
        collector = FlinkCollector(breaking, target_id=TargetId("t"), monotonic_s=flink.monotonic_s)
        breaking.left = left
        try:
            # If the request for the history, or a request after it, fails, the poll returns what it read before the
            # failure.
            first = (await collector.collect(flink.now)).jobs[0].checkpoints
        except TargetUnavailableError:
            first = ()
        breaking.left = 10**9
        again = (await collector.collect(flink.now)).jobs[0].checkpoints
        seen = sorted((*first, *again), key=lambda c: len(c.details))
        assert {c.header.checkpoint_id: c for c in seen} == expected, left
        whole_ones = [c.header.checkpoint_id for c in seen if c.details and c.header.status.is_terminal]
        assert len(set(whole_ones)) == len(whole_ones), left
        once_more = await collector.collect(flink.now)
        assert [c for c in once_more.jobs[0].checkpoints if c.header.status.is_terminal] == [], left


async def test_details_that_are_missing_in_one_poll_are_read_in_the_next(
    flink: RecordedFlink,
) -> None:
    gone = TargetProtocolError(url="x", reason="HTTP 404: Job not found", status=404)
    breaking = Breaking(flink, gone)
    breaking.only = lambda path: "/details/" in path and "/subtasks/" in path
    breaking.left = 4
    collector = FlinkCollector(breaking, target_id=TargetId("t"), monotonic_s=flink.monotonic_s)
    first = (await collector.collect(flink.now)).jobs[0].checkpoints
    assert len([c for c in first if c.header.status.is_terminal]) >= 6
    assert len([c for c in first if c.header.status.is_terminal and c.details]) == 1
    breaking.left = 10**9
    flink.at_s += 1
    second = (await collector.collect(flink.now)).jobs[0].checkpoints
    seen = {c.header.checkpoint_id for c in (*first, *second) if c.details and c.header.status.is_terminal}
    assert seen >= {c.header.checkpoint_id for c in first if c.header.status.is_terminal}


async def test_a_detail_that_stays_gone_is_requested_twice_and_then_given_up(flink: RecordedFlink) -> None:
    breaking = Breaking(flink, TargetProtocolError(url="x", reason="HTTP 404", status=404))
    breaking.only = lambda path: "/details/" in path
    breaking.left = 0
    collector = FlinkCollector(breaking, target_id=TargetId("t"), monotonic_s=flink.monotonic_s)
    observations = [await collector.collect(flink.now) for _ in range(4)]
    asked = [-breaking.left]
    await collector.collect(flink.now)
    assert [c.details for c in observations[0].jobs[0].checkpoints] == [()] * len(observations[0].jobs[0].checkpoints)
    assert any("is gone" in p for p in observations[1].jobs[0].problems)
    terminal = [c for o in observations for c in o.jobs[0].checkpoints if c.header.status.is_terminal]
    assert len({c.header.checkpoint_id for c in terminal}) == len(terminal)
    # The collector still requests the details of the checkpoint in progress, but no longer those of terminal
    # checkpoints.
    assert -breaking.left - asked[0] <= 1


async def test_a_job_that_cannot_be_read_gets_a_problem_and_the_others_are_read(flink: RecordedFlink) -> None:
    job_id = flink.recording.job_id
    body = await flink.get("/jobs/overview")
    twin = "f" * 32

    class Two(Breaking):
        async def get(self, path: str) -> bytes:
            if path == "/jobs/overview":
                return body.replace(b"COPY", b"").replace(
                    b'{"jobs":[', b'{"jobs":[' + row_of(body, job_id).replace(job_id.encode(), twin.encode()) + b","
                )
            if path.startswith(f"/jobs/{twin}"):
                raise TargetProtocolError(url=self.url + path, reason="HTTP 500: Internal server error.", status=500)
            return await self._flink.get(path)

    two = Two(flink, RuntimeError())
    observation = await FlinkCollector(two, target_id=TargetId("t"), monotonic_s=flink.monotonic_s).collect(flink.now)
    by_id = {str(j.engine_run_id): j for j in observation.jobs}
    assert "HTTP 500" in by_id[twin].problems[0]
    assert by_id[twin].state is JobState.UNREADABLE
    assert by_id[job_id].state is JobState.RUNNING
    assert by_id[job_id].problems == ()
    assert len(by_id[job_id].checkpoints) >= 6


def row_of(overview: bytes, job_id: str) -> bytes:
    return orjson.dumps(next(r for r in orjson.loads(overview)["jobs"] if r["jid"] == job_id))


async def test_a_target_without_a_readable_job_is_malformed(flink: RecordedFlink) -> None:
    breaking = Breaking(flink, TargetProtocolError(url="x", reason="HTTP 500", status=500))
    breaking.only = lambda path: path.startswith("/jobs/") and path != "/jobs/overview"
    breaking.left = 0
    with pytest.raises(TargetProtocolError, match="HTTP 500"):
        await FlinkCollector(breaking, target_id=TargetId("t"), monotonic_s=flink.monotonic_s).collect(flink.now)


@pytest.mark.parametrize("part", ["/backpressure", "/metrics", "/exceptions", "/checkpoints/config", "/vertices/"])
async def test_the_failure_of_an_optional_request_costs_at_most_a_problem_line(flink: RecordedFlink, part: str) -> None:
    breaking = Breaking(flink, TargetProtocolError(url="x", reason="HTTP 500: No value present", status=500))
    breaking.only = lambda path: part in path
    breaking.left = 0
    collector = FlinkCollector(breaking, target_id=TargetId("t"), monotonic_s=flink.monotonic_s)
    job = (await collector.collect(flink.now)).jobs[0]
    assert len([c for c in job.checkpoints if c.details]) >= 6
    assert (part == "/backpressure") == (job.problems == ())


async def test_the_web_application_of_a_recording_gives_the_recorded_answers(flink: RecordedFlink) -> None:
    async with serve_app(web_app(flink)) as url, open_transport(url, timeout_s=PATIENCE_S) as transport:
        assert await transport.get("/config") == await flink.get("/config")
        with pytest.raises(TargetProtocolError) as caught:
            await transport.get("/nothing")
        assert caught.value.status == 404
