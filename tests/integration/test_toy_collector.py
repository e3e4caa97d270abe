"""A package adds a collector for an engine that the product does not know, and the engine's job appears in the API."""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest

from backend.contracts import api
from backend.domain.connection import ANYWHERE
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.targets.leases import TargetLeases
from backend.store.targets.targets import NewTarget, TargetRepository
from backend.store.wall_clock import WallClock
from collectors.base import pause
from collectors.loop import LoopOptions
from collectors.manager import CollectorManager, ManagerOptions
from collectors.probe import probe
from collectors.role import open_target
from dashboard.components import micro_batch
from dashboard.pages.job import parts
from dashboard.pages.job.recent import recent_card
from dashboard.palette import DARK
from tests.support.collector_targets import ToySource, serving
from tests.support.dash_calls import texts
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio


@pytest.fixture
def installed_toy(tmp_path, monkeypatch):
    """Create an installed package, as pip would leave it. Its entry point is the toy's collector."""
    folder = tmp_path / "toy-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[barrierscope.collectors]\ntoy = tests.support.toy_collector:TOY\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()


@asynccontextmanager
async def collecting(engine) -> AsyncIterator[None]:
    """Run the manager of the role ``collect`` until the block ends."""
    stop = asyncio.Event()
    manager = CollectorManager(
        TargetLeases(engine, holder="test"),
        IngestWriter(engine),
        partial(open_target, engine=engine, limits=ANYWHERE),
        clock=WallClock(),
        pause=pause,
        random=random.Random(1).random,
        options=ManagerOptions(loop=LoopOptions(interval_s=0.1), reload_s=0.1),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run(stop))
        try:
            yield
        finally:
            stop.set()


async def _until(ask, is_done):
    async with asyncio.timeout(60):
        while not is_done(found := await ask()):
            await pause(0.05, asyncio.Event())
    return found


async def _get(client, path, kind):
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return kind.model_validate_json(answer.content)


async def test_the_toys_job_and_checkpoints_show_in_the_api_and_on_the_page(engine, installed_toy):
    source = ToySource(began_at=WallClock().now() - timedelta(minutes=1))
    async with serving(source) as served, asking(api_over(engine, WallClock(), target_probe=probe)) as client:
        body = {"url": served.url, "kind": "toy"}
        tested = await client.post("/api/v1/targets/test", json=body)
        added = await client.post("/api/v1/targets", json=body)
        assert (tested.json()["engine"], tested.json()["running_jobs"]) == ("toy", ["toy job"])
        assert (added.status_code, added.json()["kind"]) == (201, "toy")
        async with collecting(engine):
            jobs = partial(_get, client, "/api/v1/jobs", api.Page[api.JobOut])
            (row,) = (await _until(jobs, lambda page: page.items)).items
            listed = partial(_get, client, f"/api/v1/jobs/{row.id}/checkpoints", api.Page[api.CheckpointOut])
            checkpoints = (await _until(listed, lambda page: page.items)).items
            source.advance()
            await _until(listed, lambda page: len(page.items) == source.checkpoint_count)
        job = await _get(client, f"/api/v1/jobs/{row.id}", api.JobDetailOut)
        newest = checkpoints[0]
        path = f"/api/v1/jobs/{row.id}/runs/{newest.run_id}/checkpoints/{newest.checkpoint_id}"
        found = await _get(client, path, api.CheckpointDetailOut)
        (target,) = (await _get(client, "/api/v1/targets", api.Page[api.TargetOut])).items
        advice = await client.get(f"/api/v1/jobs/{row.id}/advice")

    assert (target.engine, target.engine_version, target.health.state) == ("toy", "3", "ok")
    assert (row.name, row.engine, row.state.value) == ("toy job", "toy", "running")
    for can in (row.capabilities, job.capabilities, found.capabilities):
        assert (can.name, can.source) == ("Toy", "the page of a toy")
        flags = [can.has_barriers, can.has_subtasks, can.is_micro_batched, can.can_apply_settings_live]
        assert flags == [False] * 4
    assert [c.checkpoint_id for c in checkpoints] == [2, 1, 0]
    assert (found.end_to_end_duration_ms, found.vertices, found.batch, found.restoring) == (70, [], None, None)
    assert {s["reason"] for s in advice.json()["silences"]} == {"Toy has no such setting"}
    assert "Source: the page of a toy" in texts(parts.source(job))
    assert "Toy: playing" in texts(parts.head(job))
    table = texts(recent_card(checkpoints, [], WallClock().now().tzinfo, engine=job.capabilities, is_range=False))
    assert "Duration" in table
    assert not any(word in table for word in ("Alignment", "Acked", "Mode", "Micro-batch"))
    assert micro_batch.job_values(job, theme=DARK)["pressure_style"] == micro_batch.HIDDEN


async def test_a_kind_that_is_not_installed_is_an_error_of_its_target_only(engine, installed_toy):
    source = ToySource(began_at=WallClock().now() - timedelta(minutes=1))
    async with serving(source) as served, asking(api_over(engine, WallClock(), target_probe=probe)) as client:
        # The collector of this target was installed when the target was added, but it is not installed now.
        removed = NewTarget(url="http://other:1", name="other", origin=TargetOrigin.API, kind="other")
        await TargetRepository(engine).add(removed, at=WallClock().now())
        body = {"url": served.url, "kind": "toy"}
        assert (await client.post("/api/v1/targets", json=body)).status_code == 201
        tested = await client.post("/api/v1/targets/test", json={"url": "http://other:1", "kind": "other"})
        async with collecting(engine):
            targets = partial(_get, client, "/api/v1/targets", api.Page[api.TargetOut])
            page = await _until(targets, lambda p: all(t.health.state != "pending" for t in p.items))
    states = {t.kind: t.health for t in page.items}

    assert states["toy"].state == "ok"
    assert states["other"].state == "unreachable"
    assert "no collector for targets of kind 'other' is installed (installed kinds: " in states["other"].reason
    assert "toy" in states["other"].reason
    assert (tested.json()["is_ok"], tested.json()["problem"]) == (False, states["other"].reason)
