"""Run ``barrierscope up`` as a process on free ports. Tests send requests to it, measure it and kill it."""

from __future__ import annotations

import os
import random
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.support.waiting import PATIENCE_S, until

COMMAND = (sys.executable, "-P", "-m", "backend.cli")
_STOP_MAX_S = 20.0


_OWN_PORTS = range(20_000, 32_000)
"""Ports below those that Linux gives away (``net.ipv4.ip_local_port_range``)."""


def free_port() -> int:
    """Return a port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def free_ports(count: int) -> list[int]:
    """Return ports that follow each other and are free at this moment.

    The system gives none of them to a connection or to a server without a port of its own. So an instance that starts
    again has them too.
    """
    found: list[int] = []
    while len(found) < count:
        port = found[-1] + 1 if found else random.randrange(_OWN_PORTS.start, _OWN_PORTS.stop)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                found.clear()
                continue
        found.append(port)
    return found


def folder_modes(folder: Path) -> dict[Path, int]:
    """Return the modes of a folder and of all folders above it."""
    return {p: stat.S_IMODE(p.stat().st_mode) for p in (folder, *folder.parents)}


class Up:
    """One run of ``up``. Its output is collected line by line."""

    def __init__(self, folder: Path, *arguments: str, port: int | None = None, **environment: str) -> None:
        self.folder = folder
        self.port = port or free_ports(1)[0]
        self.runtime_port = free_port()
        self.lines: list[str] = []
        self.refusals: list[str] = []
        """The latest failed requests, to be shown if a test fails."""
        self.started_s = time.monotonic()
        shell = {k: v for k, v in os.environ.items() if not k.startswith("BARRIERSCOPE_")} | environment
        # Every role inherits this variable. ``processes_of`` finds the roles by it.
        shell["TEST_DATA_FOLDER"] = str(folder)
        options = (
            "--port",
            str(self.port),
            "--runtime-port",
            str(self.runtime_port),
            "--data-dir",
            str(folder),
            "--no-spark-demo",
        )
        self.process = subprocess.Popen(
            [*COMMAND, "up", *options, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=shell,
            # Start `up` in a session and process group of its own, so that Ctrl-C concerns only this group.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="up-output")
        self._reader.start()
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE_S, trust_env=False)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    @property
    def output(self) -> str:
        """All output and the ends of the logs, to be shown if a test fails."""
        logs = [f"--- {p.name}\n{p.read_text(errors='replace')[-1500:]}" for p in self.folder.glob("logs/*.log")]
        return "\n".join([*self.lines, *logs])

    @property
    def age_s(self) -> float:
        """The seconds since the start of ``up``."""
        return time.monotonic() - self.started_s

    def says(self, words: str) -> bool:
        """Return whether a line of the output contains ``words``."""
        return any(words in line for line in list(self.lines))

    def wait_until_says(self, words: str) -> float:
        """Wait until the output contains ``words``, and return the seconds since the start.

        Fail if the process ends first.
        """
        try:
            until(lambda: self.says(words) or self.process.poll() is not None, words)
        except AssertionError as late:
            late.add_note(self.output)
            raise
        assert self.says(words), self.output
        return self.age_s

    def get(self, path: str) -> Any:
        """Return the JSON at a path of the API, or None if the request fails."""
        try:
            answer = self._http.get(path)
        except httpx.HTTPError as error:
            return self._refused(f"{path}: {error!r}")
        return answer.json() if answer.is_success else self._refused(f"{path}: {answer.status_code} {answer.text}")

    def _refused(self, why: str) -> None:
        self.refusals[:] = [*self.refusals[-4:], f"{self.age_s:.1f} s  {why[:500]}"]

    def page(self, path: str) -> httpx.Response:
        """Return the response for a page, after redirects."""
        return self._http.get(path, follow_redirects=True)

    def tree(self) -> list[psutil.Process]:
        """Return the process and all its descendants."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def memory_mib(self) -> dict[str, float]:
        """Return the memory of each role in MiB.

        Memory that processes share is divided among them, so it is counted once.
        """
        found: dict[str, float] = {}
        for process in self.tree():
            try:
                words = process.cmdline()
                size = process.memory_full_info().pss / 2**20
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            name = "postgres" if "postgres" in (words or ["postgres"])[0] else words[-1]
            name = "up" if process.pid == self.process.pid else name
            found[name] = found.get(name, 0.0) + size
        return found

    def interrupt(self) -> float:
        """Send Ctrl-C, and return how many seconds passed until the process ended."""
        began_s = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE_S)
        return time.monotonic() - began_s

    def child(self, role: str) -> psutil.Process:
        """Return the process of a role, or of the database server (``postgres``)."""
        (found,) = (
            p
            for p in psutil.Process(self.process.pid).children()
            if role in p.cmdline() or p.cmdline()[0].endswith(f"/{role}")
        )
        return found

    def kill(self) -> None:
        """Kill only the process ``up`` itself with ``kill -9``."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """Stop ``up`` if it still runs, and close its output and the HTTP client."""
        if self.process.poll() is None:
            self.interrupt()
        self._reader.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._http.close()


def refused(*arguments: str, **environment: str) -> str:
    """Run ``up`` with arguments with which it cannot start, and return its one-line error message."""
    done = subprocess.run(
        [*COMMAND, "up", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=dict(os.environ) | environment,
    )
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    # If the error is found before the start, the error is the only output.
    assert done.stdout == "" or "starting" in done.stdout
    assert line.startswith("barrierscope: ")
    return line


def stop_max_s() -> float:
    """Return how many seconds an orderly stop may take: 20 s, and longer in proportion to the machine's load."""
    return _STOP_MAX_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of the roles that ``up`` started on the folder, and of the server that works in it."""
    found = []
    for process in psutil.process_iter():
        try:
            is_role = process.environ().get("TEST_DATA_FOLDER") == str(folder)
            if process.status() != psutil.STATUS_ZOMBIE and (is_role or process.cwd().startswith(str(folder))):
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def jobs_of(up: Up) -> dict[str, str]:
    """Return the id of every job by its name, or an empty result if the request fails."""
    page = up.get("/api/v1/jobs?limit=100")
    return {job["name"]: job["id"] for job in page["items"]} if page else {}


def checkpoints_of(up: Up, job: str) -> dict[tuple[str, int], dict]:
    """Return every ended checkpoint of a job that the API lists, by (run id, checkpoint id)."""
    found, path = {}, f"/api/v1/jobs/{job}/checkpoints?limit=100"
    while path:
        page = up.get(path)
        if page is None:
            return {}
        found |= {(c["run_id"], c["checkpoint_id"]): c for c in page["items"] if c["status"] != "in-progress"}
        path = f"/api/v1/jobs/{job}/checkpoints?limit=100&cursor={page['next']}" if page["next"] else ""
    return found


@contextmanager
def temporary_up(*arguments: str) -> Iterator[Up]:
    """Run ``up`` for a benchmark. Yield it when it is ready. Stop it and remove its data at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="barrierscope-bench-") as folder:
        up = Up(Path(folder) / "data", *arguments)
        try:
            up.wait_until_says("ready: open")
            yield up
        finally:
            up.close()
