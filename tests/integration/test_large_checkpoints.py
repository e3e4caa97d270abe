"""A checkpoint with many subtasks is shown by its slowest ones; the others come in columns, by vertex and in parts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.contracts import api
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.subtasks import CheckpointSubtasksOut
from backend.services import presenting
from backend.services.checkpoints import document_subtasks, reader, reconstruction, subtasks
from backend.services.jobs import bounded_pressure, large_jobs
from backend.store.postgres.connections import reading
from dashboard.subtask_columns import completed, left_out_count
from tests.support import observations as made
from tests.support.observations import PARALLELISM, SINK, SOURCE, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(engine, clock, writer, target):
    seen = job([made.completed(n) for n in (1, 2, 3)])
    read = tuple(made.pressure(v, clock.at) for v in (SOURCE, SINK))
    await writer.write(observation(target, replace(seen, pressure=read), at=clock.at))
    async with asking(api_over(engine, clock)) as asked:
        yield asked


async def _link(client):
    (row,) = (await client.get("/api/v1/jobs")).json()["items"]
    return (await client.get(f"/api/v1/jobs/{row['id']}/checkpoints/latest")).json()["link"]


async def _detail(client, link):
    answer = await client.get(link)
    assert answer.status_code == 200, answer.text
    return api.CheckpointDetailOut.model_validate_json(answer.content)


async def test_a_small_checkpoint_has_all_its_subtasks_in_its_document(client):
    found = await _detail(client, await _link(client))

    assert [len(v.subtasks) for v in found.vertices] == [PARALLELISM, PARALLELISM]
    assert left_out_count(found) == 0


async def test_the_document_of_a_large_checkpoint_has_the_slowest_subtasks_and_the_columns_have_all(
    client, monkeypatch
):
    link = await _link(client)
    whole = await _detail(client, link)
    monkeypatch.setattr(document_subtasks, "INLINE_MAX", 5)
    monkeypatch.setattr(document_subtasks, "_SHOWN_MAX", 2)

    found = await _detail(client, link)
    assert [[s.subtask for s in v.subtasks] for v in found.vertices] == [[v.slowest_subtask] for v in whole.vertices]
    assert [v.subtask_count for v in found.vertices] == [PARALLELISM, PARALLELISM]
    assert left_out_count(found) == 2 * PARALLELISM - 2

    answer = await client.get(f"{link}/subtasks")
    columns = CheckpointSubtasksOut.model_validate_json(answer.content)
    assert completed(found, columns) == whole


async def test_the_columns_come_by_vertex_and_in_parts(client):
    link = await _link(client)
    answer = await client.get(f"{link}/subtasks", params={"vertex": SINK, "first": 1, "limit": 1})
    (vertex,) = CheckpointSubtasksOut.model_validate_json(answer.content).vertices

    assert (vertex.vertex_id, vertex.first, vertex.count, vertex.subtask_count) == (SINK, 1, 1, PARALLELISM)
    assert vertex.columns["host"] == ["host-1"]
    assert (await client.get(f"{link}/subtasks", params={"vertex": "nobody"})).status_code == 404


async def test_what_is_too_large_for_one_answer_is_refused_with_the_cure(client, monkeypatch):
    link = await _link(client)
    monkeypatch.setattr(subtasks, "COLUMNS_MAX", 5)
    monkeypatch.setattr(reconstruction, "EVENTS_MAX", 20)

    for path, cure in (("subtasks", "vertex"), ("barriers", "name one vertex")):
        answer = await client.get(f"{link}/{path}")
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:barrierscope:problem:answer-too-large")
        assert cure in answer.json()["detail"]
        assert (await client.get(f"{link}/{path}", params={"vertex": SINK})).status_code == 200


async def test_a_checkpoint_beyond_the_limit_is_not_read_as_a_whole_but_by_vertex(client, monkeypatch):
    link = await _link(client)
    monkeypatch.setattr(reader, "SUBTASKS_MAX", 5)
    monkeypatch.setattr(large_jobs, "SUBTASKS_MAX", 5)

    for path in ("", "/subtasks", "/barriers", "/space-time"):
        answer = await client.get(link + path)
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:barrierscope:problem:checkpoint-too-large")
        assert "/subtasks?vertex=ID" in answer.json()["detail"]
    assert (await client.get(f"{link}/subtasks", params={"vertex": SINK})).status_code == 200
    assert (await client.get(f"{link}/verdict")).status_code == 200


async def test_a_large_job_has_the_hosts_of_the_named_vertex_and_the_highest_values_of_each(client, monkeypatch):
    monkeypatch.setattr(presenting, "PLACED_MAX", 5)
    monkeypatch.setattr(bounded_pressure, "WHOLE_MAX", 5)
    (row,) = (await client.get("/api/v1/jobs")).json()["items"]
    root = f"/api/v1/jobs/{row['id']}"

    graph = (await client.get(root)).json()["vertices"]
    named = (await client.get(root, params={"vertex": SINK})).json()["vertices"]
    assert [len(v["hosts"]) for v in graph] == [0, 0]
    assert [len(v["hosts"]) for v in named] == [0, PARALLELISM]

    answer = await client.get(f"{root}/backpressure")
    for vertex in BackpressureOut.model_validate_json(answer.content).vertices:
        assert 2 in vertex.subtasks
        assert max(v for v in vertex.backpressured_ratio if v is not None) == 0.25
        assert len(vertex.subtasks) < PARALLELISM or vertex.subtasks == [0, 1, 2]
    answer = await client.get(f"{root}/backpressure", params={"vertex": SINK})
    (vertex,) = BackpressureOut.model_validate_json(answer.content).vertices
    assert (vertex.subtasks, len(vertex.busy_ratio)) == ([], PARALLELISM)


@pytest.mark.parametrize(("subtasks", "count"), [(PARALLELISM * 2 * 3, 3), (PARALLELISM * 2 * 2, 2), (1, 1)])
async def test_of_a_large_job_only_the_newest_readings_of_a_time_are_read(
    engine, clock, writer, target, monkeypatch, subtasks, count
):
    """Goal: what-if of a job with 100,000 subtasks does not read half an hour of their readings at once.

    Method: three readings of two vertices, and limits on the subtasks that are read of a job that counts as large.
    """
    first = clock.at
    for second in (0, 10, 20):
        clock.at = first + timedelta(seconds=second)
        read = tuple(made.pressure(v, clock.at) for v in (SOURCE, SINK))
        await writer.write(observation(target, replace(job([made.completed(1)]), pressure=read), at=clock.at))
    monkeypatch.setattr(large_jobs, "SUBTASKS_MAX", subtasks)
    async with reading(engine) as connection:
        run_id = (await connection.execute(text("SELECT id FROM runs"))).scalar_one()
        until = clock.at + timedelta(seconds=1)
        whole = await large_jobs.read_between(connection, run_id, first, until, is_large=False)
        bounded = await large_jobs.read_between(connection, run_id, first, until, is_large=True)

    assert len({r.observed_at for r in whole}) == 3
    assert sorted({r.observed_at for r in bounded}) == sorted({r.observed_at for r in whole})[-count:]
