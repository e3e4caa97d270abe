"""A store is ready if it is reachable and has the schema of this version or of a newer one."""

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


async def test_a_migrated_store_is_ready(database):
    assert await _is_ready(database)


async def test_a_store_without_tables_is_not_ready(empty_database):
    assert not await _is_ready(empty_database)


async def test_a_store_of_an_older_version_is_not_ready(empty_database):
    migrate.upgrade(empty_database, "0001")

    assert not await _is_ready(empty_database)


async def test_a_newer_store_is_ready_so_that_old_pods_serve_during_a_rollout(database):
    _set_revision(database, "9999")

    assert await _is_ready(database)


async def test_an_unreachable_store_is_not_ready_and_raises_no_error():
    assert not await _is_ready("postgresql://nobody@127.0.0.1:1/nothing")
