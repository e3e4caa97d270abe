"""Ready means: the store answers and has the tables this version needs, or those of a newer one."""

from __future__ import annotations

import psycopg
import pytest

from backend.store.postgres.connections import create_store_engine
from backend.store.schema import migrate
from backend.store.schema.version import SchemaCheck

pytestmark = pytest.mark.anyio


async def _is_ready(url):
    engine = create_store_engine(url)
    try:
        return await SchemaCheck(engine).is_ready()
    finally:
        await engine.dispose()


def _set_revision(url, revision):
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", [revision])


async def test_a_store_that_was_migrated_is_ready(database):
    assert await _is_ready(database)


async def test_a_store_without_tables_is_not(empty_database):
    assert not await _is_ready(empty_database)


async def test_a_store_of_the_version_before_is_not(empty_database):
    migrate.upgrade(empty_database, "0001")

    assert not await _is_ready(empty_database)


async def test_a_newer_store_is_so_that_the_old_pods_serve_while_a_new_version_is_rolled_out(database):
    _set_revision(database, "9999")

    assert await _is_ready(database)


async def test_a_store_that_is_away_is_not_and_that_is_no_error():
    assert not await _is_ready("postgresql://nobody@127.0.0.1:1/nothing")
