"""Keeps the tests of the command line apart from an instance of ``up`` that the developer runs."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_running_up(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the test an empty folder for the files of running instances, and return it."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder
