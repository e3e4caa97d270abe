"""Tests of the supervisor: it starts roles, restarts them after growing pauses, and stops them in order.

No role outlives the supervisor.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backend.cli.instance import is_running
from backend.cli.supervisor import Role, Supervisor, _has_ended
from tests.support.waiting import PATIENCE_S, until

_SLEEP = "import time; time.sleep(600)"


class _Bench:
    """A supervisor on a clock that the test advances. Its messages and the processes that it records are collected."""

    def __init__(self, folder: Path) -> None:
        self.time_s = 0.0
        self.said: list[str] = []
        self.recorded: list[list] = []
        self._folder = folder
        self.supervisor = Supervisor(folder, self.said.append, self._record, lambda: self.time_s)

    def _record(self, marks: list) -> None:
        self.recorded.append(marks)
        for mark in marks:
            self._recorded_file(mark.name).touch()

    def _recorded_file(self, name: str) -> Path:
        return self._folder / f"{name}.recorded"

    def ending(self, name: str, code: int = 1) -> Role:
        """Return a role that ends when it has been recorded. A busy machine may record it late."""
        recorded = str(self._recorded_file(name))
        return self.role(
            name, f"import os, time\nwhile not os.path.exists({recorded!r}):\n time.sleep(0.01)\nos._exit({code})"
        )

    def role(self, name: str, script: str, **more) -> Role:
        more.setdefault("stop_timeout_s", PATIENCE_S)
        return Role(name, (sys.executable, "-c", script), dict(os.environ), **more)

    def wait_for_end(self, name: str) -> None:
        (child,) = (c for c in self.supervisor._children if c.role.name == name)
        assert child.process is not None
        # The process stays a zombie, because the supervisor reaps it.
        os.waitid(os.P_PID, child.process.pid, os.WEXITED | os.WNOWAIT)
        self._recorded_file(name).unlink(missing_ok=True)


@pytest.fixture
def bench(tmp_path):
    bench = _Bench(tmp_path)
    yield bench
    bench.supervisor.kill()
    bench.supervisor.stop()


def test_a_role_that_ends_is_started_again_after_a_pause_that_doubles(bench):
    bench.supervisor.start(bench.role("collect", "import sys; print('no store'); sys.exit(3)"))
    pauses = []
    for _ in range(9):
        bench.wait_for_end("collect")
        bench.supervisor.watch()
        assert not bench.supervisor.is_running("collect")
        (child,) = bench.supervisor._children
        pauses.append(child.restart_at_s - bench.time_s)
        bench.time_s = child.restart_at_s - 0.001
        bench.supervisor.watch()
        assert child.process is None, "started before its pause was over"
        bench.time_s = child.restart_at_s
        bench.supervisor.watch()

    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert bench.said[0] == "collect ended with exit code 3; it restarts in 0.5 s: no store"


def test_after_a_minute_without_failure_the_pause_is_the_first_one_again(bench):
    bench.supervisor.start(bench.role("collect", "raise SystemExit(1)"))
    for _ in range(3):
        bench.wait_for_end("collect")
        bench.supervisor.watch()
        bench.time_s += 100
        bench.supervisor.watch()
    bench.wait_for_end("collect")
    bench.time_s += 61
    bench.supervisor.watch()

    assert "restarts in 0.5 s" in bench.said[-1]


def test_the_signal_that_killed_a_role_is_reported(bench):
    bench.supervisor.start(bench.role("runtime", "import os; os.kill(os.getpid(), 9)"))
    bench.wait_for_end("runtime")
    bench.supervisor.watch()

    assert bench.said == ["runtime ended by signal SIGKILL; it restarts in 0.5 s"]


@pytest.mark.parametrize(("level", "tail"), [("info", ""), ("error", ': timestamp=1 level=error event="level=info"')])
def test_a_logged_line_about_normal_work_is_not_said_as_the_reason_for_an_end(bench, level, tail):
    line = f'timestamp=1 level={level} event="level=info"'
    bench.supervisor.start(bench.role("alert", f"import os; print('{line}', flush=True); os.kill(os.getpid(), 9)"))
    bench.wait_for_end("alert")
    bench.supervisor.watch()

    assert bench.said == [f"alert ended by signal SIGKILL; it restarts in 0.5 s{tail}"]


def wait_until_ready(log: Path) -> None:
    """Wait until the script of a role has printed that its signal handlers are set."""
    until(lambda: "ready" in log.read_text(), f"{log.name} says that the role is ready")


def test_roles_stop_in_the_reverse_order_of_their_start(bench, tmp_path):
    # A Python signal handler can miss a signal that arrives just before a blocking call. `sigwait` cannot.
    script = (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); print('ready', flush=True)\n"
        "signal.sigwait([signal.SIGTERM]); open({path!r}, 'a').write({name!r} + ' ')"
    )
    path = str(tmp_path / "order")
    for name in ("runtime", "api", "collect"):
        bench.supervisor.start(bench.role(name, script.format(path=path, name=name)))
    for name in ("runtime", "api", "collect"):
        wait_until_ready(tmp_path / f"{name}.log")

    bench.supervisor.stop()

    assert Path(path).read_text().split() == ["collect", "api", "runtime"]
    assert bench.recorded[-1] == []


def test_a_role_that_does_not_stop_in_time_is_killed(bench, tmp_path):
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    bench.supervisor.start(bench.role("api", script, stop_timeout_s=0.05))
    wait_until_ready(tmp_path / "api.log")
    mark = bench.recorded[-1][0]

    bench.supervisor.stop()

    assert not is_running(mark)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_suspended_role_and_what_it_started_do_not_outlive_a_stop(bench, tmp_path, is_killed):
    bench.supervisor.start(bench.role("pipeline", _WITH_CHILD.format(path=str(tmp_path / "pid"))))
    wait_until_ready(tmp_path / "pipeline.log")
    mark, child_pid = bench.recorded[-1][0], int((tmp_path / "pid").read_text())
    handle = os.pidfd_open(child_pid)
    try:
        os.killpg(mark.pid, signal.SIGSTOP)
        (bench.supervisor.kill if is_killed else bench.supervisor.stop)()

        assert not is_running(mark)
        assert select.select([handle], [], [], PATIENCE_S)[0], "it outlived its role"
    finally:
        os.close(handle)


def test_a_suspended_role_is_resumed_and_stops_in_order(bench, tmp_path):
    script = (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {15}); print('ready', flush=True)\n"
        "signal.sigwait({15}); print('orderly', flush=True)"
    )
    bench.supervisor.start(bench.role("collect", script))
    wait_until_ready(tmp_path / "collect.log")
    os.kill(bench.recorded[-1][0].pid, signal.SIGSTOP)

    bench.supervisor.stop()

    assert (tmp_path / "collect.log").read_text().split() == ["ready", "orderly"]


def test_the_group_of_a_role_is_killed_before_the_id_of_the_role_is_free_again(bench, monkeypatch):
    bench.supervisor.start(bench.ending("collect"))
    pid = bench.recorded[-1][0].pid
    states = []

    def note(group, number):
        states.append((group, Path(f"/proc/{group}/stat").read_text().rpartition(")")[2].split()[0]))

    bench.wait_for_end("collect")
    assert not bench.supervisor.is_running("collect")
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", note)
        bench.supervisor.watch()

    assert states == [(pid, "Z")]


def test_exactly_the_running_children_are_recorded(bench):
    bench.supervisor.start(bench.role("runtime", _SLEEP))
    bench.supervisor.start(bench.ending("collect"))
    assert [m.name for m in bench.recorded[-1]] == ["runtime", "collect"]
    bench.wait_for_end("collect")
    bench.supervisor.watch()

    assert [m.name for m in bench.recorded[-1]] == ["runtime"]


def test_ctrl_c_of_the_terminal_does_not_reach_a_role(bench):
    bench.supervisor.start(bench.role("runtime", _SLEEP))
    pid = bench.recorded[-1][0].pid

    assert os.getpgid(pid) == pid != os.getpgrp()


def test_a_log_does_not_grow_without_bound(bench, tmp_path, monkeypatch):
    monkeypatch.setattr("backend.cli.supervisor._LOG_MAX_BYTES", 1000)
    bench.supervisor.start(bench.role("api", "print('x' * 2000, flush=True); import time; time.sleep(600)"))
    log = tmp_path / "api.log"
    # Wait for the 2000 characters and the newline, which may be written separately.
    until(lambda: log.stat().st_size >= 2001, "the log has its line")

    bench.supervisor.watch()

    assert log.stat().st_size == 0
    assert (tmp_path / "api.log.1").stat().st_size == 2001


def test_a_log_that_cannot_be_copied_is_emptied_all_the_same(bench, tmp_path, monkeypatch):
    monkeypatch.setattr("backend.cli.supervisor._LOG_MAX_BYTES", 10)
    log = tmp_path / "api.log"
    log.write_text("more than ten characters")

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    bench.supervisor.start(bench.role("api", _SLEEP))
    bench.supervisor.watch()

    assert log.stat().st_size == 0


def test_a_role_that_cannot_be_started_again_is_tried_later(bench, monkeypatch):
    bench.supervisor.start(bench.ending("collect"))
    bench.wait_for_end("collect")
    bench.supervisor.watch()

    def no_room(*_, **__):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", no_room)
        bench.time_s = 1
        bench.supervisor.watch()
    bench.time_s = 100
    bench.supervisor.watch()

    assert bench.said[1] == "collect cannot be started (Resource temporarily unavailable); it is tried again in 1 s"
    assert [m.name for m in bench.recorded[-1]] == ["collect"]


# A child notices the end of its parent in two ways: by its closed standard input, and by a signal from the kernel. It
# must also notice the end if one of them does not work.
_BOTH = ""
_NO_PIPE = "import backend.cli.liveness as l; l._end_with_stdin = lambda: None\n"
_NO_KERNEL = "import backend.cli.liveness as l; l.sys = type('s', (), {'platform': 'other'})\n"


@pytest.mark.parametrize("sabotage", [_BOTH, _NO_PIPE, _NO_KERNEL], ids=["both", "no-pipe", "no-kernel-signal"])
def test_a_child_ends_when_its_parent_is_killed(sabotage):
    child = sabotage + (
        "import os, sys, time; from backend.cli.liveness import die_with_parent\n"
        "die_with_parent(int(sys.argv[1])); print(os.getpid(), flush=True); time.sleep(600)"
    )
    parent = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())], stdin=subprocess.PIPE); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    assert process.stdout is not None
    child_pid = int(process.stdout.readline())
    handle = os.pidfd_open(child_pid)
    try:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        ended, _, _ = select.select([handle], [], [], 30)
    finally:
        os.close(handle)

    assert ended, "the child outlived its parent"


def test_a_child_whose_parent_is_already_gone_ends_at_once():
    script = "from backend.cli.liveness import die_with_parent; die_with_parent(1); print('alive')"

    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S
    )

    assert answer.returncode == 0
    assert answer.stdout == b""


def test_a_command_gives_its_exit_code_and_is_not_started_again(bench):
    code = bench.supervisor.run_once(bench.ending("migrate", 4), lambda: False)

    assert code == 4
    assert [[m.name for m in marks] for marks in bench.recorded] == [["migrate"], []]
    assert not bench.supervisor.has("migrate")


def test_a_command_ends_when_the_supervisor_stops(bench):
    code = bench.supervisor.run_once(bench.role("migrate", _SLEEP), lambda: True)

    assert code is None
    assert not is_running(bench.recorded[0][0])


def test_a_role_is_replaced_by_another_process_of_the_same_name(bench):
    bench.supervisor.start(bench.role("api", _SLEEP))
    former = bench.recorded[-1][0]

    bench.supervisor.replace(bench.role("api", _SLEEP))

    assert not is_running(former)
    (mark,) = bench.recorded[-1]
    assert (mark.name, mark.pid != former.pid, is_running(mark)) == ("api", True, True)


def test_a_kill_ends_every_role_without_a_stop_request(bench, tmp_path):
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    bench.supervisor.start(bench.role("api", script, stop_timeout_s=600))
    wait_until_ready(tmp_path / "api.log")
    mark = bench.recorded[-1][0]

    bench.supervisor.kill()

    assert not is_running(mark)
    assert bench.recorded[-1] == []


_WITH_CHILD = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(15, signal.SIG_IGN);"
    " print(\\'ready\\', flush=True); time.sleep(600)'])\n"
    "open({path!r}, 'w').write(str(child.pid)); time.sleep(600)"
)


@pytest.mark.parametrize("is_asked_to_stop", [True, False], ids=["stopped", "ended by itself"])
def test_what_a_role_has_started_ends_with_the_role(bench, tmp_path, is_asked_to_stop):
    bench.supervisor.start(bench.role("pipeline", _WITH_CHILD.format(path=str(tmp_path / "pid"))))
    wait_until_ready(tmp_path / "pipeline.log")
    handle = os.pidfd_open(int((tmp_path / "pid").read_text()))
    try:
        if is_asked_to_stop:
            bench.supervisor.stop()
        else:
            os.kill(bench.recorded[-1][0].pid, signal.SIGKILL)
            bench.wait_for_end("pipeline")
            bench.supervisor.watch()

        assert select.select([handle], [], [], PATIENCE_S)[0], "it outlived its role"
    finally:
        os.close(handle)


def test_a_role_without_a_log_has_no_last_words(bench):
    assert bench.supervisor.last_words("never-started") == ""


def test_the_last_words_of_a_role_contain_no_control_characters(bench, tmp_path):
    (tmp_path / "api.log").write_text("\x1b[31mred\n")

    assert bench.supervisor.last_words("api") == r"\x1b[31mred"


def test_a_process_that_the_kernel_has_removed_has_ended():
    # This is what happens to the roles of an `up` that was started with SIGCHLD ignored.
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitpid(process.pid, 0)

    assert _has_ended(process)
