"""The option ``--database-url``, and the database URL that a command uses."""

from __future__ import annotations

from typing import Annotated

import typer

from backend.domain.errors import FieldProblem, InvalidInputError
from backend.settings import Settings

DatabaseUrl = Annotated[
    str | None, typer.Option("--database-url", metavar="URL", help="PostgreSQL [BARRIERSCOPE_DATABASE_URL].")
]


def database_url_of(option: str | None, settings: Settings) -> str:
    """The URL from the option, or else from the environment.

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
    """The database URL in the form that libpq reads.

    Raises:
        InvalidInputError: no URL is set, or it is not a PostgreSQL URL.

    """
    from backend.store.postgres.connections import store_url

    return (
        store_url(database_url_of(option, settings)).set(drivername="postgresql").render_as_string(hide_password=False)
    )
