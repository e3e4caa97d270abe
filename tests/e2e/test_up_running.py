"""A running ``barrierscope up``: a second instance on its folder, killed child processes, and a repeated interrupt.

These tests use the same instance as ``test_pages.py``, because a start is slow. If a test ends the instance,
the next test starts a new one.
"""

from __future__ import annotations

import signal

import pytest

from tests.support.running_up import checkpoints_of, free_port, jobs_of, processes_of, refused
from tests.support.waiting import PATIENCE_S, until


def test_a_folder_in_use_is_refused_in_one_line_and_its_instance_keeps_running(live_up):
    up = live_up()

    line = refused("--port", str(free_port()), "--data-dir", str(up.folder))

    assert f"{up.folder} is in use by process {up.process.pid}" in line
    assert up.get("/api/v1/status")["store"] == "ok"


@pytest.mark.slow
def test_a_killed_role_and_a_killed_server_are_started_again(live_up):
    up = live_up()
    known = jobs_of(up)

    up.child("api").kill()
    up.wait_until_says("api ended by signal SIGKILL; it restarts")
    until(lambda: jobs_of(up) == known, "the API is back")
    roles = {name: up.child(name).pid for name in ("api", "collect", "runtime")}
    up.child("postgres").kill()
    up.wait_until_says("PostgreSQL ended unexpectedly; starting it again")
    # Wait for the message of the new server. Until then, the API may still return data that it read from the old
    # server.
    until(lambda: sum("PostgreSQL is ready" in line for line in up.lines) == 2, "the server is back")
    aligned = known["orders-aligned"]
    until(lambda: checkpoints_of(up, aligned), "the API is back on the new server")
    newest = max(c["triggered_at"] for c in checkpoints_of(up, aligned).values())

    def has_newer() -> bool:
        return any(c["triggered_at"] > newest for c in checkpoints_of(up, aligned).values())

    until(has_newer, "checkpoints come in again")
    # No role was restarted: the server came back at the same address, and the roles reconnected. They still had the
    # data that was not yet stored.
    assert {name: up.child(name).pid for name in roles} == roles, up.output


def test_a_second_interrupt_ends_every_process_at_once(live_up):
    up = live_up()
    # The orderly stop waits for the collector, which is suspended and does not react.
    up.child("collect").suspend()

    up.process.send_signal(signal.SIGINT)
    up.wait_until_says("stopping")
    up.process.send_signal(signal.SIGINT)

    assert up.process.wait(PATIENCE_S) == 130
    until(lambda: processes_of(up.folder) == [], "the server has ended as well")
