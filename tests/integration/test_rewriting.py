"""A partition is replaced while other transactions use it: no row is lost or doubled, and no transaction waits."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, date, datetime, time, timedelta
from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy import text

from backend.store import downsampling, rewriting
from backend.store.downsampling import rewrite_in_progress
from backend.store.postgres.connections import reading, session, store_url, writing
from backend.store.retention import apply_retention
from backend.store.rewriting import Draft, Rewrite, rewrite
from backend.store.schema import tables
from backend.store.schema.partitions import Partitions, Retention, list_partitions, size_of_other_tables
from tests.support.observations import NOW

pytestmark = pytest.mark.anyio
_DAY = date(2026, 3, 1)
_TABLE = tables.checkpoint_details
_COUNT = 600
_EVERY = 7
_INSERT = text(
    "INSERT INTO checkpoint_details (run_id, checkpoint_id, vertex_id, triggered_on, subtask_count, start_delay_ms)"
    " VALUES ('r', :id, 'v', :day, :value, array_fill(:value, ARRAY[100]))"
    " ON CONFLICT (run_id, checkpoint_id, vertex_id, triggered_on) DO UPDATE SET subtask_count = excluded.subtask_count"
)
_DELETE = text("DELETE FROM checkpoint_details WHERE checkpoint_id = :id AND triggered_on = :day")
_ROWS = text("SELECT checkpoint_id, subtask_count FROM checkpoint_details WHERE triggered_on = :day")


@pytest.fixture
async def rows(engine, monkeypatch):
    """Store rows over many disk blocks, and return them: the value of each id."""
    monkeypatch.setattr(rewriting, "BATCH_BLOCKS", 2)
    monkeypatch.setattr(rewriting, "SWAP_PAUSE_S", 0)
    await Partitions(engine).ensure([_DAY])
    async with writing(engine) as connection:
        await connection.execute(_INSERT, [{"id": n, "day": _DAY, "value": 1} for n in range(_COUNT)])
    return dict.fromkeys(range(_COUNT), 1)


async def _rewrite(engine, comment="50 % done: 'x'", stays=f"mod(t.checkpoint_id, {_EVERY}) = 0"):
    async def condition():
        return stays

    async with session(engine, statement_timeout_s=60) as connection:
        return await rewrite(connection, Rewrite(_TABLE, _DAY, comment), condition)


async def _stored(connection):
    found = (await connection.execute(_ROWS, {"day": _DAY})).all()
    assert len({n for n, _ in found}) == len(found), "a row is doubled"
    return dict(tuple(row) for row in found)


async def _left(engine):
    """Return what a rewrite must not leave behind: tables, triggers, functions, constraints, options and deadlocks."""
    query = (
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relname ~ '_n[0-9]{8}'"
        " UNION SELECT tgname FROM pg_trigger WHERE tgname ~ '_n[0-9]{8}'"
        " UNION SELECT proname FROM pg_proc WHERE proname ~ '_n[0-9]{8}'"
        " UNION SELECT conname FROM pg_constraint WHERE conname ~ '_day$'"
        " UNION SELECT relname FROM pg_class WHERE array_to_string(reloptions, ' ') LIKE '%autovacuum%'"
        " UNION SELECT datname || ': deadlocks' FROM pg_stat_database"
        " WHERE datname = current_database() AND deadlocks > 0"
    )
    async with engine.connect() as connection:
        return list((await connection.execute(text(query))).scalars())


async def _write_at_random(rng, engine, expected, *, number):
    """Change one row in a transaction of its own, which waits for no lock, and change ``expected`` accordingly."""
    key, day = rng.randrange(_COUNT + 200), {"day": _DAY}
    async with writing(engine) as connection:
        await connection.execute(text("SET LOCAL lock_timeout = '1ms'"))
        if rng.random() < 0.3:
            await connection.execute(_DELETE, day | {"id": key})
            expected.pop(key, None)
        else:
            await connection.execute(_INSERT, day | {"id": key, "value": number})
            expected[key] = number
        # A read must not wait for a lock either.
        await _stored(connection)


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_written_between_any_two_steps_is_kept_and_waits_for_nothing(engine, rows, monkeypatch, seed):
    rng = random.Random(seed)
    expected = {key: value for key, value in rows.items() if key % _EVERY == 0}
    noted, count = rewriting.note, 0

    async def note(connection, table, comment):
        nonlocal count
        await noted(connection, table, comment)
        # No row is written at the last comment, because the tables are locked then.
        if table != f"checkpoint_details_p{_DAY:%Y%m%d}":
            count += 1
            await _write_at_random(rng, engine, expected, number=1000 + count)

    monkeypatch.setattr(rewriting, "note", note)

    assert await _rewrite(engine)

    async with engine.connect() as connection:
        assert await _stored(connection) == expected, f"seed {seed}"
    assert count > 10
    assert await _left(engine) == []


async def test_an_interrupted_rewrite_continues_where_it_was(engine, rows, monkeypatch):
    expected = {key: value for key, value in rows.items() if key % _EVERY == 0}
    rng, noted, copied = random.Random(5), rewriting.note, []

    async def note(connection, table, comment):
        await noted(connection, table, comment)
        copied.append(comment)
        if len(copied) % 4 == 2:
            await connection.commit()
        if len(copied) % 2 == 0:
            raise asyncio.CancelledError

    monkeypatch.setattr(rewriting, "note", note)
    others = await size_of_other_tables(engine)
    for attempt in range(100):
        try:
            assert await _rewrite(engine)
            break
        except asyncio.CancelledError:
            await _write_at_random(rng, engine, expected, number=attempt + 1000)
            # The draft is not counted, because otherwise retention would remove too much.
            assert await size_of_other_tables(engine) == others

    # A batch is copied a second time only if its transaction was not committed.
    assert len(copied) < 2 * len(set(copied))
    async with engine.connect() as connection:
        assert await _stored(connection) == expected
    assert await _left(engine) == []


async def test_many_swaps_beside_writers_and_readers_lose_and_double_nothing(engine, rows):
    writers, is_done = 3, False
    written = [{} for _ in range(writers)]

    async def write(number):
        rng, own = random.Random(number), written[number]
        value = 10
        while not is_done:
            value += 1
            keys = sorted({1000 * (number + 1) + rng.randrange(50) for _ in range(3)})
            async with writing(engine) as connection:
                await connection.execute(_INSERT, [{"id": key, "day": _DAY, "value": value} for key in keys])
            own |= dict.fromkeys(keys, value)

    async def read():
        while not is_done:
            before = rows | {key: value for own in written for key, value in own.items()}
            async with engine.connect() as connection:
                seen = await _stored(connection)
            assert all(seen.get(key, -1) >= value for key, value in before.items())

    async with asyncio.TaskGroup() as group:
        for number in range(writers):
            group.create_task(write(number))
        for _ in range(2):
            group.create_task(read())
        for number in range(5):
            assert await _rewrite(engine, comment=f"{number}", stays="true")
        is_done = True

    async with engine.connect() as connection:
        assert await _stored(connection) == rows | {key: value for own in written for key, value in own.items()}
    assert await _left(engine) == []


async def test_the_swap_reads_no_rows_of_the_new_partition(engine, rows):
    notices = []
    async with session(engine, statement_timeout_s=60) as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        raw.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        await connection.exec_driver_sql("SET client_min_messages = debug1")

        async def condition():
            return "true"

        assert await rewrite(connection, Rewrite(_TABLE, _DAY, "done"), condition)

    assert any("is implied by existing constraints" in notice for notice in notices), notices


async def test_a_table_that_was_written_anew_meanwhile_is_copied_from_its_start(engine, rows, monkeypatch):
    monkeypatch.setattr(rewriting, "SWAP_ATTEMPTS", 0)
    assert not await _rewrite(engine)
    async with engine.connect() as connection:
        own = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await own.execute(text(f"VACUUM FULL checkpoint_details_p{_DAY:%Y%m%d}"))
    monkeypatch.setattr(rewriting, "SWAP_ATTEMPTS", 3)

    assert await _rewrite(engine)

    async with engine.connect() as connection:
        assert await _stored(connection) == {key: value for key, value in rows.items() if key % _EVERY == 0}


async def test_rows_that_change_their_block_between_two_batches_are_not_lost(engine, rows, database, monkeypatch):
    gone = range(_COUNT // 3)
    async with writing(engine) as connection:
        await connection.execute(_DELETE, [{"id": n, "day": _DAY} for n in gone])
    url = store_url(database).set(drivername="postgresql").render_as_string(hide_password=False)
    batches = []

    def monotonic():
        # The rewrite reads this clock before the first batch and after each one.
        batches.append(len(batches))
        if len(batches) == 2:
            with psycopg.connect(url, autocommit=True) as other:
                other.execute(f"VACUUM FULL checkpoint_details_p{_DAY:%Y%m%d}")
        return 0.0

    monkeypatch.setattr(rewriting, "time", SimpleNamespace(monotonic=monotonic))
    assert not await _rewrite(engine, stays="true")
    assert await _rewrite(engine, stays="true")

    assert len(batches) > 3
    async with engine.connect() as connection:
        assert await _stored(connection) == {key: value for key, value in rows.items() if key not in gone}


async def test_a_dump_that_has_begun_delays_the_swap(engine, rows, database, monkeypatch):
    monkeypatch.setattr(rewriting, "SWAP_ATTEMPTS", 2)
    url = store_url(database).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, application_name="pg_dump") as dump:
        dump.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for _ in range(2):
            dump.execute("SELECT count(*) FROM pg_class")

        assert not await _rewrite(engine)

        # The dump has not locked this table yet. It must still find every row when it reads the table.
        assert dump.execute("SELECT count(*) FROM checkpoint_details").fetchone() == (_COUNT,)
    assert await _rewrite(engine)


async def test_a_day_that_is_dropped_leaves_nothing_of_an_interrupted_rewrite(engine, rows, monkeypatch):
    monkeypatch.setattr(rewriting, "SWAP_ATTEMPTS", 0)
    assert not await _rewrite(engine)
    assert await _left(engine)

    await apply_retention(engine, Retention(), NOW)

    assert _DAY not in {p.day for p in await list_partitions(engine)}
    assert await _left(engine) == []


async def test_a_rewrite_that_is_no_longer_needed_is_removed_by_the_next_pass(engine, rows, monkeypatch):
    later = datetime.combine(_DAY, time(12), UTC) + timedelta(days=1)
    monkeypatch.setattr(rewriting, "SWAP_ATTEMPTS", 0)
    assert not await _rewrite(engine)
    async with session(engine, statement_timeout_s=60) as other:
        assert await downsampling._lock(other)
        await apply_retention(engine, Retention(), later)
        assert await _left(engine), "another process may work on it"

    await apply_retention(engine, Retention(), later)

    assert await _left(engine) == []
    async with engine.connect() as connection:
        assert await _stored(connection) == rows


async def test_the_progress_of_a_rewrite_is_shown_while_a_process_works_on_it(engine, rows):
    shown = []

    async def condition():
        async with reading(engine) as connection:
            shown.append(await rewrite_in_progress(connection))
        return "true"

    async with session(engine, statement_timeout_s=60) as connection:
        assert await downsampling._lock(connection)
        await rewrite(connection, Rewrite(_TABLE, _DAY, "comment"), condition)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewriting, "SWAP_ATTEMPTS", 0)
        assert not await _rewrite(engine)
    async with reading(engine) as connection:
        assert await rewrite_in_progress(connection) is None, "no process works on it"
    async with session(engine, statement_timeout_s=60) as other:
        assert await downsampling._lock(other)
        async with reading(engine) as connection:
            shown.append(await rewrite_in_progress(connection))

    assert shown == [Draft("checkpoint_details", _DAY, 0), Draft("checkpoint_details", _DAY, 100)]


async def test_a_rewrite_with_another_aim_or_schema_begins_again(engine, rows, monkeypatch):
    monkeypatch.setattr(rewriting, "SWAP_ATTEMPTS", 0)
    assert not await _rewrite(engine, comment="another", stays="false")
    assert not await _rewrite(engine)
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE checkpoint_details ADD COLUMN later int DEFAULT 5"))
        await connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))
    monkeypatch.setattr(rewriting, "SWAP_ATTEMPTS", 3)

    assert await _rewrite(engine)

    async with engine.connect() as connection:
        assert await _stored(connection) == {key: value for key, value in rows.items() if key % _EVERY == 0}
