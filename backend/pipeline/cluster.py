"""Describes where Spark runs: on this machine, or on an existing cluster. This module does not import pyspark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.domain.errors import FieldProblem, InvalidInputError

# Two threads leave a small machine usable. A task is attempted up to three times.
_MASTER = "local[2,3]"
_MASTERS = ("local", "spark://", "k8s://")
_LOCAL_TASKS, _CLUSTER_TASKS = 2, 16
_PARALLELISM = "spark.default.parallelism"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The Spark cluster of a run. By default Spark runs on this machine, with two threads."""

    master: str = _MASTER
    """Spark's master URL."""
    python: str | None = None
    """The Python of the executors: a name or a path that is valid on this machine and on theirs.

    If it is None, the path of this Python is used.
    """
    archive: Path | None = None
    """The archive with the packages of the executors. If it is None, their Python has these packages."""
    url_file: str | None = None
    """The path, on each executor, of a file with the URL of the database.

    If it is None, executors receive the URL without its password, and libpq finds the password on the executor.
    """
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, which override those of the pipeline."""

    @property
    def is_local(self) -> bool:
        """Whether Spark runs on this machine only."""
        return self.master.startswith("local")

    @property
    def tasks(self) -> int:
        """Number of tasks that read a batch of hours in parallel."""
        text = self.conf.get(_PARALLELISM, "")
        return max(1, int(text)) if text.isdecimal() else _LOCAL_TASKS if self.is_local else _CLUSTER_TASKS


def cluster_of(
    master: str, *, python: str | None, archive: Path | None, url_file: str | None, conf: Sequence[str]
) -> Cluster:
    """Return the cluster that command line options describe.

    Raises:
        InvalidInputError: an option is invalid. The error lists every such option.
    """
    problems = []
    if not master.startswith(_MASTERS):
        problems.append(FieldProblem("--master", f"got {master!r}", "spark://HOST:PORT, k8s://URL or local[N]"))
    if archive is not None and not archive.is_file():
        problems.append(FieldProblem("--archive", f"{archive} is not a file", "a file of `barrierscope pipeline pack`"))
    wrong = (text for text in conf if not text.startswith("spark.") or "=" not in text)
    problems.extend(FieldProblem("--conf", f"got {text!r}", "spark.NAME=VALUE") for text in wrong)
    if problems:
        raise InvalidInputError(problems, what="option")
    pairs = (text.partition("=") for text in conf)
    return Cluster(master, python, archive, url_file, {name: value for name, _, value in pairs})
