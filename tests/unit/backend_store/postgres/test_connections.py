"""Which database URLs are taken, what is said of the others, and where the migrations are."""

from __future__ import annotations

import pytest

from backend.domain.errors import HostError, InvalidInputError
from backend.store.postgres.connections import store_url
from backend.store.schema import migrate


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"])
def test_any_postgresql_url_uses_the_one_driver(scheme):
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
def test_what_is_no_postgresql_url_is_refused_without_repeating_it(text):
    with pytest.raises(InvalidInputError) as error:
        store_url(text)

    assert str(error.value) == (
        "invalid option: --database-url: is no PostgreSQL URL (allowed: postgresql://user:password@host:5432/database)"
    )
    assert error.value.__cause__ is None


def test_in_a_checkout_the_scripts_beside_the_package_are_used():
    folder = migrate.script_location()
    assert (folder.name, (folder / "versions").is_dir()) == ("migrations", True)
    assert migrate.head_revision().isdigit()


def test_in_a_wheel_the_scripts_inside_the_package_are_used(tmp_path, monkeypatch):
    module = tmp_path / "site-packages" / "backend" / "store" / "schema" / "migrate.py"
    scripts = module.parents[2] / "_migrations"
    scripts.mkdir(parents=True)
    (scripts / "env.py").touch()
    monkeypatch.setattr(migrate, "__file__", str(module))

    assert migrate.script_location() == scripts


def test_where_neither_is_there_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(migrate, "__file__", str(tmp_path / "backend" / "store" / "schema" / "migrate.py"))

    with pytest.raises(HostError, match="the migration scripts are missing; install Barrierscope again"):
        migrate.script_location()
