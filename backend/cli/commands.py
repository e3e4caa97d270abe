"""The table of the commands. It names each command's module, so that only the chosen command is imported.

The order is that of the help. A summary is one line of that help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Entry:
    """One command: where it is, and what the help prints about it.

    ``place`` is ``module:attribute``. The attribute is a function or, for a group of commands, a ``typer.Typer``, which
    has an example of its own.
    """

    place: str
    summary: str
    example: str = ""
    is_hidden: bool = False


COMMANDS: Final[Mapping[str, Entry]] = {
    "up": Entry(
        "backend.cli.up:up",
        "Run everything on this machine: database, demo jobs and pages.",
        "barrierscope up --port 8051 --data-dir ./data",
    ),
    "demo": Entry(
        "backend.cli.demo:demo",
        "Play a story for a talk: a job gets into trouble, and is cured.",
        "barrierscope demo --story backpressure --auto",
    ),
    "diagnose": Entry(
        "backend.cli.diagnose:diagnose",
        "Read a cluster once, and print what delays the barrier, and why.",
        "barrierscope diagnose http://my-flink:8081 --format markdown",
    ),
    "advise": Entry(
        "backend.cli.advise:advise",
        "Print the recommendations for a job, and their effects.",
        "barrierscope advise orders --format markdown",
    ),
    "whatif": Entry(
        "backend.cli.what_if:what_if",
        "Predict the checkpoints of a job under other settings.",
        "barrierscope whatif orders --set mode=unaligned --vary interval=5s..60s",
    ),
    "compare": Entry(
        "backend.cli.compare:compare",
        "Compare two checkpoints or two times, of a job or of two jobs.",
        "barrierscope compare orders --checkpoint 42",
    ),
    "simulate": Entry(
        "backend.cli.simulate:simulate",
        "Run a job of the reference runtime as fast as possible.",
        "barrierscope simulate backpressured --duration 120s --seed 7",
    ),
    "start": Entry(
        "backend.cli.start:start",
        "Start a job in a running live runtime, also from a checkpoint.",
        "barrierscope start my-job.toml --from orders.ckpt",
    ),
    "experiment": Entry(
        "backend.cli.experiment:experiment",
        "Run an experiment, and write rows, charts and what came out.",
        "barrierscope experiment chandy-lamport --seeds 20",
    ),
    "targets": Entry("backend.cli.targets:app", "Add, list, test, link and remove targets."),
    "alerts": Entry("backend.cli.alerts:app", "List alerts, and manage silences."),
    "receivers": Entry("backend.cli.alerts:receivers", "Add, list, test and remove the receivers of alerts."),
    "pipeline": Entry("backend.cli.pipeline:app", "Roll up, replay or predict the whole fleet, with Spark."),
    "executor": Entry(
        "backend.cli.pipeline:executor",
        "Become an executor of Spark on Kubernetes.",
        "barrierscope executor",
        is_hidden=True,
    ),
    "export": Entry(
        "backend.cli.export:export",
        "Write what is stored to a CSV or Parquet file.",
        "barrierscope export subtasks orders.parquet --job orders",
    ),
    "backtest": Entry(
        "backend.cli.backtest:backtest",
        "Replay warnings, verdicts and advice over stored checkpoints.",
        "barrierscope backtest --job orders --html backtest.html",
    ),
    "backup": Entry(
        "backend.cli.backup:backup",
        "Write a dump of all data while Barrierscope runs.",
        "barrierscope backup barrierscope.dump",
    ),
    "restore": Entry(
        "backend.cli.backup:restore",
        "Load a dump into the data folder of `up`, while it is stopped.",
        "barrierscope restore barrierscope.dump --data-dir ./data",
    ),
    "api": Entry(
        "backend.cli.roles:api",
        "Serve the API and the pages.",
        "barrierscope api --port 8050 --database-url postgresql://...",
    ),
    "runtime": Entry(
        "backend.cli.roles:runtime",
        "Run jobs of the reference runtime in real time.",
        "barrierscope runtime --port 18050 --job my-job.toml --job healthy",
    ),
    "collect": Entry(
        "backend.cli.roles:collect",
        "Read every registered target, and store the readings.",
        "barrierscope collect --poll-interval 5s",
    ),
    "alert": Entry(
        "backend.cli.alert_role:alert",
        "Evaluate the alert rules, and deliver alerts.",
        "barrierscope alert --interval 5s",
    ),
    "lab": Entry(
        "backend.cli.lab_role:lab",
        "Run the simulations and backtests that the pages request.",
        "barrierscope lab --database-url postgresql://...",
    ),
    "spark-demo": Entry(
        "backend.cli.spark_demo:spark_demo",
        "Run a small streaming query on Spark, as a demo.",
        "barrierscope spark-demo",
    ),
    "spark-jar": Entry(
        "backend.cli.spark_jar:spark_jar",
        "Print where the listener's jar for Spark is.",
        "barrierscope spark-jar",
    ),
    "migrate": Entry(
        "backend.cli.roles:migrate",
        "Migrate the database to the schema of this version.",
        "barrierscope migrate --wait 2min",
    ),
    "completion": Entry(
        "backend.cli.completion:completion",
        "Print or install the completion of commands for a shell.",
        "barrierscope completion bash --install",
    ),
    "version": Entry("backend.cli.version:version", "Print the version.", "barrierscope version --format json"),
}
