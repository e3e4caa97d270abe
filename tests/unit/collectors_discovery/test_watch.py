"""Tests of the watch of all sections: which of them run as the file changes."""

from __future__ import annotations

import asyncio

import pytest

from backend.domain.declared_target import DeclaredTarget
from backend.domain.discovery import DeclaredFile, Found, HttpSd
from collectors.discovery.watch import DiscoveryWatch
from tests.support.observations import SteppingClock

pytestmark = pytest.mark.anyio


class Store:
    """Remembers the targets of each source."""

    def __init__(self, *sources):
        self.targets = dict.fromkeys(sources)

    async def apply(self, declared, *, place, at):
        self.targets[declared.source] = [t.url for t in declared.targets]
        return ()

    async def differs(self, source, urls):
        return False

    async def rename(self, old, new):
        self.targets[new] = self.targets.pop(old)

    async def sources_below(self, prefix):
        return [source for source in self.targets if source.startswith(prefix)]

    async def note_seen(self, source, *, place, at):
        return None

    async def note_problem(self, source, *, place, problem, at):
        self.targets[source] = problem

    async def note_gaps(self, source, *, read_at, left_out, history):
        return None

    async def end_missing(self, source, *, grace_s, at):
        return []


class Finder:
    """Finds one target, named by its section, and then nothing more."""

    def __init__(self, section, begun):
        self._section = section
        self._begun = begun

    async def run(self, notes, stop):
        self._begun.append(self._section.url)
        if self._section.url == "http://broken" and self._begun.count("http://broken") == 1:
            raise RuntimeError("a fault")
        if self._section.url == "http://broken":
            await stop.wait()
        notes.found(Found((DeclaredTarget(self._section.url, "x"),)))
        await stop.wait()


async def soon(seconds, stop):
    await asyncio.sleep(0)


def of(*urls, source="production"):
    return DeclaredFile(source, (), discoveries=tuple(HttpSd(f"s{n}", url) for n, url in enumerate(urls) if url))


class Running:
    def __init__(self, store, watch, begun):
        self.store, self.watch, self.begun = store, watch, begun


@pytest.fixture
async def running():
    store, begun = Store("production/old", "other/s9"), []
    watch = DiscoveryWatch(store, lambda section: Finder(section, begun), clock=SteppingClock(), pause=soon)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(watch.run(stop))
        yield Running(store, watch, begun)
        stop.set()


async def becomes(running, **targets):
    wanted = {name.replace("__", "/"): urls for name, urls in targets.items()}
    for _ in range(200):
        if wanted.items() <= running.store.targets.items():
            return
        await asyncio.sleep(0)
    assert wanted.items() <= running.store.targets.items()


async def test_each_section_is_a_source_and_one_of_an_earlier_file_loses_its_targets(running):
    running.watch.change(of("http://a", "http://b"))

    await becomes(running, production__s0=["http://a"], production__s1=["http://b"], production__old=[])
    assert running.store.targets["other/s9"] is None
    assert set(running.watch.states) == {"production/s0", "production/s1"}


async def test_only_a_section_that_changed_begins_again(running):
    running.watch.change(of("http://a", "http://b"))
    await becomes(running, production__s0=["http://a"], production__s1=["http://b"])
    running.watch.change(of("http://a", "http://c"))
    await becomes(running, production__s1=["http://c"])

    assert running.begun == ["http://a", "http://b", "http://c"]


async def test_a_section_that_is_gone_loses_its_targets(running):
    running.watch.change(of("http://a", "http://b"))
    await becomes(running, production__s0=["http://a"])
    running.watch.change(of(None, "http://b"))

    await becomes(running, production__s0=[], production__s1=["http://b"])
    assert set(running.watch.states) == {"production/s1"}


async def test_a_new_name_of_the_file_takes_the_targets_of_the_sections_along(running):
    running.watch.change(of("http://a"))
    await becomes(running, production__s0=["http://a"])
    running.watch.change(of("http://a", source="staging"))
    await becomes(running, staging__s0=["http://a"])

    assert "production/s0" not in running.store.targets


async def test_a_section_that_fails_is_told_and_the_others_go_on(running):
    running.watch.change(of("http://broken", "http://b"))

    await becomes(running, production__s1=["http://b"])
    assert "RuntimeError" in running.watch.states["production/s0"].problem
