"""A long callback of a job: timers or windows that fire for seconds, as barriers and busy times show it.

Barriers that wait for it show that a vertex stands still, and when it ends. The period follows from these ends, because
each one is a whole number of periods after another. How long it takes follows from the busy time of the subtasks: what
their records do not explain is the callback.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.advisor.twin.model.flows import VertexFlow
from backend.advisor.twin.model.model import Assumption, VertexModel
from backend.advisor.twin.model.snapshots import Recorded
from backend.analysis.measures.critical_path import sent_ms
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.numbers.arrays import Floats, highest_of
from backend.analysis.verdict import case as cases
from backend.analysis.verdict.standing_still import stall_of
from backend.analysis.words.thresholds import HOP_MIN_MS
from backend.domain.ids import VertexId
from backend.domain.verdict import VerdictKind

_STRUCK_MIN_COUNT = 3
_PERIODS_TRIED = 40
_OFF_RATIO, _OFF_MIN_MS = 0.08, 150.0
"""How far the ends of callbacks may be from whole periods: a share of the period, because their work varies."""
_UNSTRUCK_RATIO = 0.4
_EDGE_RATIO = 0.2
_HELD_MIN_RATIO = 0.05
_FULL_BUSY = 0.97
_USUAL_MS = 1000.0 * np.outer([1.0, 60.0, 3600.0], [1, 2, 5, 10, 15, 20, 30]).ravel()
_USUAL_OFF_RATIO = 0.02
"""The usual sizes of windows: 1 to 30 seconds, minutes or hours."""


@dataclass(frozen=True, slots=True)
class Callback:
    """A long callback of one vertex. ``lasts_ms`` has the time of each subtask, of which ``least_ms`` was seen."""

    vertex_id: VertexId
    period_ms: float
    lasts_ms: tuple[float, ...]
    least_ms: float
    struck_count: int
    checkpoint_count: int

    def assumption(self, name: str) -> Assumption:
        """Return what the model has of the callback, and from what it was inferred."""
        longest = max(self.lasts_ms)
        return Assumption(
            subject=f"long callback of {name}",
            taken=f"up to {longest / 1000:.2g} s in every {self.period_ms / 1000:.3g} s, at all subtasks together",
            reason=(
                f"barriers of {self.struck_count} of {self.checkpoint_count} checkpoints waited up to"
                f" {self.least_ms / 1000:.2g} s for a vertex that stood still, and all these waits ended whole periods"
                " apart. The vertex is busy with it when its records do not explain its busy time. They are assumed to"
                " be as quick as those of the quickest other vertex"
            ),
        )


@dataclass(frozen=True, slots=True)
class _Waits:
    """The waits of the barriers of several checkpoints for one vertex.

    ``begin_ms`` and ``end_ms`` are times on the coordinator's clock; a wait without a callback ends when it begins.
    """

    begin_ms: Floats
    end_ms: Floats

    @property
    def took_ms(self) -> Floats:
        return self.end_ms - self.begin_ms


def callback_of(
    evidence: JobEvidence, recorded: Sequence[Recorded], flows: Mapping[VertexId, VertexFlow]
) -> Callback | Assumption | None:
    """Return the long callback of a job; None if none shows.

    If barriers show that a vertex stands still, but no period, the result is the assumption that it has no callback.
    """
    is_late = (highest_of(p.travel_ms) or 0.0 for r in recorded for p in r.phases.values())
    if max(is_late, default=0.0) < HOP_MIN_MS:
        return None
    stall = stall_of(cases.of_job(evidence))
    if stall is None or stall.kind is not VerdictKind.CALLBACK:
        return None
    flow = flows[stall.wait.vertex_id]
    busy = np.nan_to_num(flow.busy)
    most = float(busy.max(initial=0.0))
    if most < _HELD_MIN_RATIO or most >= _FULL_BUSY:
        return None
    waits = _waits(evidence, recorded, stall.before, is_to_last=stall.is_to_last)
    found = _period_ms(waits, most)
    if found is None:
        name = evidence.vertex_name(stall.wait.vertex_id)
        reason = "barriers wait for this vertex while it reads nothing, but too few of them, or in no period"
        return Assumption(
            subject=f"long callback of {name}", taken="none: its records explain its busy time", reason=reason
        )
    period_ms, lasts_ms = found
    others = [
        float(f.service_us(is_source=not evidence.topology.upstream(v))[0].min())
        for v, f in flows.items()
        if v != stall.wait.vertex_id
    ]
    of_records = np.nan_to_num(flow.records_in) * min(others, default=0.0) / 1e6
    seen_ms = float(waits.took_ms.max())
    return Callback(
        vertex_id=stall.wait.vertex_id,
        period_ms=period_ms,
        lasts_ms=_by_subtask(busy, of_records, period_ms, seen_ms, lasts_ms),
        least_ms=seen_ms,
        struck_count=int(_is_struck(waits).sum()),
        checkpoint_count=waits.took_ms.size,
    )


def _by_subtask(
    busy: Floats, of_records: Floats, period_ms: float, least_ms: float, most_ms: float
) -> tuple[float, ...]:
    """Return how long the callback takes at each subtask: what ``of_records`` leaves of its busy time ``busy``.

    The busiest subtask takes at least ``least_ms``, the longest wait that was seen, and at most ``most_ms``. Both are
    limited by its busy time. The limits of the other subtasks are in proportion to their busy time.
    """
    share = busy / busy.max()
    most = np.minimum(most_ms * share, busy * period_ms)
    return tuple(np.clip((busy - of_records) * period_ms, np.minimum(least_ms * share, most), most).tolist())


def with_callback(vertices: Sequence[VertexModel], callback: Callback, busy: Floats) -> tuple[VertexModel, ...]:
    """Return the vertices, of which one has the callback. Its busy time no longer belongs to its records.

    ``busy`` is the busy share of each subtask of this vertex.
    """
    held = np.asarray(callback.lasts_ms) / callback.period_ms
    rest = np.where(busy > 0, np.clip(1.0 - held / np.where(busy > 0, busy, 1.0), 0.0, 1.0), 1.0)
    return tuple(
        replace(
            v,
            service_us=tuple((np.asarray(v.service_us) * rest).tolist()),
            callback_period_ms=callback.period_ms,
            callback_ms=callback.lasts_ms,
        )
        if v.id == callback.vertex_id
        else v
        for v in vertices
    )


def _waits(evidence: JobEvidence, recorded: Sequence[Recorded], vertex: VertexId, *, is_to_last: bool) -> _Waits:
    rows = []
    for r in recorded:
        phases = r.phases.get(vertex)
        if phases is None:
            continue
        sent = np.nan_to_num(sent_ms(evidence.topology, vertex, r.phases))
        reached = phases.travel_ms if is_to_last else phases.first_barrier_ms
        took = np.maximum(reached - sent, 0.0)
        if not np.isnan(took).all():
            slowest = int(np.nanargmax(took))
            at_ms = r.checkpoint.header.triggered_at.timestamp() * 1000
            rows.append((at_ms + float(sent[slowest]), at_ms + float(reached[slowest])))
    begin, end = np.array(rows).T if rows else np.zeros((2, 0))
    return _Waits(begin, np.maximum(begin, end))


def _is_struck(waits: _Waits) -> np.ndarray:
    return np.asarray(waits.took_ms >= HOP_MIN_MS / 2)


def _period_ms(waits: _Waits, busy: float) -> tuple[float, float] | None:
    """Return the period of the callback that explains which barriers wait, and how long the callback takes.

    ``busy`` is the busy share of the vertex, and the callback takes at most this share of the period. So the period is
    at least the longest wait divided by ``busy``. Every wait ends when a callback ends, so all these ends are whole
    periods apart. Barriers that did not wait came between two callbacks. If barriers come at random times of the
    callback, they wait for half of it on average, and the longest of several waits is a little shorter than the
    callback.

    If checkpoints and callbacks keep step, all waits are alike, and several periods fit. The shortest of them is the
    most likely: with a longer period the callback would be longer too, and waits that are all alike would show less of
    it. Usual periods, such as a whole minute, are preferred to others.
    """
    fitting = list(_fitting(waits, busy))
    nearest = min((off for off, *_ in fitting), default=0.0)
    fitting = [one for one in fitting if one[0] <= 2 * nearest + _OFF_MIN_MS / 5]
    usual = [one for one in fitting if np.min(np.abs(one[1] / _USUAL_MS - 1)) <= _USUAL_OFF_RATIO]
    return min(((period, lasts) for _, period, lasts in usual or fitting), default=None)


def _fitting(waits: _Waits, busy: float) -> Iterator[tuple[float, float, float]]:
    """Yield how far the ends of waits are from whole periods, the period, and the longest callback."""
    is_struck = _is_struck(waits)
    ends = np.sort(waits.end_ms[is_struck])
    gaps = np.diff(ends)
    if ends.size < _STRUCK_MIN_COUNT:
        return
    longest = float(waits.took_ms.max())
    # Two barriers may wait for the end of the same callback.
    shortest = float(gaps[gaps > longest / 2].min(initial=np.inf))
    for parts in range(1, _PERIODS_TRIED):
        numbers = np.round(gaps / (shortest / parts))
        if not numbers.any():
            return
        period = float(np.median((gaps / np.maximum(numbers, 1.0))[numbers > 0]))
        if period * busy < longest:
            return
        # Each gap is rounded by itself, so that errors do not add up.
        numbers = np.concatenate([[0.0], np.cumsum(np.round(gaps / period))])
        period, first = (float(x) for x in np.polyfit(numbers, ends, 1))
        tolerance = max(_OFF_MIN_MS, _OFF_RATIO * period)
        off = float(np.quantile(np.abs(ends - first - numbers * period), 0.9))
        if off > tolerance:
            continue
        until = -(waits.begin_ms[~is_struck] - first) % period
        lasts = _longest_ms(waits.took_ms[is_struck], until, period * busy)
        # A barrier that came when others had to wait should have waited too.
        waited = float(np.median(waits.took_ms[is_struck])) + tolerance
        inside = (until > _EDGE_RATIO * lasts) & (until < max((1 - _EDGE_RATIO) * lasts, waited))
        if lasts >= _HELD_MIN_RATIO * period and inside.sum() <= _UNSTRUCK_RATIO * ends.size:
            yield off, period, lasts


def _longest_ms(took: Floats, until: Floats, most_ms: float) -> float:
    """Return how long a callback takes: at least the longest wait, and at most ``most_ms``, the busy time.

    ``until`` is the time from each barrier that did not wait to the next end of a callback, which had not begun then.
    """
    longest = float(took.max())
    later = until[until > longest]
    if later.size and longest >= 2 * took.min():
        # Barriers came at many times of the period, so those shortly before the begin bound it too.
        return min(most_ms, (longest + float(later.min())) / 2)
    return min(most_ms, float(later.min(initial=np.inf)))
