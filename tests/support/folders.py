"""Folders of servers that tests start."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

# A file system in memory, on Linux.
_MEMORY = Path("/dev/shm")
_FREE_MIN_BYTES = 4 * 2**30


def quick_folder(prefix: str) -> Path:
    """Make a temporary folder: in memory if there is room for the data of several servers, else on the disk.

    A database has a thousand files. If a test creates a database just after another test dropped one, ext4 looks
    through all recently deleted files for each new one, which took a quarter of the CPU time of all tests.
    """
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _FREE_MIN_BYTES
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY if has_room else None))
