"""Found targets in the store: where they may be reached, and what a fleet with much churn costs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import pytest
from sqlalchemy import event, text

from backend.domain.address_rules import AddressRules
from backend.domain.connection import ANYWHERE, NOTHING, ConnectionOptions, Reach, parse_reference
from backend.domain.declared_target import GRACE_S, DeclaredTarget
from backend.domain.discovery import Found, KubernetesSd
from backend.domain.errors import InvalidInputError
from backend.domain.kubernetes_cluster import Kind, key_of
from backend.domain.target import TargetOrigin
from backend.services.targets.changing import reachable
from backend.store.targets.declared import DeclaredTargets
from backend.store.targets.leases import TargetLeases
from backend.store.targets.targets import TargetRepository
from collectors.discovery.flink_resources import RESOURCES, FlinkView
from collectors.discovery.kubernetes_api import Scope
from collectors.discovery.section import SectionKeeper
from tests.support.alerting import Alerting
from tests.support.kubernetes_server import flink_deployment
from tests.support.observations import NOW, completed, job, observation, restarted
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

SOURCE = "production/consul"


def cluster(n: int) -> DeclaredTarget:
    return DeclaredTarget(f"http://flink-{n}.flink.example:8081", f"flink-{n}", labels={"deployment": f"flink-{n}"})


async def test_a_found_target_obeys_the_allow_list_and_has_the_credentials_of_its_section(engine):
    found = DeclaredTarget("http://10.0.0.1:8081", "a", connection=ConnectionOptions(bearer=parse_reference("env:T")))
    await DeclaredTargets(engine).apply(Found((found,)).declared(SOURCE), place="http://sd", at=NOW)

    (row,) = await TargetLeases(engine, holder="h").take()
    assert row.origin is TargetOrigin.DISCOVERY
    limits = Reach(AddressRules(is_everything_allowed=False, allowed=("10.0.0.0/8",)), policy=NOTHING)
    reach = limits.towards(row.connection, row.origin)
    assert (reach.rules, reach.policy.is_everything_allowed) == (limits.rules, True)
    assert (await reachable(engine, limits, row.id))[1] == reach
    with pytest.raises(InvalidInputError, match="not allowed"):
        await reachable(engine, Reach(AddressRules(is_everything_allowed=False)), row.id)


async def test_1000_clusters_with_a_churn_of_50_a_minute_cost_a_few_statements_for_each_change(engine, clock):
    statements = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    keeper = SectionKeeper(SOURCE, "http://sd", DeclaredTargets(engine), clock=clock, pause=None)
    repository = TargetRepository(engine)
    alive = list(range(1000))
    keeper.found(Found(tuple(map(cluster, alive))))
    await keeper.look()
    assert len(statements) <= 12, "the first 1,000 targets are one statement"
    assert len(await repository.list_all()) == 1000
    first = {t.id for t in await repository.list_all()}

    for minute in range(1, 4):
        alive = [*alive[50:], *range(alive[-1] + 1, alive[-1] + 51)]
        clock.at += timedelta(seconds=60)
        statements.clear()
        keeper.found(Found(tuple(map(cluster, alive))))
        await keeper.look()
        assert len(statements) <= 50 + 12, minute
        for _ in range(5):
            # A list that is the same changes nothing.
            clock.at += timedelta(seconds=2)
            statements.clear()
            keeper.found(Found(tuple(map(cluster, alive))))
            await keeper.look()
            assert len(statements) <= 6

    clock.at += timedelta(seconds=GRACE_S + 1)
    await keeper.look()
    listed = await repository.list_all()
    assert {t.url for t in listed} == {cluster(n).url for n in alive}
    # Each cluster that is back is the same target as before, so it has its history.
    keeper.found(Found(tuple(map(cluster, range(1000)))))
    await keeper.look()
    assert first <= {t.id for t in await repository.list_all()}


async def test_two_sources_that_find_the_same_1000_addresses_at_the_same_moment_do_not_deadlock(engine):
    targets, found = DeclaredTargets(engine), tuple(map(cluster, range(1000)))
    sets = (Found(found).declared(SOURCE), Found(found[::-1]).declared("production/other"))

    answers = await asyncio.gather(*(targets.apply(one, place="http://sd", at=NOW) for one in sets))

    assert answers == [(), ()]
    assert {t.url for t in await TargetRepository(engine).list_all()} == {t.url for t in found}
    # The later one is told at its next look whose the targets are.
    refused = [len(await targets.apply(one, place="http://sd", at=NOW)) for one in sets]
    assert sorted(refused) == [0, 1000]


async def test_new_job_ids_and_blue_and_green_are_runs_of_one_job(engine, writer, clock):
    documents = [
        flink_deployment("payments"),
        flink_deployment("pay-blue", owner="pay"),
        flink_deployment("pay-green", owner="pay"),
    ]
    view = FlinkView(KubernetesSd("eu", "eu-1"), ANYWHERE)
    objects = {key_of(document): document for document in documents}
    kept = SimpleNamespace(scope=Scope(RESOURCES[Kind.DEPLOYMENT], "flink", ""), objects=objects)
    await DeclaredTargets(engine).apply(view.found([kept], frozenset()).declared(SOURCE), place="p", at=NOW)
    targets = {t.name: t.id for t in await TargetRepository(engine).list_all()}

    # A savepoint upgrade and a stateless one begin with another job id, and the last color is another cluster.
    for target, run in (("payments", "a"), ("payments", "b"), ("payments", "c"), ("pay-blue", "d"), ("pay-green", "e")):
        clock.at += timedelta(seconds=10)
        begun = restarted(job([completed(1)], run=run * 32), started_at=clock.at)
        await writer.write(observation(targets[f"flink/{target}"], begun, at=clock.at))

    async with engine.connect() as connection:
        rows = await connection.execute(
            text(
                "SELECT jobs.deployment, jobs.name, array_agg(left(engine_run_id, 1) ORDER BY started_at)"
                " FROM runs JOIN jobs ON jobs.id = job_id GROUP BY jobs.id, jobs.deployment, jobs.name ORDER BY 1"
            )
        )
    assert [tuple(row) for row in rows] == [
        ("eu-1/flink/pay", "orders", ["d", "e"]),
        ("eu-1/flink/payments", "orders", ["a", "b", "c"]),
    ]


async def test_the_targets_of_a_namespace_that_was_not_read_stay(engine, clock):
    def of(namespace):
        return DeclaredTarget(f"http://{namespace}:1", namespace, labels={"namespace": namespace})

    declared, repository = DeclaredTargets(engine), TargetRepository(engine)
    plain = DeclaredTarget("http://plain:1", "plain")
    for found in (Found((of("x"), of("y"), plain)), Found((of("z"),), unread=("y",))):
        await declared.apply(found.declared(SOURCE), place="p", at=clock.now())
    clock.at += timedelta(seconds=GRACE_S + 1)
    await declared.end_missing(SOURCE, grace_s=GRACE_S, at=clock.now())

    assert {t.url for t in await repository.list_all()} == {"http://y:1", "http://z:1"}


async def test_a_namespace_that_may_not_be_read_is_said_as_long_as_it_lasts_and_no_alert_fires(engine, clock):
    keeper = SectionKeeper(SOURCE, "http://sd", DeclaredTargets(engine), clock=clock, pause=None)
    sentence = "namespace other is not read: a Role and a RoleBinding in this namespace have to allow it"
    alerting = Alerting(engine, clock)
    async with asking(api_over(engine, clock)) as client:
        for _ in range(3):
            keeper.found(Found((cluster(1),), left_out=(sentence,), unread=("other",)))
            await keeper.look()
            status = (await client.get("/api/v1/status")).json()
            assert [source["left_out"] for source in status["partial_sources"]] == [sentence]
            assert status["unread_sources"] == []
            await alerting.round(seconds=60)
        alerts = (await client.get("/api/v1/alerts")).json()["items"]
        keeper.found(Found((cluster(1), cluster(2))))
        await keeper.look()
        assert (await client.get("/api/v1/status")).json()["partial_sources"] == []
    assert [alert for alert in alerts if alert["rule"] == "TargetsFileInvalid"] == []


async def test_the_new_targets_stay_though_another_collector_stored_an_older_list(engine, clock):
    declared = DeclaredTargets(engine)
    keeper = SectionKeeper(SOURCE, "http://sd", declared, clock=clock, pause=None)
    keeper.found(Found((cluster(1), cluster(2))))
    await keeper.look()
    urls = [cluster(1).url, cluster(2).url]
    assert not await declared.differs(SOURCE, urls)
    await declared.apply(Found((cluster(1),)).declared(SOURCE), place="http://sd", at=clock.now())
    assert await declared.differs(SOURCE, urls)
    clock.at += timedelta(seconds=30)
    await keeper.look()

    assert not await declared.differs(SOURCE, urls)
    assert await declared.differs("another", urls)
    assert await declared.differs(SOURCE, urls[:1])


async def test_sources_below_a_file_are_found_by_their_name_only(engine):
    declared = DeclaredTargets(engine)
    for source in ("a/x", "a/y", "ab/x", "a"):
        await declared.apply(Found().declared(source), place="p", at=NOW)

    assert await declared.sources_below("a/") == ["a/x", "a/y"]


async def test_prometheus_gets_the_targets_that_are_read(engine, clock):
    declared = (cluster(1), DeclaredTarget("http://paused:1", "paused", is_paused=True))
    await DeclaredTargets(engine).apply(Found(declared).declared(SOURCE), place="http://sd", at=clock.now())
    async with asking(api_over(engine, clock)) as client:
        answer = await client.get("/api/v1/targets/sd")
        assert (await client.get("/api/v1/targets/sd?kind=spark")).json() == []

    assert answer.headers["Content-Type"] == "application/json"
    (group,) = answer.json()
    assert group["targets"] == ["flink-1.flink.example:8081"]
    assert group["labels"]["deployment"] == "flink-1"
    assert group["labels"]["__meta_barrierscope_state"] == "pending"
