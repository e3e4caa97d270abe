"""Judges whether an open checkpoint progresses, is slow or is stuck.

An open checkpoint is compared with the time that the job's completed checkpoints needed for one more acknowledgement,
and with their longest pause between acknowledgements. Without completed checkpoints, it is compared with the timeout.
The judgement includes the rule with its numbers.

Invariant: with the same number of acknowledgements, more elapsed time never makes the judgement better.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from math import ceil

from backend.analysis.numbers.statistics import highest, known, median
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import (
    PROGRESS_MIN_MS,
    PROGRESS_SLOW_RATIO,
    PROGRESS_STUCK_RATIO,
    PROGRESS_TIMEOUT_RATIO,
)
from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointStatus
from backend.domain.ids import VertexId

# A subtask's number is unique only within its vertex, so the key has both.
SubtaskKey = tuple[VertexId, int]


class Judged(StrEnum):
    """The state of an open checkpoint; ``ended`` if it is no longer open."""

    PROGRESSING = "progressing"
    SLOW = "slow"
    STUCK = "stuck"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class AckCurve:
    """The times of the acknowledgements of one completed checkpoint, in milliseconds since the trigger, ascending."""

    acks_ms: tuple[int, ...]

    def reached_ms(self, share: float) -> int:
        """Return when this share (above 0, up to 1) of the subtasks had acknowledged."""
        return self.acks_ms[min(len(self.acks_ms), max(1, ceil(share * len(self.acks_ms)))) - 1]

    @property
    def longest_pause_ms(self) -> int:
        """The longest time without an acknowledgement, counted from the trigger on."""
        times = (0, *self.acks_ms)
        return max(b - a for a, b in pairwise(times))


@dataclass(frozen=True, slots=True)
class Judgement:
    """The state, and the rule that led to it, in words.

    ``typical_duration_ms`` is the median duration of completed checkpoints, or None if there are none.
    """

    state: Judged
    rule: str
    typical_duration_ms: float | None = None


@dataclass(frozen=True, slots=True)
class OpenCheckpoint:
    """The checkpoint in progress.

    ``last_ack_ms`` is the time from the trigger to the last acknowledgement, or None before the first one.
    ``first_barriers_ms`` has the known first barriers of subtasks that have not acknowledged yet.
    """

    elapsed_ms: int
    acknowledged_count: int
    subtask_count: int
    last_ack_ms: int | None = None
    timeout_ms: int | None = None
    status: CheckpointStatus = CheckpointStatus.IN_PROGRESS
    first_barriers_ms: Mapping[SubtaskKey, int] = field(default_factory=dict)


def ack_curve(checkpoint: Checkpoint) -> AckCurve | None:
    """Return the curve of a completed checkpoint, or None if the acknowledgement of a subtask is not known."""
    return curve_of(checkpoint.header, [v for d in checkpoint.details for v in d.ack_delay_ms])


def curve_of(header: CheckpointHeader, ack_delays_ms: Collection[int | None]) -> AckCurve | None:
    """Return the curve of a completed checkpoint from the acknowledgement times of its subtasks, in any order.

    Return None if the acknowledgement of a subtask is not known.
    """
    known_ms = [max(0, v) for v in ack_delays_ms if v is not None]
    if header.status is not CheckpointStatus.COMPLETED or not known_ms or len(known_ms) < len(ack_delays_ms):
        return None
    return AckCurve(tuple(sorted(known_ms)))


def judge(open_: OpenCheckpoint, past: Sequence[AckCurve]) -> Judgement:
    """Compare the open checkpoint with the curves of completed ones.

    The curves may be in any order. The curves of the ten newest checkpoints are enough.
    """
    typical = median(c.acks_ms[-1] for c in past)
    if open_.status is not CheckpointStatus.IN_PROGRESS:
        return Judgement(Judged.ENDED, f"the checkpoint is {open_.status.value}", typical)
    if open_.subtask_count > 0 and open_.acknowledged_count >= open_.subtask_count:
        return Judgement(Judged.PROGRESSING, "every subtask has acknowledged; the coordinator completes it", typical)
    silent_ms = open_.elapsed_ms - (open_.last_ack_ms or 0)
    if past:
        return _by_past(open_, past, silent_ms, typical)
    return _by_timeout(open_, silent_ms)


def _by_past(open_: OpenCheckpoint, past: Sequence[AckCurve], silent_ms: int, typical: float | None) -> Judgement:
    far = f"{open_.acknowledged_count} of {open_.subtask_count}"
    share = (open_.acknowledged_count + 1) / max(1, open_.subtask_count)
    next_ms = highest(c.reached_ms(share) for c in past) or 0.0
    pause_ms = highest(c.longest_pause_ms for c in past) or 0.0
    many = say.checkpoints(len(past))
    stuck_ms = max(PROGRESS_MIN_MS, PROGRESS_STUCK_RATIO * pause_ms)
    slow_ms = max(PROGRESS_MIN_MS, PROGRESS_SLOW_RATIO * next_ms)
    if silent_ms > stuck_ms:
        rule = (
            f"no acknowledgement for {say.duration(silent_ms)}, more than {say.duration(stuck_ms)}: "
            f"{PROGRESS_STUCK_RATIO:g} times the longest pause of the last {many}, at least "
            f"{say.duration(PROGRESS_MIN_MS)}"
        )
        return Judgement(Judged.STUCK, rule, typical)
    if open_.elapsed_ms > slow_ms:
        rule = (
            f"{far} acknowledged after {say.duration(open_.elapsed_ms)}: the last {many} had one more after at most "
            f"{say.duration(next_ms)}; slow is {PROGRESS_SLOW_RATIO:g} times that, at least "
            f"{say.duration(PROGRESS_MIN_MS)}"
        )
        return Judgement(Judged.SLOW, rule, typical)
    rule = (
        f"{far} acknowledged after {say.duration(open_.elapsed_ms)}, within {say.duration(slow_ms)}, "
        f"the limit from the last {many}"
    )
    return Judgement(Judged.PROGRESSING, rule, typical)


def _by_timeout(open_: OpenCheckpoint, silent_ms: int) -> Judgement:
    far = f"{open_.acknowledged_count} of {open_.subtask_count} acknowledged after {say.duration(open_.elapsed_ms)}"
    if open_.timeout_ms is None:
        return Judgement(Judged.PROGRESSING, f"{far}; no completed checkpoint and no timeout to compare with")
    limit_ms = max(PROGRESS_MIN_MS, PROGRESS_TIMEOUT_RATIO * open_.timeout_ms)
    half = f"half of the timeout ({say.duration(limit_ms)})"
    if silent_ms > limit_ms:
        return Judgement(Judged.STUCK, f"no acknowledgement for {say.duration(silent_ms)}, more than {half}; {far}")
    if open_.elapsed_ms > limit_ms:
        return Judgement(Judged.SLOW, f"{far}, more than {half}; no completed checkpoint to compare with")
    return Judgement(Judged.PROGRESSING, f"{far}, within {half}; no completed checkpoint to compare with")


def elapsed_of_last_ack_ms(checkpoint: Checkpoint) -> int | None:
    """Return the milliseconds from the trigger to the latest acknowledgement.

    They are read from the details of the subtasks or, without details, from the header.
    """
    latest = known(v for d in checkpoint.details for v in d.ack_delay_ms)
    if latest:
        return int(max(latest))
    header = checkpoint.header
    if header.latest_ack_at is None:
        return None
    return max(0, round((header.latest_ack_at - header.triggered_at).total_seconds() * 1000))
