"""Run Flink's own classes: compile a Java harness against Flink's jars, send lines to it and read the lines it prints.

A line that is sent is a question, and the line that the harness prints for it is the answer. Ordinary tests use
recorded answers. ``make test-flink`` runs the harness on each Flink version. A test module that is run as a program
with the folder of a version's jars (``python -m tests.conformance... JARS``) records the answers again.

``python -m tests.simulators.flink_code FOLDER VERSION...`` downloads the jars (some hundred megabytes for each
version) into FOLDER.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HARNESSES = Path(__file__).parents[1] / "conformance" / "flink_code"
VERSIONS = ("1.20.5", "2.3.0")
SEQUENCES = int(os.environ.get("BARRIERSCOPE_FLINK_SEQUENCES", "100000"))
"""Number of random questions that ``make test-flink`` sends to the harness for each Flink version."""
_JARS = ("flink-dist", "log4j-api", "log4j-core", "log4j-slf4j")
# `make test-flink` passes the folder with the downloaded jars. Ordinary test runs have no such folder.
_FOLDER = os.environ.get("BARRIERSCOPE_FLINK_JARS", "")


def asks_flink(test: Callable[..., None]) -> Any:
    """Run the test once for each Flink version. Skip the test outside ``make test-flink``."""
    needs_jars = pytest.mark.skipif(not _FOLDER, reason="Flink's jars are fetched by `make test-flink`")
    return pytest.mark.flink(needs_jars(pytest.mark.parametrize("version", VERSIONS)(test)))


@dataclass(frozen=True, slots=True)
class FlinksCode:
    """One harness and the file of its recorded answers.

    In the file, each line with a question is followed by a line with its answer.
    """

    harness: str
    recording: str

    @property
    def _file(self) -> Path:
        return HARNESSES / f"{self.recording}.txt"

    def recorded(self) -> tuple[list[str], list[str]]:
        """Read the file of recorded answers, and return (questions, answers)."""
        lines = self._file.read_text().split("\n")
        assert len(lines) % 2 == 0
        return lines[::2], lines[1::2]

    def answers(self, version: str, questions: Sequence[str]) -> list[str]:
        """Run the harness on this Flink version, and return its answers, one per question."""
        told = drive(Path(_FOLDER) / version, self.harness, questions)
        assert len(told) == len(questions)
        return told

    def record(self, questions: Iterable[str]) -> None:
        """Run the harness, and write the questions with their answers to the file, for tests that run without Flink.

        The first command-line argument names the folder with the jars.
        """
        asked = list(questions)
        told = drive(Path(sys.argv[1]), self.harness, asked)
        self._file.write_text("\n".join(line for pair in zip(asked, told, strict=True) for line in pair))


def fetch(folder: Path, version: str, jars_wanted: tuple[str, ...] = _JARS) -> None:
    """Download a Flink version's jars into ``folder/VERSION``. Do nothing if that folder exists.

    ``jars_wanted`` are what the names of the jars begin with.
    """
    jars = folder / version
    if jars.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--dest", work, f"apache-flink-libraries=={version}"], check=True)
        (archive,) = Path(work).glob("*.tar.gz")
        found = Path(work) / version
        found.mkdir()
        with tarfile.open(archive) as members:
            for member in members:
                name = Path(member.name).name
                if name.startswith(jars_wanted) and name.endswith(".jar") and (content := members.extractfile(member)):
                    (found / name).write_bytes(content.read())
        found.rename(jars)


def drive(jars: Path, harness: str, lines: Iterable[str]) -> list[str]:
    """Compile the harness against these jars, pass ``lines`` to its standard input, and return the lines it prints."""
    with tempfile.TemporaryDirectory() as classes:
        source = HARNESSES / f"{harness}.java"
        path = f"{jars}/*"
        subprocess.run(["javac", "-nowarn", "-cp", path, "-d", classes, str(source)], check=True, capture_output=True)
        # A harness that uses package-private classes of Flink is declared in the package of these classes.
        package = re.search(r"^package (.+);$", source.read_text(), re.MULTILINE)
        name = harness if package is None else f"{package[1]}.{harness}"
        done = subprocess.run(
            ["java", "-cp", f"{classes}:{path}", name],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout.splitlines()


def differing(ours: Callable[[str], str], questions: Sequence[str], answers: Sequence[str]) -> list[str]:
    """Return each question to which our answer differs from Flink's, as text with both answers."""
    assert len(answers) == len(questions)
    pairs = zip(questions, answers, strict=True)
    return [f"{q}\nours  {o}\nFlink {a}" for q, a in pairs if (o := ours(q)) != a]


if __name__ == "__main__":
    for wanted in sys.argv[2:] or VERSIONS:
        fetch(Path(sys.argv[1]), wanted)
