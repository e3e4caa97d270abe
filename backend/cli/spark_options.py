"""The options of the commands that run on Spark: on which Spark, and with which packages and settings."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from backend.domain.errors import FieldProblem, HostError, InvalidInputError
from backend.pipeline.cluster import Cluster, cluster_of
from backend.pipeline.java import SparkMissing, SparkRuntime, find_spark
from backend.settings import Settings, child_environment

# Spark on this machine gets a lower priority than the pages and collectors.
_NICENESS = 10


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """What the options say. Each field is an option of the command."""

    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Run on this Spark: spark://HOST:PORT, k8s://URL, local[*] [this machine]."),
    ] = None
    archive: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Packages for the executors, from `barrierscope pipeline pack`.")
    ] = None
    executor_python: Annotated[
        str | None,
        typer.Option(metavar="PROGRAM", help="Python of the executors; valid here too [the path of this one]."),
    ] = None
    executor_url_file: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="File on each executor with the database's URL [the URL here, without its password]."
        ),
    ] = None
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark. Can be repeated.")
    ] = None

    def cluster(self) -> Cluster | None:
        """Return the chosen cluster, or None if no option was given.

        Raises:
            InvalidInputError: an option is invalid, or needs ``--master``.
        """
        python, url_file, conf = self.executor_python, self.executor_url_file, self.conf or []
        if self.master is not None:
            return cluster_of(self.master, python=python, archive=self.archive, url_file=url_file, conf=conf)
        if self.archive or python or url_file or conf:
            problem = FieldProblem("--master", "it is missing, and an option is for Spark only", "spark://HOST:PORT")
            raise InvalidInputError([problem], what="option")
        return None


def takes_spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of ``SparkOptions`` as options, in the place of its parameter of that type."""
    names = [f.name for f in fields(SparkOptions)]
    options = inspect.signature(SparkOptions).parameters
    types = get_type_hints(SparkOptions, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.annotation is SparkOptions:
            parameters += [options[n].replace(annotation=types[n]) for n in names]
        else:
            parameters.append(parameter)

    @wraps(command)
    def run(**values: Any) -> None:
        spark = SparkOptions(**{n: values.pop(n) for n in names})
        command(spark=spark, **values)

    # Typer reads the options of a command from these two.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def spark_here(settings: Settings) -> SparkRuntime | SparkMissing:
    """Find Spark on this machine. If Java needs a launcher script, it is written to the data folder."""
    return find_spark(child_environment(), settings.data_dir_or_default() / "java")


def required_spark(spark: SparkRuntime | SparkMissing) -> SparkRuntime:
    """Return the Spark that was found.

    Raises:
        HostError: none was found.
    """
    if isinstance(spark, SparkRuntime):
        return spark
    raise HostError(f"Spark cannot be started ({spark.reason})", fix=spark.FIX)


def give_way(cluster: Cluster | None) -> None:
    """Lower the priority of this process if Spark is going to run on this machine."""
    if cluster is None or cluster.is_local:
        os.nice(_NICENESS)
