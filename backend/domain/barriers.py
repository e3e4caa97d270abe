"""The barrier events of each channel, which only the reference runtime reports (runtime.md, Appendix D).

Times are microseconds since the trigger of the checkpoint. The Lamport clock ``lamport`` orders events causally.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from backend.domain.ids import VertexId


class BarrierEventKind(StrEnum):
    """What happened at a subtask during a checkpoint."""

    BARRIER_EMITTED = "barrier_emitted"
    BARRIER_RECEIVED = "barrier_received"
    CHANNEL_BLOCKED = "channel_blocked"
    CHANNEL_UNBLOCKED = "channel_unblocked"
    LOG_CLOSED = "log_closed"
    """The marker of a Chandy-Lamport checkpoint has arrived on the channel, but is not read yet."""
    LOG_OPENED = "log_opened"
    """The subtask started to persist the data that is in front of the barriers."""
    INPUT_PERSISTED = "input_persisted"
    """The checkpoint contains ``size_bytes`` of data that arrived on the channel."""
    SENT_BEFORE_SNAPSHOT = "sent_before_snapshot"
    """The sender had written ``size_bytes`` to the channel, since it started, when its state was taken."""
    PROCESSED_BEFORE_SNAPSHOT = "processed_before_snapshot"
    """The receiver had processed ``size_bytes`` of the channel, since it started, when its state was taken."""
    RESTORED_BEFORE_SNAPSHOT = "restored_before_snapshot"
    """``size_bytes`` of the processed bytes came from the channel state of a restored checkpoint, not from the sender.
    """
    OVERTOOK = "overtook"
    SNAPSHOT_SYNC_START = "snapshot_sync_start"
    SNAPSHOT_SYNC_END = "snapshot_sync_end"
    CHANNEL_STATE_PERSISTED = "channel_state_persisted"
    SNAPSHOT_ASYNC_END = "snapshot_async_end"
    ACKED = "acked"
    ABORTED = "aborted"
    MODE_SWITCHED = "mode_switched"
    FINISHED = "finished"
    """The subtask had finished before the checkpoint was triggered, so it takes no part in it."""


@dataclass(frozen=True, slots=True)
class ChannelId:
    """A logical channel: edge, upstream subtask and downstream subtask.

    Its id stays the same until the job graph changes.
    """

    source: VertexId
    target: VertexId
    source_subtask: int
    target_subtask: int


@dataclass(frozen=True, slots=True)
class BarrierEvent:
    """One barrier event.

    ``channel`` is set only for an event on a channel. Whether ``size_bytes`` and ``records`` are set depends on the
    kind.
    """

    kind: BarrierEventKind
    vertex_id: VertexId
    subtask: int
    at_us: int
    lamport: int
    channel: ChannelId | None = None
    size_bytes: int | None = None
    records: int | None = None
    reason: str | None = None
