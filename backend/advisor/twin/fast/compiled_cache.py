"""Where the compiled code of the fast tier is kept: a folder that is named by the source that it was compiled from.

numba looks only at the file of the function that it compiles. The fast tier is one function that contains those of
several files, so after a change of another file numba would load code that no longer fits its source. A folder for each
source prevents this.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

CACHE_VARIABLE: Final = "NUMBA_CACHE_DIR"
"""The variable of the environment that names numba's folder for compiled code."""
PREFIX: Final = "barrierscope-"
SOURCES: Final = ("barriers.py", "channels.py", "compiling.py", "events.py", "kinds.py", "loop.py", "tables.py")
"""The files whose functions are compiled, and those that they import. They are beside this file."""
KEPT_DAYS: Final = 7.0
"""A folder of another source is removed if no process has used it for this long. Two versions may share a cache."""

_CODE: Final = Path(__file__).parent
_DIGEST_LENGTH: Final = 16
# The folder beside ours may be that of temporary files, in which other things of this product begin with the prefix.
_OURS: Final = re.compile(rf"{re.escape(PREFIX)}[0-9a-f]{{{_DIGEST_LENGTH}}}")


def choose() -> None:
    """Make numba use the folder for the present source, and remove folders that are no longer used.

    Call it before the functions are imported, because numba decides then where it keeps them.
    """
    import numba

    folder = folder_for(_root(), digest_of(_CODE, numba.__version__))
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        sweep(folder)
    config: Any = numba.config
    config.CACHE_DIR = str(folder)


def digest_of(code: Path, compiler: str) -> str:
    """Return a digest of the compiled sources in the folder ``code`` and of the version of their compiler."""
    digest = hashlib.sha256(compiler.encode())
    for name in SOURCES:
        content = (code / name).read_bytes()
        digest.update(f"\n{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:_DIGEST_LENGTH]


def folder_for(root: Path, digest: str) -> Path:
    """Return the folder of compiled code for the source with this digest."""
    return root / f"{PREFIX}{digest}"


def sweep(used: Path) -> None:
    """Remove the folders beside ``used`` that hold code of other sources and were not used for ``KEPT_DAYS``."""
    oldest = time.time() - KEPT_DAYS * 86_400
    for folder in used.parent.glob(f"{PREFIX}*"):
        # Another process may remove the same folder.
        with contextlib.suppress(OSError):
            if folder != used and _OURS.fullmatch(folder.name) and folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


def _root() -> Path:
    named = os.environ.get(CACHE_VARIABLE) or own_root()
    if named:
        return Path(named)
    if os.access(_CODE, os.W_OK):
        return _CODE / "__pycache__"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barrierscope"


@cache
def own_root() -> str | None:
    """Return a new folder for compiled code; None if a usual one can be written. It goes with the process.

    The usual ones are the folder that the environment names, the folder of the code, and the user's cache. With none
    to write to, numba refuses to compile.

    Raises:
        OSError: no folder can be made.
    """
    usual = (_CODE, Path.home())
    if os.environ.get(CACHE_VARIABLE) or any(os.access(folder, os.W_OK) for folder in usual):
        return None
    folder = tempfile.mkdtemp(prefix="barrierscope-numba-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
