"""The target of the demo jobs: at most one exists, and changes by a user are preserved."""

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


async def test_the_live_runtime_becomes_a_target_and_a_second_start_adds_no_other(database, targets):
    for _ in range(2):
        await watch_built_in(database, _HERE, SteppingClock())

    (target,) = await targets.list_all()
    assert (target.url, target.origin, target.labels) == (_HERE, "built-in", {"deployment": "demo"})


async def test_on_another_port_the_new_target_replaces_the_former_one(database, targets):
    await watch_built_in(database, _HERE, SteppingClock())
    await watch_built_in(database, _ELSEWHERE, SteppingClock())

    assert await _urls(targets) == {_ELSEWHERE: "built-in"}


async def test_without_demo_jobs_their_target_is_removed_until_they_are_back(database, targets):
    await targets.add(NewTarget("http://flink:8081", "flink", TargetOrigin.API), at=NOW)
    await watch_built_in(database, _HERE, SteppingClock())
    await watch_built_in(database, None, SteppingClock())
    assert await _urls(targets) == {"http://flink:8081": "api"}

    await watch_built_in(database, _HERE, SteppingClock())
    assert await _urls(targets) == {"http://flink:8081": "api", _HERE: "built-in"}


async def test_a_users_changes_to_the_demo_target_stay(database, targets):
    await watch_built_in(database, _HERE, SteppingClock())
    (target,) = await targets.list_all()
    await targets.change(target.id, name="mine", is_enabled=False)

    await watch_built_in(database, _HERE, SteppingClock())

    (again,) = await targets.list_all()
    assert (again.name, again.is_enabled) == ("mine", False)


async def test_a_demo_target_that_a_user_removes_and_adds_again_is_ours_again(database, targets):
    await watch_built_in(database, _HERE, SteppingClock())
    (target,) = await targets.list_all()
    await targets.remove(target.id, at=NOW)
    await targets.add(NewTarget(_HERE, "demo", TargetOrigin.API), at=NOW)

    (again,) = await targets.list_all()
    assert (again.origin, again.labels) == ("built-in", {"deployment": "demo"})


async def test_the_former_address_of_the_live_runtime_is_a_target_like_any(database, targets):
    await watch_built_in(database, _HERE, SteppingClock())
    await watch_built_in(database, _ELSEWHERE, SteppingClock())
    await targets.add(NewTarget(_HERE, "mine", TargetOrigin.API), at=NOW)

    assert await _urls(targets) == {_ELSEWHERE: "built-in", _HERE: "api"}


async def test_only_the_target_of_the_spark_demo_is_removed_if_the_demo_does_not_run(database, targets):
    for deployment in ("demo-spark", "lab"):
        url = f"push:spark/{deployment}"
        await targets.add(NewTarget(url, deployment, TargetOrigin.PUSH, kind="spark"), at=NOW)

    for _ in range(2):
        await unwatch_spark_demo(database, SteppingClock())
    assert await _urls(targets) == {"push:spark/lab": "push"}

    # If the demo runs again, its first push adds the target.
    await targets.get_or_add(NewTarget("push:spark/demo-spark", "demo-spark", TargetOrigin.PUSH, kind="spark"), at=NOW)
    assert "push:spark/demo-spark" in await _urls(targets)
