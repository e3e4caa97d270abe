"""Reads of one job or of one run visit only the day partitions that they need, as PostgreSQL's plans show.

Each test runs EXPLAIN ANALYZE on a statement of the store, over a week of checkpoints. A partition counts as visited if
a scan of it was executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.dialects import postgresql

from backend.domain.checkpoint import CheckpointStatus
from backend.store.checkpoints import micro_batches, reader, statistics, writer
from backend.store.checkpoints.reader import CheckpointFilter
from backend.store.jobs import pressure
from backend.store.schema.partitions import day_of, day_of_partition
from tests.support.many_checkpoints import insert, row
from tests.support.observations import NOW

pytestmark = pytest.mark.anyio
_DAYS = 7
_A_DAY = 48
_STEP = timedelta(days=1) / _A_DAY
_FIRST = NOW - timedelta(days=_DAYS - 1)
_JOB_A = (
    "INSERT INTO targets (id, url, name, origin, added_at) VALUES ('t', 'http://f:8081', 'f', 'api', %(now)s)",
    "INSERT INTO jobs VALUES ('a', 'fleet', 'a', %(now)s)",
    "INSERT INTO runs (id, job_id, target_id, engine_run_id, engine, started_at, state, engine_state,"
    " first_observed_at, observed_at) VALUES ('r-a', 'a', 't', 'e', 'flink', %(now)s, 'running', 'RUNNING', %(now)s,"
    " %(now)s)",
)


@pytest.fixture
def filled(database):
    """Fill the store with a week of checkpoints of two jobs: every tenth one failed, and the newest one is open."""
    count = (_DAYS - 1) * _A_DAY
    rows = []
    for job in ("a", "b"):
        for number in range(count + 1):
            status = "in-progress" if number == count else "failed" if number % 10 == 3 else "completed"
            rows.append(row(job, number, _FIRST + number * _STEP, status, end_to_end_duration_ms=100 + number))
    insert(database, rows)
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in _JOB_A:
            connection.execute(statement, {"now": NOW})
        connection.execute("ANALYZE checkpoints")


@pytest.fixture
async def week(filled, engine):
    return engine


def _scans(plan: dict) -> Iterator[dict]:
    if "Relation Name" in plan:
        yield plan
    for child in plan.get("Plans", ()):
        yield from _scans(child)


async def _visited(engine, statement, values) -> tuple[list[date], dict]:
    """Return the days of the partitions that the statement visited, newest first, and the whole plan."""
    # EXPLAIN plans a statement for the values that are bound to it, even if a generic plan is forced. Only the plan of
    # a prepared statement keeps its parameters, so that partitions are skipped when the statement runs.
    compiled = statement.compile(dialect=postgresql.psycopg.dialect())
    bound = compiled.construct_params({k: v for k, v in values.items() if k in compiled.params})
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", str(compiled))))
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", str(compiled))
    async with engine.connect() as connection:
        await connection.execute(text("SET plan_cache_mode = force_generic_plan"))
        await connection.execute(text("SET enable_seqscan = off"))
        raw = (await connection.get_raw_connection()).driver_connection
        await raw.execute(f"PREPARE explained AS {numbered}")
        # EXECUTE takes no bound values, so this cursor writes them into the text.
        places = ", ".join(["%s"] * len(names))
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE explained({places})"
        cursor = await psycopg.AsyncClientCursor(raw).execute(explain, [bound[name] for name in names])
        ((found,),) = await cursor.fetchall()
        used = text("SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE name = 'explained'")
        assert (await connection.execute(used)).one() == (1, 0)
        await raw.execute("DEALLOCATE explained")
        await connection.rollback()
    plan = found[0]["Plan"]
    days = {day_of_partition(s["Relation Name"]) for s in _scans(plan) if s["Actual Loops"] > 0}
    return sorted((d for d in days if d is not None), reverse=True), plan


def _day(days_ago: int) -> date:
    return day_of(NOW) - timedelta(days=days_ago)


async def test_the_newest_checkpoints_of_a_job_are_read_from_the_newest_partition(week):
    days, plan = await _visited(week, *reader.checkpoint_page("a", CheckpointFilter(), before=None, limit=10))
    assert days == [_day(0)], plan


@pytest.mark.parametrize("wanted", [CheckpointFilter(), CheckpointFilter(run_id="r-a")], ids=["of a job", "of a run"])
async def test_a_first_page_is_not_planned_again_for_each_request_and_needs_no_sort(week, wanted):
    async with week.connect() as connection:
        for number in range(12):
            found = await reader.list_checkpoints(connection, "a", wanted, before=None, limit=10)
            assert len(found) == 10, number
        query = text(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '%FROM checkpoints%'"
        )
        ((generic, custom),) = (await connection.execute(query)).all()
    # PostgreSQL plans the first five executions for their values, and then compares the costs of these plans.
    assert (generic, custom) == (7, 5)
    days, plan = await _visited(week, *reader.checkpoint_page("a", wanted, before=None, limit=10))
    assert days == [_day(0)], plan
    assert "Sort" not in str(plan), plan


async def test_a_later_page_of_a_job_begins_at_the_partition_of_its_cursor(week):
    before = (NOW - timedelta(days=3), 10_000, "r-a")
    days, plan = await _visited(week, *reader.checkpoint_page("a", CheckpointFilter(), before=before, limit=10))
    assert days == [_day(3)], plan


async def test_a_range_of_time_is_read_from_its_partitions(week):
    wanted = CheckpointFilter(since=NOW - timedelta(days=4), until=NOW - timedelta(days=3))
    days, plan = await _visited(week, *reader.checkpoint_page("a", wanted, before=None, limit=500))
    assert days == [_day(3), _day(4)], plan


@pytest.mark.parametrize(
    ("status", "index"), [(CheckpointStatus.FAILED, "failed"), (CheckpointStatus.IN_PROGRESS, "open")]
)
async def test_open_and_failed_checkpoints_are_read_from_their_partial_index(week, status, index):
    wanted = CheckpointFilter(status=status)
    _, plan = await _visited(week, *reader.checkpoint_page("a", wanted, before=None, limit=1))
    used = {s["Index Name"] for s in _scans(plan) if s["Actual Loops"] > 0}
    # The name of a partition's index shows only the columns, so the indexes with the condition are looked up in the
    # catalogue.
    async with week.connect() as connection:
        query = text(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = CAST(:parent AS regclass)"
        )
        partial = set((await connection.execute(query, {"parent": f"ix_checkpoints_{index}"})).scalars())
    assert used <= partial, (used, partial)


async def test_the_neighbours_of_a_checkpoint_are_read_from_its_partition(week):
    values = {"run": "r-a", "at": NOW - timedelta(days=3), "day": _day(3), "id": 3 * _A_DAY, "before": 5, "after": 5}
    days, plan = await _visited(week, reader.AROUND, values)
    assert days == [_day(3)], plan


async def test_one_checkpoint_of_a_run_is_searched_from_the_newest_partition_on(week):
    newest = (_DAYS - 1) * _A_DAY
    days, plan = await _visited(week, reader.ONE, {"run": "r-a", "id": newest})
    assert days == [_day(0)], plan


async def test_the_days_of_checkpoints_are_searched_from_the_newest_partition_on(week):
    newest = (_DAYS - 1) * _A_DAY
    days, plan = await _visited(week, writer.STORED_DAYS, {"run": "r-a", "ids": [newest, newest - _A_DAY]})
    assert days == [_day(0), _day(1)], plan


async def test_the_recent_checkpoints_of_each_run_are_read_from_the_newest_partition(week):
    values = {"runs": ["r-a", "r-b"], "limit": 10, "since": _day(8)}
    days, plan = await _visited(week, reader.RECENT_OF_RUNS, values)
    assert days == [_day(0)], plan


async def test_the_last_completed_checkpoint_is_read_from_the_newest_partition(week):
    values = {"job": "a", "at": NOW, "day": _day(0), "faster_than_ms": None}
    assert (await _visited(week, reader.LAST_COMPLETED, values))[0] == [_day(0)]
    assert (await _visited(week, statistics.LAST_COMPLETED, {"jobs": ["a", "b"]}))[0] == [_day(0)]


async def test_the_newest_readings_of_backpressure_are_searched_around_the_last_observation(week):
    days, plan = await _visited(
        week, pressure.NEWEST_READING_AT, pressure.newest_reading_values({"r-a": NOW - timedelta(days=3)})
    )
    assert set(days) <= {_day(2), _day(3), _day(4)}, plan


async def test_the_batches_whose_work_is_not_known_are_looked_for_only_on_their_days(week):
    keys = [("r-a", number, _day(1)) for number in range(3)]
    plans = []

    class Explaining:
        """A cursor that explains its statement as well."""

        def __init__(self, cursor):
            self.cursor = cursor

        async def execute(self, statement, values):
            await self.cursor.execute(b"EXPLAIN (FORMAT JSON) " + statement, values)
            plans.append((await self.cursor.fetchall())[0][0][0]["Plan"])
            await self.cursor.execute(statement, values)

        async def fetchall(self):
            return await self.cursor.fetchall()

    async with week.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        async with raw.cursor() as cursor:
            assert await micro_batches.without_work(Explaining(cursor), keys) == set()
        await connection.rollback()

    (plan,) = plans
    assert {day_of_partition(scan["Relation Name"]) for scan in _scans(plan)} == {_day(1)}, plan
