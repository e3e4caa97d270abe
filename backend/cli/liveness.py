"""Ends a child process when the ``up`` that started it ends.

Two mechanisms are used, because neither is sufficient. On Linux the kernel sends SIGTERM when the parent's thread ends
(PR_SET_PDEATHSIG; lost when credentials change). On every system a thread waits for the end of file on standard input,
a pipe whose only writer is the parent. Both work after a ``kill -9`` of the parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

# <sys/prctl.h>
_PR_SET_PDEATHSIG = 1
# After the parent's death, a child that takes longer than this to stop is ended at once.
_GRACE_S = 10.0


def die_with_parent(parent_pid: int) -> None:
    """End this process when ``parent_pid`` ends; exit at once if it has already ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have ended before the call above took effect.
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
