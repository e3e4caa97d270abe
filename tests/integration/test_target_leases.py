"""A lease lets one collector at a time read a target. The lease of a dead collector expires by the database clock."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from backend.domain.ids import TargetId
from backend.store.postgres.connections import create_store_engine
from backend.store.targets.targets import TargetRepository
from tests.support.observations import NOW

pytestmark = pytest.mark.anyio


@pytest.fixture
def targets(engine):
    return TargetRepository(engine)


async def _expire(engine):
    # Instead of waiting, let the lease end a second ago.
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE target_leases SET expires_at = now() - interval '1 s'"))


async def test_the_holder_renews_its_lease_and_another_collector_gets_it_only_after_a_release(targets, target):
    assert await targets.lease(target, holder="a", ttl_s=30)
    assert await targets.lease(target, holder="a", ttl_s=30)
    assert not await targets.lease(target, holder="b", ttl_s=30)

    await targets.release(target, holder="b")
    assert not await targets.lease(target, holder="b", ttl_s=30)
    await targets.release(target, holder="a")
    assert await targets.lease(target, holder="b", ttl_s=30)


async def test_any_collector_can_take_an_expired_lease_and_its_former_holder_cannot_renew_it(targets, target, engine):
    await targets.lease(target, holder="dead", ttl_s=30)
    await _expire(engine)

    assert await targets.lease(target, holder="b", ttl_s=30)
    assert not await targets.lease(target, holder="dead", ttl_s=30)


async def test_exactly_one_of_several_concurrent_collectors_gets_the_lease(targets, target, database, engine):
    other = create_store_engine(database)
    for _ in range(5):
        repositories = [targets, TargetRepository(other)] * 4
        holders = [f"h{n}" for n in range(len(repositories))]
        taken = await asyncio.gather(
            *(r.lease(target, holder=h, ttl_s=30) for r, h in zip(repositories, holders, strict=True))
        )
        assert sum(taken) == 1
        await _expire(engine)
    await other.dispose()


async def test_a_paused_removed_or_unknown_target_cannot_be_leased(targets, target):
    await targets.change(target, is_enabled=False)
    assert not await targets.lease(target, holder="a", ttl_s=30)
    await targets.change(target, is_enabled=True)
    assert await targets.lease(target, holder="a", ttl_s=30)
    await targets.remove(target, at=NOW)
    assert not await targets.lease(target, holder="a", ttl_s=30)
    assert not await targets.lease(TargetId("t-none"), holder="a", ttl_s=30)
