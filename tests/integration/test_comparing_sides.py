"""``GET /api/v1/compare`` over a real store: any checkpoint or window against any other, of one job or of two."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from backend.contracts import api
from backend.contracts.comparing import CheckpointComparisonOut
from backend.contracts.comparing_windows import WindowsComparisonOut
from backend.domain.ids import VertexId
from backend.domain.rollup import HOUR
from backend.domain.target import TargetOrigin
from backend.domain.topology import Edge, Topology, Vertex
from backend.pipeline.jobs.rollups import RollupRun
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import (
    CONFIG,
    NOW,
    SINK,
    SOURCE,
    SteppingClock,
    completed,
    detail,
    failed,
    job,
    observation,
)
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

BEGIN = NOW - timedelta(hours=1)


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.fixture
async def sibling(engine):
    """Add a second target, on which a job may have the same name as on the first one."""
    new = NewTarget(url="http://flink-eu:8081", name="flink-eu", origin=TargetOrigin.API)
    return (await TargetRepository(engine).add(new, at=NOW)).id


async def _row(client, target):
    rows = api.Page[api.JobOut].model_validate_json((await client.get("/api/v1/jobs")).content).items
    return next(row for row in rows if row.target_id == target)


async def _compared(client, kind, **query):
    answer = await client.get("/api/v1/compare", params=query)
    assert answer.status_code == 200, answer.text
    return kind.model_validate_json(answer.content)


def _at(instant):
    return instant.isoformat()


def of_other_graph(one):
    """Return the checkpoint as one of a job whose sink has the id of the other job's source, and that has a filter."""
    ids = {SOURCE: VertexId("src"), SINK: SOURCE}
    renamed = tuple(replace(d, vertex_id=ids[d.vertex_id]) for d in one.details)
    return replace(one, details=(*renamed, detail(VertexId("filter-9"), one.header.checkpoint_id)))


OTHER_GRAPH = Topology(
    (
        Vertex(VertexId("src"), "Source: orders", 3),
        Vertex(SOURCE, "Sink: ledger", 8),
        Vertex(VertexId("filter-9"), "Filter", 3),
    ),
    (Edge(VertexId("src"), SOURCE, "HASH"),),
)


async def test_checkpoints_of_a_job_and_its_sibling_are_compared_by_the_names_of_their_vertices(
    client, writer, target, sibling
):
    await writer.write(observation(target, job([completed(3)])))
    other = replace(
        job([of_other_graph(completed(1)), of_other_graph(completed(2))], run="b" * 32),
        topology=OTHER_GRAPH,
        config=replace(CONFIG, is_unaligned_enabled=True, aligned_timeout_ms=500),
    )
    await writer.write(observation(sibling, other))
    a, b = await _row(client, target), await _row(client, sibling)
    query = {"a": a.id, "b": b.id, "a_checkpoint": f"{a.run_id}:3", "b_checkpoint": f"{b.run_id}:1"}

    found = await _compared(client, CheckpointComparisonOut, **query, vertex=SINK)

    assert found.kind == "checkpoints"
    assert (found.a.freshness.state, found.b.freshness.state) == ("final", "final")
    assert found.headline == "#3 on flink took 303 ms, #1 on flink-eu 301 ms: they differ by less than 100 ms."
    assert (found.a.job.target_name, found.b.job.target_name) == ("flink", "flink-eu")
    assert [(v.vertex, v.a_subtask_count, v.b_subtask_count) for v in found.vertices] == [
        ("Source: orders", 3, 3), ("Sink: ledger", 3, 3), ("Filter", None, 3),
    ]  # fmt: skip
    assert (found.a.job.only_vertices, found.b.job.only_vertices) == ([], ["Filter"])
    assert found.opened.vertex == "Sink: ledger"
    settings = {s.name: (s.a, s.b) for s in found.settings if s.is_different}
    assert settings == {
        "alignment": ("aligned", "aligned-with-timeout"),
        "is_unaligned_enabled": (False, True),
        "aligned_timeout_ms": (None, 500),
        "parallelism of Sink: ledger": (3, 8),
    }
    assert ("engine_version", "1.20.0", "1.20.0") in [(s.name, s.a, s.b) for s in found.settings]
    chosen = await _compared(client, CheckpointComparisonOut, a=a.id, b=b.id, a_checkpoint=f"{a.run_id}:3")
    assert (chosen.b.checkpoint.job_id, chosen.b.checkpoint.checkpoint_id) == (b.id, 2)
    assert chosen.choice.startswith(
        "#2 on flink-eu was chosen: the newest completed one triggered earlier than #3 on flink that "
    )


async def test_of_a_job_that_never_was_healthy_the_newest_checkpoint_is_compared(client, writer, target, sibling):
    await writer.write(observation(target, job([completed(3)])))
    await writer.write(observation(sibling, job([failed(7), failed(8)])))
    a, b = await _row(client, target), await _row(client, sibling)

    found = await _compared(client, CheckpointComparisonOut, a=a.id, b=b.id, a_checkpoint=f"{a.run_id}:3")

    assert found.b.checkpoint.checkpoint_id == 8
    assert found.choice == (
        "#8 on flink-eu was chosen: the newest one that has ended. None triggered earlier than #3 on flink completed."
    )


async def test_a_job_is_compared_with_the_same_time_of_yesterday(client, writer, target):
    yesterday = [completed(n, triggered_at=BEGIN - timedelta(days=1) + timedelta(seconds=10 * n)) for n in range(1, 11)]
    begun = replace(job(yesterday), started_at=NOW - timedelta(days=2), config=replace(CONFIG, timeout_ms=5_000))
    await writer.write(observation(target, begun, at=NOW - timedelta(days=1)))
    later = [*(completed(n) for n in range(100, 110)), failed(110)]
    await writer.write(observation(target, replace(job(later), started_at=NOW - timedelta(days=2)), at=NOW - HOUR / 2))
    row = await _row(client, target)

    found = await _compared(client, WindowsComparisonOut, a=row.id)

    assert found.kind == "windows"
    assert (found.after.since, found.after.until) == (NOW - timedelta(hours=1), NOW)
    assert (found.before.since, found.before.until) == (NOW - timedelta(hours=25), NOW - timedelta(hours=24))
    assert (found.before.completed_count, found.after.completed_count, found.after.failed_count) == (10, 10, 1)
    duration = found.measures[0]
    assert duration.after.p99.is_at_least, "an expired checkpoint is a lower bound"
    assert duration.after.count == 11
    assert {s.name: (s.a, s.b) for s in found.settings if s.is_different} == {"timeout_ms": (5_000, 60_000)}


async def test_two_jobs_are_compared_now(client, writer, target, sibling):
    await writer.write(observation(target, job([completed(n) for n in range(1, 11)])))
    await writer.write(observation(sibling, job([completed(n) for n in range(200, 210)], name="payments")))
    a, b = await _row(client, target), await _row(client, sibling)

    found = await _compared(client, WindowsComparisonOut, a=a.id, b=b.id)

    assert (found.before.name, found.after.name) == ("payments", "orders")
    assert (found.before.since, found.before.until) == (found.after.since, found.after.until)
    assert found.headline.startswith("The median duration differs: 504 ms in payments, 306 ms in orders (-199 ms, ")
    assert not any(s.is_different for s in found.settings)
    assert found.events == [], "events are those between two windows of one job"


async def test_what_is_not_stored_is_not_known_and_not_zero(client, writer, target):
    await writer.write(observation(target, job([completed(n) for n in range(1, 11)])))
    row = await _row(client, target)
    ends = {"b_from": _at(NOW - timedelta(days=30)), "b_to": _at(NOW - timedelta(days=29))}

    found = await _compared(client, WindowsComparisonOut, a=row.id, **ends)

    assert (found.before.is_stored, found.after.is_stored) == (False, True)
    assert not found.before.job.are_settings_known
    assert found.headline == "Nothing is stored of the time before, so the windows cannot be compared."
    interval = next(s for s in found.settings if s.name == "interval_ms")
    assert (interval.a, interval.b, interval.is_known, interval.is_different) == (None, 10_000, False, False)


async def test_a_window_whose_checkpoints_were_dropped_has_the_values_of_its_rollups(client, writer, target, database):
    at = NOW - timedelta(days=3)
    old = [completed(n, triggered_at=at + timedelta(seconds=10 * n)) for n in range(1, 21)]
    begun = replace(job([*old, failed(500)]), started_at=NOW - timedelta(days=4))
    await writer.write(observation(target, begun, at=at + HOUR))
    RollupRun(database, lambda: None, SteppingClock(NOW)).do()
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM checkpoints WHERE triggered_at < %s", [NOW - timedelta(days=1)])
    row = await _row(client, target)
    ends = {"b_from": _at(at), "b_to": _at(at + HOUR), "a_from": _at(NOW - HOUR), "a_to": _at(NOW + HOUR)}

    found = await _compared(client, WindowsComparisonOut, a=row.id, **ends)

    assert (found.before.source, found.before.completed_count, found.before.is_capped) == ("rollups", 20, False)
    assert found.measures[0].before.median.value == pytest.approx(310.5, rel=0.01)
    assert found.after.source == "checkpoints"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"b_checkpoint": "r:1"}, "a_checkpoint"),
        ({"a_checkpoint": "r:1", "a_from": _at(BEGIN), "a_to": _at(NOW)}, "together with `a_checkpoint`"),
        ({"a_from": _at(BEGIN)}, "both of `a_from` and `a_to`"),
        ({"b_to": _at(BEGIN)}, "both of `b_from` and `b_to`"),
        ({"a_from": _at(NOW), "a_to": _at(BEGIN)}, "an instant before `a_to`"),
        (
            {"a_from": _at(BEGIN), "a_to": _at(NOW), "b_from": _at(BEGIN), "b_to": _at(NOW)},
            "an instant at or after `b_to`",
        ),
        ({"a_checkpoint": "7"}, "a_checkpoint"),
    ],
)
async def test_sides_that_cannot_be_compared_are_a_problem(client, writer, target, query, words):
    await writer.write(observation(target, job([completed(1)])))
    row = await _row(client, target)

    answer = await client.get("/api/v1/compare", params={"a": row.id} | query)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.text


async def test_an_unknown_job_on_either_side_is_not_found(client, writer, target):
    await writer.write(observation(target, job([completed(1)])))
    row = await _row(client, target)

    for query in ({"a": "none"}, {"a": row.id, "b": "none"}, {"a": row.id, "b": "none", "a_checkpoint": "r:1"}):
        assert (await client.get("/api/v1/compare", params=query)).status_code == 404, query
