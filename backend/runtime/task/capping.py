"""One subtask's answers to capped checkpoints (2.10): its cap and its in-flight bytes. Also keeps their decision."""

from __future__ import annotations

from collections.abc import Callable

from backend.runtime.job.config import UNLIMITED
from backend.runtime.measure.cap_decisions import CapDecision
from backend.runtime.network.channel import InputChannel
from backend.runtime.protocols.mode import Cap, InFlight
from backend.runtime.task.ports import TaskPort

_NO_CAP_BYTES = 1 << 62


class Capping:
    """The cap of one attempt of one subtask. ``current_id`` returns the newest checkpoint that its input has seen."""

    def __init__(self, task: TaskPort, current_id: Callable[[], int]) -> None:
        self._task = task
        self._env = task.env
        self._current_id = current_id
        self._decision: CapDecision | None = None

    @property
    def cap(self) -> Cap:
        """The subtask's answers for the protocol. Each call reads the settings then in force."""
        return Cap(self.cap_bytes, self._in_flight, lambda: self._env.config.on_cap, self._decided)

    def cap_bytes(self) -> int:
        """CAP-6: the cap of this subtask, in bytes."""
        cap = self._env.coordinator.cap_bytes(self._task.key)
        return _NO_CAP_BYTES if cap == UNLIMITED else cap

    def take_decision(self) -> CapDecision | None:
        """CAP-7: return the decision on the checkpoint that now snapshots or is given up, and forget it."""
        decision, self._decision = self._decision, None
        return decision

    def _decided(self, decision: CapDecision) -> None:
        self._decision = decision

    def _in_flight(self) -> InFlight:
        """CAP-1: the bytes that would be persisted if the checkpoint started now."""
        task, pending = self._task, self._current_id()
        waiting = sum(channel.front_bytes(pending) for channel in task.gate.channels)
        overtakable = sum(output.queued[1] for output in task.outputs if output.can_overtake)
        return InFlight(waiting, overtakable)


def may_poll(channel: InputChannel) -> bool:
    """Return whether the channel may be read. A closed channel yields only the data in front of its cut (CAP-3)."""
    return not channel.is_closed or channel.has_front
