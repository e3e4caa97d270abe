"""Cleans up after a killed instance: ends its PostgreSQL processes and removes a stale pid file.

A server is recognised by its program and its working folder, never by its process id: after a restart of the machine,
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
    """End the server processes that work in the cluster ``data``; return how many there were.

    Also removes a stale ``postmaster.pid``: if its number now belongs to another program, PostgreSQL would take that
    program for a server.
    """
    left = list(_server_processes(data))
    count = len(left)
    # SIGINT shuts a server down; backends whose postmaster was killed end by themselves or are killed.
    for number, wait_s in ((signal.SIGINT, grace_s), (signal.SIGQUIT, grace_s), (signal.SIGKILL, grace_s)):
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline_s = time.monotonic() + wait_s
        while (left := list(_server_processes(data))) and time.monotonic() < deadline_s:
            time.sleep(0.05)
    if not left and Path("/proc/self/cwd").exists():
        (data / "postmaster.pid").unlink(missing_ok=True)
    return count


def _server_processes(data: Path) -> Iterator[int]:
    if not Path("/proc/self/cwd").exists():
        yield from _server_by_pid_file(data)
        return
    here = os.path.realpath(data)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # A zombie has no working folder, so it is not seen here.
            if os.readlink(entry / "cwd") == here and _program(entry) == "postgres":
                yield int(entry.name)


def _program(process: Path) -> str:
    # If the program's file was replaced during the run, the process is still the same server.
    return os.readlink(process / "exe").removesuffix(" (deleted)").rpartition("/")[2]


def _server_by_pid_file(data: Path) -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = int((data / "postmaster.pid").read_text().split("\n")[0])
        words = subprocess.run(  # noqa: S603  the pid is an int
            ["/bin/ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
        ).stdout
        if "postgres" in words and str(data) in words:
            yield pid
