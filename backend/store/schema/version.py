"""Reads the store's schema revision without the migration lock, for processes that wait for a migration."""

from __future__ import annotations

from alembic.script import ScriptDirectory
from sqlalchemy import exc, text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.errors import StoreUnavailableError
from backend.store.postgres.connections import reading
from backend.store.schema.migrate import script_location


class SchemaCheck:
    """Compares the store's revision with this version's revisions, whose scripts it reads once."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        scripts = ScriptDirectory(str(script_location()))
        self._head = scripts.get_current_head()
        self._older = {s.revision for s in scripts.walk_revisions()} - {self._head}

    async def is_ready(self) -> bool:
        """Return whether the store has this version's schema or a newer one; False if the store is unreachable."""
        try:
            async with reading(self._engine) as connection:
                revision = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar()
        except (StoreUnavailableError, exc.ProgrammingError):
            return False
        return revision is not None and revision not in self._older
