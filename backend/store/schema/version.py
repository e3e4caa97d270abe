"""Checks the revision of the store's schema without the migration lock, for processes that wait for a migration."""

from __future__ import annotations

from alembic.script import ScriptDirectory
from sqlalchemy import Text, column, exc, select, table
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.errors import StoreUnavailableError
from backend.store.postgres.connections import reading
from backend.store.schema.migrate import script_location

_REVISION = select(column("version_num", Text)).select_from(table("alembic_version"))


class SchemaCheck:
    """Compares the revision of the store with the revisions of this version. The scripts are read once."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        scripts = ScriptDirectory(str(script_location()))
        self._head = scripts.get_current_head()
        self._older = {s.revision for s in scripts.walk_revisions()} - {self._head}

    async def is_ready(self) -> bool:
        """Return whether the store has the schema of this version or a newer one.

        Return False if the store is unreachable.
        """
        try:
            async with reading(self._engine) as connection:
                revision = (await connection.execute(_REVISION)).scalar()
        except (StoreUnavailableError, exc.ProgrammingError):
            return False
        return revision is not None and revision not in self._older
