"""Fixtures of the tests of the whole product: ``barrierscope up``, a browser, and the pages over a fake API.

A start of ``up`` or of the browser is slow, so the tests of a process share one of each.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.cli.stack import METERED
from tests.support.browsing import SharedBrowser, chromium
from tests.support.dashboard_site import site_over
from tests.support.fake_api import FakeApi
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
_BROWSER = pytest.StashKey[SharedBrowser]()


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


@pytest.fixture(scope="session")
def browser(pytestconfig: pytest.Config) -> Iterator[SharedBrowser]:
    """Yield the browser of this process, which starts at the first page that a test opens."""
    executable = chromium()
    if executable is None:
        pytest.skip("no Chromium on this machine")
    shared = pytestconfig.stash[_BROWSER] = SharedBrowser(executable)
    yield shared
    shared.close()


@pytest.fixture(scope="module")
def fake() -> FakeApi:
    """Return a fake API, which the tests of a file share."""
    return FakeApi(now=lambda: datetime.fromtimestamp(time.time(), UTC))


@pytest.fixture(scope="module")
def site(fake: FakeApi) -> Iterator[str]:
    """Yield the address of the pages over the fake API of the file."""
    with site_over(fake) as url:
        yield url


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that uses the shared browser."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop what the next test does not use.

    The jobs of the shared instance would load the machine until the end. While the browser runs, its driver keeps an
    event loop in this thread, so a test without a browser could not run one of its own.
    """
    live = item.config.stash.get(_LIVE_UP, None)
    if live is not None and (nextitem is None or "live_up" not in nextitem.path.read_text(encoding="utf-8")):
        live.close()
    browser = item.config.stash.get(_BROWSER, None)
    if browser is not None and (nextitem is None or "browser" not in getattr(nextitem, "fixturenames", ())):
        browser.close()
