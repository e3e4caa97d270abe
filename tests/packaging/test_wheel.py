"""Tests that the wheel contains the right files, and works in a folder outside the checkout."""

from __future__ import annotations

import json
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.packaging.wheel_environment import ROOT
from tests.support.waiting import PATIENCE_S

_PACKAGES = ("backend", "collectors", "dashboard")


def _run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S)


def _version(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def test_the_top_level_is_exactly_the_three_packages_and_the_metadata(wheel):
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert names == {*_PACKAGES, f"barrierscope-{_version(wheel)}.dist-info"}


def test_every_module_and_data_file_of_the_packages_is_in_the_wheel(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in _PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert len(expected) > 50
    assert expected - inside == set()


def test_the_migrations_are_in_the_wheel_under_the_backend(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    versions = {p.name for p in (ROOT / "migrations" / "versions").glob("*.py")}

    assert versions
    assert {f"backend/_migrations/versions/{name}" for name in versions} <= inside
    assert "backend/_migrations/env.py" in inside


def test_the_environment_of_the_wheel_imports_nothing_from_the_checkout(installed, tmp_path):
    script = "import backend, dashboard, collectors; print(backend.__file__); import tests"

    answer = _run(installed.python, "-P", "-c", script, cwd=tmp_path)

    assert answer.stdout.strip().startswith(str(installed.site))
    assert "No module named 'tests'" in answer.stderr


def test_the_installed_command_prints_its_version(installed, wheel, tmp_path):
    answer = _run(installed.command, "version", "--format", "json", cwd=tmp_path)

    assert (answer.returncode, json.loads(answer.stdout)) == (0, {"version": _version(wheel)})


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("barrierscope.roles", {"collect", "diagnose", "dashboard"}),
        ("barrierscope.collectors", {"flink", "spark"}),
    ],
)
def test_the_installed_command_finds_every_entry_point(group, expected, installed, tmp_path):
    script = (
        "from importlib.metadata import entry_points\n"
        f"for point in entry_points(group={group!r}): point.load(); print(point.name)"
    )

    answer = _run(installed.python, "-P", "-c", script, cwd=tmp_path)

    assert answer.stderr == ""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"][group]
    assert expected <= declared.keys()
    assert set(answer.stdout.split()) == declared.keys()


def test_the_installed_command_simulates_a_packaged_demo(installed, tmp_path):
    answer = _run(installed.command, "simulate", "healthy", "--duration", "12s", "--format", "json", cwd=tmp_path)

    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)


@pytest.mark.parametrize("mode", ["checkout", "wheel"])
def test_the_migrations_are_found_in_a_checkout_and_in_a_wheel(mode, installed, tmp_path):
    python = ROOT / ".venv" / "bin" / "python" if mode == "checkout" else installed.python
    if not python.exists():
        pytest.skip("the checkout has no environment in .venv")
    script = "from backend.store.schema.migrate import script_location; print(script_location())"

    answer = _run(python, "-P", "-c", script, cwd=tmp_path)

    assert answer.returncode == 0, answer.stderr
    folder = Path(answer.stdout.strip())
    assert (folder / "env.py").is_file()
    assert folder == (ROOT / "migrations" if mode == "checkout" else installed.site / "backend" / "_migrations")
