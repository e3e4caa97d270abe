"""``barrierscope backtest``: replays warnings of timeouts, verdicts and advice over the stored checkpoints."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from backend.cli.database import DatabaseUrl, RunningFolder, used_url
from backend.cli.experiment import plotly_source
from backend.cli.export import complete_file
from backend.cli.options import OutputFormat, instant, stopped_by_signal
from backend.domain.backtest import EVERY_PART, Part
from backend.settings import load_settings

if TYPE_CHECKING:
    from backend.pipeline.jobs.backtest import Found

Jobs = Annotated[
    list[str] | None, typer.Option("--job", metavar="JOB", help="Name or id of a job; may be repeated. [every job]")
]
Since = Annotated[
    str | None, typer.Option(metavar="INSTANT", help="Replay checkpoints from this instant, with an offset.")
]
HtmlFile = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write a page with charts.")]
Only = Annotated[
    list[Part] | None, typer.Option("--only", help="What to replay; may be repeated. [all]", show_choices=True)
]
Format = Annotated[OutputFormat, typer.Option("--format", help="text or json")]
_STEP_S = 0.2


def backtest(
    job: Jobs = None,
    since: Since = None,
    only: Only = None,
    html: HtmlFile = None,
    output_format: Format = OutputFormat.TEXT,
    database_url: DatabaseUrl = None,
    data_dir: RunningFolder = None,
) -> None:
    """Replay warnings, verdicts and advice over stored checkpoints: what they would have said, and how they fared."""
    settings = load_settings()
    first = instant_of(since)
    url = used_url(database_url, data_dir, settings)
    from backend.pipeline.jobs.backtest import here

    parts = frozenset(only or EVERY_PART)
    with stopped_by_signal(), progress_bar("checkpoints") as on_progress:
        found = here(url, job or (), first, on_progress, parts)
    write(found, parts, html, output_format, since=since)


def instant_of(since: str | None) -> datetime | None:
    """Parse the option ``--since``. Raises InvalidInputError if it is no instant."""
    return None if since is None else instant(since, option="--since")


def write(
    found: list[Found],
    parts: Collection[Part],
    html: Path | None,
    output_format: OutputFormat,
    *,
    since: str | None = None,
) -> None:
    """Print the results of these parts, and write the page if a file is named. ``since`` is the option of this name."""
    from backend.backtest import report

    results = [(job.name, result) for job, result in found]
    if html is not None:
        page = report.page(results, parts, title="Backtest", script=plotly_source())
        with complete_file(html) as file:
            file.write(page.encode())
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps(report.document(results)))
    elif not any(job.checkpoint_count for job, _ in found):
        if since is None:
            typer.echo("nothing to replay: no ended checkpoint is stored; wait for the first one")
        else:
            typer.echo(f"nothing to replay: no checkpoint triggered since {since} has ended; pass an earlier --since")
    else:
        typer.echo("\n".join(report.table(results, parts)))
    if html is not None and output_format is OutputFormat.TEXT:
        typer.echo(f"\npage: {html}")


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error if that is a terminal. Yield the function that updates it."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task, shown_s = progress.add_task("", total=None), 0.0

        def update(done: int, total: int) -> None:
            nonlocal shown_s
            now_s = time.monotonic()
            if done == total or now_s - shown_s >= _STEP_S:
                shown_s = now_s
                progress.update(task, completed=done, total=total)

        yield update
