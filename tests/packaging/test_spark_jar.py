"""Tests that the committed jar of the Spark listener is built from the committed source, and runs on Java 8."""

from __future__ import annotations

import struct
import zipfile

import pytest

from collectors.spark.jar import CLASS, JAR
from tests.simulators.spark_jar import SOURCE, build, compiler_version, manifest, source_digest

_SIZE_MAX_BYTES = 60_000
_JAVA_8 = 52


def test_the_jar_is_built_from_this_source():
    assert manifest(JAR)["Source-Digest"] == source_digest(), "run `make spark-jar` and commit the jar"


def test_the_jar_is_small_and_has_our_classes_only_for_java_8():
    with zipfile.ZipFile(JAR) as archive:
        classes = {name: archive.read(name) for name in archive.namelist() if name != "META-INF/MANIFEST.MF"}

    assert JAR.stat().st_size < _SIZE_MAX_BYTES
    assert f"{CLASS.replace('.', '/')}.class" in classes
    assert all(name.startswith(CLASS.replace(".", "/")) for name in classes)
    # The class file begins with a magic number, the minor and the major version.
    assert {struct.unpack(">IHH", content[:8]) for content in classes.values()} == {(0xCAFEBABE, 0, _JAVA_8)}


def test_the_source_and_the_jar_are_in_the_package():
    assert SOURCE.is_file()
    assert SOURCE.parents[3] == JAR.parents[1]


def test_a_build_gives_the_same_bytes_as_the_build_that_was_committed(tmp_path):
    version = compiler_version()
    if version is None:
        pytest.skip("there is no JDK; the digest of the source is compared anyway")

    build(tmp_path / "built.jar")

    if version == manifest(JAR)["Build-Jdk-Spec"]:
        # Another compiler may write other bytes for the same source.
        assert (tmp_path / "built.jar").read_bytes() == JAR.read_bytes()
