"""Watches ``targets.yaml``, and brings its targets into the store when it changes.

The file is looked at every ``look_s`` seconds: its real path, inode, size and time of change. So it is noticed too when
Kubernetes swaps the link of a ConfigMap, or an editor replaces the file. If the file is wrong or missing, only the
problem of its source is noted: the last good list stays. Invariant: only a file that was read wholly and without a
problem ends a target.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import structlog

from backend.contracts.targets_file import DEFAULT_SOURCE, read_targets_file, source_in
from backend.domain.clock import Clock
from backend.domain.declared_target import GRACE_S, DeclaredSet
from backend.domain.discovery import DeclaredFile
from backend.domain.errors import InvalidInputError, StoreUnavailableError
from backend.domain.ids import TargetId
from collectors.base import Pause

_log = structlog.get_logger(__name__)

LOOK_S: Final = 2.0
_SEEN_EVERY_S: Final = 10.0
_REFUSED_AGAIN_S: Final = 30.0

_Signature = tuple[str, int, int, int]


class RefusedUrl(Protocol):
    """A declared target that was not taken, and why."""

    @property
    def url(self) -> str: ...

    @property
    def reason(self) -> str: ...


class DeclaredStore(Protocol):
    """Stores declared sets. Implemented by ``backend.store.targets.declared.DeclaredTargets``."""

    async def apply(self, declared: DeclaredSet, *, place: str, at: datetime) -> Sequence[RefusedUrl]: ...

    async def differs(self, source: str, urls: Sequence[str]) -> bool: ...

    async def rename(self, old: str, new: str) -> None: ...

    async def source_at(self, place: str) -> str | None: ...

    async def sources_below(self, prefix: str) -> Sequence[str]: ...

    async def forget_problem(self, source: str) -> None: ...

    async def note_seen(self, source: str, *, place: str, at: datetime) -> str | None: ...

    async def note_problem(self, source: str, *, place: str, problem: str, at: datetime) -> None: ...

    async def end_missing(self, source: str, *, grace_s: float, at: datetime) -> Sequence[TargetId]: ...


@dataclass(slots=True)
class WatchState:
    """What the watch of the file has seen, for metrics. ``problem`` is None if the newest content was taken."""

    source: str = DEFAULT_SOURCE
    target_count: int = 0
    read_at: datetime | None = None
    reload_count: int = 0
    failure_count: int = 0
    problem: str | None = None
    refused_count: int = 0


class TargetsFileWatch:
    """Watches one file until it is stopped. ``notify`` gets each content that was taken."""

    def __init__(
        self,
        path: Path,
        store: DeclaredStore,
        *,
        clock: Clock,
        pause: Pause,
        look_s: float = LOOK_S,
        grace_s: float = GRACE_S,
        notify: Callable[[DeclaredFile], None] | None = None,
    ) -> None:
        self._path = path
        self._store = store
        self._clock = clock
        self._pause = pause
        self._look_s = look_s
        self._grace_s = grace_s
        self._notify = notify
        self._applied: _Signature | None = None
        self._seen_s: float | None = None
        self._applied_s = 0.0
        self._refused: dict[str, str] = {}
        self._other_place: str | None = None
        self.state = WatchState()

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until ``stop`` is set."""
        while not stop.is_set():
            try:
                await self.look()
            except StoreUnavailableError as error:
                # The store gets the content at the next look.
                _log.warning("targets file not stored yet", file=str(self._path), reason=str(error))
            await self._pause(self._look_s, stop)

    async def look(self) -> None:
        """Look at the file once, and store what has changed.

        Raises:
            StoreUnavailableError: the store is unreachable; look again.
        """
        signature = _signature(self._path)
        now_s = self._clock.monotonic_s()
        # A refused target is free once its other owner lets it go, so it is tried again.
        is_due = self.state.refused_count > 0 and now_s - self._applied_s >= _REFUSED_AGAIN_S
        is_unseen = self._seen_s is None or now_s - self._seen_s >= _SEEN_EVERY_S
        if signature is None or signature != self._applied or is_due or (self.state.problem and is_unseen):
            await self._reload(signature, now_s)
        if is_unseen:
            if self.state.problem is None:
                await self._note_seen()
            ended = await self._store.end_missing(self.state.source, grace_s=self._grace_s, at=self._clock.now())
            self._seen_s = now_s
            if ended:
                _log.info("targets ended, because the file no longer has them", targets=ended)

    async def _reload(self, signature: _Signature | None, now_s: float) -> None:
        try:
            declared = await asyncio.to_thread(read_targets_file, self._path)
        except InvalidInputError as error:
            await self._failed(str(error), signature)
            return
        if self.state.source != declared.source and self.state.reload_count:
            await self._store.rename(self.state.source, declared.source)
        elif self.state.source != declared.source and self.state.problem:
            # The name was a guess, so its targets may be those of another collector.
            await self._store.forget_problem(self.state.source)
        self.state.source = declared.source
        refused = await self._store.apply(declared, place=str(self._path), at=self._clock.now())
        reasons = {r.url: r.reason for r in refused}
        for url, reason in sorted(reasons.items() - self._refused.items()):
            _log.warning("target of the file not taken", url=url, reason=reason)
        self._refused = reasons
        if self._applied != signature or self.state.problem is not None:
            _log.info("targets file read", file=str(self._path), targets=len(declared.targets), refused=len(refused))
        self.state.problem = None
        self.state.refused_count = len(refused)
        self.state.target_count, self.state.read_at = len(declared.targets) - len(refused), self._clock.now()
        self.state.reload_count += 1
        self._applied, self._applied_s = signature, now_s
        if self._notify is not None:
            self._notify(declared)

    async def _note_seen(self) -> None:
        other = await self._store.note_seen(self.state.source, place=str(self._path), at=self._clock.now())
        if other is not None and other != self._other_place:
            _log.warning(
                "another collector reads this source from another file; if its targets differ, each ends the other's. "
                "Give each file a source of its own",
                source=self.state.source,
                file=str(self._path),
                other_file=other,
            )
        self._other_place = other

    async def _failed(self, problem: str, signature: _Signature | None) -> None:
        if not self.state.reload_count:
            known = source_in(self._path) or await self._store.source_at(str(self._path))
            self.state.source = known or self.state.source
        await self._store.note_problem(self.state.source, place=str(self._path), problem=problem, at=self._clock.now())
        if problem != self.state.problem:
            _log.warning("targets file not taken; the last good list stays", file=str(self._path), reason=problem)
            self.state.failure_count += 1
        self.state.problem = problem
        self._applied = signature


def _signature(path: Path) -> _Signature | None:
    """Return what changes whenever the content may have changed; None if there is no such file."""
    try:
        status = os.stat(path)
        return os.path.realpath(path), status.st_ino, status.st_size, status.st_mtime_ns
    except OSError:
        return None
