"""A data folder, and ``barrierscope up`` on it: nothing of either is left after a test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.running_up import Up, processes_of


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not pytest's own folder: its name may be longer than what a person would pass, and root keeps it to itself.
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
