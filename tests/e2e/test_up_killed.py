"""``barrierscope up`` killed at every moment of its start: the next start works, and nothing is left."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from backend.cli.instance import ProcessMark, is_running
from tests.support.running_up import free_port, processes_of
from tests.support.waiting import PATIENCE_S, until

_MOMENTS = [
    ("starting the demo jobs", []),
    ("starting PostgreSQL", ["--no-demo"]),
    ("PostgreSQL is ready", ["--no-demo"]),
    ("api is ready", []),
]
# Itself, the runtime, PostgreSQL, the API, the collector.
_ROLES = 5
# What the demo jobs have behind them does not matter here.
_SHORT = {"BARRIERSCOPE_RUNTIME_WARM_UP_S": "1"}


@pytest.mark.slow
def test_killed_again_and_again_while_it_starts_the_next_start_works(start, folder):
    port = free_port()
    for moment, options in _MOMENTS:
        # On the same port and the same folder: what the one before left holds neither.
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


def test_what_a_killed_instance_left_running_is_ended_by_the_next_one(start, folder):
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
