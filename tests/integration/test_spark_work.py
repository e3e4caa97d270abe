"""The Spark jobs of a micro-batch through the store and the API, and the links to Spark's own pages of it."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from sqlalchemy import text

from backend.contracts.api import CheckpointDetailOut, JobDetailOut, JobOut, Page
from backend.contracts.links import LinksOut
from backend.domain.channel import Channel
from backend.domain.engines import SPARK_DRIVER, SPARK_HISTORY
from backend.domain.ids import EngineRunId
from backend.domain.micro_batch import BatchPhase, MicroBatch
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import NOW, completed, job, observation
from tests.support.serving import api_over, asking
from tests.support.spark_work import log_lines, works_in_log

pytestmark = pytest.mark.anyio
QUERY, RUN = "0b0b0b0b-0000-4000-8000-000000000000", "0c0c0c0c-0000-4000-8000-000000000000"
ROOT = "http://spark:18080"


@pytest.fixture(scope="module")
def work():
    """The jobs of a real batch with one long task."""
    return works_in_log((0, log_lines()))["skewed", 0]


class Query:
    """A watched query, whose batches are written as a collector writes them."""

    def __init__(self, engine, writer, clock):
        self.engine, self.writer, self.clock = engine, writer, clock

    async def report(self, batches, *, of=SPARK_HISTORY, state=JobState.RUNNING, root=ROOT, name="spark"):
        self.clock.at = NOW
        new = NewTarget(url=root, name=name, origin=TargetOrigin.API, labels={})
        target = (await TargetRepository(self.engine).get_or_add(new, at=NOW)).id
        checkpoints = [replace(completed(n), details=(), batch=batch) for n, batch in batches.items()]
        seen = replace(job(checkpoints), engine_run_id=EngineRunId(f"{QUERY}/{RUN}"), state=state)
        await self.writer.write(replace(observation(target, seen), engine=of, engine_version="4.3.0"))


@pytest.fixture
async def query(engine, writer, clock):
    return Query(engine, writer, clock)


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


async def get(client, path, model):
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return model.model_validate_json(answer.content)


async def found(client):
    """Return the job's address, and its run."""
    (row,) = (await get(client, "/api/v1/jobs", Page[JobOut])).items
    detail = await get(client, f"/api/v1/jobs/{row.id}", JobDetailOut)
    return f"/api/v1/jobs/{row.id}", detail


async def batch(client, number):
    root, detail = await found(client)
    return (await get(client, f"{root}/runs/{detail.run.id}/checkpoints/{number}", CheckpointDetailOut)).batch


async def urls(client, query=""):
    root, _ = await found(client)
    return {link.name: link.url or link.reason for link in (await get(client, f"{root}/links{query}", LinksOut)).items}


async def test_every_value_of_a_batchs_jobs_is_read_back(client, query, work):
    await query.report({4: MicroBatch(work=work), 5: MicroBatch()})
    out = (await batch(client, 4)).work
    for name, value in asdict(work).items():
        if name != "stages":
            assert getattr(out, name) == (list(value) if isinstance(value, tuple) else value)
    assert len(out.stages) == len(work.stages)
    for shown, stage in zip(out.stages, work.stages, strict=True):
        assert {n: getattr(shown, n) for n in asdict(stage)} == asdict(stage)
        assert shown.task_ratio == stage.task_ratio
    assert (await batch(client, 5)).work is None
    _, detail = await found(client)
    assert [b.work is not None for b in detail.batches] == [b.checkpoint_id == 4 for b in detail.batches]


async def test_another_channel_adds_the_jobs_to_a_batch_and_changes_nothing_else(client, query, work):
    phases = ((BatchPhase.ADD_BATCH, 900),)
    await query.report({4: MicroBatch(phases_ms=phases, input_row_count=7)})
    await query.report({4: MicroBatch(work=work)})
    added = await batch(client, 4)
    assert added.work.jobs_ms == work.jobs_ms
    assert (added.input_row_count, added.phases[0].duration_ms) == (7, 900)
    await query.report({4: MicroBatch(work=replace(work, jobs_ms=1))})
    assert (await batch(client, 4)).work.jobs_ms == work.jobs_ms


async def test_the_channel_that_reported_the_jobs_is_said(client, query, work):
    await query.report({4: MicroBatch(work=work)})
    only = (await batch(client, 4)).work
    _, detail = await found(client)
    assert (only.channel, only.target_name) == (Channel.HISTORY_SERVER, None)
    assert next(b.work for b in detail.batches if b.work).channel is Channel.HISTORY_SERVER

    later = {4: MicroBatch(), 5: MicroBatch(work=work)}
    await query.report(later, of=SPARK_DRIVER, root="http://driver:4040", name="driver-1")
    kept, added = (await batch(client, 4)).work, (await batch(client, 5)).work
    assert (kept.channel, kept.target_name) == (Channel.HISTORY_SERVER, "spark")
    # This batch has one report, as have those of a run with one channel.
    assert (added.channel, added.target_name) == (Channel.DRIVER, "driver-1")


@pytest.mark.parametrize("is_remembered", [True, False])
async def test_a_verdict_is_computed_anew_when_the_jobs_of_a_batch_become_known_later(
    engine, query, writer, work, is_remembered
):
    async def asked(statement):
        async with engine.begin() as connection:
            return await connection.execute(text(statement))

    changes = []
    await query.report({4: MicroBatch(), 5: MicroBatch()})
    judge = "INSERT INTO verdicts SELECT run_id, checkpoint_id, triggered_on, now(), '{}' FROM checkpoints"
    await asked(judge)
    writer._on_commit = changes.extend
    if not is_remembered:
        writer._recent.__init__()
    before = (await asked("SELECT revision FROM runs")).scalar_one()
    await query.report({4: MicroBatch(work=work), 5: MicroBatch()})
    left = [row[0] for row in await asked("SELECT checkpoint_id FROM verdicts")]
    after = (await asked("SELECT revision FROM runs")).scalar_one()
    # What is known already changes nothing.
    await asked(judge + " WHERE checkpoint_id = 4")
    await query.report({4: MicroBatch(work=work), 5: MicroBatch()})

    assert left == [5]
    assert after > before
    assert [[h.checkpoint_id for h in c.ended] for c in changes] == [[4, 5], []]
    assert (await asked("SELECT count(*) FROM verdicts")).scalar_one() == 2
    assert (await asked("SELECT revision FROM runs")).scalar_one() == after


async def test_links_open_the_batch_at_the_history_server(client, query, work):
    await query.report({4: MicroBatch(work=work), 5: MicroBatch()})
    app = f"{ROOT}/history/{work.app_id}"
    known = "?checkpoint=4"
    assert await urls(client, known) == {
        "Spark: query": f"{app}/StreamingQuery/statistics/?id={RUN}",
        "Spark: batch": f"{app}/SQL/execution/?id={work.execution_id}",
        "Spark: job": f"{app}/jobs/job/?id={work.job_ids[0]}",
        "Spark: longest stage": f"{app}/stages/stage/?id={work.stages[0].stage_id}&attempt=0",
    }
    for other in ("", "?checkpoint=5"):
        links = await urls(client, other)
        assert links["Spark: query"] == f"{app}/StreamingQuery/statistics/?id={RUN}"
        assert links["Spark: batch"] == "no value for {execution}: no batch is chosen, or its Spark jobs are not known"


async def test_an_attempt_of_the_application_is_in_the_path_and_no_value_leaves_it(client, query, work):
    await query.report({4: MicroBatch(work=replace(work, app_id="a/../b", attempt_id="2"))})
    links = await urls(client, "?checkpoint=4")
    assert links["Spark: batch"] == f"{ROOT}/history/a%2F..%2Fb/2/SQL/execution/?id={work.execution_id}"


async def test_without_the_jobs_of_any_batch_the_history_server_has_no_link(client, query):
    await query.report({4: MicroBatch()})
    links = await urls(client, "?checkpoint=4")
    assert links["Spark: query"] == "no value for {app}: the Spark jobs of no batch of this run are known"


async def test_links_open_the_batch_at_the_driver_while_it_runs(client, query, work):
    await query.report({4: MicroBatch(work=work)}, of=SPARK_DRIVER)
    links = await urls(client, "?checkpoint=4")
    assert links["Spark: batch"] == f"{ROOT}/SQL/execution/?id={work.execution_id}"
    assert links["Spark: query"] == f"{ROOT}/StreamingQuery/statistics/?id={RUN}"


async def test_a_driver_whose_run_has_ended_has_no_pages(client, query, work):
    await query.report({4: MicroBatch(work=work)}, of=SPARK_DRIVER, state=JobState.ENDED)
    assert set((await urls(client, "?checkpoint=4")).values()) == {"the run has ended"}
