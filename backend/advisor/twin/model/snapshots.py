"""What checkpoints say of the snapshot at each subtask: sync parts, uploads, state, the store and the trigger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backend.advisor.advice import Interval
from backend.advisor.thresholds import CHECKPOINTS_MIN_COUNT, WRITE_BYTES_PER_MS
from backend.advisor.twin.model.model import Assumption, StoreModel, VertexModel
from backend.analysis.measures.critical_path import Phases, arrived_below_ms
from backend.analysis.numbers.arrays import Floats, array_of, column_means, column_medians
from backend.analysis.words import sentences as say
from backend.domain.checkpoint import Checkpoint, CheckpointConfig
from backend.domain.ids import VertexId
from backend.domain.topology import Topology

_LARGE_BYTES = 1_000_000
_LARGE_MS = 20.0
_NOISE_MAX = 1.0
_SHARED_BYTES = 100_000
_ROUNDED_MS = 5.0
_SOME_BYTES, _STRETCHES_MAX, _PAIRS_MIN = 10_000, 300, 10
"""The line goes through at most so many stretches, and has at least so many pairs that differ by so many bytes."""
_SPAN_MIN_MS, _SPREADS = 3.0, 3.0
"""Bytes take time if they explain so many milliseconds, and so many times the spread that is left."""
_AT_ONCE_MS, _AT_ONCE_RATIO = 1.0, 0.05
"""Uploads begin at once if so many milliseconds, or this share of the stretch, pass until the last one begins."""
_GROWTH_MIN_COUNT, _GROWTH_MIN_RATIO, _GROWTH_ERRORS = 5, 0.02, 4.0
"""State grows if it has grown by this share, and if the slope is so many times its standard error."""
_DAY_S, _MONTH_S = 86_400.0, 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class SnapshotParts:
    """The parts of a snapshot at each subtask of one vertex, in milliseconds and bytes."""

    sync_ms: tuple[float, ...]
    async_fixed_ms: tuple[float, ...]
    upload_bytes: tuple[float, ...]
    state_bytes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One checkpoint with details, and its phases."""

    checkpoint: Checkpoint
    phases: Phases


HungWrites = Sequence[Mapping[VertexId, Floats]]
"""For each recorded checkpoint and vertex: by how many milliseconds the write of each subtask hung, 0 if it did not."""


def duration_ms(checkpoint: Checkpoint) -> float | None:
    """Return the duration of an ended checkpoint; of an expired one, the time until it expired."""
    header = checkpoint.header
    if header.end_to_end_duration_ms is not None:
        return float(header.end_to_end_duration_ms)
    if header.failed_at is None:
        return None
    return (header.failed_at - header.triggered_at).total_seconds() * 1000


def own_async_ms(r: Recorded, vertex: VertexId, topology: Topology, config: CheckpointConfig | None) -> Floats:
    """Return the async part of each subtask without its waits for barriers.

    If barriers may overtake data, a subtask with outputs is not finished before its barriers have left its outputs.
    With an aligned timeout, this may take as long as the timeout. Subtasks of one task manager also share files of
    in-flight data, and each waits until the last of them has its barriers. So of each async part, only the time after
    the last barrier that arrived anywhere during it is counted.
    """
    phases = r.phases[vertex]
    if config is None or not config.overtakes:
        return phases.own_async_ms
    arrivals = np.concatenate([p.travel_ms for p in r.phases.values()])
    # Times are rounded, so an arrival may be reported a little after the end that it caused.
    ends = phases.async_end_ms + _ROUNDED_MS
    arrived = np.sort(arrivals[~np.isnan(arrivals)])
    # The latest arrival before each end, or the trigger.
    until = np.maximum(np.concatenate([[0.0], arrived]), 0.0)
    released: Floats = np.where(np.isnan(ends), 0.0, until[np.searchsorted(arrived, ends, side="right")])
    if topology.downstream(vertex):
        released = np.maximum(released, arrived_below_ms(topology, vertex, r.phases))
    return np.minimum(phases.own_async_ms, np.maximum(0.0, phases.async_end_ms - released))


def _middle(rows: Sequence[Floats], size: int, statistic: Callable[[Floats], Floats] = column_medians) -> Floats:
    """Return a statistic of each subtask, a column, over the rows in which it has a value; 0 without any."""
    found = np.full((len(rows), size), np.nan)
    for whole, row in zip(found, rows, strict=True):
        whole[: row.size] = row[:size]
    values = statistic(found)
    return np.where(np.isnan(values), 0.0, values)


def store_of(
    recorded: Sequence[Recorded], hung: HungWrites, topology: Topology, config: CheckpointConfig | None
) -> tuple[StoreModel, bool]:
    """Return the store as the uploads show it, and whether an upload was large enough to measure it.

    The speed is that of one upload beside the others of its checkpoint. Uploads that hung show neither speed nor noise.
    If no upload was large, only ``small_bytes_per_ms`` is measured.
    """
    sizes: list[float] = []
    times: list[float] = []
    for r, beyond in zip(recorded, hung, strict=True):
        for detail in r.checkpoint.details:
            if detail.vertex_id not in r.phases:
                continue
            written, took = (
                array_of(detail.checkpointed_size_bytes),
                own_async_ms(r, detail.vertex_id, topology, config),
            )
            known = ~np.isnan(written) & ~np.isnan(took) & (beyond[detail.vertex_id] == 0)
            sizes += written[known].tolist()
            times += took[known].tolist()
    size, took = np.array(sizes), np.array(times)
    is_large = (size >= _LARGE_BYTES) & (took >= _LARGE_MS) if size.size else np.zeros(0, dtype=np.bool_)
    if not is_large.any():
        small_speed = _speed_of_small_uploads(_without_hangs(recorded, hung), topology, config)
        return StoreModel(bytes_per_ms=float(WRITE_BYTES_PER_MS), small_bytes_per_ms=small_speed), False
    small = took[size < 0.1 * size[is_large].max()]
    latency = min(float(np.median(small)) if small.size else 0.0, float(np.median(took[is_large])) / 2)
    speeds = size[is_large] / np.maximum(took[is_large] - latency, 1.0)
    speed = float(np.median(speeds))
    expected = latency + size[is_large] / speed
    noise = float(np.std(took[is_large] / expected))
    return StoreModel(
        bytes_per_ms=speed,
        noise_ratio=min(noise, _NOISE_MAX),
        shared_bytes_per_ms=_shared_speed(_without_hangs(recorded, hung), topology, config),
    ), True


def _without_hangs(recorded: Sequence[Recorded], hung: HungWrites) -> list[Recorded]:
    return [r for r, beyond in zip(recorded, hung, strict=True) if not any(ms.any() for ms in beyond.values())]


def _shared_speed(recorded: Sequence[Recorded], topology: Topology, config: CheckpointConfig | None) -> float | None:
    """Return the bytes that all uploads of a checkpoint write in a millisecond during which at least one runs."""
    found = (_stretches(r, topology, config)[:2].sum(axis=1) for r in recorded)
    speeds = [size / took for size, took in found if size >= _LARGE_BYTES and took >= _LARGE_MS]
    return float(np.median(speeds)) if speeds else None


def _speed_of_small_uploads(
    recorded: Sequence[Recorded], topology: Topology, config: CheckpointConfig | None
) -> float | None:
    """Return the bytes that all uploads write in a millisecond; None if bytes do not clearly take time.

    A line through the stretches has the latency of the store and its speed. It is that of Theil and Sen, so that a few
    stretches that took long for another reason do not change it. What bytes take must be clearly more than what the
    line leaves unexplained. Stretches whose uploads begin one after another last long whatever they write.
    """
    stretches = [_stretches(r, topology, config) for r in recorded]
    sizes, times, waits = np.concatenate(stretches, axis=1) if stretches else np.zeros((3, 0))
    is_at_once = waits <= np.maximum(_AT_ONCE_MS, _AT_ONCE_RATIO * times)
    sizes, times = sizes[is_at_once], times[is_at_once]
    # A few hundred of all sizes say as much as all.
    some = np.argsort(sizes, kind="stable")[:: max(1, sizes.size // _STRETCHES_MAX)]
    sizes, times = sizes[some], times[some]
    more_bytes, more_ms = (np.subtract.outer(column, column) for column in (sizes, times))
    slopes = more_ms[more_bytes >= _SOME_BYTES] / more_bytes[more_bytes >= _SOME_BYTES]
    if sizes.size < 2 * CHECKPOINTS_MIN_COUNT or slopes.size < _PAIRS_MIN:
        return None
    per_byte_ms = float(np.median(slopes))
    low, high = np.quantile(times - per_byte_ms * sizes, (0.25, 0.75))
    span_ms = per_byte_ms * float(np.quantile(sizes, 0.9) - np.quantile(sizes, 0.1))
    return 1 / per_byte_ms if span_ms >= max(_SPAN_MIN_MS, _SPREADS * (high - low)) else None


def _stretches(r: Recorded, topology: Topology, config: CheckpointConfig | None) -> Floats:
    """Return a column for each stretch of time in which uploads of a checkpoint ran.

    It has their bytes, the milliseconds of the stretch, and how many of these passed until the last upload began.
    """
    begins, ends, sizes = _uploads(r, topology, config)
    is_timed = ~np.isnan(ends)
    begins, ends, sizes = begins[is_timed], ends[is_timed], sizes[is_timed]
    order = np.lexsort((ends, begins))
    begins, ends, sizes = begins[order], ends[order], sizes[order]
    is_first = np.ones(begins.size, dtype=np.bool_)
    is_first[1:] = begins[1:] >= np.maximum.accumulate(ends)[:-1]
    firsts = np.flatnonzero(is_first)
    if not firsts.size:
        return np.zeros((3, 0))
    # Sizes and times are whole numbers, so that no sum depends on its order.
    first, last = begins[firsts], np.maximum.reduceat(begins, firsts)
    return np.array([np.add.reduceat(sizes, firsts), np.maximum.reduceat(ends, firsts) - first, last - first])


def _uploads(r: Recorded, topology: Topology, config: CheckpointConfig | None) -> tuple[Floats, Floats, Floats]:
    """Return when each upload of a checkpoint began and ended, and its bytes."""
    rows = []
    for detail in r.checkpoint.details:
        if detail.vertex_id not in r.phases:
            continue
        ends, took = r.phases[detail.vertex_id].async_end_ms, own_async_ms(r, detail.vertex_id, topology, config)
        size = array_of(detail.checkpointed_size_bytes)
        is_one = (took > 0) & (size > 0)
        rows.append(np.array([ends - took, ends, size])[:, is_one])
    begins, ends, sizes = np.concatenate(rows, axis=1) if rows else np.zeros((3, 0))
    return begins, ends, sizes


def parts_of(
    recorded: Sequence[Recorded],
    hung: HungWrites,
    vertex: VertexId,
    store: StoreModel,
    topology: Topology,
    config: CheckpointConfig | None,
) -> SnapshotParts:
    """Return the parts of the snapshots of one vertex.

    ``async_fixed_ms`` has everything after the sync part that does not grow with the bytes, including the way of the
    acknowledgement to the coordinator. Writes that hung do not count.
    """
    sync: list[Floats] = []
    fixed: list[Floats] = []
    upload: list[Floats] = []
    state: list[Floats] = []
    known = topology.vertex(vertex)
    parallelism = known.parallelism if known is not None else 0
    for r, beyond in zip(recorded, hung, strict=True):
        detail, phases = r.checkpoint.detail(vertex), r.phases.get(vertex)
        if detail is None or phases is None:
            continue
        persisted = np.nan_to_num(array_of(detail.persisted_bytes))
        written = array_of(detail.checkpointed_size_bytes)
        sync.append(phases.sync_duration_ms)
        waits = np.nan_to_num(np.maximum(phases.ack_ms - phases.async_end_ms, 0.0))
        own = own_async_ms(r, vertex, topology, config)
        # Beside large uploads, the wait for other uploads looks like a fixed part. The shared speed contains it.
        is_large = written >= _SHARED_BYTES if store.shared_bytes_per_ms is not None else np.zeros(own.size, dtype=bool)
        beside = np.where(is_large, waits, np.maximum(own + waits - written / store.bytes_per_ms, 0.0))
        fixed.append(np.where(beyond[vertex] > 0, np.nan, beside))
        upload.append(np.maximum(written - persisted, 0.0))
        state.append(np.maximum(array_of(detail.full_state_size_bytes) - persisted, 0.0))
    return SnapshotParts(
        sync_ms=tuple(_middle(sync, parallelism, column_means).tolist()),
        async_fixed_ms=tuple(_middle(fixed, parallelism).tolist()),
        upload_bytes=tuple(_middle(upload, parallelism).tolist()),
        state_bytes=tuple(_middle(state, parallelism).tolist()),
    )


def waits_ms(recorded: Sequence[Recorded], vertex: VertexId, above: Sequence[VertexId]) -> Floats | None:
    """Return how long the last barrier of each subtask waited behind data, in the newest checkpoint that shows it.

    The wait begins when the last sender has forwarded its barriers. None if no checkpoint has all the times.
    """
    for r in reversed(recorded):
        mine = r.phases.get(vertex)
        senders = [r.phases[u].travel_ms for u in above if u in r.phases]
        if mine is None or len(senders) < len(above) or np.isnan(mine.travel_ms).any():
            continue
        sent = max(float(np.max(row)) for row in senders)
        if not np.isnan(sent):
            return np.maximum(mine.travel_ms - sent, 0.0)
    return None


def trigger_delay_of(recorded: Sequence[Recorded], sources: Sequence[VertexId]) -> Interval | None:
    """Return the start delay of the sources: its median, and its 5 % and 95 % quantiles. None if it is not known."""
    rows = [r.phases[v].first_barrier_ms for r in recorded for v in sources if v in r.phases]
    values = np.concatenate(rows) if rows else np.zeros(0)
    values = np.maximum(values[~np.isnan(values)], 0.0)
    if not values.size:
        return None
    low, middle, high = (float(q) for q in np.quantile(values, (0.05, 0.5, 0.95)))
    return Interval(middle, low, high)


def growth_bytes_per_s(recorded: Sequence[Recorded], vertex: VertexId) -> float:
    """Return how fast the full state of a vertex grows: the slope over its checkpoints.

    It is 0 if the state does not grow, or so little that the slope may be chance.
    """
    points = []
    for r in recorded:
        detail = r.checkpoint.detail(vertex)
        if detail is not None:
            size = array_of(detail.full_state_size_bytes) - np.nan_to_num(array_of(detail.persisted_bytes))
            if size.size and not np.isnan(size).any():
                points.append((r.checkpoint.header.triggered_at.timestamp(), float(size.sum())))
    if len(points) < _GROWTH_MIN_COUNT:
        return 0.0
    times, sizes = np.array(points).T
    spread = times - times.mean()
    squares = float((spread * spread).sum())
    if squares <= 0:
        return 0.0
    slope = float((spread * (sizes - sizes.mean())).sum()) / squares
    rest = sizes - sizes.mean() - slope * spread
    error = float(np.sqrt((rest * rest).sum() / (len(points) - 2) / squares))
    grown = slope * float(times.max() - times.min())
    is_clear = slope > _GROWTH_ERRORS * error and grown > _GROWTH_MIN_RATIO * float(sizes.mean())
    return slope if is_clear else 0.0


def state_assumption(vertices: Sequence[VertexModel]) -> Assumption | None:
    """Return the assumption that the state stays as large as it is, with its size; None if no size is known.

    If the state would double within a month, the assumption says when.
    """
    state = sum(sum(v.state_bytes) for v in vertices)
    if state <= 0:
        return None
    growing = [v for v in vertices if v.state_growth_bytes_per_s > 0]
    per_s = sum(v.state_growth_bytes_per_s for v in growing)
    grown = f"it grew by {say.size(per_s * _DAY_S)} a day between the checkpoints"
    costs = "each full checkpoint and the time to restore"
    if per_s <= 0:
        reason = f"no clear growth between the checkpoints; {costs} depend on it"
    elif state / per_s > _MONTH_S:
        reason = f"{grown}, too little to double it within 30 days; {costs} depend on it"
    else:
        reason = f"{grown}; at this pace it doubles in {_long_time(state / per_s)}, and with it {costs}"
    return Assumption(
        subject=f"state of {' and '.join(v.name for v in growing)}" if growing else "state",
        taken=f"as large as now, {say.size(state)} in all",
        reason=reason,
    )


def _long_time(seconds: float) -> str:
    days, hours = seconds / _DAY_S, seconds / 3600
    if days >= 2:
        return f"{days:.0f} days"
    return f"{hours:.0f} hours" if hours >= 2 else say.duration(1000 * seconds)
