"""Fixtures with a real PostgreSQL: one server for the session, and one database for each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.ids import TargetId
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.postgres.embedded import EmbeddedPostgres
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.databases import Databases, shared_databases
from tests.support.observations import NOW, SteppingClock
from tests.support.spark_session import spark_runtime, spark_session

__all__ = ["spark_runtime", "spark_session"]


@pytest.fixture(scope="session")
def made_cluster() -> Iterator[Path]:
    """Yield the folder of a stopped server with one table.

    The path of the folder is unusually long and has unusual characters.
    """
    above = Path(tempfile.mkdtemp(prefix="barrierscope-test-"))
    folder = above / "a b'c%d \"é" / ("long-" * 40) / "postgres"
    # An instance that was killed during initdb leaves such a folder.
    (folder / "data.new").mkdir(parents=True)
    (folder / "data.new" / "PG_VERSION").write_text("18\n")
    server = EmbeddedPostgres(folder)
    try:
        with psycopg.connect(server.start()) as connection:
            connection.execute("CREATE TABLE kept (number int)")
            connection.execute("INSERT INTO kept VALUES (1)")
        server.stop()
        yield folder
    finally:
        server.stop()
        shutil.rmtree(above, ignore_errors=True)


@pytest.fixture(scope="session")
def databases(pytestconfig: pytest.Config) -> Databases:
    return shared_databases(pytestconfig)


@pytest.fixture(scope="session")
def postgres_url(databases: Databases) -> str:
    return databases.url("postgres")


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
    new = NewTarget(url="http://flink:8081", name="flink", origin=TargetOrigin.API)
    return (await TargetRepository(engine).add(new, at=NOW)).id
