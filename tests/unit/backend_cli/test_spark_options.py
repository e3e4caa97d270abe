"""The commands that run on Spark have the same options, and give them on as one value."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from backend.cli.app import run
from backend.cli.spark_options import SparkOptions, takes_spark_options

_GIVEN = {
    "--archive": "packages.tar.gz", "--executor-python": "python3", "--executor-url-file": "/run/url",
    "--conf": "spark.a=b",
}  # fmt: skip


def test_the_options_reach_the_command_as_one_value_beside_its_own():
    got: list[tuple[int, SparkOptions]] = []
    app = typer.Typer()

    @app.command()
    @takes_spark_options
    def command(count: int = 1, *, spark: SparkOptions) -> None:
        got.append((count, spark))

    options = [word for pair in _GIVEN.items() for word in pair] + ["--conf", "spark.c=d", "--count", "3"]
    result = CliRunner().invoke(app, ["--master", "local[2]", *options])

    assert result.exit_code == 0, result.output
    archive = Path("packages.tar.gz")
    assert got == [(3, SparkOptions("local[2]", archive, "python3", "/run/url", ["spark.a=b", "spark.c=d"]))]


@pytest.mark.parametrize("command", ["rollups", "backtest"])
@pytest.mark.parametrize("option", _GIVEN)
def test_an_option_for_spark_needs_a_master(command, option, capsys):
    assert run(["pipeline", command, option, _GIVEN[option], "--database-url", "postgresql://nowhere/x"]) == 2

    assert "--master: it is missing, and an option is for Spark only" in capsys.readouterr().err
