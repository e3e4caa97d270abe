"""The data folder of ``up``: its lock, its log folder, and the processes that a killed instance left running.

Invariant: at most one instance uses a folder. A file lock ensures this, and the system releases it when its holder
ends. A recorded process is ended only if its pid, start time and command line all match, because pids are reused.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from backend.domain.errors import HostError

_OTHER_FOLDER = "pass another folder with --data-dir"
_NO_COMMAND_MAX_S = 1.0


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """Identifies a process: a pid may be reused, but not together with the start time."""

    name: str
    pid: int
    started: str
    command: str


def mark_process(name: str, pid: int) -> ProcessMark | None:
    """The mark of a running process, or None if there is none. A zombie does not count."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        return _mark_from_proc(name, pid, stat)
    answer = subprocess.run(  # noqa: S603  the pid is an int
        ["/bin/ps", "-o", "lstart=,command=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
    ).stdout.strip()
    # `lstart` is a fixed-width date of 24 characters.
    return ProcessMark(name, pid, answer[:24], answer[24:].strip()) if answer else None


def _mark_from_proc(name: str, pid: int, stat: Path) -> ProcessMark | None:
    try:
        # The second field is the name in parentheses, which may contain any text: split after the last parenthesis.
        fields = stat.read_text().rpartition(")")[2].split()
        if fields[0] in {"Z", "X"}:
            return None
        return ProcessMark(name, pid, fields[19], _command_line(stat.with_name("cmdline")))
    except OSError:
        return None


def _command_line(path: Path) -> str:
    """The command line of a process. It is empty until the kernel has written it, so wait for it."""
    deadline = time.monotonic() + _NO_COMMAND_MAX_S
    while not (words := path.read_bytes()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return words.replace(b"\0", b" ").decode(errors="replace").strip()


def is_running(mark: ProcessMark) -> bool:
    """Whether the recorded process still runs."""
    return mark_process(mark.name, mark.pid) == mark


class Instance:
    """The holder of a data folder. Use as a context manager: it locks the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_folder = folder / "logs"
        self._processes_file = folder / "run" / "processes.json"
        self._lock: TextIO | None = None

    def __enter__(self) -> Instance:
        self._make_folders()
        self._lock = self._take_lock()
        return self

    def __exit__(self, *_: object) -> None:
        self._processes_file.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()

    def _make_folders(self) -> None:
        try:
            # 0711: the database server may run as another user, which must reach its folder and read no other.
            self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            for folder in (self.log_folder, self._processes_file.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            probe = self.folder / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            what = f"the data folder {self.folder} is not writable ({error.strerror})"
            raise HostError(what, fix=_OTHER_FOLDER) from None

    def _take_lock(self) -> TextIO:
        lock = (self.folder / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip()
            lock.close()
            by = f" by process {holder}" if holder else ""
            what = f"the data folder {self.folder} is in use{by}"
            raise HostError(what, fix=f"stop that process, or {_OTHER_FOLDER}") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        return lock

    def record(self, marks: list[ProcessMark]) -> None:
        """Record the running processes, so that the next instance can end them."""
        draft = self._processes_file.with_suffix(".new")
        draft.write_text(json.dumps([asdict(m) for m in marks], indent=1))
        draft.replace(self._processes_file)

    def leftovers(self) -> list[ProcessMark]:
        """The recorded processes of a killed instance that still run."""
        try:
            rows = json.loads(self._processes_file.read_text())
            marks = [ProcessMark(**row) for row in rows]
        except (OSError, ValueError, TypeError):
            return []
        return [mark for mark in marks if is_running(mark)]


def end_processes(marks: list[ProcessMark], *, grace_s: float = 5.0) -> None:
    """End processes: send SIGTERM, wait for ``grace_s``, then send SIGKILL. Returns when all have ended."""
    for mark in marks:
        _send(mark, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(map(is_running, marks)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for mark in filter(is_running, marks):
        _send(mark, signal.SIGKILL)
    while any(map(is_running, marks)):
        time.sleep(0.02)


def _send(mark: ProcessMark, number: signal.Signals) -> None:
    # The process may end between the check and the signal.
    with contextlib.suppress(ProcessLookupError):
        if is_running(mark):
            os.kill(mark.pid, number)
