"""Of 1,000 discovered clusters, 50 are replaced each minute: nothing is lost or doubled, and the fleet stays quick.

The API server of the tests, the discovery of the collector, PostgreSQL and the API of the fleet page are real. The
clusters answer nothing: their observations are written as a collector writes them. The clock is moved by the test.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import text

from backend.domain.connection import ANYWHERE
from backend.domain.declared_target import GRACE_S
from backend.domain.discovery import DeclaredFile, KubernetesSd
from backend.store.jobs.cluster_history import ClusterHistory
from backend.store.targets.declared import DeclaredTargets
from backend.store.targets.targets import TargetRepository
from collectors.discovery.watch import DiscoveryWatch, finder_of
from tests.support.kubernetes_server import flink_deployment, kubeconfig, serving_kubernetes
from tests.support.observations import completed, job, observation
from tests.support.serving import api_over, asking
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

COUNT, CHURN, MINUTES = 1_000, 50, 8


async def often(seconds, stop):
    # The pauses of the product are seconds. Here they are short, because the test moves the clock.
    await asyncio.sleep(min(seconds, 0.05))


def name_of(n):
    return f"job-{n:05}"


def _rss_mib():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


@dataclass
class Fleet:
    """A watch that runs, and what the test knows of its clusters."""

    server: object
    engine: object
    clock: object
    writer: object
    repository: TargetRepository
    watch: DiscoveryWatch

    async def has(self, numbers):
        wanted = {f"flink/{name_of(n)}" for n in numbers}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                listed = await self.repository.list_all()
                if {t.name for t in listed if t.missing_since is None} == wanted:
                    return {t.name: t for t in listed}
                await asyncio.sleep(0.2)

    async def report(self, numbers, targets):
        for n in numbers:
            target = targets[f"flink/{name_of(n)}"]
            await self.writer.write(observation(target.id, job([completed(1)], name=name_of(n)), at=self.clock.now()))

    async def page(self, client):
        """Return the names on the fleet board, page by page, and the CPU time that reading them took."""
        # The board is computed again after some seconds.
        self.clock.at += timedelta(seconds=10)
        began_s, names = time.process_time(), []
        while True:
            answer = await client.get(f"/api/v1/board?offset={len(names)}&limit=200&sort=name")
            assert answer.status_code == 200, answer.text
            rows = [row["name"] for row in answer.json()["rows"]]
            names += rows
            if not rows:
                return names, time.process_time() - began_s


@asynccontextmanager
async def discovering(engine, clock, writer, folder):
    async with serving_kubernetes() as server, asyncio.TaskGroup() as group:
        section = KubernetesSd("eu", "eu-1", namespaces=("flink",), kubeconfig=kubeconfig(server, folder))
        find = partial(finder_of, limits=ANYWHERE, pause=often)
        history = ClusterHistory(engine)
        watch = DiscoveryWatch(DeclaredTargets(engine), find, clock=clock, pause=often, history=history)
        stop = asyncio.Event()
        for n in range(COUNT):
            await server.put(flink_deployment(name_of(n)))
        watch.change(DeclaredFile("production", (), discoveries=(section,)))
        running = group.create_task(watch.run(stop))
        try:
            yield Fleet(server, engine, clock, writer, TargetRepository(engine), watch)
        finally:
            stop.set()
            running.cancel()
            for task in group._tasks:
                task.cancel()


async def test_a_fleet_with_churn_loses_and_doubles_nothing_and_stays_as_quick(engine, clock, writer, tmp_path):
    async with asking(api_over(engine, clock)) as client, discovering(engine, clock, writer, tmp_path) as fleet:
        alive = list(range(COUNT))
        targets = await fleet.has(alive)
        await fleet.report(alive, targets)
        await fleet.page(client)
        names, calm_s = await fleet.page(client)
        assert sorted(names) == [name_of(n) for n in alive]
        ids, spent, sizes, reads = {t.id for t in targets.values()}, [], [], []
        for _minute in range(MINUTES):
            gone, new = alive[:CHURN], [alive[-1] + 1 + n for n in range(CHURN)]
            alive = [*alive[CHURN:], *new]
            began_s = time.process_time()
            for old, other in zip(gone, new, strict=True):
                await fleet.server.delete("flinkdeployments", "flink", name_of(old))
                await fleet.server.put(flink_deployment(name_of(other)))
            targets = await fleet.has(alive)
            spent.append(time.process_time() - began_s)
            await fleet.report(new, targets)
            names, seconds = await fleet.page(client)
            reads.append(seconds)
            sizes.append(_rss_mib())
            # Those that vanished are still read for the grace time, so they are on the page too.
            assert len(names) == len(set(names))
            assert set(names) >= {name_of(n) for n in alive}
            clock.at += timedelta(seconds=50)
            ids |= {t.id for t in targets.values()}

        clock.at += timedelta(seconds=GRACE_S + 11)
        async with asyncio.timeout(PATIENCE_S):
            while len(await fleet.repository.list_all()) > COUNT:  # noqa: ASYNC110 -- the keeper writes to PostgreSQL
                await asyncio.sleep(0.2)
        names, _ = await fleet.page(client)
        assert sorted(names) == [name_of(n) for n in alive]
        async with engine.connect() as connection:
            jobs = (await connection.execute(text("SELECT deployment, name FROM jobs"))).all()
        # No history ends, and each deployment has one job.
        assert sorted(jobs) == [(f"eu-1/flink/{name_of(n)}", name_of(n)) for n in range(COUNT + CHURN * MINUTES)]
        assert len(ids) == len(jobs)

    ratio = sorted(reads)[len(reads) // 2] / calm_s
    print(
        f"\nCPU for {2 * CHURN} changes of {COUNT} clusters: {sorted(spent)[len(spent) // 2]:.2f} s;"
        f" fleet page: {calm_s:.2f} s calm, {ratio:.2f} times that with churn;"
        f" memory: {sizes[1]:.0f} MiB after 2 minutes, {sizes[-1]:.0f} MiB after {MINUTES}"
    )
    assert ratio < 4
    assert sizes[-1] - sizes[1] < 60
    # A minute of churn costs a small part of a minute.
    assert sorted(spent)[len(spent) // 2] < 20
