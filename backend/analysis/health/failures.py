"""Finds the subtask that every failed checkpoint waited for: the only one that was pending in all of them.

Only failures caused by a task are considered: declined, failed in the sync or async part, or suspended by a restart. An
expired checkpoint is not considered. It shows that a subtask was late, and *late is not guilty*. A checkpoint that the
user aborted does not count as a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from backend.analysis.measures.evidence import JobEvidence
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.observation import JobState
from backend.domain.verdict import Phase

_BY_A_TASK = frozenset(
    {
        FailureReason.DECLINED,
        FailureReason.ASYNC_FAILURE,
        FailureReason.TASK_FAILURE,
        FailureReason.IO_FAILURE,
    }
)

# The reasons of failures that the job did not cause: the checkpoint was aborted from outside or never started.
_NO_FAULT = frozenset(
    {
        FailureReason.SUBSUMED,
        FailureReason.DECLINED_SUBSUMED,
        FailureReason.DECLINED_ON_CANCELLATION,
        FailureReason.DECLINED_INPUT_END_OF_STREAM,
        FailureReason.DECLINED_TASK_NOT_READY,
        FailureReason.DECLINED_TASK_CLOSING,
        FailureReason.NOT_ALL_TASKS_RUNNING,
        FailureReason.BLOCKING_OUTPUT,
        FailureReason.UNKNOWN_TASK,
        FailureReason.COORDINATOR_SHUTDOWN,
        FailureReason.SCHEDULER_SHUTDOWN,
        FailureReason.MIN_PAUSE,
        FailureReason.TOO_MANY_REQUESTS,
    }
)
_NO_FAULT_WITHOUT_RESTARTS = _NO_FAULT | {FailureReason.COORDINATOR_SUSPENDED}

# So many different sets of pending subtasks, each within the next, show an order.
_TURNS_MIN = 3

# The reasons that the end of a run gives, as does a restart.
_BY_THE_END = frozenset(
    {FailureReason.COORDINATOR_SUSPENDED, FailureReason.REGION_RESTARTING, FailureReason.TASK_FAILURE}
)
_ENGINE_FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class FailingSubtask:
    """A subtask whose acknowledgement was missing in each of ``failure_count`` failures.

    ``alone_count`` is the number of failures in which no other subtask was pending. ``reason`` is the most frequent
    reason.
    """

    vertex_id: VertexId
    subtask: int
    failure_count: int
    alone_count: int
    reason: FailureReason
    message: str | None
    phase: Phase | None


def is_real_failure(checkpoint: Checkpoint, *, has_restarts: bool) -> bool:
    """Return whether a failed checkpoint counts against the job.

    If it failed because the coordinator was suspended, it counts only if the job restarted.
    """
    header = checkpoint.header
    is_failed = header.status is CheckpointStatus.FAILED
    return is_failed and header.failure_reason not in reasons_without_fault(has_restarts=has_restarts)


def without_aborted(evidence: JobEvidence) -> JobEvidence:
    """Leave out the failed checkpoints that were aborted by the end of the run, or of tasks that had just finished."""
    evidence = _without_aborted_by_end(evidence)
    finishing = set(_by_finishing(evidence.checkpoints))
    if not finishing:
        return evidence
    kept = tuple(c for c in evidence.checkpoints if c.header.checkpoint_id not in finishing)
    return replace(evidence, checkpoints=kept)


def _by_finishing(checkpoints: Sequence[Checkpoint]) -> Iterator[int]:
    """Yield the checkpoints of which only subtasks were pending that have finished before the next one.

    A message may say only that the checkpoint was declined, or that a task failed to write it.
    """
    detailed = [c for c in checkpoints if c.details]
    for checkpoint, following in pairwise(detailed):
        header = checkpoint.header
        if header.status is not CheckpointStatus.FAILED or header.failure_reason not in _BY_A_TASK:
            continue
        pending = _pending(checkpoint)
        rows = {d.vertex_id: d for d in following.details}
        if pending and all(v in rows and i < rows[v].subtask_count and rows[v].has_finished(i) for v, i in pending):
            yield header.checkpoint_id


def _without_aborted_by_end(evidence: JobEvidence) -> JobEvidence:
    """Leave out the checkpoints that the end of the run aborted, because the user cancelled or stopped the job.

    These are the last ones. A failure of the job before them, or its end by a failure, may have another meaning.
    """
    if evidence.state is not JobState.ENDED or evidence.engine_state in (None, _ENGINE_FAILED):
        return evidence
    broke_at = max((at for at, _ in evidence.exceptions), default=None)
    kept = list(evidence.checkpoints)
    while kept and kept[-1].header.failure_reason in _BY_THE_END:
        if broke_at is not None and kept[-1].header.triggered_at <= broke_at:
            break
        kept.pop()
    return evidence if len(kept) == len(evidence.checkpoints) else replace(evidence, checkpoints=tuple(kept))


def reasons_without_fault(*, has_restarts: bool) -> frozenset[FailureReason]:
    """Return the reasons for which a failed checkpoint does not count against the job."""
    return _NO_FAULT if has_restarts else _NO_FAULT_WITHOUT_RESTARTS


def failing_subtask(checkpoints: Sequence[Checkpoint], *, has_restarts: bool) -> FailingSubtask | None:
    """Return the subtask that was pending in every failure caused by a task, if there is exactly one.

    None if that may well be chance: it was only the last one in turn, or snapshots of other vertices did not arrive
    either (``_are_in_turn``, ``_are_others_refused``).
    """
    failures = [c for c in checkpoints if _is_by_a_task(c, has_restarts) and c.details]
    pending = [_pending(c) for c in failures]
    if not pending:
        return None
    shared = frozenset.intersection(*pending)
    if len(shared) != 1 or _are_in_turn(pending) or _are_others_refused(failures, pending, shared):
        return None
    vertex_id, subtask = next(iter(shared))
    reasons = [c.header.failure_reason for c in failures if c.header.failure_reason is not None]
    reason = max(reasons, key=lambda r: (reasons.count(r), r.value))
    return FailingSubtask(
        vertex_id=vertex_id,
        subtask=subtask,
        failure_count=len(failures),
        alone_count=sum(p == shared for p in pending),
        reason=reason,
        message=failures[-1].header.failure_message,
        phase=_phase(reason),
    )


def _are_in_turn(pending: Sequence[frozenset[tuple[VertexId, int]]]) -> bool:
    """Return whether the subtasks acknowledged in the same order in each failure, and another was next each time.

    A store may serve its writers in turn, or some may always write more. A failure at any of them leaves those behind
    it pending, and the last one is pending each time without being the cause.
    """
    distinct = sorted(set(pending), key=len)
    is_alone_often = 2 * sum(p == distinct[0] for p in pending) >= len(pending)
    return len(distinct) >= _TURNS_MIN and not is_alone_often and all(a < b for a, b in pairwise(distinct))


def _are_others_refused(
    failures: Sequence[Checkpoint],
    pending: Sequence[frozenset[tuple[VertexId, int]]],
    shared: frozenset[tuple[VertexId, int]],
) -> bool:
    """Return whether asynchronous parts failed, and in most failures a subtask of another vertex was pending too.

    Each of them may have failed: the vertices have the store in common. A few checkpoints decide nothing.
    """
    are_async = all(c.header.failure_reason is FailureReason.ASYNC_FAILURE for c in failures)
    own = {vertex_id for vertex_id, _ in shared}
    others = sum(any(vertex_id not in own for vertex_id, _ in p) for p in pending)
    return are_async and len(failures) >= _TURNS_MIN and 2 * others > len(failures)


def _is_by_a_task(checkpoint: Checkpoint, has_restarts: bool) -> bool:
    reason = checkpoint.header.failure_reason
    if checkpoint.header.status is not CheckpointStatus.FAILED:
        return False
    return reason in _BY_A_TASK or (reason is FailureReason.COORDINATOR_SUSPENDED and has_restarts)


def _pending(checkpoint: Checkpoint) -> frozenset[tuple[VertexId, int]]:
    return frozenset((d.vertex_id, i) for d in checkpoint.details for i in d.pending)


def _phase(reason: FailureReason) -> Phase | None:
    if reason in (FailureReason.ASYNC_FAILURE, FailureReason.IO_FAILURE):
        return Phase.ASYNC
    # An exception in the sync part fails the task. The coordinator then reports only that it is suspended.
    return Phase.SYNC if reason in (FailureReason.TASK_FAILURE, FailureReason.COORDINATOR_SUSPENDED) else None
