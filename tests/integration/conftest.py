"""A real PostgreSQL for the tests that need one: one server a session, one database a test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.ids import TargetId
from backend.store.embedded import EmbeddedPostgres
from backend.store.engine import create_store_engine
from backend.store.ingest import IngestWriter
from backend.store.targets import NewTarget, TargetRepository
from tests.support.databases import Databases
from tests.support.observations import NOW, SteppingClock


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="barrierscope-test-"))
    server = EmbeddedPostgres(folder / "postgres")
    try:
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def databases(postgres_url: str) -> Databases:
    return Databases(postgres_url)


@pytest.fixture
def empty_database(databases: Databases) -> Iterator[str]:
    with databases.empty() as url:
        yield url


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    with databases.migrated() as url:
        yield url


@pytest.fixture
async def engine(database: str) -> AsyncIterator[AsyncEngine]:
    created = create_store_engine(database)
    yield created
    await created.dispose()


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def writer(engine: AsyncEngine, clock: SteppingClock) -> IngestWriter:
    return IngestWriter(engine, clock=clock)


@pytest.fixture
async def target(engine: AsyncEngine) -> TargetId:
    new = NewTarget(url="http://flink:8081", name="flink", origin="api")
    return (await TargetRepository(engine).add(new, at=NOW)).id
