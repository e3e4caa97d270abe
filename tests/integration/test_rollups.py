"""Rollups by Spark equal PostgreSQL's results for the same rows, even after reruns, late rows, retries and stops."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from backend.analysis.numbers import log_buckets
from backend.domain.errors import HostError, PipelineFailedError, StoreUnavailableError
from backend.domain.failure import FailureReason
from backend.domain.rollup import HOUR, Measure, hour_of
from backend.pipeline.cluster import Cluster
from backend.pipeline.jobs.rollups import HourRange, RollupRun, stage
from backend.pipeline.session import database_options, translated
from backend.pipeline.transforms import bucket_of
from backend.store.pipeline import run_log as run_log_module
from backend.store.pipeline.run_log import open_run_log
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.rollups.reader import cover, hours_of, totals_of
from tests.support.databases import Databases
from tests.support.many_checkpoints import fill, insert, row
from tests.support.observations import SteppingClock
from tests.support.recorded_spark import FAILING, push, recorded
from tests.support.recorded_spark import NOW as RECORDED_BY
from tests.support.serving import api_over, asking

SEED = 20261121
FIRST = datetime(2026, 11, 20, 3, 17, tzinfo=UTC)
NOW = datetime(2026, 11, 21, 2, 40, tzinfo=UTC)
_TABLES = ("rollups", "rollup_measures", "rollup_hours")


class _NoSparkError(Exception):
    pass


def _no_spark():
    raise _NoSparkError


@pytest.fixture(scope="module")
def filled(databases: Databases):
    """Yield a database with about one day of random checkpoints. The tests only copy it."""
    with databases.migrated() as url:
        fill(url, SEED, FIRST, NOW, count=1500)
        yield url


@pytest.fixture
def fresh(filled, databases: Databases):
    """Yield a writable copy of the database, without rollups."""
    with databases.copy_of(filled) as copied:
        yield copied


@pytest.fixture(scope="module")
def rolled_up(filled, databases: Databases, spark_session):
    """Yield a copy of the database with its rollups. The tests only read or copy it."""
    with databases.copy_of(filled) as copied:
        _run(copied, spark_session).do()
        yield copied


@pytest.fixture
def url(rolled_up, databases: Databases):
    """Yield a writable copy of the database, with rollups."""
    with databases.copy_of(rolled_up) as copied:
        yield copied


def _run(url, spark, **hooks):
    return RollupRun(url, _no_spark, SteppingClock(NOW), started=spark, **hooks)


def _rows(url, query, *values):
    with psycopg.connect(url) as connection:
        connection.execute("SET timezone = 'UTC'")
        return connection.execute(query, values).fetchall()


def _contents(url):
    return {table: _rows(url, f"SELECT t::text FROM {table} t ORDER BY 1") for table in _TABLES}


def _exact_counts(url, until=NOW):
    return _rows(
        url,
        "SELECT job_id, date_trunc('hour', triggered_at, 'UTC') AS hour, count(*),"
        " count(*) FILTER (WHERE status = 'completed'), count(*) FILTER (WHERE status = 'failed'),"
        " max(triggered_at + LEAST(end_to_end_duration_ms, 1000000000000) * interval '1 ms')"
        " FILTER (WHERE status = 'completed' AND end_to_end_duration_ms IS NOT NULL),"
        " max(triggered_at) FILTER (WHERE status = 'completed')"
        " FROM checkpoints WHERE kind = 'checkpoint' AND triggered_at < %s GROUP BY 1, 2 ORDER BY 1, 2",
        hour_of(until),
    )


def _exact_measures(url, measure, until=NOW):
    expired = "status = 'failed' AND failure_reason = 'expired'"
    counted = "status = 'completed'" + (f" OR {expired}" if measure.is_censored else "")
    limit = f"min({measure}) FILTER (WHERE {expired})" if measure.is_censored else "NULL::int8"
    return _rows(
        url,
        f"SELECT job_id, date_trunc('hour', triggered_at, 'UTC') AS hour, count({measure}), min({measure}),"
        f" max({measure}), sum({measure}),"
        f" percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY {measure}), {limit}, array_agg({measure}),"
        f" array_agg({measure}) FILTER (WHERE status = 'completed')"
        f" FROM checkpoints WHERE kind = 'checkpoint' AND ({counted}) AND triggered_at < %s"
        f" GROUP BY 1, 2 HAVING count({measure}) > 0 ORDER BY 1, 2",
        hour_of(until),
    )


def test_buckets_in_spark_equal_the_definition(spark_session):
    edges = [bound + step for bound in log_buckets.BOUNDS[:-1] for step in (0, 1)]
    values = [-5, 0, 2**63 - 1, 2**62, *edges]

    rows = spark_session.createDataFrame([(v,) for v in values], "v bigint")

    got = rows.select("v", bucket_of(rows["v"]).alias("bucket")).collect()
    assert [(r["v"], r["bucket"]) for r in got] == [(v, log_buckets.bucket_of(v)) for v in values]


def _assert_exact(url, until=NOW):
    """Check every rollup against PostgreSQL's result, and return, for each measure, the number of hours with values."""
    counts = _rows(
        url,
        "SELECT job_id, hour, triggered_count, completed_count, failed_count, last_completed_at,"
        " restorable_at FROM rollups"
        " ORDER BY 1, 2",
    )
    assert counts == _exact_counts(url, until) != [], f"seed {SEED}"
    reasons = _rows(
        url,
        "SELECT job_id, date_trunc('hour', triggered_at, 'UTC'), coalesce(failure_reason, 'unknown'), count(*)"
        " FROM checkpoints WHERE kind = 'checkpoint' AND status = 'failed' AND triggered_at < %s"
        " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        hour_of(until),
    )
    kept = (
        "SELECT job_id, hour, r.key, r.value::int8 FROM rollups, jsonb_each_text(failed_by_reason) r ORDER BY 1, 2, 3"
    )
    assert _rows(url, kept) == reasons != [], f"seed {SEED}"
    hours = {}
    for measure in Measure:
        kept = _rows(
            url,
            "SELECT job_id, hour, present_count, minimum, maximum, total, ARRAY[p50, p95, p99], expired_min,"
            " bucket_index, bucket_count, exact_max FROM rollup_measures WHERE measure = %s ORDER BY 1, 2",
            measure.value,
        )
        exact = _exact_measures(url, measure, until)
        # The values must be equal to the last bit, including the quantiles.
        assert [k[:8] for k in kept] == [e[:8] for e in exact], f"{measure}, seed {SEED}"
        below = [[v for v in e[9] or () if v is not None and e[7] is not None and v < e[7]] for e in exact]
        assert [k[10] for k in kept] == [max(values, default=None) for values in below], f"{measure}, seed {SEED}"
        buckets = [log_buckets.count(v for v in e[8] if v is not None) for e in exact]
        assert [dict(zip(k[8], k[9], strict=True)) for k in kept] == buckets, f"{measure}, seed {SEED}"
        hours[measure] = len(kept)
    return hours


def test_every_rollup_equals_the_result_of_postgres(rolled_up):
    hours = _assert_exact(rolled_up)

    assert _rows(rolled_up, "SELECT count(*) > 45 FROM rollups") == [(True,)]
    assert all(number > (5 if measure is Measure.PROCESSED else 45) for measure, number in hours.items())


def test_rollups_of_micro_batches_equal_postgres_and_have_no_measure_that_spark_lacks(databases, spark_session):
    with databases.migrated() as url:
        asyncio.run(_push(url, ["b_windowed_hdfs", "d_behind_rate_micro_batch", "a_stateless_rate", FAILING]))
        done = RollupRun(url, _no_spark, SteppingClock(RECORDED_BY), started=spark_session).do()
        hours = _assert_exact(url, RECORDED_BY)

    assert done.hours_done >= 1
    assert {m for m, number in hours.items() if number} == {Measure.DURATION, Measure.FULL_STATE_SIZE}


async def _push(url, names):
    engine = create_store_engine(url)
    try:
        async with asking(api_over(engine, SteppingClock(RECORDED_BY))) as client:
            for name in names:
                body = push(recorded(name), deployment=name)
                assert (await client.post("/api/v1/ingest/spark", json=body)).status_code == 200
    finally:
        await engine.dispose()


def test_a_small_run_in_postgres_gives_the_same_bytes_as_spark(fresh, rolled_up):
    done = RollupRun(fresh, _no_spark, SteppingClock(NOW), batch_hours=5).do()

    assert done.hours_done > 20
    assert _contents(fresh)["rollups"] == _contents(rolled_up)["rollups"], f"seed {SEED}"
    assert _contents(fresh)["rollup_measures"] == _contents(rolled_up)["rollup_measures"], f"seed {SEED}"
    assert _rows(fresh, "SELECT count(*) FROM rollup_staging") == [(0,)]
    _assert_exact(fresh)


def test_a_run_needs_spark_only_if_it_has_more_checkpoints_than_a_small_one(fresh):
    before = _contents(fresh)
    ((count,),) = _rows(
        fresh, "SELECT count(*) FROM checkpoints WHERE kind = 'checkpoint' AND triggered_at < %s", hour_of(NOW)
    )

    with pytest.raises(_NoSparkError):
        RollupRun(fresh, _no_spark, SteppingClock(NOW), small_max=count - 1).do()
    assert _contents(fresh) == before
    assert RollupRun(fresh, _no_spark, SteppingClock(NOW), small_max=count).do().hours_done > 20


def test_if_spark_is_missing_postgres_does_a_large_run_too(fresh, rolled_up):
    assert RollupRun(fresh, lambda: None, SteppingClock(NOW), small_max=1).do().hours_done > 20

    assert _contents(fresh)["rollup_measures"] == _contents(rolled_up)["rollup_measures"]


def test_a_second_run_changes_nothing_and_starts_no_spark(rolled_up):
    before = _contents(rolled_up)

    again = RollupRun(rolled_up, _no_spark, SteppingClock(NOW)).do()

    assert (again.hours_total, again.hours_done) == (0, 0)
    assert _contents(rolled_up) == before
    assert len(before["rollup_hours"]) > 20


def test_rolling_up_unchanged_hours_again_gives_the_same_bytes(url, spark_session):
    before = _contents(url)

    done = _run(url, spark_session).do(HourRange(FIRST, NOW - 16 * HOUR))

    assert done.hours_done == done.hours_total > 5
    after = _contents(url)
    assert {t: after[t] for t in _TABLES[:2]} == {t: before[t] for t in _TABLES[:2]}


def test_only_the_hours_with_a_late_row_or_a_late_end_are_rolled_up_again(url, spark_session):
    late = NOW - 9 * HOUR
    insert(url, [row("j0", 90_001, late, end_to_end_duration_ms=77)])
    with psycopg.connect(url) as connection:
        (ended_at,) = connection.execute(
            "UPDATE checkpoints SET status = 'failed' WHERE (run_id, checkpoint_id) ="
            " (SELECT run_id, checkpoint_id FROM checkpoints WHERE status = 'in-progress' AND kind = 'checkpoint'"
            " AND triggered_at < %s LIMIT 1) RETURNING triggered_at",
            [NOW - 12 * HOUR],
        ).fetchone()
    untouched = "SELECT xmin::text, job_id, hour FROM rollups WHERE hour NOT IN (%s, %s) ORDER BY 2, 3"
    hours = (hour_of(late), hour_of(ended_at))
    before = _rows(url, untouched, *hours)

    done = _run(url, spark_session).do()

    assert done.hours_done == 2
    assert _rows(url, untouched, *hours) == before
    assert [c[:5] for c in _exact_counts(url)] == _rows(
        url, "SELECT job_id, hour, triggered_count, completed_count, failed_count FROM rollups ORDER BY 1, 2"
    )


def test_rows_committed_after_a_run_has_read_are_rolled_up_by_the_next_run(url, spark_session):
    run = _run(url, spark_session)
    late = NOW - 9 * HOUR
    insert(url, [row("j0", 90_002, late, "in-progress")])
    with psycopg.connect(url) as slow:
        slow.execute("UPDATE checkpoints SET status = 'completed' WHERE checkpoint_id = 90002")
        run.do()
        slow.commit()

    assert run.do().hours_done >= 1
    assert [c[:5] for c in _exact_counts(url)] == _rows(
        url, "SELECT job_id, hour, triggered_count, completed_count, failed_count FROM rollups ORDER BY 1, 2"
    )


def test_a_run_stopped_at_any_step_loses_and_duplicates_nothing(fresh, rolled_up, spark_session):
    url = fresh
    for step in ("before reading", "between staging and moving", "after moving"):

        def stop(at, wanted=step):
            if at == wanted:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            _run(url, spark_session, at=stop).do(HourRange(FIRST, FIRST + 4 * HOUR))
        (state,) = _rows(url, "SELECT state, reason FROM pipeline_runs ORDER BY started_at DESC, id LIMIT 1")
        assert state == ("interrupted", "it was stopped")

    _run(url, spark_session).do()

    assert _contents(url)["rollups"] == _contents(rolled_up)["rollups"]
    assert _contents(url)["rollup_measures"] == _contents(rolled_up)["rollup_measures"]
    assert _rows(url, "SELECT count(*) FROM rollup_staging") == [(0,)]


def test_a_dropped_day_keeps_its_rollups(url, spark_session):
    before = _rows(url, "SELECT t::text FROM rollups t WHERE hour < '2026-11-21' ORDER BY 1")

    def drop(at):
        if at == "before reading":
            with psycopg.connect(url) as connection:
                connection.execute("DROP TABLE checkpoints_p20261120")

    done = _run(url, spark_session, at=drop).do(HourRange(NOW - 6 * HOUR, NOW))

    assert 0 < done.hours_done < done.hours_total
    assert _rows(url, "SELECT t::text FROM rollups t WHERE hour < '2026-11-21' ORDER BY 1") == before != []


def test_a_server_that_stops_to_respond_is_reported_and_ends_the_run(fresh, monkeypatch):
    monkeypatch.setattr(run_log_module, "_ANSWER_TIMEOUT_S", 0.05)
    with psycopg.connect(fresh) as holder:
        holder.execute("LOCK TABLE pipeline_runs")

        with pytest.raises(StoreUnavailableError, match=r"the server did not respond within 0\.05 s"):
            RollupRun(fresh, _no_spark, SteppingClock(NOW)).do()


def test_a_second_run_at_the_same_time_is_refused(url):
    with open_run_log(url) as run_log:
        run_log.claim()

        with pytest.raises(HostError, match="another run is writing the rollups"):
            RollupRun(url, _no_spark, SteppingClock(NOW)).do()


def test_a_task_that_fails_after_its_commit_and_is_retried_duplicates_nothing(
    fresh, rolled_up, spark_session, tmp_path
):
    from backend.pipeline import source

    marker = str(tmp_path / "failed once")

    def attempt(writer, iterator):
        written = source.StagingWriter.write(writer, iterator)
        if written.row_count and not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("the worker was lost after its commit")
        return written

    # The class is defined inside the test, so that cloudpickle sends it to the workers by value.
    class Failing(source.StagingWriter):
        write = attempt

    class FailingSink(source.StagingSink):
        def writer(self, schema, overwrite):
            return Failing(self.options)

    spark_session.dataSource.register(FailingSink)
    try:
        _run(fresh, spark_session).do()
    finally:
        spark_session.dataSource.register(source.StagingSink)

    assert os.path.exists(marker)
    assert _contents(fresh)["rollups"] == _contents(rolled_up)["rollups"]
    assert _contents(fresh)["rollup_measures"] == _contents(rolled_up)["rollup_measures"]


def test_the_password_is_in_no_query_plan_and_no_error(url, spark_session, capfd):
    secret = "correct-horse-battery"
    wrong = f"postgresql://nobody:{secret}@127.0.0.1:1/nothing"
    with database_options(wrong, Cluster()) as options:
        with pytest.raises(PipelineFailedError) as error, translated():
            stage(spark_session, options, "0" * 32, [hour_of(NOW)], tasks=2)
        source = spark_session.read.format("barrierscope_checkpoints").options(**options)
        source.option("hours", "[0]").load().explain(extended=True)

    assert error.value.reason.startswith("the store does not answer Spark: ")
    out, err = capfd.readouterr()
    assert "barrierscope_checkpoints" in out
    assert secret not in out + err + str(error.value)


# --- reading of rollups -------------------------------------------------------------------------------------------


def _read(url, since, until, jobs=("j0", "j1", "j2", "none")):
    async def read():
        engine = create_store_engine(url)
        try:
            async with reading(engine) as connection:
                covered = await cover(connection, since, until)
                totals = await totals_of(connection, jobs, since, until)
                hours = {job: await hours_of(connection, job, since, until, limit=500) for job in jobs}
                return covered, totals, hours
        finally:
            await engine.dispose()

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("since", "until"),
    [
        (FIRST - HOUR, NOW + HOUR),
        (NOW - 24 * HOUR, NOW),
        (hour_of(NOW) - 3 * HOUR, hour_of(NOW)),
        (NOW - timedelta(minutes=5), NOW),
        (NOW - 30 * HOUR + timedelta(microseconds=1), NOW - 29 * HOUR),
        (NOW, NOW),
    ],
)
def test_rollups_and_the_newest_hour_give_the_same_values_as_the_checkpoints_alone(rolled_up, filled, since, until):
    covered, totals, hours = _read(rolled_up, since, until)
    nothing, exact_totals, exact_hours = _read(filled, since, until)

    assert nothing.hours == ()
    assert len(covered.hours) == max(0, (min(until, hour_of(NOW)) - _ceiled(since)) // HOUR) - _empty(
        rolled_up, since, until
    )
    assert totals == exact_totals
    for job, found in hours.items():
        assert [_values(h) for h in found] == [_values(h) for h in exact_hours[job]]
        assert all(h.is_rolled_up == (h.hour < hour_of(NOW)) for h in found)
        assert not any(h.is_rolled_up for h in exact_hours[job])


def test_a_job_without_a_completed_checkpoint_or_a_failure_has_no_totals(fresh):
    at = NOW - timedelta(minutes=3)
    expired, superseded = FailureReason.EXPIRED.value, FailureReason.SUBSUMED.value
    insert(
        fresh,
        [
            row("completed", 1, at, end_to_end_duration_ms=7),
            row("failed", 1, at, "failed", failure_reason=expired, end_to_end_duration_ms=8),
            row("both", 1, at, end_to_end_duration_ms=7),
            row("both", 2, at, "failed", failure_reason=expired, end_to_end_duration_ms=8),
            # Neither says anything about the job: a newer checkpoint completed first, and a user took a savepoint.
            row("neither", 1, at, "failed", failure_reason=superseded, end_to_end_duration_ms=9),
            row("neither", 2, at, kind="savepoint", end_to_end_duration_ms=9),
        ],
    )

    _, totals, _ = _read(fresh, NOW - HOUR, NOW, ("completed", "failed", "both", "neither"))

    counts = {job: (found.completed_count, found.failed_count) for job, found in totals.items()}
    assert counts == {"completed": (1, 0), "failed": (0, 1), "both": (1, 1)}


def test_an_hour_with_a_late_row_is_read_from_the_checkpoints(url):
    late = NOW - 9 * HOUR
    insert(url, [row("j0", 90_003, late, end_to_end_duration_ms=12_345)])

    covered, totals, hours = _read(url, NOW - 24 * HOUR, NOW)

    assert hour_of(late) not in covered.hours
    _, exact_totals, _ = _read(url, NOW - 24 * HOUR, NOW)
    assert totals == exact_totals
    (stale,) = [h for h in hours["j0"] if h.hour == hour_of(late)]
    assert not stale.is_rolled_up


def test_a_row_of_the_oldest_transaction_that_ran_during_the_rollup_is_late(url):
    """The horizon is the oldest transaction that had not ended, so a row of this transaction was not seen."""
    late = NOW - 8 * HOUR
    insert(url, [row("j0", 90_004, late, end_to_end_duration_ms=12_345)])
    ((xid,),) = _rows(url, "SELECT changed_xid FROM checkpoints WHERE checkpoint_id = 90004")
    ((mark, horizon),) = _rows(
        url, "SELECT complete_xid, horizon_xid FROM pipeline_schedule, rollup_hours WHERE hour = %s", hour_of(late)
    )

    def set_horizons(all_xid, hour_xid):
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE pipeline_schedule SET complete_xid = %s", (all_xid,))
            connection.execute("UPDATE rollup_hours SET horizon_xid = %s WHERE hour = %s", (hour_xid, hour_of(late)))

    def is_covered(xid):
        set_horizons(xid, xid)
        return hour_of(late) in _read(url, NOW - 24 * HOUR, NOW)[0].hours

    assert (is_covered(xid + 1), is_covered(xid)) == (True, False)
    set_horizons(mark, horizon)


@pytest.mark.slow
def test_on_a_copy_of_the_database_at_another_server_rollups_are_computed_again(url, spark_session):
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE pipeline_schedule SET complete_xid = complete_xid + 1000000000")
        connection.execute("UPDATE rollup_hours SET horizon_xid = horizon_xid + 1000000000")

    assert _read(url, NOW - 24 * HOUR, NOW)[0].hours == ()
    assert _run(url, spark_session).do().hours_done > 20
    assert len(_read(url, NOW - 24 * HOUR, NOW)[0].hours) > 15


def _values(hour):
    return (
        hour.hour,
        hour.triggered_count,
        hour.completed_count,
        hour.failed_count,
        dict(hour.failed_by_reason),
        hour.last_completed_at,
        hour.restorable_at,
        hour.measures,
    )


def _ceiled(instant):
    return hour_of(instant - timedelta(microseconds=1)) + HOUR


def _empty(url, since, until):
    """Return the number of hours in the range in which no checkpoint was triggered."""
    first, last = _ceiled(since), min(until, hour_of(NOW))
    present = {h for (h,) in _rows(url, "SELECT hour FROM rollup_hours WHERE hour >= %s AND hour < %s", first, last)}
    return sum((first + n * HOUR) not in present for n in range(max(0, (last - first) // HOUR)))
