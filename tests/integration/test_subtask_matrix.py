"""The matrix of subtasks and checkpoints over a real store: its values are those that were ingested."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.contracts import api
from backend.contracts.subtask_matrix import SubtaskMatrixOut
from backend.domain.checkpoint import SubtaskMeasure
from backend.domain.protocols import Protocol
from backend.domain.topology import Topology, Vertex
from backend.services.checkpoints import subtask_matrix
from backend.services.checkpoints.subtask_matrix import ROWS_MAX
from tests.support.observations import (
    PARALLELISM,
    SINK,
    SOURCE,
    completed,
    failed,
    in_progress,
    job,
    observation,
)
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

_FIELDS = {
    SubtaskMeasure.DURATION: "ack_delay_ms",
    SubtaskMeasure.START_DELAY: "start_delay_ms",
    SubtaskMeasure.ALIGNMENT: "alignment_duration_ms",
    SubtaskMeasure.SYNC: "sync_duration_ms",
    SubtaskMeasure.ASYNC: "async_duration_ms",
    SubtaskMeasure.PERSISTED: "persisted_bytes",
    SubtaskMeasure.CHECKPOINTED: "checkpointed_size_bytes",
}


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


async def _path(client):
    (row,) = api.Page[api.JobOut].model_validate_json((await client.get("/api/v1/jobs")).content).items
    return f"/api/v1/jobs/{row.id}/subtask-matrix"


async def _matrix(client, query=""):
    answer = await client.get(await _path(client) + query)
    assert answer.status_code == 200, answer.text
    return SubtaskMatrixOut.model_validate_json(answer.content)


def wide(checkpoint, count):
    """Return the checkpoint as if the sink had ``count`` subtasks: those of the small job, again and again."""
    source, sink = checkpoint.details
    arrays = {f: (getattr(sink, f) * count)[:count] for f in (*_FIELDS.values(), "full_state_size_bytes")}
    arrays |= {f: (getattr(sink, f) * count)[:count] for f in ("processed_bytes", "unaligned")}
    return replace(checkpoint, details=(source, replace(sink, **arrays)))


@pytest.mark.parametrize("measure", list(SubtaskMeasure))
async def test_the_values_of_each_measure_are_those_that_the_subtasks_reported(client, writer, target, measure):
    seen = [completed(1), failed(2), completed(3)]
    await writer.write(observation(target, job([*seen, in_progress(4, acknowledged_count=4, with_details=True)])))

    found = await _matrix(client, f"?measure={measure}")

    assert [(c.checkpoint_id, c.status) for c in found.checkpoints] == [
        (1, "completed"), (2, "failed"), (3, "completed"),
    ]  # fmt: skip
    assert [(v.vertex_id, v.vertex, v.parallelism) for v in found.vertices] == [
        (SOURCE, "Source: orders", PARALLELISM),
        (SINK, "Sink: ledger", PARALLELISM),
    ]
    assert [(r.vertex_id, r.subtask) for r in found.rows] == [(v, i) for v in (SOURCE, SINK) for i in range(3)]
    for row, values in zip(found.rows, found.values, strict=True):
        reported = [getattr(c.detail(row.vertex_id), _FIELDS[measure])[row.subtask] for c in seen]
        assert values == reported
    assert (found.unit == "bytes") == (measure in {"persisted", "checkpointed"})
    if measure is SubtaskMeasure.DURATION:
        assert found.values[4][1] is None, "subtask 1 of the sink never acknowledged checkpoint 2"


async def test_a_subtask_that_had_finished_has_no_duration_and_markers_that_overtake_nothing_are_not_unaligned(
    client, writer, target
):
    read = completed(1)
    over = replace(read.details[0], ack_delay_ms=(0, 0, 5))
    header = replace(read.header, is_unaligned=True, protocol=Protocol.CHANDY_LAMPORT)
    await writer.write(observation(target, job([replace(read, header=header, details=(over, *read.details[1:]))])))

    found = await _matrix(client, "?measure=duration")

    assert [row[0] for row in found.values[:3]] == [None, None, 5]
    assert found.checkpoints[0].is_unaligned is None


async def test_a_job_with_many_subtasks_is_folded_to_the_largest_value_of_each_vertex(client, writer, target):
    seen = [wide(completed(1), ROWS_MAX), wide(failed(2), ROWS_MAX)]
    await writer.write(observation(target, job(seen)))

    folded = await _matrix(client, "?measure=start-delay")
    opened = await _matrix(client, f"?measure=start-delay&vertex={SINK}")

    assert folded.is_folded
    assert [(r.vertex_id, r.subtask) for r in folded.rows] == [(SOURCE, None), (SINK, None)]
    assert folded.values == [
        [max(v for v in c.detail(vertex).start_delay_ms if v is not None) for c in seen] for vertex in (SOURCE, SINK)
    ]
    assert not opened.is_folded
    assert opened.vertices == folded.vertices
    assert [(r.vertex_id, r.subtask) for r in opened.rows] == [(SINK, i) for i in range(ROWS_MAX)]
    assert opened.values == [[c.detail(SINK).start_delay_ms[i] for c in seen] for i in range(ROWS_MAX)]


async def test_by_host_the_subtasks_of_a_host_are_next_to_each_other(client, writer, target):
    placed = job([completed(1), failed(2)])
    hosts = {SOURCE: ("b", "a", None), SINK: ("a", "b", "a")}
    placements = tuple(replace(p, hosts=hosts[p.vertex_id]) for p in placed.placements)
    await writer.write(observation(target, replace(placed, placements=placements)))

    by_vertex = await _matrix(client)
    found = await _matrix(client, "?group=host")
    of_sink = await _matrix(client, f"?group=host&vertex={SINK}")

    expected = [
        ("a", SOURCE, 1), ("a", SINK, 0), ("a", SINK, 2), ("b", SOURCE, 0), ("b", SINK, 1), (None, SOURCE, 2),
    ]  # fmt: skip
    assert [(r.host, r.vertex_id, r.subtask) for r in found.rows] == expected
    values = {(r.vertex_id, r.subtask): v for r, v in zip(by_vertex.rows, by_vertex.values, strict=True)}
    assert found.values == [values[vertex, subtask] for _, vertex, subtask in expected]
    assert [(r.host, r.subtask) for r in of_sink.rows] == [("a", 0), ("a", 2), ("b", 1)]


@pytest.mark.parametrize(("measure", "combine"), [("start-delay", max), ("checkpointed", sum)])
async def test_by_host_a_job_with_many_subtasks_is_folded_to_its_hosts(
    client, writer, target, monkeypatch, measure, combine
):
    seen = [wide(completed(n), ROWS_MAX) for n in range(1, 13)]
    placed = job(seen)
    placements = tuple(
        replace(p, hosts=tuple("ab"[i % 2] for i in range(n)))
        for p, n in zip(placed.placements, (PARALLELISM, ROWS_MAX), strict=True)
    )
    await writer.write(observation(target, replace(placed, placements=placements)))

    found = await _matrix(client, f"?group=host&measure={measure}")

    assert found.is_folded
    assert [(r.host, r.vertex_id, r.subtask) for r in found.rows] == [("a", None, None), ("b", None, None)]
    field = _FIELDS[SubtaskMeasure(measure)]
    for at, host in enumerate("ab"):
        values = [
            v
            for detail in seen[0].details
            for i, v in enumerate(getattr(detail, field))
            if "ab"[i % 2] == host and v is not None
        ]
        assert found.values[at][0] == combine(values)
    monkeypatch.setattr(subtask_matrix, "VALUES_MAX", 1)
    fewer = await _matrix(client, f"?group=host&measure={measure}")
    assert [c.checkpoint_id for c in fewer.checkpoints] == list(range(3, 13)), "the newest ones"


async def test_a_vertex_that_was_rescaled_has_missing_values_in_the_checkpoints_before(client, writer, target):
    await writer.write(observation(target, job([completed(1), wide(completed(2), 5)])))

    found = await _matrix(client, f"?vertex={SINK}")

    assert found.vertices[1].parallelism == 5
    assert [row[0] is None for row in found.values] == [False, False, False, True, True]
    assert all(row[1] is not None for row in found.values)


@pytest.mark.parametrize("early_counts", [{SOURCE: PARALLELISM}, {SOURCE: PARALLELISM - 1, SINK: PARALLELISM}])
async def test_values_that_are_stored_after_the_rows_are_determined_move_no_others(
    client, writer, target, monkeypatch, early_counts
):
    checkpoint = completed(1)
    await writer.write(observation(target, job([replace(checkpoint, details=checkpoint.details[:1])])))

    async def counted_before_the_write(connection, places):
        await writer.write(observation(target, job([checkpoint])))
        return early_counts

    monkeypatch.setattr(subtask_matrix, "subtask_counts", counted_before_the_write)
    found = await _matrix(client)

    assert [(r.vertex_id, r.subtask) for r in found.rows] == [(v, i) for v, n in early_counts.items() for i in range(n)]
    for row, values in zip(found.rows, found.values, strict=True):
        assert values == [checkpoint.detail(row.vertex_id).ack_delay_ms[row.subtask]]


async def test_a_vertex_of_an_earlier_graph_is_shown_after_those_of_the_present_one(client, writer, target):
    later = replace(job([completed(1)]), topology=Topology((Vertex(SINK, "Sink: ledger", PARALLELISM),)))
    await writer.write(observation(target, later))

    assert [(v.vertex_id, v.vertex) for v in (await _matrix(client)).vertices] == [
        (SINK, "Sink: ledger"),
        (SOURCE, SOURCE),
    ]


async def test_the_arrays_of_a_checkpoint_in_which_one_vertex_was_absent_are_not_called_removed(client, writer, target):
    without_source = replace(completed(1), details=completed(1).details[1:])
    await writer.write(observation(target, job([without_source, completed(2)])))

    for query in ("", f"?vertex={SOURCE}", f"?vertex={SINK}"):
        found = await _matrix(client, query)
        assert [c.are_arrays_removed for c in found.checkpoints] == [False, False], query


async def test_the_range_and_the_number_of_checkpoints_are_limited(client, writer, target):
    await writer.write(observation(target, job([completed(n) for n in range(1, 6)])))
    since, until = (completed(n).header.triggered_at.isoformat().replace("+00:00", "Z") for n in (2, 4))

    assert [c.checkpoint_id for c in (await _matrix(client, f"?from={since}&to={until}")).checkpoints] == [2, 3]
    assert [c.checkpoint_id for c in (await _matrix(client, "?limit=2")).checkpoints] == [4, 5]


async def test_a_job_without_checkpoints_has_an_empty_matrix(client, writer, target):
    await writer.write(observation(target, job([])))

    found = await _matrix(client)

    assert (found.checkpoints, found.vertices, found.rows, found.values) == ([], [], [], [])


async def test_unknown_jobs_and_vertices_and_measures_are_refused(client, writer, target):
    await writer.write(observation(target, job([completed(1)])))
    path = await _path(client)

    assert (await client.get("/api/v1/jobs/j0/subtask-matrix")).status_code == 404
    answer = await client.get(f"{path}?vertex=nothing")
    assert (answer.status_code, answer.json()["detail"]) == (404, "no vertex 'nothing'")
    assert (await client.get(f"{path}?measure=heat")).status_code == 422
    assert (await client.get(f"{path}?limit=501")).status_code == 422


async def test_a_vertex_of_the_graph_without_values_in_the_range_has_no_columns(client, writer, target):
    await writer.write(observation(target, job([completed(1)])))

    found = await _matrix(client, f"?vertex={SINK}&to=2020-01-01T00:00:00Z")

    assert (found.checkpoints, found.values) == ([], [])
