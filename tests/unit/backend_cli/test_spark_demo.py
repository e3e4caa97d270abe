"""Tests of the role that runs the demo query of Spark, and of the notices that it writes.

The role writes a notice if Spark is missing, if Spark does not start, and when the query runs.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from backend.cli import spark_demo
from backend.domain.errors import HostError
from backend.pipeline.java import JavaOrigin, JavaRuntime, SparkMissing, SparkRuntime
from backend.settings import load_settings

_SPARK = SparkRuntime(JavaRuntime(Path("/java"), 21, JavaOrigin.PATH), {})


class _Told:
    def __init__(self) -> None:
        self.words: list[tuple[str, ...]] = []

    def running(self) -> None:
        self.words.append(("running",))

    def unavailable(self, reason: str) -> None:
        self.words.append(("unavailable", reason))

    def withdraw(self) -> None:
        self.words.append(("withdrawn",))


@pytest.fixture
def demo(monkeypatch, tmp_path):
    """Return a function that runs the role, with or without Spark, and returns the notices that the role wrote."""
    monkeypatch.setenv("BARRIERSCOPE_DATA_DIR", str(tmp_path))

    def run(found, query=None, told=None):
        told = told or _Told()
        stop = threading.Event()
        monkeypatch.setattr(spark_demo, "find_spark", lambda *_: found)
        monkeypatch.setattr(spark_demo, "load_role", lambda _name: query)
        if query is None:
            threading.Timer(0.05, stop.set).start()
        spark_demo.run_demo(load_settings(), told, stop)
        return told.words

    return run


def test_without_java_the_demo_gives_the_reason_and_waits_for_its_stop(demo):
    missing = SparkMissing(("no java on the path",))

    assert demo(missing) == [("unavailable", f"no java on the path; {SparkMissing.FIX}"), ("withdrawn",)]


def test_while_the_query_runs_the_demo_is_reported_as_running(demo):
    assert demo(_SPARK, lambda **given: given["on_started"]()) == [("running",), ("withdrawn",)]


def test_if_spark_does_not_start_the_reason_is_reported_before_the_role_ends(demo):
    told = _Told()

    def fail(**_given):
        raise RuntimeError("the JVM exited")

    with pytest.raises(HostError, match="the JVM exited"):
        demo(_SPARK, fail, told)

    assert told.words == [("unavailable", "the JVM exited; the demo restarts")]
