"""Declared sets of targets in the store: a set replaces its own targets only, and missing ones end after a while."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from backend.domain.connection import ConnectionOptions, parse_reference
from backend.domain.declared_target import DeclaredLink, DeclaredSet, DeclaredTarget
from backend.domain.target import TargetOrigin, TargetState
from backend.services.status import StatusService
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


async def source_of(engine):
    async with reading(engine) as connection:
        (source,) = await list_sources(connection)
    return source


async def test_a_collector_with_a_good_file_forgets_a_problem_that_no_other_one_notes(engine, declared):
    other, seconds = "/other/targets.yaml", timedelta(seconds=1)
    await declared.apply(of(PAYMENTS), place=PLACE, at=NOW)
    for n in (5, 15, 25, 35):
        await declared.note_problem("a", place=other, problem="is missing", at=NOW + n * seconds)
        await declared.note_seen("a", place=PLACE, at=NOW + (n + 5) * seconds)
    source = await source_of(engine)
    assert (source.problem, source.problem_since, source.place) == ("is missing", NOW + 5 * seconds, other)

    await declared.note_seen("a", place=PLACE, at=NOW + 59 * seconds)
    assert (await source_of(engine)).problem == "is missing"
    assert await declared.note_seen("a", place=PLACE, at=NOW + 60 * seconds) is None
    source = await source_of(engine)
    assert (source.problem, source.problem_since, source.place) == (None, None, PLACE)
    assert (source.seen_at, source.read_at) == (NOW + 60 * seconds, NOW)


async def test_a_source_that_another_collector_reads_elsewhere_is_told(declared):
    await declared.apply(of(PAYMENTS), place=PLACE, at=NOW)

    assert await declared.note_seen("a", place=PLACE, at=NOW) is None
    assert await declared.note_seen("a", place="/other", at=NOW) == PLACE
    assert await declared.note_seen("a", place=PLACE, at=NOW + timedelta(seconds=10)) == "/other"
    assert await declared.note_seen("a", place="/moved", at=NOW + timedelta(seconds=60)) is None


async def test_a_place_names_the_source_that_was_read_there_last(declared):
    assert await declared.source_at(PLACE) is None
    await declared.note_problem("targets.yaml", place=PLACE, problem="is missing", at=LATER)
    assert await declared.source_at(PLACE) is None
    await declared.apply(of(), place=PLACE, at=LATER)
    await declared.apply(of(source="b"), place=PLACE, at=NOW)
    assert await declared.source_at(PLACE) == "a"


async def test_a_problem_noted_for_a_guessed_source_is_forgotten_and_its_targets_stay(engine, targets, declared):
    await declared.note_problem("guess", place="/other", problem="is missing", at=NOW)
    await declared.forget_problem("guess")
    await declared.apply(of(PAYMENTS), place=PLACE, at=NOW)
    await declared.note_problem("a", place=PLACE, problem="is missing", at=NOW)
    await declared.forget_problem("a")

    source = await source_of(engine)
    assert (source.source, source.problem, source.problem_since) == ("a", None, None)
    (target,) = await targets.list_all()
    assert target.declared_by == "a"


async def test_two_collectors_with_one_file_bring_it_at_the_same_time(targets, declared):
    many = of(*(DeclaredTarget(f"https://flink/{n}", f"t{n}") for n in range(30)))

    await asyncio.gather(*(declared.apply(many, place=PLACE, at=NOW) for _ in range(6)))

    assert len(await targets.list_all()) == 30


async def test_the_status_names_what_a_source_left_out_until_a_list_without_it(engine, clock, declared):
    async def status():
        return await StatusService(engine, clock, "0").status()

    await declared.apply(of(PAYMENTS), place=PLACE, at=NOW)
    await declared.note_gaps("a", read_at=LATER, left_out="x is\0 left out", history="pods: HTTP 403")
    found = await status()
    assert found.unread_sources == []
    assert [(s.source, s.place, s.history_problem) for s in found.partial_sources] == [("a", PLACE, "pods: HTTP 403")]
    assert found.partial_sources[0].left_out.endswith("left out")

    await declared.note_problem("a", place=PLACE, problem="wrong", at=LATER)
    # The list that is used is as old as its last good reading, also if that found nothing new.
    assert [s.read_at for s in (await status()).unread_sources] == [LATER]
    await declared.apply(of(PAYMENTS), place=PLACE, at=LATER + timedelta(seconds=1))
    assert (await status()).partial_sources == []


async def test_the_status_names_each_source_whose_newest_content_was_not_taken(engine, clock, declared):
    async def unread():
        return (await StatusService(engine, clock, "0").status()).unread_sources

    await declared.apply(of(PAYMENTS, ORDERS), place=PLACE, at=NOW)
    await declared.apply(of(source="good"), place="/other", at=NOW)
    assert await unread() == []
    later = NOW + timedelta(seconds=9)
    await declared.note_problem("a", place=PLACE, problem="line 3: is wrong", at=later)

    (source,) = await unread()
    assert (source.source, source.place, source.problem) == ("a", PLACE, "line 3: is wrong")
    assert (source.since, source.read_at, source.target_count) == (later, NOW, 2)
    clock.at += FORGOTTEN_AFTER + timedelta(seconds=10)
    assert await unread() == [], "no collector looks at it any more"
