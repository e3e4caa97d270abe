"""``diagnose --watch`` in a real pseudo-terminal, on a recorded cluster, and what it refuses."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
import pytest
from aiohttp import web

from backend.cli.app import run
from tests.contract.test_diagnose_bad_targets import serving
from tests.contract.test_diagnose_spark import app_of, application
from tests.packaging.wheel_environment import ROOT
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, served
from tests.support.running_up import free_port
from tests.support.spark_history import FOLDER, STARTED_MS, HistoryServer
from tests.support.waiting import PATIENCE_S

_ENTERED, _LEFT, _CURSOR_SHOWN, _CURSOR_HIDDEN = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?25l"


class _Terminal:
    """A pseudo-terminal with the command in it."""

    def __init__(self, url: str, *options: str) -> None:
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 110, 0, 0))
        self.before = termios.tcgetattr(self.theirs)
        self.output = b""
        command = [sys.executable, "-m", "backend.cli", "diagnose", url, "--watch", *options]
        # What decides the size of the screen is this terminal, not the one in which the tests run.
        environment = {n: v for n, v in os.environ.items() if n not in ("COLUMNS", "LINES")} | {
            "TERM": "xterm-256color"
        }
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), self.theirs)
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, **streams)

    def read_until(self, pattern: bytes) -> None:
        """Read what the command prints until ``pattern`` is found in it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.output, re.S):
            assert time.monotonic() < deadline_s, self.output[-2000:]
            assert self._read() or self.process.poll() is None, self.output[-2000:]

    def press(self, keys: bytes) -> None:
        """Type keys. What is printed before them does not count any more."""
        self.output = b""
        os.write(self.ours, keys)

    def end(self) -> int:
        """Return the exit code, after everything that the command printed was read."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline_s
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def _read(self) -> bool:
        if not select.select([self.ours], [], [], 0.2)[0]:
            return False
        self.output += os.read(self.ours, 65536)
        return True


@contextmanager
def _watching(url: str, *options: str) -> Iterator[_Terminal]:
    terminal = _Terminal(url, *options)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait(PATIENCE_S)
        os.close(terminal.ours)
        os.close(terminal.theirs)


def test_the_keys_lead_to_the_neighbour_and_q_leaves_the_terminal_clean():
    with served(RecordedFlink(RECORDINGS / "B2", 58.0)) as url, _watching(url) as terminal:
        terminal.read_until(rb"checkpoint (\d+) ")
        assert _ENTERED in terminal.output
        shown = re.findall(rb"checkpoint (\d+) ", terminal.output)[-1]
        terminal.press(b"<")
        terminal.read_until(rb"checkpoint %d " % (int(shown) - 1))
        terminal.press(b"q")

        assert terminal.end() == 0
        assert terminal.output.count(_LEFT) == 1
        assert terminal.output.rfind(_CURSOR_SHOWN) > terminal.output.rfind(_CURSOR_HIDDEN)
        assert termios.tcgetattr(terminal.theirs) == terminal.before


def _end_clean(terminal: _Terminal) -> None:
    terminal.press(b"q")
    assert terminal.end() == 0
    assert terminal.output.count(_LEFT) == 1
    assert termios.tcgetattr(terminal.theirs) == terminal.before


def test_the_queries_of_a_history_server_are_shown_with_their_batches_by_phase_and_the_keys_lead_through_them():
    server = app_of(HistoryServer([application(ended_ms=STARTED_MS + 60_000)]))
    with serving(server) as url, _watching(url) as terminal:
        terminal.read_until(
            rb"Spark history server 4\.3\.0 .* 3 queries.*order 60 has no\s+customer.*plan.*add.*commit.*rows"
        )
        first = re.findall(rb"> +(orders-app: orders-\w+)", terminal.output)[-1]
        terminal.press(b">")
        terminal.read_until(rb"> +orders-app: orders-(?!%s)\w+" % first.rpartition(b"-")[2])
        _end_clean(terminal)


def test_the_batch_that_a_driver_runs_is_shown_with_its_time_so_far():
    entry = orjson.loads((FOLDER / "driver_43.json").read_bytes())
    rows = orjson.loads((FOLDER / "sql_43.json").read_bytes())

    async def handle(request: web.Request) -> web.Response:
        answers = {"/api/v1/version": {"spark": "4.3.0"}, "/api/v1/applications": entry}
        if request.path.endswith("/sql"):
            begin, length = int(request.query["offset"]), int(request.query["length"])
            return web.json_response(rows[begin : begin + length])
        found = answers.get(request.path)
        return web.Response(status=404, text="<html>") if found is None else web.json_response(found)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    with serving(app) as url, _watching(url, "--job", "orders-windowed") as terminal:
        terminal.read_until(rb"Spark driver 4\.3\.0 .* 1 query.*time of addBatch.*(completed|in progress)")
        assert b"commit" not in terminal.output, "a driver does not report phases"
        _end_clean(terminal)


def test_a_query_that_is_not_there_is_refused_with_the_names_of_those_that_are():
    server = app_of(HistoryServer([application(ended_ms=STARTED_MS + 60_000)]))
    with serving(server) as url, _watching(url, "--job", "nothing") as terminal:
        assert terminal.end() == 2

        assert b"no query is called 'nothing' (allowed: orders-app: orders-failing" in terminal.output
        assert b"\x1b" not in terminal.output


def test_an_interrupt_leaves_the_terminal_clean_too():
    with served(RecordedFlink(RECORDINGS / "H", 58.0)) as url, _watching(url) as terminal:
        terminal.read_until(rb"checkpoint \d+ ")
        terminal.process.send_signal(signal.SIGINT)

        assert terminal.end() == 130
        assert terminal.output.count(_LEFT) == 1
        assert termios.tcgetattr(terminal.theirs) == terminal.before


def test_a_target_that_does_not_answer_is_one_line_as_without_the_option():
    with _watching(f"http://127.0.0.1:{free_port()}") as terminal:
        assert terminal.end() == 1

        assert terminal.output.startswith(b"barrierscope: ")
        assert terminal.output.count(b"\n") == 1
        assert b"\x1b" not in terminal.output


def test_a_job_that_does_not_run_is_refused_with_the_names_of_those_that_do():
    with served(RecordedFlink(RECORDINGS / "H", 58.0)) as url, _watching(url, "--job", "nothing") as terminal:
        assert terminal.end() == 2

        assert b"no running job is called 'nothing' (allowed: " in terminal.output
        assert terminal.output.count(b"\n") == 1
        assert b"\x1b" not in terminal.output


def test_without_a_terminal_it_refuses_in_one_sentence(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())

    assert run(["diagnose", "http://127.0.0.1:1", "--watch"]) == 2

    assert capsys.readouterr().err == (
        "barrierscope: invalid option: --watch: standard input is not a terminal"
        " (allowed: a terminal, or leave --watch out)\n"
    )


@pytest.mark.parametrize(
    ("option", "name"),
    [
        (["--format", "json"], "--format"),
        (["--quick"], "--quick"),
        (["--fail-on", "slow"], "--fail-on"),
        (["--log", "x.log"], "--log"),
        (["--event-log", "x"], "--event-log"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_option_for_one_answer_is_refused_beside_it(option, name, capsys):
    assert run(["diagnose", "http://127.0.0.1:1", "--watch", *option]) == 2

    assert f"{name}: cannot be used with --watch" in capsys.readouterr().err
