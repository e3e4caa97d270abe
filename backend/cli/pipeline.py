"""``barrierscope pipeline``: rolls up the history, replays it, or predicts the whole fleet under other settings."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from backend.cli import fleet_what_if
from backend.cli.backtest import HtmlFile, Only, instant_of, progress_bar, write
from backend.cli.backtest import Since as BacktestSince
from backend.cli.database import DatabaseUrl, RunningFolder, plain_url, used_url
from backend.cli.options import OutputFormat, help_without_command, instant, pairs, say, stopped_by_signal
from backend.cli.role_logging import log_to_stderr
from backend.cli.spark_options import SparkOptions, give_way, required_spark, spark_here, takes_spark_options
from backend.domain.backtest import EVERY_PART
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.pipeline.cluster import Cluster
from backend.pipeline.java import LOCAL_VARIABLES, SparkMissing, SparkRuntime
from backend.settings import load_settings

if TYPE_CHECKING:
    from backend.pipeline.jobs.rollups import HourRange, RollupReport

_log = structlog.get_logger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

app = typer.Typer(
    help="Work on the whole fleet: roll up or replay its history, or predict it under other settings.",
    invoke_without_command=True,
    add_completion=False,
    epilog="Example: barrierscope pipeline rollups",
)

Since = Annotated[str | None, typer.Option(metavar="INSTANT", help="Roll up hours from this instant, changed or not.")]
Until = Annotated[str | None, typer.Option(metavar="INSTANT", help="Roll up hours before this instant [now].")]
Format = Annotated[OutputFormat, typer.Option("--format", help="text or json")]


@app.callback()
def _group(context: typer.Context) -> None:
    help_without_command(context)


@app.command(epilog="Example: barrierscope pipeline rollups --since 2026-11-20T00:00:00Z --format json")
@takes_spark_options
def rollups(
    since: Since = None,
    until: Until = None,
    *,
    spark: SparkOptions,
    output_format: Format = OutputFormat.TEXT,
    database_url: DatabaseUrl = None,
) -> None:
    """Roll up, for every job, the closed hours that have changed since the last run."""
    settings = load_settings()
    log_to_stderr(settings.log_level)
    url = plain_url(database_url, settings)
    wanted = _range(since, until)
    cluster = spark.cluster()
    from backend.pipeline.jobs.rollups import RollupRun
    from backend.store.wall_clock import WallClock

    def find() -> SparkRuntime | None:
        spark = spark_here(settings)
        if isinstance(spark, SparkMissing) and cluster is None:
            _log.warning("PostgreSQL does this large run, because Spark cannot be started", reason=spark.reason)
            return None
        runtime = required_spark(spark)
        give_way(cluster)
        return runtime

    run = RollupRun(url, find, WallClock())
    if cluster is not None:
        run = replace(run, small_max=0, cluster=cluster)
    with stopped_by_signal(), _progress_bar() as on_progress:
        report = replace(run, on_progress=on_progress).do(wanted)
    typer.echo(_as_json(report) if output_format is OutputFormat.JSON else _in_words(report))


@app.command(epilog="Example: barrierscope pipeline backtest --html backtest.html")
@takes_spark_options
def backtest(
    since: BacktestSince = None,
    only: Only = None,
    html: HtmlFile = None,
    *,
    spark: SparkOptions,
    output_format: Format = OutputFormat.TEXT,
    database_url: DatabaseUrl = None,
) -> None:
    """Replay warnings, verdicts and advice over all jobs with Spark, as `barrierscope backtest` does in one process."""
    settings = load_settings()
    log_to_stderr(settings.log_level)
    url = plain_url(database_url, settings)
    first = instant_of(since)
    cluster = spark.cluster() or Cluster()
    found = required_spark(spark_here(settings))
    give_way(cluster)
    from backend.pipeline.jobs.backtest import on_spark

    parts = frozenset(only or EVERY_PART)
    with stopped_by_signal(), progress_bar("jobs replayed") as on_progress:
        results = on_spark(url, found, cluster, first, on_progress, parts)
    write(results, parts, html, output_format)


@app.command(name="whatif", epilog="Example: barrierscope pipeline whatif --set mode=unaligned")
@takes_spark_options
def what_if(
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A changed setting, as in `barrierscope whatif`; repeatable."),
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Jobs in the table; the counts are of all jobs.")] = 50,
    *,
    spark: SparkOptions,
    output_format: Format = OutputFormat.TEXT,
    database_url: DatabaseUrl = None,
    data_dir: RunningFolder = None,
) -> None:
    """Predict every running job under the same settings: which jobs gain, which lose, and for which it is unclear."""
    configured = load_settings()
    log_to_stderr(configured.log_level)
    wanted = _changed(settings or [])
    url = used_url(database_url, data_dir, configured)
    cluster = spark.cluster() or Cluster()
    found = required_spark(spark_here(configured))
    give_way(cluster)
    from backend.pipeline.jobs.fleet_whatif import on_spark

    with stopped_by_signal(), progress_bar("jobs predicted") as on_progress:
        answers = on_spark(url, wanted, found, cluster, on_progress)
    rows = [(job.id, job.name, answer) for job, answer in answers]
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps(fleet_what_if.document(rows, wanted)))
    elif rows:
        say(*fleet_what_if.text(rows, wanted, most))
    else:
        typer.echo("nothing to predict: no job is running; start one, and ask when five checkpoints have ended")


def _changed(settings: Sequence[str]) -> dict[str, str]:
    """Return the settings. Raises InvalidInputError if there are none, or if each job would refuse them."""
    from backend.advisor.twin.asking.asking import problems_of_every_job

    wanted = pairs(settings, option="--set", is_once=True)
    problems = problems_of_every_job(wanted, where="--set")
    if not wanted:
        problems = [FieldProblem("--set", "no setting would change", "such as mode=unaligned")]
    if problems:
        raise InvalidInputError(problems, what="option")
    return wanted


@app.command(epilog="Example: barrierscope pipeline pack barrierscope-executors.tar.gz")
def pack(file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write, FILE.tar.gz.")]) -> None:
    """Write the archive with the packages that executors need, for machines with this version of Python."""
    from backend.pipeline.archive import write_archive

    typer.echo(f"wrote {file}, {write_archive(file) / 1e6:.0f} MB")


@app.command(epilog="Example: barrierscope pipeline schedule")
def schedule(database_url: DatabaseUrl = None) -> None:
    """Roll up every hour a few minutes after its end, until stopped."""
    settings = load_settings()
    log_to_stderr(settings.log_level)
    url = plain_url(database_url, settings)
    from backend.cli.pipeline_schedule import Schedule
    from backend.pipeline.scratch import sweep
    from backend.store.wall_clock import WallClock

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    sweep()
    Schedule(url, WallClock(), stop).run()


def executor() -> None:
    """Become an executor of Spark on Kubernetes. Spark starts this command in the pods that it creates."""
    from backend.pipeline.executor import executor_command

    spark = required_spark(spark_here(load_settings()))
    # The variables that keep Spark on this machine are left out, because the executor uses the network of its pod.
    # Spark's variables for the folder of settings are passed on.
    environment = {name: value for name, value in spark.environment.items() if name not in LOCAL_VARIABLES}
    given = environment | {name: value for name, value in os.environ.items() if name.startswith("SPARK_CONF_DIR")}
    command = executor_command(given, java_home=environment["JAVA_HOME"], spark_home=environment["SPARK_HOME"])
    os.execve(command[0], command, environment)  # noqa: S606  the Java that runs Spark


def _range(since: str | None, until: str | None) -> HourRange | None:
    from backend.pipeline.jobs.rollups import HourRange

    if since is None and until is None:
        return None
    first = _EPOCH if since is None else instant(since, option="--since")
    last = datetime.max.replace(tzinfo=UTC) if until is None else instant(until, option="--until")
    if first >= last:
        problem = FieldProblem("--since", f"{since!r} is not before {until!r}", "an instant before --until")
        raise InvalidInputError([problem], what="option")
    return HourRange(first, last)


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error if that is a terminal. Yield the function that updates it."""
    columns = (TextColumn("hours rolled up"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _as_json(report: RollupReport) -> str:
    return json.dumps(
        {
            "run_id": report.run_id,
            "hours_total": report.hours_total,
            "hours_done": report.hours_done,
            "duration_s": round(report.duration_s, 3),
        }
    )


def _in_words(report: RollupReport) -> str:
    if report.hours_total == 0:
        return "nothing to do: no closed hour has changed since its last rollup"
    hours = f"{report.hours_done} hour{'' if report.hours_done == 1 else 's'}"
    return f"rolled up {hours} in {report.duration_s:.1f} s"
