"""The backtest over stored checkpoints: by job in this process, by Spark over the fleet, and by the command line."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from backend.backtest import report
from backend.cli.app import run
from backend.domain.backtest import Part
from backend.domain.errors import UnknownEntityError
from backend.pipeline.cluster import Cluster
from backend.pipeline.jobs.backtest import here, replayed
from backend.pipeline.session import database_options, translated
from backend.store.history_connection import open_history
from backend.store.postgres.connections import create_store_engine
from backend.store.schema.partitions import Partitions, day_of
from tests.support.many_checkpoints import insert, row

BEGIN = datetime(2026, 11, 20, 3, tzinfo=UTC)
EVERY = timedelta(minutes=2)
TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def url(databases):
    """Yield a database with a healthy job, a failing job whose timeout is raised later, and a job without details."""
    with databases.migrated() as url:
        asyncio.run(_partitions(url))
        with psycopg.connect(url) as connection:
            connection.execute(
                "INSERT INTO targets (id, name, url, origin, is_enabled, added_at)"
                " VALUES ('t', 't', 'http://t', 'api', true, now())"
            )
            for job in ("healthy", "failing", "bare"):
                _job(connection, job)
        for job, outcomes in (
            ("healthy", "c" * 30),
            ("failing", "c" * 8 + "e" * 8 + "a" + "c" * 10),
            ("bare", "c" * 6),
        ):
            insert(url, [_row(job, n, o) for n, o in enumerate(outcomes)])
            with psycopg.connect(url) as connection:
                for n, outcome in enumerate(outcomes if job != "bare" else ""):
                    _details(connection, job, n, outcome)
                    _reading(connection, job, n)
        yield url


async def _partitions(url):
    engine = create_store_engine(url)
    try:
        await Partitions(engine).ensure({day_of(BEGIN), day_of(BEGIN + timedelta(days=1))})
    finally:
        await engine.dispose()


def _job(connection, name):
    connection.execute(
        "INSERT INTO jobs (id, deployment, name, first_seen_at) VALUES (%s, 'd', %s, now())", (f"j-{name}", name)
    )
    connection.execute(
        "INSERT INTO runs (id, job_id, target_id, engine_run_id, engine, started_at, state, engine_state,"
        " first_observed_at, observed_at)"
        " VALUES (%s, %s, 't', 'e', 'flink', now(), 'running', 'RUNNING', now(), now())",
        (f"r-j-{name}", f"j-{name}"),
    )
    for since, timeout_ms in ((BEGIN - EVERY, TIMEOUT_MS), (BEGIN + 20 * EVERY, 2 * TIMEOUT_MS)):
        connection.execute(
            "INSERT INTO run_versions (run_id, kind, since, document) VALUES (%s, 'config', %s, %s)",
            (f"r-j-{name}", since, json.dumps({"timeout_ms": timeout_ms})),
        )

    graph = {
        "vertices": [{"id": v, "name": f"{v}'s", "parallelism": 2} for v in ("a", "b")],
        "edges": [{"source": "a", "target": "b", "ship_strategy": "HASH"}],
    }
    connection.execute(
        "INSERT INTO run_versions (run_id, kind, since, document) VALUES (%s, 'topology', %s, %s)",
        (f"r-j-{name}", BEGIN, json.dumps(graph)),
    )
    connection.execute(
        "INSERT INTO job_events (run_id, job_id, kind, key, at, text) VALUES (%s, %s, 'restarted', '1', %s, '')",
        (f"r-j-{name}", f"j-{name}", BEGIN + 5 * EVERY),
    )
    verdict = json.dumps({"verdict": {"kind": "capacity", "vertex_id": "b"}})
    connection.execute(
        "INSERT INTO verdicts (run_id, checkpoint_id, triggered_on, judged_at, document) VALUES (%s, 9, %s, now(), %s)",
        (f"r-j-{name}", day_of(BEGIN), verdict),
    )


def _reading(connection, job, number):
    """Write what was read of the vertices just before the end of a checkpoint: the second one is full."""
    for vertex, busy, held in (("a", [0.1], [0.9]), ("b", [0.999, 0.9971], [0.0])):
        connection.execute(
            "INSERT INTO pressure (run_id, observed_at, vertex_id, observed_on, subtask_count, busy_ratio,"
            " backpressured_ratio, idle_ratio, queued_in_bytes, asked) VALUES (%s, %s, %s, %s, 2, %s, %s, %s, %s, 39)",
            (
                f"r-j-{job}",
                BEGIN + number * EVERY + timedelta(seconds=1),
                vertex,
                day_of(BEGIN + number * EVERY),
                busy,
                held,
                [0.0],
                [70_000],
            ),
        )


def _row(job, number, outcome):
    values = {"subtask_count": 4, "acknowledged_count": 4, "end_to_end_duration_ms": 2_000}
    if outcome != "c":
        length_ms = TIMEOUT_MS if outcome == "e" else 9_000
        reason = "expired" if outcome == "e" else "task-failure"
        values |= {"acknowledged_count": 2, "end_to_end_duration_ms": length_ms, "failure_reason": reason}
    return row(f"j-{job}", number, BEGIN + number * EVERY, "completed" if outcome == "c" else "failed", **values)


def _details(connection, job, number, outcome):
    # One vertex has the stored form of equal values, and one has a value for each subtask.
    late = [1_500, 2_000] if outcome == "c" else None
    for vertex, acks in (("a", [500]), ("b", late)):
        connection.execute(
            "INSERT INTO checkpoint_details (run_id, checkpoint_id, vertex_id, triggered_on, subtask_count,"
            " ack_delay_ms) VALUES (%s, %s, %s, %s, 2, %s)",
            (f"r-j-{job}", number, vertex, day_of(BEGIN + number * EVERY), acks),
        )


def test_the_warnings_of_each_job_are_replayed_as_of_then(url):
    steps = []
    found = {job.name: result for job, result in here(url, on_progress=lambda *step: steps.append(step))}

    assert steps[0] == (0, 63)
    assert steps[-1] == (63, 63)
    healthy, failing, bare = (found[n].tally for n in ("healthy", "failing", "bare"))
    assert (healthy.checkpoint_count, healthy.predicted.page_count) == (30, 0)
    assert (failing.checkpoint_count, failing.predicted.expired_count) == (26, 8), (
        "the aborted one is only compared with"
    )
    assert (failing.predicted.caught_count, failing.predicted.page_count) == (8, 1)
    assert failing.predicted.lead_ratio > failing.plain.lead_ratio
    assert [w.is_expired for w in found["failing"].warnings][:8] == [True] * 8
    assert found["failing"].warnings[0].checkpoint_id == 8
    assert (bare.checkpoint_count, found["bare"].skipped_count) == (0, 6)


def test_the_verdict_of_each_job_is_replayed_and_compared_with_the_stored_one(url):
    found = {job.name: result.verdict for job, result in here(url, parts={Part.VERDICT})}

    episode = found["failing"].episodes[0]
    assert (episode.kind, episode.vertex, episode.vertex_id) == ("capacity", "b's", "b")
    assert episode.held_count == episode.followed_count > 0
    assert found["failing"].score.compared_count == 1
    assert found["failing"].score.checkpoint_count == 27


def test_only_the_asked_jobs_and_times_are_replayed(url):
    ((job, result),) = here(url, ["j-failing"], BEGIN + 8 * EVERY)

    assert (job.name, job.checkpoint_count) == ("failing", 19)
    assert result.tally.checkpoint_count == 18
    with pytest.raises(UnknownEntityError):
        here(url, ["failing", "missing"])


def test_a_history_knows_when_its_runs_started(url):
    with psycopg.connect(url) as connection:
        (started_at,) = connection.execute("SELECT started_at FROM runs WHERE id = 'r-j-failing'").fetchone()
    with open_history(url) as history:
        (run,) = history.of_job("j-failing").runs.values()

    assert abs(run.started_at - started_at) < timedelta(milliseconds=1)


def test_spark_gives_the_same_result_as_one_process(url, spark_session):
    with translated(), database_options(url, Cluster()) as database:
        steps = []
        with open_history(url) as history:
            jobs = history.jobs((), None)
        by_spark = replayed(spark_session, database, jobs, None, 3, lambda *step: steps.append(step))

    assert by_spark == {job.id: result for job, result in here(url)}
    assert steps[-1] == (3, 3)


def test_the_command_prints_a_table_a_document_and_writes_a_page(url, tmp_path, capsys):
    page = tmp_path / "backtest.html"
    assert run(["backtest", "--database-url", url, "--html", str(page)]) == 0
    told = capsys.readouterr().out
    assert "failing" in told
    assert "6 ended checkpoints were left out" in told
    assert "VERDICTS" in told
    assert "ADVICE" in told
    written = page.read_text()
    assert "Plotly.react" in written
    assert "http" not in written[: written.index("<script>")], "the page needs no network"

    assert run(["backtest", "--database-url", url, "--job", "failing", "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (found["job"], found["predicted"]["expired_count"]) == ("failing", 8)
    assert found["verdict"]["checkpoint_count"] == found["advice"]["checkpoint_count"] == 27
    assert found == json.loads(json.dumps(report.document([("failing", here(url, ["failing"])[0][1])])))["jobs"][0]


def test_an_instant_after_the_last_checkpoint_is_named(url, capsys):
    assert run(["backtest", "--database-url", url, "--since", "2099-01-01T00:00:00Z"]) == 0
    words = "no checkpoint triggered since 2099-01-01T00:00:00Z has ended; pass an earlier --since"
    assert capsys.readouterr().out == f"nothing to replay: {words}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--since", "yesterday"], "--since"),
        (["--job", "missing"], "missing"),
        (["--html", "/no/such/folder/page.html"], "cannot be written"),
    ],
)
def test_bad_input_is_refused_in_one_line(url, arguments, words, capsys):
    assert run(["backtest", "--database-url", url, *arguments]) in (1, 2)
    told = capsys.readouterr().err.strip()
    assert words in told
    assert "\n" not in told
