"""One real Spark session for all tests that need Spark, because a session takes ten seconds to start.

A test must leave the session as it found it: stop its queries, drop its views and remove its listeners. A
``conftest.py`` imports the fixture with ``from tests.support.spark_session import spark_session``.
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
    """Return the Java and the environment with which Spark starts on this machine."""
    found = find_spark(os.environ, _folder(tmp_path_factory))
    assert isinstance(found, SparkRuntime), found.reason
    return found


@pytest.fixture(scope="session")
def spark_session(spark_runtime: SparkRuntime) -> Iterator[SparkSession]:
    """Yield a session in UTC with two threads and the store's data sources, without web page and network."""
    before = dict(os.environ)
    with session.spark_session(spark_runtime, app_name="tests") as spark:
        # The JVM keeps the environment that was set for Spark. Reset this process to the environment of the tests.
        os.environ.clear()
        os.environ.update(before)
        yield spark


def _folder(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("spark")
