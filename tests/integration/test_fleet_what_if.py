"""What-ifs on a fleet over a real store: by job in this process, by Spark, and by the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from backend.advisor.twin.tiers.fleet import Effect
from backend.cli.app import run
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin
from backend.pipeline.cluster import Cluster
from backend.pipeline.jobs.fleet_whatif import answered, here
from backend.pipeline.session import database_options, translated
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.failing_jobs import failing_job
from tests.support.observations import SteppingClock, observation
from tests.support.twin_evidence import recorded_evidence
from tests.support.waiting import PATIENCE_S

UNALIGNED = {"mode": "unaligned"}


@pytest.fixture(scope="module")
def url(databases):
    """Yield a database with an aligned and an unaligned job, a young job and one that has ended."""
    jobs = []
    for name, recording in (("aligned", "B2"), ("unaligned", "C2")):
        found = recorded_evidence(recording)
        jobs.append((found.now, failing_job(found, name=name, run=name[0] * 32)))
    now, job = jobs[0]
    young = replace(job, name="young", engine_run_id="y" * 32, checkpoints=job.checkpoints[-2:])
    ended = replace(job, state=JobState.ENDED)
    jobs += [(now, young), (now, replace(ended, name="ended", engine_run_id="e" * 32))]
    # A job whose run of before has ended, and whose new run has no checkpoint yet.
    fresh = replace(job, name="again", engine_run_id="n" * 32, checkpoints=(), pressure=(), started_at=now)
    jobs += [(now, replace(ended, name="again", engine_run_id="o" * 32)), (now, fresh)]
    with databases.migrated() as url:
        asyncio.run(_write(url, jobs))
        yield url


async def _write(url, jobs):
    clock = SteppingClock(jobs[0][0])
    engine = create_store_engine(url)
    try:
        added = await TargetRepository(engine).add(
            NewTarget(url="http://127.0.0.1:18051", name="one", origin=TargetOrigin.API), at=clock.at
        )
        for at, one in jobs:
            clock.at = at
            told = replace(observation(added.id, one, at=at), engine_version="1.20.5")
            await IngestWriter(engine, clock=clock).write(told)
    finally:
        await engine.dispose()


def test_each_running_job_is_predicted_and_spark_predicts_the_same(url, spark_session):
    steps = []
    found = here(url, UNALIGNED, lambda *step: steps.append(step))
    by_name = {job.name: answer for job, answer in found}

    assert sorted(by_name) == ["again", "aligned", "unaligned", "young"]
    assert by_name["aligned"].effect is Effect.QUICKER, by_name["aligned"]
    assert by_name["aligned"].error_ratio is not None
    assert by_name["unaligned"].effect is Effect.NOTHING
    assert by_name["young"].effect is Effect.UNKNOWN
    assert "checkpoints" in by_name["young"].problem
    assert "no checkpoint of its present run has ended" in by_name["again"].problem
    assert (steps[0], steps[-1]) == ((0, 4), (4, 4))

    with translated(), database_options(url, Cluster()) as database:
        by_spark = answered(spark_session, database, [job for job, _ in found], UNALIGNED, 2)
    assert by_spark == {job.id: answer for job, answer in found}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no setting would change"),
        (["--set", "colour=red"], "--set.colour: is not a setting"),
        (["--set", "intervall=5 s"], "interval"),
        (["--set", "interval"], "--set"),
        (["--set", "mode=aligned", "--set", "mode=unaligned"], "mode is set twice"),
    ],
)
def test_bad_input_is_refused_in_one_line_before_any_job_is_read(arguments, words, capsys):
    code = run(["pipeline", "whatif", *arguments])
    assert code in (1, 2)
    told = capsys.readouterr().err.strip()
    assert words in told
    assert "\n" not in told


def test_the_command_prints_a_table_and_a_document(url, monkeypatch, capsys):
    monkeypatch.setattr(
        "backend.pipeline.jobs.fleet_whatif.on_spark",
        lambda url, settings, runtime, cluster, on_progress: here(url, settings, on_progress),
    )
    arguments = ["pipeline", "whatif", "--set", "mode=unaligned", "--database-url", url]
    assert run(arguments) == 0
    told = capsys.readouterr().out
    assert told.startswith("mode=unaligned on 4 running jobs")
    assert "     1  quicker" in told

    assert run([*arguments, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["effects"]["quicker"], found["effects"]["unknown"]) == (1, 2)
    assert found["jobs"][0]["job"] == "aligned"


@pytest.mark.slow
def test_the_command_predicts_a_fleet_on_a_spark_of_its_own(url):
    command = [sys.executable, "-m", "backend.cli", "pipeline", "whatif", "--set", "mode=unaligned"]
    given = ["--database-url", url, "--format", "json"]
    done = subprocess.run([*command, *given], capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    in_process = {job.name: answer for job, answer in here(url, UNALIGNED)}
    assert {job["job"]: job["effect"] for job in found["jobs"]} == {n: a.effect.value for n, a in in_process.items()}
    assert {job["tier"] for job in found["jobs"] if job["tier"]} == {"fast"}
