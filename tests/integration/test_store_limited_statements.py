"""A block that only reads has a time limit of its own, and its transaction survives a timeout."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from backend.store.postgres.connections import limited, reading

pytestmark = pytest.mark.anyio


async def test_a_statement_that_takes_too_long_ends_its_block_only_and_the_usual_limit_returns(engine):
    async with reading(engine) as connection:
        usual = (await connection.execute(text("SHOW statement_timeout"))).scalar_one()
        with pytest.raises(TimeoutError):
            async with limited(connection, statement_timeout_ms=50):
                await connection.execute(text("SELECT pg_sleep(60)"))
        async with limited(connection, statement_timeout_ms=60_000):
            assert (await connection.execute(text("SHOW statement_timeout"))).scalar_one() == "1min"

        assert (await connection.execute(text("SHOW statement_timeout"))).scalar_one() == usual
