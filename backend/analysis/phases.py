"""The phases of one subtask in one checkpoint, in milliseconds since the trigger.

Start delay, alignment, sync, async and acknowledgement are measured. The start of the snapshot is reconstructed. It is
at the last barrier if aligned, at the first barrier if unaligned from the start, and with an aligned timeout at
``min(first + alignment, max(first, timeout))``. This was checked on recordings of Flink 1.20; a rule by the subtask's
own flag misplaces most rows. If the snapshot starts before the last barrier, async contains the rest of the alignment,
which is then an overlay and not a segment.

Invariants: a missing value never becomes a number. A phase is negative only if ``has_clock_skew``, because start delay
mixes the clocks of two machines. Sources: views.md V3, flink-baseline.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.analysis.thresholds import ROUNDING_MS
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointHeader,
    CheckpointKind,
    LateBarrier,
    VertexDetail,
)
from backend.domain.ids import VertexId
from backend.domain.verdict import Basis


@dataclass(frozen=True, slots=True)
class SubtaskPhases:
    """One bar of the Gantt chart; fields as in the API's ``SubtaskPhasesOut``. None means not reported."""

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

    @property
    def travel_ms(self) -> int | None:
        """From the trigger to the last barrier; to the first barrier if the last is not known."""
        return self.alignment_end_ms if self.alignment_end_ms is not None else self.first_barrier_ms

    @property
    def own_async_ms(self) -> int | None:
        """The async part without the wait for the last barrier."""
        if self.async_duration_ms is None:
            return None
        if not self.is_alignment_overlaid or self.alignment_end_ms is None or self.sync_end_ms is None:
            return self.async_duration_ms
        waited = max(0, self.alignment_end_ms - self.sync_end_ms)
        return max(0, self.async_duration_ms - waited)


def effective_aligned_timeout_ms(
    header: CheckpointHeader, *, aligned_timeout_ms: int | None, is_unaligned_enabled: bool | None
) -> int | None:
    """Milliseconds after the trigger at which barriers start to overtake: None for never, 0 for at once.

    A savepoint is always aligned. If the settings are not known, the checkpoint's own type decides.
    """
    if header.kind is not CheckpointKind.CHECKPOINT or is_unaligned_enabled is False:
        return None
    if is_unaligned_enabled is None and not header.is_unaligned:
        return None
    return aligned_timeout_ms or 0


def subtask_phases(
    header: CheckpointHeader,
    detail: VertexDetail,
    aligned_timeout_ms: int | None,
    is_unaligned_enabled: bool | None,
    late: Sequence[LateBarrier] = (),
) -> tuple[SubtaskPhases, ...]:
    """The phases of every subtask of one vertex, by index; ``late`` may include barriers of other vertices."""
    timeout = effective_aligned_timeout_ms(
        header, aligned_timeout_ms=aligned_timeout_ms, is_unaligned_enabled=is_unaligned_enabled
    )
    gauges = {b.subtask: b for b in late if b.vertex_id == detail.vertex_id}
    return tuple(
        _pending(detail, i, gauges.get(i)) if detail.ack_delay_ms[i] is None else _acknowledged(detail, i, timeout)
        for i in range(detail.subtask_count)
    )


def checkpoint_phases(
    checkpoint: Checkpoint, config: CheckpointConfig | None, late: Sequence[LateBarrier] = ()
) -> dict[VertexId, tuple[SubtaskPhases, ...]]:
    """The phases of every vertex whose detail is known."""
    timeout = config.aligned_timeout_ms if config is not None else None
    is_enabled = config.is_unaligned_enabled if config is not None else None
    return {d.vertex_id: subtask_phases(checkpoint.header, d, timeout, is_enabled, late) for d in checkpoint.details}


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
    sync, async_, ack = detail.sync_duration_ms[i], detail.async_duration_ms[i], detail.ack_delay_ms[i]
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
