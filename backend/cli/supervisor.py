"""The child processes of ``up``: starts them, watches them, restarts them with backoff, and stops them in order.

The supervisor decides when to restart a role; it does not know what the role does. Invariant: a child stays recorded
until it has ended, so that the next instance can end it if this one is killed. Each child runs in its own session.
Ctrl-C in a terminal therefore reaches only ``up``, which then stops the roles in order.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.cli.instance import ProcessMark, mark_process
from backend.domain.text import printable

_BACKOFF_FIRST_S = 0.5
_BACKOFF_MAX_S = 30.0
# A role that has run this long counts as steady. If it ends later, the backoff starts from the beginning.
_STEADY_S = 60.0
_LOG_MAX_BYTES = 8 * 2**20
_LOOK_INTERVAL_S = 0.05
_END_INTERVAL_S = 0.02
# Only this many bytes at the end of a log are searched for its last line.
_WORDS_BYTES = 4096
_IS_NORMAL_WORK = re.compile(r"timestamp=\S+ level=(?:debug|info) ")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Role:
    """A role: the command and environment of its process, and how long an orderly stop may take."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    stop_timeout_s: float = 5.0


@dataclass(slots=True)
class _Child:
    role: Role
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    mark: ProcessMark | None = None
    started_s: float = 0.0
    restart_at_s: float | None = None
    failures: int = 0


@dataclass(slots=True)
class Supervisor:
    """Runs roles until ``stop``. The owner must call ``watch`` often. Not thread-safe: one thread makes all calls."""

    log_folder: Path
    say: Say
    record: Callable[[list[ProcessMark]], None]
    now_s: Callable[[], float] = time.monotonic
    _children: list[_Child] = field(default_factory=list)
    _log_begins: dict[str, int] = field(default_factory=dict)
    """The size of each role's log when the role was last started, in bytes."""

    def start(self, role: Role) -> None:
        """Start a role. ``watch`` restarts it when it ends."""
        child = _Child(role, self.log_folder / f"{role.name}.log")
        self._children.append(child)
        self._spawn(child)

    def run_once(self, role: Role, is_stopped: Callable[[], bool]) -> int | None:
        """Run a role that ends by itself. Return its exit code, or None if ``is_stopped`` became true first."""
        child = _Child(role, self.log_folder / f"{role.name}.log")
        self._children.append(child)
        process = self._spawn(child)
        try:
            while not (has_ended := _has_ended(process)) and not is_stopped():
                time.sleep(_LOOK_INTERVAL_S)
        finally:
            code = _end(process, role.stop_timeout_s)
            self._children.remove(child)
            self._record()
        return code if has_ended else None

    def replace(self, role: Role) -> None:
        """Stop the role that has the same name, and start ``role`` in its place."""
        for child in [c for c in self._children if c.role.name == role.name]:
            self._children.remove(child)
            if child.process is not None:
                _end(child.process, child.role.stop_timeout_s)
        self.start(role)

    def watch(self) -> None:
        """Detect roles that have ended, and restart those whose backoff pause is over."""
        now_s = self.now_s()
        for child in self._children:
            _bound_log(child.log_path)
            if child.process is not None and _has_ended(child.process):
                self._note_end(child, child.process, now_s)
            if child.restart_at_s is not None and now_s >= child.restart_at_s:
                self._restart(child, now_s)

    def has(self, name: str) -> bool:
        """Return whether a role of that name is supervised; it may be waiting for its restart."""
        return any(c.role.name == name for c in self._children)

    def is_running(self, name: str) -> bool:
        """Return whether the role of that name has a running process."""
        processes = [c.process for c in self._children if c.role.name == name]
        return any(process is not None and not _has_ended(process) for process in processes)

    def failures(self, name: str) -> int:
        """Return how often the role of that name has ended unexpectedly since it last ran for ``_STEADY_S``."""
        return next((c.failures for c in self._children if c.role.name == name), 0)

    def stop(self) -> None:
        """Stop every role, in reverse order of the start. Kill a role that does not end in time."""
        while self._children:
            # The child stays in the list until it has ended, so that ``kill`` still finds it if Ctrl-C interrupts
            # this loop.
            child = self._children[-1]
            if child.process is not None:
                _end(child.process, child.role.stop_timeout_s)
            self._children.pop()
            self._record()

    def kill(self) -> None:
        """Kill every role without an orderly stop."""
        for child in self._children:
            if child.process is not None:
                _signal_group(child.process, signal.SIGKILL)
        for child in self._children:
            if child.process is not None:
                _reap(child.process)
        self._children.clear()
        self._record()

    def last_words(self, name: str) -> str:
        """Return the last line that a role has logged since its last start, or an empty text if there is none."""
        path = self.log_folder / f"{name}.log"
        try:
            with path.open("rb") as log:
                size, begin = path.stat().st_size, self._log_begins.get(name, 0)
                # If the log is shorter than at the start of the role, it was emptied in the meantime, so all of it is
                # new.
                log.seek(max(0, size - _WORDS_BYTES, begin if begin <= size else 0))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return printable(next((line.strip() for line in reversed(lines) if line.strip()), ""))

    def _spawn(self, child: _Child) -> subprocess.Popen[bytes]:
        child.restart_at_s = None
        child.started_s = self.now_s()
        with child.log_path.open("ab") as log:
            self._log_begins[child.role.name] = log.tell()
            child.process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                child.role.command,
                env=dict(child.role.environment),
                # Nothing is written to this pipe. When this process ends, the child reads end of file and ends too.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        child.mark = mark_process(child.role.name, child.process.pid)
        self._record()
        return child.process

    def _restart(self, child: _Child, now_s: float) -> None:
        try:
            self._spawn(child)
        except OSError as error:
            # The machine has no disk space, memory or process id left. This may be temporary, so the role is started
            # again later.
            pause_s = self._next_pause_s(child, now_s)
            self.say(f"{child.role.name} cannot be started ({error.strerror}); it is tried again in {pause_s:g} s")

    def _next_pause_s(self, child: _Child, now_s: float) -> float:
        child.failures = 1 if now_s - child.started_s >= _STEADY_S else child.failures + 1
        pause_s = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2.0 ** (child.failures - 1))
        child.restart_at_s = now_s + pause_s
        return pause_s

    def _note_end(self, child: _Child, process: subprocess.Popen[bytes], now_s: float) -> None:
        code = _reap(process)
        child.process = None
        pause_s = self._next_pause_s(child, now_s)
        self._record()
        words = self.last_words(child.role.name)
        # A line about normal work is not the reason for the end.
        tail = "" if not words or _IS_NORMAL_WORK.match(words) else f": {words}"
        self.say(f"{child.role.name} ended {_how(code)}; it restarts in {pause_s:g} s{tail}")

    def _record(self) -> None:
        alive = [c.mark for c in self._children if c.mark is not None and c.process is not None]
        self.record(alive)


def role_command(*arguments: str) -> tuple[str, ...]:
    """Return the command line that runs a role with this interpreter. The child ends when this process ends."""
    # With -P, Python does not import from the current folder, which may contain another `backend/`.
    return (sys.executable, "-P", "-m", "backend.cli", "--parent", str(os.getpid()), *arguments)


def _end(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Stop a role. Kill it if it does not end in time. Return its exit code."""
    if not _has_ended(process):
        os.kill(process.pid, signal.SIGTERM)
        # A suspended process handles SIGTERM only after it has been resumed.
        _signal_group(process, signal.SIGCONT)
    deadline_s = time.monotonic() + timeout_s
    while not _has_ended(process) and time.monotonic() < deadline_s:
        time.sleep(_END_INTERVAL_S)
    return _reap(process)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended. It stays a zombie, so that no other process gets its id.

    Without this guarantee, a signal to the group of the process could reach a group of another program.
    """
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        # Python before 3.13 lacks ``waitid`` on macOS. There, no zombie is needed, because ids are reused only after
        # 100,000 other processes.
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        # This process was started with SIGCHLD ignored. The kernel then removes an ended process, and the call above
        # fails.
        return process.poll() is not None


def _reap(process: subprocess.Popen[bytes]) -> int:
    """Kill the role if it still runs, and what it has left running, such as a JVM. Return the role's exit code."""
    _signal_group(process, signal.SIGKILL)
    code = process.wait()
    if process.stdin is not None:
        process.stdin.close()
    return code


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a role and to all processes that it has started. Each role leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def _bound_log(path: Path) -> None:
    try:
        if path.stat().st_size <= _LOG_MAX_BYTES:
            return
    except OSError:
        return
    # The child keeps the file open for appending. So the log is copied and then emptied, instead of being renamed.
    copy = path.with_suffix(".log.1")
    try:
        copy.write_bytes(path.read_bytes())
    except OSError:
        # The disk is full. The incomplete copy is removed, because the space is worth more.
        copy.unlink(missing_ok=True)
    with path.open("r+b") as log:
        log.truncate(0)
