"""Growth over a real store: from stored checkpoints and readings, or from rollups, on the job and in its alert."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.contracts import api
from backend.domain.checkpoint import Checkpoint
from backend.domain.engines import SPARK
from backend.domain.micro_batch import MicroBatch
from backend.domain.pressure import VertexPressure
from tests.support.alerting import Alerting, rows, switch_off_rules_but
from tests.support.observations import (
    NOW,
    PARALLELISM,
    SINK,
    SOURCE,
    header,
    job,
    observation,
)
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

HOURS = 100
GB = 10**9


def _checkpoint(number, size_bytes):
    at = NOW - timedelta(hours=HOURS - number)
    return Checkpoint(replace(header(number, triggered_at=at), full_state_size_bytes=size_bytes))


def _reading(vertex_id, number, count, taken):
    return VertexPressure(
        vertex_id=vertex_id,
        observed_at=NOW - timedelta(hours=HOURS - number),
        busy_ratio=(0.5,) * PARALLELISM,
        backpressured_ratio=(0.0,) * PARALLELISM,
        idle_ratio=(0.5,) * PARALLELISM,
        records_in_count=(taken,) * PARALLELISM,
        records_out_count=(count,) * PARALLELISM,
    )


async def _store(writer, target, *, size_of, count_of, taken_of=lambda n: None, started_at=None):
    numbers = range(1, HOURS + 1)
    sent = [(SOURCE, n, count_of(n), taken_of(n)) for n in numbers] + [(SINK, n, 7, 7) for n in numbers]
    begin = NOW - timedelta(hours=HOURS)
    checkpoints = [_checkpoint(n, round(size_of(n))) for n in numbers]
    pressure = tuple(_reading(*values) for values in sent)
    seen = replace(job(checkpoints), pressure=pressure, started_at=started_at or begin)
    await writer.write(observation(target, replace(seen, checkpoints=(), pressure=()), at=begin))
    await writer.write(observation(target, seen, at=NOW))


async def _growth(engine, clock):
    async with asking(api_over(engine, clock)) as client:
        (row,) = api.Page[api.JobOut].model_validate_json((await client.get("/api/v1/jobs")).content).items
        answer = await client.get(f"/api/v1/jobs/{row.id}")
    return api.JobDetailOut.model_validate_json(answer.content).growth


async def _alerts(engine, clock):
    await switch_off_rules_but(engine, "StateGrowing", "Watchdog")
    await Alerting(engine, clock).round()
    return await rows(engine, "SELECT state, annotations ->> 'summary' FROM alerts WHERE rule = 'StateGrowing'")


def _doubling(number):
    return GB * 2 ** (number / 48)


async def test_a_state_that_doubles_at_the_same_input_is_on_the_job_and_raises_an_alert(engine, clock, writer, target):
    await _store(writer, target, size_of=_doubling, count_of=lambda n: 1000 * n)

    found = await _growth(engine, clock)
    assert found.sentence.startswith("the state doubled in 2 days at the same input: ")
    assert (found.input_ratio, found.is_filling) == (pytest.approx(1.0), False)
    ((state, summary),) = await _alerts(engine, clock)
    assert state == "firing"
    assert "orders: the state doubled in 2 days at the same input: " in summary


async def test_an_input_that_grew_as_well_explains_the_state(engine, clock, writer, target):
    await _store(writer, target, size_of=_doubling, count_of=lambda n: round(10**6 * 2 ** (n / 48)))

    assert await _growth(engine, clock) is None
    assert await _alerts(engine, clock) == []


async def test_growth_without_counts_of_the_input_is_on_the_job_and_no_alert(engine, clock, writer, target):
    await _store(writer, target, size_of=_doubling, count_of=lambda n: None)

    found = await _growth(engine, clock)
    assert "its input in this time is not known" in found.sentence
    assert await _alerts(engine, clock) == []


async def test_a_state_that_fills_up_since_the_job_began_before_its_history_is_on_the_job_and_no_alert(
    engine, clock, writer, target
):
    began_h = 44
    started_at = NOW - timedelta(hours=HOURS + began_h)
    await _store(
        writer, target, size_of=lambda n: GB * (n + began_h), count_of=lambda n: 1000 * n, started_at=started_at
    )

    found = await _growth(engine, clock)
    assert found.is_filling
    assert "as from nothing since the job began. A window or a time to live of more than" in found.sentence
    assert await _alerts(engine, clock) == []


@pytest.mark.parametrize(("growth", "is_alert"), [(1.0, True), (2.0, False)])
async def test_the_input_of_a_query_is_the_rows_of_its_micro_batches(engine, clock, writer, target, growth, is_alert):
    begin, batches = NOW - timedelta(hours=HOURS), []
    for number in range(3 * HOURS):
        hour, part = divmod(number, 3)
        of = replace(
            header(number, triggered_at=begin + timedelta(hours=hour, minutes=part)),
            full_state_size_bytes=round(_doubling(hour)),
        )
        rows_read = round(60_000 * growth ** (hour / 48))
        batches.append(Checkpoint(of, batch=MicroBatch(input_row_count=rows_read)))
    query = replace(job([]), topology=None, config=None, started_at=begin)
    await writer.write(replace(observation(target, query, at=begin), engine=SPARK))
    await writer.write(replace(observation(target, replace(query, checkpoints=tuple(batches)), at=NOW), engine=SPARK))

    found = await _growth(engine, clock)
    if is_alert:
        assert (found.input_ratio, "in 2 days at the same input: " in found.sentence) == (pytest.approx(1.0), True)
    else:
        assert found is None, "the input explains it"
    assert [state for state, _ in await _alerts(engine, clock)] == ["firing"] * is_alert


async def test_the_input_of_a_source_that_sends_nothing_is_what_it_takes_in(engine, clock, writer, target):
    await _store(writer, target, size_of=_doubling, count_of=lambda n: 0, taken_of=lambda n: 1000 * n)

    found = await _growth(engine, clock)
    assert (found.input_ratio, "in 2 days at the same input: " in found.sentence) == (pytest.approx(1.0), True)
    assert [state for state, _ in await _alerts(engine, clock)] == ["firing"]


async def test_a_steady_state_is_no_growth(engine, clock, writer, target):
    await _store(writer, target, size_of=lambda n: GB, count_of=lambda n: 1000 * n)

    assert await _growth(engine, clock) is None
    assert await _alerts(engine, clock) == []


async def test_hours_whose_checkpoints_are_deleted_come_from_their_rollups(engine, clock, writer, target):
    await _store(writer, target, size_of=_doubling, count_of=lambda n: 1000 * n)
    before = await _growth(engine, clock)
    async with engine.begin() as connection:
        for measure in ("full_state_size_bytes", "end_to_end_duration_ms"):
            await connection.execute(
                text(
                    "INSERT INTO rollup_measures (job_id, measure, hour, present_count, minimum, maximum, total, p50,"
                    " p95, p99, bucket_index, bucket_count)"
                    f" SELECT job_id, '{measure}', date_trunc('hour', triggered_at), 1, {measure}, {measure},"
                    f" {measure}, {measure}, {measure}, {measure}, '{{}}', '{{}}' FROM checkpoints"
                    " WHERE triggered_at < :until"
                ),
                {"until": NOW - timedelta(hours=30)},
            )
        await connection.execute(
            text("DELETE FROM checkpoints WHERE triggered_at < :until"), {"until": NOW - timedelta(hours=30)}
        )

    assert await _growth(engine, clock) == before
