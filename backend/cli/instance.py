"""The data folder of ``up``: who may use it, what a killed instance left running, and where its roles write.

Invariant: at most one instance uses a folder (a file lock decides, so it is free the moment its holder is dead).
A recorded process is ended only if it is still the one recorded: pid, start time and command line must all agree,
since pids are reused.
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
    """A process as it can be recognised later: pids are reused, start times within one boot are not."""

    name: str
    pid: int
    started: str
    command: str


def mark_process(name: str, pid: int) -> ProcessMark | None:
    """The mark of a living process, or None where there is none (a zombie is none)."""
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
        # The second field is the name in parentheses and may hold anything; the rest is split after the last one.
        fields = stat.read_text().rpartition(")")[2].split()
        if fields[0] in {"Z", "X"}:
            return None
        return ProcessMark(name, pid, fields[19], _command_line(stat.with_name("cmdline")))
    except OSError:
        return None


def _command_line(path: Path) -> str:
    """Of a process that was started this very moment it is empty until the kernel has put it there."""
    deadline = time.monotonic() + _NO_COMMAND_MAX_S
    while not (words := path.read_bytes()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return words.replace(b"\0", b" ").decode(errors="replace").strip()


def is_running(mark: ProcessMark) -> bool:
    """Whether the process recorded is still there, and is the same one."""
    return mark_process(mark.name, mark.pid) == mark


class Instance:
    """One holder of a data folder. Use as a context manager: entering locks, leaving unlocks."""

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
            # 0711: the database server may run as a user of its own who must reach its folder, and see no other.
            self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            for folder in (self.log_folder, self._processes_file.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            probe = self.folder / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            what = f"the data folder {self.folder} cannot be written ({error.strerror})"
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
            raise HostError(what, fix=f"stop that one, or {_OTHER_FOLDER}") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        return lock

    def record(self, marks: list[ProcessMark]) -> None:
        """Write down which processes are ours, so that the next instance can end them."""
        draft = self._processes_file.with_suffix(".new")
        draft.write_text(json.dumps([asdict(m) for m in marks], indent=1))
        draft.replace(self._processes_file)

    def leftovers(self) -> list[ProcessMark]:
        """The recorded processes of an instance that was killed and which are still running."""
        try:
            rows = json.loads(self._processes_file.read_text())
            marks = [ProcessMark(**row) for row in rows]
        except (OSError, ValueError, TypeError):
            return []
        return [mark for mark in marks if is_running(mark)]


def end_processes(marks: list[ProcessMark], *, grace_s: float = 5.0) -> None:
    """End processes: ask, wait, then force. Returns when none of them is left."""
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
    # Between the look and the signal the process may have ended by itself.
    with contextlib.suppress(ProcessLookupError):
        if is_running(mark):
            os.kill(mark.pid, number)
