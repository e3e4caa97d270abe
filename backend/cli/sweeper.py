"""Ends what ``up`` started if ``up`` is killed. It runs as a process of its own, next to the roles.

Roles and PostgreSQL end by themselves when ``up`` ends (see ``liveness``). A suspended process does not. After the end
of ``up``, this process therefore resumes every process of the data folder, waits, and kills those that still run. If
it is suspended itself, the kernel of Linux resumes it when ``up`` ends.

This process ends nothing of a new instance on the same folder. On Linux, the new instance ends this process before it
starts anything. On other systems it may not find this process, which therefore first looks at the lock of the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

from backend.cli.instance import ProcessMark, end_processes, is_in_use, left_in, mark_process, processes_of
from backend.store.postgres.leftovers import server_processes

# From <sys/prctl.h>.
_PR_SET_PDEATHSIG = 1
# The time after the end of `up` until hanging processes are killed. A role that does not hang ends earlier by itself.
# With the time for killing, nothing that `up` started outlives `up` by more than 10 s.
_GRACE_S = 7.0


def sweeper_command(folder: Path) -> tuple[str, ...]:
    """Return the command line that runs this module for the data folder of the calling ``up``."""
    # With -P, Python does not import from the current folder, which may contain another `backend/`.
    return (sys.executable, "-P", "-m", "backend.cli.sweeper", str(os.getpid()), str(folder))


def sweep(folder: Path, *, grace_s: float) -> None:
    """Resume every process of the data folder. Kill those that still run after ``grace_s``."""
    servers = (mark_process("postgres", pid) for pid in server_processes(folder / "postgres" / "data"))
    marks: list[ProcessMark] = [*left_in(folder), *(mark for mark in servers if mark is not None)]
    end_processes(marks, request=signal.SIGCONT, grace_s=grace_s)
    # The processes are looked up again, because a role may have started some while it ended.
    end_processes(list(processes_of(folder)), request=signal.SIGKILL)


def main(parent_pid: int, folder: Path, *, grace_s: float = _GRACE_S) -> None:
    """Wait until ``up`` ends, which closes standard input. Then sweep."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
    # The parent may have ended before prctl took effect.
    with contextlib.suppress(OSError):
        while os.getppid() == parent_pid and os.read(0, 4096):
            pass
    if sys.platform == "linux" or not is_in_use(folder):
        sweep(folder, grace_s=grace_s)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
