"""A store that is unreachable, busy or slow raises one typed error in one line. No error and no log has a secret."""

from __future__ import annotations

import asyncio
import traceback
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.domain.errors import ConflictError, StoreUnavailableError
from backend.domain.target import TargetOrigin, TargetState
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine, reading, writing
from backend.store.retention import apply_retention
from backend.store.schema.partitions import Retention
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import NOW, completed, job, observation

pytestmark = pytest.mark.anyio


def _line(error):
    words = str(error.value)
    assert "\n" not in words
    # A traceback in the log must not have it either.
    assert "s3cret" not in "".join(traceback.format_exception(error.value))
    return words


async def _refused(url):
    engine = create_store_engine(url)
    try:
        with pytest.raises(StoreUnavailableError) as error:
            await TargetRepository(engine).list_enabled()
    finally:
        await engine.dispose()
    return _line(error)


async def _write(engine, *statements):
    async with writing(engine) as connection:
        for statement in statements:
            await connection.execute(text(statement))


async def test_an_unreachable_or_refusing_store_is_reported_in_one_line_without_the_password(database):
    host = database.rpartition("@")[2]

    assert "refused" in await _refused("postgresql://me:s3cret@127.0.0.1:1/nowhere")
    assert "password authentication failed" in await _refused(f"postgresql://me:s3cret@{host}")
    assert "does not exist" in await _refused(f"{database}_gone")


async def test_waiting_for_a_connection_times_out_with_one_line_and_works_again_later(database):
    engine = create_store_engine(database, pool_size=1, pool_overflow=0, pool_timeout_s=0.05)
    async with reading(engine):
        with pytest.raises(StoreUnavailableError) as error:
            await TargetRepository(engine).list_enabled()

    assert _line(error) == "the store does not answer: every connection of this process is in use"
    assert await TargetRepository(engine).list_enabled() == []
    await engine.dispose()


async def test_more_writers_than_connections_take_turns(database, clock):
    engine = create_store_engine(database, pool_size=2, pool_overflow=0)
    target = (await TargetRepository(engine).add(NewTarget("http://f", "f", TargetOrigin.API), at=NOW)).id
    writer = IngestWriter(engine, clock=clock)
    polls = [observation(target, job([completed(n)]), at=NOW + timedelta(seconds=n)) for n in range(20)]

    done = await asyncio.gather(*(writer.write(p) for p in polls))

    assert sum(r.new_count for r in done) == 20
    await engine.dispose()


async def test_connections_that_the_server_closed_are_replaced_without_an_error(writer, target, engine, postgres_url):
    await writer.write(observation(target, job([completed(1)])))
    other = create_store_engine(postgres_url)
    ended = text("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = :name")
    async with other.connect() as connection:
        assert (await connection.execute(ended, {"name": engine.url.database})).scalar_one() > 0
    await other.dispose()

    assert (await writer.write(observation(target, job([completed(2)]), at=NOW + timedelta(seconds=2)))).new_count == 1


async def test_a_connection_closed_during_a_transaction_stores_nothing_and_later_writes_work(engine, postgres_url):
    targets = TargetRepository(engine)
    with pytest.raises(StoreUnavailableError) as error:
        await _write(
            engine, "INSERT INTO jobs VALUES ('j', 'd', 'n', now())", "SELECT pg_terminate_backend(pg_backend_pid())"
        )
    assert _line(error).startswith("the store does not answer: terminating connection")

    async with reading(engine) as connection:
        assert (await connection.execute(text("SELECT count(*) FROM jobs"))).scalar_one() == 0
    assert (await targets.add(NewTarget("http://f", "f", TargetOrigin.API), at=NOW)).name == "f"


@pytest.mark.parametrize(
    ("setting", "statement"),
    [("statement_timeout", "SELECT pg_sleep(20)"), ("lock_timeout", "LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")],
)
async def test_a_statement_that_exceeds_a_timeout_is_reported_in_one_line(engine, setting, statement):
    async with engine.connect() as other:
        await other.execute(text("SELECT * FROM jobs"))
        with pytest.raises(StoreUnavailableError) as error:
            await _write(engine, f"SET LOCAL {setting} = '50ms'", statement)
    assert "canceling statement due to" in _line(error)


async def test_every_connection_has_its_timeouts(engine):
    async with reading(engine) as connection:
        shown = [
            (await connection.execute(text(f"SHOW {n}"))).scalar_one() for n in ("statement_timeout", "lock_timeout")
        ]

    assert shown == ["30s", "10s"]


async def test_a_secret_in_the_address_of_a_target_is_in_no_error_and_no_log(engine, clock, capfd, caplog):
    targets = TargetRepository(engine)
    new = NewTarget("http://me:s3cret@flink:8081", "flink", TargetOrigin.CONFIGURATION)
    target = (await targets.add(new, at=NOW)).id
    with pytest.raises(ConflictError) as error:
        await targets.add(new, at=NOW)
    assert _line(error) == f"flink:8081 is already watched as target {target}"

    writer = IngestWriter(engine, clock=clock)
    await writer.write(observation(target, job([completed(1, triggered_at=NOW - timedelta(days=30))])))
    await writer.report_failure(target, kind=TargetState.UNREACHABLE, reason="refused", at=NOW)
    await apply_retention(engine, Retention(max_size_bytes=0), NOW + timedelta(days=9))

    out, err = capfd.readouterr()
    assert "checkpoints refused" in out + err + caplog.text
    assert "s3cret" not in out + err + caplog.text
