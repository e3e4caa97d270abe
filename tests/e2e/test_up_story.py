"""``barrierscope demo`` as a process: the whole story in a running service, and Ctrl-C in a service of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.support.running_up import COMMAND, free_port
from tests.support.waiting import PATIENCE_S, until

# The story takes nearly two minutes, because the alerts and the measured effect need checkpoints.
_STORY_MAX_S = 4 * PATIENCE_S


@pytest.fixture
def scratch():
    """Return the folder in which the story creates its temporary folder."""
    with tempfile.TemporaryDirectory(prefix="barrierscope-story-") as folder:
        yield Path(folder)


def _environment(scratch: Path) -> dict[str, str]:
    shell = {k: v for k, v in os.environ.items() if not k.startswith("BARRIERSCOPE_")}
    return shell | {"TMPDIR": str(scratch), "STORY": str(scratch)}


def _left(scratch: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get("STORY") == str(scratch) or process.cwd().startswith(str(scratch))
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


@pytest.mark.slow
def test_the_whole_story_is_played_in_a_running_service_and_leaves_no_target_and_no_process(start, scratch):
    up = start("--no-demo")
    up.wait_until_says("ready: open")
    address = f"http://127.0.0.1:{up.port}"

    told = subprocess.run(
        [*COMMAND, "demo", "--story", "backpressure", "--url", address, "--auto", "--pause", "0s"],
        capture_output=True,
        text=True,
        timeout=_STORY_MAX_S,
        env=_environment(scratch),
    )

    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.count("  open http://") == 9
    assert "is at capacity" in told.stdout
    assert "end-to-end duration: predicted " in told.stdout
    for line in told.stdout.splitlines():
        if line.startswith("  open "):
            assert up.page(line.split(address)[1]).status_code == 200
    assert up.get("/api/v1/targets?limit=10")["items"] == []
    assert _left(scratch) == []
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_ends_the_own_service_and_removes_its_data(scratch):
    command = [*COMMAND, "demo", "--port", str(free_port())]
    story = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(scratch),
        start_new_session=True,
    )
    assert story.stdin is not None
    assert story.stdout is not None
    until(lambda: "press Enter" in story.stdout.readline(), "the first act is over")
    story.stdin.write("\n")
    story.stdin.flush()
    until(lambda: "Act 2" in story.stdout.readline(), "Enter begins the next act")

    story.send_signal(signal.SIGINT)

    assert story.wait(PATIENCE_S) == 130
    story.stdin.close()
    story.stdout.close()
    assert _left(scratch) == []
    assert list(scratch.iterdir()) == []
