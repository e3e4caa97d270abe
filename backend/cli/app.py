"""The command tree, and the only place that turns errors into a line on standard error and an exit code.

Exit codes: 0 success; 1 failure, with the reason in the line; 2 invalid command line or input; 130 interrupted. An
expected error prints no traceback. A bug prints one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from backend.cli import (
    advise,
    alert_role,
    alerts,
    backtest,
    backup,
    compare,
    demo,
    diagnose,
    experiment,
    export,
    lab_role,
    pipeline,
    roles,
    simulate,
    spark_demo,
    targets,
    up,
    what_if,
)
from backend.cli.liveness import die_with_parent
from backend.cli.options import OutputFormat, help_without_command
from backend.domain.errors import FULL_DISK, BarrierscopeError, DomainError
from backend.domain.text import printable

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="barrierscope",
    help="Shows which subtask holds the checkpoint barrier, why, and which change helps.",
    epilog="Example: barrierscope up",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _root(context: typer.Context, parent: Annotated[int, typer.Option(hidden=True)] = 0) -> None:
    if parent:
        die_with_parent(parent)
    help_without_command(context)


@app.command(epilog="Example: barrierscope version --format json")
def version(
    output_format: Annotated[OutputFormat, typer.Option("--format", help="text or json")] = OutputFormat.TEXT,
) -> None:
    """Print the version."""
    number = metadata.version("barrierscope")
    typer.echo(json.dumps({"version": number}) if output_format is OutputFormat.JSON else number)


app.command(name="up", epilog="Example: barrierscope up --port 8051 --data-dir ./data")(up.up)
app.command(name="demo", epilog="Example: barrierscope demo --story backpressure --auto")(demo.demo)
app.command(name="diagnose", epilog="Example: barrierscope diagnose http://my-flink:8081 --format markdown")(
    diagnose.diagnose
)
app.command(name="advise", epilog="Example: barrierscope advise orders --format markdown")(advise.advise)
app.command(name="whatif", epilog="Example: barrierscope whatif orders --set mode=unaligned --vary interval=5s..60s")(
    what_if.what_if
)
app.command(name="compare", epilog="Example: barrierscope compare orders --checkpoint 42")(compare.compare)
app.command(name="simulate", epilog="Example: barrierscope simulate backpressured --duration 120s --seed 7")(
    simulate.simulate
)
app.command(name="experiment", epilog="Example: barrierscope experiment chandy-lamport --seeds 20")(
    experiment.experiment
)
app.add_typer(targets.app, name="targets")
app.add_typer(alerts.app, name="alerts")
app.add_typer(alerts.receivers, name="receivers")
app.add_typer(pipeline.app, name="pipeline")
app.command(name="executor", hidden=True, epilog="Example: barrierscope executor")(pipeline.executor)
app.command(name="export", epilog="Example: barrierscope export subtasks orders.parquet --job orders")(export.export)
app.command(name="backtest", epilog="Example: barrierscope backtest --job orders --html backtest.html")(
    backtest.backtest
)
app.command(name="backup", epilog="Example: barrierscope backup barrierscope.dump")(backup.backup)
app.command(name="restore", epilog="Example: barrierscope restore barrierscope.dump --data-dir ./data")(backup.restore)
app.command(name="api", epilog="Example: barrierscope api --port 8050 --database-url postgresql://...")(roles.api)
app.command(name="runtime", epilog="Example: barrierscope runtime --port 18050 --job my-job.toml --job healthy")(
    roles.runtime
)
app.command(name="collect", epilog="Example: barrierscope collect --poll-interval 5s")(roles.collect)
app.command(name="alert", epilog="Example: barrierscope alert --interval 5s")(alert_role.alert)
app.command(name="lab", epilog="Example: barrierscope lab --database-url postgresql://...")(lab_role.lab)
app.command(name="spark-demo", epilog="Example: barrierscope spark-demo")(spark_demo.spark_demo)
app.command(name="migrate", epilog="Example: barrierscope migrate --wait 2min")(roles.migrate)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        code = app(arguments, prog_name="barrierscope", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        return _complain(_usage(error), _EXIT_USAGE)
    except BarrierscopeError as error:
        return _complain(str(error), _EXIT_USAGE if isinstance(error, DomainError) else _EXIT_FAILED)
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        return _end_unread()
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        _drop_output()
        return _complain(f"the disk is full ({error.strerror}); make room on it", _EXIT_FAILED)
    except SystemExit as error:
        # Typer turns a broken pipe into SystemExit.
        if isinstance(error.__context__, BrokenPipeError):
            return _end_unread()
        raise
    return code if isinstance(code, int) else 0


def _usage(error: typer.TyperException) -> str:
    """Return a message about the error in the command line, with the help command that lists the allowed values."""
    context = getattr(error, "ctx", None)
    command = "barrierscope" if context is None else context.command_path
    return f"{error.format_message()} (see `{command} --help`)"


def _end_unread() -> int:
    """End without an error after the reader of standard output, such as `head`, has closed it."""
    _drop_output()
    return 0


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, code: int) -> int:
    # The message can contain text from a target or a server.
    print("barrierscope: " + printable(" ".join(message.split())), file=sys.stderr)
    return code
