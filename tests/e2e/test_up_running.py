"""A running ``barrierscope up``: a second instance on its folder, killed child processes, a kill, and the stop.

These tests use the same instance as ``test_pages.py``, because a start is slow. If a test ends the instance,
the next test starts a new one.
"""

from __future__ import annotations

import json
import subprocess

import httpx
import pytest

from backend.cli.running import running_ups
from backend.settings import load_settings
from backend.store.wall_clock import WallClock
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, served
from tests.support.running_up import (
    COMMAND,
    Up,
    checkpoints_of,
    folder_modes,
    free_port,
    jobs_of,
    processes_of,
    refused,
    stop_max_s,
)
from tests.support.waiting import PATIENCE_S, until

_DEMOS = 7


def test_a_folder_in_use_is_refused_in_one_line_and_its_instance_keeps_running(live_up):
    up = live_up()

    line = refused("--port", str(free_port()), "--data-dir", str(up.folder))

    assert f"{up.folder} is in use by process {up.process.pid}" in line
    assert up.get("/api/v1/status")["store"] == "ok"


def test_commands_of_the_same_user_find_the_live_runtime(live_up):
    up = live_up()

    (found,) = (one for one in running_ups(load_settings()) if one.process.pid == up.process.pid)

    assert found.url == f"http://127.0.0.1:{up.port}"
    assert found.runtime_url is not None
    assert httpx.get(f"{found.runtime_url}/overview", trust_env=False).status_code == 200


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


def _targets(up: Up, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "targets", *arguments, "--api", f"http://127.0.0.1:{up.port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def _job_ids(up: Up) -> set[str]:
    return {job["id"] for job in (up.get("/api/v1/jobs?limit=100") or {"items": []})["items"]}


def test_after_a_kill_up_has_its_whole_history_and_an_interrupt_stops_it_in_order(live_up):
    first = live_up()
    until(lambda: len(_job_ids(first)) >= _DEMOS, "every demo job is there")
    assert first.page("/").text.lstrip().lower().startswith("<!doctype html")
    assert first.page("/").url.path == "/ui/"
    memory = first.memory_mib()
    print(f"MiB: {sum(memory.values()):.0f}, {memory}")
    jobs = _job_ids(first)

    with served(RecordedFlink(RECORDINGS / "B2", at_s=60, now=WallClock().now())) as flink:
        tried = _targets(first, "test", flink)
        assert (tried.returncode, "Flink 1.20" in tried.stdout or "flink 1.20" in tried.stdout) == (0, True), tried
        added = _targets(first, "add", flink, "--name", "killed", "--format", "json")
        assert added.returncode == 0, added.stderr
        assert json.loads(added.stdout)["url"] == flink
        until(lambda: len(_job_ids(first)) == len(jobs) + 1, "the recorded Flink's job is there")
        (new,) = _job_ids(first) - jobs
        until(lambda: checkpoints_of(first, new), "the recorded checkpoints are there")
        before = {job: checkpoints_of(first, job) for job in _job_ids(first)}
        assert all(before.values()), before
        first.kill()

        # The new instance uses the port of the killed one, which must be free again.
        second = live_up()
        assert second.port == first.port
        after = {job: checkpoints_of(second, job) for job in _job_ids(second)}

    assert jobs <= _job_ids(second), f"a job keeps its id\n{second.refusals}\n{second.output}"
    lost = {job: sorted(before[job].keys() - after.get(job, {}).keys()) for job in before}
    assert {k: v for k, v in lost.items() if v} == {}, second.output
    changed = [k for job in before for k in before[job] if before[job][k] != after[job][k]]
    assert changed == []
    until(
        lambda: any(run not in {r for r, _ in before[job]} for job in jobs for run, _ in checkpoints_of(second, job)),
        "checkpoints of the new runs come in",
    )
    assert not any("Traceback" in p.read_text() for p in second.folder.glob("logs/*.log")), second.output

    stopped_s = second.interrupt()
    print(f"stopped after {stopped_s:.1f} s")
    assert second.process.returncode == 0
    assert stopped_s < stop_max_s()
    assert second.lines[-1].endswith("stopped")
    assert processes_of(second.folder) == []
    assert folder_modes(second.folder.parent) == live_up.modes, "the mode of a folder outside the data folder changed"
