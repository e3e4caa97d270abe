"""A plugin of pytest that records which lines of the product each test executes, and how much processor time it takes.

``make mutants`` loads it with ``-p``. ``MUTANTS_RECORD`` names the JSON file that it writes, and ``MUTANTS_TRACED`` the
file with the paths of the traced modules, one a line. Of a test that did not pass nothing is written.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest


class _Recorder:
    def __init__(self, record: Path, traced: list[str]) -> None:
        self._record = record
        self._traced = traced
        self._cpu_s: dict[str, float] = {}
        self._failed: set[str] = set()
        # SQLAlchemy awaits in greenlets. Without them, nothing is recorded of a coroutine after its first query.
        self._coverage = coverage.Coverage(
            data_file=None, include=traced, config_file=False, messages=False, concurrency=["thread", "greenlet"]
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        begun = _cpu_s()
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")
            self._cpu_s[item.nodeid] = round(_cpu_s() - begun, 3)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        tests: dict[str, dict[str, list[int]]] = {test: {} for test in self._cpu_s if test not in self._failed}
        for module in data.measured_files():
            for line, names in data.contexts_by_lineno(module).items():
                for name in names:
                    if name in tests:
                        tests[name].setdefault(module, []).append(line)
        of = {test: {"cpu_s": self._cpu_s[test], "lines": lines} for test, lines in tests.items()}
        self._record.write_text(json.dumps(of))


def _cpu_s() -> float:
    """Return the processor time of this process and of its ended children."""
    now = os.times()
    return time.process_time() + now.children_user + now.children_system


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record."""
    traced = Path(os.environ["MUTANTS_TRACED"]).read_text().splitlines()
    config.pluginmanager.register(_Recorder(Path(os.environ["MUTANTS_RECORD"]), traced))
