"""Tests of the command that prints the place of the jar."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from zipfile import ZipFile

from backend.cli import spark_jar
from backend.cli.app import run

ROOT = Path(__file__).resolve().parents[3]


def test_the_command_prints_the_path_of_a_jar_with_the_listener(monkeypatch, capsys):
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["barrierscope.roles"]
    monkeypatch.setattr(spark_jar, "load_role", lambda name: EntryPoint(name, declared[name], "").load())

    assert run(["spark-jar"]) == 0

    found = capsys.readouterr().out
    assert found.count("\n") == 1
    path = Path(found.strip())
    assert path.is_absolute()
    assert "barrierscope/spark/BarrierscopeListener.class" in ZipFile(path).namelist()
