"""Combines writes that wait at the same time into one transaction, as a group commit does.

A transaction, its commit and a connection cost more than the few rows of one small write. So one caller at a time
writes: it takes the writes that have waited meanwhile, and writes all of them together. A caller that finds its write
done returns at once. No task runs in the background, so nothing is lost if the process ends.

Invariant: each write is reported exactly once to its own caller. If a group fails because of one of its writes, each
write is repeated in a transaction of its own, so only that write fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import psycopg
from sqlalchemy import exc

from backend.domain.errors import BarrierscopeError, StoreUnavailableError

T = TypeVar("T")
R = TypeVar("R")

# At most this many writes of failed groups are repeated concurrently, each in its own transaction, so that
# connections are left for other work.
_ALONE_MAX = 2


@dataclass(slots=True, eq=False)
class _Waiting(Generic[T, R]):
    """One write whose caller waits. Exactly one of ``result``, ``error`` and ``is_alone`` is set once it is done."""

    item: T
    result: R | None = None
    error: Exception | None = None
    is_alone: bool = False
    is_left: bool = False
    """Whether the caller no longer waits for a group."""

    @property
    def is_done(self) -> bool:
        return self.result is not None or self.error is not None or self.is_alone


class GroupedWrites(Generic[T, R]):
    """Runs ``write`` for groups of items. Several tasks of one event loop may use it at once."""

    def __init__(
        self,
        write: Callable[[Sequence[T]], Awaitable[Sequence[R | BarrierscopeError]]],
        *,
        key: Callable[[T], Hashable],
        size: Callable[[T], int],
        count_max: int,
        size_max: int,
    ) -> None:
        """Create a writer.

        ``write`` commits the items it receives, and returns the result or the error of each. A group has at most
        ``count_max`` items, and their sizes add up to at most ``size_max``. A single item that is larger than this is
        a group of its own. Items with the same key are never in one group.
        """
        self._write = write
        self._key = key
        self._size = size
        self._count_max = count_max
        self._size_max = size_max
        self._waiting: deque[_Waiting[T, R]] = deque()
        self._turn = asyncio.Lock()
        self._alone = asyncio.Semaphore(_ALONE_MAX)

    async def write(self, item: T) -> R:
        """Write ``item`` and return its result, or raise its error."""
        own: _Waiting[T, R] = _Waiting(item)
        self._waiting.append(own)
        try:
            async with self._turn:
                if not own.is_done:
                    # Callers that are ready to run join this group.
                    await asyncio.sleep(0)
                    await self._write_group(self._group_with(own))
        finally:
            own.is_left = True
            if own in self._waiting:
                self._waiting.remove(own)
        if own.is_alone:
            async with self._alone:
                own.result, own.error = _outcome((await self._write([item]))[0])
        if own.error is not None:
            raise own.error
        assert own.result is not None
        return own.result

    def _group_with(self, own: _Waiting[T, R]) -> list[_Waiting[T, R]]:
        """Take a group out of the waiting writes: ``own``, and the oldest of the others that fit into the group."""
        group, keys, size = [own], {self._key(own.item)}, self._size(own.item)
        for other in self._waiting:
            if len(group) >= self._count_max:
                break
            key, added = self._key(other.item), self._size(other.item)
            if other is not own and key not in keys and size + added <= self._size_max:
                group.append(other)
                keys.add(key)
                size += added
        taken = set(map(id, group))
        self._waiting = deque(w for w in self._waiting if id(w) not in taken)
        return group

    async def _write_group(self, group: list[_Waiting[T, R]]) -> None:
        try:
            outcomes = await self._write([w.item for w in group])
        except Exception as error:
            if len(group) == 1:
                raise
            for waiting in group:
                if isinstance(error, StoreUnavailableError) and not _is_conflict(error):
                    waiting.error = type(error)(error.reason)
                else:
                    waiting.is_alone = True
        except BaseException:
            # This caller was cancelled. Most callers of the other writes still wait, so their writes go back to the
            # front of the queue.
            self._waiting.extendleft(w for w in reversed(group[1:]) if not w.is_left)
            raise
        else:
            for waiting, outcome in zip(group, outcomes, strict=True):
                waiting.result, waiting.error = _outcome(outcome)


def _outcome(outcome: R | BarrierscopeError) -> tuple[R | None, Exception | None]:
    return (None, outcome) if isinstance(outcome, BarrierscopeError) else (outcome, None)


def _is_conflict(error: StoreUnavailableError) -> bool:
    """Return whether a lock of another transaction caused the error. It affects only some writes of a group."""
    cause = error.__cause__
    original = cause.orig if isinstance(cause, exc.DBAPIError) else cause
    return isinstance(original, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected)
