"""Predicts the duration of the running checkpoint from past checkpoints of the same job, with a lower bound.

Prediction. The running checkpoint has age ``t`` and ``k`` of ``n`` acknowledgements, the last one at ``t_k``. Each
past checkpoint ``c`` with duration ``D_c`` gives up to three factors by which the running checkpoint is slower than
``c``:

* ``(t_k + w) / (a_c(k) + w)``, because ``c`` had its ``k``-th acknowledgement at ``a_c(k)``;
* ``(t + w) / (a_c(k+1) + w)`` if ``t`` is past ``a_c(k+1)``, the next acknowledgement of ``c``: a lower limit;
* the median of ``(b + w) / (b_c + w)`` over the subtasks that have not acknowledged and whose first barrier arrived at
  ``b`` in the running checkpoint, and at ``b_c`` in ``c``.

``w`` is a tenth of ``D_c``, so that a few milliseconds at the start have little weight. The largest factor times
``D_c`` is the prediction from ``c``. The prediction is the median over all ``c``, and at least ``t``.

Bound. Each past checkpoint is predicted in the same way from the others, as if it had only ``k`` acknowledgements.
The ``m`` ratios of real to predicted duration are sorted. The ``j``-th smallest ratio times the prediction is a lower
bound. The real duration is below this bound with a probability of at most ``j / (m + 1)``, as long as the job behaves
as before (jackknife conformal prediction: Vovk, Gammerman & Shafer 2005). The checkpoint is predicted to time out if
the bound with the required confidence is at least the timeout.

An expired checkpoint counts with the duration of its timeout, which is a lower limit of its duration. So it can only
lower the bound. Without the expired checkpoints, the prediction would use only the fast ones.

If there are too few past checkpoints with the same number of subtasks, the result is a reason and no prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from statistics import median

import numpy as np
from numpy.typing import NDArray

from backend.domain.ids import VertexId

_DAMPING_RATIO = 0.1
# A subtask's number is unique only within its vertex, so the key has both.
SubtaskKey = tuple[VertexId, int]


@dataclass(frozen=True, slots=True)
class Past:
    """A past checkpoint: the times of its acknowledgements, in ascending order, and of its end, since the trigger.

    If it has fewer acknowledgements than ``subtask_count``, it expired at ``end_ms``.
    """

    acks_ms: tuple[int, ...]
    subtask_count: int
    end_ms: int
    first_barriers_ms: Mapping[SubtaskKey, int] = field(default_factory=dict)

    def ack_ms(self, number: int) -> int:
        """Return the time of the ``number``-th acknowledgement (from 1), or ``end_ms`` if that one never arrived."""
        return self.acks_ms[number - 1] if number <= len(self.acks_ms) else self.end_ms


@dataclass(frozen=True, slots=True)
class Running:
    """The current progress of the running checkpoint.

    ``first_barriers_ms`` has the known first barriers of subtasks that have not acknowledged yet.
    """

    elapsed_ms: int
    acknowledged_count: int
    subtask_count: int
    last_ack_ms: int | None = None
    timeout_ms: int | None = None
    first_barriers_ms: Mapping[SubtaskKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The predicted duration and a lower bound of it.

    The bound holds with ``confidence_ratio``. ``past_count`` is the number of past checkpoints used.
    """

    duration_ms: float
    duration_least_ms: float
    confidence_ratio: float
    past_count: int


@dataclass(frozen=True, slots=True)
class NoForecast:
    """The result if no prediction can be made, with the reason."""

    reason: str


def forecast(
    running: Running, past: Sequence[Past], *, confidence_min_ratio: float, past_min_count: int
) -> Forecast | NoForecast:
    """Predict the total duration of the running checkpoint, or return the reason why that is not possible."""
    usable = [p for p in past if p.subtask_count == running.subtask_count and p.end_ms > 0]
    if len(usable) < past_min_count:
        return NoForecast(
            f"{len(usable)} past checkpoints of {running.subtask_count} subtasks, {past_min_count} needed"
        )
    rank = floor((1 - confidence_min_ratio) * (len(usable) + 1) + 1e-9)
    if rank < 1:
        needed = ceil(1 / (1 - confidence_min_ratio) - 1e-9) - 1
        return NoForecast(f"{len(usable)} past checkpoints, {needed} needed for this confidence")
    views = [running, *(_as_of(running, real) for real in usable)]
    factors = _slowdowns(views, usable)
    ends_ms = np.array([p.end_ms for p in usable], dtype=np.float64)
    predicted_ms = factors * ends_ms
    duration_ms = max(float(_medians(predicted_ms[0])), float(running.elapsed_ms))
    # Each past checkpoint is predicted from the other ones, as if it had only as many acknowledgements as the running
    # one.
    count = len(usable)
    others_ms = predicted_ms[1:][~np.eye(count, dtype=np.bool_)].reshape(count, count - 1)
    elapsed_ms = np.array([v.elapsed_ms for v in views[1:]], dtype=np.float64)
    ratios = np.sort(ends_ms / np.maximum(1.0, np.maximum(_medians(others_ms), elapsed_ms)))
    least_ms = max(duration_ms * float(ratios[rank - 1]), float(running.elapsed_ms))
    return Forecast(max(duration_ms, least_ms), least_ms, 1 - rank / (len(usable) + 1), len(usable))


def _medians(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the medians over the last axis. For a few values, this is faster than ``numpy.median``."""
    ordered = np.sort(values, axis=-1)
    count = values.shape[-1]
    middle: NDArray[np.float64] = (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2
    return middle


def _slowdowns(views: Sequence[Running], past: Sequence[Past]) -> NDArray[np.float64]:
    """Return the factor by which each view is slower than each past checkpoint.

    The views are the running checkpoint and past ones, all with the same number of acknowledgements. Without any data,
    a view is assumed to take as long as the past checkpoint: the factor is 1.
    """
    count = views[0].acknowledged_count
    w = _DAMPING_RATIO * np.array([p.end_ms for p in past], dtype=np.float64)
    next_ms = np.array([p.ack_ms(count + 1) for p in past], dtype=np.float64)
    elapsed_ms = np.array([[v.elapsed_ms] for v in views], dtype=np.float64)
    # A factor is positive. So -inf marks a factor that is not known.
    found = np.where(elapsed_ms > next_ms, (elapsed_ms + w) / (next_ms + w), -np.inf)
    if count > 0:
        acks_ms = np.array([p.ack_ms(count) for p in past], dtype=np.float64)
        last_ms = np.array([[np.nan if v.last_ack_ms is None else v.last_ack_ms] for v in views], dtype=np.float64)
        found = np.fmax(found, (last_ms + w) / (acks_ms + w))
    if views[0].first_barriers_ms:
        found = np.maximum(found, [[_barrier_slowdown(v, p) for p in past] for v in views])
    return np.where(np.isneginf(found), 1.0, found)


def _barrier_slowdown(view: Running, past: Past) -> float:
    """Return the median factor over the subtasks whose first barrier is known in both, or -inf if there is none."""
    w = _DAMPING_RATIO * past.end_ms
    factors = [
        (max(0, seen_ms) + w) / (max(0, past.first_barriers_ms[key]) + w)
        for key, seen_ms in view.first_barriers_ms.items()
        if key in past.first_barriers_ms
    ]
    return median(factors) if factors else float("-inf")


def _as_of(running: Running, past: Past) -> Running:
    """Return a past checkpoint as it was when it had as many acknowledgements as the running one has now."""
    count = running.acknowledged_count
    last_ms = past.ack_ms(count) if count else None
    # The past checkpoint is viewed at the moment when it had waited for its next acknowledgement as long as the
    # running checkpoint has now. If that acknowledgement came earlier, the moment of its arrival is used.
    waited_ms = running.elapsed_ms - (running.last_ack_ms or 0)
    elapsed_ms = min((last_ms or 0) + waited_ms, past.ack_ms(count + 1))
    barriers = {k: past.first_barriers_ms[k] for k in running.first_barriers_ms if k in past.first_barriers_ms}
    return Running(elapsed_ms, count, running.subtask_count, last_ms, running.timeout_ms, barriers)
