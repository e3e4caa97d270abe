"""Finds subtasks that stand still: busy, but they read no records, so that not even a barrier gets through.

A task runs records, timers, commits and the sync part of a snapshot in one thread. While a timer, a window that fires
or a commit runs, the task reads nothing, and every barrier waits, also an unaligned one. A queue in front of a full
subtask looks alike in a checkpoint: the barrier arrives late. The two differ by two signs:

* While a barrier waits in a queue, the subtask reads as many records as it can. A subtask that stands still reads none.
* An unaligned barrier overtakes the queue. If it arrives late all the same, the subtask stood still.

Only the time before the first barrier counts. After it, an alignment may block the channels of an idle subtask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np

from backend.analysis.arrays import Floats, array_of, column_means, highest_of, indices_of, stacked
from backend.analysis.case import Case, Walked
from backend.analysis.critical_path import sent_ms
from backend.analysis.phases import effective_aligned_timeout_ms
from backend.analysis.thresholds import (
    BACKPRESSURED_MIN_RATIO,
    HOP_MIN_MS,
    STALL_RATE_RATIO,
    STALL_TIME_RATIO,
    STANDOUT_RATIO,
)
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure

_NOT_OVERTAKEN = frozenset({"BROADCAST", "FORWARD", "RESCALE"})
# Two readings belong to the time in which a barrier waits if at least this share of the time between them does.
_OVERLAP_MIN = 0.6


@dataclass(frozen=True, slots=True)
class Reads:
    """What subtasks read in some spans of time.

    ``rate_ratio`` is the number of records that they read in a second, divided by their usual number. ``still_ratio``
    is the share of the time between readings in which they read no record at all.
    """

    rate_ratio: float
    still_ratio: float

    @property
    def are_few(self) -> bool:
        """Whether the subtasks stood still most of the time. A subtask that works off a queue always reads records."""
        return self.rate_ratio <= STALL_RATE_RATIO or self.still_ratio >= STALL_TIME_RATIO


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """The wait of the barrier in front of one vertex: the mean over the checkpoints by subtask, in milliseconds.

    ``reads`` is what the subtasks with a long wait read while the barrier waited. None if no readings are from this
    time. ``is_overtaking`` is whether the barriers waited although they overtake queues.
    """

    vertex_id: VertexId
    wait_ms: Floats
    reads: Reads | None
    is_overtaking: bool

    @property
    def longest_ms(self) -> float:
        """The longest wait in front of a subtask."""
        return highest_of(self.wait_ms) or 0.0

    @property
    def subtasks(self) -> tuple[int, ...]:
        """The subtasks in front of which the barrier waited longest."""
        return indices_of(self.wait_ms >= max(HOP_MIN_MS, STANDOUT_RATIO * self.longest_ms))

    @property
    def stands_still(self) -> bool:
        """Whether the subtasks read nothing while the barrier waited. They then did not process a queue."""
        return self.is_overtaking or (self.reads is not None and self.reads.are_few)


def lowest_wait(case: Case) -> Wait | None:
    """Return the wait in front of the most downstream vertex at which barriers wait long, or None."""
    for vertex in reversed(case.evidence.topology.vertices):
        if case.evidence.topology.upstream(vertex.id):
            found = wait_before(case, vertex.id)
            if found is not None and found.longest_ms >= HOP_MIN_MS:
                return found
    return None


def wait_before(case: Case, vertex_id: VertexId) -> Wait | None:
    """Return the wait of first barriers in front of a vertex, or None if it is not known."""
    there = [w for w in case.walked if vertex_id in w.phases]
    waits = [_wait_ms(case, w, vertex_id) for w in there]
    means = column_means(stacked(waits))
    if not means.size or np.isnan(means).all():
        return None
    long = indices_of(means >= max(HOP_MIN_MS, STANDOUT_RATIO * (highest_of(means) or 0.0)))
    overtaking = [_overtakes(case, w, vertex_id, m) for w, m in zip(there, waits, strict=True)]
    return Wait(
        vertex_id=vertex_id,
        wait_ms=means,
        reads=_reads_of(case, vertex_id, long, list(zip(there, waits, strict=True))),
        is_overtaking=bool(long) and sum(overtaking) * 2 > len(overtaking),
    )


def _wait_ms(case: Case, walked: Walked, vertex_id: VertexId) -> Floats:
    """Return how long first barriers waited; missing for a subtask whose first barrier is not known.

    A subtask that did not acknowledge may have had its barrier early, and be slow for another reason.
    """
    return np.maximum(0.0, walked.phases[vertex_id].first_barrier_ms - _first_sent_ms(case, walked, vertex_id))


def _first_sent_ms(case: Case, walked: Walked, vertex_id: VertexId) -> Floats:
    """Return when the barrier was first sent to each subtask; the latest sender if several vertices send."""
    sent = sent_ms(case.evidence.topology, vertex_id, walked.phases)
    return np.where(np.isnan(sent), 0.0, sent)


def _overtakes(case: Case, walked: Walked, vertex_id: VertexId, waits: Floats) -> bool:
    """Return whether the barriers of the checkpoint waited at the vertex although they could overtake data."""
    edges = [e for e in case.evidence.topology.edges if e.target == vertex_id]
    if any(e.ship_strategy in _NOT_OVERTAKEN for e in edges):
        return False
    config = case.evidence.config or CheckpointConfig()
    timeout = effective_aligned_timeout_ms(
        walked.checkpoint.header,
        aligned_timeout_ms=config.aligned_timeout_ms,
        is_unaligned_enabled=config.is_unaligned_enabled,
    )
    if timeout is None:
        return False
    load = case.loads.get(vertex_id)
    if load is not None and (load.full_subtasks or (highest_of(load.backpressured) or 0.0) >= BACKPRESSURED_MIN_RATIO):
        # A subtask in the middle of a record cannot take the barrier either. This may last long if it waits for room in
        # its output, or if it is full and its records are large.
        return False
    late = (
        waits + _first_sent_ms(case, walked, vertex_id) - np.maximum(timeout, _first_sent_ms(case, walked, vertex_id))
    )
    return (highest_of(late) or 0.0) >= HOP_MIN_MS


def _reads_of(
    case: Case, vertex_id: VertexId, subtasks: Sequence[int], waits: Sequence[tuple[Walked, Floats]]
) -> Reads | None:
    spans = [_span(case, walked, vertex_id, row, subtasks) for walked, row in waits]
    return reads_in(case, vertex_id, subtasks, spans, overlap_min=_OVERLAP_MIN)


def reads_in(
    case: Case,
    vertex_id: VertexId,
    subtasks: Sequence[int],
    spans: Sequence[tuple[datetime, datetime]],
    *,
    overlap_min: float,
) -> Reads | None:
    """Return what subtasks read in these spans, compared with their usual number of records.

    Two readings count if at least the share ``overlap_min`` of the time between them is in a span. None without such
    readings.
    """
    readings = [r for r in case.readings if r.vertex_id == vertex_id and any(c is not None for c in r.records_in_count)]
    if len(readings) < 2 or not subtasks:
        return None
    during_records = during_s = still_s = usual_records = usual_s = 0.0
    for before, after in pairwise(readings):
        seconds = (after.observed_at - before.observed_at).total_seconds()
        records = _records_between(before, after, subtasks)
        if records is None or seconds <= 0:
            continue
        usual_records, usual_s = usual_records + records, usual_s + seconds
        if any(_overlap_s(span, before.observed_at, after.observed_at) >= overlap_min * seconds for span in spans):
            during_records, during_s = during_records + records, during_s + seconds
            still_s += seconds if records == 0 else 0.0
    if during_s <= 0 or usual_records <= 0:
        return None
    return Reads((during_records / during_s) / (usual_records / usual_s), still_s / during_s)


def _records_between(before: VertexPressure, after: VertexPressure, subtasks: Sequence[int]) -> float | None:
    if len(before.records_in_count) != len(after.records_in_count):
        return None
    chosen = [i for i in subtasks if i < len(after.records_in_count)]
    grown = (array_of(after.records_in_count) - array_of(before.records_in_count))[chosen]
    # A counter that decreased belongs to a new attempt.
    return None if not chosen or np.isnan(grown).any() or (grown < 0).any() else float(grown.sum())


def _span(
    case: Case, walked: Walked, vertex_id: VertexId, waits: Floats, subtasks: Sequence[int]
) -> tuple[datetime, datetime]:
    """Return the begin and the end of the wait in front of these subtasks."""
    triggered = walked.checkpoint.header.triggered_at
    chosen = [i for i in subtasks if i < waits.size]
    sent = _first_sent_ms(case, walked, vertex_id)[chosen]
    begin = float(np.nanmin(sent)) if sent.size else 0.0
    longest = highest_of(waits[chosen]) or 0.0
    return triggered + timedelta(milliseconds=begin), triggered + timedelta(milliseconds=begin + longest)


def _overlap_s(span: tuple[datetime, datetime], begin: datetime, end: datetime) -> float:
    return (min(span[1], end) - max(span[0], begin)).total_seconds()


def still_subtasks(case: Case, vertex_id: VertexId, *, seconds_min: float) -> tuple[int, ...]:
    """Return the subtasks of a vertex that read nothing in the newest readings, over at least this many seconds.

    A subtask with nothing to read stands still too, so the caller has to know that records wait for it.
    """
    readings = [r for r in case.readings if r.vertex_id == vertex_id and r.records_in_count]
    if len(readings) < 2:
        return ()
    last = readings[-1]
    earlier = [
        r
        for r in readings
        if (last.observed_at - r.observed_at).total_seconds() >= seconds_min
        and len(r.records_in_count) == len(last.records_in_count)
    ]
    if not earlier:
        return ()
    return indices_of(array_of(last.records_in_count) == array_of(earlier[-1].records_in_count))
