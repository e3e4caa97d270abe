"""The supervisor starts roles, restarts them after growing pauses, and stops them in order. No role outlives it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backend.cli.instance import is_running
from backend.cli.supervisor import Role, Supervisor
from tests.support.waiting import PATIENCE_S, until

_SLEEP = "import time; time.sleep(600)"


class _Bench:
    """A supervisor on a clock that the test advances, with its messages and recorded processes."""

    def __init__(self, folder: Path) -> None:
        self.time_s = 0.0
        self.said: list[str] = []
        self.recorded: list[list] = []
        self.supervisor = Supervisor(folder, self.said.append, self.recorded.append, lambda: self.time_s)

    def role(self, name: str, script: str, **more) -> Role:
        more.setdefault("stop_timeout_s", PATIENCE_S)
        return Role(name, (sys.executable, "-c", script), dict(os.environ), **more)

    def wait_for_end(self, name: str) -> None:
        (child,) = (c for c in self.supervisor._children if c.role.name == name)
        assert child.process is not None
        child.process.wait()


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


def wait_until_ready(log: Path) -> None:
    """Wait until a role's script has printed that its signal handlers are set."""
    until(lambda: "ready" in log.read_text(), f"{log.name} says that the role is ready")


def test_roles_stop_in_the_reverse_order_of_their_start(bench, tmp_path):
    script = (
        "import signal, sys, time\n"
        "def stop(*_):\n    open({path!r}, 'a').write({name!r} + ' '); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop); print('ready', flush=True); time.sleep(600)"
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


def test_exactly_the_running_children_are_recorded(bench):
    bench.supervisor.start(bench.role("runtime", _SLEEP))
    bench.supervisor.start(bench.role("collect", "raise SystemExit(1)"))
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
    # The end of the line may be written separately.
    until(lambda: log.stat().st_size >= 2001, "the log has its line")

    bench.supervisor.watch()

    assert log.stat().st_size == 0
    assert (tmp_path / "api.log.1").stat().st_size == 2001


# The three ways in which a child notices the end of its parent. Each must suffice alone.
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
    code = bench.supervisor.run_once(bench.role("migrate", "raise SystemExit(4)"), lambda: False)

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


def test_a_role_without_a_log_has_no_last_words(bench):
    assert bench.supervisor.last_words("never-started") == ""
