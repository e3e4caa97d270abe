"""``make release``: the notes, the versions, the checksums, and what it refuses."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.packaging import make_release
from tests.packaging.make_release import ReleaseError, build, chart_version, checksums, main, notes_of, version_of
from tests.packaging.wheel_environment import ROOT

_CHANGELOG = "# Changelog\n\n## Unreleased\n\nNew.\n\n## 1.1.0 - 2026-12-01\n\n### Pages\n\n- A.\n\n## 1.0.0\n\n- B.\n"


@pytest.mark.parametrize(
    ("section", "notes"), [("Unreleased", "New.\n"), ("1.1.0", "### Pages\n\n- A.\n"), ("1.0.0", "- B.\n")]
)
def test_the_notes_are_the_section_of_the_version(section, notes):
    assert notes_of(_CHANGELOG, section) == notes


@pytest.mark.parametrize("section", ["1.1", "2.0.0", "1.1.00"])
def test_a_version_without_a_section_is_refused(section):
    with pytest.raises(ReleaseError, match=f"no section `## {section}`"):
        notes_of(_CHANGELOG, section)


def test_our_changelog_has_notes_for_the_next_release():
    assert notes_of((ROOT / "CHANGELOG.md").read_text(), "Unreleased").strip()


@pytest.mark.parametrize(
    ("version", "helm"), [("1.2.0", "1.2.0"), ("1.2.0rc1", "1.2.0-rc.1"), ("0.1.0.dev12", "0.1.0-dev.12")]
)
def test_the_version_of_the_chart_is_semantic(version, helm):
    assert chart_version(version) == helm


def test_sha256sum_accepts_the_checksums(tmp_path):
    (tmp_path / "a.whl").write_bytes(b"a")
    (tmp_path / "b.tgz").write_bytes(b"b")
    (tmp_path / "SHA256SUMS").write_text(checksums(tmp_path))

    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True)

    assert done.stdout.splitlines() == ["a.whl: OK", "b.tgz: OK"]


# A link to a file of the repository.
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def _answers(monkeypatch, **answers: str) -> None:
    def run(*command: str, stdin: str = "") -> str:
        return answers["git" if command[0] == "git" else "hatchling"]

    monkeypatch.setattr(make_release, "_run", run)


def test_a_commit_without_a_tag_is_no_release(monkeypatch, capsys):
    _answers(monkeypatch, git="", hatchling="0.1.0.dev9")

    assert main([]) == 1
    error = capsys.readouterr().err
    assert error == ("release: this commit is 0.1.0.dev9, not a release; `git tag -a vX.Y.Z`, or ARGS=--trial to try\n")


def test_a_checkout_with_changes_is_no_release(monkeypatch):
    _answers(monkeypatch, git=" M README.md", hatchling="1.0.0")

    with pytest.raises(ReleaseError, match=r"differs from its commit \(M README.md\)"):
        version_of(is_trial=False)


def test_a_tagged_commit_is_a_release(monkeypatch):
    _answers(monkeypatch, git="", hatchling="1.0.0rc1")

    assert version_of(is_trial=False) == "1.0.0rc1"


def test_a_trial_of_a_release_has_wheel_sdist_chart_notes_and_checksums(tmp_path):
    version = version_of(is_trial=True)

    files = {path.name: path for path in build(tmp_path, version=version, cyclonedx=None)}

    chart = f"barrierscope-{chart_version(version)}.tgz"
    names = {f"barrierscope-{version}-py3-none-any.whl", f"barrierscope-{version}.tar.gz", chart}
    assert set(files) == {*names, "NOTES.md", "SHA256SUMS"}
    assert files["NOTES.md"].read_text().startswith(f"# Barrierscope {version}\n\n")
    assert checksums(tmp_path) == files["SHA256SUMS"].read_text()
    with tarfile.open(files[chart]) as archive:
        member = archive.extractfile("barrierscope/Chart.yaml")
        assert member is not None
        about = yaml.safe_load(member)
    assert (about["version"], about["appVersion"]) == (chart_version(version), version)
    with tarfile.open(files[f"barrierscope-{version}.tar.gz"]) as archive:
        inside = {Path(name).relative_to(f"barrierscope-{version}").as_posix() for name in archive.getnames()}
    # The image can be built from the sdist.
    recipe = {
        "Dockerfile",
        ".dockerignore",
        "requirements.txt",
        "requirements-spark.txt",
        "requirements-s3.txt",
        "helm/barrierscope/Chart.yaml",
    }
    assert {*recipe, "CHANGELOG.md", "migrations/env.py", "docs/runbooks/Watchdog.md", "PKG-INFO"} <= inside
    # The notes are read apart from the sdist, so they say where their links lead to.
    assert "which the sdist contains" in files["NOTES.md"].read_text()
    folders = {parent.as_posix() for name in inside for parent in Path(name).parents}
    linked = {link for name in ("README.md", "CHANGELOG.md") for link in _LINK.findall((ROOT / name).read_text())}
    assert linked - inside - folders == set()
