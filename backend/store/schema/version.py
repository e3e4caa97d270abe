"""Which schema the store has, asked without the lock of a migration: for those who wait for one."""

from __future__ import annotations

from alembic.script import ScriptDirectory
from sqlalchemy import exc, text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.errors import StoreUnavailableError
from backend.store.postgres.connections import reading
from backend.store.schema.migrate import script_location


class SchemaCheck:
    """Knows the revisions of this version; reads their scripts once."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        scripts = ScriptDirectory(str(script_location()))
        self._head = scripts.get_current_head()
        self._older = {s.revision for s in scripts.walk_revisions()} - {self._head}

    async def is_ready(self) -> bool:
        """Whether the store answers and has this version's schema or a newer one. Never raises for a store away."""
        try:
            async with reading(self._engine) as connection:
                revision = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar()
        except (StoreUnavailableError, exc.ProgrammingError):
            return False
        return revision is not None and revision not in self._older
