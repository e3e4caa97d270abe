"""Flink's own classes, driven: the jar from the package index, the harness compiled against it, lines in and out.

``python -m tests.support.flink_code FOLDER VERSION...`` fetches the jars (some hundred megabytes each) into FOLDER.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

HARNESSES = Path(__file__).parents[1] / "conformance" / "flink_code"
VERSIONS = ("1.20.5", "2.3.0")
_JARS = ("flink-dist", "log4j-api", "log4j-core", "log4j-slf4j")


def fetch(folder: Path, version: str) -> None:
    """Put a version's jars into ``folder/VERSION``; nothing where they are there already."""
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
                if name.startswith(_JARS) and name.endswith(".jar") and (content := members.extractfile(member)):
                    (found / name).write_bytes(content.read())
        found.rename(jars)


def drive(jars: Path, harness: str, lines: Iterable[str]) -> list[str]:
    """What the harness prints, compiled against these jars, a line for each of ``lines``."""
    with tempfile.TemporaryDirectory() as classes:
        source = HARNESSES / f"{harness}.java"
        path = f"{jars}/*"
        subprocess.run(["javac", "-nowarn", "-cp", path, "-d", classes, str(source)], check=True, capture_output=True)
        # A harness of what is not public lies in the package of what it drives.
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
    """Every question that we answer otherwise than Flink, with both answers."""
    assert len(answers) == len(questions)
    pairs = zip(questions, answers, strict=True)
    return [f"{q}\nours  {o}\nFlink {a}" for q, a in pairs if (o := ours(q)) != a]


def record(file: Path, questions: Sequence[str], answers: Sequence[str]) -> None:
    """Keep them for tests without Flink: a line a question, the next one its answer."""
    file.write_text("\n".join(line for pair in zip(questions, answers, strict=True) for line in pair))


if __name__ == "__main__":
    for wanted in sys.argv[2:] or VERSIONS:
        fetch(Path(sys.argv[1]), wanted)
