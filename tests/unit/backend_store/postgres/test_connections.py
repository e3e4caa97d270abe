"""Tests of database URLs: which are accepted, and which error the others get."""

from __future__ import annotations

import pytest

from backend.domain.errors import InvalidInputError
from backend.store.postgres.connections import connect_arguments, store_url


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


@pytest.mark.parametrize(
    ("url", "arguments"),
    [
        ("postgresql://u:p%20w@h/d", {"host": "h", "dbname": "d", "user": "u", "password": "p w"}),
        ("postgresql://u@h/d?sslrootcert=/a%20b", {"host": "h", "dbname": "d", "user": "u", "sslrootcert": "/a b"}),
        ("postgresql:///d?host=h1:5432&host=h2:5433", {"host": "h1,h2", "port": "5432,5433", "dbname": "d"}),
    ],
)
def test_encoded_characters_and_several_hosts_of_a_url_reach_the_driver(url, arguments):
    assert connect_arguments(url) == arguments
