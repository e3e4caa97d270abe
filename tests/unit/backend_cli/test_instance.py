"""Tests of the lock on the data folder: only one instance may use it at a time.

A new instance ends only those processes that a killed instance left behind.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from backend.cli.instance import (
    Instance,
    ProcessMark,
    _command_line,
    end_processes,
    is_in_use,
    is_running,
    mark_process,
)
from backend.domain.errors import HostError
from backend.pipeline.java import INSTANCE_VARIABLE
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    # Reap the process as soon as it ends, so that it leaves no zombie. Real leftover processes are not children of the
    # new instance.
    reaper = threading.Thread(target=process.wait)
    reaper.start()
    yield process
    process.kill()
    reaper.join()


def test_a_folder_in_use_is_refused_in_one_line_that_names_the_holder(tmp_path):
    with Instance(tmp_path / "data"), pytest.raises(HostError) as refused:
        Instance(tmp_path / "data").__enter__()

    assert "is in use by process " + str(os.getpid()) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_is_free_after_its_instance_has_ended(tmp_path):
    with Instance(tmp_path / "data"):
        pass
    with Instance(tmp_path / "data"):
        pass


def test_a_folder_is_free_as_soon_as_its_instance_is_killed(tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from backend.cli.instance import Instance\n"
        f"held = Instance(Path({str(tmp_path)!r})); held.__enter__(); print('locked', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    with pytest.raises(HostError):
        Instance(tmp_path).__enter__()

    holder.send_signal(signal.SIGKILL)
    holder.communicate()

    with Instance(tmp_path):
        pass


def test_the_lock_shows_whether_an_instance_uses_the_folder(tmp_path):
    assert not is_in_use(tmp_path / "missing")
    with Instance(tmp_path):
        assert is_in_use(tmp_path)
    assert not is_in_use(tmp_path)


def test_a_folder_that_cannot_be_made_is_reported_in_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(HostError) as refused:
        Instance(tmp_path / "file" / "data").__enter__()

    assert "is not writable" in str(refused.value)
    assert "--data-dir" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_recorded_process_that_still_runs_is_found_and_ended(tmp_path, sleeper):
    mark = mark_process("collect", sleeper.pid)
    assert mark is not None
    instance = Instance(tmp_path)
    with instance:
        instance.record([mark])
        left = Instance(tmp_path).leftovers()
        assert left == [mark]

        end_processes(left)

    assert not is_running(mark)


def test_a_process_that_ignores_sigterm_is_killed(tmp_path):
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    stubborn = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    assert stubborn.stdout.readline() == b"ready\n"
    mark = mark_process("stubborn", stubborn.pid)
    assert mark is not None
    reaper = threading.Thread(target=stubborn.wait)
    reaper.start()

    end_processes([mark], grace_s=0.1)

    reaper.join()
    stubborn.stdout.close()
    assert stubborn.returncode == -signal.SIGKILL


@pytest.mark.parametrize("field", ["started", "command"])
def test_a_process_with_a_reused_pid_is_never_ended(tmp_path, sleeper, field):
    mark = mark_process("collect", sleeper.pid)
    assert mark is not None
    instance = Instance(tmp_path)
    with instance:
        instance.record([dataclasses.replace(mark, **{field: "another"})])

        assert instance.leftovers() == []
        end_processes([dataclasses.replace(mark, **{field: "another"})], grace_s=0.0)

    assert sleeper.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_process_that_was_not_recorded_is_found_by_the_folder_in_its_environment(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from backend.cli.instance import Instance\n"
        "with Instance(Path(sys.argv[1])) as instance: print(*[mark.pid for mark in instance.leftovers()])"
    )
    with subprocess.Popen(["sleep", "600"], env={INSTANCE_VARIABLE: str(tmp_path)}) as left:
        with subprocess.Popen(["sleep", "600"], env={INSTANCE_VARIABLE: f"{tmp_path}2"}) as of_another:
            # The new instance has the variable as well. It must not count itself among the leftovers.
            found = subprocess.run(
                [sys.executable, "-c", script, str(tmp_path)],
                env=dict(os.environ) | {INSTANCE_VARIABLE: str(tmp_path)},
                capture_output=True,
                text=True,
                check=True,
                timeout=PATIENCE_S,
            )
            of_another.kill()
        left.kill()

    assert found.stdout.split() == [str(left.pid)]


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"pid": 1}]', "null"])
def test_a_malformed_process_file_gives_no_leftovers(tmp_path, text):
    with Instance(tmp_path) as instance:
        (tmp_path / "run" / "processes.json").write_text(text)

        assert instance.leftovers() == []


def test_processes_that_cannot_be_recorded_do_not_end_the_instance(tmp_path):
    with Instance(tmp_path) as instance:
        instance.record([ProcessMark("runtime", 1, "0", "x")])
        # The new list of processes cannot be written, as on a full disk.
        (tmp_path / "run" / "processes.new").mkdir()
        instance.record([])

        assert "runtime" in (tmp_path / "run" / "processes.json").read_text()


def test_an_orderly_stop_removes_the_process_file(tmp_path):
    with Instance(tmp_path) as instance:
        instance.record([ProcessMark("runtime", 1, "0", "x")])
        rows = json.loads((tmp_path / "run" / "processes.json").read_text())
        assert rows == [{"name": "runtime", "pid": 1, "started": "0", "command": "x"}]

    assert not (tmp_path / "run" / "processes.json").exists()


def test_an_ended_process_has_no_mark(sleeper):
    assert mark_process("self", os.getpid()) is not None
    sleeper.kill()
    sleeper.wait()

    assert mark_process("sleeper", sleeper.pid) is None


def test_the_mark_of_a_process_that_just_started_has_its_command_line():
    # While the process starts its program (exec), the kernel shows an empty command line for a moment.
    answers = iter([b"", b"", b"/bin/sleep\x00600\x00"])

    assert _command_line(SimpleNamespace(read_bytes=answers.__next__)) == "/bin/sleep 600"
