"""Brings what one section finds into the store, and says there why it does not.

Invariant: only a list that was read wholly ends a target. If the newest list is wrong or cannot be read, the last good
one stays. A target that the list no longer has is read until the grace time is over, and its history stays.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

import structlog

from backend.domain.clock import Clock
from backend.domain.cluster_history import News
from backend.domain.declared_target import GRACE_S
from backend.domain.discovery import Found
from backend.domain.errors import StoreUnavailableError
from backend.domain.text import printable
from collectors.base import Pause
from collectors.targets_file import DeclaredStore

_log = structlog.get_logger(__name__)

LOOK_S: Final = 2.0
"""The section stores at most one list in this time, so a burst of changes is one transaction."""
_SEEN_EVERY_S: Final = 10.0
_AGAIN_S: Final = 30.0
_TOLD_MAX: Final = 5
_NEWS_MAX: Final = 20_000
_NEWS_AT_ONCE: Final = 500
_NEWS_WAIT_S: Final = 600.0


class SectionStore(DeclaredStore, Protocol):
    """Stores what a section finds. Implemented by ``backend.store.targets.declared.DeclaredTargets``."""

    async def note_gaps(self, source: str, *, read_at: datetime, left_out: str | None, history: str | None) -> None: ...


class HistoryStore(Protocol):
    """Stores the history of clusters. Implemented by ``backend.store.jobs.cluster_history.ClusterHistory``."""

    async def note(self, news: Sequence[News], *, at: datetime) -> Sequence[News]: ...


@dataclass(slots=True)
class SectionState:
    """What a section has found, for metrics. ``problem`` is None if the newest list was taken.

    Entries that were left out, and a history that cannot be read, are no such problem.
    """

    target_count: int = 0
    left_out_count: int = 0
    failure_count: int = 0
    read_at: datetime | None = None
    problem: str | None = None


class SectionKeeper:
    """Keeps the targets of one section in the store. It implements ``Notes``."""

    def __init__(
        self,
        source: str,
        place: str,
        store: SectionStore,
        *,
        clock: Clock,
        pause: Pause,
        grace_s: float = GRACE_S,
        history: HistoryStore | None = None,
    ) -> None:
        self._history = history
        self._news: deque[tuple[News, float]] = deque(maxlen=_NEWS_MAX)
        self._retried_s = 0.0
        self._source = source
        self._place = place
        self._store = store
        self._clock = clock
        self._pause = pause
        self._grace_s = grace_s
        self._found: Found | None = None
        self._stored: Found | None = None
        self._failure: str | None = None
        self._told_failure: str | None = None
        self._left_out: str | None = None
        self._logged: frozenset[str] = frozenset()
        self._history_problem: str | None = None
        self._seen_s: float | None = None
        self._stored_s = 0.0
        self._has_refused = False
        self.state = SectionState()

    def found(self, found: Found) -> None:
        """Note a whole list of targets, which replaces the last one."""
        self._found, self._failure = found, None
        self.state.read_at = self._clock.now()

    def failed(self, problem: str) -> None:
        """Note why there is no list. The last good one stays."""
        # A finder with several lists notes what it has and, at once, the problem that lasts.
        if problem != self._told_failure:
            _log.warning("targets not found; the last good list stays", source=self._source, reason=problem)
            self.state.failure_count += 1
        self._failure = self._told_failure = problem

    def happened(self, news: Sequence[News]) -> None:
        """Note what became known of the history of jobs."""
        if self._history is not None:
            now_s = self._clock.monotonic_s()
            self._news.extend((one, now_s) for one in news)
            self._retried_s = 0.0

    def lacks(self, problem: str | None) -> None:
        """Note why the history is not read, or that it is. The targets are current in both cases."""
        if problem != self._history_problem:
            if problem is not None:
                _log.warning("history not read; the targets are", source=self._source, reason=problem)
            self._history_problem, self._seen_s = problem, None

    async def run(self, stop: asyncio.Event) -> None:
        """Bring what is noted into the store until ``stop`` is set."""
        while not stop.is_set():
            try:
                await self.look()
            except StoreUnavailableError as error:
                # The store gets the list at the next look.
                _log.warning("found targets not stored yet", source=self._source, reason=str(error))
            await self._pause(LOOK_S, stop)

    async def look(self) -> None:
        """Store the newest note if it is new.

        Raises:
            StoreUnavailableError: the store is unreachable; look again.
        """
        now_s = self._clock.monotonic_s()
        self._told_failure = self._failure
        if self._found is not None and (self._found != self._stored or await self._is_due(self._found, now_s)):
            await self._store_list(self._found, now_s)
        self.state.problem = self._failure
        is_unseen = self._seen_s is None or now_s - self._seen_s >= _SEEN_EVERY_S
        if self.state.problem is not None and is_unseen:
            await self._store.note_problem(
                self._source, place=self._place, problem=self.state.problem, at=self._clock.now()
            )
        elif is_unseen:
            await self._store.note_seen(self._source, place=self._place, at=self._clock.now())
        if is_unseen and self._stored is not None and self.state.read_at is not None:
            gaps = {"left_out": self._left_out, "history": self._history_problem}
            await self._store.note_gaps(self._source, read_at=self.state.read_at, **gaps)
        if is_unseen:
            ended = await self._store.end_missing(self._source, grace_s=self._grace_s, at=self._clock.now())
            self._seen_s = now_s
            if ended:
                _log.info("targets ended, because they are no longer found", source=self._source, targets=ended)
        await self._store_news(now_s)

    async def _store_news(self, now_s: float) -> None:
        """Store what became known. What has no job yet is tried again for some time, because jobs are read later."""
        if self._history is None or not self._news or (self._retried_s and now_s - self._retried_s < _SEEN_EVERY_S):
            return
        taken = [self._news[n] for n in range(min(len(self._news), _NEWS_AT_ONCE))]
        waiting = {id(one) for one in await self._noted(self._history, [one for one, _ in taken])}
        for _ in taken:
            self._news.popleft()
        self._news.extend(x for x in taken if id(x[0]) in waiting and now_s - x[1] < _NEWS_WAIT_S)
        # Rows that are not tried yet come at the next look, and what waits comes after a pause.
        is_all = len(self._news) <= len(waiting)
        self._retried_s = now_s if is_all else 0.0

    async def _noted(self, history: HistoryStore, news: Sequence[News]) -> Sequence[News]:
        """Store news, and return those that wait for their jobs. News that cannot be stored are dropped.

        Users of Kubernetes write what becomes news, and one odd value must neither end the collector nor hold up the
        other news.
        """
        try:
            return await history.note(news, at=self._clock.now())
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 -- one odd object never stops the others
            if len(news) == 1:
                deployment, reason = printable(news[0].deployment), type(error).__name__
                _log.warning("news dropped", source=self._source, deployment=deployment, reason=reason)
                return []
        half = len(news) // 2
        return [*await self._noted(history, news[:half]), *await self._noted(history, news[half:])]

    async def _is_due(self, found: Found, now_s: float) -> bool:
        """Return whether a list that is stored already is stored again. An old list is not: another collector may have
        a newer one.
        """
        if self._failure is not None or now_s - self._stored_s < _AGAIN_S:
            return False
        self._stored_s = now_s
        # A refused target is free once its other owner lets it go, so it is tried again.
        return self._has_refused or await self._store.differs(self._source, [t.url for t in found.targets])

    async def _store_list(self, found: Found, now_s: float) -> None:
        refused = await self._store.apply(found.declared(self._source), place=self._place, at=self._clock.now())
        told = [*found.left_out, *(f"{r.url} {r.reason}" for r in refused)]
        self._has_refused = bool(refused)
        if found != self._stored:
            count = len(found.targets) - len(refused)
            _log.info("targets found", source=self._source, targets=count, left_out=len(told))
            for sentence in [one for one in told if one not in self._logged][:_TOLD_MAX]:
                _log.warning("left out", source=self._source, reason=sentence)
            self._logged = frozenset(told)
        more = [f"{len(told) - _TOLD_MAX} more are left out"] if len(told) > _TOLD_MAX else []
        self._left_out = "; ".join([*told[:_TOLD_MAX], *more]) or None
        self._stored, self._stored_s, self._seen_s = found, now_s, None
        self.state.target_count, self.state.left_out_count = len(found.targets) - len(refused), len(told)
