"""All commands, links, pictures and folders that the documents mention exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from backend.cli.app import app
from tests.packaging.wheel_environment import ROOT
from tests.simulators.screenshots import FOLDER, PICTURES
from tests.support.waiting import PATIENCE_S

_DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "migrations").glob("*.md"))]


def _shell_lines() -> list[str]:
    blocks = [b for d in _DOCUMENTS for b in re.findall(r"^```sh\n(.*?)^```", d.read_text(), re.M | re.S)]
    inline = [
        c for d in _DOCUMENTS for c in re.findall(r"`((?:\.venv/bin/)?(?:barrierscope|make) [^`]+)`", d.read_text())
    ]
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in (*lines, *inline) if line]


def _subcommands(arguments: list[str]) -> list[str]:
    return [a for a in arguments if re.fullmatch(r"[a-z]+", a)][:2]


def test_every_make_target_in_a_document_exists():
    verbs = {line.split()[1] for line in _shell_lines() if line.startswith("make ")}
    rules = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M))

    assert {"up", "test", "check", "bench"} <= verbs
    assert verbs - rules == set()


def test_every_subcommand_in_a_document_exists():
    named = [line.split()[1:] for line in _shell_lines() if re.match(r"(\.venv/bin/)?barrierscope ", line)]
    assert len(named) >= 2
    for group in sorted({tuple(_subcommands(arguments)) for arguments in named}):
        done = CliRunner().invoke(app, [*group, "--help"])
        assert done.exit_code == 0, f"{' '.join(group)}: {done.output}"


@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_every_relative_link_has_a_target(document):
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", document.read_text())

    assert [link for link in links if not (document.parent / link).exists()] == []


def test_every_picture_is_taken_by_make_screenshots_and_shown_in_a_document():
    shown = {Path(p).name for d in _DOCUMENTS for p in re.findall(r"!\[[^\]]+\]\(([^)]+\.png)\)", d.read_text())}

    assert shown == {f"{picture.name}.png" for picture in PICTURES} == {path.name for path in FOLDER.iterdir()}


def test_the_map_of_folders_names_existing_folders():
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "README.md").read_text(), re.M)
    folders = [name for row in rows for name in re.findall(r"`([\w/]+)`", row)]

    assert len(folders) >= 8
    assert [f for f in folders if not (ROOT / f).is_dir()] == []


def test_make_reports_in_one_line_that_no_suitable_python_is_installed(tmp_path):
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "bin").mkdir()
    old = tmp_path / "bin" / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for tool in ("sh", "make", "env"):
        (tmp_path / "bin" / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")

    done = subprocess.run(
        ["make", "install"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )

    assert done.returncode != 0
    assert "make: Python 3.11 to 3.13 is needed" in done.stderr
