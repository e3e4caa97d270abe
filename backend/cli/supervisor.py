"""Child processes of ``up``: start, watch, restart with backoff, stop in order.

It decides when to restart a role and does not know what a role does. Invariant: every child is recorded, so that the
next instance can end it, until it has ended. Each child runs in its own session: Ctrl-C in a terminal reaches ``up``
only, which then stops the roles in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.cli.instance import ProcessMark, mark_process

_BACKOFF_FIRST_S = 0.5
_BACKOFF_MAX_S = 30.0
# After this time a role counts as steady, and its next end starts the backoff from the beginning.
_STEADY_S = 60.0
_LOG_MAX_BYTES = 8 * 2**20
_LOOK_INTERVAL_S = 0.05
# The last line of a log is searched in this many bytes at its end.
_WORDS_BYTES = 4096

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Role:
    """A role: its command, and how long an orderly stop may take."""

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
    """Runs roles until ``stop``. Not thread-safe: its owner calls ``watch`` often, from one thread."""

    log_folder: Path
    say: Say
    record: Callable[[list[ProcessMark]], None]
    now_s: Callable[[], float] = time.monotonic
    _children: list[_Child] = field(default_factory=list)

    def start(self, role: Role) -> None:
        """Start a role and keep it running."""
        child = _Child(role, self.log_folder / f"{role.name}.log")
        self._children.append(child)
        self._spawn(child)

    def run_once(self, role: Role, is_stopped: Callable[[], bool]) -> int | None:
        """Run a role that ends by itself; returns its exit code, or None if it was stopped first."""
        child = _Child(role, self.log_folder / f"{role.name}.log")
        self._children.append(child)
        process = self._spawn(child)
        try:
            while process.poll() is None and not is_stopped():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_INTERVAL_S)
            return process.poll()
        finally:
            _end(process, role.stop_timeout_s)
            self._children.remove(child)
            self._record()

    def replace(self, role: Role) -> None:
        """Replace the running role of the same name by this one."""
        for child in [c for c in self._children if c.role.name == role.name]:
            self._children.remove(child)
            if child.process is not None:
                _end(child.process, child.role.stop_timeout_s)
        self.start(role)

    def watch(self) -> None:
        """Detect roles that have ended, and restart those whose pause is over."""
        now_s = self.now_s()
        for child in self._children:
            _bound_log(child.log_path)
            if child.process is not None and child.process.poll() is not None:
                self._note_end(child, child.process, now_s)
            if child.restart_at_s is not None and now_s >= child.restart_at_s:
                self._spawn(child)

    def has(self, name: str) -> bool:
        """Whether a role of that name was started and is kept running."""
        return any(c.role.name == name for c in self._children)

    def is_running(self, name: str) -> bool:
        """Whether the role of that name has a running process."""
        return any(c.role.name == name and c.process is not None and c.process.poll() is None for c in self._children)

    def failures(self, name: str) -> int:
        """How often the role of that name has ended unexpectedly since it was last steady."""
        return next((c.failures for c in self._children if c.role.name == name), 0)

    def stop(self) -> None:
        """Stop every role in reverse order of the start; kill those that do not end in time."""
        while self._children:
            # It stays in the list until it has ended, so that ``kill`` still finds it after an interrupt.
            child = self._children[-1]
            if child.process is not None:
                _end(child.process, child.role.stop_timeout_s)
            self._children.pop()
            self._record()

    def kill(self) -> None:
        """Kill every role."""
        for child in self._children:
            if child.process is not None:
                child.process.kill()
        for child in self._children:
            if child.process is not None:
                _end(child.process, child.role.stop_timeout_s)
        self._children.clear()
        self._record()

    def last_words(self, name: str) -> str:
        """The last line of a role's log."""
        path = self.log_folder / f"{name}.log"
        try:
            with path.open("rb") as log:
                log.seek(max(0, path.stat().st_size - _WORDS_BYTES))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _spawn(self, child: _Child) -> subprocess.Popen[bytes]:
        child.restart_at_s = None
        child.started_s = self.now_s()
        with child.log_path.open("ab") as log:
            child.process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                child.role.command,
                env=dict(child.role.environment),
                # Nothing is written to it; its end of file shows the child that this process has ended.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        child.mark = mark_process(child.role.name, child.process.pid)
        self._record()
        return child.process

    def _note_end(self, child: _Child, process: subprocess.Popen[bytes], now_s: float) -> None:
        _close_stdin(process)
        child.process = None
        child.failures = 1 if now_s - child.started_s >= _STEADY_S else child.failures + 1
        pause_s = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2.0 ** (child.failures - 1))
        child.restart_at_s = now_s + pause_s
        self._record()
        words = self.last_words(child.role.name)
        tail = f": {words}" if words else ""
        self.say(f"{child.role.name} ended {_how(process.returncode)}; it restarts in {pause_s:g} s{tail}")

    def _record(self) -> None:
        alive = [c.mark for c in self._children if c.mark is not None and c.process is not None]
        self.record(alive)


def role_command(*arguments: str) -> tuple[str, ...]:
    """The command line that runs a role with this interpreter, as a child that ends with this process."""
    # -P: Python does not search the current folder, where another `backend/` may be.
    return (sys.executable, "-P", "-m", "backend.cli", "--parent", str(os.getpid()), *arguments)


def _end(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _close_stdin(process)


def _close_stdin(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


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
    # The child has the file open for appending, so it is copied and then emptied in place.
    path.with_suffix(".log.1").write_bytes(path.read_bytes())
    with path.open("r+b") as log:
        log.truncate(0)
