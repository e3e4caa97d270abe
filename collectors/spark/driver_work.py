"""Asks a driver for the Spark jobs and stages of the micro-batches that are chosen. A poll sends few such requests.

The list of SQL executions names the jobs of each batch, ``/jobs/ID`` has their times and stages, and ``/stages/ID`` has
the sums and quantiles of the tasks (since Spark 3.2). If a batch has many jobs or stages, the whole list is asked for
instead. What has left the driver's lists, or does not answer, is missing.

Source: ``StagesResource``, ``AllJobsResource`` and ``AppStatusStore`` of Spark 3.4 to 4.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from backend.domain.batch_work import JOB_IDS_MAX, BatchWork, StageWork, covered_ms, longest
from backend.domain.clock import to_epoch_ms
from backend.domain.errors import TargetProtocolError, UpstreamError
from collectors.flink.document import Document
from collectors.spark.applications import Attempt
from collectors.spark.history_server import HistoryServer
from collectors.spark.slow_batches import SlowBatches

BATCHES_A_POLL: Final = 2
"""So many batches are looked into in one poll, the newest ones that are chosen."""
_ONE_BY_ONE_MAX: Final = 8
_STAGES_MAX: Final = 12
_WHOLE_S: Final = 10.0
_QUANTILES: Final = "details=false&withSummaries=true&quantiles=0.5,1.0"
_KNOWN_MAX: Final = 5_000
_NAME_MAX: Final = 200

Batch = tuple[tuple[str, str], int]
"""A run, which is the ids of the query and of the run, and the number of the batch."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A batch that has completed: its SQL execution, the ids of its Spark jobs, its begin and its duration."""

    batch: Batch
    execution_id: int
    job_ids: tuple[int, ...]
    began_at: datetime
    duration_ms: int


@dataclass(slots=True)
class DriverWork:
    """Looks into batches of one driver."""

    server: HistoryServer
    slow: SlowBatches = field(default_factory=SlowBatches)
    _known: dict[Batch, None] = field(default_factory=dict)

    async def of(self, attempt: Attempt, ended: Sequence[Ended]) -> dict[Batch, BatchWork]:
        """Return the works of the batches that are chosen. ``ended`` may repeat batches of earlier polls."""
        chosen = [e for e in ended if self._is_chosen(e)]
        found: dict[Batch, BatchWork] = {}
        # The batches themselves are known, so a driver that does not answer this has no other effect.
        with suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(_WHOLE_S):
                for batch in chosen[-BATCHES_A_POLL:]:
                    work = await self._work(attempt, batch)
                    if work is not None:
                        found[batch.batch] = work
        return found

    def _is_chosen(self, ended: Ended) -> bool:
        if ended.batch in self._known:
            return False
        self._known[ended.batch] = None
        while len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        return self.slow.choose(ended.batch[0], to_epoch_ms(ended.began_at), ended.duration_ms)

    async def _work(self, attempt: Attempt, ended: Ended) -> BatchWork | None:
        jobs = await self._jobs(attempt, ended.job_ids)
        if jobs is None:
            return None
        spans = [_span(job) for job in jobs]
        ids = sorted({number.count() for job in jobs for number in job.get("stageIds").items()})
        stages = await self._stages(attempt, ids)
        # A job counts the stages that it skipped, which the driver lists as well.
        return BatchWork(
            app_id=attempt.app_id,
            attempt_id=attempt.attempt_id,
            execution_id=ended.execution_id,
            job_ids=ended.job_ids[:JOB_IDS_MAX],
            job_count=len(ended.job_ids),
            stage_count=sum(job.get("numCompletedStages").count() + job.get("numFailedStages").count() for job in jobs),
            jobs_ms=None if None in spans else covered_ms([span for span in spans if span is not None]),
            stages=longest(stages),
        )

    async def _jobs(self, attempt: Attempt, ids: Sequence[int]) -> list[Document] | None:
        """Return the jobs; None if the driver does not have all of them any more."""
        if len(ids) <= _ONE_BY_ONE_MAX:
            single = [await self._found(f"{attempt.path}/jobs/{number}") for number in ids]
            known = [job for job in single if job is not None]
        else:
            listed = (await self.server.get(f"{attempt.path}/jobs")).items()
            known = [job for job in listed if job.get("jobId").count() in set(ids)]
        return known if len(known) == len(ids) else None

    async def _stages(self, attempt: Attempt, ids: Sequence[int]) -> list[StageWork]:
        wanted = list(ids)
        if len(wanted) > _STAGES_MAX:
            listed = (await self.server.get(f"{attempt.path}/stages?details=false")).items()
            ran = [_stage(s) for s in listed if s.get("stageId").count() in set(ids) and _has_run(s)]
            wanted = [stage.stage_id for stage in longest(ran)]
        found = []
        for number in wanted[:_STAGES_MAX]:
            attempts = await self._found(f"{attempt.path}/stages/{number}?{_QUANTILES}")
            found += [_stage(s) for s in (attempts.items() if attempts is not None else ()) if _has_run(s)]
        return found

    async def _found(self, path: str) -> Document | None:
        try:
            return await self.server.get(path)
        except TargetProtocolError as error:
            if error.status is None:
                raise
            return None


def _has_run(stage: Document) -> bool:
    return stage.get("status").value in ("COMPLETE", "FAILED")


def _span(job: Document) -> tuple[int, int] | None:
    began, ended = _instant_ms(job.find("submissionTime")), _instant_ms(job.find("completionTime"))
    return None if began is None or ended is None else (began, ended)


def _instant_ms(found: Document | None) -> int | None:
    if found is None:
        return None
    try:
        return to_epoch_ms(datetime.strptime(str(found.value), "%Y-%m-%dT%H:%M:%S.%fGMT").replace(tzinfo=UTC))
    except ValueError:
        raise found.fail("is no instant of Spark") from None


def _stage(stage: Document) -> StageWork:
    began, ended = _instant_ms(stage.find("submissionTime")), _instant_ms(stage.find("completionTime"))
    quantiles = stage.find("taskMetricsDistributions")
    took = _pair(quantiles, "duration")
    rows = _pair(quantiles, "shuffleReadMetrics", "readRecords")
    if rows[1] in (None, 0):
        rows = _pair(quantiles, "inputMetrics", "recordsRead")
    return StageWork(
        stage_id=stage.get("stageId").count(),
        attempt=stage.get("attemptId").count(),
        name=stage.get("name").text(length_max=_NAME_MAX),
        task_count=stage.get("numTasks").count(),
        failed_task_count=_count(stage, "numFailedTasks"),
        duration_ms=None if began is None or ended is None else max(0, ended - began),
        task_median_ms=took[0],
        task_max_ms=took[1],
        rows_median=rows[0],
        rows_max=rows[1],
        run_ms=_count(stage, "executorRunTime"),
        gc_ms=_count(stage, "jvmGcTime"),
        memory_spill_bytes=_count(stage, "memoryBytesSpilled"),
        disk_spill_bytes=_count(stage, "diskBytesSpilled"),
        input_bytes=_count(stage, "inputBytes"),
        shuffle_read_bytes=_count(stage, "shuffleReadBytes"),
        shuffle_write_bytes=_count(stage, "shuffleWriteBytes"),
    )


def _count(stage: Document, name: str) -> int | None:
    found = stage.find(name)
    return None if found is None else found.count()


def _pair(found: Document | None, *names: str) -> tuple[int | None, int | None]:
    """Return the median and the maximum; None if they are not reported."""
    for name in names:
        found = None if found is None else found.find(name)
    values = [] if found is None else [v.value for v in found.items()]
    known = [round(v) for v in values if isinstance(v, int | float) and 0 <= v < 2**53]
    return (known[0], known[1]) if len(known) == 2 else (None, None)
