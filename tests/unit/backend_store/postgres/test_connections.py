"""The accepted database URLs, and the error for the others."""

from __future__ import annotations

import pytest

from backend.domain.errors import InvalidInputError
from backend.store.postgres.connections import store_url


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"])
def test_every_postgresql_url_uses_the_same_driver(scheme):
    url = store_url(f"{scheme}://me:p%40ss@db.example:5433/history?sslmode=require")

    assert url.drivername == "postgresql+psycopg"
    assert (url.username, url.password, url.host, url.port, url.database) == (
        "me",
        "p@ss",
        "db.example",
        5433,
        "history",
    )
    assert url.query == {"sslmode": "require"}


@pytest.mark.parametrize(
    "text",
    ["", "s3cret", "mysql://me:s3cret@db/x", "postgresql://me:s3cret@db:port/x", "postgresql://me:s3cret@[::1/x"],
)
def test_another_url_is_refused_without_repeating_it(text):
    with pytest.raises(InvalidInputError) as error:
        store_url(text)

    assert str(error.value) == (
        "invalid option: --database-url: is not a PostgreSQL URL (allowed: postgresql://user:password@host:5432/database)"
    )
    assert error.value.__cause__ is None
