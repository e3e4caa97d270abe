"""Prints where the jar is with which Spark reports to Barrierscope. The jar is part of ``collectors``."""

from __future__ import annotations

import typer

from backend.cli.entry_points import load_role


def spark_jar() -> None:
    """Print the path of the jar with which a Spark job reports to Barrierscope without a change of its code."""
    typer.echo(load_role("spark-jar")())
