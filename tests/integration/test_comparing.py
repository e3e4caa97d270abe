"""The comparison of two checkpoints over a real store: its values are those that were ingested."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.contracts import api
from backend.contracts.comparing import CheckpointComparisonOut
from backend.domain.checkpoint import SubtaskMeasure
from backend.domain.verdict import Basis
from tests.support.observations import CONFIG, NOW, SINK, SOURCE, completed, failed, job, observation, pressure
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


async def _row(client):
    (row,) = api.Page[api.JobOut].model_validate_json((await client.get("/api/v1/jobs")).content).items
    return row


async def _get(client, a, b=None, **more):
    row = await _row(client)
    query = {"a": f"{row.run_id}:{a}"} | ({} if b is None else {"b": f"{row.run_id}:{b}"}) | more
    return await client.get(f"/api/v1/jobs/{row.id}/compare", params=query)


async def _compared(client, a, b=None, **more):
    answer = await _get(client, a, b, **more)
    assert answer.status_code == 200, answer.text
    return CheckpointComparisonOut.model_validate_json(answer.content)


def slower(number, by_ms):
    """Build a checkpoint in which the alignment of subtask 2 of the sink takes ``by_ms`` longer."""
    one = completed(number)
    source, sink = one.details
    alignment = (*sink.alignment_duration_ms[:2], sink.alignment_duration_ms[2] + by_ms)
    acks = (*sink.ack_delay_ms[:2], sink.ack_delay_ms[2] + by_ms)
    took = one.header.end_to_end_duration_ms + by_ms
    return replace(
        one,
        header=replace(one.header, end_to_end_duration_ms=took),
        details=(source, replace(sink, alignment_duration_ms=alignment, ack_delay_ms=acks)),
    )


async def test_two_checkpoints_have_the_reported_values_and_their_differences(client, writer, target):
    seen = [completed(1), completed(2), slower(3, 9_000)]
    await writer.write(observation(target, job(seen)))

    found = await _compared(client, 3, 1, vertex=SINK, measure="alignment", limit="2")

    assert found.choice is None
    assert found.headline == "#3 took 9.3 s, #1 301 ms: +9.0 s of alignment at Sink: ledger subtask 2."
    assert found.difference_ms == 9_002
    assert (found.cause.vertex_id, found.cause.subtask, found.cause.phase) == (SINK, 2, "alignment")
    assert [v.vertex_id for v in found.vertices] == [SOURCE, SINK]
    for row, index in zip(found.vertices, (0, 1), strict=True):
        by = {m.measure: m for m in row.measures}
        for measure, name in (
            (SubtaskMeasure.START_DELAY, "start_delay_ms"),
            (SubtaskMeasure.ALIGNMENT, "alignment_duration_ms"),
            (SubtaskMeasure.DURATION, "ack_delay_ms"),
        ):
            a, b = (max(getattr(c.details[index], name)) for c in (seen[2], seen[0]))
            assert (by[measure].a, by[measure].b, by[measure].difference) == (a, b, a - b), (row.vertex_id, measure)
        assert by[SubtaskMeasure.PERSISTED].a is None, "a value that was not reported is not zero"
    assert [s.subtask for s in found.opened.subtasks] == [2, 0]
    assert found.opened.subtask_count == 3
    assert (found.a.previous_id, found.a.next_id) == (2, None)
    assert (found.b.previous_id, found.b.next_id) == (None, 2)


async def test_without_b_it_is_the_last_healthy_checkpoint(client, writer, target):
    await writer.write(observation(target, job([completed(1), slower(2, 9_000), failed(3), slower(4, 9_000)])))

    found = await _compared(client, 4)

    assert found.b.checkpoint.checkpoint_id == 1
    assert found.choice == ("#1 was chosen: the newest completed one before #4 that was not slow (shorter than 5.0 s).")


async def test_without_any_earlier_checkpoint_there_is_nothing_to_compare_with(client, writer, target):
    await writer.write(observation(target, job([failed(1), completed(2)])))

    found = await _compared(client, 2)

    assert (found.b, found.vertices, found.difference_ms) == (None, [], None)
    assert found.headline == "No completed checkpoint before #2 is known, so there is none to compare it with."


async def test_settings_and_load_are_those_at_the_time_of_each_checkpoint(client, writer, target):
    began = NOW - timedelta(hours=1)
    first = replace(job([completed(1)]), pressure=(pressure(SOURCE, began, busy=0.2), pressure(SINK, began, busy=0.3)))
    await writer.write(observation(target, first, at=began + timedelta(minutes=1)))
    # The time of a reading is that of its observation, on our clock.
    at = completed(100).header.triggered_at
    later = replace(
        job([completed(100)]),
        config=replace(CONFIG, timeout_ms=3_000),
        pressure=(
            pressure(SINK, at, busy=0.5),
            replace(pressure(SINK, at + timedelta(seconds=10), busy=0.9), records_in_count=(300, 400, 500)),
        ),
    )
    await writer.write(observation(target, later, at=at - timedelta(seconds=1)))

    found = await _compared(client, 100, 1)

    settings = {s.name: (s.a, s.b, s.is_different) for s in found.settings}
    assert settings["timeout_ms"] == (3_000, 60_000, True)
    assert settings["interval_ms"] == (10_000, 10_000, False)
    loads = {x.vertex_id: x for x in found.loads}
    assert loads[SOURCE].a is None, "a side without readings has no load"
    assert loads[SINK].b is not None
    assert loads[SINK].b.busy_mean_ratio == pytest.approx(0.3)
    assert loads[SINK].b.records_per_s is None, "one reading shows no rate"
    a = loads[SINK].a
    assert (a.reading_count, a.busy_mean_ratio) == (2, pytest.approx(0.7))
    assert (a.records_per_s, a.records_per_s_basis) == (pytest.approx(60.0), Basis.RECONSTRUCTED)
    assert a.backpressured_max_ratio == pytest.approx(0.25)
    assert a.queued_bytes == 1 << 40


async def test_the_rates_of_the_load_are_those_of_the_engine_if_each_reading_has_one(client, writer, target):
    at = completed(100).header.triggered_at - timedelta(seconds=1000)

    def of_sink(seconds, rates, records=(100, 200, 300)):
        reading = pressure(SINK, at + timedelta(seconds=seconds))
        return replace(reading, records_in_per_s=rates, records_in_count=records)

    source = [
        replace(
            pressure(SOURCE, at + timedelta(seconds=s)),
            records_in_count=(0,) * 3,
            records_out_count=(100 * s,) * 3,
            records_out_per_s=rates,
            # A source reads nothing, and Flink reports this as a rate of 0.
            records_in_per_s=(0.0,) * len(rates),
        )
        # Equal rates of all subtasks are stored as one. The second checkpoint has a reading without rates.
        for s, rates in ((1000, (50.0,) * 3), (1010, (52.0,) * 3), (0, ()), (10, (52.0,) * 3))
    ]
    sink = [of_sink(1000, (1.5, 2.5, 3.0)), of_sink(1005, (1.5, 2.5, 4.0)), of_sink(0, (1.0, None, 1.0))]
    # The engine has not read its counters again, so equal counts do not show that nothing flowed.
    sink.append(of_sink(8, (1.0, None, 1.0)))
    seen = job([completed(50, triggered_at=at), completed(100)])
    await writer.write(observation(target, replace(seen, pressure=(*source, *sink))))

    found = {x.vertex_id: x for x in (await _compared(client, 100, 50)).loads}

    rates = {v: [(s.records_per_s, s.records_per_s_basis) for s in (x.a, x.b)] for v, x in found.items()}
    assert rates[SINK] == [(7.5, Basis.MEASURED), (None, None)], "a mean of the readings; the counts show no time"
    assert rates[SOURCE] == [(153.0, Basis.MEASURED), (300.0, Basis.RECONSTRUCTED)], "what a source emits"


async def test_a_removed_vertex_is_missing_on_one_side(client, writer, target):
    await writer.write(
        observation(target, job([completed(1), replace(completed(2), details=completed(2).details[:1])]))
    )

    source, sink = (await _compared(client, 2, 1)).vertices

    assert (source.a_subtask_count, sink.a_subtask_count, sink.b_subtask_count) == (3, None, 3)
    assert sink.a_slowest is None
    assert all(m.a is None and m.difference is None for m in sink.measures)


@pytest.mark.parametrize(
    ("a", "b", "more", "status", "words"),
    [
        (9, 1, {}, 404, "no checkpoint '9'"),
        (1, 9, {}, 404, "no checkpoint '9'"),
        (1, 1, {}, 422, "is the same checkpoint as `a`"),
        (2, 1, {"vertex": "none"}, 404, "no vertex 'none'"),
    ],
)
async def test_what_cannot_be_compared_is_a_problem(client, writer, target, a, b, more, status, words):
    await writer.write(observation(target, job([completed(1), completed(2)])))

    answer = await _get(client, a, b, **more)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.text


async def test_a_checkpoint_is_named_by_run_and_number(client, writer, target):
    await writer.write(observation(target, job([completed(1)])))
    row = await _row(client)

    for a in ("1", "run:", "run:x", ":1", f"{row.run_id}:1234567890123456789"):
        answer = await client.get(f"/api/v1/jobs/{row.id}/compare", params={"a": a})
        assert answer.status_code == 422, a
    assert (await client.get(f"/api/v1/jobs/{row.id}/compare", params={"a": "other:1"})).status_code == 404
