"""Will the running checkpoint be over its timeout? Predicted from past checkpoints of the same job, with a bound.

How. Let the running one be ``t`` old with ``k`` of ``n`` acknowledgements, the last of them at ``t_k``. Each past
checkpoint ``c``, of duration ``D_c``, tells how much slower the running one is than it was:

* it had its ``k``-th acknowledgement at ``a_c(k)``: slower by ``(t_k + w) / (a_c(k) + w)``;
* and the next one at ``a_c(k+1)``, which the running one still waits for: slower by ``(t + w) / (a_c(k+1) + w)`` at
  least, where ``t`` is already beyond ``a_c(k+1)``;
* a subtask that has not acknowledged but whose first barrier was seen at ``b`` had it then at ``b_c``: slower by
  ``(b + w) / (b_c + w)``, the median over such subtasks.

``w`` is a tenth of ``D_c``, so that a few milliseconds at the begin weigh little. The largest of the three times
``D_c`` is what ``c`` foretells; the prediction is the median over all ``c``, and never less than ``t``.

How sure. The same prediction is made for every past checkpoint from the others, as it stood at the same count of
acknowledgements; the ratios of real to predicted duration are sorted, and the ``j``-th smallest of ``m``, times the
prediction, is a lower bound that the real duration is under with a chance of ``j / (m + 1)`` at most, as long as the
job goes on as it did (jackknife conformal prediction: Vovk, Gammerman & Shafer 2005). It will time out where that
bound, at the confidence asked for, is at least the timeout.

An expired checkpoint counts as of its timeout's duration, since it took that long at least: leaving out those that
failed would foretell from survivors only. All it can do is make the bound lower.

Silent, with the reason, where there are too few past checkpoints of the same size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from statistics import median

from backend.domain.ids import VertexId

_DAMPING_RATIO = 0.1
# Two subtasks may be numbered alike at two vertices.
SubtaskKey = tuple[VertexId, int]


@dataclass(frozen=True, slots=True)
class Past:
    """A past checkpoint: ascending times of its acknowledgements since the trigger, and when it was over.

    Fewer acknowledgements than ``subtask_count``: it expired, and ``end_ms`` is the time to that.
    """

    acks_ms: tuple[int, ...]
    subtask_count: int
    end_ms: int
    first_barriers_ms: Mapping[SubtaskKey, int] = field(default_factory=dict)

    def ack_ms(self, number: int) -> int:
        """When the ``number``-th (from 1) acknowledgement was there; the end, for one that never came."""
        return self.acks_ms[number - 1] if number <= len(self.acks_ms) else self.end_ms


@dataclass(frozen=True, slots=True)
class Running:
    """The running checkpoint. ``first_barriers_ms``: of subtasks that have not acknowledged, where they are known."""

    elapsed_ms: int
    acknowledged_count: int
    subtask_count: int
    last_ack_ms: int | None = None
    timeout_ms: int | None = None
    first_barriers_ms: Mapping[SubtaskKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The prediction, a lower bound that holds with ``confidence_ratio``, and how many past ones it rests on."""

    duration_ms: float
    duration_least_ms: float
    confidence_ratio: float
    past_count: int


@dataclass(frozen=True, slots=True)
class NoForecast:
    """Nothing is foretold, and why."""

    reason: str


def forecast(
    running: Running, past: Sequence[Past], *, confidence_min_ratio: float, past_min_count: int
) -> Forecast | NoForecast:
    """How long the running checkpoint will take in all."""
    usable = [p for p in past if p.subtask_count == running.subtask_count and p.end_ms > 0]
    if len(usable) < past_min_count:
        return NoForecast(
            f"{len(usable)} past checkpoints of {running.subtask_count} subtasks, {past_min_count} needed"
        )
    rank = floor((1 - confidence_min_ratio) * (len(usable) + 1) + 1e-9)
    if rank < 1:
        needed = ceil(1 / (1 - confidence_min_ratio) - 1e-9) - 1
        return NoForecast(f"{len(usable)} past checkpoints, {needed} needed for this confidence")
    duration_ms = _predict(running, usable)
    ratios = sorted(_ratios(running, usable))
    least_ms = max(duration_ms * ratios[rank - 1], float(running.elapsed_ms))
    return Forecast(max(duration_ms, least_ms), least_ms, 1 - rank / (len(usable) + 1), len(usable))


def _predict(running: Running, past: Sequence[Past]) -> float:
    return max(median(_slowdown(running, p) * p.end_ms for p in past), float(running.elapsed_ms))


def _slowdown(running: Running, past: Past) -> float:
    w = _DAMPING_RATIO * past.end_ms
    found = []
    if running.acknowledged_count > 0 and running.last_ack_ms is not None:
        found.append((running.last_ack_ms + w) / (past.ack_ms(running.acknowledged_count) + w))
    next_ms = past.ack_ms(running.acknowledged_count + 1)
    if running.elapsed_ms > next_ms:
        found.append((running.elapsed_ms + w) / (next_ms + w))
    barriers = [
        (max(0, seen_ms) + w) / (max(0, past.first_barriers_ms[key]) + w)
        for key, seen_ms in running.first_barriers_ms.items()
        if key in past.first_barriers_ms
    ]
    if barriers:
        found.append(median(barriers))
    # Before anything is known of it, it is taken to be like that one.
    return max(found, default=1.0)


def _ratios(running: Running, past: Sequence[Past]) -> list[float]:
    """Real to predicted duration of each past one, predicted from the others as of the same acknowledgements."""
    return [
        real.end_ms / max(1.0, _predict(_as_of(running, real), [p for p in past if p is not real])) for real in past
    ]


def _as_of(running: Running, past: Past) -> Running:
    """A past checkpoint as it stood when it had come as far as the running one has now."""
    count = running.acknowledged_count
    last_ms = past.ack_ms(count) if count else None
    # As long since its last acknowledgement as the running one, but not past its next.
    waited_ms = running.elapsed_ms - (running.last_ack_ms or 0)
    elapsed_ms = min((last_ms or 0) + waited_ms, past.ack_ms(count + 1))
    barriers = {k: past.first_barriers_ms[k] for k in running.first_barriers_ms if k in past.first_barriers_ms}
    return Running(elapsed_ms, count, running.subtask_count, last_ms, running.timeout_ms, barriers)
