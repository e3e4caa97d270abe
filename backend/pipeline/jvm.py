"""Ties the JVM of Spark to the process that starts it.

PySpark's JVM ends when its standard input is closed. That is not enough: a JVM that hangs in its shutdown stays, with
hundreds of megabytes. On Linux the kernel therefore kills the JVM when the thread that started it ends. Python workers
end when the JVM closes their connections.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pyspark.java_gateway

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def java_options(folder: Path) -> str:
    """Return the options of a JVM that writes its temporary files to ``folder`` only."""
    quoted = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    return f'"-Djava.io.tmpdir={quoted}" -XX:-UsePerfData'


@contextmanager
def jvm_of_this_process(folder: Path) -> Iterator[None]:
    """Ensure that a JVM that Spark starts within the block ends with this thread. PySpark uses ``folder`` for files.

    Call it in the main thread.
    """
    # PySpark has no option for this, so its function that starts a process is replaced.
    gateway: Any = pyspark.java_gateway
    before = gateway.Popen, tempfile.tempdir
    if sys.platform == "linux":
        gateway.Popen = _tied(Popen)
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        gateway.Popen, tempfile.tempdir = before


def _tied(start: Callable[..., Popen[bytes]]) -> Callable[..., Popen[bytes]]:
    # The function is looked up before the fork: after it, the child of a multi-threaded process can do little safely.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    own_pid = os.getpid()

    def start_tied(command: list[str], *, preexec_fn: Callable[[], None] | None = None, **options: Any) -> Popen[bytes]:
        def prepare() -> None:
            if preexec_fn is not None:
                preexec_fn()
            # The setting stays in force when Spark's start scripts replace themselves with the JVM.
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != own_pid:
                os._exit(1)

        return start(command, preexec_fn=prepare, **options)

    return start_tied
