"""Build the files of a release: wheel, sdist, chart, SBOM, notes and checksums.

Usage, with the tag vX.Y.Z on the current commit: python -m tests.packaging.make_release [--out FOLDER]
[--cyclonedx PROGRAM] [--trial]

The notes are the section of the version in CHANGELOG.md. With ``--trial``, the files of a commit without a tag are
built, and the notes are the section Unreleased. Nothing is published.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from helm_python.chart import package

from tests.packaging.wheel_environment import ROOT

_RELEASED = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_LOCKS = ("requirements.txt", "requirements-spark.txt", "requirements-s3.txt")
_TIMEOUT_S = 900.0
_LINKS = "Links lead to files of this version, which the sdist contains."


class ReleaseError(Exception):
    """The release cannot be built. The text has the reason and the cure."""


def notes_of(changelog: str, section: str) -> str:
    """Return the text of the section ``## VERSION`` or ``## VERSION - DATE`` of the changelog.

    Raises:
        ReleaseError: there is no such section, or it is empty.
    """
    found = re.search(rf"^## {re.escape(section)}(?: - \d{{4}}-\d\d-\d\d)?\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if found is None or not found[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no section `## {section}`; rename `## Unreleased`, commit, and tag again")
    return found[1].strip() + "\n"


def chart_version(version: str) -> str:
    """Return a version as Helm needs it: 1.2.0rc1 is 1.2.0-rc.1, and 1.2.0.dev3 is 1.2.0-dev.3."""
    return re.sub(r"\.?(a|b|rc|dev)(\d+)$", r"-\1.\2", version)


def checksums(folder: Path) -> str:
    """Return the lines that ``sha256sum --check`` reads, for every file of ``folder``."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def version_of(*, is_trial: bool) -> str:
    """Return the version of the checkout.

    Raises:
        ReleaseError: the current commit has no tag of a release, or files differ from it.
    """
    version = _run(sys.executable, "-P", "-m", "hatchling", "version").splitlines()[-1]
    if is_trial:
        return version
    if changed := _run("git", "status", "--porcelain"):
        raise ReleaseError(
            f"the checkout differs from its commit ({changed.splitlines()[0].strip()}); commit or stash it"
        )
    if not _RELEASED.fullmatch(version):
        raise ReleaseError(f"this commit is {version}, not a release; `git tag -a vX.Y.Z`, or ARGS=--trial to try")
    return version


def build(out: Path, *, version: str, cyclonedx: str | None) -> list[Path]:
    """Write the files of the release into the empty folder ``out``, and return their paths."""
    is_release = _RELEASED.fullmatch(version)
    notes = notes_of((ROOT / "CHANGELOG.md").read_text(), version if is_release else "Unreleased")
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    _run(sys.executable, "-P", "-m", "hatchling", "build", "--directory", str(out))
    for left in out.glob(".*"):
        # hatchling writes a file .gitignore.
        left.unlink()
    package(ROOT / "helm" / "barrierscope", destination=out, version=chart_version(version), app_version=version)
    if cyclonedx is not None:
        (out / f"barrierscope-{version}.cdx.json").write_text(_sbom(cyclonedx, version))
    (out / "NOTES.md").write_text(f"# Barrierscope {version}\n\n{_LINKS}\n\n{notes}")
    (out / "SHA256SUMS").write_text(checksums(out))
    return sorted(out.iterdir())


def _sbom(cyclonedx: str, version: str) -> str:
    """Return the packages of the image, as locked, as a CycloneDX document."""
    pins = "".join((ROOT / name).read_text() for name in _LOCKS)
    options = ("--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--output-format", "JSON", "-")
    document = json.loads(_run(cyclonedx, "requirements", *options, stdin=pins))
    document["metadata"]["component"]["version"] = version
    return json.dumps(document, indent=2) + "\n"


def _run(*command: str, stdin: str = "") -> str:
    done = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command[:4])} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the release and return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--cyclonedx", help="the program cyclonedx-py; without it there is no SBOM")
    parser.add_argument("--trial", action="store_true")
    given = parser.parse_args(arguments)
    try:
        files = build(given.out, version=version_of(is_trial=given.trial), cyclonedx=given.cyclonedx)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in files:
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
