"""What a task expects of its checkpoints, and all that it knows of them: how they go is none of its business."""

from __future__ import annotations

from typing import Protocol

from backend.runtime.core.elements import Barrier, Element, Event
from backend.runtime.network.channel import InputChannel


class Checkpointing(Protocol):
    """The checkpoints of one attempt of one subtask."""

    last_id: int
    is_waiting_for_room: bool
    is_watching: bool
    """Whether ``processed`` wants to hear of each element."""
    start_delay_gauge_us: int

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """Checkpoints in work here."""
        ...

    @property
    def alignment_gauge_us(self) -> int:
        """How long the pending checkpoint has been aligning here; 0 where none is."""
        ...

    def trigger(self, barrier: Barrier) -> None:
        """Mail to a source: begin."""
        ...

    def on_barrier(self, channel: InputChannel, barrier: Barrier) -> None:
        """A barrier was taken from a channel."""
        ...

    def on_priority(self, _: object) -> None:
        """Mail: priority events are there."""
        ...

    def on_cancel(self, channel: InputChannel, checkpoint_id: int) -> None:
        """A cancel marker was taken from a channel."""
        ...

    def on_end_of_partition(self, channel: InputChannel) -> None:
        """A channel ended."""
        ...

    def abort(self, checkpoint_id: int) -> None:
        """Mail: the coordinator gave it up."""
        ...

    def complete(self, checkpoint_id: int) -> None:
        """Mail: it is complete."""
        ...

    def recheck(self, _: object) -> None:
        """Data moved while a checkpoint waits for room."""
        ...

    def processed(self, channel: InputChannel, element: Element | Event) -> None:
        """An element was processed while checkpoints watch."""
        ...
