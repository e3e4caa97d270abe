"""The version comes from the tags of git, and a build works where there are no tags and no git."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.packaging.wheel_environment import ROOT
from tests.support.waiting import PATIENCE_S

_USER = ("-c", "user.name=A Tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false")


def _run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def _version(folder: Path) -> str:
    return _run(sys.executable, "-P", "-m", "hatchling", "version", cwd=folder).splitlines()[-1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository with one commit, the settings of ours and no tag."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("backend", "collectors", "dashboard", "migrations", "docs/runbooks", "docs/causes"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    _run("git", "init", "--quiet", cwd=folder)
    _run("git", "add", "--all", cwd=folder)
    _run("git", *_USER, "commit", "--quiet", "--message", "one", cwd=folder)
    return folder


def _tag(name: str, folder: Path) -> None:
    _run("git", *_USER, "tag", "--annotate", name, "--message", name, cwd=folder)


def test_a_tag_is_the_version_and_a_commit_after_it_is_on_the_way_to_the_next(project):
    _tag("v1.4.0", project)
    assert _version(project) == "1.4.0"

    _run("git", *_USER, "commit", "--quiet", "--allow-empty", "--message", "two", cwd=project)

    assert _version(project) == "1.4.1.dev1"


def test_a_clone_without_tags_has_a_version_of_development(project, tmp_path):
    _tag("v1.4.0", project)
    _run("git", "clone", "--quiet", "--no-tags", "--depth", "1", project.as_uri(), "clone", cwd=tmp_path)

    assert re.fullmatch(r"0\.1\.0\.dev\d+", _version(tmp_path / "clone"))


def test_a_tag_that_is_no_version_changes_nothing(project):
    _tag("v1.4.0", project)
    _tag("nightly", project)

    assert _version(project) == "1.4.0"


def test_an_sdist_keeps_the_version_where_there_is_no_git(project, tmp_path):
    _tag("v1.4.0", project)
    _run(sys.executable, "-P", "-m", "hatchling", "build", "--target", "sdist", cwd=project)
    (sdist,) = (project / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")

    assert sdist.name == "barrierscope-1.4.0.tar.gz"
    assert _version(tmp_path / "unpacked" / "barrierscope-1.4.0") == "1.4.0"


def test_without_git_and_tags_the_image_gives_the_version(project, monkeypatch):
    shutil.rmtree(project / ".git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.parent))
    assert _version(project) == "0.1.0.dev0"

    (name,) = re.findall(r"ENV (\w+)=\$\{VERSION\}", (ROOT / "Dockerfile").read_text())
    monkeypatch.setenv(name, "1.4.0")

    assert _version(project) == "1.4.0"
