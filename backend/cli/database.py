"""The options ``--database-url`` and ``--data-dir``, and the database URL that a command uses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from backend.domain.errors import FieldProblem, HostError, InvalidInputError
from backend.settings import Settings

DatabaseUrl = Annotated[
    str | None, typer.Option("--database-url", metavar="URL", help="PostgreSQL [BARRIERSCOPE_DATABASE_URL].")
]

RunningFolder = Annotated[
    str | None, typer.Option("--data-dir", metavar="DIR", help="Data folder of a running `up`, if no URL is set.")
]


def database_url_of(option: str | None, settings: Settings) -> str:
    """Return the URL from the option, or else from the environment.

    Raises:
        InvalidInputError: neither is set.
    """
    if option is not None:
        return option
    if settings.database_url is None:
        problem = FieldProblem("--database-url", "neither it nor BARRIERSCOPE_DATABASE_URL is set", "postgresql://...")
        raise InvalidInputError([problem], what="option")
    return settings.database_url.get_secret_value()


def plain_url(option: str | None, settings: Settings) -> str:
    """Return the database URL in the form that libpq reads.

    Raises:
        InvalidInputError: no URL is set, or it is not a PostgreSQL URL.
    """
    from backend.store.postgres.connections import store_url

    return (
        store_url(database_url_of(option, settings)).set(drivername="postgresql").render_as_string(hide_password=False)
    )


def used_url(option: str | None, data_dir: str | None, settings: Settings) -> str:
    """Return the database URL in the form that libpq reads: from the option, from a running ``up``, or the setting.

    Raises:
        InvalidInputError: the URL is not a PostgreSQL URL.
        HostError: no URL is set, and no ``up`` runs in the folder.
    """
    if option is not None or (data_dir is None and settings.database_url is not None):
        return plain_url(option, settings)
    from backend.store.postgres.embedded import running_url

    folder = Path(data_dir).expanduser().absolute() if data_dir is not None else settings.data_dir_or_default()
    url = running_url(folder / "postgres")
    if url is None:
        fix = "start it, pass its folder with --data-dir, or pass --database-url"
        raise HostError(f"no `barrierscope up` runs in {folder}", fix=fix)
    return url
