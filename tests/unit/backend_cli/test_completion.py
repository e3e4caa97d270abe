"""Tests of the completion of commands, in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backend.cli.app import run
from tests.packaging.wheel_environment import ROOT
from tests.support.waiting import PATIENCE_S

# A command of this name in the PATH, which runs this checkout.
_PROGRAM = f"#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -c 'from backend.cli import main; main()' \"$@\"\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [(["barrierscope", "dia"], "diagnose"), (["barrierscope", "diagnose", "--fail"], "--fail-on")],
    ids=["command", "option"],
)
def test_bash_completes_commands_and_options(words, completed, capsys, tmp_path):
    assert run(["completion", "bash"]) == 0
    (tmp_path / "script.sh").write_text(capsys.readouterr().out)
    program = tmp_path / "barrierscope"
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    code = (
        f"source {tmp_path}/script.sh\n"
        f"COMP_WORDS=({' '.join(words)}) COMP_CWORD={len(words) - 1}\n"
        "function=$(complete -p barrierscope | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
        "$function barrierscope\n"
        "echo ${COMPREPLY[@]}\n"
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    done = subprocess.run(["bash", "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)

    assert done.stdout.split() == [completed], done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_installed_only_on_request_and_names_where(shell, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    assert run(["completion", shell]) == 0
    assert "_BARRIERSCOPE_COMPLETE" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []

    assert run(["completion", shell, "--install"]) == 0
    path = capsys.readouterr().out.split()[1].rstrip(";")
    assert "_BARRIERSCOPE_COMPLETE" in Path(path).read_text()


def test_an_unknown_shell_is_refused_with_the_known_ones(capsys):
    assert run(["completion", "tcsh"]) == 2

    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
