"""The demo jobs as a target: one at a time, and what a person changed on it stays."""

from __future__ import annotations

import pytest

from backend.cli.built_in import unwatch_spark_demo, watch_built_in
from backend.domain.target import TargetOrigin
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import NOW, SteppingClock

pytestmark = pytest.mark.anyio
_HERE, _ELSEWHERE = "http://127.0.0.1:18050/runtime/v1", "http://127.0.0.1:18051/runtime/v1"


@pytest.fixture
def targets(engine):
    return TargetRepository(engine)


async def _urls(targets):
    return {t.url: t.origin for t in await targets.list_all()}


async def test_the_live_runtime_becomes_a_target_and_is_one_target_at_the_next_start(database, targets):
    for _ in range(2):
        await watch_built_in(database, _HERE, SteppingClock())

    (target,) = await targets.list_all()
    assert (target.url, target.origin, target.labels) == (_HERE, "built-in", {"deployment": "demo"})


async def test_on_another_port_it_takes_the_place_of_the_former_one(database, targets):
    await watch_built_in(database, _HERE, SteppingClock())
    await watch_built_in(database, _ELSEWHERE, SteppingClock())

    assert await _urls(targets) == {_ELSEWHERE: "built-in"}


async def test_without_demo_jobs_nothing_of_it_is_watched_until_they_are_back(database, targets):
    await targets.add(NewTarget("http://flink:8081", "flink", TargetOrigin.API), at=NOW)
    await watch_built_in(database, _HERE, SteppingClock())
    await watch_built_in(database, None, SteppingClock())
    assert await _urls(targets) == {"http://flink:8081": "api"}

    await watch_built_in(database, _HERE, SteppingClock())
    assert await _urls(targets) == {"http://flink:8081": "api", _HERE: "built-in"}


async def test_what_a_person_changed_on_it_stays(database, targets):
    await watch_built_in(database, _HERE, SteppingClock())
    (target,) = await targets.list_all()
    await targets.change(target.id, name="mine", is_enabled=False)

    await watch_built_in(database, _HERE, SteppingClock())

    (again,) = await targets.list_all()
    assert (again.name, again.is_enabled) == ("mine", False)


async def test_the_spark_demos_target_goes_where_the_demo_does_not_run_and_no_other_does(database, targets):
    for deployment in ("demo-spark", "lab"):
        url = f"push:spark/{deployment}"
        await targets.add(NewTarget(url, deployment, TargetOrigin.PUSH, kind="spark"), at=NOW)

    for _ in range(2):
        await unwatch_spark_demo(database, SteppingClock())
    assert await _urls(targets) == {"push:spark/lab": "push"}

    # Where it runs again, its first push brings the target back.
    await targets.get_or_add(NewTarget("push:spark/demo-spark", "demo-spark", TargetOrigin.PUSH, kind="spark"), at=NOW)
    assert "push:spark/demo-spark" in await _urls(targets)
