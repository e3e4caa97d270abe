"""Tests of ``up`` on a machine in trouble: it waits for slow roles and for disk space, and reports each wait once."""

from __future__ import annotations

import errno
import os
import sys
import threading
from types import SimpleNamespace

import pytest

from backend.cli import stack
from backend.cli.instance import Instance
from backend.cli.stack import Plan, Stack
from backend.cli.supervisor import Role
from backend.domain.errors import DiskFullError, HostError
from backend.settings import load_settings
from backend.store.postgres import embedded
from tests.support.waiting import until

_MIB = 2**20
_URL = "postgresql://x@127.0.0.1:5555/x"


class _Server:
    """A PostgreSQL server whose first ``failures`` starts fail because the disk is full."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.is_running = False

    def start(self) -> str:
        if self.failures:
            self.failures -= 1
            raise DiskFullError("PostgreSQL did not start (No space left on device)", fix="make room on the disk")
        self.is_running = True
        return _URL

    def stop(self) -> None:
        self.is_running = False


@pytest.fixture
def room(monkeypatch):
    """The free space of the disk in MiB, which a test may change. The product checks it again without a pause."""
    monkeypatch.setattr(stack, "_ROOM_INTERVAL_S", 0.0)
    monkeypatch.setattr(stack, "_WATCH_INTERVAL_S", 0.0)
    disk = SimpleNamespace(mib=1000)
    monkeypatch.setattr(stack.shutil, "disk_usage", lambda _: SimpleNamespace(free=disk.mib * _MIB))
    return disk


@pytest.fixture
def up(tmp_path, room):
    plan = Plan(
        folder=tmp_path,
        host="127.0.0.1",
        port=1,
        runtime_port=None,
        runtime_jobs=(),
        poll_interval_s=1.0,
        is_verbose=False,
        has_spark_demo=False,
        settings=load_settings(),
    )
    with Instance(tmp_path) as instance:
        made = Stack(plan, instance, threading.Event())
        yield made
        made._supervisor.kill()


def _said(capsys):
    return [line.partition(" s  ")[2] for line in capsys.readouterr().out.splitlines()]


def test_the_start_waits_for_room_on_the_disk(up, capsys, monkeypatch):
    server = _Server(failures=3)
    monkeypatch.setattr(embedded, "EmbeddedPostgres", lambda _: server)

    up._start_postgres()
    up._watch()

    assert _said(capsys) == [
        "starting PostgreSQL",
        f"the disk of {up._plan.folder} is full: PostgreSQL starts when there is room"
        " (PostgreSQL did not start (No space left on device))",
        "PostgreSQL is ready",
        "there is room on the disk again",
    ]
    assert up._database_url == _URL


def test_a_start_that_waits_for_room_can_be_stopped(up, monkeypatch):
    monkeypatch.setattr(embedded, "EmbeddedPostgres", lambda _: _Server(failures=10**9))
    monkeypatch.setattr(up, "_wait_for_room", lambda _: up._stop.set())

    with pytest.raises(stack._StoppedError):
        up._start_postgres()


def test_a_server_that_ends_on_a_full_disk_is_started_when_there_is_room(up, room, capsys):
    up._postgres, up._database_url = _Server(failures=2), _URL
    room.mib = 0
    for _ in range(3):
        up._watch()
    room.mib = 1000
    up._watch()

    assert _said(capsys) == [
        f"the disk of {up._plan.folder} is full: it has 0 MiB left; what cannot be stored waits for room",
        "PostgreSQL ended unexpectedly; starting it again",
        "PostgreSQL is ready",
        "there is room on the disk again",
    ]


def test_a_role_that_is_slow_to_start_is_waited_for_and_an_old_log_is_not_quoted(up, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(stack, "_STILL_STARTING_S", 0.0)
    (tmp_path / "logs" / "api.log").write_text("the words of another start\n")
    script = "import time; print('loading', flush=True); time.sleep(600)"
    up._supervisor.start(Role("api", (sys.executable, "-c", script), dict(os.environ)))
    assert up._supervisor.last_words("api") in ("", "loading")
    until(lambda: up._supervisor.last_words("api") == "loading", "the role has logged a line")
    answers = iter([False, True])

    up._await("api", lambda: next(answers))

    assert _said(capsys) == ["api is still starting after 0 s: loading", "api is ready"]


def test_a_role_that_ends_again_and_again_ends_the_start_with_its_last_words(up, monkeypatch):
    monkeypatch.setattr("backend.cli.supervisor._BACKOFF_FIRST_S", 1e-6)
    up._supervisor.start(Role("api", (sys.executable, "-c", "raise SystemExit('no port')"), dict(os.environ)))

    with pytest.raises(HostError, match=r"api did not become ready \(no port\); see .*api\.log"):
        up._await("api", lambda: False)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE, errno.EIO])
def test_up_goes_on_if_nobody_can_read_its_output(up, monkeypatch, number):
    def refuse(text):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=refuse, flush=lambda: None))

    up._say("nobody reads this")
