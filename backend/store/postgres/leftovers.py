"""Cleans up after a killed instance: ends its PostgreSQL processes and removes a stale pid file.

A server is recognised by its program and its working folder, never by its process id. After a restart of the machine,
the id in ``postmaster.pid`` can belong to another program, which must not be ended or taken for a server. The caller
holds the folder's lock, so any server found there belongs to a dead instance.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path


def end_leftovers(data: Path, *, grace_s: float = 10.0) -> int:
    """End the server processes that work in the cluster ``data``, and return how many there were.

    Also remove a stale ``postmaster.pid``: if its process id now belonged to another program, PostgreSQL would take
    that program for a server.
    """
    left = list(server_processes(data))
    count = len(left)
    # SIGINT shuts a server down. If its postmaster was killed, no orderly shutdown is possible: the next start recovers
    # the data, so the other processes of the server are killed at once.
    orderly = (signal.SIGINT, signal.SIGQUIT) if _postmaster_pid(data) in left else ()
    for number in (*orderly, signal.SIGKILL):
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline_s = time.monotonic() + grace_s
        while (left := list(server_processes(data))) and time.monotonic() < deadline_s:
            time.sleep(0.05)
    if not left and Path("/proc/self/cwd").exists():
        (data / "postmaster.pid").unlink(missing_ok=True)
    return count


def resume(data: Path) -> None:
    """Resume the server processes that work in ``data``. A suspended process handles no signal but SIGKILL."""
    for pid in server_processes(data):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGCONT)


def server_processes(data: Path) -> Iterator[int]:
    """Yield the ids of the server processes that work in the cluster ``data``."""
    if not Path("/proc/self/cwd").exists():
        yield from _server_by_pid_file(data)
        return
    here = os.path.realpath(data)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # A zombie process has no working folder, so it is not found.
            if os.readlink(entry / "cwd") == here and _program(entry) == "postgres":
                yield int(entry.name)


def _program(process: Path) -> str:
    # If the program's file was replaced while it ran, the path ends in " (deleted)". The process is still the same
    # server.
    return os.readlink(process / "exe").removesuffix(" (deleted)").rpartition("/")[2]


def _postmaster_pid(data: Path) -> int | None:
    try:
        return int((data / "postmaster.pid").read_text().split("\n")[0])
    except (OSError, ValueError):
        return None


def _server_by_pid_file(data: Path) -> Iterator[int]:
    pid = _postmaster_pid(data)
    if pid is None:
        return
    with contextlib.suppress(OSError):
        words = subprocess.run(  # noqa: S603  the pid is an int
            ["/bin/ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
        ).stdout
        if "postgres" in words and str(data) in words:
            yield pid
