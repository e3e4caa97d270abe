"""Tests of the finders: when files and servers are read, and that each failure is a note and no list."""

from __future__ import annotations

import asyncio
import json
import os
import threading

import pytest
from aiohttp import web

from backend.domain.connection import ANYWHERE, ConnectionOptions, Reach, parse_reference
from backend.domain.discovery import FileSd, Found, HttpSd
from collectors.discovery import finding
from collectors.discovery.finding import LIST_MAX_BYTES, FileFinder, HttpFinder
from tests.support.recorded_flink import serve_app

pytestmark = pytest.mark.anyio


class Notes:
    """Keeps the notes of a finder."""

    def __init__(self):
        self.lists = []
        self.problems = []

    def found(self, found):
        self.lists.append([t.url for t in found.targets])

    def failed(self, problem):
        self.problems.append(problem)


async def no_pause(seconds, stop):
    return None


@pytest.fixture
def notes():
    return Notes()


def group(*addresses):
    return json.dumps([{"targets": list(addresses)}])


def finder(*patterns):
    return FileFinder(FileSd("fleet", tuple(map(str, patterns))), ANYWHERE, pause=no_pause)


def test_files_are_read_once_and_again_when_one_changes(tmp_path, notes):
    (tmp_path / "a.json").write_text(group("a:1"))
    (tmp_path / "b.yml").write_text("- targets: ['b:1']\n  labels: {x: y}\n")
    files = finder(tmp_path / "*.json", tmp_path / "b.yml")
    for _ in range(3):
        files.look(notes)
    (tmp_path / "c.json").write_text(group("c:1"))
    files.look(notes)

    assert notes.lists == [["http://a:1", "http://b:1"], ["http://a:1", "http://c:1", "http://b:1"]]
    assert notes.problems == []


def test_a_file_that_was_away_is_read_again_though_it_is_the_same(tmp_path, notes):
    path, away = tmp_path / "a.json", tmp_path / "away"
    path.write_text(group("a:1"))
    files = finder(path)
    files.look(notes)
    path.rename(away)
    files.look(notes)
    away.rename(path)
    files.look(notes)

    assert len(notes.problems) == 1
    assert notes.lists == [["http://a:1"]] * 2


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", "[", "a.json: is not JSON"),
        ("a.json", "{}", "a.json: is not a list of groups"),
        ("a.json", " " * (LIST_MAX_BYTES + 1), "larger than 8 MiB"),
        ("a.yml", "[", "a.yml: is not YAML"),
        ("a.yml", "- !!python/object/apply:os.system ['true']", "a.yml: is not YAML"),
        ("a.yml", "[" * 500, "nested too deeply"),
        ("a.yml", "- &g {targets: [" + "'a:1', " * 50 + "]}\n" + "- *g\n" * 90, "repeats parts of itself"),
        ("a.yml", "", "is not a list of groups"),
        ("a.yml", b"\xff", "is not YAML"),
        ("a.json", None, "there is no such file"),
        ("a.json", "folder", "not a regular file"),
        ("a.json", "pipe", "not a regular file"),
    ],
)
def test_a_wrong_or_missing_file_is_told_and_brings_no_list(tmp_path, notes, name, content, words):
    (tmp_path / "good.json").write_text(group("a:1"))
    path = tmp_path / name
    path.write_text(group("b:1"))
    files = finder(tmp_path / "good.json", path)
    files.look(notes)
    path.unlink()
    if content == "folder":
        path.mkdir()
    elif content == "pipe":
        os.mkfifo(path)
    elif content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    files.look(notes)

    assert len(notes.lists) == 1
    (problem,) = notes.problems
    assert words in problem

    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_text(group("b:1"))
    files.look(notes)
    assert len(notes.lists) == 2


class Server:
    """Answers with what the test set."""

    def __init__(self):
        self.answer = web.json_response([{"targets": ["a:1"]}])
        self.asked = []

    async def handle(self, request):
        self.asked.append((request.path_qs, request.headers.get("Authorization")))
        return self.answer


@pytest.fixture
async def served():
    server = Server()
    app = web.Application()
    app.router.add_get("/{any:.*}", server.handle)
    async with serve_app(app) as url:
        yield server, url


async def test_a_server_is_asked_with_its_path_query_and_credentials(served, notes):
    server, url = served
    connection = ConnectionOptions(bearer=parse_reference("env:SD"))
    section = HttpSd("consul", f"{url}/sd/", "tag=a%20b", connection=connection)
    assert await HttpFinder(section, Reach(environment={"SD": "hunter2"}), pause=no_pause).ask(notes)

    assert server.asked == [("/sd/?tag=a%20b", "Bearer hunter2")]
    assert notes.lists == [["http://a:1"]]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"status": 500}, "HTTP 500"),
        ({"status": 302, "headers": {"Location": "http://169.254.169.254/"}}, "redirect"),
        ({"text": "<html>", "content_type": "text/html"}, "HTML, not a list in JSON"),
        ({"text": "["}, "is not JSON"),
        ({"text": "{}"}, "is not a list of groups"),
        ({"status": 401}, "HTTP 401"),
    ],
)
async def test_every_other_answer_is_told_without_secrets_and_brings_no_list(served, notes, answer, words):
    server, url = served
    server.answer = web.Response(**answer)
    section = HttpSd("consul", url, "token=hunter2")
    assert not await HttpFinder(section, ANYWHERE, pause=no_pause).ask(notes)

    assert notes.lists == []
    (problem,) = notes.problems
    assert words in problem
    assert url in problem
    assert "hunter2" not in problem
    assert "Flink" not in problem
    assert len(server.asked) == 1


async def test_a_list_becomes_targets_in_a_thread_beside_the_event_loop(served, notes, monkeypatch):
    _, url = served
    threads = []

    def found_in(*args):
        threads.append(threading.current_thread())
        return Found()

    monkeypatch.setattr(finding, "found_in", found_in)
    assert await HttpFinder(HttpSd("consul", url), ANYWHERE, pause=no_pause).ask(notes)

    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


async def test_a_server_that_is_away_is_told(notes):
    section = HttpSd("consul", "http://127.0.0.1:9")
    assert not await HttpFinder(section, ANYWHERE, pause=no_pause).ask(notes)

    assert "http://127.0.0.1:9" in notes.problems[0]


async def test_a_list_that_was_refused_is_asked_for_again_soon(served):
    server, url = served
    server.answer = web.Response(status=500)
    pauses = []

    class Ended(Exception):
        pass

    async def pause(seconds, stop):
        pauses.append(seconds)
        server.answer = web.json_response([])
        if len(pauses) == 2:
            raise Ended

    with pytest.raises(Ended):
        await HttpFinder(HttpSd("consul", url, every_s=300.0), ANYWHERE, pause=pause).run(Notes(), asyncio.Event())

    assert pauses == [30.0, 300.0]
