"""``diagnose`` on unreachable, broken or hostile targets gives a result or one typed error, but never a traceback."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from contextlib import contextmanager

import pytest
from aiohttp import web

from backend.domain.errors import InvalidInputError, TargetProtocolError, TargetUnavailableError, WrongRootError
from collectors import diagnose
from collectors.diagnosis_print import escaped
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, serve_app, served, web_app
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.usefixtures("diagnose_without_pauses")


@contextmanager
def serving(app):
    """Serve the application in a thread on a free port, and yield its URL."""
    ready, box = threading.Event(), {}

    async def main() -> None:
        box["stop"], box["loop"] = asyncio.Event(), asyncio.get_running_loop()
        async with serve_app(app) as url:
            box["url"] = url
            ready.set()
            await box["stop"].wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert ready.wait(PATIENCE_S)
    try:
        yield box["url"]
    finally:
        box["loop"].call_soon_threadsafe(box["stop"].set)
        thread.join(PATIENCE_S)


def answering(body, content_type="application/json", status=200):
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=content_type, status=status)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    return app


class Renamed(RecordedFlink):
    """A recorded Flink that reports other names for its job and its vertices."""

    def __init__(self, at_s: float, *, job: str, vertex: str) -> None:
        super().__init__(RECORDINGS / "B2", at_s)
        self.job, self.vertex = job, vertex

    def answer(self, path):
        status, body = super().answer(path)
        if path == "/jobs/overview":
            rows = [row | {"name": self.job} for row in body["jobs"]]
            return status, body | {"jobs": rows}
        if path == f"/jobs/{self.recording.job_id}":
            vertices = [row | {"name": self.vertex} for row in body["vertices"]]
            return status, body | {"name": self.job, "vertices": vertices}
        return status, body


def test_an_address_without_a_listener_is_unavailable():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(TargetUnavailableError):
            diagnose.run(url, job=None, output_format="text")


@pytest.mark.parametrize(
    "app",
    [
        pytest.param(answering(b"<html>login</html>", "text/html"), id="html"),
        pytest.param(answering(b'{"jobs": [{"jid"'), id="half a json"),
        pytest.param(answering(b'{"jobs": 3}'), id="another shape"),
        pytest.param(answering(b'{"errors": ["boom"]}', status=500), id="500"),
    ],
)
def test_a_target_that_is_not_flink_is_a_protocol_error(app, capsys):
    with serving(app) as url, pytest.raises(TargetProtocolError):
        diagnose.run(url, job=None, output_format="json")

    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("wrong", ["/#/overview", "/#/job/running/0123/overview", "/?x=secret", "/jobs", "/flink"])
def test_a_wrong_root_is_answered_with_the_right_one(wrong, capsys):
    with served(RecordedFlink(RECORDINGS / "B2", 58.0)) as url, pytest.raises(WrongRootError) as raised:
        diagnose.run(url + wrong, job=None, output_format="json")

    assert raised.value.root == url
    assert "secret" not in str(raised.value)
    assert capsys.readouterr().out == ""


def test_a_page_of_something_else_than_flink_is_refused_for_its_form():
    with serving(answering(b"{}")) as url, pytest.raises(InvalidInputError, match="query or fragment"):
        diagnose.run(f"{url}/#/overview", job=None, output_format="text")


@pytest.mark.parametrize("url", ["", "my-flink:8081", "ftp://my-flink", "http://"])
def test_an_address_that_is_not_valid_is_rejected(url):
    with pytest.raises(InvalidInputError):
        diagnose.run(url, job=None, output_format="text")


def test_an_unknown_format_is_rejected_with_the_valid_ones():
    with pytest.raises(InvalidInputError, match="text, json, markdown"):
        diagnose.run("http://127.0.0.1:1", job=None, output_format="yaml")


def test_an_unknown_job_is_rejected_with_the_names_of_the_jobs():
    with served(RecordedFlink(RECORDINGS / "H", 58.0)) as url, pytest.raises(InvalidInputError) as raised:
        diagnose.run(url, job="orders", output_format="text")

    assert "no job is called 'orders'" in str(raised.value)
    assert "F, F-unaligned, G, H" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_cluster_without_any_job_is_an_empty_answer(capsys):
    async def handle(request: web.Request) -> web.Response:
        found = {"/jobs/overview": {"jobs": []}, "/config": {"flink-version": "1.20.5"}}.get(request.path)
        return web.json_response(found if found is not None else {}, status=200 if found else 404)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    with serving(app) as url:
        assert diagnose.run(url, job=None, output_format="json") == 0
        assert json.loads(capsys.readouterr().out) == {"jobs": [], "limits": []}
        assert diagnose.run(url, job=None, output_format="markdown") == 0
        assert "No job." in capsys.readouterr().out
        assert diagnose.run(url, job=None, output_format="text") == 0


def test_a_target_that_fails_after_the_first_reading_still_gives_an_answer(capsys):
    flink = RecordedFlink(RECORDINGS / "B2", 58.0)
    seen = {"overviews": 0}
    inner = web_app(flink)

    @web.middleware
    async def failing(request, handler):
        if request.path == "/jobs/overview":
            seen["overviews"] += 1
        if seen["overviews"] > 2:
            return web.Response(status=503, text="gone")
        return await handler(request)

    inner.middlewares.append(failing)
    with serving(inner) as url:
        assert diagnose.run(url, job=None, output_format="json") == 0

    answer = capsys.readouterr()
    assert json.loads(answer.out)["jobs"][0]["verdict"]["kind"] == "capacity"
    assert [line.partition(": ")[2][:21] for line in answer.err.splitlines()] == [
        "reading 4 of 4 failed",
        "reading 3 of 4 failed",
        "reading 2 of 4 failed",
    ]


HOSTILE = "a|b `c` <img src=x onerror=alert(1)> [x](http://evil.example) *d* _e_ @team #1 \\ \x1b[31mred\r\nnext"


@pytest.mark.parametrize("output_format", ["text", "json", "markdown"])
def test_hostile_names_are_shown_as_plain_text(capsys, output_format):
    with served(Renamed(58.0, job=HOSTILE, vertex=HOSTILE)) as url:
        assert diagnose.run(url, job=None, output_format=output_format) == 0
    out = capsys.readouterr().out

    assert "\x1b" not in out
    assert "\r" not in out
    if output_format == "json":
        assert "<img" in json.loads(out)["jobs"][0]["verdict"]["vertex"]
    if output_format == "markdown":
        body = out.split("\n", 1)[1]
        assert "<img" not in body.replace(r"\<img", "")
        assert not re.search(r"(?<!\\)\]\(", body)
        assert "@team" not in body
        assert "http://evil" not in body
        assert "`c`" not in body.replace(r"\`c\`", "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("slow-stage-2 -> sink: Writer", r"slow-stage-2 -\> sink: Writer"),
        ("1. first", r"1\. first"),
        ("- item", r"\- item"),
        ("1.8 s", "1.8 s"),
        ("a\nb", "a b"),
        ("&lt;", "&amp;lt;"),
        ("a|b", r"a\|b"),
    ],
)
def test_characters_with_a_meaning_in_markdown_are_escaped(text, shown):
    assert escaped(text) == shown
