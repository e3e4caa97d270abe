"""The JSON of the space-time diagram of one checkpoint (V4). All times are milliseconds since the trigger."""

from __future__ import annotations

from backend.contracts.model import Model
from backend.domain.cut import CutError, CutState
from backend.domain.verdict import Basis


class StretchOut(Model):
    """A time in which channels were blocked or recorded. ``end_ms`` is null if it had not ended yet."""

    begin_ms: float
    end_ms: float | None
    channel_count: int | None = None
    """The largest number of channels that were concerned at the same time; null if it is not known."""


class LaneOut(Model):
    """One lane: a subtask, or several subtasks of a vertex if ``subtask`` is null.

    If the lane has several subtasks, a time is the earliest of theirs, or the latest if its name ends in ``last_ms``.
    ``blocked`` and ``recorded`` then reach from the earliest begin to the latest end. Their length is not a duration,
    because there may be times in between at which no subtask was blocked or recorded.
    """

    vertex_id: str
    vertex: str
    subtask: int | None
    subtask_count: int
    first_ms: float | None
    """When the checkpoint began here: at the first barrier or, at a source, at the trigger message."""
    last_ms: float | None
    """When the last barrier arrived."""
    snapshot_ms: float | None
    snapshot_last_ms: float | None
    sync_end_ms: float | None
    sync_end_last_ms: float | None
    async_end_last_ms: float | None
    ack_ms: float | None
    ack_last_ms: float | None
    aborted_ms: float | None
    switched_ms: float | None
    """When the checkpoint switched from aligned to unaligned here."""
    blocked: list[StretchOut]
    """When at least one input channel was blocked."""
    recorded: StretchOut | None
    """When input in front of missing barriers was being copied into the checkpoint."""
    logged_bytes: int | None
    """Input that the checkpoint contains as channel state."""
    overtaken_bytes: int | None
    """Output that the checkpoint contains because barriers overtook it; null if the engine reports no channels."""
    snapshot_count: int
    ack_count: int
    finished_count: int = 0
    """The subtasks that had finished before the checkpoint, so that they took no part."""


class ArrowOut(Model):
    """The barriers from one lane to another, given by their positions in ``lanes``.

    If the barriers crossed several channels, the first times are the earliest, and the last times are the latest. A
    time of receipt is null if barriers were not received.
    """

    source: int
    target: int
    channel_count: int
    emitted_ms: float
    received_ms: float | None
    emitted_last_ms: float
    received_last_ms: float | None
    unreceived_count: int
    overtook_bytes: int | None
    """Null if the barriers overtook no data."""


class CutProblemOut(Model):
    """A channel on which the cut is not consistent."""

    source: str
    source_subtask: int
    target: str
    target_subtask: int
    error: CutError
    size_bytes: int


class CutOut(Model):
    """Whether the snapshots form a consistent cut, checked from the trace.

    On each channel, the receiver's state and the channel state must together contain exactly the bytes that the sender
    had written before its snapshot.
    """

    state: CutState
    sentence: str
    channel_count: int
    checked_count: int
    problem_count: int
    problems: list[CutProblemOut]
    """The problems with the most bytes, at most 20."""


class SpaceTimeOut(Model):
    """The space-time diagram of one checkpoint."""

    basis: Basis
    """The basis of the arrows and the times. Reconstructed arrows show the most likely sender."""
    note: str | None = None
    end_ms: float
    subtask_count: int
    is_folded: bool
    """Whether the job has too many subtasks for a lane each."""
    opened: list[str]
    """The vertices whose subtasks are shown although the diagram is folded."""
    lanes: list[LaneOut]
    arrows: list[ArrowOut]
    cut: CutOut
