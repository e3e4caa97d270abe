"""``barrierscope up`` as a process: the first start, live pages, a kill, a start with the old history, and the stop.

``test_up_killed.py`` kills the process during its start, and ``test_up_running.py`` disturbs a running
instance.
"""

from __future__ import annotations

import json
import socket
import stat
import subprocess
from pathlib import Path

from backend.store.wall_clock import WallClock
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, served
from tests.support.running_up import COMMAND, Up, checkpoints_of, free_port, jobs_of, processes_of, refused, stop_max_s
from tests.support.waiting import PATIENCE_S, until

_DEMOS = 7


def _targets(up: Up, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "targets", *arguments, "--api", f"http://127.0.0.1:{up.port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def _modes(path: Path) -> dict[Path, int]:
    return {p: stat.S_IMODE(p.stat().st_mode) for p in (path, *path.parents)}


def test_up_shows_live_pages_and_after_a_kill_has_its_whole_history(start, folder, record_property):
    modes = _modes(folder.parent)
    first = start()
    ready_s = first.wait_until_says("ready: open")
    until(lambda: len(jobs_of(first)) == _DEMOS, "every demo job is there")
    all_s = first.age_s
    assert first.page("/").text.lstrip().lower().startswith("<!doctype html")
    assert first.page("/").url.path == "/ui/"
    memory = first.memory_mib()
    print(f"ready after {ready_s:.1f} s, all demo jobs after {all_s:.1f} s; MiB: {sum(memory.values()):.0f}, {memory}")
    record_property("ready_s", round(ready_s, 1))
    record_property("memory_mib", round(sum(memory.values())))
    jobs = jobs_of(first)

    with served(RecordedFlink(RECORDINGS / "B2", at_s=60, now=WallClock().now())) as flink:
        tried = _targets(first, "test", flink)
        assert (tried.returncode, "Flink 1.20" in tried.stdout or "flink 1.20" in tried.stdout) == (0, True), tried
        added = _targets(first, "add", flink, "--name", "recorded", "--format", "json")
        assert added.returncode == 0, added.stderr
        assert json.loads(added.stdout)["url"] == flink
        until(lambda: len(jobs_of(first)) == _DEMOS + 1, "the recorded Flink's job is there")
        before = {name: checkpoints_of(first, id_) for name, id_ in jobs_of(first).items()}
        assert all(before.values()), before
        first.kill()

        # The new instance uses the port of the killed one, which must be free again.
        second = start(port=first.port)
        second.wait_until_says("ready: open")
        after = {name: checkpoints_of(second, id_) for name, id_ in jobs_of(second).items()}

    again = {k: v for k, v in jobs_of(second).items() if k in jobs}
    assert again == jobs, f"a job keeps its id\n{second.refusals}\n{second.output}"
    lost = {name: sorted(before[name].keys() - after.get(name, {}).keys()) for name in before}
    assert {k: v for k, v in lost.items() if v} == {}, second.output
    changed = [k for n in before for k in before[n] if before[n][k] != after[n][k]]
    assert changed == []
    until(
        lambda: any(run not in {r for r, _ in before[n]} for n in jobs for run, _ in checkpoints_of(second, jobs[n])),
        "checkpoints of the new runs come in",
    )
    assert not any("Traceback" in p.read_text() for p in folder.glob("logs/*.log")), second.output

    stopped_s = second.interrupt()
    print(f"stopped after {stopped_s:.1f} s")
    assert second.process.returncode == 0
    assert stopped_s < stop_max_s()
    assert second.lines[-1].endswith("stopped")
    assert processes_of(folder) == []
    assert _modes(folder.parent) == modes, "the mode of a folder outside the data folder changed"


def test_a_taken_port_is_refused_in_one_line_that_names_the_option(folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        line = refused("--port", str(port), "--data-dir", str(folder))
        demo = refused("--port", str(free_port()), "--runtime-port", str(port), "--data-dir", str(folder))

    assert f"port {port} on 127.0.0.1 is in use; pass another one with --port" in line
    assert demo.endswith("pass another one with --runtime-port")
    assert not (folder / "postgres").exists()


def test_data_of_another_postgresql_is_refused_in_one_line_that_names_pg_dump(folder):
    (folder / "postgres" / "data").mkdir(parents=True)
    (folder / "postgres" / "data" / "PG_VERSION").write_text("14\n")

    line = refused("--no-demo", "--port", str(free_port()), "--data-dir", str(folder))

    assert "is of PostgreSQL 14" in line
    assert "pg_dump" in line


def test_an_interrupt_during_the_start_stops_in_order(start, folder):
    up = start(BARRIERSCOPE_RUNTIME_WARM_UP_S="1")
    up.wait_until_says("PostgreSQL is ready")

    up.interrupt()

    assert up.process.returncode == 0
    assert up.lines[-1].endswith("stopped")
    assert not any("Traceback" in line for line in up.lines)
