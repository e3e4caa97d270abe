"""With only the packages of ``requirements.txt``, every module can be imported and a command starts.

The few modules that need Spark, which is optional, can be imported with ``requirements-spark.txt``.

The environment of the tests also contains packages that only the tests need. A runtime dependency that is installed
only because those packages need it would be missing on a fresh machine, and no other test would notice.
"""

from __future__ import annotations

import re
import subprocess
import sys

from tests.packaging.absent_packages import ONLY_THESE_PACKAGES
from tests.packaging.wheel_environment import ROOT
from tests.support.waiting import PATIENCE_S

# All modules outside this list must work without Spark.
_OF_SPARK = (
    "backend.pipeline.backtest_source",
    "backend.pipeline.job_source",
    "backend.pipeline.jvm",
    "backend.pipeline.session",
    "backend.pipeline.source",
    "backend.pipeline.transforms",
    "backend.pipeline.what_if_source",
    "collectors.spark.demo",
    "collectors.spark.listener",
)

_EVERY_MODULE = """
import importlib, pkgutil
of_spark, is_spark = set(sys.argv.pop(1).split(",")), sys.argv.pop(1) == "spark"
for package in ("backend", "collectors", "dashboard"):
    root = importlib.import_module(package)
    for found in pkgutil.walk_packages(root.__path__, package + "."):
        if not found.name.endswith(".__main__") and (found.name in of_spark) == is_spark:
            importlib.import_module(found.name)
# What is loaded by name alone, at the first use.
from backend.store.postgres.connections import create_store_engine
create_store_engine("postgresql://nobody@127.0.0.1:1/nothing")
"""

_FIND = """
from pathlib import Path
from backend.pipeline.java import find_spark
print(find_spark({}, Path(sys.argv[1])).reason)
"""

_COMMAND = "from backend.cli import main; main()"


def _locked(*files: str) -> str:
    pins = "\n".join((ROOT / file).read_text() for file in ("requirements.txt", *files))
    names = re.findall(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,-]+\])?==", pins, re.M)
    return ",".join([*(re.sub(r"[-_.]+", "-", name).lower() for name in names), "barrierscope", "pip"])


def _run(script: str, *arguments: str, locked: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", ONLY_THESE_PACKAGES + script, locked or _locked(), *arguments]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=PATIENCE_S)


def test_every_module_except_those_of_spark_can_be_imported():
    done = _run(_EVERY_MODULE, ",".join(_OF_SPARK), "core")

    assert done.returncode == 0, done.stderr


def test_with_the_requirements_of_spark_its_modules_can_be_imported():
    done = _run(_EVERY_MODULE, ",".join(_OF_SPARK), "spark", locked=_locked("requirements-spark.txt"))

    assert done.returncode == 0, done.stderr


def test_without_spark_the_pipeline_reports_what_is_missing():
    done = _run(_FIND, "/nonexistent")

    assert (done.returncode, done.stdout) == (0, "PySpark is not installed\n"), done.stderr


def test_a_command_starts_and_fails_only_at_the_unreachable_server():
    done = _run(_COMMAND, "migrate", "--database-url", "postgresql://nobody@127.0.0.1:1/nothing")

    assert done.returncode == 1
    assert done.stderr.startswith("barrierscope: the store does not answer"), done.stderr
