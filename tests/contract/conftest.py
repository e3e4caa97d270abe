"""A real PostgreSQL for contract tests with a store: one server for the session, one database for each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.store.postgres.embedded import EmbeddedPostgres
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
