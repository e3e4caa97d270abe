"""Bursts of a source: their period, their length and their height, as readings and back-pressure show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.advisor.twin.model.flows import VertexFlow
from backend.advisor.twin.model.model import Assumption, JobModel, SourceModel
from backend.advisor.twin.model.rates import throughput_of
from backend.domain.ids import VertexId

_BURST_FACTOR, _BURST_FACTOR_MAX = 1.3, 10.0
_BURST_READINGS_MIN = 6
_HELD_MIN = 0.05
_PERIODS_ROW_MIN = 10
_PERIODIC_MIN = 0.5
_FILLED_RATIO = 0.8
"""The usual content of full buffers, as a share of their size."""
SWING_MIN_S = 1.0
"""The counts of a bursty source and of its receivers swing this far at least around a steady flow."""


@dataclass(frozen=True, slots=True)
class Bursts:
    """A source that alternates between a high rate and a low one, which is ``low_ratio`` times its mean rate."""

    period_ms: float
    ratio: float
    factor: float
    low_ratio: float


def bursts_of(flow: VertexFlow, below: Sequence[VertexFlow], period_ms: float | None) -> Bursts | None:
    """Return the bursts of a source; None if its rate is steady or readings are few.

    ``below`` are the flows of its receivers. ``period_ms`` is the period in which checkpoints repeat, if they do.
    Without it, the readings must show the period. Old counts of one vertex look like bursts, so the counts of the
    receivers must swing as well then.

    The high rate is at least what the readings show: a reading may average over a part of a burst, and back-pressure
    limits it. Bursts that are much shorter than the time between two readings cannot be seen.
    """
    rates = flow.out_rates_per_s
    mean = float(rates.mean()) if rates.size else 0.0
    if rates.size < _BURST_READINGS_MIN or mean <= 0:
        return None
    if period_ms is None and min(f.swing_s for f in (flow, *below)) < SWING_MIN_S:
        return None
    low, high = (float(q) for q in np.quantile(rates, (0.1, 0.95)))
    factor = high / mean
    if factor < _BURST_FACTOR or low >= mean:
        return None
    is_high = rates > (low + high) / 2
    if period_ms is None:
        starts = np.flatnonzero(is_high[1:] & ~is_high[:-1])
        if starts.size < 2:
            return None
        period_ms = float(np.diff(starts).mean()) * flow.step_s * 1000
    return Bursts(period_ms, (mean - low) / (high - low), factor, low / mean)


def hidden_height(
    bursts: Bursts, *, rate_per_s: float, capacity_per_s: float, room_records: float, held_ratio: float
) -> Bursts:
    """Return bursts whose high rate explains for how long the source was held back.

    ``rate_per_s`` is the mean rate. A burst fills ``room_records`` of buffers, and the source is held back from then on
    until the job, at its capacity, has caught up: ``held_ratio`` of the time. Readings show the capacity meanwhile, and
    not the rate of the burst.
    """
    period_s, low = bursts.period_ms / 1000, bursts.low_ratio * rate_per_s
    if not 0 < low < rate_per_s < capacity_per_s:
        return bursts
    caught_up_s = (period_s * (rate_per_s - low) - room_records) / (capacity_per_s - low)
    filling_s = caught_up_s - held_ratio * period_s
    if held_ratio < _HELD_MIN or filling_s <= 0:
        return bursts
    high = min(capacity_per_s + room_records / filling_s, _BURST_FACTOR_MAX * rate_per_s)
    if high <= bursts.factor * rate_per_s:
        return bursts
    return replace(bursts, ratio=(rate_per_s - low) / (high - low), factor=high / rate_per_s)


def period_of(values: Sequence[float], apart_ms: float) -> float | None:
    """Return the period in which a row of values repeats, such as the durations of checkpoints; None if it does not.

    ``apart_ms`` is the time between two values. At least two periods must be seen.
    """
    row = np.asarray(values, dtype=float)
    row = row - row.mean() if row.size else row
    power = float((row * row).sum())
    if row.size < _PERIODS_ROW_MIN or power <= 0:
        return None
    best, found = _PERIODIC_MIN, None
    for lag in range(2, row.size // 2 + 1):
        pairs = row[lag:] * row[:-lag]
        likeness = float(pairs.mean()) / (power / row.size)
        if likeness > best + 0.05:
            best, found = likeness, lag
    return None if found is None else found * apart_ms


def with_hidden_heights(model: JobModel, bursts: Mapping[VertexId, Bursts], held: Mapping[VertexId, float]) -> JobModel:
    """Return the model with the bursts of its sources as high as their back-pressure says.

    ``held`` is the share of time in which each bursty source was held back.
    """
    if not bursts:
        return model
    free = [v if v.source is None else replace(v, source=SourceModel(rate_per_s=None)) for v in model.vertices]
    flow = throughput_of(replace(model, vertices=tuple(free)))
    capacity = sum(flow.records_per_s[v.id] for v in model.vertices if v.source is not None)
    sizes = [e.record_bytes for e in model.edges if e.target == flow.bottleneck]
    room = _FILLED_RATIO * flow.queued_bytes_max / max(1.0, *sizes) if sizes else 0.0
    assumptions, vertices = list(model.assumptions), []
    for vertex in model.vertices:
        seen, source = bursts.get(vertex.id), vertex.source
        if seen is None or source is None or source.rate_per_s is None:
            vertices.append(vertex)
            continue
        found = hidden_height(
            seen,
            rate_per_s=source.rate_per_s,
            capacity_per_s=capacity,
            room_records=room,
            held_ratio=held.get(vertex.id, 0.0),
        )
        if found is not seen:
            taken = f"{found.factor:.3g} times the mean rate"
            reason = "bursts of this height explain for how long it was back-pressured"
            assumptions.append(Assumption(subject=f"bursts of {vertex.name}", taken=taken, reason=reason))
        source = replace(source, burst_ratio=found.ratio, burst_factor=found.factor)
        vertices.append(replace(vertex, source=source))
    return replace(model, vertices=tuple(vertices), assumptions=tuple(assumptions))
