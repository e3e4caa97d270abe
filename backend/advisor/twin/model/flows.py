"""What readings of backpressure say of each vertex: rates, service times, shares and queues.

Counts are totals since the start of an attempt, so rates are differences between readings, or the engine's own rates if
the readings cover a short time. The readings before the last restart are left out, and so is the first third of many
readings, while buffers fill and debloating adapts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.analysis.numbers.arrays import Floats, array_of, column_means, column_medians, column_peaks
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Placement

_SLOPES_MAX = 1_000_000
_TRIMMED_FROM_COUNT = 6
_WARM_UP_SHARE = 1 / 3
BUSY_RESOLUTION = 0.0005
"""Half of the smallest ratio that Flink reports: its metric counts whole milliseconds in each second."""
_SLOW_HOST_FACTOR = 1.3
_SERVICE_KNOWN_BUSY = 0.02
_POOL_BUFFERS_MAX = 1024
_FULL_BUSY, _NEVER_IDLE_BUSY = 0.97, 0.997
_AVERAGED_S, _BEGUN_S, _LINE_MIN_COUNT = 60.0, 10.0, 4
_LAST_COUNT = 5
_COUNTED_MIN_S = 300.0
"""Over this time, old counts change a rate by a few percent at most."""
_CHANCE = 3.0
"""Counts of subtasks with equal shares differ by this many standard deviations at most."""
_SMALL_RATIO = 0.1
_YOUNG_S = 1800.0


@dataclass(frozen=True, slots=True, eq=False)
class VertexFlow:
    """The flow through one vertex. Arrays have one value for each subtask; NaN means not reported.

    ``records_in`` and ``records_out`` are per second, and ``bytes_in`` is bytes per second. ``counted_in`` records were
    read in ``seconds``. ``total_in`` counts the records since the attempt began. ``out_per_in`` is the number of
    records emitted for each one read, NaN if not known.

    ``queued_out`` and ``queued_in`` are medians in bytes. The others are sums of the queues over all subtasks:
    ``queued_out_last`` and ``queued_in_last`` at the end, when ``total_in`` was counted, and ``queued_out_least`` and
    ``queued_in_least`` the smallest in the last readings. The latter are NaN if none of these readings has the queues
    of all subtasks.

    ``swing_s`` is how far the counts swing around a steady flow, in seconds of this flow. ``out_rates_per_s`` has the
    rate of the whole vertex between each two readings, which are ``step_s`` apart. These rates come from counts,
    because means over a minute hide bursts.
    """

    busy: Floats
    backpressured: Floats
    records_in: Floats
    records_out: Floats
    bytes_in: Floats
    counted_in: Floats
    total_in: Floats
    queued_out: Floats
    queued_in: Floats
    queued_out_max: float
    queued_out_last: float
    queued_in_last: float
    queued_out_least: float
    queued_in_least: float
    pool_usages: Floats
    swing_s: float
    out_rates_per_s: Floats
    out_per_in: float
    step_s: float
    seconds: float
    reading_count: int

    def service_us(self, *, is_source: bool) -> tuple[Floats, bool]:
        """Return the busy time for each record by subtask, and whether it was measured for any subtask.

        A subtask that is never busy gets an upper bound: the busy time that the engine would just not report. A subtask
        without records gets the mean of its siblings.
        """
        rates = self.records_out if is_source else self.records_in
        busy = np.maximum(np.nan_to_num(self.busy), BUSY_RESOLUTION)
        service = np.where(rates > 0, busy / np.where(rates > 0, rates, 1.0) * 1e6, np.nan)
        if np.isnan(service).all():
            return np.ones(service.shape), False
        is_measured = bool((np.nan_to_num(self.busy) > BUSY_RESOLUTION).any())
        return np.where(np.isnan(service), np.nanmean(service), service), is_measured

    @property
    def full(self) -> npt.NDArray[np.bool_]:
        """The subtasks that were busy nearly all the time."""
        return np.nan_to_num(self.busy) >= _FULL_BUSY

    @property
    def is_held(self) -> npt.NDArray[np.bool_]:
        """The subtasks that were idle hardly ever: they may have a queue, because they or those below them are full."""
        return np.asarray(np.nan_to_num(self.busy) + np.nan_to_num(self.backpressured) >= _FULL_BUSY)

    @property
    def never_idle(self) -> npt.NDArray[np.bool_]:
        """The full subtasks that were never idle. If all were idle at times, all full ones."""
        busy = np.nan_to_num(self.busy)
        found = busy >= _NEVER_IDLE_BUSY
        return found if found.any() else self.full

    @property
    def passing_queues(self) -> Floats:
        """The mean queues in records of full subtasks that were idle at times: those of random arrivals (M/D/1)."""
        busy = np.where(self.full & ~self.never_idle, np.nan_to_num(self.busy), 0.0)
        return np.asarray(busy * busy / 2 / (1 - busy))

    def can_be_even(self, queued_records: float, room_records: float) -> bool:
        """Return whether equal shares explain what the subtasks read, with chance and with what is queued for them.

        ``queued_records`` is the sum of all queues, and ``room_records`` the most that can be queued for one subtask. A
        subtask that is idle at times has no queue.
        """
        counted = np.nan_to_num(self.total_in if self.is_young else self.counted_in)
        each = (counted.sum() + (queued_records if self.is_young else 0.0)) / counted.size
        if each <= 0:
            return False
        chance = _CHANCE * np.sqrt(each)
        room = np.where(self.is_held, min(room_records, queued_records), 0.0)
        missing = each - counted
        return bool(((missing <= room + chance) & (missing >= -chance - (0.0 if self.is_young else room))).all())

    @property
    def age_s(self) -> float:
        """How long the attempt has run, from its counts and its present rate."""
        counts, rates = np.nansum(self.total_in), np.nansum(self.records_in)
        return float(counts / rates) if rates > 0 else self.seconds

    @property
    def is_young(self) -> bool:
        """Whether the counts since the attempt began are used, and not those between the readings."""
        return self.age_s <= _YOUNG_S

    def shares(self, queued_records: Floats) -> Floats:
        """Return the share of the vertex's input that is sent to each subtask; equal shares if there is no input.

        A full subtask reads no more than it can, so what it read understates its share: its queue grows meanwhile.
        ``queued_records`` is what is queued for each subtask now. Nothing was queued when the attempt began, so for a
        young attempt the records sent are those read plus those queued.
        """
        if self.is_young:
            counted = np.nan_to_num(self.total_in) + np.nan_to_num(queued_records)
        else:
            counted = np.nan_to_num(self.counted_in)
        total = counted.sum()
        return np.asarray(counted / total) if total > 0 else np.full(counted.shape, 1.0 / counted.size)


def flows_of(readings: Iterable[VertexPressure]) -> dict[VertexId, VertexFlow]:
    """Return the flow of each vertex that has at least two readings with counts from its present attempt."""
    rows: dict[VertexId, list[VertexPressure]] = {}
    for reading in readings:
        rows.setdefault(reading.vertex_id, []).append(reading)
    flows = {vertex: _flow(_present(of)) for vertex, of in rows.items()}
    return {vertex: flow for vertex, flow in flows.items() if flow is not None}


def _counts(reading: VertexPressure) -> Floats:
    return np.concatenate([array_of(reading.records_in_count), array_of(reading.records_out_count)])


def _present(readings: Sequence[VertexPressure]) -> list[VertexPressure]:
    """Return the readings with new counts since the last restart.

    A reading with the counts of the reading before it shows that the engine had not updated its metrics.
    """
    kept: list[VertexPressure] = []
    for reading in sorted(readings, key=lambda r: r.observed_at):
        counts = _counts(reading)
        if not counts.size or np.isnan(counts).all():
            continue
        if kept:
            before = _counts(kept[-1])
            if before.size != counts.size or np.any(np.nan_to_num(counts) < np.nan_to_num(before)):
                kept = []
            elif np.nansum(counts) > 0 and np.array_equal(before, counts, equal_nan=True):
                continue
        kept.append(reading)
    return kept


def _steady(readings: Sequence[VertexPressure]) -> Sequence[VertexPressure]:
    if len(readings) < _TRIMMED_FROM_COUNT:
        return readings
    return readings[int(len(readings) * _WARM_UP_SHARE) :]


def _flow(present: Sequence[VertexPressure]) -> VertexFlow | None:
    readings = _steady(present)
    if len(readings) < 2:
        return None
    first, last = readings[0], readings[-1]
    seconds = (last.observed_at - first.observed_at).total_seconds()
    if seconds <= 0:
        return None
    size = len(last.busy_ratio) or len(last.records_in_count)

    def rows(values: Iterable[Iterable[float | None]]) -> Floats:
        return np.vstack([_sized(array_of(tuple(v)), size) for v in values])

    counted_in = rows(r.records_in_count for r in (first, last))
    counted_bytes = rows(r.bytes_in_count for r in (first, last))
    ins, outs = (rows(getattr(r, of) for r in readings) for of in ("records_in_count", "records_out_count"))
    times = np.array([r.observed_at.timestamp() for r in readings])
    queued_out, queued_in = (rows(getattr(r, of) for r in readings) for of in ("queued_out_bytes", "queued_in_bytes"))
    taken, sent = (_rates(present, of, size) for of in ("records_in_count", "records_out_count"))
    if seconds < _COUNTED_MIN_S:
        taken, sent = _metered(readings, taken, sent)
    passed = float(np.nansum(taken) + np.nansum(sent))
    age_s = float(np.nansum(counted_in[1]) + np.nansum(outs[-1])) / passed if passed > 0 else seconds
    ages = times - times[-1] + age_s
    with np.errstate(invalid="ignore", divide="ignore"):
        # Bytes are counted with the records, at the same age.
        record_bytes = counted_bytes[1] / counted_in[1]
    with np.errstate(invalid="ignore"):
        return VertexFlow(
            busy=_ratio(rows(r.busy_ratio for r in readings), ages),
            backpressured=_ratio(rows(r.backpressured_ratio for r in readings), ages),
            records_in=taken,
            records_out=sent,
            bytes_in=np.where(taken > 0, taken * record_bytes, 0.0),
            counted_in=counted_in[1] - counted_in[0],
            total_in=_counts_at_end(ins),
            queued_out=column_medians(queued_out),
            queued_in=column_medians(queued_in),
            queued_out_last=float(np.nansum(column_medians(queued_out[-_LAST_COUNT:]))),
            queued_in_last=float(np.nansum(column_medians(queued_in[-_LAST_COUNT:]))),
            queued_out_least=_least_sum(queued_out[-_LAST_COUNT:]),
            queued_in_least=_least_sum(queued_in[-_LAST_COUNT:]),
            queued_out_max=float(np.nan_to_num(queued_out).max(initial=0.0)),
            pool_usages=rows(r.out_pool_usage_ratio for r in readings).ravel(),
            swing_s=_swing_s(times, np.nansum(ins + np.nan_to_num(outs), axis=1), passed),
            out_per_in=_out_per_in(ins, outs),
            out_rates_per_s=np.diff(np.nansum(outs, axis=1)) / np.diff(times),
            step_s=float(np.median(np.diff(times))),
            seconds=seconds,
            reading_count=len(readings),
        )


def _rates(readings: Sequence[VertexPressure], name: str, size: int) -> Floats:
    """Return what each subtask counted in a second.

    An engine serves counts that are some seconds old, and sometimes the same count for much longer. The rate is the
    median of the slopes between any two of many readings, on which single old counts have no influence. With few
    readings, it is the difference of the first and the last one that are steady.
    """
    rows = readings[1:]
    if len(rows) < _TRIMMED_FROM_COUNT:
        rows = _steady(readings)
        rows = [rows[0], rows[-1]]
    # All pairs of many readings of a wide vertex would take gigabytes, so fewer readings are compared there.
    most = max(_TRIMMED_FROM_COUNT, int((2 * _SLOPES_MAX / max(1, size)) ** 0.5))
    if len(rows) > most:
        rows = [rows[i] for i in np.linspace(0, len(rows) - 1, most).round().astype(int)]
    times = np.array([r.observed_at.timestamp() for r in rows])
    counts = np.vstack([_sized(array_of(getattr(r, name)), size) for r in rows])
    first, last = np.triu_indices(len(rows), 1)
    slopes = (counts[last] - counts[first]) / (times[last] - times[first])[:, None]
    return column_medians(slopes)


def _metered(readings: Sequence[VertexPressure], taken: Floats, sent: Floats) -> tuple[Floats, Floats]:
    """Return what each subtask read and emitted in a second: the engine's own rates, and the counted ones without them.

    The engine's rates are means over its last minute, like its shares of time. Over a long time, the counts show the
    mean of a source with long bursts better. A vertex has one of the two rates, and the other one follows: both counts
    of a subtask have the same age, so they are wrong by the same factor.
    """
    size = taken.size
    read, emitted = (
        column_medians(np.vstack([_sized(array_of(getattr(r, of)), size) for r in readings]))
        for of in ("records_in_per_s", "records_out_per_s")
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        of_read, of_emitted = read * (sent / taken), emitted * (taken / sent)
    return _first_known(read, of_emitted, taken), _first_known(emitted, of_read, sent)


def _first_known(*columns: Floats) -> Floats:
    """Return for each subtask the first value that is known and finite."""
    found = columns[-1]
    for column in reversed(columns[:-1]):
        found = np.where(np.isfinite(column), column, found)
    return found


def _counts_at_end(counts: Floats) -> Floats:
    """Return what the subtasks have counted at the last reading.

    The engine reads the counts of its task managers at different times, up to some seconds apart. What each subtask has
    of the sum changes slowly, so its median over the last readings is taken.
    """
    sums = np.nansum(counts[-_LAST_COUNT:], axis=1)
    if not sums.all():
        return np.asarray(counts[-1])
    parts = column_medians(counts[-_LAST_COUNT:] / sums[:, None])
    return np.asarray(parts * (sums[-1] / np.nansum(parts)))


def _least_sum(rows: Floats) -> float:
    """Return the least sum of a row; NaN if no row has a whole sum.

    A missing value is not an empty queue. So the sum of a row is whole only if the row has the values of all subtasks
    that report at all in these rows.
    """
    is_known = ~np.isnan(rows)
    is_whole = is_known[:, is_known.any(axis=0)].all(axis=1)
    return float(np.nansum(rows[is_whole], axis=1).min()) if is_whole.any() else float("nan")


def _out_per_in(ins: Floats, outs: Floats) -> float:
    """Return the records that a vertex emitted for each record that it read; NaN if that is not known.

    Both counts of a subtask have the same age.
    """
    both = (ins[-1] - ins[0]) + 0.0 * outs[0], (outs[-1] - outs[0]) + 0.0 * ins[0]
    read, emitted = (float(np.nansum(of)) for of in both)
    return emitted / read if read > 0 else float("nan")


def _swing_s(times: Floats, counts: Floats, per_s: float) -> float:
    """Return the range of the middle half of the distances between counts and a steady flow, in seconds of the flow.

    A few old counts do not change it. Bursts do, because most counts are then ahead of the flow or behind it.
    """
    if per_s <= 0:
        return 0.0
    low, high = np.quantile(counts / per_s - times, (0.25, 0.75))
    return float(high - low)


def _sized(values: Floats, size: int) -> Floats:
    found = np.full(size, np.nan)
    found[: min(size, values.size)] = values[:size]
    return found


def _ratio(rows: Floats, ages: Floats) -> Floats:
    """Return the share of time of each column. ``ages`` are the seconds since the attempt began, one for each row.

    The engine averages over its last minute. In the first minute it averages since the attempt began, which includes
    the time until the first records came. A line through these averages times their ages leaves that time out. If there
    are too few averages for a line, the largest one is returned, which contains the least of that time.
    """
    is_settled = ages >= _AVERAGED_S
    if is_settled.any():
        return _typical(rows[is_settled])
    is_begun = ages >= _BEGUN_S
    if not is_begun.any():
        return _typical(rows)
    rows, ages = rows[is_begun], ages[is_begun]
    if len(rows) < _LINE_MIN_COUNT:
        return column_peaks(rows)
    apart = ages - ages.mean()
    slopes = np.clip(apart @ (rows * ages[:, None]) / (apart @ apart), 0.0, 1.0)
    return np.where(slopes < _SMALL_RATIO, _typical(rows), slopes)


def _typical(rows: Floats) -> Floats:
    """Return the median of each column, or its mean if the median is small: small ratios are rounded."""
    middle = column_medians(rows)
    return np.where(middle < _SMALL_RATIO, column_means(rows), middle)


def pool_size_of(usages: Floats, expected: int) -> int | None:
    """Return the number of buffers of an output pool, as the denominators of its usages show it.

    ``expected`` is tried first. None if no usage shows a denominator.
    """
    parts = usages[(usages > 0.0) & (usages < 1.0)]
    if np.unique(np.round(parts, 4)).size < 2:
        return None
    count: int
    for count in (expected, *range(2, _POOL_BUFFERS_MAX)):
        if bool(np.all(np.abs(parts * count - np.round(parts * count)) < 0.01 + count * 5e-5)):
            return count
    return None


def slow_host_factors(
    services: Mapping[VertexId, Floats], busy: Mapping[VertexId, Floats], placements: Sequence[Placement]
) -> dict[VertexId, Floats]:
    """Return the part of each subtask's service time that a slow host causes; only vertices that have such a part.

    A host is slow if in at least two vertices all its subtasks take longer for a record than the subtasks on the other
    hosts, by a similar factor. One vertex alone cannot show whether its host or its keys are the reason.
    """
    places: dict[VertexId, list[str | None]] = {}
    for placement in placements:
        distinct = {h for h in placement.hosts if h}
        places[placement.vertex_id] = list(placement.hosts if len(distinct) > 1 else placement.task_managers)
    ratios: dict[str, dict[VertexId, float]] = {}
    # One vertex at which a host is not slow suffices, so nearly all hosts of a large job are compared once.
    usual: set[str] = set()
    for vertex, service in services.items():
        where = places.get(vertex, [])
        hosts = {h for h in where if h}
        if len(where) != service.size or len(hosts) < 2 or np.nanmax(busy[vertex]) < _SERVICE_KNOWN_BUSY:
            continue
        for host in hosts - usual:
            is_here = np.array([h == host for h in where])
            others = float(np.median(service[~is_here]))
            if others <= 0:
                continue
            ratio = float(service[is_here].min()) / others
            if ratio >= _SLOW_HOST_FACTOR:
                ratios.setdefault(host, {})[vertex] = ratio
            else:
                usual.add(host)
    slow = {h: of for h, of in ratios.items() if h not in usual and len(of) > 1}
    found: dict[VertexId, Floats] = {}
    for vertex, where in places.items():
        factors = np.array([slow[h].get(vertex, 1.0) if h in slow else 1.0 for h in where])
        if (factors > 1.0).any():
            found[vertex] = factors
    return found
