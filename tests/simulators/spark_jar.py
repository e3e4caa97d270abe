"""Builds the jar of the Spark listener: ``make spark-jar``.

Two builds with the same compiler give the same bytes: the entries are sorted, have a fixed time and are not compressed.
The jar is committed, so that the wheel needs no JDK. Its manifest has the digest of the source and the version of the
compiler, with which a test finds a jar that is older than its source.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from collectors.spark.jar import CLASS, JAR

SOURCE = JAR.parent.parent / "java" / (CLASS.replace(".", "/") + ".java")
_TIME = (2000, 1, 1, 0, 0, 0)
_JAVA = "8"


def compiler_version() -> str | None:
    """Return the major version of ``javac``, or None if there is no JDK."""
    try:
        said = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"javac (?:1\.)?(\d+)", said.stdout + said.stderr)
    return found[1] if found else None


def source_digest() -> str:
    """Return the digest of the source, as the manifest has it: a line of a manifest has at most 72 bytes."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:40]


def manifest(jar: Path) -> dict[str, str]:
    """Return the manifest of a jar."""
    with zipfile.ZipFile(jar) as archive:
        lines = archive.read("META-INF/MANIFEST.MF").decode().splitlines()
    return dict(line.split(": ", 1) for line in lines if line)


def build(jar: Path) -> None:
    """Compile the listener against the jars of the installed pyspark, and write the jar.

    Raises:
        RuntimeError: there is no JDK, or the source is not valid.
    """
    version, spark = compiler_version(), find_spec("pyspark")
    if version is None:
        raise RuntimeError("javac is not installed: the jar needs a JDK from 17 on")
    if spark is None or spark.origin is None:
        raise RuntimeError("pyspark is not installed: the jar is compiled against its classes")
    with tempfile.TemporaryDirectory() as folder:
        command = ["javac", "--release", _JAVA, "-Xlint:-options", "-g:source,lines", "-encoding", "UTF-8"]
        classpath = ["-cp", f"{Path(spark.origin).parent}/jars/*", "-d", folder, str(SOURCE)]
        said = subprocess.run([*command, *classpath], capture_output=True, text=True)
        if said.returncode:
            raise RuntimeError(said.stderr.strip())
        classes = sorted(Path(folder).rglob("*.class"))
        _write(jar, {path.relative_to(folder).as_posix(): path.read_bytes() for path in classes}, version)


def _write(jar: Path, classes: dict[str, bytes], version: str) -> None:
    lines = ("Manifest-Version: 1.0", f"Build-Jdk-Spec: {version}", f"Source-Digest: {source_digest()}", "", "")
    entries = {"META-INF/MANIFEST.MF": "\r\n".join(lines).encode(), **classes}
    jar.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)


def main() -> int:
    """Build the jar in its place in the repository."""
    try:
        build(JAR)
    except RuntimeError as error:
        print(f"spark-jar: {error}", file=sys.stderr)
        return 1
    print(f"{JAR}: {JAR.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
