"""Tests of the watch of ``targets.yaml``: when it is read again, and that a wrong file never empties the list."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from backend.domain.errors import StoreUnavailableError
from collectors.targets_file import TargetsFileWatch
from tests.support.observations import SteppingClock

pytestmark = pytest.mark.anyio


class Store:
    """Remembers what the watch brought."""

    def __init__(self) -> None:
        self.sets: list[tuple[str, list[str]]] = []
        self.problems: list[tuple[str, str]] = []
        self.renamed: list[tuple[str, str]] = []
        self.refused: list[Refused] = []
        self.is_away = False
        self.at_places: dict[str, str] = {}
        self.forgotten: list[str] = []
        self.seen: list[str] = []
        self.other_place: str | None = None

    async def apply(self, declared, *, place, at):
        if self.is_away:
            raise StoreUnavailableError("away")
        self.sets.append((declared.source, [t.url for t in declared.targets]))
        return tuple(self.refused)

    async def rename(self, old, new):
        self.renamed.append((old, new))

    async def source_at(self, place):
        return self.at_places.get(place)

    async def forget_problem(self, source):
        self.forgotten.append(source)

    async def note_seen(self, source, *, place, at):
        self.seen.append(source)
        return self.other_place

    async def note_problem(self, source, *, place, problem, at):
        self.problems.append((source, problem))

    async def end_missing(self, source, *, grace_s, at):
        return []


@dataclass
class Refused:
    url: str = "http://a"
    reason: str = "is already watched"


async def no_pause(seconds, stop):
    return None


@pytest.fixture
def path(tmp_path):
    return tmp_path / "targets.yaml"


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def clock():
    return SteppingClock()


@pytest.fixture
def watch(path, store, clock):
    return TargetsFileWatch(path, store, clock=clock, pause=no_pause)


def write(path, *urls, source=""):
    path.write_text(source + "targets:\n" + "".join(f"  - url: {u}\n" for u in urls) + ("  []\n" if not urls else ""))


async def test_a_file_is_brought_once_and_again_when_it_changes(path, store, watch):
    write(path, "http://a")
    for _ in range(3):
        await watch.look()
    write(path, "http://a", "http://b")
    await watch.look()

    assert [urls for _, urls in store.sets] == [["http://a"], ["http://a", "http://b"]]


@pytest.mark.parametrize("content", ["targets: [", "", "targets: [{urll: http://a}]", None])
async def test_a_wrong_or_missing_file_brings_nothing_and_tells_why(path, store, watch, content):
    write(path, "http://a")
    await watch.look()
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    for _ in range(2):
        await watch.look()

    assert [urls for _, urls in store.sets] == [["http://a"]]
    assert str(path) in store.problems[0][1]
    assert watch.state.failure_count == 1
    assert watch.state.problem is not None

    write(path, "http://a")
    await watch.look()

    assert len(store.sets) == 2
    assert watch.state.problem is None


async def test_the_swap_of_a_link_of_kubernetes_is_noticed(tmp_path, store, clock):
    for version, url in (("v1", "http://a"), ("v2", "http://b")):
        (tmp_path / version).mkdir()
        write(tmp_path / version / "targets.yaml", url)
        os.utime(tmp_path / version / "targets.yaml", ns=(1, 1))
    data, path = tmp_path / "..data", tmp_path / "targets.yaml"
    data.symlink_to("v1")
    path.symlink_to("..data/targets.yaml")
    watch = TargetsFileWatch(path, store, clock=clock, pause=no_pause)
    await watch.look()

    new = tmp_path / "..new"
    new.symlink_to("v2")
    os.replace(new, data)
    await watch.look()

    assert [urls for _, urls in store.sets] == [["http://a"], ["http://b"]]


async def test_a_store_that_was_away_gets_the_file_later(path, store, watch):
    write(path, "http://a")
    store.is_away = True
    with pytest.raises(StoreUnavailableError):
        await watch.look()
    store.is_away = False
    await watch.look()

    assert [urls for _, urls in store.sets] == [["http://a"]]


async def test_a_file_with_another_name_takes_its_targets_along(path, store, watch):
    write(path, "http://a", source="source: one\n")
    await watch.look()
    write(path, "http://a", source="source: two\n")
    await watch.look()

    assert store.renamed == [("one", "two")]
    assert [source for source, _ in store.sets] == ["one", "two"]


async def test_the_problem_of_a_file_that_was_never_read_has_the_name_in_it(path, store, watch):
    path.write_text("source: one\ntargets: 5\n")
    await watch.look()
    assert store.problems[0][0] == "one"

    write(path, "http://a", source="source: one\n")
    await watch.look()
    assert store.renamed == []


async def test_a_target_that_another_owner_has_is_tried_again(path, store, clock, watch):
    write(path, "http://a")
    store.refused = [Refused()]
    await watch.look()
    await watch.look()
    assert len(store.sets) == 1

    clock.at += timedelta(seconds=31)
    store.refused = []
    await watch.look()
    await watch.look()

    assert len(store.sets) == 2


async def test_each_target_that_is_not_taken_is_logged_once(path, store, clock, watch):
    async def refused(*refused):
        store.refused = list(refused)
        clock.at += timedelta(seconds=31)
        with capture_logs() as logs:
            await watch.look()
        return [(log["url"], log["reason"]) for log in logs if log["event"] == "target of the file not taken"]

    write(path, "http://a", "http://b")
    assert await refused(Refused()) == [("http://a", "is already watched")]
    assert await refused(Refused()) == []
    assert await refused(Refused(), Refused("http://b")) == [("http://b", "is already watched")]
    assert await refused(Refused(reason="other"), Refused("http://b")) == [("http://a", "other")]


async def test_the_problem_of_a_missing_file_is_that_of_the_source_that_was_read_there(path, store, watch):
    store.at_places[str(path)] = "one"
    await watch.look()

    assert [source for source, _ in store.problems] == ["one"]
    assert store.seen == []

    write(path, "http://a", source="source: one\n")
    await watch.look()
    assert (store.renamed, store.forgotten) == ([], [])


async def test_a_guessed_name_gives_no_targets_to_the_file(path, store, clock, watch):
    """Another collector may own the source ``targets.yaml``."""
    await watch.look()
    write(path, "http://a", source="source: one\n")
    clock.at += timedelta(seconds=11)
    await watch.look()

    assert [source for source, _ in store.problems] == ["targets.yaml"]
    assert (store.renamed, store.forgotten, store.seen) == ([], ["targets.yaml"], ["one"])


async def test_a_source_that_two_files_have_is_logged_once(path, store, clock, watch):
    write(path, "http://a")
    store.other_place = "/other/targets.yaml"
    with capture_logs() as logs:
        for _ in range(3):
            await watch.look()
            clock.at += timedelta(seconds=11)

    assert [log["other_file"] for log in logs if log["log_level"] == "warning"] == ["/other/targets.yaml"]
    assert len(store.seen) == 3
