"""Predicts the duration of the running checkpoint from past checkpoints of the same job, with a lower bound.

Prediction. The running checkpoint has age ``t`` and ``k`` of ``n`` acknowledgements, the last one at ``t_k``. Each past
checkpoint ``c`` with duration ``D_c`` gives up to three slowdown factors of the running checkpoint:

* ``(t_k + w) / (a_c(k) + w)``, because ``c`` had its ``k``-th acknowledgement at ``a_c(k)``;
* ``(t + w) / (a_c(k+1) + w)`` if ``t`` is past ``a_c(k+1)``, the next acknowledgement of ``c``: a lower limit;
* the median of ``(b + w) / (b_c + w)`` over the subtasks that have not acknowledged and whose first barrier arrived at
  ``b``, and at ``b_c`` in ``c``.

``w`` is a tenth of ``D_c``, so that a few milliseconds at the begin have little weight. The largest factor times
``D_c`` is the prediction from ``c``. The prediction is the median over all ``c``, and at least ``t``.

Bound. The same prediction is made for every past checkpoint from the others, at the same number of acknowledgements.
The ``m`` ratios of real to predicted duration are sorted. The ``j``-th smallest ratio times the prediction is a lower
bound. The real duration is below it with a probability of at most ``j / (m + 1)``, as long as the job behaves as before
(jackknife conformal prediction: Vovk, Gammerman & Shafer 2005). The checkpoint is predicted to time out if the bound
with the required confidence is at least the timeout.

An expired checkpoint counts with the duration of its timeout, which is a lower limit. Without the expired ones the
prediction would use only the fast checkpoints. They can only lower the bound.

With too few past checkpoints of the same size there is no prediction, but a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from statistics import median

from backend.domain.ids import VertexId

_DAMPING_RATIO = 0.1
# A subtask's number is unique only within its vertex.
SubtaskKey = tuple[VertexId, int]


@dataclass(frozen=True, slots=True)
class Past:
    """A past checkpoint: ascending times of its acknowledgements and of its end, both since the trigger.

    With fewer acknowledgements than ``subtask_count`` it expired at ``end_ms``.
    """

    acks_ms: tuple[int, ...]
    subtask_count: int
    end_ms: int
    first_barriers_ms: Mapping[SubtaskKey, int] = field(default_factory=dict)

    def ack_ms(self, number: int) -> int:
        """The time of the ``number``-th acknowledgement, from 1; ``end_ms`` if it never arrived."""
        return self.acks_ms[number - 1] if number <= len(self.acks_ms) else self.end_ms


@dataclass(frozen=True, slots=True)
class Running:
    """The running checkpoint. ``first_barriers_ms``: known first barriers of subtasks that have not acknowledged."""

    elapsed_ms: int
    acknowledged_count: int
    subtask_count: int
    last_ack_ms: int | None = None
    timeout_ms: int | None = None
    first_barriers_ms: Mapping[SubtaskKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The prediction, a lower bound that holds with ``confidence_ratio``, and the number of past checkpoints used."""

    duration_ms: float
    duration_least_ms: float
    confidence_ratio: float
    past_count: int


@dataclass(frozen=True, slots=True)
class NoForecast:
    """There is no prediction, for this reason."""

    reason: str


def forecast(
    running: Running, past: Sequence[Past], *, confidence_min_ratio: float, past_min_count: int
) -> Forecast | NoForecast:
    """Predict the total duration of the running checkpoint."""
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
    # Without any data, the running checkpoint is assumed to take as long as the past one.
    return max(found, default=1.0)


def _ratios(running: Running, past: Sequence[Past]) -> list[float]:
    """Real to predicted duration of each past checkpoint, predicted from the others at the same acknowledgements."""
    return [
        real.end_ms / max(1.0, _predict(_as_of(running, real), [p for p in past if p is not real])) for real in past
    ]


def _as_of(running: Running, past: Past) -> Running:
    """A past checkpoint when it had as many acknowledgements as the running one has now."""
    count = running.acknowledged_count
    last_ms = past.ack_ms(count) if count else None
    # The wait since its last acknowledgement is that of the running one, but ends at its next acknowledgement.
    waited_ms = running.elapsed_ms - (running.last_ack_ms or 0)
    elapsed_ms = min((last_ms or 0) + waited_ms, past.ack_ms(count + 1))
    barriers = {k: past.first_barriers_ms[k] for k in running.first_barriers_ms if k in past.first_barriers_ms}
    return Running(elapsed_ms, count, running.subtask_count, last_ms, running.timeout_ms, barriers)
