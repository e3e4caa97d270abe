"""Computes the phases of one subtask in one checkpoint, in milliseconds since the trigger.

Start delay, alignment, sync, async and acknowledgement are measured. The start of the snapshot is reconstructed. An
aligned snapshot starts at the last barrier, and so does one of a protocol with ``starts_at_last``. If the checkpoint
is unaligned from its trigger on, the snapshot starts at the first barrier. With an aligned timeout, it starts at
``min(first + alignment, max(first, timeout))``. This was checked on recordings of Flink 1.20; a rule that uses the
subtask's own *unaligned* flag would misplace most subtasks.
If the snapshot starts before the last barrier, the async part contains the rest of the alignment. The alignment then
overlaps the async part and is not a segment of its own.

A vertex may have thousands of subtasks, and a verdict needs the phases of ten checkpoints. ``VertexPhases`` therefore
has each phase of all subtasks as one array, and builds the values of a single subtask only on request.

Invariants: a missing value never becomes a number. A phase is negative only if ``has_clock_skew``, because the start
delay is computed from the clocks of two machines. Sources: views.md V3, flink-baseline.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import overload

import numpy as np

from backend.analysis.numbers.arrays import Flags, Floats, array_of, highest_of, indices_of
from backend.analysis.numbers.cache import kept
from backend.analysis.numbers.lazy import lazy
from backend.analysis.words.thresholds import ROUNDING_MS
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointHeader,
    CheckpointKind,
    LateBarrier,
    VertexDetail,
)
from backend.domain.ids import VertexId
from backend.domain.protocols import TRAITS
from backend.domain.verdict import Basis, Phase


@dataclass(frozen=True, slots=True)
class SubtaskPhases:
    """The phases of one subtask: one bar of the Gantt chart, with the fields of the API's ``SubtaskPhasesOut``.

    None means not reported.
    """

    subtask: int
    is_acknowledged: bool
    first_barrier_ms: int | None
    first_barrier_basis: Basis | None
    first_barrier_resolution_ms: int | None
    alignment_end_ms: int | None
    snapshot_at_ms: int | None
    sync_end_ms: int | None
    async_end_ms: int | None
    ack_ms: int | None
    start_delay_ms: int | None
    alignment_duration_ms: int | None
    sync_duration_ms: int | None
    async_duration_ms: int | None
    ack_wait_ms: int | None
    is_alignment_overlaid: bool = False
    has_clock_skew: bool = False
    is_unaligned: bool | None = None
    checkpointed_size_bytes: int | None = None
    full_state_size_bytes: int | None = None
    processed_bytes: int | None = None
    persisted_bytes: int | None = None
    has_finished: bool = False
    """Whether the subtask had finished before the checkpoint. It counts as acknowledged, and reported nothing."""

    @property
    def travel_ms(self) -> int | None:
        """The time from the trigger to the last barrier, or to the first barrier if the last is not known."""
        return self.alignment_end_ms if self.alignment_end_ms is not None else self.first_barrier_ms

    @property
    def own_async_ms(self) -> int | None:
        """The duration of the async part without the wait for the last barrier."""
        if self.async_duration_ms is None:
            return None
        if not self.is_alignment_overlaid or self.alignment_end_ms is None or self.sync_end_ms is None:
            return self.async_duration_ms
        waited = max(0, self.alignment_end_ms - self.sync_end_ms)
        return max(0, self.async_duration_ms - waited)


class VertexPhases(Sequence[SubtaskPhases]):
    """The phases of all subtasks of one vertex in one checkpoint.

    The items are the subtasks, by index. The properties are arrays with one value for each subtask: the field of
    ``SubtaskPhases`` with the same name, with NaN for None. The exceptions are subtasks that had finished: they have no
    durations, but their barriers and acknowledgements count as arrived at the trigger, so that no maximum is missing.
    """

    def __init__(self, columns: _Columns, detail: VertexDetail, begin: int, gauges: Mapping[int, LateBarrier]) -> None:
        """Create a view of one vertex's subtasks, which begin at position ``begin`` in ``columns``.

        ``columns`` contains the subtasks of all vertices.
        """
        self._columns = columns
        self._detail = detail
        self._gauges = gauges
        self._count = detail.subtask_count
        self._own = slice(begin, begin + self._count)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[SubtaskPhases]:
        return (self._subtask(i) for i in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> SubtaskPhases: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[SubtaskPhases]: ...

    def __getitem__(self, index: int | slice) -> SubtaskPhases | Sequence[SubtaskPhases]:
        which = range(len(self))[index]
        return self._subtask(which) if isinstance(which, int) else tuple(self._subtask(i) for i in which)

    def _subtask(self, i: int) -> SubtaskPhases:
        if self._detail.ack_delay_ms[i] is None:
            return _pending(self._detail, i, self._gauges.get(i))
        return _acknowledged(self._detail, i, self._columns.timeout_ms)

    def first_barrier_of(self, subtask: int) -> int | None:
        """Return when the first barrier of one subtask arrived, or None if it is not known."""
        if self._detail.ack_delay_ms[subtask] is not None:
            return self._detail.start_delay_ms[subtask]
        gauge = self._gauges.get(subtask)
        return gauge.start_delay_ms if gauge is not None else None

    @property
    def acknowledged_count(self) -> int:
        """The number of subtasks that acknowledged."""
        return int(np.count_nonzero(self.is_acknowledged))

    @property
    def is_complete(self) -> bool:
        """Whether all subtasks acknowledged."""
        return self._columns.is_complete or bool(self.is_acknowledged.all())

    @property
    def pending(self) -> tuple[int, ...]:
        """The subtasks that did not acknowledge."""
        return () if self._columns.is_complete else indices_of(~self.is_acknowledged)

    @property
    def slowest_subtask(self) -> int | None:
        """The subtask that acknowledged last, or None if no subtask acknowledged.

        If several acknowledged last, it is the one with the lowest number.
        """
        took_part = self.is_acknowledged & ~self.has_finished
        return int(np.where(took_part, self.ack_ms, -1.0).argmax()) if took_part.any() else None

    @property
    def is_acknowledged(self) -> Flags:
        """Whether each subtask acknowledged, or had finished before."""
        return self._columns.is_acknowledged[self._own]

    @property
    def has_finished(self) -> Flags:
        """Whether each subtask had finished before the checkpoint."""
        return self._columns.has_finished[self._own]

    @property
    def first_barrier_ms(self) -> Floats:
        """When the first barrier arrived; this is also the start delay."""
        return self._columns.first_barrier_ms[self._own]

    @property
    def snapshot_at_ms(self) -> Floats:
        """When each snapshot began."""
        return self._columns.snapshot_at_ms[self._own]

    @property
    def sent_ms(self) -> Floats:
        """When each subtask forwarded its barrier: at the start of its snapshot, but not before the trigger."""
        return self._columns.sent_ms[self._own]

    @property
    def async_end_ms(self) -> Floats:
        """When each async part ended."""
        return self._columns.async_end_ms[self._own]

    @property
    def ack_ms(self) -> Floats:
        """When each acknowledgement arrived. 0 for a subtask that had finished before."""
        return self._columns.ack_ms[self._own]

    @property
    def alignment_duration_ms(self) -> Floats:
        """The duration of each alignment."""
        return self._columns.alignment_duration_ms[self._own]

    @property
    def sync_duration_ms(self) -> Floats:
        """The duration of each sync part."""
        return self._columns.sync_duration_ms[self._own]

    @property
    def async_duration_ms(self) -> Floats:
        """The duration of each async part."""
        return self._columns.async_duration_ms[self._own]

    @property
    def travel_ms(self) -> Floats:
        """The time from the trigger to the last barrier, or to the first barrier if the last is not known."""
        return self._columns.travel_ms[self._own]

    @property
    def own_async_ms(self) -> Floats:
        """The duration of each async part without the wait for the last barrier."""
        return self._columns.own_async_ms[self._own]

    @property
    def has_clock_skew(self) -> Flags:
        """Whether the times of each subtask prove that the clocks of two machines differ."""
        return self._columns.has_clock_skew[self._own]

    @property
    def checkpointed_size_bytes(self) -> Floats:
        """The bytes that each subtask wrote."""
        return np.where(self.is_acknowledged, array_of(self._detail.checkpointed_size_bytes), np.nan)

    @property
    def persisted_bytes(self) -> Floats:
        """The bytes of in-flight data that each subtask wrote."""
        return np.where(self.is_acknowledged, array_of(self._detail.persisted_bytes), np.nan)


class _Columns:
    """The phases of all subtasks of a checkpoint, vertex after vertex. Each array is computed when it is first used.

    The rules are those of ``_pending`` and ``_acknowledged``, which compute the same values for one subtask.
    """

    def __init__(
        self, details: Sequence[VertexDetail], timeout_ms: int | None, gauges: Mapping[int, LateBarrier]
    ) -> None:
        """Create the arrays; the keys of ``gauges`` are positions in them."""
        self.timeout_ms = timeout_ms
        self._details = details
        self._gauges = gauges

    @lazy
    def ack_ms(self) -> Floats:
        return array_of(list(chain.from_iterable(d.ack_delay_ms for d in self._details)))

    @lazy
    def has_finished(self) -> Flags:
        found: Flags = self.ack_ms == 0
        if found.any():
            whole = (subtask for d in self._details for subtask in map(d.has_finished, range(d.subtask_count)))
            found &= np.fromiter(whole, dtype=bool, count=len(found))
        return found

    @lazy
    def alignment_duration_ms(self) -> Floats:
        return array_of(list(chain.from_iterable(d.alignment_duration_ms for d in self._details)))

    @lazy
    def sync_duration_ms(self) -> Floats:
        return array_of(list(chain.from_iterable(d.sync_duration_ms for d in self._details)))

    @lazy
    def async_duration_ms(self) -> Floats:
        return array_of(list(chain.from_iterable(d.async_duration_ms for d in self._details)))

    @lazy
    def is_acknowledged(self) -> Flags:
        return ~np.isnan(self.ack_ms)

    @lazy
    def is_complete(self) -> bool:
        return bool(self.is_acknowledged.all())

    @lazy
    def first_barrier_ms(self) -> Floats:
        found = array_of(list(chain.from_iterable(d.start_delay_ms for d in self._details)))
        if not self.is_complete:
            found[~self.is_acknowledged] = np.nan
            for position, gauge in self._gauges.items():
                if not self.is_acknowledged[position]:
                    found[position] = gauge.start_delay_ms
        return self._with_finished(found)

    def _with_finished(self, at_ms: Floats) -> Floats:
        """Return the times with 0 for the subtasks that had finished: no other subtask waits for their barriers."""
        return np.where(self.has_finished, 0.0, at_ms) if self.has_finished.any() else at_ms

    @lazy
    def alignment_end_ms(self) -> Floats:
        found = self._with_finished(self.first_barrier_ms + self.alignment_duration_ms)
        return found if self.is_complete else np.where(self.is_acknowledged, found, np.nan)

    @lazy
    def snapshot_at_ms(self) -> Floats:
        if self.timeout_ms is None:
            return self.alignment_end_ms
        first = self.first_barrier_ms
        earliest = np.maximum(first, self.timeout_ms) if self.timeout_ms > 0 else first
        found = np.fmin(self.alignment_end_ms, earliest)
        return found if self.is_complete else np.where(self.is_acknowledged, found, np.nan)

    @lazy
    def sent_ms(self) -> Floats:
        return np.maximum(0.0, self.snapshot_at_ms)

    @lazy
    def sync_end_ms(self) -> Floats:
        return self.snapshot_at_ms + self.sync_duration_ms

    @lazy
    def async_end_ms(self) -> Floats:
        return self.sync_end_ms + self.async_duration_ms

    @lazy
    def travel_ms(self) -> Floats:
        return np.where(np.isnan(self.alignment_end_ms), self.first_barrier_ms, self.alignment_end_ms)

    @lazy
    def own_async_ms(self) -> Floats:
        if self.timeout_ms is None:
            return self.async_duration_ms
        is_overlaid = (self.snapshot_at_ms < self.alignment_end_ms) & ~np.isnan(self.sync_end_ms)
        waited = np.maximum(0.0, self.alignment_end_ms - self.sync_end_ms)
        return np.where(is_overlaid, np.maximum(0.0, self.async_duration_ms - waited), self.async_duration_ms)

    @lazy
    def has_clock_skew(self) -> Flags:
        first, ack = self.first_barrier_ms, self.ack_ms
        found: Flags = (first < 0) | (first > ack + ROUNDING_MS) | (self.ack_wait_ms < -ROUNDING_MS)
        return found

    @lazy
    def ack_wait_ms(self) -> Floats:
        return self.ack_ms - self.async_end_ms

    def longest_ms(self, phase: Phase) -> float:
        """Return the longest phase of a subtask, or 0; ``phase`` is ``SYNC``, ``ASYNC`` or ``ACK_WAIT``."""
        if phase is Phase.SYNC:
            return highest_of(self.sync_duration_ms) or 0.0
        return highest_of(self.own_async_ms if phase is Phase.ASYNC else self.ack_wait_ms) or 0.0


def effective_aligned_timeout_ms(
    header: CheckpointHeader, *, aligned_timeout_ms: int | None, is_unaligned_enabled: bool | None
) -> int | None:
    """Return the time in milliseconds from the trigger until barriers start to overtake data.

    None means never, 0 means at once. A savepoint is always aligned. If the settings are not known, the checkpoint's
    own type decides.
    """
    if header.kind is not CheckpointKind.CHECKPOINT or is_unaligned_enabled is False:
        return None
    if is_unaligned_enabled is None and not header.is_unaligned:
        return None
    return aligned_timeout_ms or 0


def checkpoint_phases(
    checkpoint: Checkpoint, config: CheckpointConfig | None, late: Sequence[LateBarrier] = ()
) -> dict[VertexId, VertexPhases]:
    """Return the phases of all subtasks, for every vertex whose details are known."""
    timeout = effective_aligned_timeout_ms(
        checkpoint.header,
        aligned_timeout_ms=config.aligned_timeout_ms if config is not None else None,
        is_unaligned_enabled=config.is_unaligned_enabled if config is not None else None,
    )
    from_ms, barriers = _snapshot_timeout_ms(checkpoint.header, timeout), tuple(late)
    return kept((checkpoint,), ("phases", from_ms, barriers), lambda: _phases(checkpoint.details, from_ms, barriers))


def _snapshot_timeout_ms(header: CheckpointHeader, timeout_ms: int | None) -> int | None:
    """Return the time from the trigger until a snapshot may start before the last barrier; None means never."""
    return None if header.protocol is not None and TRAITS[header.protocol].starts_at_last else timeout_ms


def longest_ms(phases: Mapping[VertexId, VertexPhases], phase: Phase) -> float:
    """Return the longest sync part, async part or wait of an acknowledgement in a checkpoint, or 0 if none is known.

    A rule about a long phase needs to look at the vertices only if this value is long enough. It includes values that
    clock skew makes too long. ``phase`` is ``SYNC``, ``ASYNC`` or ``ACK_WAIT``.
    """
    # The vertices of a checkpoint share their columns.
    return max((one.longest_ms(phase) for one in {rows._columns for rows in phases.values()}), default=0.0)


def _phases(
    details: Sequence[VertexDetail], timeout_ms: int | None, late: Sequence[LateBarrier]
) -> dict[VertexId, VertexPhases]:
    # The columns share this mapping, which is filled below.
    positions: dict[int, LateBarrier] = {}
    columns = _Columns(details, timeout_ms, positions)
    vertex_phases: dict[VertexId, VertexPhases] = {}
    begin = 0
    for detail in details:
        count = detail.subtask_count
        gauges = {b.subtask: b for b in late if b.vertex_id == detail.vertex_id} if late else {}
        if gauges:
            positions |= {begin + i: b for i, b in gauges.items() if 0 <= i < count}
        vertex_phases[detail.vertex_id] = VertexPhases(columns, detail, begin, gauges)
        begin += count
    return vertex_phases


def _pending(detail: VertexDetail, i: int, gauge: LateBarrier | None) -> SubtaskPhases:
    first = gauge.start_delay_ms if gauge is not None else None
    return SubtaskPhases(
        subtask=i,
        is_acknowledged=False,
        first_barrier_ms=first,
        first_barrier_basis=Basis.MEASURED if first is not None else None,
        first_barrier_resolution_ms=gauge.resolution_ms if gauge is not None else None,
        alignment_end_ms=None,
        snapshot_at_ms=None,
        sync_end_ms=None,
        async_end_ms=None,
        ack_ms=None,
        start_delay_ms=first,
        alignment_duration_ms=detail.alignment_duration_ms[i],
        sync_duration_ms=detail.sync_duration_ms[i],
        async_duration_ms=detail.async_duration_ms[i],
        ack_wait_ms=None,
        has_clock_skew=first is not None and first < 0,
    )


def _acknowledged(detail: VertexDetail, i: int, timeout: int | None) -> SubtaskPhases:
    first, alignment = detail.start_delay_ms[i], detail.alignment_duration_ms[i]
    has_finished = detail.has_finished(i)
    sync, async_ = detail.sync_duration_ms[i], detail.async_duration_ms[i]
    ack = None if has_finished else detail.ack_delay_ms[i]
    aligned_at = _sum(first, alignment)
    snapshot = _snapshot_at(first, aligned_at, timeout)
    sync_end = _sum(snapshot, sync)
    async_end = _sum(sync_end, async_)
    slack = ack - async_end if ack is not None and async_end is not None else None
    if slack is not None and -ROUNDING_MS <= slack < 0:
        slack = 0
    flag = detail.unaligned[i]
    return SubtaskPhases(
        subtask=i,
        is_acknowledged=True,
        first_barrier_ms=first,
        first_barrier_basis=Basis.MEASURED if first is not None else None,
        first_barrier_resolution_ms=None,
        alignment_end_ms=aligned_at,
        snapshot_at_ms=snapshot,
        sync_end_ms=sync_end,
        async_end_ms=async_end,
        ack_ms=ack,
        start_delay_ms=first,
        alignment_duration_ms=alignment,
        sync_duration_ms=sync,
        async_duration_ms=async_,
        ack_wait_ms=slack,
        is_alignment_overlaid=snapshot is not None and aligned_at is not None and snapshot < aligned_at,
        has_clock_skew=_is_skewed(first, ack, slack),
        is_unaligned=None if flag is None else bool(flag),
        checkpointed_size_bytes=detail.checkpointed_size_bytes[i],
        full_state_size_bytes=detail.full_state_size_bytes[i],
        processed_bytes=detail.processed_bytes[i],
        persisted_bytes=detail.persisted_bytes[i],
        has_finished=has_finished,
    )


def _snapshot_at(first: int | None, aligned_at: int | None, timeout: int | None) -> int | None:
    if timeout is None or first is None:
        return aligned_at
    earliest = max(first, timeout) if timeout > 0 else first
    return earliest if aligned_at is None else min(aligned_at, earliest)


def _is_skewed(first: int | None, ack: int | None, slack: int | None) -> bool:
    if first is not None and (first < 0 or (ack is not None and first > ack + ROUNDING_MS)):
        return True
    return slack is not None and slack < 0


def _sum(a: int | None, b: int | None) -> int | None:
    return a + b if a is not None and b is not None else None
