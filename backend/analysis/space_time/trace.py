"""The times of one checkpoint at its subtasks and on its channels, in milliseconds since the trigger.

A value is None if the event did not happen, or if the engine does not report it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.domain.ids import VertexId
from backend.domain.verdict import Basis

Subtask = tuple[VertexId, int]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time from ``begin_ms`` to ``end_ms``. ``end_ms`` is None if it had not ended when the trace ended."""

    begin_ms: float
    end_ms: float | None
    channel_count: int | None = None
    """The largest number of channels that were blocked or recorded at the same time; None if it is not known."""


@dataclass(frozen=True, slots=True)
class SubtaskTrace:
    """One subtask in one checkpoint."""

    first_ms: float | None = None
    """When the checkpoint began here: at the first barrier or, at a source, at the trigger message."""
    last_ms: float | None = None
    """When the last barrier arrived."""
    snapshot_ms: float | None = None
    sync_end_ms: float | None = None
    async_end_ms: float | None = None
    ack_ms: float | None = None
    aborted_ms: float | None = None
    switched_ms: float | None = None
    """When the checkpoint switched from aligned to unaligned here."""
    blocked: tuple[Stretch, ...] = ()
    """When at least one input channel was blocked."""
    recorded: Stretch | None = None
    """When data in front of missing barriers was being copied into the checkpoint."""
    logged_bytes: int | None = None
    """The input that the checkpoint contains as channel state."""
    overtaken_bytes: int | None = None
    """The output that the checkpoint contains because its barriers overtook it."""
    has_finished: bool = False
    """Whether the subtask had finished before the checkpoint, so that it took no part."""


@dataclass(frozen=True, slots=True)
class ChannelTrace:
    """The barrier on one channel."""

    sender: Subtask
    receiver: Subtask
    emitted_ms: float
    received_ms: float | None
    overtook_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that is known of one checkpoint. ``channels`` are measured or reconstructed, as ``basis`` says."""

    subtasks: Mapping[Subtask, SubtaskTrace]
    channels: Sequence[ChannelTrace]
    basis: Basis

    @property
    def end_ms(self) -> float:
        """The time of the last event."""
        times = [t for s in self.subtasks.values() for t in (s.first_ms, s.last_ms, s.async_end_ms, s.ack_ms) if t]
        return max([0.0, *times, *(c.received_ms or c.emitted_ms for c in self.channels)])
