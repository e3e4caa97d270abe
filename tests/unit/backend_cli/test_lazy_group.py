"""Tests of what a command line imports: nothing but what the chosen command needs."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer.main

from backend.cli.app import app, run
from backend.cli.commands import COMMANDS
from tests.packaging.wheel_environment import ROOT
from tests.support.waiting import PATIENCE_S

_PRINT_MODULES = """
import contextlib, io, sys
from backend.cli.app import run
with contextlib.redirect_stdout(io.StringIO()) as out:
    code = run(sys.argv[1:])
assert code == 0 and out.getvalue(), code
print(*sys.modules)
"""
# Each of these takes longer to import than the whole help should take.
_SLOW = {
    "numba",
    "numpy",
    "dash",
    "sqlalchemy",
    "psycopg",
    "pyspark",
    "fastapi",
    "aiohttp",
    "httpx",
    "rich",
}


def _imported(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", _PRINT_MODULES, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        (["--help"], set()),
        (["--version"], set()),
        (["diagnose", "--help"], {"backend.cli.diagnose"}),
        (["version"], set()),
    ],
    ids=" ".join,
)
def test_the_help_imports_neither_other_commands_nor_what_is_slow(arguments, own):
    imported = _imported(*arguments)

    places = {entry.place.partition(":")[0] for entry in COMMANDS.values()} - {"backend.cli.version"}
    assert places & imported == own
    assert {name.partition(".")[0] for name in imported} & _SLOW == set()


def test_every_place_of_the_table_has_its_command():
    commands = typer.main.get_command(app).commands

    assert {name: command.name for name, command in commands.items()} == {name: name for name in COMMANDS}
    assert all(entry.example or hasattr(commands[name], "commands") for name, entry in COMMANDS.items())
    assert [name for name, command in commands.items() if command.hidden] == ["executor"]


def test_the_help_shows_each_summary_whole_and_no_hidden_command(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0

    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.partition("Commands:\n")[2].splitlines()]
    shown = {words[0]: words[1] for words in lines if len(words) == 2 and words[0] != "Example:"}
    assert shown == {name: entry.summary for name, entry in COMMANDS.items() if not entry.is_hidden}


def test_the_completion_of_names_imports_no_command():
    code = (
        "import sys, typer.main\n"
        "from backend.cli.app import app\n"
        "group = typer.main.get_command(app)\n"
        "with group.make_context('barrierscope', [], resilient_parsing=True) as context:\n"
        "    for item in group.shell_complete(context, 'ba'): print(item.value, item.help, sep=': ')\n"
        "assert not {'backend.cli.backtest', 'backend.cli.backup'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name}: {COMMANDS[name].summary}" for name in ("backtest", "backup")]
