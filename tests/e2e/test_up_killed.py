"""``barrierscope up`` killed at every moment, and its roles and server: the next start works, what died comes back."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from backend.cli.instance import ProcessMark, is_running
from tests.support.running_up import STOP_MAX_S, checkpoints_of, jobs_of, processes_of
from tests.support.waiting import until


@pytest.mark.parametrize(
    "moment", ["starting the demo jobs", "starting PostgreSQL", "PostgreSQL is ready", "api is ready"]
)
def test_killed_at_any_moment_of_its_start_the_next_start_works(moment, start, folder):
    killed = start()
    killed.wait_until_says(moment)
    killed.kill()

    # On the same port: what the killed one left does not hold it.
    again = start("--no-demo", port=killed.port)
    again.wait_until_says("ready: open")
    assert again.get("/api/v1/status")["store"] == "ok"
    again.interrupt()

    assert again.process.returncode == 0


def test_what_a_killed_one_started_ends_by_itself(start, folder):
    up = start()
    up.wait_until_says("api is ready")
    assert len(up.tree()) >= 5
    up.kill()

    until(lambda: processes_of(folder) == [], "nothing of it is left", timeout_s=STOP_MAX_S)


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
        up.wait_until_says("ended 1 processes that a killed instance had left")

        assert left.wait(20) == -signal.SIGTERM
        assert not is_running(ProcessMark(**row))
    finally:
        left.kill()
        left.wait()


def test_a_role_that_is_killed_and_a_server_that_is_killed_come_back(start):
    up = start()
    up.wait_until_says("ready: open")
    known = jobs_of(up)

    up.child("api").kill()
    up.wait_until_says("api ended by signal SIGKILL, starting it again")
    until(lambda: jobs_of(up) == known, "the API is back", timeout_s=60)
    up.child("postgres").kill()
    up.wait_until_says("PostgreSQL ended by itself, starting it again")
    # The first answers may still be the former server's.
    until(lambda: sum("PostgreSQL is ready" in line for line in up.lines) == 2, "the server is back", timeout_s=60)
    aligned = known["orders-aligned"]
    until(lambda: checkpoints_of(up, aligned), "the API is back on the new server", timeout_s=60)
    newest = max(c["triggered_at"] for c in checkpoints_of(up, aligned).values())

    def has_newer() -> bool:
        return any(c["triggered_at"] > newest for c in checkpoints_of(up, aligned).values())

    until(has_newer, "checkpoints come in again", timeout_s=60)
