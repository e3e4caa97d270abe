"""``diagnose URL`` at a history server and at a driver of Spark: which query suffers, and why."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import orjson
import pytest
from aiohttp import web

from backend.cli import app
from backend.domain.errors import TargetUnavailableError
from collectors.spark.history_server import HistoryServer as CollectedServer
from tests.contract.test_diagnose_bad_targets import serving
from tests.support.spark_history import (
    FOLDER,
    STARTED_MS,
    Application,
    HistoryServer,
    recorded,
    text_of,
    zstd,
)


def app_of(server: HistoryServer) -> web.Application:
    """What Spark answers: pages for unknown paths, as its UI does."""

    async def handle(request: web.Request) -> web.Response:
        if not request.path.startswith("/api/"):
            return web.Response(text="<html>Error 404</html>", content_type="text/html", status=404)
        if request.path.endswith("/sql"):
            return web.Response(body=(FOLDER / "sql_43.json").read_bytes(), content_type="application/json")
        status, body = server.answer(request.path_qs)
        kind = "application/octet-stream" if request.path.endswith("/logs") else "application/json"
        return web.Response(status=status, body=body, content_type=kind)

    found = web.Application()
    found.router.add_get("/{path:.*}", handle)
    return found


def application(**more: object) -> Application:
    found = Application(**more)  # type: ignore[arg-type]
    found.files = [(f"eventlog_v2_{found.id}/events_1_{found.id}.zstd", zstd(text_of(recorded())))]
    return found


def test_the_failing_query_of_a_history_server_is_named_with_its_error(capsys):
    ended = application(ended_ms=STARTED_MS + 60_000)
    with serving(app_of(HistoryServer([ended]))) as url:
        assert app.run(["diagnose", url]) == 0
        text = capsys.readouterr().out
        assert app.run(["diagnose", url, "--job", "orders-files", "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert app.run(["diagnose", url, "--fail-on", "failing"]) == 3

    assert text.startswith(f"{url} · Spark history server 4.3.0 · 3 jobs · ")
    assert "orders-app: orders-failing  failing" in text
    assert "order 60 has no customer" in text
    assert [job["job"] for job in document["jobs"]] == ["orders-app: orders-files"]


@pytest.fixture
def slow_driver():
    """A driver that is busy: its pages, such as that of its jobs, take longer than a request may take."""
    asked: list[str] = []
    listed = (FOLDER / "driver_43.json").read_bytes()

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path)
        if not request.path.startswith("/api/"):
            await asyncio.sleep(60)
        bodies = {
            "version": b'{"spark": "4.3.0"}',
            "applications": listed,
            "sql": (FOLDER / "sql_43.json").read_bytes(),
        }
        body = bodies.get(request.path.rpartition("/")[2])
        return web.Response(body=body or b"", status=404 if body is None else 200, content_type="application/json")

    found = web.Application()
    found.router.add_get("/{path:.*}", handle)
    with serving(found) as url:
        yield url, asked


def test_a_driver_whose_pages_are_slow_is_asked_for_none_of_them(slow_driver, capsys):
    url, asked = slow_driver

    assert app.run(["diagnose", url, "--deadline", "20s"]) == 0
    assert capsys.readouterr().out.startswith(f"{url} · Spark driver 4.3.0 · ")
    assert asked[0] == "/api/v1/version"
    assert [path for path in asked if not path.startswith("/api/")] == []


def test_a_driver_that_is_too_slow_at_first_is_asked_again(slow_driver, capsys, monkeypatch):
    """The first answer of a driver's REST takes long, because Spark then starts it."""
    url, asked = slow_driver
    real = CollectedServer.check
    calls: list[float] = []

    async def slow_at_first(server: CollectedServer) -> None:
        calls.append(time.monotonic())
        if len(calls) == 1:
            await asyncio.sleep(0.3)
            raise TargetUnavailableError(url=url, reason="no answer within 0.3 s")
        await real(server)

    monkeypatch.setattr(CollectedServer, "check", slow_at_first)
    monkeypatch.setattr("collectors.diagnose.TIMEOUT_S", 0.3)
    assert app.run(["diagnose", url, "--deadline", "20s"]) == 0

    assert capsys.readouterr().out.startswith(f"{url} · Spark driver 4.3.0 · ")
    assert "/jobs/overview" in asked


def test_a_server_that_does_not_answer_at_all_is_no_flink(capsys, monkeypatch):
    async def handle(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr("collectors.diagnose.TIMEOUT_S", 0.2)
    monkeypatch.setattr("collectors.spark.asking._TIMEOUT_S", 0.2)
    found = web.Application()
    found.router.add_get("/{path:.*}", handle)
    with serving(found) as url:
        assert app.run(["diagnose", url]) == 1

    error = capsys.readouterr().err.rpartition("\r")[2]
    assert error == f"barrierscope: {url}: no answer within 0.2 s, nor to Spark's /api/v1/version\n"


def named(name: str, *, silent_min: float, digit: int) -> Application:
    """A running application of which the log has grown this long ago. Its queries have ids of their own."""
    events = [e for e in recorded() if "Terminated" not in e["Event"]]
    text = text_of(events)
    for query in {e["progress"]["id"] for e in events if "progress" in e}:
        text = text.replace(query.encode(), f"{digit}{query[1:]}".encode())
    found = Application(id=f"local-{digit}", name=name, updated_ms=round(1000 * (time.time() - 60 * silent_min)))
    found.files = [(f"eventlog_v2_{found.id}/events_1_{found.id}.zstd", zstd(text))]
    return found


def jobs_of(capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, str, str]]:
    for job in json.loads(capsys.readouterr().out)["jobs"]:
        yield job["job"], job["verdict"]["kind"], job["verdict"]["sentence"]


def test_all_running_applications_are_read_however_long_ago_their_logs_have_grown(capsys):
    apps = [
        named("alpha", silent_min=0, digit=1),
        named("beta", silent_min=3, digit=2),
        named("gamma", silent_min=3000, digit=3),
    ]
    with serving(app_of(HistoryServer(apps))) as url:
        assert app.run(["diagnose", url, "--format", "json"]) == 0
    told = list(jobs_of(capsys))

    assert {job.partition(":")[0] for job, _, _ in told} == {"alpha", "beta", "gamma"}
    unknown = {job.partition(":")[0] for job, _, sentence in told if "not known whether the query runs" in sentence}
    assert unknown == {"gamma"}


def test_a_query_whose_log_has_not_grown_for_long_is_never_healthy_and_has_an_age(capsys):
    with serving(app_of(HistoryServer([named("alpha", silent_min=30, digit=1)]))) as url:
        assert app.run(["diagnose", url, "--format", "json"]) == 0
        told = list(jobs_of(capsys))
        assert app.run(["diagnose", url]) == 0
        out = capsys.readouterr().out

    assert len(told) == 3
    assert {kind for _, kind, _ in told} == {"undecided"}
    assert all("has not grown for 30 min" in sentence for _, _, sentence in told)
    assert out.count("newest batch: ") == out.count("unknown  not decided") == 3
    assert "healthy" not in out


def test_of_a_driver_the_running_and_the_failed_queries_are_shown(capsys):
    listed = orjson.loads((FOLDER / "driver_43.json").read_bytes())
    server = HistoryServer()
    server._answer = lambda path: (  # type: ignore[method-assign]
        (200, b'{"spark": "4.3.0"}') if path.endswith("version") else (200, orjson.dumps(listed))
    )
    with serving(app_of(server)) as url:
        assert app.run(["diagnose", url]) == 0
    out = capsys.readouterr().out

    assert out.startswith(f"{url} · Spark driver 4.3.0 · 3 jobs · ")
    assert "orders-app: orders-failing  failing" in out


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["--job", "none"], "no query is called 'none' (allowed: there is no query at all)", 2),
        ([], "no streaming query was found in 1 application", 0),
    ],
)
def test_a_history_server_without_queries_is_told(arguments, said, code, capsys):
    calm = Application(files=[("x", b'{"Event":"SparkListenerLogStart","Spark Version":"4.3.0"}\n')])
    with serving(app_of(HistoryServer([calm]))) as url:
        assert app.run(["diagnose", url, *arguments]) == code
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
