"""A group of commands that imports the module of a command only when the command is used.

The help and the completion of names come from the table ``commands`` alone, because to import all commands takes longer
than most of them run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.completion import get_completion_inspect_parameters
from typer.core import TyperCommand, TyperGroup

from backend.cli.commands import COMMANDS, Entry


class LazyCommands(Mapping[str, Any]):
    """The commands by name. Each one is imported at its first use."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._entries[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class LazyGroup(TyperGroup):
    """The group of all commands in the table ``commands``."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands(COMMANDS)  # type: ignore[assignment]
        self._is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands in the order of the table."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command or None. In a list of commands, only its name and its summary are needed."""
        if self._is_listing:
            entry = COMMANDS[cmd_name]
            return TyperCommand(name=cmd_name, help=entry.summary, short_help=entry.summary, hidden=entry.is_hidden)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands without importing them."""
        with self._listing():
            super().format_commands(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the names that begin with ``incomplete`` without importing the commands."""
        with self._listing():
            return list(super().shell_complete(ctx, incomplete))

    def _main_shell_completion(self, *values: Any, **named: Any) -> None:
        """Answer a shell that asks for completions. Typer knows its shells only after this call."""
        get_completion_inspect_parameters()
        super()._main_shell_completion(*values, **named)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False


def _load(name: str, entry: Entry) -> Any:
    """Import the command and return it as the group above needs it."""
    module, _, attribute = entry.place.partition(":")
    found = getattr(import_module(module), attribute)
    around = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name)
    else:
        around.command(name=name, hidden=entry.is_hidden, epilog=f"Example: {entry.example}")(found)
    # Without a callback, a Typer with one command is the command itself, and not a group with it.
    around.callback()(_nothing)
    return typer.main.get_group(around).commands[name]


def _nothing() -> None:
    """Make a group of the ``Typer`` around a command."""
