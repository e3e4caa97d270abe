"""Fixtures for contract tests: a real PostgreSQL with one database for each test, and ``diagnose`` without pauses."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.store.postgres.embedded import EmbeddedPostgres
from collectors import diagnose, pacing
from tests.support.databases import Databases


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    folder = Path(tempfile.mkdtemp(prefix="barrierscope-test-"))
    server = EmbeddedPostgres(folder / "postgres")
    try:
        yield Databases(server.start())
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    with databases.migrated() as url:
        yield url


@pytest.fixture
def diagnose_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "PAUSE_S", 0.0)
    monkeypatch.setattr(pacing, "PER_SECOND_MAX", 1_000_000)
