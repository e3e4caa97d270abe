"""Create databases on one PostgreSQL server: empty ones, and copies of a migrated one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
import pytest

from backend.store.postgres.embedded import EmbeddedPostgres
from backend.store.schema import migrate
from tests.support.folders import quick_folder

_TEMPLATE = "migrated_template"


class Databases:
    """Create databases on the server at ``url``. Each database is dropped at the end of its ``with`` block."""

    def __init__(self, url: str) -> None:
        self._root = url.rpartition("/")[0]
        self._numbers = count(1)
        self._has_template = False

    def url(self, name: str) -> str:
        """Return the URL of the database ``name`` on the same server."""
        return f"{self._root}/{name}"

    @contextmanager
    def empty(self) -> Iterator[str]:
        """Create a database without tables, and yield its URL."""
        with self._made("CREATE DATABASE {name}") as url:
            yield url

    @contextmanager
    def migrated(self) -> Iterator[str]:
        """Create a database at the newest schema revision, and yield its URL."""
        if not self._has_template:
            self.run(f"CREATE DATABASE {_TEMPLATE}")
            migrate.upgrade(self.url(_TEMPLATE))
            self._has_template = True
        with self._made(f"CREATE DATABASE {{name}} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY") as url:
            yield url

    @contextmanager
    def copy_of(self, url: str) -> Iterator[str]:
        """Copy one of these databases, and yield the copy's URL.

        The database must have no connections during the copy.
        """
        with self._made(f"CREATE DATABASE {{name}} TEMPLATE {url.rpartition('/')[2]}") as copied:
            yield copied

    @contextmanager
    def _made(self, statement: str) -> Iterator[str]:
        name = f"test_{next(self._numbers)}"
        self.run(statement.format(name=name))
        try:
            yield self.url(name)
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def run(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]


_SHARED = pytest.StashKey[Databases]()


def shared_databases(config: pytest.Config) -> Databases:
    """Return the databases of this process, which all kinds of tests share. Their server runs until the process ends.

    A fixture of its own in each kind would start a server and migrate a database for each kind.
    """
    if _SHARED not in config.stash:
        folder = quick_folder("barrierscope-test-")
        server = EmbeddedPostgres(folder / "postgres")
        # What was added last is called first.
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.add_cleanup(server.stop)
        config.stash[_SHARED] = Databases(server.start())
    return config.stash[_SHARED]


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL server that a benchmark started."""

    databases: Databases
    pid: int
    folder: Path
    """A folder of the benchmark, which is removed at the end."""


@contextmanager
def temporary_server() -> Iterator[Server]:
    """Start a PostgreSQL server for a benchmark. Stop it and remove its data at the end of the ``with`` block."""
    folder = Path(tempfile.mkdtemp(prefix="barrierscope-bench-"))
    server = EmbeddedPostgres(folder / "postgres")
    try:
        databases = Databases(server.start())
        assert server.pid is not None
        yield Server(databases, server.pid, folder)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
