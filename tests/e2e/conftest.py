"""Fixtures that start ``barrierscope up`` with a data folder of its own, and remove both after a test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.cli.stack import METERED
from tests.support.running_up import Up, folder_modes, free_ports, processes_of


@pytest.fixture
def folder() -> Iterator[Path]:
    # Pytest's tmp_path is not used, because its name may be unusually long and only root can read it.
    made = Path(tempfile.mkdtemp(prefix="barrierscope-up-"))
    yield made / "data"
    assert processes_of(made / "data") == []
    shutil.rmtree(made)


@pytest.fixture
def start(folder):
    runs: list[Up] = []

    def begin(*arguments: str, **more) -> Up:
        runs.append(Up(folder, *arguments, **more))
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


class LiveUp:
    """An instance of ``barrierscope up`` that tests share. A call returns it when it is ready."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._runs: list[Up] = []
        self.modes = folder_modes(folder)
        """The modes of the folders above the data folder before the first start."""
        self.metrics_ports = free_ports(len(METERED))
        """The ports of the metrics of the roles."""

    def __call__(self) -> Up:
        """Return a ready instance, which is started if there is none. It uses the port of the one before it."""
        if not self._runs or self._runs[-1].process.poll() is not None:
            port = self._runs[-1].port if self._runs else None
            metered = ("--metrics-port", str(self.metrics_ports[0]))
            self._runs.append(Up(self._data, *metered, port=port, BARRIERSCOPE_ALERT_INTERVAL_S="1"))
        self._runs[-1].wait_until_says("ready: open")
        return self._runs[-1]

    def close(self) -> None:
        """Stop the instance, if one was started. The next call starts another one, which has its history."""
        if not self._runs:
            return
        for run in self._runs:
            run.close()
        self._runs.clear()
        assert processes_of(self._data) == []


_LIVE_UP = pytest.StashKey[LiveUp]()


@pytest.fixture(scope="session")
def live_up(pytestconfig: pytest.Config) -> Iterator[LiveUp]:
    """Yield a function that returns a ready instance of ``barrierscope up``.

    The instance of the previous test is used if it still runs.
    """
    folder = Path(tempfile.mkdtemp(prefix="barrierscope-up-"))
    live = pytestconfig.stash[_LIVE_UP] = LiveUp(folder)
    yield live
    live.close()
    shutil.rmtree(folder)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the shared instance after the last test that uses it: its jobs would load the machine until the end."""
    live = item.config.stash.get(_LIVE_UP, None)
    if live is not None and (nextitem is None or "live_up" not in nextitem.path.read_text(encoding="utf-8")):
        live.close()
