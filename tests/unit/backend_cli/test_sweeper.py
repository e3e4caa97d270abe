"""Tests of the process that ends what a killed ``up`` left, also if everything is suspended."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from backend.cli import sweeper
from backend.cli.sweeper import sweep
from backend.pipeline.java import INSTANCE_VARIABLE
from tests.support.waiting import PATIENCE_S, until

_ORDERLY = (
    "import signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, {15}); print('ready', flush=True)\n"
    "signal.sigwait({15}); open(sys.argv[1], 'w').write('orderly')"
)
_STUBBORN = (
    "import signal, time\nsignal.signal(15, signal.SIG_IGN); signal.signal(2, signal.SIG_IGN)\n"
    "print('ready', flush=True); time.sleep(600)"
)
# The stand-in for `up` starts a stubborn role and the sweeper, and prints their process ids.
_UP = (
    "import json, subprocess, sys, time\n"
    "role = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
    "role.stdout.readline()\n"
    "sweeper = subprocess.Popen(json.loads(sys.argv[2]), stdin=subprocess.PIPE)\n"
    "print(role.pid, sweeper.pid, flush=True); time.sleep(600)"
)
# A sweeper that creates a file when it begins to wait for the end of its parent.
_ANNOUNCED = (
    "import os, sys; from pathlib import Path; from backend.cli import sweeper\n"
    "read = os.read\n"
    "def announced(*arguments):\n    Path(sys.argv[1], 'waits').touch(); return read(*arguments)\n"
    "os.read = announced; sweeper.main(os.getppid(), Path(sys.argv[1]), grace_s=0.1)"
)


def _environment(folder: Path) -> dict[str, str]:
    return dict(os.environ) | {INSTANCE_VARIABLE: str(folder)}


@contextmanager
def _role(folder: Path, script: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", script, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment(folder))
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_suspended_process_that_was_asked_to_end_is_resumed_and_ends_in_order(tmp_path):
    with _role(tmp_path, _ORDERLY, str(tmp_path / "end")) as process:
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)

        sweep(tmp_path, grace_s=PATIENCE_S)

    assert (tmp_path / "end").read_text() == "orderly"


def test_a_suspended_process_that_does_not_end_is_killed_and_other_processes_are_not(tmp_path):
    with _role(tmp_path / "data", _STUBBORN) as process, _role(tmp_path / "other", _STUBBORN) as other:
        process.send_signal(signal.SIGSTOP)

        sweep(tmp_path / "data", grace_s=0.05)

        assert process.wait(PATIENCE_S) == -signal.SIGKILL
        assert other.poll() is None


@contextmanager
def _up(folder: Path, sweeper: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """Yield the stand-in for ``up``, and the process ids of its role and of its sweeper."""
    command = [sys.executable, "-c", _UP, _STUBBORN, json.dumps(sweeper)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment(folder))
    assert process.stdout is not None
    try:
        yield process, [int(word) for word in process.stdout.readline().split()]
    finally:
        process.kill()
        process.communicate()


def _await_ends(pids: list[int], end: Callable[[], None]) -> None:
    handles = [os.pidfd_open(pid) for pid in pids]
    try:
        end()
        for handle in handles:
            assert select.select([handle], [], [], PATIENCE_S)[0], "it outlived its parent"
    finally:
        for handle in handles:
            os.close(handle)


def test_a_suspended_sweeper_is_resumed_by_the_end_of_its_parent_and_ends_what_still_runs(tmp_path):
    with _up(tmp_path, (sys.executable, "-c", _ANNOUNCED, str(tmp_path))) as (process, pids):
        until((tmp_path / "waits").exists, "the sweeper waits for the end of its parent")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

        _await_ends(pids, process.kill)


@pytest.mark.parametrize(
    ("platform", "is_used", "is_swept"),
    [("darwin", True, False), ("darwin", False, True), ("linux", True, True)],
)
def test_a_sweeper_that_a_new_instance_cannot_find_ends_nothing_of_it(
    tmp_path, monkeypatch, platform, is_used, is_swept
):
    swept: list[Path] = []
    monkeypatch.setattr(sweeper, "sweep", lambda folder, *, grace_s: swept.append(folder))
    monkeypatch.setattr(sweeper, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(sweeper, "ctypes", SimpleNamespace(CDLL=lambda *_, **__: SimpleNamespace(prctl=lambda *_: 0)))
    with (tmp_path / "lock").open("a+") as lock:
        if is_used:
            fcntl.flock(lock, fcntl.LOCK_EX)

        # No process has this id, so the parent counts as ended.
        sweeper.main(-1, tmp_path)

    assert swept == ([tmp_path] if is_swept else [])
