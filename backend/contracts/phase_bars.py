"""The JSON of the bars of a Gantt chart: the phases of subtasks and vertices in one checkpoint."""

from __future__ import annotations

from backend.contracts.model import Model
from backend.domain.verdict import Basis


class SubtaskPhasesOut(Model):
    """The bar of one subtask in the Gantt chart of a checkpoint. All times are milliseconds since the trigger.

    ``snapshot_at_ms`` and the values derived from it are reconstructed (views.md V3); ``start_delay``, ``alignment``,
    ``sync``, ``async`` and ``ack`` are measured. If the subtask has not acknowledged, ``ack_ms`` is null. Its
    ``first_barrier_ms`` may still be known from a metric of the subtask, with an error of at most
    ``first_barrier_resolution_ms``.
    """

    subtask: int
    host: str | None = None
    is_acknowledged: bool
    first_barrier_ms: int | None
    first_barrier_basis: Basis | None
    first_barrier_resolution_ms: int | None = None
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
    """Whether alignment continues in the async phase, because the snapshot started before the last barrier arrived."""
    has_clock_skew: bool = False
    is_unaligned: bool | None = None
    checkpointed_size_bytes: int | None = None
    full_state_size_bytes: int | None = None
    processed_bytes: int | None = None
    persisted_bytes: int | None = None
    has_finished: bool = False
    """Whether the subtask had finished before the checkpoint was triggered.

    Engines count such a subtask as acknowledged. It took no part, so its times and sizes are null.
    """


class VertexPhasesOut(Model):
    """One vertex of one checkpoint. Its subtasks are sorted by index."""

    vertex_id: str
    vertex: str
    acknowledged_count: int
    """The subtasks that acknowledged, and those that had finished before."""
    finished_count: int = 0
    """The subtasks that had finished before the checkpoint was triggered."""
    subtask_count: int
    slowest_subtask: int | None
    start_delay_max_ms: int | None = None
    """The largest start delay of the vertex's own subtasks (measured); null if that of any subtask is not known."""
    delay_added_ms: int | None = None
    """``delay_passed_on_ms`` minus ``start_delay_max_ms``.

    It is negative if the first barrier downstream came from a subtask that was quicker than the slowest one.
    """
    delay_passed_on_ms: int | None = None
    """The largest start delay of the subtasks of the vertices directly downstream; null for a sink."""
    delay_basis: Basis | None = None
    """The basis of ``delay_added_ms`` and ``delay_passed_on_ms``; null if neither is known."""
    subtasks: list[SubtaskPhasesOut]
    """If the checkpoint has more than 2,000 subtasks, only the slowest ones and those that the verdict names."""
