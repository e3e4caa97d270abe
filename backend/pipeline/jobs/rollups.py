"""Hourly rollups: read the checkpoints of changed hours, summarise them in Spark, and move the result into place.

Hours are processed in batches, and each batch is moved in one transaction. A killed run has completed a batch or not,
and the next run does the rest. A run without stale hours does not start Spark and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from backend.domain.clock import Clock, to_epoch_ms
from backend.domain.errors import BarrierscopeError
from backend.domain.rollup import RollupRunState, hour_of
from backend.pipeline.run_log import RolledUpMark, RunLog, open_run_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backend.pipeline.java import SparkRuntime

# One day: few Spark jobs, and little work to repeat after a kill.
BATCH_HOURS = 24


@dataclass(frozen=True, slots=True)
class HourRange:
    """Hours that begin at or after ``since`` and before ``until``, changed or not."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class RollupReport:
    """The result of one run."""

    run_id: str
    hours_total: int
    hours_done: int
    """Less than ``hours_total`` if retention deleted a day during the run."""
    duration_s: float


@dataclass(frozen=True, slots=True)
class RollupRun:
    """One run, with its database, Spark and callbacks. ``at`` gets the name of each step, for tests."""

    database_url: str
    find_spark: Callable[[], SparkRuntime]
    """Called if there is work. Raises if Spark is missing."""
    clock: Clock
    batch_hours: int = BATCH_HOURS
    on_progress: Callable[[int, int], None] = lambda done, total: None
    at: Callable[[str], None] = lambda step: None
    started: SparkSession | None = None
    """A session to use instead of starting one."""

    def do(self, wanted: HourRange | None = None) -> RollupReport:
        """Roll up the stale hours, or the hours of a range.

        Raises:
            HostError: another run is active, or Spark is missing.
            PipelineFailedError: Spark did not start, or a Spark job failed.
            StoreUnavailableError: PostgreSQL does not answer.

        """
        began_s = self.clock.monotonic_s()
        with open_run_log(self.database_url) as run_log:
            run_log.claim()
            run_id = run_log.begin(self.clock.now())
            try:
                total, done = self._do(run_log, run_id, wanted)
            except BaseException as error:
                self._note_end(run_log, run_id, error)
                raise
            run_log.end(run_id, RollupRunState.DONE, self.clock.now())
        return RollupReport(run_id, total, done, self.clock.monotonic_s() - began_s)

    def _do(self, run_log: RunLog, run_id: str, wanted: HourRange | None) -> tuple[int, int]:
        now = self.clock.now()
        # Read before the hours: transactions that end later are read by the next run.
        mark = RolledUpMark(run_log.horizon(), hour_of(now))
        hours = run_log.stale_hours(now) if wanted is None else run_log.hours_between(wanted.since, wanted.until, now)
        run_log.plan(run_id, len(hours))
        self.on_progress(0, len(hours))
        done = self._roll_up(run_log, run_id, hours) if hours else 0
        if wanted is None:
            run_log.complete(mark, now)
        return len(hours), done

    def _roll_up(self, run_log: RunLog, run_id: str, hours: Sequence[datetime]) -> int:
        runtime = None if self.started is not None else self.find_spark()
        # Imported late, because the import fails without Spark.
        from backend.pipeline.session import handed_over, spark_session, translated

        done = 0
        with translated(), ExitStack() as stack:
            session = self.started if runtime is None else stack.enter_context(spark_session(runtime))
            assert session is not None
            url_file = stack.enter_context(handed_over(self.database_url))
            for first in range(0, len(hours), self.batch_hours):
                batch = hours[first : first + self.batch_hours]
                horizon = run_log.horizon()
                self.at("before reading")
                stage(session, url_file, run_id, batch)
                self.at("between staging and moving")
                done += len(run_log.move(run_id, horizon, first + len(batch)))
                self.at("after moving")
                self.on_progress(first + len(batch), len(hours))
        return done

    def _note_end(self, run_log: RunLog, run_id: str, error: BaseException) -> None:
        is_stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        reason = "it was stopped" if is_stopped else " ".join(str(error).split())
        try:
            run_log.end(
                run_id, RollupRunState.INTERRUPTED if is_stopped else RollupRunState.FAILED, self.clock.now(), reason
            )
        except BarrierscopeError:
            # The store does not answer. The next run finds this run open and closes it.
            return


def stage(session: SparkSession, url_file: str, run_id: str, hours: Sequence[datetime]) -> None:
    """Roll up these hours into the staging table, with the id of the run."""
    from backend.pipeline.source import CheckpointSource, StagingSink
    from backend.pipeline.transforms import hourly_rollups

    starts = json.dumps([to_epoch_ms(hour) // 1000 for hour in hours])
    checkpoints = (
        session.read.format(CheckpointSource.name()).option("url_file", url_file).option("hours", starts).load()
    )
    sink = hourly_rollups(checkpoints).select(*_staged_columns()).write.format(StagingSink.name())
    sink.mode("append").option("url_file", url_file).option("run_id", run_id).save()


def _staged_columns() -> Sequence[str]:
    from backend.pipeline.source import STAGING_SCHEMA

    return [column.split()[0] for column in STAGING_SCHEMA.split(", ")]
