"""The hooks of pre-commit run the commands of ``make check``, so both succeed or fail together."""

from __future__ import annotations

import re

import yaml

from tests.packaging.wheel_environment import ROOT

_CONFIG = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())


def _hooks() -> list[dict[str, object]]:
    return [hook for repository in _CONFIG["repos"] for hook in repository["hooks"]]


def _check_lines() -> list[str]:
    rule = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert rule is not None
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in rule[1].splitlines()]


def test_every_repository_of_hooks_is_local():
    assert [repository["repo"] for repository in _CONFIG["repos"]] == ["local"]
    assert {hook["language"] for hook in _hooks()} == {"system"}


def test_the_hooks_run_the_commands_of_make_check():
    # A hook receives the changed files as arguments. Its command therefore omits the folder ``.`` at the end of the
    # line in the Makefile.
    lines = [line.removesuffix(" .") for line in _check_lines()]

    assert [hook["entry"] for hook in _hooks()] == lines
