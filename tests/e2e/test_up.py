"""``barrierscope up`` for real: from nothing to live pages, killed, started again with its history, stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.cli.instance import ProcessMark, is_running
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, served
from tests.support.running_up import COMMAND, Up, free_port, processes_of
from tests.support.waiting import until

_DEMOS = 7
_STOP_MAX_S = 20.0


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not pytest's own folder: its name may be longer than what a person would pass, and root keeps it to itself.
    made = Path(tempfile.mkdtemp(prefix="barrierscope-up-"))
    yield made / "data"
    assert processes_of(made / "data") == []
    shutil.rmtree(made)


@pytest.fixture
def start(folder):
    runs: list[Up] = []

    def begin(*arguments: str, **more) -> Up:
        runs.append(Up(folder, *arguments, **more))
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


def _jobs(up: Up) -> dict[str, str]:
    """Every job's id by its name; none where the API does not answer well."""
    page = up.get("/api/v1/jobs?limit=100")
    return {job["name"]: job["id"] for job in page["items"]} if page else {}


def _checkpoints(up: Up, job: str) -> dict[tuple[str, int], dict]:
    """Every terminal checkpoint of a job that the API tells of."""
    found, path = {}, f"/api/v1/jobs/{job}/checkpoints?limit=100"
    while path:
        page = up.get(path)
        if page is None:
            return {}
        found |= {(c["run_id"], c["checkpoint_id"]): c for c in page["items"] if c["status"] != "in-progress"}
        path = f"/api/v1/jobs/{job}/checkpoints?limit=100&cursor={page['next']}" if page["next"] else ""
    return found


def _targets(up: Up, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "targets", *arguments, "--api", f"http://127.0.0.1:{up.port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def _modes(path: Path) -> dict[Path, int]:
    return {p: stat.S_IMODE(p.stat().st_mode) for p in (path, *path.parents)}


def test_from_nothing_to_live_pages_killed_and_back_with_everything_that_was_there(start, folder, record_property):
    modes = _modes(folder.parent)
    first = start()
    ready_s = first.wait_until_says("ready: open")
    until(lambda: len(_jobs(first)) == _DEMOS, "every demo job is there")
    all_s = first.age_s
    assert first.page("/").text.lstrip().lower().startswith("<!doctype html")
    assert first.page("/").url.path == "/ui/"
    memory = first.memory_mib()
    print(f"ready after {ready_s:.1f} s, all demo jobs after {all_s:.1f} s; MiB: {sum(memory.values()):.0f}, {memory}")
    record_property("ready_s", round(ready_s, 1))
    record_property("memory_mib", round(sum(memory.values())))
    jobs = _jobs(first)

    with served(RecordedFlink(RECORDINGS / "B2", at_s=60)) as flink:
        tried = _targets(first, "test", flink)
        assert (tried.returncode, "Flink 1.20" in tried.stdout or "flink 1.20" in tried.stdout) == (0, True), tried
        added = _targets(first, "add", flink, "--name", "recorded", "--format", "json")
        assert added.returncode == 0, added.stderr
        assert json.loads(added.stdout)["url"] == flink
        until(lambda: len(_jobs(first)) == _DEMOS + 1, "the recorded Flink's job is there")
        before = {name: _checkpoints(first, id_) for name, id_ in _jobs(first).items()}
        assert all(before.values()), before
        first.kill()

        second = start()
        second.wait_until_says("ready: open")
        after = {name: _checkpoints(second, id_) for name, id_ in _jobs(second).items()}

    again = {k: v for k, v in _jobs(second).items() if k in jobs}
    assert again == jobs, f"a job keeps its id\n{second.refusals}\n{second.output}"
    lost = {name: sorted(before[name].keys() - after.get(name, {}).keys()) for name in before}
    assert {k: v for k, v in lost.items() if v} == {}, second.output
    changed = [k for n in before for k in before[n] if before[n][k] != after[n][k]]
    assert changed == []
    until(
        lambda: any(run not in {r for r, _ in before[n]} for n in jobs for run, _ in _checkpoints(second, jobs[n])),
        "checkpoints of the new runs come in",
    )
    assert not any("Traceback" in p.read_text() for p in folder.glob("logs/*.log")), second.output

    stopped_s = second.interrupt()
    print(f"stopped after {stopped_s:.1f} s")
    assert second.process.returncode == 0
    assert stopped_s < _STOP_MAX_S
    assert second.lines[-1].endswith("stopped")
    assert processes_of(folder) == []
    assert _modes(folder.parent) == modes, "no mode outside the data folder changes"


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

    until(lambda: processes_of(folder) == [], "nothing of it is left", timeout_s=_STOP_MAX_S)


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


def _refused(*arguments: str, **environment: str) -> str:
    """The one line that ``up`` ends with where it cannot start."""
    done = subprocess.run(
        [*COMMAND, "up", *arguments], capture_output=True, text=True, timeout=120, env=dict(os.environ) | environment
    )
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    # What is seen before anything is started is all that is said.
    assert done.stdout == "" or "starting" in done.stdout
    assert line.startswith("barrierscope: ")
    return line


def test_a_taken_port_is_one_line_that_names_the_option(folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        line = _refused("--port", str(port), "--data-dir", str(folder))
        demo = _refused("--port", str(free_port()), "--runtime-port", str(port), "--data-dir", str(folder))

    assert f"port {port} on 127.0.0.1 is taken; pass another with --port" in line
    assert demo.endswith("pass another with --runtime-port")
    assert not (folder / "postgres").exists()


def test_a_folder_in_use_is_one_line_and_its_user_is_left_alone(start, folder):
    up = start("--no-demo")
    up.wait_until_says("starting PostgreSQL")

    line = _refused("--port", str(free_port()), "--data-dir", str(folder))

    assert f"{folder} is in use by process {up.process.pid}" in line
    up.wait_until_says("ready: open")
    assert up.get("/api/v1/status")["store"] == "ok"


def test_data_of_another_postgresql_is_one_line_with_the_way_to_export(folder):
    (folder / "postgres" / "data").mkdir(parents=True)
    (folder / "postgres" / "data" / "PG_VERSION").write_text("14\n")

    line = _refused("--no-demo", "--port", str(free_port()), "--data-dir", str(folder))

    assert "is of PostgreSQL 14" in line
    assert "pg_dump" in line


def test_a_role_that_is_killed_and_a_server_that_is_killed_come_back(start):
    up = start()
    up.wait_until_says("ready: open")
    known = _jobs(up)

    up.child("api").kill()
    up.wait_until_says("api ended by signal SIGKILL, starting it again")
    until(lambda: _jobs(up) == known, "the API is back", timeout_s=60)
    up.child("postgres").kill()
    up.wait_until_says("PostgreSQL ended by itself, starting it again")
    # The first answers may still be the former server's.
    until(lambda: sum("PostgreSQL is ready" in line for line in up.lines) == 2, "the server is back", timeout_s=60)
    aligned = known["orders-aligned"]
    until(lambda: _checkpoints(up, aligned), "the API is back on the new server", timeout_s=60)
    newest = max(c["triggered_at"] for c in _checkpoints(up, aligned).values())

    def has_newer() -> bool:
        return any(c["triggered_at"] > newest for c in _checkpoints(up, aligned).values())

    until(has_newer, "checkpoints come in again", timeout_s=60)


def test_the_second_interrupt_ends_everything_at_once(start, folder):
    up = start("--no-demo")
    up.wait_until_says("ready: open")
    # A role that does not react: the orderly stop waits for it.
    up.child("collect").suspend()

    up.process.send_signal(signal.SIGINT)
    up.wait_until_says("stopping")
    up.process.send_signal(signal.SIGINT)

    assert up.process.wait(10) == 130
    until(lambda: processes_of(folder) == [], "the server has ended as well")


def test_an_interrupt_in_the_middle_of_the_start_stops_in_order(start, folder):
    up = start()
    up.wait_until_says("PostgreSQL is ready")

    up.interrupt()

    assert up.process.returncode == 0
    assert up.lines[-1].endswith("stopped")
    assert not any("Traceback" in line for line in up.lines)
