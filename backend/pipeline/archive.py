"""Writes the archive of packages that executors on other machines need: the pipeline, NumPy, Arrow, a database driver.

Spark sends the archive to each executor, which unpacks it into its working folder. Spark itself, its Python code and
the Python interpreter are not in it. The compiled packages fit only the Python minor version and the kind of machine on
which the archive was written.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import backend
from backend.domain.errors import HostError

FOLDER = "barrierscope"
"""The folder, in the working folder of an executor, into which the archive is unpacked."""

_DISTRIBUTIONS = ("adbc-driver-manager", "adbc-driver-postgresql", "numpy", "pyarrow", "typing-extensions")
# These files are left out: headers, tests, programs, and Arrow's clients of Flight and of object stores. The clients
# are a quarter of the rest.
_NOT_NEEDED = (
    *("..", "pyarrow/include/", "pyarrow/tests/"),
    *("pyarrow/libarrow_flight", "pyarrow/_flight", "pyarrow/libarrow_s3", "pyarrow/_s3fs"),
)


def write_archive(path: Path) -> int:
    """Write the archive to ``path``, and return its size in bytes. The same installation gives the same bytes.

    Raises:
        HostError: a package is not installed, or the file cannot be written.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as draft:
            try:
                # The lowest level of compression is used, because time matters more than size.
                with (
                    gzip.GzipFile(filename="", fileobj=draft, mode="wb", compresslevel=1, mtime=0) as packed,
                    tarfile.open(fileobj=packed, mode="w") as archive,
                ):
                    for name, file in sorted(_files()):
                        archive.add(file, arcname=name, filter=_plain)
                Path(draft.name).chmod(0o644)
                Path(draft.name).replace(path)
            except BaseException:
                Path(draft.name).unlink(missing_ok=True)
                raise
    except PackageNotFoundError as error:
        raise HostError(f"the package {error.name} is not installed", fix='install the extra "spark"') from None
    except OSError as error:
        raise HostError(f"{path} cannot be written ({error.strerror})", fix="name another file") from None
    return path.stat().st_size


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the name in the archive and the path of each file."""
    for package in _DISTRIBUTIONS:
        for file in distribution(package).files or ():
            name = file.as_posix()
            if not name.startswith(_NOT_NEEDED) and not name.endswith(".pyc"):
                yield name, Path(os.fspath(file.locate()))
    root = Path(backend.__path__[0])
    for source in root.rglob("*.py"):
        yield source.relative_to(root.parent).as_posix(), source


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    return member
