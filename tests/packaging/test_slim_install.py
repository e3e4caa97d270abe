"""``pip install barrierscope`` suffices for ``diagnose``, and a command that needs more names the extra to install."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import grimp
import pytest

from tests.packaging.absent_packages import ONLY_THESE_PACKAGES
from tests.packaging.wheel_environment import ROOT, Environment
from tests.support.running_up import free_port
from tests.support.waiting import PATIENCE_S, until

_OWN = ("backend", "collectors", "dashboard")
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Each of these commands reads a target or talks to a running service, and works without an extra.
_SLIM = ("collectors.diagnose", *(f"backend.cli.{name}" for name in ("app", "diagnose", "version")))
_CLIENTS = tuple(f"backend.cli.{name}" for name in ("targets", "alerts", "advise", "what_if", "compare", "simulate"))
_MAIN = "from backend.cli import main; main()"


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", text.strip())[0]).lower()


def _closure(names: Iterable[str]) -> set[str]:
    """Return the installed distributions that ``names`` need, directly or not, without any extras."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = _name(todo.pop())
        if name in found:
            continue
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        todo += [need for need in needs if "extra ==" not in need]
    return found


def test_what_diagnose_imports_is_in_the_declared_dependencies():
    graph = grimp.build_graph(*_OWN, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None)
    seen: set[str] = set()
    todo = [*_SLIM, *_CLIENTS]
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            if module.partition(".")[0] in _OWN:
                parts = module.split(".")
                todo += [".".join(parts[:n]) for n in range(1, len(parts))]
                todo += graph.find_modules_directly_imported_by(module)
    outside = {m.partition(".")[0] for m in seen} - {*_OWN, *sys.stdlib_module_names}
    owners = metadata.packages_distributions()

    declared = {_name(text) for text in _PROJECT["dependencies"]}
    assert {"aiohttp", "numpy", "typer"} <= outside
    assert {m for m in outside if not declared & {_name(o) for o in owners.get(m, [m])}} == set()


def _slim(installed: Environment, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command of the wheel as on a machine that has only what ``pip install barrierscope`` installs."""
    kept = ",".join({*_closure(_PROJECT["dependencies"]), "barrierscope"})
    command = [str(installed.python), "-P", "-c", ONLY_THESE_PACKAGES + _MAIN, kept, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_without_extras_diagnose_of_the_wheel_reads_its_target(installed, tmp_path):
    done = _slim(installed, "diagnose", "http://127.0.0.1:1", cwd=tmp_path)

    assert done.returncode == 1
    assert re.fullmatch(r"barrierscope: .*http://127\.0\.0\.1:1.*\n", done.stderr.rpartition("\r")[2]), done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["up", "--data-dir", "data", "--no-spark-demo"], "server"),
        (["api", "--database-url", "postgresql://nobody@127.0.0.1:1/none"], "server"),
        (["migrate", "--database-url", "postgresql://nobody@127.0.0.1:1/none"], "server"),
        (["pipeline", "rollups", "--database-url", "postgresql://nobody@127.0.0.1:1/none"], "server"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_without_extras_other_commands_of_the_wheel_name_the_extra(arguments, extra, installed, tmp_path):
    done = _slim(installed, *arguments, cwd=tmp_path)

    assert done.returncode == 1, done.stderr
    cure = re.escape(f"which is not installed; run `pip install 'barrierscope[{extra}]'`")
    assert re.fullmatch(rf"barrierscope: this needs the package \w+, {cure}\n", done.stderr), done.stderr


@pytest.mark.slow
def test_the_wheel_diagnoses_a_target_in_an_environment_with_its_dependencies_only(wheel, tmp_path):
    venv.create(tmp_path / "slim", with_pip=False, symlinks=True)
    python = tmp_path / "slim" / "bin" / "python"
    (site,) = (tmp_path / "slim" / "lib").glob("python*/site-packages")
    for name in _closure(_PROJECT["dependencies"]):
        distribution = metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            target = site / top
            if not target.exists():
                target.symlink_to(Path(str(distribution.locate_file(top))))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-index", str(wheel)], check=True, timeout=PATIENCE_S)
    port = str(free_port())
    url = f"http://127.0.0.1:{port}/runtime/v1"
    runtime = [sys.executable, "-m", "backend.cli", "runtime", "--port", port, "--job", "healthy"]
    target = subprocess.Popen(runtime, cwd=ROOT, stderr=subprocess.DEVNULL)
    command = [str(tmp_path / "slim" / "bin" / "barrierscope"), "diagnose", url, "--quick"]
    answers: list[subprocess.CompletedProcess[str]] = []

    def diagnose() -> bool:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        answers.append(done)
        # Until the target listens, the command ends with code 1 and one line.
        return done.returncode == 0 or "Traceback" in done.stderr

    try:
        until(diagnose, "diagnose reads the runtime")
    finally:
        target.terminate()
        target.wait(PATIENCE_S)

    assert "orders-healthy" in answers[-1].stdout, answers[-1].stderr
