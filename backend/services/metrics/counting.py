"""Counts the checkpoints that ended since this process began to count, for each job.

The counters of a job begin at zero with the process, as Prometheus expects, and each checkpoint counts once. They are
counted from the store and not taken from the engine, because an engine does not say why checkpoints failed and counts
anew for each run. If a checkpoint is written again, it does not count again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import JobId, RunId
from backend.store.checkpoints.ended import EndedSince

_SEEN_PER_RUN_MAX = 512


class FailureGroup(StrEnum):
    """The groups of failure reasons that the metrics name.

    Every job has a series for each group from the beginning. A series that began with its first failure would hide that
    failure from ``increase()``, so there are few groups and not one for each reason.
    """

    EXPIRED = "expired"
    DECLINED = "declined"
    """A task refused the checkpoint, for example because it had just finished or its in-flight data was too much."""
    TASK = "task"
    """A task failed, or its asynchronous part did."""
    STORE = "store"
    """The checkpoint could not be written or finished at the checkpoint storage."""
    OTHER = "other"


_GROUPS: Final[Mapping[FailureReason, FailureGroup]] = {
    FailureReason.EXPIRED: FailureGroup.EXPIRED,
    FailureReason.DECLINED: FailureGroup.DECLINED,
    FailureReason.DECLINED_SUBSUMED: FailureGroup.DECLINED,
    FailureReason.DECLINED_ON_CANCELLATION: FailureGroup.DECLINED,
    FailureReason.DECLINED_INPUT_END_OF_STREAM: FailureGroup.DECLINED,
    FailureReason.DECLINED_TASK_NOT_READY: FailureGroup.DECLINED,
    FailureReason.DECLINED_TASK_CLOSING: FailureGroup.DECLINED,
    FailureReason.INFLIGHT_LIMIT_EXCEEDED: FailureGroup.DECLINED,
    FailureReason.ASYNC_FAILURE: FailureGroup.TASK,
    FailureReason.TASK_FAILURE: FailureGroup.TASK,
    FailureReason.SHARED_STREAM_FAILURE: FailureGroup.TASK,
    FailureReason.UNKNOWN_TASK: FailureGroup.TASK,
    FailureReason.QUERY_FAILURE: FailureGroup.TASK,
    FailureReason.FINALIZE_FAILURE: FailureGroup.STORE,
    FailureReason.IO_FAILURE: FailureGroup.STORE,
}


def group_of(reason: FailureReason | None) -> FailureGroup:
    """Return the group of a failure reason. A reason that is not known is ``OTHER``."""
    return FailureGroup.OTHER if reason is None else _GROUPS.get(reason, FailureGroup.OTHER)


class EndedCounter:
    """Counts ended checkpoints by job. Each process has one instance."""

    def __init__(self) -> None:
        self._completed: Counter[JobId] = Counter()
        self._failed: Counter[tuple[JobId, FailureGroup]] = Counter()
        self._seen: dict[RunId, OrderedDict[int, None]] = {}
        self._dropped: dict[RunId, int] = {}
        self._run_jobs: dict[RunId, JobId] = {}

    def count(self, ended: Iterable[EndedSince]) -> None:
        """Count those of these checkpoints that were not counted before."""
        for one in sorted(ended, key=lambda e: e.checkpoint_id):
            seen = self._seen.setdefault(one.run_id, OrderedDict())
            self._run_jobs[one.run_id] = one.job_id
            # A row is read again while a transaction from before it is open, so what was dropped may come back.
            if one.checkpoint_id in seen or one.checkpoint_id <= self._dropped.get(one.run_id, -1):
                continue
            seen[one.checkpoint_id] = None
            if len(seen) > _SEEN_PER_RUN_MAX:
                self._dropped[one.run_id] = max(seen.popitem(last=False)[0], self._dropped.get(one.run_id, -1))
            if one.status is CheckpointStatus.COMPLETED:
                self._completed[one.job_id] += 1
            else:
                self._failed[one.job_id, group_of(one.failure_reason)] += 1

    def completed(self, job_id: JobId) -> int:
        """Return how many checkpoints of the job completed."""
        return self._completed[job_id]

    def failed(self, job_id: JobId) -> Mapping[FailureGroup, int]:
        """Return how many checkpoints of the job failed, for every group of reasons."""
        return {group: self._failed[job_id, group] for group in FailureGroup}

    def forget_others(self, job_ids: Collection[JobId]) -> None:
        """Forget the jobs that are not in ``job_ids``, so that memory does not grow with the jobs of the past."""
        for run_id in [r for r, job_id in self._run_jobs.items() if job_id not in job_ids]:
            del self._run_jobs[run_id]
            self._seen.pop(run_id, None)
            self._dropped.pop(run_id, None)
        for job_id in [j for j in self._completed if j not in job_ids]:
            del self._completed[job_id]
        for key in [k for k in self._failed if k[0] not in job_ids]:
            del self._failed[key]
