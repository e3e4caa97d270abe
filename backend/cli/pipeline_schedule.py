"""When rollups run under ``up``: soon after the start where closed hours wait, then a few minutes after every hour.

Each run is a child process that starts Spark, works and ends: between runs no JVM is kept. A run that fails is tried
again after a pause, and a machine without Spark is looked at again every hour; both are told to the store, from where
the API and the pages have it. Nothing here can lose anything: what a run has not done, the next one finds.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from backend.cli.supervisor import role_command
from backend.domain.clock import Clock
from backend.domain.errors import StoreUnavailableError
from backend.domain.rollup import HOUR, hour_of
from backend.pipeline.java import SparkMissing, SparkRuntime
from backend.pipeline.run_log import open_run_log
from backend.settings import child_environment

_log = structlog.get_logger(__name__)

# What was triggered before the full hour has mostly ended by then; what has not is done an hour later.
AFTER_THE_HOUR = timedelta(minutes=3)
# The pages are asked for first.
AFTER_THE_START = timedelta(seconds=20)
_RETRY = timedelta(minutes=10)
_STORE_RETRY = timedelta(minutes=1)
_LOOK_S = 0.2
_STOP_TIMEOUT_S = 3.0

StartRun = Callable[[str], "subprocess.Popen[bytes]"]


def next_run_after(now: datetime) -> datetime:
    """The next regular run: ``AFTER_THE_HOUR``, of this hour or of the next."""
    of_this_hour = hour_of(now) + AFTER_THE_HOUR
    return of_this_hour if now < of_this_hour else of_this_hour + HOUR


def start_run(database_url: str) -> subprocess.Popen[bytes]:
    """One run in a process that dies with this one; its log is this one's."""
    return subprocess.Popen(  # noqa: S603  our own interpreter and module
        role_command("pipeline", "rollups"),
        env=child_environment(database_url=database_url),
        # Its end of file tells the child that we are gone; nothing is ever written.
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )


@dataclass(slots=True)
class Schedule:
    """Runs until ``stop`` is set."""

    database_url: str
    find_spark: Callable[[], SparkRuntime | SparkMissing]
    clock: Clock
    stop: threading.Event
    start: StartRun = start_run
    _spark: SparkRuntime | SparkMissing | None = field(default=None, init=False)

    def run(self) -> None:
        """Wait, work, and begin again."""
        due = self.clock.now() + AFTER_THE_START
        self._look_for_spark()
        self._tell(due)
        while self._wait_until(due):
            due = self.turn()
            self._tell(due)

    def turn(self) -> datetime:
        """Do what is due; returns when to come back."""
        now = self.clock.now()
        try:
            with open_run_log(self.database_url) as run_log:
                stale = len(run_log.stale_hours(now))
        except StoreUnavailableError as error:
            _log.warning("rollups wait for the store", reason=error.reason)
            return now + _STORE_RETRY
        if stale == 0:
            return next_run_after(now)
        if isinstance(self._spark, SparkMissing):
            self._look_for_spark()
        if isinstance(self._spark, SparkMissing):
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
            # It loses nothing by that: a batch is moved whole or not at all.
            process.kill()
        finally:
            code = process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if code != 0 and not self.stop.is_set():
            _log.warning("the run did not end well", code=code)
        return code

    def _look_for_spark(self) -> None:
        self._spark = self.find_spark()
        if isinstance(self._spark, SparkMissing):
            _log.warning("no rollups, all else runs: Spark cannot be started", reason=self._spark.reason)
        else:
            _log.info("Spark runs on", java=self._spark.java.version, of=self._spark.java.origin.value)

    def _tell(self, due: datetime) -> None:
        is_missing = isinstance(self._spark, SparkMissing)
        reason = f"{self._spark.reason}; {self._spark.FIX}" if isinstance(self._spark, SparkMissing) else None
        try:
            with open_run_log(self.database_url) as run_log:
                run_log.schedule(self.clock.now(), next_run_at=None if is_missing else due, reason=reason)
        except StoreUnavailableError as error:
            _log.warning("rollups wait for the store", reason=error.reason)

    def _wait_until(self, due: datetime) -> bool:
        """Whether it came to that; False: asked to stop."""
        while (left_s := (due - self.clock.now()).total_seconds()) > 0:
            # In short steps: after a suspended night the wall clock has gone on, and a single long wait has not.
            if self.stop.wait(min(left_s, 15.0)):
                return False
        return not self.stop.is_set()
