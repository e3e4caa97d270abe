"""One real Spark session for every test that needs one: it takes ten seconds to start, so it is started once.

A test must leave it as it found it: stop its queries, drop its views, remove its listeners. A ``conftest.py`` takes it
by ``from tests.support.spark_session import spark_session``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.pipeline import session
from backend.pipeline.java import SparkRuntime, find_spark


@pytest.fixture(scope="session")
def spark_runtime(tmp_path_factory: pytest.TempPathFactory) -> SparkRuntime:
    """The Java and the environment that Spark starts with on this machine."""
    found = find_spark(os.environ, _folder(tmp_path_factory))
    assert isinstance(found, SparkRuntime), found.reason
    return found


@pytest.fixture(scope="session")
def spark_session(spark_runtime: SparkRuntime) -> Iterator[SparkSession]:
    """A session with two threads and the store's data sources, in UTC, with neither web page nor network."""
    before = dict(os.environ)
    with session.spark_session(spark_runtime, app_name="tests") as spark:
        # The JVM has its environment; the tests keep theirs.
        os.environ.clear()
        os.environ.update(before)
        yield spark


def _folder(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("spark")
