"""Hourly rollups: reads the checkpoints of stale hours, summarises them, and writes the result to the store.

An hour is stale if it was never rolled up, or if its checkpoints have changed since. Hours are processed in batches.
Each batch is moved from the staging table to the rollup tables in one transaction. If a run is killed, each batch is
either complete or unchanged, and the next run does the rest. If no hour is stale, the run changes no rollups.

PostgreSQL computes small runs, because Spark takes longer to start than they take. Spark computes the others. The
result is the same to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from backend.domain.clock import Clock, to_epoch_ms
from backend.domain.errors import BarrierscopeError
from backend.domain.rollup import RollupRunState, hour_of
from backend.pipeline.cluster import Cluster
from backend.pipeline.java import SparkRuntime
from backend.store.pipeline.in_sql import SMALL_RUN_MAX
from backend.store.pipeline.run_log import RolledUpMark, RunLog, open_run_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Stage = Callable[[Sequence[datetime]], None]
"""Computes the rollups of some hours, and writes them to the staging table."""

# A batch of one day needs few Spark jobs, and a killed run loses little work.
BATCH_HOURS = 24


@dataclass(frozen=True, slots=True)
class HourRange:
    """A range of hours to roll up, whether they have changed or not.

    It covers the hours that begin at or after ``since`` and before ``until``.
    """

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class RollupReport:
    """The id, the hours and the duration of one run."""

    run_id: str
    hours_total: int
    hours_done: int
    """Number of hours that were rolled up. Less than ``hours_total`` if retention deleted a day during the run."""
    duration_s: float


@dataclass(frozen=True, slots=True)
class RollupRun:
    """One run, with its database, Spark and callbacks. ``at`` is called with the name of each step, for tests."""

    database_url: str
    find_spark: Callable[[], SparkRuntime | None]
    """Finds Spark for a run that is not small. It returns None to let PostgreSQL do the run, or raises an error."""
    clock: Clock
    small_max: int = SMALL_RUN_MAX
    """The largest number of checkpoints of a small run. It is 0 if Spark has to do every run."""
    cluster: Cluster = field(default_factory=Cluster)
    """Where Spark runs."""
    batch_hours: int = BATCH_HOURS
    on_progress: Callable[[int, int], None] = lambda done, total: None
    at: Callable[[str], None] = lambda step: None
    started: SparkSession | None = None
    """A Spark session to use for a run of any size. If it is None, the run starts its own session if it needs one."""

    def do(self, wanted: HourRange | None = None) -> RollupReport:
        """Roll up the hours of a range, or all stale hours if no range is passed.

        Raises:
            HostError: another run is active, or Spark is missing.
            PipelineFailedError: Spark did not start, or a Spark job failed.
            StoreUnavailableError: PostgreSQL does not respond.
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
        # Read the horizon before the hours, so that the next run finds everything that transactions write after this
        # point.
        mark = RolledUpMark(run_log.horizon(), hour_of(now))
        hours = run_log.stale_hours(now) if wanted is None else run_log.hours_between(wanted.since, wanted.until, now)
        run_log.plan(run_id, len(hours))
        self.on_progress(0, len(hours))
        done = self._roll_up(run_log, run_id, hours) if hours else 0
        if wanted is None:
            run_log.complete(mark, now)
        return len(hours), done

    def _roll_up(self, run_log: RunLog, run_id: str, hours: Sequence[datetime]) -> int:
        done = 0
        with self._staging(run_log, run_id, hours) as stage_hours:
            for first in range(0, len(hours), self.batch_hours):
                batch = hours[first : first + self.batch_hours]
                horizon = run_log.horizon()
                self.at("before reading")
                stage_hours(batch)
                self.at("between staging and moving")
                done += len(run_log.move(run_id, horizon, first + len(batch)))
                self.at("after moving")
                self.on_progress(first + len(batch), len(hours))
        return done

    @contextmanager
    def _staging(self, run_log: RunLog, run_id: str, hours: Sequence[datetime]) -> Iterator[Stage]:
        """Yield the function that stages the rollups of this run: in Spark, or in PostgreSQL."""
        runtime = None if self.started is not None or self._is_small(run_log, hours) else self.find_spark()
        if self.started is None and runtime is None:
            yield lambda batch: run_log.stage(run_id, batch)
            return
        # Imported here because the import fails if Spark is missing.
        from backend.pipeline.session import database_options, spark_session, translated

        with translated(), database_options(self.database_url, self.cluster) as database:
            if runtime is None:
                assert self.started is not None
                session = self.started
                yield lambda batch: stage(session, database, run_id, batch, tasks=self.cluster.tasks)
            else:
                with spark_session(runtime, self.cluster) as own:
                    yield lambda batch: stage(own, database, run_id, batch, tasks=self.cluster.tasks)

    def _is_small(self, run_log: RunLog, hours: Sequence[datetime]) -> bool:
        return run_log.checkpoint_count(hours, most=self.small_max + 1) <= self.small_max

    def _note_end(self, run_log: RunLog, run_id: str, error: BaseException) -> None:
        is_stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        reason = "it was stopped" if is_stopped else " ".join(str(error).split())
        try:
            run_log.end(
                run_id, RollupRunState.INTERRUPTED if is_stopped else RollupRunState.FAILED, self.clock.now(), reason
            )
        except BarrierscopeError:
            # The store does not respond. The log still lists this run as active; the next run marks it as ended.
            return


def stage(
    session: SparkSession, database: Mapping[str, str], run_id: str, hours: Sequence[datetime], *, tasks: int
) -> None:
    """Roll up ``hours`` with Spark, and write the result to the staging table under the id of the run.

    Args:
        session: The session of Spark.
        database: The options of ``database_options``.
        run_id: The id of the run, which must be running.
        hours: The hours of the batch.
        tasks: About the number of tasks that read in parallel.
    """
    from backend.pipeline.source import CheckpointSource, StagingSink
    from backend.pipeline.transforms import hourly_rollups

    starts = json.dumps([to_epoch_ms(hour) // 1000 for hour in hours])
    source = session.read.format(CheckpointSource.name()).options(**database)
    checkpoints = source.option("hours", starts).option("tasks", str(tasks)).load()
    sink = hourly_rollups(checkpoints).select(*_staged_columns()).write.format(StagingSink.name())
    sink.mode("append").options(**database).option("run_id", run_id).save()


def _staged_columns() -> Sequence[str]:
    from backend.pipeline.source import STAGING_SCHEMA

    return [column.split()[0] for column in STAGING_SCHEMA.split(", ")]
