"""``barrierscope pipeline``: roll up the history now or on a schedule. Spark runs in its own process and then ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from backend.cli.database import DatabaseUrl, plain_url
from backend.cli.options import OutputFormat, help_without_command
from backend.cli.role_logging import log_to_stderr
from backend.domain.errors import FieldProblem, HostError, InvalidInputError
from backend.pipeline.java import SparkMissing, SparkRuntime, find_spark
from backend.settings import Settings, child_environment, load_settings

if TYPE_CHECKING:
    from backend.pipeline.jobs.rollups import HourRange, RollupReport

# A lower priority than the pages and collectors on the same machine.
_NICENESS = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT_ALLOWED = "an instant with an offset, such as 2026-11-20T00:00:00Z"

app = typer.Typer(
    help="Roll up the history with Spark.",
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
def rollups(
    since: Since = None,
    until: Until = None,
    output_format: Format = OutputFormat.TEXT,
    database_url: DatabaseUrl = None,
) -> None:
    """Roll up, for every job, the closed hours that have changed since the last run."""
    settings = load_settings()
    log_to_stderr(settings.log_level)
    url = plain_url(database_url, settings)
    wanted = _range(since, until)
    from backend.pipeline.jobs.rollups import RollupRun
    from backend.store.wall_clock import WallClock

    def find() -> SparkRuntime:
        found = find_here(settings)
        if isinstance(found, SparkMissing):
            raise HostError(f"Spark cannot be started ({found.reason})", fix=found.FIX)
        os.nice(_NICENESS)
        return found

    with _stopped_by_signal(), _progress_bar() as on_progress:
        report = RollupRun(url, find, WallClock(), on_progress=on_progress).do(wanted)
    typer.echo(_as_json(report) if output_format is OutputFormat.JSON else _in_words(report))


@app.command(epilog="Example: barrierscope pipeline schedule")
def schedule(database_url: DatabaseUrl = None) -> None:
    """Roll up every hour a few minutes after its end, until stopped. Spark runs only while it works."""
    settings = load_settings()
    log_to_stderr(settings.log_level)
    url = plain_url(database_url, settings)
    from backend.cli.pipeline_schedule import Schedule
    from backend.store.wall_clock import WallClock

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    Schedule(url, lambda: find_here(settings), WallClock(), stop).run()


def find_here(settings: Settings) -> SparkRuntime | SparkMissing:
    """Spark on this machine. If it needs a launcher, the launcher is in the data folder."""
    return find_spark(child_environment(), settings.data_dir_or_default() / "java")


def _range(since: str | None, until: str | None) -> HourRange | None:
    from backend.pipeline.jobs.rollups import HourRange

    if since is None and until is None:
        return None
    first = _EPOCH if since is None else _instant(since, "--since")
    last = datetime.max.replace(tzinfo=UTC) if until is None else _instant(until, "--until")
    if first >= last:
        problem = FieldProblem("--since", f"{since!r} is not before {until!r}", "an instant before --until")
        raise InvalidInputError([problem], what="option")
    return HourRange(first, last)


def _instant(text: str, option: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInputError(
            [FieldProblem(option, f"{text!r} is not an instant", _INSTANT_ALLOWED)], what="option"
        ) from None
    if found.tzinfo is None:
        raise InvalidInputError([FieldProblem(option, f"{text!r} has no offset", _INSTANT_ALLOWED)], what="option")
    return found.astimezone(UTC)


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error if that is a terminal."""
    columns = (TextColumn("hours rolled up"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def _stopped_by_signal() -> Iterator[None]:
    """Within the block SIGTERM acts like Ctrl-C: the run is closed in the log, and Spark ends."""

    def stop(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
