"""Connects Alembic to the database, over the connection that ``backend.store.schema.migrate`` passes.

On Alembic's command line, which is used to write new revisions, ``-x url=postgresql://...`` states the URL instead.
The comparison of schemas ignores the partitions of days, because they are created at run time.
"""

from __future__ import annotations

import re

from alembic import context
from sqlalchemy import Connection, create_engine, pool

from backend.store.postgres.connections import store_url
from backend.store.schema import alert_tables, choice_tables, watch_tables
from backend.store.schema.tables import PARTITIONED, metadata

# Importing these modules adds their tables to the metadata.
_MODULES = (alert_tables, choice_tables, watch_tables)
_PARTITION = re.compile(rf"^(?:{'|'.join(PARTITIONED)})_p\d{{8}}$")


def _include_name(name: str | None, kind: str, _: object) -> bool:
    return not (kind == "table" and name is not None and _PARTITION.match(name))


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_name=_include_name,
        compare_type=True,
        compare_server_default=True,
        # If a revision fails, the database stays as it was before that revision.
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def _main() -> None:
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _run(connection)
        return
    url = context.get_x_argument(as_dictionary=True).get("url")
    if not isinstance(url, str):
        raise SystemExit("the URL is missing: alembic -x url=postgresql://... COMMAND")
    with create_engine(store_url(url), poolclass=pool.NullPool).connect() as connected:
        _run(connected)


_main()
