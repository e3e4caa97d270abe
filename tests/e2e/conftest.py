"""Fixtures that start ``barrierscope up`` with a data folder of its own, and remove both after a test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.running_up import Up, processes_of


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


@pytest.fixture(scope="session")
def live_up() -> Iterator[Callable[[], Up]]:
    """Yield a function that returns a ready instance of ``barrierscope up``.

    The instance of the previous test is used if it still runs.
    """
    folder = Path(tempfile.mkdtemp(prefix="barrierscope-up-"))
    runs: list[Up] = []

    def of_now() -> Up:
        if not runs or runs[-1].process.poll() is not None:
            runs.append(Up(folder / "data"))
        runs[-1].wait_until_says("ready: open")
        return runs[-1]

    yield of_now
    for run in runs:
        run.close()
    assert processes_of(folder / "data") == []
    shutil.rmtree(folder)
