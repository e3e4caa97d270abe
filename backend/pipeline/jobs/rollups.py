"""Hourly rollups: read the checkpoints of the hours that changed, summarise them in Spark, move them into place.

Hours are done in batches, each moved in one transaction: killed at any moment, a run has either done a batch or not,
and the next run does what is missing. A run that finds nothing stale starts no Spark and writes no rollup.
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
from backend.domain.rollup import hour_of
from backend.pipeline.run_log import RolledUpMark, RunLog, open_run_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backend.pipeline.java import SparkRuntime

# A day at a time: few Spark jobs, and no more lost to a kill than is soon done again.
BATCH_HOURS = 24


@dataclass(frozen=True, slots=True)
class HourRange:
    """Hours that begin at or after ``since`` and before ``until``, whether they changed or not."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class RollupReport:
    """What one run did."""

    run_id: str
    hours_total: int
    hours_done: int
    """Fewer than ``hours_total`` where a day was dropped while it was read."""
    duration_s: float


@dataclass(frozen=True, slots=True)
class RollupRun:
    """How a run works: where, with which Spark, and whom it tells. ``at`` is told the name of each step (for tests)."""

    database_url: str
    find_spark: Callable[[], SparkRuntime]
    """Called where there is work; raises where there is no Spark."""
    clock: Clock
    batch_hours: int = BATCH_HOURS
    on_progress: Callable[[int, int], None] = lambda done, total: None
    at: Callable[[str], None] = lambda step: None
    started: SparkSession | None = None
    """A session to use instead of starting one."""

    def do(self, wanted: HourRange | None = None) -> RollupReport:
        """Do the hours that are stale, or those of a range.

        Raises:
            HostError: another run is at work, or there is no Spark on this machine.
            PipelineFailedError: Spark did not start, or a job of it failed.
            StoreUnavailableError: PostgreSQL is away.

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
            run_log.end(run_id, "done", self.clock.now())
        return RollupReport(run_id, total, done, self.clock.monotonic_s() - began_s)

    def _do(self, run_log: RunLog, run_id: str, wanted: HourRange | None) -> tuple[int, int]:
        now = self.clock.now()
        # Before anything is looked at: what ends later is looked at again by the next run.
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
        # Not before: where there is no Spark, these cannot be imported.
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
            run_log.end(run_id, "interrupted" if is_stopped else "failed", self.clock.now(), reason)
        except BarrierscopeError:
            # The store is away: the next run finds this one open, and closes it.
            return


def stage(session: SparkSession, url_file: str, run_id: str, hours: Sequence[datetime]) -> None:
    """Summarise these hours and leave the result in the staging table, under the run's id."""
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
