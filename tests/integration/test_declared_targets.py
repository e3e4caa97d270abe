"""Declared sets of targets in the store: a set replaces its own targets only, and missing ones end after a while."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from backend.domain.connection import ConnectionOptions, parse_reference
from backend.domain.declared_target import DeclaredLink, DeclaredSet, DeclaredTarget
from backend.domain.target import TargetOrigin, TargetState
from backend.store.postgres.connections import reading
from backend.store.targets.declared import FORGOTTEN_AFTER, DeclaredTargets, list_sources
from backend.store.targets.leases import TargetLeases
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import NOW

pytestmark = pytest.mark.anyio

PLACE = "/etc/barrierscope/targets.yaml"
LATER = NOW + timedelta(seconds=121)
PAYMENTS = DeclaredTarget(
    "https://flink/payments",
    "payments",
    labels={"deployment": "payments"},
    interval_s=5.0,
    ui_url="https://ui",
    links=(DeclaredLink("Grafana", "https://grafana"),),
    connection=ConnectionOptions(bearer=parse_reference("env:FLINK_TOKEN")),
)
ORDERS = DeclaredTarget("https://flink/orders", "orders")


@pytest.fixture
def targets(engine):
    return TargetRepository(engine)


@pytest.fixture
def declared(engine):
    return DeclaredTargets(engine)


def of(*targets, source="a"):
    return DeclaredSet(source, targets)


async def names(targets):
    return sorted(t.name for t in await targets.list_all())


async def test_a_declared_target_has_what_was_declared(engine, targets, declared):
    assert await declared.apply(of(PAYMENTS), place=PLACE, at=NOW) == ()

    (target,) = await targets.list_all()
    assert (target.id, target.url, target.name, target.labels) == (
        PAYMENTS.id,
        PAYMENTS.url,
        "payments",
        {"deployment": "payments"},
    )
    assert (target.interval_s, target.ui_url, target.declared_by) == (5.0, "https://ui", "a")
    assert target.origin is TargetOrigin.CONFIGURATION
    assert target.link_templates == [{"name": "Grafana", "url": "https://grafana"}]
    assert target.connection == PAYMENTS.connection
    (leased,) = await TargetLeases(engine, holder="h").take()
    assert (leased.connection, leased.interval_s) == (PAYMENTS.connection, 5.0)


async def test_a_set_replaces_its_own_targets_after_a_grace_time(targets, declared):
    await targets.add(NewTarget("https://other", "mine", TargetOrigin.API), at=NOW)
    await declared.apply(of(ORDERS, source="b"), place=PLACE, at=NOW)
    await declared.apply(of(PAYMENTS), place=PLACE, at=NOW)

    await declared.apply(of(), place=PLACE, at=NOW)
    assert await declared.end_missing("a", grace_s=120, at=NOW + timedelta(seconds=119)) == []
    assert await names(targets) == ["mine", "orders", "payments"]
    assert await declared.end_missing("b", grace_s=120, at=LATER) == []
    assert await declared.end_missing("a", grace_s=120, at=LATER) == [PAYMENTS.id]
    assert await names(targets) == ["mine", "orders"]


async def test_a_target_that_is_back_within_the_grace_time_stays(targets, declared):
    await declared.apply(of(PAYMENTS, ORDERS), place=PLACE, at=NOW)
    await declared.apply(of(ORDERS), place=PLACE, at=NOW)
    await declared.apply(of(PAYMENTS, ORDERS), place=PLACE, at=NOW)

    assert await declared.end_missing("a", grace_s=120, at=LATER) == []
    assert await names(targets) == ["orders", "payments"]


async def test_an_ended_target_that_is_declared_again_is_the_same_target(targets, declared):
    await declared.apply(of(PAYMENTS), place=PLACE, at=NOW)
    await declared.apply(of(), place=PLACE, at=NOW)
    await declared.end_missing("a", grace_s=0, at=LATER)
    await declared.apply(of(PAYMENTS), place=PLACE, at=LATER)

    (target,) = await targets.list_all()
    assert (target.id, target.missing_since) == (PAYMENTS.id, None)


async def test_a_changed_declaration_changes_the_target_and_takes_away_what_is_no_longer_set(targets, declared):
    await declared.apply(of(PAYMENTS), place=PLACE, at=NOW)
    await declared.apply(of(DeclaredTarget(PAYMENTS.url, "new name", is_paused=True)), place=PLACE, at=NOW)

    (target,) = await targets.list_all()
    assert (target.name, target.state, target.labels) == ("new name", TargetState.PAUSED, {})
    assert (target.interval_s, target.ui_url, target.connection) == (None, None, ConnectionOptions())


async def test_a_target_of_the_api_or_of_another_source_is_not_touched(targets, declared):
    await targets.add(NewTarget(PAYMENTS.url, "mine", TargetOrigin.API), at=NOW)
    await declared.apply(of(ORDERS, source="b"), place=PLACE, at=NOW)

    refused = await declared.apply(of(PAYMENTS, replace(ORDERS, name="x")), place=PLACE, at=NOW)

    assert [r.url for r in refused] == [PAYMENTS.url, ORDERS.url]
    assert "added by the API; remove it there" in refused[0].reason
    assert "which b declares" in refused[1].reason
    assert await names(targets) == ["mine", "orders"]
    await declared.apply(of(), place=PLACE, at=NOW)
    assert await declared.end_missing("a", grace_s=0, at=LATER) == []


async def test_a_source_that_no_collector_looks_at_any_more_gives_its_targets_to_the_one_that_declares_them(
    targets, declared
):
    """The name of the source was changed while the collector was stopped."""
    await declared.apply(of(PAYMENTS), place=PLACE, at=NOW)
    moved = of(replace(PAYMENTS, name="moved"), source="b")

    (refused,) = await declared.apply(moved, place=PLACE, at=NOW + FORGOTTEN_AFTER)
    assert (refused.reason, await names(targets)) == (
        f"is already watched as target {PAYMENTS.id}, which a declares",
        ["payments"],
    )
    assert await declared.apply(moved, place=PLACE, at=NOW + FORGOTTEN_AFTER + timedelta(seconds=1)) == ()
    (target,) = await targets.list_all()
    assert (target.name, target.declared_by) == ("moved", "b")


async def test_a_problem_leaves_the_targets_and_keeps_its_beginning(engine, targets, declared):
    await declared.apply(of(PAYMENTS), place=PLACE, at=NOW)
    await declared.note_problem("a", place=PLACE, problem="wrong", at=LATER)
    await declared.note_problem("a", place=PLACE, problem="still wrong", at=LATER + timedelta(seconds=1))

    assert await names(targets) == ["payments"]
    async with reading(engine) as connection:
        (source,) = await list_sources(connection)
    assert (source.problem, source.problem_since, source.read_at) == ("still wrong", LATER, NOW)
    assert source.target_count == 1
    await declared.apply(of(PAYMENTS), place=PLACE, at=LATER)
    async with reading(engine) as connection:
        (source,) = await list_sources(connection)
    assert (source.problem, source.problem_since, source.read_at) == (None, None, LATER)


async def test_two_collectors_with_one_file_bring_it_at_the_same_time(targets, declared):
    many = of(*(DeclaredTarget(f"https://flink/{n}", f"t{n}") for n in range(30)))

    await asyncio.gather(*(declared.apply(many, place=PLACE, at=NOW) for _ in range(6)))

    assert len(await targets.list_all()) == 30
