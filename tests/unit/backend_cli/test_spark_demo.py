"""The role of the demo query: what it tells where there is no Spark, where Spark does not start, and where it runs."""

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
    """Runs the role with a Spark that was found or not, and a query; returns what it told."""
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


def test_without_java_it_says_why_and_waits_until_it_is_stopped(demo):
    missing = SparkMissing(("no java on the path",))

    assert demo(missing) == [("unavailable", f"no java on the path; {SparkMissing.FIX}"), ("withdrawn",)]


def test_while_the_query_runs_it_says_so(demo):
    assert demo(_SPARK, lambda **given: given["on_started"]()) == [("running",), ("withdrawn",)]


def test_a_spark_that_does_not_start_is_told_before_the_role_ends(demo):
    told = _Told()

    def fail(**_given):
        raise RuntimeError("the JVM exited")

    with pytest.raises(HostError, match="the JVM exited"):
        demo(_SPARK, fail, told)

    assert told.words == [("unavailable", "the JVM exited; the demo restarts")]
