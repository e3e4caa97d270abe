"""Creates the folder for the files of one Spark process, and removes the folders that killed processes left.

Each folder contains a file that its process locks. The kernel releases the lock when the process ends, so a folder
whose lock is free belongs to no process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "barrierscope-spark-"
_LOCK = "in-use"
# A process that creates a folder has locked a file in it after at most this time. An older folder without a lock file
# therefore belongs to a killed process.
_CREATION_MAX_S = 60.0


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a folder for the files of one Spark process, and remove it at the end of the block.

    ``parent`` is the folder in which to create it; None is the folder for temporary files.
    """
    parent = parent or Path(tempfile.gettempdir())
    sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path | None = None) -> int:
    """Remove the scratch folders of killed processes from ``parent``, and return how many there were."""
    count = 0
    for folder in (parent or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        # Another process may remove the folder at the same time, or the folder may belong to another user.
        with suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
                count += not folder.exists()
    return count


def _is_abandoned(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return time.time() - folder.lstat().st_mtime > _CREATION_MAX_S
    except BlockingIOError:
        return False
    return True
