"""Schedules the rollups under ``up``: soon after the start, and then a few minutes after each hour.

A run starts only if closed hours are due. Each run is a child process that works and ends, so that no JVM stays
between runs. A failed run is repeated after a pause. The schedule writes its state to the store, from which the API and
the pages read it. Hours that a run has not finished are due in the next run.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from backend.cli.supervisor import role_command
from backend.domain.clock import Clock
from backend.domain.errors import StoreUnavailableError
from backend.domain.rollup import HOUR, hour_of
from backend.settings import child_environment
from backend.store.pipeline.run_log import open_run_log

_log = structlog.get_logger(__name__)

# By then, most checkpoints that were triggered in the hour have ended. The run an hour later includes the rest.
AFTER_THE_HOUR = timedelta(minutes=3)
# The first run waits this long, because the pages need the machine first.
AFTER_THE_START = timedelta(seconds=20)
_RETRY = timedelta(minutes=10)
_STORE_RETRY = timedelta(minutes=1)
_LOOK_S = 0.2
_STOP_TIMEOUT_S = 3.0

StartRun = Callable[[str], "subprocess.Popen[bytes]"]


def next_run_after(now: datetime) -> datetime:
    """Return the time of the next regular run: ``AFTER_THE_HOUR`` past this hour or past the next one."""
    of_this_hour = hour_of(now) + AFTER_THE_HOUR
    return of_this_hour if now < of_this_hour else of_this_hour + HOUR


def start_run(database_url: str, *options: str) -> subprocess.Popen[bytes]:
    """Start a run of the rollups in a child process. The child ends with this process and writes to the same log."""
    return subprocess.Popen(  # noqa: S603  our own interpreter and module
        role_command("pipeline", "rollups", *options),
        env=child_environment(database_url=database_url),
        # Nothing is written to this pipe. When this process ends, the child reads end of file and ends too.
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )


@dataclass(slots=True)
class Schedule:
    """Starts a run of the rollups whenever hours are due, until ``stop`` is set."""

    database_url: str
    clock: Clock
    stop: threading.Event
    start: StartRun = start_run

    def run(self) -> None:
        """Wait until the next run is due, roll up, and repeat until ``stop`` is set."""
        due = self.clock.now() + AFTER_THE_START
        self._record_due(due)
        while self._wait_until(due):
            due = self.turn()
            self._record_due(due)

    def turn(self) -> datetime:
        """Roll up the hours that are due, if any. Return the time of the next attempt."""
        now = self.clock.now()
        try:
            with open_run_log(self.database_url) as run_log:
                stale = len(run_log.stale_hours(now))
        except StoreUnavailableError as error:
            _log.warning("rollups are waiting for the store", reason=error.reason)
            return now + _STORE_RETRY
        if stale == 0:
            return next_run_after(now)
        _log.info("rolling up", hours=stale)
        code = self._work()
        after = next_run_after(self.clock.now())
        return after if code == 0 else min(after, self.clock.now() + _RETRY)

    def _work(self) -> int:
        process = self.start(self.database_url)
        try:
            while process.poll() is None and not self.stop.wait(_LOOK_S):
                pass
            if process.poll() is None:
                process.terminate()
                process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # Killing the run loses nothing that was stored: each batch is stored completely or not at all.
            process.kill()
        finally:
            code = process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if code != 0 and not self.stop.is_set():
            _log.warning("the run failed", code=code)
        return code

    def _record_due(self, due: datetime) -> None:
        try:
            with open_run_log(self.database_url) as run_log:
                run_log.schedule(self.clock.now(), next_run_at=due, reason=None)
        except StoreUnavailableError as error:
            _log.warning("rollups are waiting for the store", reason=error.reason)

    def _wait_until(self, due: datetime) -> bool:
        """Wait until ``due``. Return False if a stop was requested first."""
        while (left_s := (due - self.clock.now()).total_seconds()) > 0:
            # A single long wait would not count the time during which the machine is suspended. Short waits compare
            # with the wall clock, which does count it.
            if self.stop.wait(min(left_s, 15.0)):
                return False
        return not self.stop.is_set()
