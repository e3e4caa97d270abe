"""Predicts when an open checkpoint finishes, from the acknowledgements of earlier checkpoints of the same job.

Each earlier checkpoint shows how long it took from the same number of acknowledgements to its end. The prediction
assumes only that the open checkpoint is like the earlier ones (conformal prediction). If the n earlier times and the
unknown time of the open checkpoint are sorted, each position of the unknown time is then equally likely. So the
interval from the shortest to the longest of the n times contains it in (n - 1) of (n + 1) cases. Earlier checkpoints
that needed less time than has already passed are left out. An expired checkpoint counts as one that does not finish.

Invariant: a predicted finish is never before the present, and never after the timeout.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil, inf, isinf

from backend.analysis import sentences as say
from backend.analysis.progress import OpenCheckpoint
from backend.analysis.statistics import known
from backend.analysis.thresholds import FINISH_MIN_COUNT
from backend.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.progress import Outlook


@dataclass(frozen=True, slots=True)
class Finish:
    """The prediction in words and numbers. Times are milliseconds since the trigger.

    ``high_ms`` is None if the interval reaches to the timeout or has no end. ``coverage_ratio`` is the share of cases
    in which the interval holds, if the checkpoint is like the earlier ones.
    """

    outlook: Outlook
    words: str
    likely_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    coverage_ratio: float | None = None
    compared_count: int = 0


@dataclass(frozen=True, slots=True)
class PastCheckpoint:
    """The acknowledgements of an earlier checkpoint, in milliseconds since its trigger, ascending.

    ``end_ms`` is when it completed; infinite if it expired.
    """

    acks_ms: tuple[int, ...]
    subtask_count: int
    end_ms: float

    def remaining_ms(self, share: float) -> float | None:
        """Return the time from the moment when this share of the subtasks had acknowledged to the checkpoint's end.

        Return None if this share never acknowledged.
        """
        # Without the small term, a share such as 3/7 of 7 subtasks would be rounded up to 4.
        count = ceil(share * self.subtask_count - 1e-9)
        if count == 0:
            return self.end_ms
        return self.end_ms - self.acks_ms[count - 1] if count <= len(self.acks_ms) else None


def past_checkpoint(checkpoint: Checkpoint) -> PastCheckpoint | None:
    """Return the acknowledgements of an ended checkpoint.

    Return None if it is a savepoint, failed early, or has no details.
    """
    header = checkpoint.header
    acks = tuple(sorted(max(0, int(v)) for v in known(_acks(checkpoint))))
    if header.kind is not CheckpointKind.CHECKPOINT:
        return None
    if header.failure_reason is FailureReason.EXPIRED:
        return PastCheckpoint(acks, header.subtask_count, inf)
    is_whole = header.status is CheckpointStatus.COMPLETED and acks and len(acks) >= header.subtask_count
    return PastCheckpoint(acks, header.subtask_count, acks[-1]) if is_whole else None


def _acks(checkpoint: Checkpoint) -> Collection[int | None]:
    return [v for d in checkpoint.details for v in d.ack_delay_ms]


def predict(open_: OpenCheckpoint, past: Sequence[PastCheckpoint]) -> Finish | None:
    """Predict the end of an open checkpoint. Return None if it is not open any more."""
    if open_.status is not CheckpointStatus.IN_PROGRESS or open_.acknowledged_count >= open_.subtask_count > 0:
        return None
    if not past:
        return Finish(Outlook.UNKNOWN, "not predictable yet: no earlier checkpoint of this job is known in detail")
    share = open_.acknowledged_count / max(1, open_.subtask_count)
    since_ms = open_.last_ack_ms or 0
    times = [t for p in past if (t := p.remaining_ms(share)) is not None]
    ends = sorted(since_ms + t for t in times if since_ms + t > open_.elapsed_ms)
    if len(ends) < FINISH_MIN_COUNT:
        return Finish(Outlook.UNKNOWN, _too_few(open_, len(past), len(ends)), compared_count=len(ends))
    return _finish(open_, ends)


def _too_few(open_: OpenCheckpoint, past_count: int, count: int) -> str:
    needed = f"{FINISH_MIN_COUNT} are needed"
    if past_count < FINISH_MIN_COUNT:
        return f"not predictable yet: only {say.checkpoints(past_count)} to compare with, {needed}"
    far = f"{open_.acknowledged_count} of {open_.subtask_count} acknowledgements"
    return (
        f"not predictable: at {far} after {say.duration(open_.elapsed_ms)}, only {count} of the last "
        f"{say.checkpoints(past_count)} can be compared, {needed}"
    )


def _finish(open_: OpenCheckpoint, ends: Sequence[float]) -> Finish:
    count = len(ends)
    limit_ms = inf if open_.timeout_ms is None else float(open_.timeout_ms)
    coverage = (count - 1) / (count + 1)
    low, high, likely = ends[0], ends[-1], ends[(count - 1) // 2]
    basis = f"from {say.checkpoints(count)} that had come as far"
    if low >= limit_ms or likely >= limit_ms or isinf(likely):
        limit = "its timeout" if isinf(limit_ms) else f"its timeout of {say.duration(limit_ms)}"
        words = f"will probably reach {limit}: {_why_late(ends, limit_ms)}"
        least = None if low >= limit_ms else low
        return Finish(Outlook.TIMES_OUT, words, None, least, None, coverage, count)
    to = "the timeout" if high >= limit_ms or isinf(high) else say.duration(high)
    words = (
        f"will probably finish {say.duration(likely)} after its trigger "
        f"({say.duration(low)} to {to}, which holds in about {say.percent(coverage)} of cases; {basis})"
    )
    most = None if high >= limit_ms or isinf(high) else high
    return Finish(Outlook.FINISHES, words, likely, low, most, coverage, count)


def _why_late(ends: Sequence[float], limit_ms: float) -> str:
    """Describe in words how many earlier checkpoints expired, and how many needed too long from this point on."""
    expired = sum(isinf(e) for e in ends)
    slow = sum(limit_ms <= e < inf for e in ends)
    parts = [f"{expired} expired"] if expired else []
    if slow:
        parts.append(f"{slow} took longer from there than the time left")
    return f"of {len(ends)} earlier checkpoints that had come as far, {' and '.join(parts)}"
