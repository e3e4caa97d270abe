"""A store that is unreachable, busy or slow raises one typed error in one line, and no error or log shows a secret."""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.dialects.postgresql.psycopg import PGDialectAsync_psycopg

from backend.domain.errors import ConflictError, StoreBusyError, StoreFullError, StoreUnavailableError
from backend.domain.target import TargetOrigin, TargetState
from backend.store.ingest import IngestWriter
from backend.store.postgres.blocking import BlockingConnection
from backend.store.postgres.connections import create_store_engine, reading, store_error, store_url, writing
from backend.store.retention import apply_retention
from backend.store.schema.partitions import Retention
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import NOW, completed, job, observation
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


def _line(error):
    words = str(error.value)
    assert "\n" not in words
    # If the log prints a traceback of the error, the traceback must not show the password either.
    assert "s3cret" not in "".join(traceback.format_exception(error.value))
    return words


async def _refused(url):
    engine = create_store_engine(url)
    try:
        with pytest.raises(StoreUnavailableError) as error:
            await TargetRepository(engine).list_all()
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
            await TargetRepository(engine).list_all()

    assert isinstance(error.value, StoreBusyError)
    assert _line(error) == "no connection to the store is free: every connection of this process is in use"
    assert await TargetRepository(engine).list_all() == []
    await engine.dispose()


async def test_a_server_without_a_free_connection_is_busy_and_not_unreachable(database):
    full = psycopg.OperationalError("connection failed: FATAL:  sorry, too many clients already")

    assert isinstance(store_error(full), StoreBusyError)


async def test_a_full_disk_is_reported_as_one(database):
    engine = create_store_engine(database)
    full = "DO $$ BEGIN RAISE SQLSTATE '53100' USING MESSAGE = 'could not extend file: No space left on device'; END $$"
    with pytest.raises(StoreFullError) as error:
        await _write(engine, full)

    assert _line(error) == "the disk of the store is full: could not extend file: No space left on device"
    await engine.dispose()


@contextmanager
def _suspended(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def _known(connection):
    """Return the driver's connection and the process id of its server process."""
    pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
    return (await connection.get_raw_connection()).driver_connection, pid


async def test_a_server_that_stops_to_respond_within_a_statement_is_an_error(database):
    engine = create_store_engine(database)

    async def ask():
        async with reading(engine) as connection:
            raw, pid = await _known(connection)
            raw.answer_timeout_s = 0.05
            with _suspended(pid):
                await connection.execute(text("SELECT 1"))

    with pytest.raises(StoreUnavailableError) as error:
        await asyncio.wait_for(ask(), PATIENCE_S)

    assert _line(error) == "the store does not answer: the server did not respond within 0.05 s"
    await engine.dispose()


def test_a_blocking_connection_to_a_suspended_server_process_is_closed_with_an_error(database):
    url = store_url(database).set(drivername="postgresql").render_as_string(hide_password=False)
    with BlockingConnection.connect(url) as connection:
        connection.execute("SELECT 1")
        connection.answer_timeout_s = 0.05
        with _suspended(connection.info.backend_pid), pytest.raises(psycopg.OperationalError) as error:
            connection.execute("SELECT 2")

    assert _line(error) == "the server did not respond within 0.05 s"
    assert connection.closed


def test_an_error_of_the_server_is_not_taken_for_a_late_response(database):
    url = store_url(database).set(drivername="postgresql").render_as_string(hide_password=False)
    with BlockingConnection.connect(url) as connection:
        with pytest.raises(psycopg.OperationalError, match="statement timeout"):
            connection.execute("SET LOCAL statement_timeout = 1; SELECT pg_sleep(600)")
        connection.rollback()

        assert connection.execute("SELECT 1").fetchone() == (1,)


async def test_a_writer_checks_a_connection_only_if_it_has_not_just_responded(database, monkeypatch):
    checked, check = [], PGDialectAsync_psycopg.do_ping
    monkeypatch.setattr(PGDialectAsync_psycopg, "do_ping", lambda self, raw: checked.append(raw) or check(self, raw))
    engine = create_store_engine(database, pool_size=1, pool_overflow=0, plans_once=True)
    # A negative age stays below the limit, however slow this machine is.
    for age_s in (-60.0, 60.0):
        async with reading(engine) as connection:
            raw, _ = await _known(connection)
        raw._responded_s = asyncio.get_running_loop().time() - age_s
        before = len(checked)
        async with reading(engine):
            assert len(checked) - before == (age_s > 0)
    await engine.dispose()


async def test_an_idle_connection_to_a_suspended_server_process_is_replaced(database):
    engine = create_store_engine(database, pool_size=1, pool_overflow=0)
    async with reading(engine) as connection:
        raw, pid = await _known(connection)
        raw.answer_timeout_s = 0.05
    with _suspended(pid):

        async def ask():
            async with reading(engine) as connection:
                return (await _known(connection))[1]

        assert await asyncio.wait_for(ask(), PATIENCE_S) != pid
    await engine.dispose()


async def test_a_connection_that_listens_may_wait_longer_than_a_statement(database):
    engine = create_store_engine(database)
    async with reading(engine) as connection:
        raw, _ = await _known(connection)
        await connection.rollback()
        await raw.set_autocommit(True)
        await raw.execute("LISTEN something")
        raw.answer_timeout_s = 0.01

        assert [n async for n in raw.notifies(timeout=0.1)] == []

        raw.answer_timeout_s = PATIENCE_S
        await raw.set_autocommit(False)
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
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
