"""The metrics of jobs, targets and the store, over a real PostgreSQL: values, counters, the lease and secrets."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import text

from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.metrics.registry import register
from backend.services.history_forecast import HistoryForecast
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.evidence import EvidenceReader
from backend.services.jobs.fleet import FleetService
from backend.services.metrics.fleet import FleetMetrics, Sources
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine, reading, writing
from backend.store.schema.partitions import Retention
from tests.support.alerting import Alerting
from tests.support.observations import NOW, SINK, SOURCE, detail, header, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

NEVER = "postgresql://nobody@127.0.0.1:1/nothing"


class Exporter:
    """The metrics of one alert role."""

    def __init__(self, engine, clock, *, holder="one", **more):
        self.alerting = Alerting(engine, clock, holder=holder)
        self.clock = clock
        jobs = AnalysedJobs(clock, EvidenceReader(clock))
        history = HistoryForecast(engine, clock, Retention())
        sources = Sources(jobs, FleetService(engine, clock, jobs), history, lambda: self.alerting.evaluator.signals)
        self.metrics = FleetMetrics(engine, clock, sources, lambda: self.alerting.runner.is_leading, **more)
        self.registry = CollectorRegistry(auto_describe=False)
        register(self.metrics.collect, self.registry)

    async def scrape(self, *, seconds=10.0):
        """Let time pass, evaluate the rules, and return the value of each series by its name and labels."""
        await self.alerting.round(seconds=seconds)
        await self.metrics.renew()
        lines = generate_latest(self.registry).decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[:1] != "#"}


def made(number, reason=None, *, is_open=False, at=None, path=None):
    status = (
        CheckpointStatus.IN_PROGRESS if is_open else CheckpointStatus.FAILED if reason else CheckpointStatus.COMPLETED
    )
    at = at or NOW - timedelta(minutes=10) + timedelta(seconds=10 * number)
    built = header(number, status, triggered_at=at, acknowledged_count=2 if is_open else None)
    built = replace(built, failure_reason=reason, external_path=path)
    return Checkpoint(built, () if is_open else tuple(detail(v, number) for v in (SOURCE, SINK)))


@pytest.fixture
def poll(engine, clock, target):
    """Return a function that writes what one poll of the target read: the checkpoints of each job by its name."""

    async def write(**jobs):
        seen = [
            replace(job(listed, name=name, run=f"{i:032x}"), started_at=NOW - timedelta(hours=1))
            for i, (name, listed) in enumerate(jobs.items(), start=1)
        ]
        await IngestWriter(engine, clock=clock).write(observation(target, *seen, at=clock.at))

    return write


def of(found, name, **labels):
    """Return the only value of a metric whose series has these labels."""
    wanted = {f'{k}="{v}"' for k, v in labels.items()}
    (value,) = [v for k, v in found.items() if re.match(rf"{name}(\{{|$)", k) and wanted <= set(_labels(k))]
    return value


def _labels(series):
    return re.findall(r'\w+="[^"]*"', series)


async def test_the_values_are_those_of_the_board_and_the_ids_are_flinks(engine, clock, poll):
    exporter = Exporter(engine, clock)
    await poll(orders=[made(n, path=f"s3://bucket/chk-{n}") for n in range(1, 21)])
    await exporter.scrape()
    found = await exporter.scrape()

    _, (row,) = await exporter.metrics._sources.fleet.board()
    assert of(found, "barrierscope_jobs") == 1
    assert of(found, "barrierscope_job_info", job_name="orders", flink_job_id=f"{1:032x}", engine="flink") == 1
    assert of(found, "barrierscope_job_health", health=row.health.value) == 1
    assert of(found, "barrierscope_job_verdict", verdict=row.verdict.kind.value) == 1
    assert of(found, "barrierscope_checkpoint_duration_seconds", statistic="p50") == row.duration_p50_ms / 1000
    assert of(found, "barrierscope_checkpoint_duration_seconds", statistic="last") == 0.32
    assert of(found, "barrierscope_job_external_path_info", external_path="s3://bucket/chk-20") == 1
    assert of(found, "barrierscope_job_last_completed_checkpoint_timestamp_seconds") == pytest.approx(
        row.last_completed_at.timestamp()
    )
    assert of(found, "barrierscope_target_up", target="flink") == 1
    assert of(found, "barrierscope_store_size_bytes") > 0


async def test_until_there_are_two_hours_of_data_the_length_of_the_history_is_unknown_and_not_zero(engine, clock, poll):
    exporter = Exporter(engine, clock)
    await poll(orders=[made(1)])
    early = await exporter.scrape(seconds=119 * 60)
    async with asking(api_over(engine, clock)) as client:
        status = (await client.get("/api/v1/status")).json()["history"]
    late = await exporter.scrape(seconds=2 * 60)

    assert "barrierscope_store_held_seconds" not in early
    assert of(early, "barrierscope_store_promised_seconds") == 7 * 86_400
    assert (status["held_days"], status["held_whole_days"], status["needed_bytes"]) == (None, None, None)
    assert status["is_short"] is False
    assert of(late, "barrierscope_store_held_seconds") == 7 * 86_400


async def test_each_checkpoint_that_ends_while_the_process_counts_counts_once(engine, clock, poll):
    exporter = Exporter(engine, clock)
    before = [made(n) for n in range(1, 6)]
    await poll(orders=before)
    found = await exporter.scrape()
    assert of(found, "barrierscope_checkpoints_completed_total") == 0

    await poll(orders=[*before, made(6), made(7, FailureReason.EXPIRED), made(8, is_open=True)])
    found = await exporter.scrape()
    assert of(found, "barrierscope_checkpoints_completed_total") == 1
    assert of(found, "barrierscope_checkpoints_failed_total", reason="expired") == 1

    await poll(orders=[*before, made(6), made(7, FailureReason.EXPIRED), made(8)])
    async with writing(engine) as connection:
        await connection.execute(text("UPDATE checkpoints SET observed_at = observed_at WHERE checkpoint_id IN (6, 7)"))
    found = await exporter.scrape()
    assert of(found, "barrierscope_checkpoints_completed_total") == 2
    assert of(found, "barrierscope_checkpoints_failed_total", reason="expired") == 1


async def test_a_checkpoint_whose_transaction_is_open_during_a_scrape_counts_at_the_next_one(engine, clock, poll):
    exporter = Exporter(engine, clock)
    await poll(orders=[made(1)])
    await exporter.scrape()
    async with writing(engine) as connection:
        await connection.execute(
            text(
                "INSERT INTO checkpoints (run_id, checkpoint_id, triggered_on, job_id, kind, status, triggered_at,"
                " subtask_count, acknowledged_count, observed_at) SELECT run_id, 2, triggered_on, job_id, kind, status,"
                " triggered_at, subtask_count, acknowledged_count, observed_at FROM checkpoints"
            )
        )
        await exporter.scrape()
    found = await exporter.scrape()

    assert of(found, "barrierscope_checkpoints_completed_total") == 1


async def test_the_age_and_the_prediction_of_the_running_checkpoint_are_exported(engine, clock, poll):
    exporter = Exporter(engine, clock)
    past = [made(n) for n in range(1, 21)]
    clock.at = NOW
    await poll(orders=[*past, made(21, is_open=True, at=clock.at - timedelta(seconds=2))])
    await exporter.scrape(seconds=0.5)
    found = await exporter.scrape(seconds=6)

    assert of(found, "barrierscope_job_in_progress_age_seconds") == pytest.approx(2.0)
    assert 0 <= of(found, "barrierscope_job_timeout_probability_ratio") <= 1
    assert of(found, "barrierscope_job_predicted_finish_timestamp_seconds") >= (NOW - timedelta(seconds=2)).timestamp()


async def test_only_the_process_that_evaluates_the_rules_exports_the_jobs(engine, clock, poll):
    await poll(orders=[made(1)])
    one, two = Exporter(engine, clock), Exporter(engine, clock, holder="two")
    assert of(await one.scrape(), "barrierscope_jobs") == 1
    assert await two.scrape() == {"barrierscope_exporter_active": 0.0}

    clock.at += timedelta(hours=1)
    async with writing(engine) as connection:
        await connection.execute(text("UPDATE alert_evaluator SET expires_at = now() - interval '1 s'"))
    assert of(await two.scrape(), "barrierscope_jobs") == 1
    assert await one.scrape() == {"barrierscope_exporter_active": 0.0}


async def test_beyond_the_limit_the_most_urgent_jobs_are_exported_and_the_others_counted(engine, clock, poll):
    failing = [made(n, FailureReason.EXPIRED) for n in range(1, 8)]
    await poll(**{f"job-{n}": [made(m) for m in range(1, 8)] for n in range(4)}, urgent=failing)
    exporter = Exporter(engine, clock, jobs_max=2)
    await exporter.scrape()
    found = await exporter.scrape()

    assert of(found, "barrierscope_jobs") == 2
    assert of(found, "barrierscope_jobs_left_out", reason="limit") == 3
    assert of(found, "barrierscope_job_health", job_name="urgent", health="failing") == 1


async def test_while_the_store_does_not_answer_the_jobs_have_no_values(engine, clock, poll):
    await poll(orders=[made(1)])
    exporter = Exporter(engine, clock)
    assert of(await exporter.scrape(), "barrierscope_store_up") == 1
    down = create_store_engine(NEVER, connect_timeout_s=1)
    exporter.metrics._sources.fleet._engine = exporter.metrics._engine = down
    exporter.metrics._sources.fleet._board = None
    clock.at += timedelta(seconds=60)
    await exporter.metrics.renew()
    await down.dispose()

    text_ = generate_latest(exporter.registry).decode()
    assert "barrierscope_store_up 0.0" in text_
    assert "job_name" not in text_


async def test_a_scrape_does_not_wait_for_slow_values_and_a_later_one_has_them(engine, clock, poll):
    await poll(orders=[made(1)])
    exporter = Exporter(engine, clock, wait_max_s=0.01)
    await exporter.alerting.round()
    read, released = exporter.metrics._read, asyncio.Event()

    async def slow():
        await released.wait()
        return await read()

    exporter.metrics._read = slow
    async with asyncio.TaskGroup() as group:
        running = group.create_task(exporter.metrics.run())
        await exporter.metrics.refresh()
        assert "job_name" not in generate_latest(exporter.registry).decode()
        released.set()
        while "job_name" not in generate_latest(exporter.registry).decode():
            await exporter.metrics.refresh()
        clock.at += timedelta(seconds=121)
        assert "job_name" not in generate_latest(exporter.registry).decode()
        running.cancel()


async def test_no_secret_reaches_the_metrics(engine, clock, poll):
    canary = "hunter2canary"
    await poll(orders=[made(1, path=f"s3://key:{canary}@bucket/chk-1"), made(2, path=f"abfs://{canary}@host/x")])
    async with writing(engine) as connection:
        for statement in (
            "UPDATE targets SET url = 'http://user:hunter2canary@flink:8081',"
            ' labels = \'{"password": "hunter2canary"}\'',
            "INSERT INTO receivers (id, kind, name, url, origin, credential, added_at) VALUES"
            " ('r1', 'webhook', 'pager', 'http://x/hunter2canary', 'api', 'env:hunter2canary', now())",
        ):
            await connection.execute(text(statement))
    exporter = Exporter(engine, clock)
    await exporter.scrape()
    await exporter.scrape()

    exposed = generate_latest(exporter.registry).decode()
    assert 'external_path="abfs://host/x"' in exposed
    assert canary not in exposed


async def test_a_scrape_of_a_large_history_reads_only_the_newest_rows(engine, clock, poll):
    await poll(orders=[made(1)])
    async with writing(engine) as connection:
        await connection.execute(
            text(
                "INSERT INTO checkpoints (run_id, checkpoint_id, triggered_on, job_id, kind, status, triggered_at,"
                " subtask_count, acknowledged_count, observed_at) SELECT run_id, n, triggered_on, job_id, kind, status,"
                " triggered_at, 2, 2, observed_at FROM checkpoints, generate_series(100, 60000) n"
            )
        )
    async with engine.connect() as connection:
        await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(
            text("VACUUM ANALYZE checkpoints")
        )
    async with reading(engine) as connection:
        xid = (
            await connection.execute(text("SELECT (pg_snapshot_xmin(pg_current_snapshot())::text)::bigint"))
        ).scalar_one()
        plan = (
            (
                await connection.execute(
                    text(
                        "EXPLAIN (ANALYZE, FORMAT TEXT) SELECT job_id FROM checkpoints WHERE triggered_on >= :day"
                        " AND changed_xid >= :xid AND kind = 'checkpoint' AND status <> 'in-progress'"
                    ),
                    {"day": (NOW - timedelta(days=1)).date(), "xid": xid},
                )
            )
            .scalars()
            .all()
        )

    assert any("changed_xid" in line and "Bitmap Index Scan" in line for line in plan), plan
    assert not any("Seq Scan" in line and "checkpoints_2" in line for line in plan), plan
