"""Dumps a database with pg_dump, and loads a dump with pg_restore. Both come with the embedded PostgreSQL.

``replace_by`` loads a dump into a second database. When it is complete, the two databases exchange their names in one
transaction. Until then, the first database is as it was, even after ``kill -9``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy.engine import make_url

from backend.store.postgres.embedded import DATABASE, REPLACED, RESTORING, host_error, installed_binaries

_PASSWORD = "PGPASSWORD"  # noqa: S105  the name of the variable
_FIX = {
    "pg_dump": "check the address of the database and its version, which must be 18 or older",
    "pg_restore": "pass a complete file that `barrierscope backup` or pg_dump --format custom has written",
}


def dump(url: str, file: Path) -> None:
    """Write a dump of the database at ``url`` to a file.

    Raises:
        HostError: pg_dump failed.
    """
    _run("pg_dump", ["--format", "custom", "--file", str(file)], url, what="the database could not be dumped")


def check_dump(file: Path) -> None:
    """Check that ``file`` begins like a dump.

    Raises:
        HostError: the file cannot be read, or is not a dump.
    """
    _run("pg_restore", ["--list", str(file)], what=f"{file} cannot be read as a dump")


def has_tables(url: str) -> bool:
    """Return whether the database was ever migrated."""
    with closing(psycopg.connect(url)) as connection:
        row = connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
        return row is not None and bool(row[0])


def replace_by(url: str, file: Path, prepare: Callable[[str], None]) -> None:
    """Replace the database of an embedded server by a dump.

    Args:
        url: the address of the database that is replaced.
        file: the dump.
        prepare: called with the address of the loaded database before it takes the place of the other one.

    Raises:
        HostError: pg_restore failed. The database at ``url`` is as it was.
    """
    new_url = make_url(url).set(database=RESTORING).render_as_string(hide_password=False)
    with closing(psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True)) as connection:
        for name in (RESTORING, REPLACED):
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{RESTORING}"')
        options = ["--no-owner", "--no-privileges", "--exit-on-error", str(file)]
        _run("pg_restore", options, new_url, what=f"{file} could not be loaded")
        prepare(new_url)
        with closing(psycopg.connect(new_url, autocommit=True)) as loaded:
            # A dump contains no statistics, without which the first queries would be slow.
            loaded.execute("ANALYZE")
        with connection.transaction():
            connection.execute(f'ALTER DATABASE "{DATABASE}" RENAME TO "{REPLACED}"')
            connection.execute(f'ALTER DATABASE "{RESTORING}" RENAME TO "{DATABASE}"')
        connection.execute(f'DROP DATABASE "{REPLACED}"')


def _without_password(url: str) -> str:
    return make_conninfo("", **{k: v for k, v in conninfo_to_dict(url).items() if k != "password"})


def _run(program: str, options: Sequence[str], url: str | None = None, *, what: str) -> None:
    # Like the other connections, these take what the URL lacks from the variables of libpq: a password, certificates.
    kept = {name: value for name, value in os.environ.items() if name.startswith("PG") or name == "HOME"}
    environment = kept | {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
    if url is not None:
        # Other users of the machine can read the command line, so it contains no password.
        if password := conninfo_to_dict(url).get("password"):
            environment[_PASSWORD] = str(password)
        options = ["--dbname", _without_password(url), *options]
    done = subprocess.run(  # noqa: S603
        [installed_binaries() / program, *options],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        # The first line names the cause. Further lines name its place.
        first = next((line for line in done.stderr.splitlines() if line.strip()), f"exit code {done.returncode}")
        raise host_error(what, first.partition("error: ")[2] or first, fix=_FIX[program])
