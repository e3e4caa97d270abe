"""Download Flink: the jars of a whole distribution, from the Python package ``apache-flink-libraries``.

The package contains the folders ``lib`` and ``opt`` of a Flink distribution and the program that computes the memory
options of a TaskManager. A version is downloaded once (about 240 MB).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

VERSIONS = (
    "1.13.6",
    "1.14.6",
    "1.15.4",
    "1.16.3",
    "1.17.2",
    "1.18.1",
    "1.19.3",
    "1.20.5",
    "2.0.2",
    "2.1.3",
    "2.2.1",
    "2.3.0",
)
"""The newest patch release of each minor version, oldest first."""
_FOLDERS = ("lib", "opt", "bin")


def chosen(words: str) -> tuple[str, ...]:
    """Return the versions that a list such as ``1.15 2.2`` names, in the order of ``VERSIONS``. All if it is empty.

    Raises:
        SystemExit: a word is neither a version nor the first two numbers of one.
    """
    wanted = words.replace(",", " ").split()
    unknown = [word for word in wanted if not any(_matches(version, word) for version in VERSIONS)]
    if unknown:
        raise SystemExit(f"no such version of Flink: {' '.join(unknown)}; there are {' '.join(VERSIONS)}")
    return tuple(v for v in VERSIONS if not wanted or any(_matches(v, word) for word in wanted))


def minor(version: str) -> str:
    """Return the first two numbers of a version: ``1.15`` of ``1.15.4``."""
    return ".".join(version.split(".")[:2])


def is_before(version: str, other: str) -> bool:
    """Return whether the first two numbers of ``version`` are smaller than ``other``, such as ``1.15``."""
    return _numbers(version)[:2] < _numbers(other)[:2]


def fetch(folder: Path, version: str) -> Path:
    """Download a version into ``folder/VERSION`` and return that folder. Only return it if it exists already."""
    home = folder / version
    if home.is_dir():
        return home
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        package = f"apache-flink-libraries=={version}"
        # The source package needs the build tools that are installed already, and builds nothing.
        subprocess.run([*command, "--no-build-isolation", "--dest", work, package], check=True, stdout=sys.stderr)
        (archive,) = Path(work).glob("apache*flink*libraries*")
        found = Path(work) / version
        for path, content in _members(archive):
            _write(found, path, content)
        archive.unlink()
        os.rename(found, home)
    return home


def _write(home: Path, path: PurePosixPath, content: bytes) -> None:
    folder = path.parent.name
    if path.suffix == ".jar" and folder in _FOLDERS and path.parent.parent.name in ("deps", "pyflink"):
        (home / folder).mkdir(parents=True, exist_ok=True)
        (home / folder / path.name).write_bytes(content)


def _members(archive: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as files:
            for name in files.namelist():
                if name.endswith(".jar"):
                    yield PurePosixPath(name), files.read(name)
        return
    with tarfile.open(archive) as members:
        for member in members:
            if member.name.endswith(".jar") and (content := members.extractfile(member)):
                yield PurePosixPath(member.name), content.read()


def _matches(version: str, word: str) -> bool:
    return version == word or minor(version) == word


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    # The folder, and the versions as in ``make test-versions``.
    for _version in chosen(" ".join(sys.argv[2:])):
        print(fetch(Path(sys.argv[1]), _version))
