"""The data folder of ``up``: its lock, its log folder, and the processes that a killed instance left running.

Invariant: at most one instance of ``up`` uses a data folder. A file lock ensures this. The operating system releases
the lock when the process that holds it ends. A recorded process is ended only if its pid, start time and command line
all match, because pids are reused. On Linux, processes that were not recorded (such as the JVM of a role) are found by
their environment, which names the data folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from backend.domain.errors import HostError
from backend.pipeline.java import INSTANCE_VARIABLE

_OTHER_FOLDER = "pass another folder with --data-dir"
_NO_COMMAND_MAX_S = 1.0


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """Identifies one process. The pid alone is not enough, because the system may give it to a later process."""

    name: str
    pid: int
    started: str
    command: str


def mark_process(name: str, pid: int) -> ProcessMark | None:
    """Return the mark of the running process ``pid``, or None if there is no such process or it is a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        return _mark_from_proc(name, pid, stat)
    answer = subprocess.run(  # noqa: S603  the pid is an int
        ["/bin/ps", "-o", "lstart=,command=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
    ).stdout.strip()
    # `lstart` is a date of exactly 24 characters; the rest of the line is the command.
    return ProcessMark(name, pid, answer[:24], answer[24:].strip()) if answer else None


def _mark_from_proc(name: str, pid: int, stat: Path) -> ProcessMark | None:
    try:
        # The second field is the process name in parentheses. The name may itself contain spaces and parentheses, so
        # the line is split after the last parenthesis.
        fields = stat.read_text().rpartition(")")[2].split()
        if fields[0] in {"Z", "X"}:
            return None
        return ProcessMark(name, pid, fields[19], _command_line(stat.with_name("cmdline")))
    except OSError:
        return None


def _command_line(path: Path) -> str:
    """Return the command line of a process. It may be empty at first, so wait up to a second until it is not."""
    deadline = time.monotonic() + _NO_COMMAND_MAX_S
    while not (words := path.read_bytes()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return words.replace(b"\0", b" ").decode(errors="replace").strip()


def is_running(mark: ProcessMark) -> bool:
    """Return whether the process that ``mark`` identifies still runs."""
    return mark_process(mark.name, mark.pid) == mark


class Instance:
    """A data folder in use by this process. Use it as a context manager, which holds the folder's lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_folder = folder / "logs"
        self._processes_file = _processes_file(folder)
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
            # Mode 0711: the database server may run as another user. That user must be able to reach its own folder,
            # but not to list the other folders.
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
        # The process id is written only so that the error message above can name it. The folder is locked even if the
        # disk is full.
        with contextlib.suppress(OSError):
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), f"{os.getpid()}\n".encode())
        return lock

    def record(self, marks: list[ProcessMark]) -> None:
        """Store the marks of the running processes, so that the next instance can end them if this one is killed.

        If the file cannot be written, for example because the disk is full, it keeps its former content. The next
        instance also finds processes by their environment.
        """
        draft = self._processes_file.with_suffix(".new")
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps([asdict(m) for m in marks], indent=1))
            draft.replace(self._processes_file)

    def leftovers(self) -> list[ProcessMark]:
        """Return the processes that a killed instance left running. Call it while this object holds the lock."""
        return left_in(self.folder)


def is_in_use(folder: Path) -> bool:
    """Return whether a running instance holds the lock of the data folder."""
    try:
        with (folder / "lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def left_in(folder: Path) -> list[ProcessMark]:
    """Return the running processes of the instance that used the data folder last, found by record or environment."""
    marks = {mark.pid: mark for mark in processes_of(folder)}
    marks |= {mark.pid: mark for mark in _recorded(folder) if is_running(mark)}
    return list(marks.values())


def _recorded(folder: Path) -> list[ProcessMark]:
    try:
        rows = json.loads(_processes_file(folder).read_text())
        return [ProcessMark(**row) for row in rows]
    except (OSError, ValueError, TypeError):
        return []


def _processes_file(folder: Path) -> Path:
    return folder / "run" / "processes.json"


def processes_of(folder: Path) -> Iterator[ProcessMark]:
    """Yield the processes whose environment names ``folder``, except this process and its ancestors.

    The environment of other processes can be read on Linux only. On other systems, nothing is yielded.
    """
    wanted = os.fsencode(f"{INSTANCE_VARIABLE}={folder}")
    own = _with_ancestors(os.getpid())
    for place in Path("/proc").glob("[0-9]*/environ"):
        # A process may end at any moment, and the environments of other users' processes cannot be read. Such processes
        # are skipped.
        with contextlib.suppress(OSError):
            pid = int(place.parent.name)
            if pid not in own and wanted in place.read_bytes().split(b"\0"):
                mark = mark_process(place.with_name("comm").read_text().strip(), pid)
                if mark is not None:
                    yield mark


def _with_ancestors(pid: int) -> set[int]:
    ancestors = set()
    with contextlib.suppress(OSError):
        while pid > 0:
            ancestors.add(pid)
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return ancestors


def end_processes(marks: list[ProcessMark], *, request: signal.Signals = signal.SIGTERM, grace_s: float = 5.0) -> None:
    """Send ``request`` to each process, wait up to ``grace_s``, then send SIGKILL. Return when all have ended.

    Suspended processes are resumed, because they handle no signal but SIGKILL.
    """
    for mark in marks:
        _send(mark, request)
        _send(mark, signal.SIGCONT)
    deadline = time.monotonic() + grace_s
    while any(map(is_running, marks)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for mark in filter(is_running, marks):
        _send(mark, signal.SIGKILL)
    while any(map(is_running, marks)):
        time.sleep(0.02)


def _send(mark: ProcessMark, number: signal.Signals) -> None:
    # The process may end between the check and the signal, which is no error.
    with contextlib.suppress(ProcessLookupError):
        if is_running(mark):
            os.kill(mark.pid, number)
