"""The command ``completion``: the script with which a shell completes commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script, install

_PROGRAM = "barrierscope"
# The name that Typer looks for in the environment.
_VARIABLE = "_BARRIERSCOPE_COMPLETE"


class Shell(StrEnum):
    """The shells for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish")],
    is_installed: Annotated[
        bool, typer.Option("--install", help="Write the script to your own folder, where the shell finds it.")
    ] = False,
) -> None:
    """Print the script with which a shell completes commands and options, or install it.

    It is used at once by `source <(barrierscope completion bash)`.
    """
    if not is_installed:
        typer.echo(get_completion_script(prog_name=_PROGRAM, complete_var=_VARIABLE, shell=shell.value))
        return
    _, path = install(shell=shell.value, prog_name=_PROGRAM, complete_var=_VARIABLE)
    typer.echo(f"wrote {path}; open a new terminal to use it")
