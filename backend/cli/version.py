"""The version of the installed distribution: the command ``version`` and the option ``--version``."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Annotated

import typer

from backend.cli.options import OutputFormat


def version(
    output_format: Annotated[OutputFormat, typer.Option("--format", help="text or json")] = OutputFormat.TEXT,
) -> None:
    """Print the version."""
    number = metadata.version("barrierscope")
    typer.echo(json.dumps({"version": number}) if output_format is OutputFormat.JSON else number)


def print_and_exit(is_wanted: bool) -> None:
    """Print the version and exit if the option ``--version`` is given."""
    if is_wanted:
        version()
        raise typer.Exit
