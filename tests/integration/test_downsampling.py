"""Down-sampling removes the arrays of healthy checkpoints, and all rows of runs whose label has a shorter age limit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointStatus
from backend.domain.target import TargetOrigin
from backend.services.checkpoints.reader import CheckpointKey, CheckpointService
from backend.services.jobs.evidence import EvidenceReader
from backend.store import downsampling, rewriting
from backend.store.downsampling import NO_RULE, Removed, remove_from_day
from backend.store.ingest import IngestWriter
from backend.store.retention import apply_retention
from backend.store.schema.partitions import AgeRule, Retention, day_of, list_partitions, size_of_other_tables
from backend.store.schema.tables import PARTITIONED
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support import observations as made
from tests.support.observations import NOW, SINK, SOURCE, completed, detail, header, job, observation

pytestmark = pytest.mark.anyio
_DAY = timedelta(days=1)
_OLD = NOW - 4 * _DAY
_RETENTION = Retention()


def _at(minute):
    return _OLD + timedelta(minutes=minute)


def _checkpoint(number, minute, *, duration_ms=300, status=CheckpointStatus.COMPLETED, kind=CheckpointKind.CHECKPOINT):
    own = replace(header(number, status, triggered_at=_at(minute)), end_to_end_duration_ms=duration_ms, kind=kind)
    return Checkpoint(own, (detail(SOURCE, number), detail(SINK, number)))


async def _write(writer, target, clock, checkpoints, *, pressure=(), name="orders", at=None):
    clock.at = at or _at(120)
    seen = replace(
        job(checkpoints, name=name, run=name),
        started_at=_OLD - _DAY,
        pressure=tuple(made.pressure(SINK, at) for at in pressure),
        barriers=tuple((c.header.checkpoint_id, made.barrier_events(4)) for c in checkpoints),
    )
    await writer.write(observation(target, seen, at=clock.at))
    clock.at = NOW


async def _all(engine, query):
    async with engine.connect() as connection:
        return list((await connection.execute(text(query))).scalars())


async def _ids(engine, table):
    return await _all(engine, f"SELECT DISTINCT checkpoint_id FROM {table} ORDER BY 1")


async def test_arrays_stay_for_what_explains_a_problem_and_for_a_sample_of_each_hour(writer, target, clock, engine):
    checkpoints = [
        *(_checkpoint(n, n) for n in (1, 2, 3, 4)),
        _checkpoint(5, 5, duration_ms=10_000),
        *(_checkpoint(n, n) for n in (6, 7)),
        _checkpoint(8, 8, status=CheckpointStatus.FAILED),
        *(_checkpoint(n, n) for n in (9, 10)),
        _checkpoint(11, 11, kind=CheckpointKind.SAVEPOINT),
        *(_checkpoint(n, n + 60) for n in (12, 13, 14)),
    ]
    await _write(writer, target, clock, checkpoints)

    report = await apply_retention(engine, _RETENTION, NOW)

    assert report.downsampled == (day_of(_OLD),)
    assert await _ids(engine, "checkpoints") == list(range(1, 15))
    # The samples are 1 and 12. The slow checkpoint 5, the failed checkpoint 8 and the savepoint 11 stay, each with
    # the checkpoint before it. Checkpoint 14 is the last one of the day.
    assert await _ids(engine, "checkpoint_details") == [1, 4, 5, 7, 8, 10, 11, 12, 14]
    assert await _ids(engine, "barrier_events") == await _ids(engine, "checkpoint_details")
    service = CheckpointService(engine, clock, EvidenceReader(clock))
    async with engine.connect() as connection:
        job_id, run_id = (await connection.execute(text("SELECT job_id, id FROM runs"))).one()
    shown = {n: await service.detail(CheckpointKey(job_id, run_id, n)) for n in (1, 2)}
    assert {n: found.are_arrays_removed for n, found in shown.items()} == {1: False, 2: True}
    assert shown[2].vertices == []
    assert shown[2].start_delay_max_ms == 32


async def test_readings_stay_around_such_checkpoints_and_every_ten_minutes(writer, target, clock, engine):
    checkpoints = [*(_checkpoint(n, n) for n in range(1, 31)), _checkpoint(31, 33, duration_ms=120_000)]
    await _write(writer, target, clock, checkpoints, pressure=[_at(n) for n in range(60)])

    await apply_retention(engine, _RETENTION, NOW)

    kept = await _all(engine, "SELECT observed_at FROM pressure ORDER BY 1")
    # Readings stay around three checkpoints: 1 is the sample of the hour, 30 precedes the slow checkpoint, and 31 is
    # the slow checkpoint, which lasts from minute 33 to minute 35.
    around = {0, 1, 2} | {29, 30, 31} | {32, 33, 34, 35, 36}
    assert kept == [_at(n) for n in sorted(around | {0, 10, 20, 30, 40, 50})]


async def test_readings_stay_around_a_checkpoint_that_fails_while_its_day_is_rewritten(
    writer, target, clock, engine, monkeypatch
):
    readings = [_at(n) for n in range(40)]
    await _write(writer, target, clock, [_checkpoint(n, n) for n in range(1, 31)], pressure=readings)
    rewritten = []

    async def rewrite(connection, wanted, condition):
        is_done = await rewriting.rewrite(connection, wanted, condition)
        rewritten.append(wanted.table.name)
        if len(rewritten) == 1:
            failed = _checkpoint(31, 35, status=CheckpointStatus.FAILED)
            await _write(writer, target, clock, [failed], at=_at(121))
        return is_done

    monkeypatch.setattr(downsampling, "rewrite", rewrite)
    await apply_retention(engine, _RETENTION, NOW)

    assert "pressure" in rewritten[1:]
    kept = await _all(engine, "SELECT observed_at FROM pressure ORDER BY 1")
    assert {_at(34), _at(35), _at(36)} <= set(kept)
    assert _at(25) not in kept


async def test_a_rewritten_day_is_complete_takes_late_rows_and_is_not_rewritten_again(writer, target, clock, engine):
    await _write(writer, target, clock, [_checkpoint(n, n) for n in range(1, 9)], pressure=[_at(1)])
    whole = await _all(engine, "SELECT to_jsonb(d)::text FROM checkpoint_details d WHERE checkpoint_id IN (1, 8)")
    await apply_retention(engine, _RETENTION, NOW)

    assert sorted(await _all(engine, "SELECT to_jsonb(d)::text FROM checkpoint_details d")) == sorted(whole)
    indexes = "SELECT count(*) FROM pg_index WHERE indrelid = '{}'::regclass"
    for table in PARTITIONED:
        own = await _all(engine, indexes.format(table))
        assert await _all(engine, indexes.format(f"{table}_p{_OLD:%Y%m%d}")) == own, table
    await _write(writer, target, clock, [_checkpoint(20, 20)], pressure=[_at(20)])
    assert await _ids(engine, "checkpoint_details") == [1, 8, 20]
    oids = "SELECT c.oid FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid ORDER BY c.relname"
    before = await _all(engine, oids)

    assert (await apply_retention(engine, _RETENTION, NOW)).downsampled == ()
    assert await _all(engine, oids) == before
    old = [p for p in await list_partitions(engine) if p.day == day_of(_OLD)]
    assert {Removed.parse(p.removed) for p in old} == {Removed(arrays=True)}


async def test_over_the_size_limit_arrays_go_first_and_a_day_goes_only_if_that_is_not_enough(
    writer, target, clock, engine
):
    await _write(writer, target, clock, [_checkpoint(n, n) for n in range(1, 60)])
    whole = Retention(arrays_max_age=6 * _DAY)
    assert (await apply_retention(engine, whole, NOW)).downsampled == ()
    size = sum(p.size_bytes for p in await list_partitions(engine))
    others = await size_of_other_tables(engine)

    report = await apply_retention(engine, replace(whole, max_size_bytes=others + size - 8192), NOW)

    assert (report.days, report.downsampled) == ((), (day_of(_OLD),))
    assert len(await _ids(engine, "checkpoints")) == 59
    report = await apply_retention(engine, replace(whole, max_size_bytes=1), NOW)
    assert report.days == (day_of(_OLD),)


async def test_while_the_size_limit_falls_all_healthy_arrays_go_before_any_failure_or_header(
    writer, target, clock, engine
):
    per_day, days, failed_at = 150, 3, 10
    for day in range(days):
        numbers = [(day * 1000 + n, day * 1440 + n) for n in range(per_day)]
        checkpoints = [_checkpoint(*n) for n in numbers]
        checkpoints[failed_at] = _checkpoint(*numbers[failed_at], status=CheckpointStatus.FAILED)
        await _write(writer, target, clock, checkpoints, at=_OLD + (day + 0.5) * _DAY)
    retention, states = Retention(arrays_max_age=6 * _DAY), []
    # The first pass creates the partitions of the next days.
    await apply_retention(engine, retention, NOW)

    while await _ids(engine, "checkpoints"):
        size = sum(p.size_bytes for p in await list_partitions(engine)) + await size_of_other_tables(engine)
        assert (await apply_retention(engine, replace(retention, max_size_bytes=size - 1), NOW)).is_blocked is False
        headers, arrays = await _ids(engine, "checkpoints"), await _ids(engine, "checkpoint_details")
        kept = [day for day in range(days) if day * 1000 in headers]
        whole = [day for day in range(days) if day * 1000 + 3 in arrays]
        states.append((kept, whole))
        assert len(headers) == per_day * len(kept)
        assert {day * 1000 + failed_at for day in kept} <= set(arrays)

    every = [0, 1, 2]
    assert states == [(every, [1, 2]), (every, [2]), (every, []), ([1, 2], []), ([2], []), ([], [])]


async def test_each_label_has_its_own_age_limit(engine, clock):
    dev, prod = AgeRule("environment", "dev", 2 * _DAY), AgeRule("environment", "prod", 30 * _DAY)
    retention = Retention(max_age=3 * _DAY, arrays_max_age=60 * _DAY, rules=(dev, prod))
    writer = IngestWriter(engine, retention=Retention(rules=(AgeRule("x", "y", 30 * _DAY),)), clock=clock)
    targets = TargetRepository(engine)
    for number, labels in enumerate(({"environment": "dev"}, {"environment": "prod"}, {"team": "prod"})):
        new = NewTarget(f"http://flink-{number}:8081", "flink", TargetOrigin.API, labels=labels)
        added = await targets.add(new, at=NOW)
        await _write(writer, added.id, clock, [_checkpoint(number, number)], pressure=[_at(1)], name=f"job-{number}")

    await apply_retention(engine, retention, NOW)

    for table in ("checkpoints", "checkpoint_details", "barrier_events"):
        assert await _ids(engine, table) == [1], table
    assert len(await _all(engine, "SELECT run_id FROM pressure")) == 1
    old = [p for p in await list_partitions(engine) if p.day == day_of(_OLD)]
    assert {Removed.parse(p.removed) for p in old} == {Removed(expired=frozenset({str(dev), NO_RULE}))}
    assert (await apply_retention(engine, retention, NOW)).downsampled == ()


async def test_ingest_refuses_what_the_label_of_the_target_does_not_keep(engine, clock):
    retention = Retention(rules=(AgeRule("environment", "dev", 2 * _DAY), AgeRule("environment", "prod", 30 * _DAY)))
    writer = IngestWriter(engine, retention=retention, clock=clock)
    counts = {}
    for number, environment in enumerate(("dev", "prod", "test")):
        new = NewTarget(f"http://flink-{number}:8081", "f", TargetOrigin.API, labels={"environment": environment})
        added = await TargetRepository(engine).add(new, at=NOW)
        seen = job([completed(n, triggered_at=NOW - n * _DAY) for n in (1, 5, 20, 40)], name=environment)
        counts[environment] = (await writer.write(observation(added.id, seen))).new_count

    assert counts == {"dev": 1, "prod": 3, "test": 2}


async def test_a_day_with_an_open_reader_stays_whole_until_the_next_pass(writer, target, clock, engine, monkeypatch):
    await _write(writer, target, clock, [_checkpoint(n, n) for n in range(1, 9)])
    monkeypatch.setattr(rewriting, "LOCK_TIMEOUT", "50ms")
    monkeypatch.setattr(rewriting, "SWAP_ATTEMPTS", 2)
    monkeypatch.setattr(rewriting, "SWAP_PAUSE_S", 0)
    async with engine.connect() as reader:
        assert (await reader.execute(text("SELECT count(*) FROM checkpoint_details"))).scalar_one() == 16
        assert (await apply_retention(engine, _RETENTION, NOW)).downsampled == ()

    assert len(await _ids(engine, "checkpoint_details")) == 8
    assert (await apply_retention(engine, _RETENTION, NOW)).downsampled == (day_of(_OLD),)
    assert await _ids(engine, "checkpoint_details") == [1, 8]


async def test_two_processes_do_not_rewrite_the_same_day(writer, target, clock, engine):
    await _write(writer, target, clock, [_checkpoint(n, n) for n in range(1, 9)])
    async with engine.begin() as other:
        await other.execute(text(f"SELECT pg_advisory_xact_lock({downsampling._LOCK_KEY})"))
        assert not await remove_from_day(engine, day_of(_OLD), Removed(arrays=True), _RETENTION)

    assert await remove_from_day(engine, day_of(_OLD), Removed(arrays=True), _RETENTION)
