"""Checks of the Dockerfile that need no build. ``make try-dockerfile`` executes its lines."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.packaging.dockerfile import expand, read_dockerfile, read_ignore
from tests.packaging.wheel_environment import ROOT

_INSTRUCTIONS = read_dockerfile((ROOT / "Dockerfile").read_text())
_IS_KEPT = read_ignore((ROOT / ".dockerignore").read_text())


def _texts(name: str) -> list[str]:
    return [i.text for i in _INSTRUCTIONS if i.name == name]


def test_every_copied_path_exists_and_is_sent_to_the_builder():
    copied = [s for text in _texts("COPY") if not text.startswith("--from") for s in text.split()[:-1]]

    assert {"requirements.txt", "pyproject.toml", "backend", "migrations"} <= set(copied)
    assert [c for c in copied if not (ROOT / c).exists() or not _IS_KEPT(c)] == []


def test_every_part_of_the_package_is_copied():
    project = (ROOT / "pyproject.toml").read_text()
    build = tomllib.loads(project)["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*build["packages"], *build["force-include"], "README.md", "LICENSE"}

    assert {"migrations", "docs/runbooks"} <= needed
    assert needed <= {s.removeprefix("./") for text in _texts("COPY") for s in text.split()[:-1]}


def test_what_is_needed_to_build_is_not_in_the_image():
    locked = re.findall(r"^([\w.-]+)(?:\[\w+\])?==", (ROOT / "requirements.txt").read_text(), re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    builders = {re.split(r"[^\w-]", text)[0] for text in project["optional-dependencies"]["build"]}
    (removed,) = [text.split("--yes ")[1].split() for text in _texts("RUN") if "pip uninstall" in text]

    # What hatch-vcs is built on, and what installs.
    assert {*builders, "setuptools-scm", "vcs-versioning", "setuptools", "pip"} == set(removed)
    assert builders <= set(locked)


@pytest.mark.parametrize(
    "path", [".git/config", ".venv/bin/python", "tests/conftest.py", "helm/barrierscope/values.yaml"]
)
def test_nothing_else_is_sent_to_the_builder(path):
    assert not _IS_KEPT(path)


@pytest.mark.parametrize("path", ["backend/cli/app.py", "dashboard/assets/icons/bolt.svg", "LICENSE"])
def test_files_below_a_kept_folder_are_sent_except_bytecode(path):
    assert _IS_KEPT(path)
    assert not _IS_KEPT("backend/cli/__pycache__/app.cpython-312.pyc")


def test_every_package_is_installed_by_its_hash():
    installs = [text for text in _texts("RUN") if "pip install" in text]

    assert len(installs) == 4
    assert all("--require-hashes" in text or ("--no-deps" in text and "--no-index" in text) for text in installs)


def test_the_last_stage_runs_as_an_unprivileged_user_and_installs_nothing():
    begin = max(n for n, i in enumerate(_INSTRUCTIONS) if i.name == "FROM")
    last = _INSTRUCTIONS[begin:]

    assert [i.text for i in last if i.name == "USER"] == ["10001:10001"]
    assert not [i for i in last if i.name == "RUN" and re.search(r"pip|apt", i.text)]
    assert {"HEALTHCHECK", "ENTRYPOINT", "LABEL", "VOLUME"} <= {i.name for i in last}


def test_both_stages_have_the_same_base():
    assert len({text.partition(" AS ")[0] for text in _texts("FROM")}) == 1


def test_an_unsupported_instruction_is_an_error():
    with pytest.raises(AssertionError, match="ONBUILD"):
        read_dockerfile("ONBUILD RUN true\n")


def test_lines_are_joined_comments_left_out_and_variables_replaced():
    (instruction,) = read_dockerfile("# one\nRUN a \\\n# two\n && b\n")

    assert (instruction.name, instruction.text) == ("RUN", "a && b")
    assert expand("${A}-$B", {"A": "1", "B": "2"}) == "1-2"
