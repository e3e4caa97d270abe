"""``barrierscope up`` is killed at several moments of its start. The next start works, and no process is left."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from backend.cli.instance import ProcessMark, is_running
from tests.support.running_up import free_ports, processes_of
from tests.support.waiting import PATIENCE_S, until

_MOMENTS = [
    ("starting the live jobs", []),
    ("starting PostgreSQL", ["--no-demo"]),
    ("PostgreSQL is ready", ["--no-demo"]),
    ("api is ready", []),
]
# The processes: ``up`` itself, the sweeper, the runtime, PostgreSQL, the API and the collector.
_ROLES = 6
# These tests need no history of the demo jobs, so a short warm-up is enough.
_SHORT = {"BARRIERSCOPE_RUNTIME_WARM_UP_S": "1"}


@pytest.mark.slow
def test_after_repeated_kills_during_the_start_the_next_start_works(start, folder):
    (port,) = free_ports(1)
    for moment, options in _MOMENTS:
        # Each start uses the port and the folder of the instance killed before it, so both must be free again.
        up = start(*options, port=port, **_SHORT)
        up.wait_until_says(moment)
        tree = len(up.tree())
        up.kill()

    assert tree >= _ROLES
    until(lambda: processes_of(folder) == [], "what the killed ones started ends by itself")

    again = start("--no-demo", port=port)
    again.wait_until_says("ready: open")
    assert again.get("/api/v1/status")["store"] == "ok"
    again.interrupt()
    assert again.process.returncode == 0


@pytest.mark.slow
def test_nothing_outlives_a_killed_up_even_if_all_of_it_is_suspended(start, folder):
    up = start("--no-demo")
    up.wait_until_says("ready: open")
    for process in up.tree()[1:]:
        process.suspend()

    up.kill()

    until(lambda: processes_of(folder) == [], "the suspended processes are resumed or killed")


def test_processes_left_by_a_killed_instance_are_ended_by_the_next_one_which_a_second_interrupt_ends_at_once(
    start, folder
):
    left = subprocess.Popen(["/bin/sleep", "600"])
    try:
        from backend.cli.instance import mark_process

        mark = mark_process("runtime", left.pid)
        assert mark is not None
        (folder / "run").mkdir(parents=True)
        row = {field: getattr(mark, field) for field in ("name", "pid", "started", "command")}
        (folder / "run" / "processes.json").write_text(json.dumps([row]))

        up = start("--no-demo")
        up.wait_until_says("ended 1 processes left by a killed instance")

        assert left.wait(PATIENCE_S) == -signal.SIGTERM
        assert not is_running(ProcessMark(**row))
    finally:
        left.kill()
        left.wait()

    up.wait_until_says("ready: open")
    # The orderly stop waits for the collector, which is suspended and does not react.
    up.child("collect").suspend()

    up.process.send_signal(signal.SIGINT)
    up.wait_until_says("stopping")
    up.process.send_signal(signal.SIGINT)

    assert up.process.wait(PATIENCE_S) == 130
    until(lambda: processes_of(folder) == [], "the server has ended as well")
