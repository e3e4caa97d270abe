"""Finds subtasks that stand still: busy, but they read no records, so that not even a barrier gets through.

A task runs records, timers, commits and the sync part of a snapshot in one thread. While a timer, a window that fires
or a commit runs, the task reads nothing, and every barrier waits, also an unaligned one. A queue in front of a full
subtask looks alike in a checkpoint: the barrier arrives late. The two differ by two signs:

* While a barrier waits in a queue, the subtask reads as many records as it can. A subtask that stands still reads none.
* An unaligned barrier overtakes the queue. If it arrives late all the same, the subtask stood still.

Only the time before the first barrier shows this: after it, an alignment may block the channels of an idle subtask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise

import numpy as np

from backend.analysis.measures import freshness
from backend.analysis.measures.critical_path import sent_ms
from backend.analysis.measures.phases import effective_aligned_timeout_ms
from backend.analysis.numbers.arrays import Floats, array_of, column_means, highest_of, indices_of, stacked
from backend.analysis.numbers.statistics import median
from backend.analysis.verdict.case import Case, Walked
from backend.analysis.words.thresholds import (
    BACKPRESSURED_MIN_RATIO,
    HOP_MIN_MS,
    STALL_RATE_RATIO,
    STALL_TIME_RATIO,
    STANDOUT_RATIO,
)
from backend.domain.checkpoint import CheckpointConfig, CheckpointStatus
from backend.domain.engines import does_aligned_timeout_stop_at_senders
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure

_STILL_S = 2.0
_NOT_OVERTAKEN = frozenset({"BROADCAST", "FORWARD", "RESCALE"})
# Two readings belong to the time in which a barrier waits if at least this share of the time between them does.
_OVERLAP_MIN = 0.6
_PAIRS_MIN = 4
COMMITS_MIN = 5
_VARIED_TIMES = 1.25
_STOOD_STILL_RATIO = 0.25
_GROWTH_RATIO = 0.5
_GROWTH_OF_ONE_RATIO = 0.7
# Records that come with a barrier may be counted before or after a reading that is this near to it. The share is that
# of the usual time between two barriers.
_BORDER_RATIO = 0.05


@dataclass(frozen=True, slots=True)
class Reads:
    """What subtasks read in some spans of time.

    ``rate_ratio`` is the number of records that they read in a second, divided by their usual number. ``still_ratio``
    is the share of the time between readings in which they read no record at all. ``free_ratio`` is the share of that
    time that is outside the spans: the readings are further apart than the spans are long.
    """

    rate_ratio: float
    still_ratio: float
    free_ratio: float = 0.0

    @property
    def are_few(self) -> bool:
        """Whether the subtasks stood still most of the time. A subtask that works off a queue always reads records."""
        return self.rate_ratio <= STALL_RATE_RATIO or self.still_ratio >= STALL_TIME_RATIO


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """The wait of the barrier in front of one vertex: the mean over the checkpoints by subtask, in milliseconds.

    ``peak_ms`` is the longest wait in a single checkpoint.
    ``reads`` is what the subtasks with a long wait read while the barrier waited. None if no readings are from this
    time. ``is_overtaking`` is whether the barriers waited although they overtake queues.
    """

    vertex_id: VertexId
    wait_ms: Floats
    peak_ms: float
    reads: Reads | None
    is_overtaking: bool

    @property
    def longest_ms(self) -> float:
        """The longest wait in front of a subtask."""
        return highest_of(self.wait_ms) or 0.0

    @property
    def subtasks(self) -> tuple[int, ...]:
        """The subtasks in front of which the barrier waited longest."""
        # A barrier that overtakes queues waits only for a task that stands still, so a shorter wait counts.
        least = _STOOD_STILL_RATIO if self.is_overtaking else STANDOUT_RATIO
        return indices_of(self.wait_ms >= max(HOP_MIN_MS, least * self.longest_ms))

    @property
    def stands_still(self) -> bool:
        """Whether the subtasks read nothing while the barrier waited. They then did not process a queue."""
        return self.is_overtaking or (self.reads is not None and self.reads.are_few)


def lowest_wait(case: Case, *, to_last: bool = False) -> Wait | None:
    """Return the wait in front of the most downstream vertex at which barriers wait long, or None.

    A subtask that reads a first barrier and then stands still lets the other barriers wait. With ``to_last``, the wait
    lasts until the last barrier. It begins when all senders had sent theirs, so it contains no wait for a late sender.
    """
    for vertex in reversed(case.evidence.topology.vertices):
        if case.evidence.topology.upstream(vertex.id):
            wait = _long_wait_before(case, vertex.id, to_last=to_last)
            if wait is not None:
                return wait
    return None


def wait_before(case: Case, vertex_id: VertexId) -> Wait | None:
    """Return the long wait of first barriers before a vertex; None if it is short, not known, or at a source."""
    return _long_wait_before(case, vertex_id, to_last=False) if case.evidence.topology.upstream(vertex_id) else None


@dataclass(frozen=True, slots=True, eq=False)
class _Arrival:
    """The first barriers of one checkpoint at one vertex, by subtask.

    ``sent_ms`` is when the barrier was first sent to the subtask; the latest sender if several vertices send.
    ``wait_ms`` is how long it waited; missing for a subtask whose first barrier is not known. A subtask that did not
    acknowledge may have had its barrier early, and be slow for another reason.
    """

    walked: Walked
    sent_ms: Floats
    wait_ms: Floats


def _arrival(case: Case, walked: Walked, vertex_id: VertexId, *, to_last: bool) -> _Arrival:
    sent = sent_ms(case.evidence.topology, vertex_id, walked.phases)
    begin = np.where(np.isnan(sent), 0.0, sent)
    phases = walked.phases[vertex_id]
    reached = phases.travel_ms if to_last else phases.first_barrier_ms
    return _Arrival(walked, begin, np.maximum(0.0, reached - begin))


def _long_wait_before(case: Case, vertex_id: VertexId, *, to_last: bool) -> Wait | None:
    """Return the wait of first or last barriers before a vertex, or None if it is short or not known."""
    arrivals = [_arrival(case, w, vertex_id, to_last=to_last) for w in case.walked if vertex_id in w.phases]
    means = column_means(stacked([a.wait_ms for a in arrivals]))
    longest = highest_of(means) or 0.0
    if longest < HOP_MIN_MS:
        return None
    long = indices_of(means >= max(HOP_MIN_MS, STANDOUT_RATIO * longest))
    overtaking = [_overtakes(case, a, vertex_id) for a in arrivals]
    spans = [_span(a, long) for a in arrivals]
    return Wait(
        vertex_id=vertex_id,
        wait_ms=means,
        peak_ms=max(highest_of(a.wait_ms) or 0.0 for a in arrivals),
        reads=reads_in(case, vertex_id, long, spans, overlap_min=_OVERLAP_MIN),
        is_overtaking=bool(long) and sum(overtaking) * 2 > len(overtaking),
    )


def _overtakes(case: Case, arrival: _Arrival, vertex_id: VertexId) -> bool:
    """Return whether the barriers of the checkpoint waited at the vertex although they could overtake data."""
    protocol = arrival.walked.checkpoint.header.protocol
    if protocol is not None and not protocol.overtakes:
        return False
    if any(e.ship_strategy in _NOT_OVERTAKEN for e in case.evidence.topology.inputs(vertex_id)):
        return False
    config = case.evidence.config or CheckpointConfig()
    timeout = effective_aligned_timeout_ms(
        arrival.walked.checkpoint.header,
        aligned_timeout_ms=config.aligned_timeout_ms,
        is_unaligned_enabled=config.is_unaligned_enabled,
    )
    if timeout is None:
        return False
    if config.aligned_timeout_ms != 0 and does_aligned_timeout_stop_at_senders(case.evidence.flink_version):
        # The barrier waits in the queue of its sender, and overtakes nothing there. Flink 1.13 does not report whether
        # there is an aligned timeout.
        return False
    load = case.loads.get(vertex_id)
    if load is not None and (load.full_subtasks or (highest_of(load.backpressured) or 0.0) >= BACKPRESSURED_MIN_RATIO):
        # A subtask in the middle of a record cannot take the barrier either. This may last long if it waits for room in
        # its output, or if it is full and its records are large.
        return False
    late = arrival.wait_ms + arrival.sent_ms - np.maximum(timeout, arrival.sent_ms)
    return (highest_of(late) or 0.0) >= HOP_MIN_MS


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
    readings, or if the values of those readings may all come from nearly the same time.
    """
    readings = [r for r in case.readings if r.vertex_id == vertex_id and any(c is not None for c in r.records_in_count)]
    if len(readings) < 2 or not subtasks:
        return None
    during_records = during_s = still_s = free_s = usual_records = usual_s = 0.0
    runs: list[datetime] = []
    for before, after, records in records_between(readings, subtasks):
        seconds = (after - before).total_seconds()
        if seconds <= 0:
            continue
        usual_records, usual_s = usual_records + records, usual_s + seconds
        near = [s for s in spans if s[0] < after and s[1] > before]
        overlap_s = max((_overlap_s(span, before, after) for span in near), default=0.0)
        if near and overlap_s >= overlap_min * seconds:
            free_s += seconds - overlap_s
            during_records, during_s = during_records + records, during_s + seconds
            still_s += seconds if records == 0 else 0.0
            # The values at the ends of a run of readings may be old; those between its ends add up.
            runs = [*runs[:-1], after] if runs and runs[-1] == before else [*runs, after]
    certain_s = during_s - len(runs) * freshness.doubt_s(case.evidence)
    if certain_s <= 0 or usual_records <= 0:
        return None
    return Reads((during_records / certain_s) / (usual_records / usual_s), still_s / during_s, free_s / during_s)


def come_with_barriers(
    case: Case, vertex_id: VertexId, subtasks: Sequence[int], arrivals_of: Callable[[], Sequence[datetime]]
) -> bool | None:
    """Return whether subtasks read their records together with barriers, in proportion to the barriers' number.

    Subtasks that process a queue read as many records a second between any two readings. Subtasks that stand still
    until shortly before each barrier read the more, the more barriers arrived. ``arrivals_of`` returns the arrivals in
    order; none is missing between the first and the last. It is called only if the rates differ at all. A reading that
    is as near to a barrier as its records are does not say on which side of it they are, so it is left out, and the
    pairs before and after it become one. None if all pairs of readings have the same number of barriers between them.
    """
    pairs = _rates(case, vertex_id, subtasks)
    if len(pairs) < _PAIRS_MIN or not _vary(case, pairs):
        return None
    arrivals = arrivals_of()
    if len(arrivals) < 2:
        return None
    by_count: dict[float, list[float]] = {}
    usual_s = median((after - before).total_seconds() for before, after, _ in pairs) or 0.0
    for before, after, rate in _between_barriers(pairs, arrivals):
        if before >= arrivals[0] and after <= arrivals[-1]:
            count = sum(before < at <= after for at in arrivals) * usual_s / (after - before).total_seconds()
            by_count.setdefault(round(2 * count) / 2, []).append(rate)
    few, many = min(by_count, default=0), max(by_count, default=0)
    if few == many or sum(len(v) for v in by_count.values()) < _PAIRS_MIN:
        return None
    if max(by_count[few]) >= min(by_count[many]):
        return False
    least, most = float(np.mean(by_count[few])), float(np.mean(by_count[many]))
    # The growth that rates in proportion to the barriers would have. A single pair may differ by chance, so more of
    # it is needed then.
    part = _GROWTH_RATIO if min(len(by_count[few]), len(by_count[many])) > 1 else _GROWTH_OF_ONE_RATIO
    return most >= (1 + part * (many / few - 1)) * least if few else least <= (1 - part) * most


def completions_to_barriers(case: Case, vertex_id: VertexId) -> list[tuple[datetime, datetime]]:
    """Return the time from each completion to the next barrier at a vertex, of the newest such checkpoints in a row.

    They are oldest first. A checkpoint whose barrier is not known breaks the row.
    """
    found: list[tuple[datetime, datetime]] = []
    ended: datetime | None = None
    for checkpoint in case.evidence.checkpoints:
        header, detail = checkpoint.header, checkpoint.detail(vertex_id)
        first = None if detail is None else [v for v in detail.start_delay_ms if v is not None]
        took = header.end_to_end_duration_ms
        if header.status is not CheckpointStatus.COMPLETED or not first or took is None:
            ended, found = None, found if header.status is CheckpointStatus.IN_PROGRESS else []
            continue
        if ended is not None:
            found.append((ended, header.triggered_at + timedelta(milliseconds=max(first))))
        ended = header.triggered_at + timedelta(milliseconds=took)
    return found


def may_follow_commits(case: Case, vertex_id: VertexId, subtasks: Sequence[int]) -> bool:
    """Return whether a sink reads at changing rates, and the readings do not say whether commits are the reason."""
    is_sink = not case.evidence.topology.downstream(vertex_id)
    pairs = _rates(case, vertex_id, subtasks) if is_sink else []
    if len(pairs) < _PAIRS_MIN or not _vary(case, pairs):
        return False
    spans = completions_to_barriers(case, vertex_id)
    return (
        len(spans) >= COMMITS_MIN
        and come_with_barriers(case, vertex_id, subtasks, lambda: [b for _, b in spans]) is None
    )


def _rates(case: Case, vertex_id: VertexId, subtasks: Sequence[int]) -> list[tuple[datetime, datetime, float]]:
    readings = [r for r in case.readings if r.vertex_id == vertex_id]
    between = records_between(readings, subtasks) if subtasks else ()
    return [(before, after, records / (after - before).total_seconds()) for before, after, records in between]


def _vary(case: Case, pairs: Sequence[tuple[datetime, datetime, float]]) -> bool:
    rates = [rate for *_, rate in pairs]
    return max(rates) >= _VARIED_TIMES * _may_vary_times(case, pairs) * min(rates)


def _between_barriers(
    pairs: Sequence[tuple[datetime, datetime, float]], arrivals: Sequence[datetime]
) -> list[tuple[datetime, datetime, float]]:
    """Return the pairs without the readings that are near a barrier: two pairs with such a reading become one."""
    usual_s = median((b - a).total_seconds() for a, b in pairwise(arrivals)) or 0.0
    found: list[tuple[datetime, datetime, float]] = []
    for before, after, rate in pairs:
        is_near = any(abs((before - at).total_seconds()) <= _BORDER_RATIO * usual_s for at in arrivals)
        if is_near and found and found[-1][1] == before:
            begin, _, earlier = found.pop()
            first_s, second_s = (before - begin).total_seconds(), (after - before).total_seconds()
            rate = (earlier * first_s + rate * second_s) / (first_s + second_s)
            before = begin
        found.append((before, after, rate))
    return found


def _may_vary_times(case: Case, pairs: Sequence[tuple[datetime, datetime, float]]) -> float:
    """Return by what factor the rates of an even flow may differ, because the times of the values are not exact."""
    doubt_s = freshness.doubt_s(case.evidence)
    usual_s = median((after - before).total_seconds() for before, after, _ in pairs) or 0.0
    return (usual_s + doubt_s) / (usual_s - doubt_s) if usual_s > doubt_s else float("inf")


def records_between(
    readings: Sequence[VertexPressure], subtasks: Sequence[int]
) -> Iterator[tuple[datetime, datetime, float]]:
    """Return the times of each two readings that follow each other, and how many records the subtasks read between.

    The pair is left out if a count is missing, or if the number of subtasks changed.
    """
    for width, group in groupby(readings, key=lambda r: len(r.records_in_count)):
        same = list(group)
        chosen = [i for i in subtasks if i < width]
        if not chosen:
            continue
        counts = np.array([r.records_in_count for r in same], dtype=np.float64)
        grown = np.diff(counts[:, chosen], axis=0)
        # A counter that decreased belongs to a new attempt. A missing count (NaN) is not at least 0 either.
        is_known = np.all(grown >= 0, axis=1)
        for (before, after), records, is_one in zip(pairwise(same), grown.sum(axis=1).tolist(), is_known, strict=True):
            if is_one:
                yield before.observed_at, after.observed_at, records


def _span(arrival: _Arrival, subtasks: Sequence[int]) -> tuple[datetime, datetime]:
    """Return the begin and the end of the wait in front of these subtasks."""
    triggered = arrival.walked.checkpoint.header.triggered_at
    chosen = [i for i in subtasks if i < arrival.wait_ms.size]
    sent = arrival.sent_ms[chosen]
    begin = float(sent.min()) if sent.size else 0.0
    longest = highest_of(arrival.wait_ms[chosen]) or 0.0
    return triggered + timedelta(milliseconds=begin), triggered + timedelta(milliseconds=begin + longest)


def _overlap_s(span: tuple[datetime, datetime], begin: datetime, end: datetime) -> float:
    return (min(span[1], end) - max(span[0], begin)).total_seconds()


def still_subtasks(case: Case, vertex_id: VertexId) -> tuple[int, ...]:
    """Return the subtasks of a vertex that read nothing in the newest readings, for two seconds or more.

    A subtask with nothing to read stands still too, so the caller has to know that records wait for it.
    """
    readings = [r for r in case.readings if r.vertex_id == vertex_id and r.records_in_count]
    if len(readings) < 2:
        return ()
    last = readings[-1]
    earlier = [
        r
        for r in readings
        if (last.observed_at - r.observed_at).total_seconds() >= _STILL_S
        and len(r.records_in_count) == len(last.records_in_count)
    ]
    if not earlier:
        return ()
    return indices_of(array_of(last.records_in_count) == array_of(earlier[-1].records_in_count))
