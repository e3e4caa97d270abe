"""Ends a child process when the ``up`` that started it ends.

Two mechanisms are used, because neither is sufficient alone. On Linux the kernel sends SIGTERM when the thread that
started the child ends (PR_SET_PDEATHSIG), but it forgets this setting when the child's credentials change. On every
system a thread waits for end of file on standard input, which is a pipe that only the parent can write. Both
mechanisms also work after a ``kill -9`` of the parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

# From <sys/prctl.h>.
_PR_SET_PDEATHSIG = 1
# A child that still runs this long after its parent's death exits at once. Nothing that `up` started outlives it by
# more than 10 s.
_GRACE_S = 7.0


def die_with_parent(parent_pid: int) -> None:
    """End this process when ``parent_pid`` ends. Exit at once if that process has already ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have ended before prctl took effect.
    if os.getppid() != parent_pid:
        os._exit(0)
    threading.Thread(target=_end_with_stdin, name="parent-watch", daemon=True).start()


def _end_with_stdin() -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os._exit(1)
