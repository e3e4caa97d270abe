"""The checkpoint from which a run was restored: found in the store by its location, and linked by the API."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event, text

from backend.domain.checkpoint import CheckpointStatus, RestoredFrom
from backend.domain.ids import EngineRunId
from backend.domain.target import TargetOrigin
from backend.store.jobs.restored import taken_by
from backend.store.postgres.connections import reading, writing
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import CONFIG, NOW, completed, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio
_RUN = "c" * 32


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("origin", "is_found"),
    [
        (RestoredFrom(7, False, f"runtime:/{_RUN}/chk-7"), True),
        (RestoredFrom(7, True, f"runtime:/{_RUN}/savepoint-7"), True),
        (RestoredFrom(7, False, f"s3://bucket/checkpoints/{_RUN}/chk-7"), True),
        (RestoredFrom(8, False, f"runtime:/{_RUN}/chk-8"), False),
        (RestoredFrom(7, False, f"runtime:/{'d' * 32}/chk-7"), False),
        (RestoredFrom(6, False, f"runtime:/{_RUN}/chk-7"), False),
        (RestoredFrom(7, True, "s3://bucket/savepoint-3b2c1d-4f5e6a7b8c9d"), False),
        (RestoredFrom(7, False), False),
    ],
)
async def test_a_location_names_the_run_that_took_the_checkpoint(engine, writer, target, origin, is_found):
    before = replace(job([completed(7)], name="before"), engine_run_id=EngineRunId(_RUN))
    await writer.write(observation(target, before))
    async with reading(engine) as connection:
        taken = await taken_by(connection, origin)
    assert (None if taken is None else taken.job) == ("before" if is_found else None)


_ZEROS = "0" * 32
_FOLDER = f"s3://bucket/{_ZEROS}"
_ORIGIN = RestoredFrom(7, False, f"{_FOLDER}/chk-7")


def _run(name, path=None, *, status=CheckpointStatus.COMPLETED, started_at=NOW - timedelta(hours=2)):
    """Build a run of Flink's application mode with high availability, in which every job has the same id."""
    taken = completed(7)
    taken = replace(taken, header=replace(taken.header, external_path=path, status=status))
    return replace(job([taken], name=name), engine_run_id=EngineRunId(_ZEROS), started_at=started_at)


async def _taken(engine, origin, restored_at):
    async with reading(engine) as connection:
        taken = await taken_by(connection, origin, restored_at)
    return None if taken is None else taken.job


@pytest.mark.parametrize(
    ("run", "is_found"),
    [
        (_run("before", f"{_FOLDER}/chk-7"), True),
        (_run("before", f"{_FOLDER}/chk-7/"), True),
        (_run("before", f"{_FOLDER}/chk-7/_metadata"), True),
        (_run("before", f"s3:/bucket/{_ZEROS}/chk-7"), True),
        (_run("before"), True),
        (_run("before", ""), True),
        (_run("stranger", f"s3://other/{_ZEROS}/chk-7"), False),
        (_run("stranger", status=CheckpointStatus.FAILED), False),
        (_run("later", f"{_FOLDER}/chk-7", started_at=NOW + timedelta(seconds=1)), False),
        (_run("before", f"{_FOLDER}/chk-7", started_at=NOW), True),
    ],
)
async def test_a_run_took_the_checkpoint_only_if_path_and_time_agree(engine, writer, target, run, is_found):
    await writer.write(observation(target, run))
    assert await _taken(engine, _ORIGIN, NOW) == ("before" if is_found else None)


async def test_of_two_runs_with_the_same_id_and_path_none_is_named(engine, writer, target):
    new = NewTarget(url="http://other:8081", name="other", origin=TargetOrigin.API)
    second_target = (await TargetRepository(engine).add(new, at=NOW)).id
    await writer.write(observation(target, _run("before", f"{_FOLDER}/chk-7")))
    await writer.write(observation(second_target, _run("other", f"s3://other/{_ZEROS}/chk-7")))
    assert await _taken(engine, _ORIGIN, NOW) == "before"
    assert await _taken(engine, replace(_ORIGIN, location=f"s3://other/{_ZEROS}/chk-7"), NOW) == "other"
    third = _run("third", f"{_FOLDER}/chk-7", started_at=NOW - timedelta(hours=1))
    await writer.write(observation(second_target, third, at=NOW + timedelta(seconds=5)))
    assert await _taken(engine, _ORIGIN, NOW) is None


async def test_the_link_of_a_stranger_is_not_in_the_api_and_the_reported_name_stays(client, writer, target):
    path = f"{_FOLDER}/chk-7"
    stranger = _run("stranger", path, started_at=NOW - timedelta(minutes=5))
    after = job([completed(8, triggered_at=NOW + timedelta(seconds=20))], name="after")
    counts = replace(
        after.counts, restored=1, restored_at=NOW - timedelta(minutes=10), restored_from=replace(_ORIGIN, job="first")
    )
    await writer.write(observation(target, stranger, replace(after, counts=counts)))
    listed = {row["name"]: row["id"] for row in (await client.get("/api/v1/jobs")).json()["items"]}
    found = (await client.get(f"/api/v1/jobs/{listed['after']}")).json()["counts"]["restored_from"]
    assert (found["job"], found["job_id"], found["link"]) == ("first", None, None)
    moved = replace(counts, restored_at=NOW)
    later = observation(target, stranger, replace(after, counts=moved), at=NOW + timedelta(seconds=5))
    await writer.write(later)
    found = (await client.get(f"/api/v1/jobs/{listed['after']}")).json()["counts"]["restored_from"]
    assert (found["job"], found["job_id"]) == ("first", listed["stranger"]), "the engine's own word is kept"


async def test_the_job_has_the_link_of_the_checkpoint(client, writer, target):
    before = replace(job([completed(7)], name="before"), engine_run_id=EngineRunId(_RUN))
    after = job([completed(8, triggered_at=NOW + timedelta(seconds=20))], name="after")
    origin = RestoredFrom(7, False, f"runtime:/{_RUN}/chk-7", "before", "aligned checkpoint", False, ("a:keyed",))
    counts = replace(after.counts, restored=1, restored_from=origin)
    await writer.write(observation(target, before, replace(after, counts=counts)))
    listed = {row["name"]: row["id"] for row in (await client.get("/api/v1/jobs")).json()["items"]}
    found = (await client.get(f"/api/v1/jobs/{listed['after']}")).json()["counts"]["restored_from"]
    assert (found["job"], found["job_id"], found["left_out"]) == ("before", listed["before"], ["a:keyed"])
    assert (await client.get(found["link"])).json()["checkpoint_id"] == 7


@pytest.mark.parametrize(
    ("is_off", "name", "is_consistent"), [(False, "an at-least-once", False), (True, "an aligned", None)]
)
async def test_a_checkpoint_is_named_at_least_once_only_if_the_job_takes_checkpoints(
    client, writer, target, is_off, name, is_consistent
):
    config = replace(CONFIG, mode="at_least_once", is_off=is_off)
    await writer.write(observation(target, replace(job([completed(7)]), config=config)))
    (row,) = (await client.get("/api/v1/jobs")).json()["items"]
    found = await client.get(f"/api/v1/jobs/{row['id']}/runs/{row['run_id']}/checkpoints/7")
    restoring = found.json()["restoring"]

    assert restoring["sentence"].startswith(f"It is {name} checkpoint")
    assert restoring["is_consistent_for_queries"] is is_consistent


async def _multiplied(engine, runs, checkpoints):
    """Copy the only job, run and checkpoint: to ``runs`` of each, with ``checkpoints`` in each copied run."""
    path = f"'s3://bucket-' || n || '/{_ZEROS}/chk-' || m"
    changed = {
        "jobs": {"id": "id || n", "name": "name || n"},
        "runs": {"id": "id || n", "job_id": "job_id || n"},
        "checkpoints": {"run_id": "run_id || n", "job_id": "job_id || n", "checkpoint_id": "m", "external_path": path},
    }
    async with writing(engine) as connection:
        for table, values in changed.items():
            listed = text("SELECT column_name FROM information_schema.columns WHERE table_name = :table")
            columns = sorted(set((await connection.execute(listed, {"table": table})).scalars()))
            copied = ", ".join(values.get(name, name) for name in columns)
            many = f"generate_series(2, {runs}) n, generate_series(1, {checkpoints if 'run_id' in values else 1}) m"
            into = f"INSERT INTO {table} ({', '.join(columns)})"
            await connection.execute(text(f"{into} SELECT {copied} FROM {table}, {many}"))
            await connection.execute(text(f"ANALYZE {table}"))


async def test_among_a_thousand_runs_with_one_id_no_stored_checkpoint_of_others_is_read(engine, writer, target):
    await writer.write(observation(target, _run("before", f"{_FOLDER}/chk-7")))
    await _multiplied(engine, runs=1000, checkpoints=20)
    asked = []
    origin = replace(_ORIGIN, location=f"s3://bucket-500/{_ZEROS}/chk-7")
    async with reading(engine) as connection:
        event.listen(connection.sync_connection, "before_cursor_execute", lambda *seen: asked.append(seen[2:4]))
        taken = await taken_by(connection, origin, NOW)
        ((statement, values),) = asked
        explained = await connection.exec_driver_sql(f"EXPLAIN (ANALYZE, TIMING OFF) {statement}", values)
        plan = "\n".join(explained.scalars())

    assert taken.job == "before500"
    assert "Seq Scan on checkpoints" not in plan
    assert "Index" in plan
