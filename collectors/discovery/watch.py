"""Runs the sections of the targets file, each in tasks of its own, and changes them when the file changes.

A section that fails never stops another one. A section that is no longer in the file finds nothing from then on, so its
targets end after the grace time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from backend.domain.clock import Clock
from backend.domain.connection import Reach
from backend.domain.discovery import DeclaredFile, Discovery, FileSd, Found, HttpSd, KubernetesSd, source_of
from backend.domain.errors import StoreUnavailableError
from collectors.base import Pause
from collectors.discovery.finding import FileFinder, Finder, HttpFinder
from collectors.discovery.section import HistoryStore, SectionKeeper, SectionState, SectionStore

_log = structlog.get_logger(__name__)

_LOOK_S = 2.0
_RESTART_PAUSE_S = 10.0

MakeFinder = Callable[[Discovery], Finder]


def finder_of(section: Discovery, limits: Reach, pause: Pause) -> Finder:
    """Return the finder for a section. ``limits`` hold for the addresses that it finds."""
    if isinstance(section, FileSd):
        return FileFinder(section, limits, pause=pause)
    if isinstance(section, HttpSd):
        return HttpFinder(section, limits, pause=pause)
    # The client of Kubernetes takes a while to be imported.
    from collectors.discovery.flink_resources import FlinkView
    from collectors.discovery.kubernetes import KubernetesFinder, View
    from collectors.discovery.spark_resources import SparkView

    views: dict[str, Callable[[KubernetesSd, Reach], View]] = {"flink": FlinkView, "spark": SparkView}
    return KubernetesFinder(section, views[section.template.kind](section, limits), pause=pause)


@dataclass(slots=True)
class _Running:
    """A section that runs. ``section`` is None if the file no longer has it, and ``finder`` is None then."""

    section: Discovery | None
    keeper: SectionKeeper
    stop: asyncio.Event
    keeping: asyncio.Task[None]
    finder: asyncio.Task[None] | None = None


class DiscoveryWatch:
    """Runs the sections that ``change`` names, until it is stopped."""

    def __init__(
        self,
        store: SectionStore,
        make_finder: MakeFinder,
        *,
        clock: Clock,
        pause: Pause,
        history: HistoryStore | None = None,
    ) -> None:
        self._history = history
        self._store = store
        self._make_finder = make_finder
        self._clock = clock
        self._pause = pause
        self._wanted: tuple[str, tuple[Discovery, ...]] | None = None
        self._applied: tuple[str, tuple[Discovery, ...]] | None = None
        self._running: dict[str, _Running] = {}

    @property
    def states(self) -> dict[str, SectionState]:
        """What each section has found, by its source."""
        return {source: r.keeper.state for source, r in self._running.items() if r.section is not None}

    def change(self, declared: DeclaredFile) -> None:
        """Run the sections of this file from now on, and no others."""
        self._wanted = (declared.source, declared.discoveries)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set."""
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                try:
                    await self._look(group)
                except StoreUnavailableError as error:
                    _log.warning("sections of the discovery not changed yet", reason=str(error))
                await self._pause(_LOOK_S, stop)
            for source in [*self._running]:
                await self._end(source)

    async def _look(self, group: asyncio.TaskGroup) -> None:
        wanted = self._wanted
        if wanted is None or wanted == self._applied:
            return
        file_source, sections = wanted
        if self._applied is not None and self._applied[0] != file_source:
            await self._rename(self._applied[0], file_source)
        below = await self._store.sources_below(f"{file_source}/")
        by_source: dict[str, Discovery | None] = dict.fromkeys((*below, *self._running))
        by_source |= {source_of(file_source, s.name): s for s in sections}
        for source, section in by_source.items():
            if source not in self._running or self._running[source].section != section:
                await self._end(source)
                self._start(group, source, section)
        self._applied = wanted

    async def _rename(self, old: str, new: str) -> None:
        """Give the targets of all sections to the sources of the file's new name."""
        for source in [*self._running]:
            await self._store.rename(source, new + source.removeprefix(old))
            await self._end(source)

    async def _end(self, source: str) -> None:
        running = self._running.pop(source, None)
        if running is None:
            return
        running.stop.set()
        if running.finder is not None:
            running.finder.cancel()
        # The next keeper of the source starts afterwards, so that an older list never replaces a newer one.
        await asyncio.wait([running.keeping])

    def _start(self, group: asyncio.TaskGroup, source: str, section: Discovery | None) -> None:
        place = "no section of the file" if section is None else section.place
        keeper = SectionKeeper(source, place, self._store, clock=self._clock, pause=self._pause, history=self._history)
        stop = asyncio.Event()
        running = _Running(section, keeper, stop, group.create_task(keeper.run(stop), name=f"keep {source}"))
        if section is None:
            keeper.found(Found())
        else:
            running.finder = group.create_task(self._find(section, keeper), name=f"find {source}")
        self._running[source] = running

    async def _find(self, section: Discovery, keeper: SectionKeeper) -> None:
        stop = asyncio.Event()
        while True:
            try:
                await self._make_finder(section).run(keeper, stop)
            except Exception as error:  # noqa: BLE001 -- the top of a task: one section never stops the others
                _log.exception("section of the discovery failed", section=section.name)
                keeper.failed(f"failed unexpectedly ({type(error).__name__}); the log of the collector has more")
            await self._pause(_RESTART_PAUSE_S, stop)
