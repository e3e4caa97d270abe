"""The Spark jobs and stages of the micro-batches that are chosen, as an event log is read. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from backend.contracts import spark as wire
from backend.contracts.spark_events import is_batch
from backend.domain.batch_work import BatchWork
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.clock import to_epoch_ms
from backend.domain.observation import JobObservation
from collectors.spark.log_events import LogParser, run_of
from collectors.spark.slow_batches import SlowBatches
from collectors.spark.stage_events import Run, WorkReader


@dataclass(slots=True)
class Works:
    """What is known of the Spark jobs of one log. ``chosen`` has the works by run and by the number of the batch."""

    reader: WorkReader = field(default_factory=WorkReader)
    slow: SlowBatches = field(default_factory=SlowBatches)
    chosen: dict[Run, dict[int, BatchWork]] = field(default_factory=dict)

    def begun(self) -> Works:
        """Return a copy for one reading of the log, without what was chosen before. If it fails, it is dropped."""
        return Works(self.reader.copy(), self.slow.copy())

    def note(self, event: wire.SparkEvent) -> None:
        """Note an event of a query. If it reports a batch that is chosen, keep what the batch did."""
        run = run_of(event)
        if isinstance(event, wire.StartedIn):
            self.reader.begin(run)
        elif isinstance(event, wire.TerminatedIn):
            self.reader.end(run)
        elif isinstance(event, wire.ProgressEventIn) and is_batch(event.progress):
            progress = event.progress
            began_ms, took_ms = to_epoch_ms(progress.timestamp), progress.batch_duration

            def is_wanted() -> bool:
                return took_ms is not None and self.slow.choose(run, began_ms, took_ms)

            work = self.reader.finish(run, progress.batch_id, is_wanted)
            if work is not None:
                self.chosen.setdefault(run, {})[progress.batch_id] = work


def with_works(job: JobObservation, found: Mapping[int, BatchWork], parser: LogParser) -> JobObservation:
    """Return the observation with what its batches did. ``found`` is by the number of the batch.

    The files of a log may be read in any order, so ``parser`` knows the ids of the application at the end only.
    """
    if not found:
        return job
    works = {n: replace(w, app_id=parser.app_id, attempt_id=parser.attempt_id) for n, w in found.items()}
    checkpoints = tuple(
        replace(c, batch=replace(c.batch, work=works[c.header.checkpoint_id]))
        if c.batch is not None and c.header.status is CheckpointStatus.COMPLETED and c.header.checkpoint_id in works
        else c
        for c in job.checkpoints
    )
    return replace(job, checkpoints=checkpoints)
