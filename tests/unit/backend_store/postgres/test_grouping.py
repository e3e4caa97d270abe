"""Writes that wait together are written together, and each caller gets the outcome of its own write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from backend.domain.errors import BarrierscopeError, StoreFullError, StoreUnavailableError, UnknownEntityError
from backend.store.postgres.grouping import GroupedWrites

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Store:
    """Records the groups that it receives. An item in ``failing`` makes its whole group fail."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.failing: dict[str, Exception] = {}
        self.unknown: set[str] = set()
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.has_begun = asyncio.Event()

    def writes(self, *, count_max: int = 64, size_max: int = 1000) -> GroupedWrites[str, str]:
        return GroupedWrites(self.write, key=lambda item: item[0], size=len, count_max=count_max, size_max=size_max)

    async def write(self, items: Sequence[str]) -> Sequence[str | BarrierscopeError]:
        self.groups.append(list(items))
        self.has_begun.set()
        await self.is_open.wait()
        for item in items:
            if item in self.failing:
                raise self.failing[item]
        return [UnknownEntityError(kind="item", id=i) if i in self.unknown else i.upper() for i in items]


async def all_of(writes: GroupedWrites[str, str], items: Sequence[str]) -> list[str | BaseException]:
    return await asyncio.gather(*(writes.write(item) for item in items), return_exceptions=True)


def lock_timeout() -> StoreUnavailableError:
    error = StoreUnavailableError("canceling statement due to lock timeout")
    error.__cause__ = psycopg.errors.LockNotAvailable()
    return error


async def test_items_that_wait_together_are_written_in_one_group() -> None:
    store = Store()
    store.is_open.clear()
    writes = store.writes()
    first = asyncio.gather(writes.write("a"))
    await store.has_begun.wait()
    others = asyncio.gather(*(writes.write(item) for item in "bcd"))
    await asyncio.sleep(0)
    store.is_open.set()

    assert await first == ["A"]
    assert await others == ["B", "C", "D"]
    assert store.groups == [["a"], ["b", "c", "d"]]


async def test_a_group_has_neither_two_items_with_one_key_nor_more_than_its_limits() -> None:
    store = Store()

    assert await all_of(store.writes(), ["a1", "a2", "b"]) == ["A1", "A2", "B"]
    assert await all_of(store.writes(count_max=2), ["a", "b", "c"]) == ["A", "B", "C"]
    assert await all_of(store.writes(size_max=4), ["aaa", "bb", "c", "dddddd"]) == ["AAA", "BB", "C", "DDDDDD"]

    assert store.groups[:2] == [["a1", "b"], ["a2"]]
    assert store.groups[2:4] == [["a", "b"], ["c"]]
    assert store.groups[4:] == [["aaa", "c"], ["bb"], ["dddddd"]]


async def test_an_item_that_the_store_does_not_know_fails_alone() -> None:
    store = Store()
    store.unknown = {"b"}

    one, two, three = await all_of(store.writes(), ["a", "b", "c"])

    assert (one, three) == ("A", "C")
    assert isinstance(two, UnknownEntityError)
    assert len(store.groups) == 1


@pytest.mark.parametrize("error", [ValueError("bad item"), lock_timeout()], ids=["bad-item", "locked"])
async def test_if_one_item_spoils_its_group_each_is_written_alone_and_only_that_one_fails(error: Exception) -> None:
    store = Store()
    store.failing = {"b": error}

    one, two, three = await all_of(store.writes(), ["a", "b", "c"])

    assert (one, three) == ("A", "C")
    assert two is error
    assert store.groups == [["a", "b", "c"], ["a"], ["b"], ["c"]]


@pytest.mark.parametrize("kind", [StoreUnavailableError, StoreFullError])
async def test_if_the_store_takes_nothing_nothing_is_repeated_and_every_caller_gets_an_error_of_its_own(
    kind: type[StoreUnavailableError],
) -> None:
    store = Store()
    store.failing = {"b": kind("connection refused")}

    found = await all_of(store.writes(), ["a", "b", "c"])

    assert [str(error) for error in found] == [f"{kind.summary}: connection refused"] * 3
    assert {type(error) for error in found} == {kind}
    assert len({id(error) for error in found}) == 3
    assert len(store.groups) == 1


async def test_a_cancelled_write_takes_no_other_write_with_it() -> None:
    store = Store()
    store.is_open.clear()
    writes = store.writes()
    tasks = [asyncio.ensure_future(writes.write(item)) for item in "abcd"]
    await store.has_begun.wait()
    # The first task is writing for all four, and the second one waits.
    tasks[0].cancel()
    tasks[1].cancel()
    store.is_open.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(f) for f in found[:2]] == [asyncio.CancelledError] * 2
    assert found[2:] == ["C", "D"]
    assert sorted(item for item in store.groups[-1] if item in "cd") == ["c", "d"]
    assert await writes.write("e") == "E"
    assert store.groups[-1] == ["e"]
