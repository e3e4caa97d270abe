"""The schedule of rollups under ``up``: after the start if closed hours are due, then a few minutes after each hour.

Each run is a child process that starts Spark, works and ends, so that no JVM stays between runs. A failed run is
repeated after a pause. If Spark is missing, the schedule looks for it again every hour. It records its state in the
store, where the API and the pages read it. Hours that a run has not finished are due in the next run.
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

# Most checkpoints triggered in the hour have ended by then. The run an hour later includes the rest.
AFTER_THE_HOUR = timedelta(minutes=3)
# The pages come first at the start.
AFTER_THE_START = timedelta(seconds=20)
_RETRY = timedelta(minutes=10)
_STORE_RETRY = timedelta(minutes=1)
_LOOK_S = 0.2
_STOP_TIMEOUT_S = 3.0

StartRun = Callable[[str], "subprocess.Popen[bytes]"]


def next_run_after(now: datetime) -> datetime:
    """The time of the next regular run: ``AFTER_THE_HOUR`` in this hour or the next one."""
    of_this_hour = hour_of(now) + AFTER_THE_HOUR
    return of_this_hour if now < of_this_hour else of_this_hour + HOUR


def start_run(database_url: str) -> subprocess.Popen[bytes]:
    """Start a run in a child process that ends with this one and writes to the same log."""
    return subprocess.Popen(  # noqa: S603  our own interpreter and module
        role_command("pipeline", "rollups"),
        env=child_environment(database_url=database_url),
        # Nothing is written to it; its end of file shows the child that this process has ended.
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
        """Wait for the due time and work, repeatedly."""
        due = self.clock.now() + AFTER_THE_START
        self._look_for_spark()
        self._tell(due)
        while self._wait_until(due):
            due = self.turn()
            self._tell(due)

    def turn(self) -> datetime:
        """Roll up the hours that are due; returns the time of the next turn."""
        now = self.clock.now()
        try:
            with open_run_log(self.database_url) as run_log:
                stale = len(run_log.stale_hours(now))
        except StoreUnavailableError as error:
            _log.warning("rollups are waiting for the store", reason=error.reason)
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
            # Nothing is lost: a batch is stored completely or not at all.
            process.kill()
        finally:
            code = process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if code != 0 and not self.stop.is_set():
            _log.warning("the run failed", code=code)
        return code

    def _look_for_spark(self) -> None:
        self._spark = self.find_spark()
        if isinstance(self._spark, SparkMissing):
            _log.warning(
                "rollups are off because Spark cannot be started; the other parts run", reason=self._spark.reason
            )
        else:
            _log.info("Spark runs on", java=self._spark.java.version, of=self._spark.java.origin.value)

    def _tell(self, due: datetime) -> None:
        is_missing = isinstance(self._spark, SparkMissing)
        reason = f"{self._spark.reason}; {self._spark.FIX}" if isinstance(self._spark, SparkMissing) else None
        try:
            with open_run_log(self.database_url) as run_log:
                run_log.schedule(self.clock.now(), next_run_at=None if is_missing else due, reason=reason)
        except StoreUnavailableError as error:
            _log.warning("rollups are waiting for the store", reason=error.reason)

    def _wait_until(self, due: datetime) -> bool:
        """Wait until ``due``; returns False if a stop was requested first."""
        while (left_s := (due - self.clock.now()).total_seconds()) > 0:
            # Short steps follow the wall clock, which continues while the machine is suspended; a long wait does not.
            if self.stop.wait(min(left_s, 15.0)):
                return False
        return not self.stop.is_set()
