"""The instances of ``up`` that this user runs now: each leaves a small file with its address, which the commands read.

The file is in ``$XDG_RUNTIME_DIR/barrierscope`` or, if there is no such folder, in ``barrierscope/running`` in XDG's
state home. It contains no credential. A command sends its token to the address in the file. So a file counts only if it
and its folder belong to this user and nobody else can write them, and if the process that wrote it still runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from backend.cli.instance import ProcessMark, is_running, mark_process
from backend.settings import Settings

_FILE_MAX_BYTES = 64 * 1024
_FILES_MAX = 100


@dataclass(frozen=True, slots=True)
class RunningUp:
    """One instance of ``up``: the addresses of its API and of its live runtime, its data folder, and the process."""

    url: str
    folder: str
    ready_at: float
    """When the API was ready, in seconds since the epoch."""
    process: ProcessMark
    runtime_url: str | None = None
    """The root of the live runtime's REST; None if no live jobs run, or if an older version wrote the file."""


@contextmanager
def announced(url: str, folder: Path, settings: Settings, *, runtime_url: str | None = None) -> Iterator[None]:
    """Let the commands of this user find this process at ``url`` as long as the context lasts.

    If no file can be written, the commands find it only if they are given its address.
    """
    process = mark_process("up", os.getpid())
    file = None
    if process is not None:
        file = _written(RunningUp(url, str(folder), time.time(), process, runtime_url), settings)
    try:
        yield
    finally:
        if file is not None:
            with contextlib.suppress(OSError):
                file.unlink()


def running_ups(settings: Settings) -> list[RunningUp]:
    """Return the running instances of this user, the newest first."""
    ups = [up for folder in _folders(settings) for _, up in _read_all(folder) if up is not None]
    return sorted(ups, key=lambda up: up.ready_at, reverse=True)


def chosen(running: Sequence[RunningUp], *, option: str, with_runtime: bool = False) -> RunningUp | None:
    """Return the newest instance, and say on standard error which one a command uses; None if there is none.

    ``option`` is the option of the command that names another. ``with_runtime`` is for a command of the live runtime.
    """
    found = [up for up in running if up.runtime_url is not None] if with_runtime else running
    if not found:
        return None
    newest = found[0]
    which = "`up`" if len(found) == 1 else f"the newest of {len(found)} running `up` ({option} chooses another)"
    address = newest.runtime_url if with_runtime else newest.url
    typer.echo(f"using {address}: {which}, data in {newest.folder}", err=True)
    return newest


def _written(up: RunningUp, settings: Settings) -> Path | None:
    for folder in _folders(settings):
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_own(folder.stat()):
                continue
            for file, running in _read_all(folder):
                if running is None:
                    file.unlink()
            file = folder / f"up-{up.process.pid}.json"
            draft = file.with_suffix(".new")
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
                json.dump(asdict(up), out)
            draft.replace(file)
            return file
    return None


def _folders(settings: Settings) -> Iterator[Path]:
    """Yield the folders that may have files: a process that a service manager starts may have other variables."""
    runtime = settings.xdg_runtime_dir
    if runtime is not None and runtime.is_absolute() and runtime.is_dir():
        yield runtime / "barrierscope"
    state = settings.xdg_state_home
    with contextlib.suppress(RuntimeError):
        home = state if state is not None and state.is_absolute() else Path.home() / ".local" / "state"
        yield home / "barrierscope" / "running"


def _read_all(folder: Path) -> Iterator[tuple[Path, RunningUp | None]]:
    """Yield each file of ``folder`` with the instance that wrote it, or None if that does not run any more."""
    with contextlib.suppress(OSError):
        if _is_own(folder.lstat()):
            for file in sorted(folder.glob("up-*.json"))[:_FILES_MAX]:
                yield file, _read(file)


def _read(file: Path) -> RunningUp | None:
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as source:
            if not _is_own(os.fstat(source.fileno())):
                return None
            document = json.loads(source.read(_FILE_MAX_BYTES))
        process = ProcessMark(**document["process"])
        runtime = document.get("runtime_url")
        up = RunningUp(
            url=str(document["url"]),
            folder=str(document["folder"]),
            ready_at=float(document["ready_at"]),
            process=process,
            runtime_url=runtime if isinstance(runtime, str) and runtime.startswith("http://") else None,
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return up if is_running(process) else None


def _is_own(status: os.stat_result) -> bool:
    """Return whether a file or folder belongs to this user, and nobody else can write it."""
    is_of_known_type = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return is_of_known_type and status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
