"""Runs an experiment in several processes, and keeps the rows of each run that has ended.

The rows are appended to a file, one line a run. A killed experiment loses only the runs that were under way. When it is
started again, it reads the file and does the runs that are missing. The first line names the experiment and the code
that made the rows, so that rows of different code are never mixed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn, cast

from backend.domain.errors import HostError
from backend.experiments.catalog import EXPERIMENTS
from backend.experiments.model import Experiment, Row

ROWS_FILE: Final = "rows.jsonl"
_PACKAGES: Final = ("experiments", "runtime")


@dataclass(frozen=True, slots=True)
class Unit:
    """One run: a task of an experiment with one seed."""

    task: str
    seed: int


@cache
def code_digest() -> str:
    """Return a digest of the code on which the rows depend."""
    root, seen = Path(__file__).parent.parent, hashlib.blake2b(digest_size=8)
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".toml"):
                seen.update(f"{path.relative_to(root)}:{path.stat().st_size}\n".encode() + path.read_bytes())
    return seen.hexdigest()


class KeptRows:
    """The rows of the runs that have ended, in a file that is open for this process alone."""

    def __init__(self, file: BinaryIO, experiment: str, ratio: float) -> None:
        self._file = file
        self._head = {"experiment": experiment, "code": code_digest(), "ratio": ratio}
        self.by_unit: dict[Unit, list[Row]] = {}

    def read(self, path: Path) -> None:
        """Read what is kept, and remove a line that was not written to its end.

        Raises:
            HostError: another experiment or other code made the rows.
        """
        self._file.seek(0)
        lines = self._file.read().split(b"\n")
        whole = lines[:-1]
        if not whole:
            self._file.truncate(0)
            self._append(self._head)
            return
        if _document(whole[0]) != self._head:
            fix = "remove the folder, or choose another one with --out"
            raise HostError(f"{path} holds rows that another experiment or another version made", fix=fix)
        self._file.truncate(sum(len(line) + 1 for line in whole))
        for line in whole[1:]:
            try:
                document = _document(line)
                rows = [Row(**row) for row in document["rows"]]
                self.by_unit[Unit(document["task"], document["seed"])] = rows
            except (TypeError, KeyError):
                # The line is damaged, for example because the disk was full. Its run is done again.
                continue

    def add(self, unit: Unit, rows: Sequence[Row]) -> None:
        """Keep the rows of a run that has ended."""
        self.by_unit[unit] = list(rows)
        self._append({"task": unit.task, "seed": unit.seed, "rows": [asdict(row) for row in rows]})

    def _append(self, document: dict[str, Any]) -> None:
        self._file.seek(0, os.SEEK_END)
        self._file.write(json.dumps(document).encode() + b"\n")
        self._file.flush()


def _document(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


@contextmanager
def kept_rows(folder: Path, experiment: str, ratio: float = 1.0) -> Iterator[KeptRows]:
    """Open the rows in a folder, which is made if there is none.

    Raises:
        HostError: the folder cannot be used, another process runs the experiment in it, or its rows are from
            another experiment or other code.
    """
    path = folder / ROWS_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise HostError(f"{path} cannot be written: {error.strerror}", fix="choose a folder with --out") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HostError(f"another process runs an experiment in {folder}", fix="wait for it") from None
        rows = KeptRows(file, experiment, ratio)
        rows.read(path)
        yield rows


def units_of(experiment: Experiment, seeds: int) -> list[Unit]:
    """Return the runs of an experiment, seed by seed, so that the runs of the first seed cover all tasks."""
    return [Unit(task, seed) for seed in range(seeds) for task in experiment.tasks]


def run(
    experiment: Experiment,
    kept: KeptRows,
    *,
    seeds: int,
    processes: int,
    ratio: float = 1.0,
    on_end: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Do the runs whose rows are not kept yet, and return the rows of all runs. ``on_end`` is called after each run.

    Raises:
        HostError: a process that did a run was killed. The rows of the runs that have ended are kept.
    """
    units = units_of(experiment, seeds)
    left = [(experiment.name, unit, ratio) for unit in units if unit not in kept.by_unit]
    try:
        for unit, rows in map(_work, left) if processes == 1 or len(left) == 1 else _in_processes(left, processes):
            kept.add(unit, rows)
            on_end()
    except _KilledError as killed:
        raise HostError(
            f"the process of the run {killed.unit.task!r} with seed {killed.unit.seed} was killed ({killed.how});"
            f" {sum(unit in kept.by_unit for unit in units)} of {len(units)} runs are kept",
            fix="the same command continues; if memory was short, add --processes 1",
        ) from None
    return [row for unit in units for row in kept.by_unit[unit]]


_Job = tuple[str, Unit, float]
_Done = tuple[Unit, list[Row]]


def _work(job: _Job) -> _Done:
    name, unit, ratio = job
    return unit, list(EXPERIMENTS[name].run(unit.task, unit.seed, ratio))


class _KilledError(Exception):
    """A process ended before its run did."""

    def __init__(self, unit: Unit, exit_code: int | None) -> None:
        self.unit = unit
        self.how = signal.Signals(-exit_code).name if exit_code and exit_code < 0 else f"exit code {exit_code}"


class _Worker:
    """A process that does one run at a time.

    A ``ProcessPoolExecutor`` neither tells which run a killed process was doing, nor can it stop a run under way.
    """

    def __init__(self) -> None:
        # Do not fork: a forked process would inherit the locks that other threads of this process hold.
        context = get_context("spawn")
        self.answers, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        # The process now has the only copy, so its death ends the pipe.
        theirs.close()
        self._unit: Unit | None = None

    def begin(self, job: _Job) -> None:
        self._unit = job[1]
        try:
            self.answers.send(job)
        except OSError:
            self._died()

    def result(self) -> _Done:
        """Return the rows of the run, and wait for them if the run has not ended."""
        try:
            answer = self.answers.recv()
        except (EOFError, OSError):
            self._died()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        done: _Done = answer
        return done

    def _died(self) -> NoReturn:
        assert self._unit is not None
        self._process.join()
        raise _KilledError(self._unit, self._process.exitcode)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self.answers.close()


def _in_processes(jobs: Iterable[_Job], processes: int) -> Iterator[_Done]:
    """Do the runs in several processes, and yield the rows of each run that ends. No process outlives the iterator."""
    left = deque(jobs)
    busy: dict[Connection, _Worker] = {}
    workers: list[_Worker] = []
    try:
        for _ in range(min(processes, len(left))):
            workers.append(worker := _Worker())
            worker.begin(left.popleft())
            busy[worker.answers] = worker
        while busy:
            for answers in wait(list(busy)):
                worker = busy.pop(cast(Connection, answers))
                done = worker.result()
                if left:
                    worker.begin(left.popleft())
                    busy[worker.answers] = worker
                yield done
    finally:
        for worker in workers:
            worker.stop()


def _serve(jobs: Connection) -> None:
    """Do the runs that arrive until the other end is closed, which also happens if the other process is killed."""
    # Ctrl-C reaches every process of the terminal. The process that started this one then stops it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        try:
            job: _Job = jobs.recv()
        except EOFError:
            return
        try:
            answer: _Done | str = _work(job)
        except Exception:  # noqa: BLE001  the error is raised again in the process that waits for the run
            answer = f"the run {job[1].task!r} with seed {job[1].seed} failed\n{traceback.format_exc()}"
        try:
            jobs.send(answer)
        except OSError:
            return
