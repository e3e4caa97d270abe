"""A checkpoint folder through the store and the API: it belongs to the job of its query. The newest reading counts."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta

import pytest

from backend.contracts.api import JobDetailOut, JobOut, Page
from backend.domain.engines import SPARK, SPARK_CHECKPOINT, SPARK_HISTORY
from backend.domain.ids import EngineRunId
from backend.domain.micro_batch import BatchState, MicroBatch, OperatorState
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin
from backend.store.targets.targets import NewTarget, TargetRepository
from collectors.spark.checkpoint_collector import files_of
from collectors.spark.checkpoint_folder import read_folder
from tests.support.observations import NOW, completed, job, observation
from tests.support.serving import api_over, asking
from tests.support.spark_checkpoints import QUERY, MadeCheckpoint

pytestmark = pytest.mark.anyio
OTHER = "0b0b0b0b-0000-4000-8000-000000000000"
RUN = "0c0c0c0c-0000-4000-8000-000000000000"
STATE = BatchState(
    row_count=12,
    by_operator=(OperatorState("stateStoreSave", row_count=5, removed_row_count=0), OperatorState(row_count=7)),
)


def broken(minute):
    """Return the evidence that a file is broken, from a reading at ``minute`` after ``NOW``."""
    read_at = f"{NOW + timedelta(minutes=minute):%Y-%m-%d %H:%M} UTC"
    return [f"the checkpoint folder: offsets/3 is broken: Spark cannot read it (folder read at {read_at})"]


class Store:
    """A store with queries that are read, and with their checkpoint folders."""

    def __init__(self, engine, writer, clock):
        self.engine, self.writer, self.clock = engine, writer, clock

    async def target(self, url, origin=TargetOrigin.CONFIGURATION):
        self.clock.at = NOW
        new = NewTarget(url=url, name=url.rpartition("/")[2], origin=origin, labels={}, kind="spark")
        return (await TargetRepository(self.engine).get_or_add(new, at=NOW)).id

    async def query(self, query_id, *, engine=SPARK_HISTORY, run=RUN, state=JobState.RUNNING):
        target = await self.target(f"http://{query_id[:4]}:18080", TargetOrigin.API)
        batch = replace(completed(6), details=(), batch=MicroBatch(state=STATE))
        ended_at = NOW if state is JobState.ENDED else None
        run_id = EngineRunId(f"{query_id}/{run}" if run else query_id)
        seen = replace(job([batch]), engine_run_id=run_id, name=query_id[:4], state=state, ended_at=ended_at)
        await self.writer.write(replace(observation(target, seen), engine=engine, engine_version="4.3.0"))

    async def folder(self, made, *, after=timedelta(0), name="orders"):
        target = await self.target(f"file:///srv/{name}")
        self.clock.at = NOW + after
        found = files_of(read_folder(str(made.path)))
        await self.writer.write(
            replace(observation(target), jobs=(), engine=SPARK_CHECKPOINT, observed_at=NOW + after, folder=found)
        )
        return target, found


@pytest.fixture
async def stored(engine, writer, clock):
    return Store(engine, writer, clock)


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.fixture
def made(tmp_path):
    found = MadeCheckpoint(tmp_path / "orders").run(range(7))
    found.state("0/0/7.delta", 30)
    found.write("sources/0/5.compact", b"x")
    return found


async def details(client):
    """Return the jobs by name."""
    listed = Page[JobOut].model_validate_json((await client.get("/api/v1/jobs")).content).items
    answers = [await client.get(f"/api/v1/jobs/{row.id}") for row in listed]
    found = [JobDetailOut.model_validate_json(answer.content) for answer in answers]
    return {job.name: job for job in found}


def said(jobs, query_id):
    """Return what the verdict on the job of a query says of its folder."""
    return [row.statement for row in jobs[query_id[:4]].verdict.evidence if "folder" in row.statement]


async def test_a_folder_belongs_to_the_job_of_its_query_only(client, stored, made):
    await stored.query(QUERY)
    await stored.query(OTHER)
    target, expected = await stored.folder(made)

    jobs = await details(client)

    assert len(jobs) == 2
    assert jobs[OTHER[:4]].folders == []
    (shown,) = jobs[QUERY[:4]].folders
    assert (shown.target_id, shown.target_name, shown.url) == (target, "orders", "file:///srv/orders")
    assert shown.observed_at == NOW
    values = {name: value for name, value in asdict(expected).items() if not isinstance(value, tuple)}
    assert shown.model_dump(include=set(values)) == values
    assert [log.model_dump() for log in shown.source_logs] == [asdict(log) for log in expected.source_logs] != []
    assert [b.number for b in shown.batches] == [b.number for b in expected.batches]
    assert shown.operators[0].partitions[0].size_bytes == 30


async def test_the_folder_makes_no_job_and_a_second_poll_without_a_reading_keeps_it(client, stored, made, writer):
    target, _ = await stored.folder(made)
    await stored.query(QUERY)
    await writer.write(replace(observation(target), jobs=(), engine=SPARK_CHECKPOINT))
    (only,) = (await details(client)).values()
    assert (only.name, len(only.folders)) == (QUERY[:4], 1)


async def test_the_newest_reading_counts_in_any_order(client, stored, made):
    await stored.query(QUERY)
    await stored.folder(made)
    made.run(range(7, 9))
    await stored.folder(made, after=timedelta(seconds=30))
    made.run(range(9, 12))
    await stored.folder(made, after=timedelta(seconds=10))

    (shown,) = (await details(client))[QUERY[:4]].folders

    assert (shown.commits_count, shown.observed_at) == (9, NOW + timedelta(seconds=30))


async def test_copies_of_a_folder_are_all_shown_and_a_removed_target_is_not(client, stored, made, engine):
    await stored.query(QUERY)
    await stored.folder(made)
    removed, _ = await stored.folder(made, name="copy")
    assert [f.target_name for f in (await details(client))[QUERY[:4]].folders] == ["copy", "orders"]
    await TargetRepository(engine).remove(removed, at=NOW)
    assert [f.target_name for f in (await details(client))[QUERY[:4]].folders] == ["orders"]


async def test_a_text_that_cannot_be_stored_does_not_stop_the_writer(client, stored, made):
    await stored.query(QUERY)
    text = (made.path / "offsets/6").read_text().rpartition("\n")[0]
    made.write("offsets/6", f"{text}\na\0b")
    await stored.folder(made)
    assert (await details(client))[QUERY[:4]].folders[0].batches[-1].offsets == ["a\ufffdb"]


@pytest.mark.parametrize("channel", [SPARK, SPARK_HISTORY])
async def test_the_state_of_each_operator_is_read_back(client, stored, channel):
    await stored.query(QUERY, engine=channel)

    (batch,) = (await details(client))[QUERY[:4]].batches

    assert [(o.name, o.row_count, o.removed_row_count) for o in batch.state.by_operator] == [
        ("stateStoreSave", 5, 0), (None, 7, None)
    ]  # fmt: skip


async def test_a_new_reading_of_the_folder_is_evidence_of_the_verdict_and_an_old_one_is_not(client, stored, made):
    made.path.joinpath("offsets/7").unlink(missing_ok=True)
    made.write("offsets/3", "v1\nno json")
    await stored.folder(made)
    await stored.query(QUERY)
    await stored.query(OTHER)
    new = await details(client)
    stored.clock.at = NOW + timedelta(minutes=59)
    kept = await details(client)
    stored.clock.at = NOW + timedelta(minutes=66)
    old = await details(client)

    assert said(new, QUERY) == said(kept, QUERY) == broken(0)
    assert said(new, OTHER) == []
    assert said(old, QUERY) == []


async def test_the_verdict_on_an_ended_run_follows_the_folder(client, stored, made, engine):
    await stored.query(QUERY, state=JobState.ENDED)
    before = await details(client)
    sound = (made.path / "offsets/3").read_text()
    made.write("offsets/3", "v1\nno json")
    await stored.folder(made, after=timedelta(seconds=10))
    new = await details(client)
    made.write("offsets/3", sound)
    await stored.folder(made, after=timedelta(minutes=6))
    mended = await details(client)
    made.write("offsets/3", "v1\nno json")
    await stored.folder(made, after=timedelta(minutes=12))
    newer = await details(client)
    stored.clock.at = NOW + timedelta(minutes=73)
    old = await details(client)

    assert [said(jobs, QUERY) for jobs in (before, new, mended, newer, old)] == [[], broken(0), [], broken(12), []]


async def test_a_folder_whose_target_is_removed_is_no_evidence_on_an_ended_run(client, stored, made, engine):
    made.write("offsets/3", "v1\nno json")
    await stored.query(QUERY, state=JobState.ENDED)
    target, _ = await stored.folder(made)
    read = await details(client)
    await TargetRepository(engine).remove(target, at=NOW)

    assert (said(read, QUERY), said(await details(client), QUERY)) == (broken(0), [])


async def test_a_run_that_shows_no_folder_has_no_evidence_from_one(client, stored, made):
    made.write("offsets/3", "v1\nno json")
    await stored.folder(made)
    await stored.query(QUERY, run=None)
    jobs = await details(client)

    assert (jobs[QUERY[:4]].folders, said(jobs, QUERY)) == ([], [])


@pytest.mark.parametrize(("name", "rows"), [("./orders", broken(0)), ("orders/", broken(0)), ("copy", [])])
async def test_two_addresses_of_one_folder_are_no_copies(client, stored, made, name, rows):
    made.write("offsets/3", "v1\nno json")
    first, _ = await stored.folder(made)
    second, _ = await stored.folder(made, name=name)
    await stored.query(QUERY)

    assert first != second
    assert said(await details(client), QUERY) == rows
