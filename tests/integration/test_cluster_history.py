"""What Kubernetes says of clusters is in the history of the jobs it concerns, each happening once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from backend.domain.cluster_history import Happening, News, snapshot_of, state_of
from backend.domain.declared_target import DeclaredTarget
from backend.domain.discovery import Found
from backend.domain.pod_ends import PodEnd, PodEndReason
from backend.store.jobs.cluster_history import ClusterHistory
from backend.store.postgres.connections import writing
from backend.store.retention import apply_retention
from backend.store.schema.partitions import Retention
from backend.store.targets.declared import DeclaredTargets
from collectors.discovery.section import SectionKeeper
from tests.support.kubernetes_server import flink_deployment, reconciled, snapshot
from tests.support.observations import NOW, completed, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

DEPLOYMENT = "eu-1/flink/payments"
AT_MS = int(NOW.timestamp() * 1000) - 60_000


@pytest.fixture
async def cluster(engine):
    labels = {"deployment": DEPLOYMENT, "namespace": "flink"}
    target = DeclaredTarget("http://payments-rest.flink.svc:8081", "flink/payments", labels=labels)
    await DeclaredTargets(engine).apply(Found((target,)).declared("t/eu"), place="Kubernetes", at=NOW)
    return target.id


@pytest.fixture
def history(engine):
    return ClusterHistory(engine)


def deployed(image, at_ms=AT_MS, **job_status):
    spec = {"image": image, "job": {"parallelism": 2, "upgradeMode": "savepoint"}}
    status = reconciled(at_ms, spec) | {"jobStatus": {"jobId": "a" * 32} | job_status}
    return News(DEPLOYMENT, state_of(flink_deployment("payments", status=status)))


async def events(engine, clock, job_name="orders"):
    async with asking(api_over(engine, clock)) as client:
        jobs = {row["name"]: row["id"] for row in (await client.get("/api/v1/jobs")).json()["items"]}
        notes = (await client.get(f"/api/v1/jobs/{jobs[job_name]}/annotations")).json()["items"]
        return notes, (await client.get(f"/api/v1/jobs/{jobs[job_name]}/events")).json()["items"]


async def texts(engine, clock, job_name="orders"):
    return [note["text"] for note in (await events(engine, clock, job_name))[0]]


async def test_an_upgrade_is_one_annotation_though_two_collectors_and_a_restart_see_it(
    engine, clock, writer, cluster, history
):
    await writer.write(observation(cluster, job([completed(1)])))
    new = deployed("job:2", AT_MS + 1_000, upgradeSavepointPath="s3://b/savepoint-1")
    assert await history.note([deployed("job:1")], at=NOW) == []
    assert await texts(engine, clock) == []

    await asyncio.gather(*(ClusterHistory(engine).note([new], at=NOW) for _ in range(4)))
    # A collector that starts anew sees the present state, and a slow one an older state.
    for seen in (new, deployed("job:1"), new):
        await history.note([seen], at=NOW)

    (note,), _ = await events(engine, clock)
    assert note["text"] == "Upgraded by the operator: image job:1 to job:2, from savepoint s3://b/savepoint-1"
    assert (note["tags"], note["author"]) == (["kubernetes", "upgrade"], "Kubernetes")
    assert datetime.fromisoformat(note["at"]) == datetime.fromtimestamp((AT_MS + 1_000) / 1000, UTC)


async def test_an_upgrade_while_no_collector_ran_is_seen_by_the_next_one(engine, clock, writer, cluster):
    await writer.write(observation(cluster, job([completed(1)])))
    await ClusterHistory(engine).note([deployed("job:1")], at=NOW)
    await ClusterHistory(engine).note([deployed("job:3", AT_MS + 9_000)], at=NOW + timedelta(hours=9))

    assert await texts(engine, clock) == ["Upgraded by the operator: image job:1 to job:3"]


async def test_a_snapshot_waits_for_its_job_and_does_not_come_back_once_it_is_deleted(
    engine, clock, writer, cluster, history
):
    news = [News(DEPLOYMENT, snapshot_of(snapshot("s", "payments")))]
    assert await history.note(news, at=NOW) == news
    await writer.write(observation(cluster, job([completed(1)])))
    assert await history.note(news, at=NOW) == []
    (note,), _ = await events(engine, clock)
    assert note["text"] == "Savepoint s completed: s3://bucket/savepoint-1"

    async with asking(api_over(engine, clock)) as client:
        assert (await client.delete(f"/api/v1/jobs/{note['job_id']}/annotations/{note['id']}")).status_code == 204
    await history.note(news, at=NOW)
    assert await texts(engine, clock) == []


async def test_what_happened_to_one_job_of_a_session_cluster_is_not_on_its_neighbours(
    engine, clock, writer, cluster, history
):
    await writer.write(observation(cluster, job([completed(1)]), job([completed(1)], name="clicks", run="b" * 32)))
    await history.note([News(DEPLOYMENT, Happening("k", NOW, "of clicks", "snapshot", ("b" * 32,)))], at=NOW)
    await history.note([News(DEPLOYMENT, Happening("l", NOW, "of all", "upgrade"))], at=NOW)
    await history.note([News("eu-1/flink/other", Happening("m", NOW, "of others", "upgrade"))], at=NOW)

    assert await texts(engine, clock) == ["of all"]
    assert sorted(await texts(engine, clock, "clicks")) == ["of all", "of clicks"]


async def test_a_happening_waits_until_the_run_that_it_names_is_stored(engine, clock, writer, cluster, history):
    await writer.write(observation(cluster, job([completed(1)])))
    news = [News(DEPLOYMENT, Happening("k", NOW, "of clicks", "snapshot", ("b" * 32,)))]
    assert await history.note(news, at=NOW) == news

    await writer.write(observation(cluster, job([completed(1)], name="clicks", run="b" * 32)))
    assert await history.note(news, at=NOW) == []
    assert await texts(engine, clock, "clicks") == ["of clicks"]


async def test_an_upgrade_waits_for_the_job_that_it_concerns_but_not_for_ever(engine, clock, writer, cluster, history):
    soon, late = [deployed("job:2", AT_MS + 1_000)], [deployed("job:3", AT_MS + 2_000)]
    assert await history.note([deployed("job:1")], at=NOW) == []
    assert await history.note(soon, at=NOW) == soon
    await writer.write(observation(cluster, job([completed(1)])))
    # A collector that starts anew sees only the present state.
    assert await ClusterHistory(engine).note(soon, at=NOW) == []
    assert await texts(engine, clock) == ["Upgraded by the operator: image job:1 to job:2"]

    other = [News("eu-1/flink/other", one.what) for one in late]
    assert await history.note(other, at=NOW + timedelta(hours=1)) == []
    assert await history.note(late, at=NOW + timedelta(hours=1)) == []
    assert await texts(engine, clock) == ["Upgraded by the operator: image job:1 to job:2"]


async def test_the_time_of_kubernetes_is_that_of_the_engine_and_not_of_our_clock(
    engine, clock, writer, cluster, history
):
    await writer.write(replace(observation(cluster, job([completed(1)])), clock_offset_ms=120_000))
    await history.note([News(DEPLOYMENT, Happening("k", NOW, "x", "upgrade"))], at=NOW)

    async with engine.connect() as connection:
        (row,) = await connection.execute(text("SELECT at, at_engine FROM annotations"))
    assert tuple(row) == (NOW - timedelta(minutes=2), NOW)


async def test_annotations_of_kubernetes_take_no_room_from_those_of_people_and_the_newest_ones_stay(
    engine, clock, writer, cluster, history, monkeypatch
):
    monkeypatch.setattr("backend.store.jobs.annotations._SNAPSHOTS_MAX", 2)
    monkeypatch.setattr("backend.services.jobs.annotations.STORED_MAX", 3)
    await writer.write(observation(cluster, job([completed(1)])))
    await history.note([News(DEPLOYMENT, Happening("u", NOW, "upgrade", "upgrade"))], at=NOW)
    for n in (3, 1, 2, 0):
        at = NOW + timedelta(seconds=n)
        await history.note([News(DEPLOYMENT, Happening(f"s{n}", at, f"snapshot {n}", "snapshot"))], at=NOW)
    assert sorted(await texts(engine, clock)) == ["snapshot 2", "snapshot 3", "upgrade"]

    async with asking(api_over(engine, clock)) as client:
        (row,) = (await client.get("/api/v1/jobs")).json()["items"]
        posted = await client.post(f"/api/v1/jobs/{row['id']}/annotations", json={"text": "by a person"})
    assert posted.status_code == 201


async def test_the_end_of_a_pod_is_an_event_of_the_runs_of_its_time(engine, clock, writer, cluster, history):
    await writer.write(replace(observation(cluster, job([completed(1)])), clock_offset_ms=2_500))
    end = PodEnd(NOW, "flink", "payments", "payments-taskmanager-1-1", PodEndReason.OUT_OF_MEMORY, "10.1.2.3")
    early = PodEnd(NOW - timedelta(days=3), "flink", "payments", "before", PodEndReason.OUT_OF_MEMORY)
    for _ in range(2):
        assert await history.note([News(DEPLOYMENT, end), News(DEPLOYMENT, early)], at=NOW) == []

    _, listed = await events(engine, clock)
    ended = [event for event in listed if event["kind"] == "pod-ended"]
    assert [event["text"] for event in ended] == [end.text]
    # The node of the pod has the time of the engine. Only the collector's clock differs.
    assert datetime.fromisoformat(ended[0]["at"]) == NOW


async def test_the_end_of_a_pod_of_blue_is_not_an_event_of_the_run_of_green(engine, clock, writer, history):
    url = "http://payments-{}-rest.flink.svc:8081"
    blue, green = (
        DeclaredTarget(url.format(c), f"flink/payments-{c}", labels={"deployment": DEPLOYMENT})
        for c in ("blue", "green")
    )
    await DeclaredTargets(engine).apply(Found((blue, green)).declared("t/eu"), place="Kubernetes", at=NOW)
    await writer.write(observation(blue.id, job([completed(1)])))
    await writer.write(observation(green.id, job([completed(1)], run="b" * 32)))
    end = PodEnd(NOW, "flink", "payments-blue", "payments-blue-taskmanager-1-1", PodEndReason.OUT_OF_MEMORY)
    await history.note([News(DEPLOYMENT, end, blue.url)], at=NOW)

    query = text(
        "SELECT targets.name FROM job_events JOIN runs ON runs.id = job_events.run_id"
        " JOIN targets ON targets.id = runs.target_id WHERE job_events.kind = 'pod-ended'"
    )
    async with engine.connect() as connection:
        assert list(await connection.scalars(query)) == [blue.name]


async def test_the_verdict_of_a_job_that_restarts_names_the_pod_that_was_killed(
    engine, clock, writer, cluster, history
):
    lost = "TaskManager with id payments-taskmanager-1-1(10.1.2.3:6122) is no longer reachable."
    exceptions = tuple((NOW - timedelta(seconds=s), f"{lost} {s}") for s in (90, 60, 30))
    failing = replace(job([completed(n) for n in range(1, 9)]), exceptions=exceptions, restart_count=3)
    await writer.write(observation(cluster, failing))
    clock.at = NOW

    async def sentence():
        async with asking(api_over(engine, clock)) as client:
            (row,) = (await client.get("/api/v1/jobs")).json()["items"]
            return (await client.get(f"/api/v1/jobs/{row['id']}/verdict")).json()["verdict"]["sentence"]

    assert "OOMKilled" not in await sentence()
    for s in (91, 61, 31):
        at = NOW - timedelta(seconds=s + 1)
        pod = PodEnd(at, "flink", "payments", "payments-taskmanager-1-1", PodEndReason.OUT_OF_MEMORY, "10.1.2.3")
        await history.note([News(DEPLOYMENT, pod)], at=NOW)

    # The finding that was stored before is made again.
    assert "used more memory than its limit (OOMKilled): payments-taskmanager-1-1" in await sentence()


async def test_the_keeper_of_a_section_stores_news_and_tries_those_without_a_job_again(
    engine, clock, writer, cluster, history
):
    keeper = SectionKeeper("t/eu", "p", DeclaredTargets(engine), clock=clock, pause=None, history=history)
    keeper.happened([News(DEPLOYMENT, Happening(f"k{n}", NOW, f"n{n}", "upgrade")) for n in range(700)])
    for _ in range(3):
        await keeper.look()
    await writer.write(observation(cluster, job([completed(1)])))
    for _ in range(3):
        clock.at += timedelta(seconds=11)
        await keeper.look()

    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM annotations")) == 700


async def test_what_is_kept_to_recognise_happenings_is_dropped_with_the_annotations(
    engine, clock, writer, cluster, history
):
    await writer.write(observation(cluster, job([completed(1)])))
    happening = News(DEPLOYMENT, Happening("k", NOW, "x", "upgrade"))
    await history.note([deployed("job:1"), happening], at=NOW)
    counts = text("SELECT (SELECT count(*) FROM cluster_states), (SELECT count(*) FROM cluster_happenings)")
    async with writing(engine) as connection:
        assert tuple((await connection.execute(counts)).one()) == (1, 1)
    await apply_retention(engine, Retention(), NOW + timedelta(days=1000))
    async with writing(engine) as connection:
        assert tuple((await connection.execute(counts)).one()) == (0, 0)
