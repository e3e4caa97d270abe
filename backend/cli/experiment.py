"""``barrierscope experiment``: runs an experiment on the reference runtime and writes a report.

The same command continues an experiment that was stopped or killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backend.cli.export import complete_file
from backend.cli.options import stopped_by_signal
from backend.domain.errors import FieldProblem, InvalidInputError

if TYPE_CHECKING:
    from backend.experiments.model import Experiment, Row

_SEEDS_MAX = 1000
_PROCESSES_MAX = 256


def experiment(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of an experiment; --list shows them.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=_SEEDS_MAX, help="Number of runs of each variant.")] = 20,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for rows and report. [experiments/NAME]")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=_PROCESSES_MAX, help="Runs at the same time. [one for each CPU]")
    ] = None,
    is_list: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
) -> None:
    """Run an experiment, and write rows, charts and what came out. The same command continues a stopped one."""
    from backend.experiments.catalog import EXPERIMENTS

    if is_list:
        typer.echo("\n".join(_listed(EXPERIMENTS.values())))
        return
    chosen = EXPERIMENTS.get(name or "")
    if chosen is None:
        problem = "is missing" if name is None else f"{name!r} is not an experiment"
        raise InvalidInputError([FieldProblem("NAME", problem, ", ".join(EXPERIMENTS))], what="option")
    folder = out or Path("experiments") / chosen.name
    rows = _run(chosen, folder, seeds=seeds, processes=processes or os.cpu_count() or 1)
    _report(chosen, rows, folder, seeds)


def _listed(experiments: Iterable[Experiment]) -> Iterator[str]:
    listed = list(experiments)
    width = max(len(one.name) for one in listed)
    for one in listed:
        yield f"{one.name:<{width}} {one.title}"
        yield f"{'':<{width}} {one.sentence}"


def _run(chosen: Experiment, folder: Path, *, seeds: int, processes: int) -> list[Row]:
    from backend.experiments.running import kept_rows, run, units_of

    units = units_of(chosen, seeds)
    with kept_rows(folder, chosen.name) as kept:
        done = sum(unit in kept.by_unit for unit in units)
        if 0 < done < len(units):
            typer.echo(f"{done} of {len(units)} runs are kept in {folder}; running the others", err=True)
        try:
            with stopped_by_signal(), _progress(chosen.name, done, len(units)) as on_end:
                return run(chosen, kept, seeds=seeds, processes=processes, on_end=on_end)
        except KeyboardInterrupt:
            ended = sum(unit in kept.by_unit for unit in units)
            typer.echo(f"stopped: {ended} of {len(units)} runs are kept; the same command continues", err=True)
            raise


@contextmanager
def _progress(name: str, done: int, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on standard error if that is a terminal, and yield the function that moves it."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total, completed=done)
        yield lambda: bar.advance(task)


def _report(chosen: Experiment, rows: list[Row], folder: Path, seeds: int) -> None:
    from backend.experiments import report
    from backend.experiments.running import code_digest

    command = f"barrierscope experiment {chosen.name} --seeds {seeds}"
    page = report.page(chosen, rows, seeds=seeds, command=command, code=code_digest(), script=plotly_source())
    with complete_file(folder / "report.html") as file:
        file.write(page.encode())
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        data, write = folder / "rows.csv", report.write_csv
        typer.echo("Parquet needs pyarrow (the extra `spark`), so the rows are written as CSV", err=True)
    else:
        data, write = folder / "rows.parquet", report.write_parquet
    with complete_file(data) as file:
        write(rows, file)
    typer.echo("\n".join(report.table(chosen, rows)))
    typer.echo(f"\n{len(rows)} rows of {seeds} seeds: {data}\nreport: {folder / 'report.html'}")


def plotly_source() -> str:
    """Return the source of the part of plotly.js that the dashboard serves. It is a data file of that package."""
    vendor = resources.files("dashboard") / "vendor"
    (bundle,) = (f for f in vendor.iterdir() if f.name.startswith("plotly-") and f.name.endswith(".min.js"))
    return bundle.read_text(encoding="utf-8")
