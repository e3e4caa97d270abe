"""Backpressure over time, over a real store: its buckets contain what the readings reported, and gaps stay gaps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote

import pytest

from backend.contracts import api
from backend.contracts.pressure_history import PressureHistoryOut
from backend.domain.pressure import VertexPressure
from backend.services.jobs import pressure_history
from tests.support.observations import (
    NOW,
    PARALLELISM,
    SINK,
    SOURCE,
    completed,
    job,
    observation,
    pressure,
    restarted,
)
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


async def _history(client, *, status=200, **query):
    (row,) = api.Page[api.JobOut].model_validate_json((await client.get("/api/v1/jobs")).content).items
    more = "&".join(f"{k}={quote(v if isinstance(v, str) else v.isoformat())}" for k, v in query.items())
    answer = await client.get(f"/api/v1/jobs/{row.id}/backpressure/history?{more}")
    assert answer.status_code == status, answer.text
    return PressureHistoryOut.model_validate_json(answer.content) if status == 200 else None


def reading(vertex_id, seconds, busy, held=(0.0,) * PARALLELISM, queued=None, records=()):
    """Return a reading of one vertex, taken ``seconds`` after ``NOW``."""
    return VertexPressure(
        vertex_id=vertex_id,
        observed_at=NOW + timedelta(seconds=seconds),
        busy_ratio=tuple(busy),
        backpressured_ratio=tuple(held),
        idle_ratio=tuple(None if b is None or h is None else 1 - b - h for b, h in zip(busy, held, strict=True)),
        queued_out_bytes=(None,) * PARALLELISM if queued is None else tuple(queued),
        records_in_count=records,
    )


async def store(writer, target, *readings, **more):
    seen = replace(job([completed(1)]), pressure=readings)
    await writer.write(replace(observation(target, seen), **more))


async def test_a_bucket_has_the_means_and_maxima_of_its_readings_and_its_largest_queue(client, writer, target):
    await store(
        writer,
        target,
        reading(SINK, 0, (1.0, 0.2, 0.3), queued=(10, 20, None), records=(6, 2, 1)),
        reading(SINK, 1, (0.4, None, 0.4), (0.0, None, 0.6), queued=(1, 1, 1)),
        reading(SOURCE, 0, (0.5,) * PARALLELISM, queued=(7, 7, 7)),
        reading(SINK, 300, (0.0,) * PARALLELISM),
    )

    found = await _history(client, **{"from": NOW, "to": NOW + timedelta(minutes=10)})

    assert found.bucket_s == 5
    assert found.buckets == [NOW, NOW + timedelta(minutes=5)], "a bucket without readings is absent"
    assert [(v.vertex_id, v.parallelism) for v in found.vertices] == [(SOURCE, PARALLELISM), (SINK, PARALLELISM)]
    source, sink = found.vertices
    assert sink.busy_ratio == [pytest.approx((0.5 + 0.4) / 2, abs=1e-4), 0.0]
    assert sink.backpressured_ratio == [pytest.approx((0.0 + 0.3) / 2, abs=1e-4), 0.0]
    assert sink.busy_max_ratio == [1.0, 0.0]
    assert sink.backpressured_max_ratio == [0.6, 0.0]
    # The queues of the last reading are not reported, which is not zero.
    assert sink.queued_max_bytes == [30, None]
    assert sink.queued_bytes == [17, None], "16.5, rounded"
    assert sink.records_in_skew_ratio == [pytest.approx(2.0, abs=1e-4), None]
    assert source.records_in_skew_ratio == [None, None]
    # Equal values of all subtasks are stored as one value.
    assert source.queued_max_bytes == [21, None]
    assert source.busy_ratio == [0.5, None]
    assert found.subtasks is None
    assert (found.readings_count, found.readings_used_count) == (3, 3)


async def test_the_time_to_consume_is_the_queue_before_a_vertex_over_what_it_reads_in_a_second(client, writer, target):
    def of_sink(seconds, read, queued_in):
        return replace(
            reading(SINK, seconds, (1.0,) * PARALLELISM, queued=(9, 9, 9)),
            queued_in_bytes=queued_in,
            bytes_in_count=read,
        )

    sources = [reading(SOURCE, at, (0.5,) * PARALLELISM, queued=(100, 100, 100)) for at in (0, 1, 300, 600, 900)]
    await store(
        writer,
        target,
        *sources,
        of_sink(0, (10, 20, 30), (0, 100, 200)),
        of_sink(1, (110, 120, 130), (0, 100, 200)),
        # A new attempt counts from zero again, which is no rate.
        of_sink(300, (1, 1, 1), (0, 100, 200)),
        of_sink(600, (1, 1, 1), (0, 100, 200)),
        of_sink(900, (301, 301, None), (0, 100, 200)),
    )

    found = await _history(client, **{"from": NOW, "to": NOW + timedelta(minutes=20)})

    source, sink = found.vertices
    # 300 bytes in its own input queues and 300 in the output queues of the source, at 300 bytes in a second. Its own
    # output queues are read by others.
    assert sink.time_to_consume_s == [2.0, None, None, None], "then: a new attempt, nothing read, a missing count"
    assert source.time_to_consume_s == [None] * 4, "a source has no queue before it"


@pytest.mark.parametrize(("measure", "expected"), [("busy", [1.0, 0.3, None]), ("backpressured", [0.0, 0.5, None])])
async def test_one_vertex_has_a_row_for_each_subtask(client, writer, target, measure, expected):
    await store(
        writer,
        target,
        reading(SINK, 0, (1.0, 0.2, None), (0.0, 0.4, None)),
        reading(SINK, 1, (1.0, 0.4, None), (0.0, 0.6, None)),
        reading(SINK, 300, (0.7,) * PARALLELISM, (0.7,) * PARALLELISM),
    )

    query = {"from": NOW, "to": NOW + timedelta(minutes=10), "vertex": SINK, "measure": measure}
    found = (await _history(client, **query)).subtasks

    assert (found.vertex_id, found.measure) == (SINK, measure)
    assert [row[0] for row in found.values] == [None if e is None else pytest.approx(e, abs=1e-4) for e in expected]
    assert [row[1] for row in found.values] == [pytest.approx(0.7)] * PARALLELISM


async def test_an_unknown_vertex_is_refused_and_so_is_a_range_that_ends_before_it_begins(client, writer, target):
    await store(writer, target, reading(SINK, 0, (1.0,) * PARALLELISM))

    await _history(client, status=404, vertex="nothing")
    await _history(client, status=422, **{"from": NOW, "to": NOW - timedelta(seconds=1)})
    await _history(client, status=422, measure="hot")


async def test_without_a_range_it_is_the_hour_before_the_newest_reading(client, writer, target):
    await store(writer, target, *(reading(SINK, s, (0.5,) * PARALLELISM) for s in (-4000, -60, 0)))

    found = await _history(client)

    assert found.until - found.since == timedelta(hours=1)
    assert found.until == NOW + timedelta(milliseconds=1)
    assert found.readings_count == 2
    assert found.buckets[-1] == NOW


async def test_the_history_is_on_the_clock_of_the_checkpoints(client, writer, target):
    behind = timedelta(minutes=22)
    offset_ms = round(-behind / timedelta(milliseconds=1))
    await store(writer, target, reading(SINK, 0, (0.5,) * PARALLELISM), clock_offset_ms=offset_ms)

    found = await _history(client, **{"from": NOW - behind, "to": NOW - behind + timedelta(minutes=2)})

    assert found.buckets == [NOW - behind]


async def test_of_too_many_readings_each_bucket_uses_some(client, writer, target, monkeypatch):
    await store(writer, target, *(reading(SINK, s, (s / 40,) * PARALLELISM) for s in (0, 1, 2, 3, 4, 30)))
    # With this limit, each bucket uses only one of its readings.
    monkeypatch.setattr(pressure_history, "VALUES_MAX", 1)

    found = await _history(client, **{"from": NOW, "to": NOW + timedelta(minutes=10)})

    assert (found.readings_count, found.readings_used_count) == (6, 2)
    assert found.vertices[0].busy_ratio == [0.0, 0.75]


async def test_the_suspects_are_those_of_the_verdict_at_the_end_of_the_range(client, writer, target):
    held = (0.9,) * PARALLELISM
    full = [reading(SINK, s, (1.0, 0.99, 1.0)) for s in (0, 10)]
    await store(writer, target, *(reading(SOURCE, s, (0.1,) * PARALLELISM, held) for s in (0, 10)), *full)

    found = await _history(client)

    (suspect,) = found.suspects
    assert (suspect.vertex_id, suspect.vertex, suspect.subtasks) == (SINK, "Sink: ledger", [0, 1, 2])
    assert suspect.kind == "capacity"
    assert "is at capacity" in suspect.reason
    early = await _history(client, **{"from": NOW - timedelta(hours=2), "to": NOW - timedelta(hours=1)})
    # Without readings at the end of a range, nothing is known about the suspects then.
    assert (early.suspects, early.vertices) == (None, [])


async def test_a_range_of_an_earlier_run_has_its_readings_and_its_suspects(client, writer, target, monkeypatch):
    held, free = (0.9,) * PARALLELISM, (0.1,) * PARALLELISM
    first = replace(job([completed(1)]), started_at=NOW - timedelta(days=2))
    busy = [reading(SOURCE, 0, free, held), reading(SINK, 0, (1.0, 0.99, 1.0))]
    await writer.write(observation(target, replace(first, pressure=busy), at=NOW))
    for number in range(1, 4):
        at = NOW + timedelta(hours=3 * number)
        later = restarted(first, started_at=at)
        await writer.write(observation(target, later, at=at))
    # The earlier run is not among the newest ones, but it is the only one in the range.
    monkeypatch.setattr(pressure_history, "RUNS_MAX", 2)

    found = await _history(client, **{"from": NOW - timedelta(minutes=5), "to": NOW + timedelta(seconds=1)})

    assert found.readings_count == 1
    assert [s.vertex_id for s in found.suspects] == [SINK]
    assert found.left_out_before is None
    # The range covers all four runs, but only the two newest ones are read.
    whole = await _history(client, **{"from": NOW - timedelta(minutes=5), "to": NOW + timedelta(days=1)})
    assert (whole.readings_count, whole.left_out_before) == (0, NOW + timedelta(hours=6))


async def test_a_range_that_begins_after_the_newest_reading_ends_now(client, writer, target, clock):
    await store(writer, target, reading(SINK, 0, (1.0,) * PARALLELISM))
    clock.at = NOW + timedelta(minutes=40)

    found = await _history(client, **{"from": NOW + timedelta(minutes=25)})

    assert (found.until, found.buckets, found.suspects) == (clock.at, [], None)


async def test_readings_of_every_vertex_are_used_even_if_they_are_partly_missing(client, writer, target):
    await store(writer, target, pressure(SOURCE, NOW), pressure(SINK, NOW, busy=1.0))

    found = await _history(client)

    assert [v.idle_ratio for v in found.vertices] == [[None], [None]]
    assert [v.busy_max_ratio for v in found.vertices] == [[0.5], [1.0]]
