"""The root of the command tree, and the only place that turns errors into a line on standard error and an exit code.

Exit codes: 0 success; 1 failure, with the reason in the line; 2 invalid command line or input; 130 interrupted. An
expected error prints no traceback. A bug prints one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from backend.cli.extras import missing_package
from backend.cli.lazy_group import LazyGroup
from backend.cli.liveness import die_with_parent
from backend.cli.options import help_without_command
from backend.cli.version import print_and_exit
from backend.domain.errors import FULL_DISK, BarrierscopeError, DomainError
from backend.domain.text import printable

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="barrierscope",
    cls=LazyGroup,
    help="Shows which subtask holds the checkpoint barrier, why, and which change helps.",
    epilog="Example: barrierscope up",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _root(
    context: typer.Context,
    parent: Annotated[int, typer.Option(hidden=True)] = 0,
    _: Annotated[
        bool, typer.Option("--version", callback=print_and_exit, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if parent:
        die_with_parent(parent)
    help_without_command(context)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        code = app(arguments, prog_name="barrierscope", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        return _complain(_usage(error), _EXIT_USAGE)
    except BarrierscopeError as error:
        return _complain(str(error), _EXIT_USAGE if isinstance(error, DomainError) else _EXIT_FAILED)
    except ModuleNotFoundError as error:
        problem = missing_package(error)
        if problem is None:
            raise
        return _complain(str(problem), _EXIT_FAILED)
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
    # Typer validates with Pydantic, whose messages begin with a word for programmers.
    message = error.format_message().replace("Value error, ", "")
    return f"{message} (see `{command} --help`)"


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
