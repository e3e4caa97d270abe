"""Runs blocking calls on folders of this machine, so that a folder that hangs keeps no other one waiting.

A call that a file system does not answer cannot be ended. So each call has a thread of its own, and the process does
not wait for it when it ends. ``at_once`` calls run at a time for each mount. One that has run for ``late_s`` gives its
place to the next call. If ``hung_max`` calls of one mount are late, no other one of this mount begins until one ends.

The mount of a folder is read from the list of the kernel, because a question to a file system may hang as well. A
folder that is reached by a link counts for the mount on which the link is.
"""

from __future__ import annotations

import asyncio
import errno
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

_MOUNTS: Final = Path("/proc/self/mountinfo")
_MOUNT_POINT: Final = 4
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_ROOT: Final = "/"
T = TypeVar("T")


def mount_of(folder: Path, mounts: Path = _MOUNTS) -> str:
    """Return the mount on which ``folder`` is by its name; ``/`` if the machine has no such list."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return _ROOT
    points = (line.split(" ")[_MOUNT_POINT] for line in lines if line.count(" ") > _MOUNT_POINT)
    known = {_ESCAPE.sub(lambda found: chr(int(found[1], 8)), point) for point in points}
    return next((str(place) for place in (folder, *folder.parents) if str(place) in known), _ROOT)


@dataclass(slots=True, eq=False)
class FolderCall(Generic[T]):
    """A call on a folder. ``began_s`` is None while it waits for others of its mount."""

    mount: str
    call: Callable[[], T]
    future: Future[T] = field(default_factory=Future)
    began_s: float | None = None


@dataclass(slots=True)
class _Mount:
    waiting: deque[FolderCall[Any]] = field(default_factory=deque)
    running: set[FolderCall[Any]] = field(default_factory=set)


@dataclass(slots=True)
class FolderThreads:
    """The threads of all folders of one kind. ``name`` is the start of their names."""

    name: str
    at_once: int = 4
    late_s: float = 20.0
    hung_max: int = 16
    monotonic_s: Callable[[], float] = time.monotonic
    find_mount: Callable[[Path], str] = mount_of
    _mounts: dict[str, _Mount] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def submit(self, folder: Path, call: Callable[[], T]) -> FolderCall[T]:
        """Run ``call`` as soon as its mount has a place."""
        made = FolderCall(self.find_mount(folder), call)
        with self._lock:
            self._mounts.setdefault(made.mount, _Mount()).waiting.append(made)
            self._begin(made.mount)
        return made

    async def result(self, folder: Path, call: Callable[[], T]) -> T:
        """Return what ``call`` returns. If the task is cancelled, a call that has begun goes on."""
        return await self.awaited(self.submit(folder, call))

    def awaited(self, made: FolderCall[T]) -> asyncio.Future[T]:
        """Return the result of a call as a future of the running loop."""
        loop = asyncio.get_running_loop()
        if made.began_s is None:
            # By then, those that run now have ended or are late.
            loop.call_later(self.late_s, self.begin_due, made.mount)
        return asyncio.wrap_future(made.future, loop=loop)

    def begin_due(self, mount: str) -> None:
        """Begin the waiting calls of a mount for which there is a place now."""
        with self._lock:
            self._begin(mount)

    def hangs(self, mount: str) -> bool:
        """Return whether so many calls of a mount are late that no other one begins."""
        with self._lock:
            known = self._mounts.get(mount)
            return known is not None and self._late_count(known) >= self.hung_max

    def _begin(self, name: str) -> None:
        mount = self._mounts.get(name)
        while mount is not None and mount.waiting and self._has_place(mount):
            made = mount.waiting.popleft()
            if made.future.set_running_or_notify_cancel():
                made.began_s = self.monotonic_s()
                mount.running.add(made)
                try:
                    threading.Thread(target=self._run, args=(made,), name=self.name, daemon=True).start()
                except (RuntimeError, MemoryError):
                    mount.running.discard(made)
                    made.future.set_exception(OSError(errno.EAGAIN, "no thread can be started"))
        if mount is not None and not mount.running and not mount.waiting:
            del self._mounts[name]

    def _has_place(self, mount: _Mount) -> bool:
        late_count = self._late_count(mount)
        return late_count < self.hung_max and len(mount.running) - late_count < self.at_once

    def _late_count(self, mount: _Mount) -> int:
        late_from_s = self.monotonic_s() - self.late_s
        return sum(c.began_s is not None and c.began_s <= late_from_s for c in mount.running)

    def _run(self, made: FolderCall[T]) -> None:
        found: T | None = None
        error: BaseException | None = None
        try:
            found = made.call()
        except BaseException as raised:  # noqa: BLE001 -- the one who waits for the call gets it
            error = raised
        try:
            with self._lock:
                self._mounts[made.mount].running.discard(made)
                self._begin(made.mount)
        finally:
            # Whatever becomes of the next call, this one has ended.
            if error is not None:
                made.future.set_exception(error)
            else:
                made.future.set_result(found)  # type: ignore[arg-type]


class MountHangsError(Exception):
    """A call has not begun, because other folders of its mount do not answer. ``reason`` ends a sentence about it."""

    def __init__(self, mount: str) -> None:
        self.reason = f"it is not asked, because other folders of its mount ({mount}) do not answer"
        super().__init__(self.reason)


@dataclass(slots=True)
class AtMostOne(Generic[T]):
    """A call on a folder of which at most one runs. One that takes longer than it is waited for goes on."""

    threads: FolderThreads
    folder: Path
    _call: FolderCall[T] | None = None
    _running: asyncio.Future[T] | None = None

    async def result(self, call: Callable[[], T], *, wait_s: float) -> T:
        """Return what the running call returns, or else that of a new one.

        Raises:
            MountHangsError: it has not begun within ``wait_s`` seconds, because its mount hangs.
            TimeoutError: it has not ended by then, or waits for its place. The next call of this method waits for it
                again.
        """
        if self._call is None or self._running is None:
            self._call = self.threads.submit(self.folder, call)
            self._running = self.threads.awaited(self._call)
            # If nothing waits for it any more, its error is not reported as one that was missed.
            self._running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        made, running = self._call, self._running
        self.threads.begin_due(made.mount)
        done, _ = await asyncio.wait({running}, timeout=wait_s)
        if not done:
            # One that waits for others that are only slow gets its place.
            is_held = made.began_s is None and self.threads.hangs(made.mount)
            raise MountHangsError(made.mount) if is_held else TimeoutError
        if self._running is running:
            self._call = self._running = None
        return running.result()
