"""What one subtask knows for capped checkpoints: its cap, what it has in flight, and what was decided (2.10).

The protocol decides what to do at the cap; of a source, which has no input to wait for, it is decided here.
"""

from __future__ import annotations

from collections.abc import Callable

from backend.runtime.job.config import UNLIMITED
from backend.runtime.measure.cap_decisions import CapAction, CapDecision
from backend.runtime.network.channel import InputChannel
from backend.runtime.protocols.capped import InFlight
from backend.runtime.protocols.choice import Cap
from backend.runtime.task.ports import TaskPort

_NO_CAP_BYTES = 1 << 62


class Capping:
    """Of one attempt of one subtask; ``current_id`` is the newest checkpoint that its input has heard of."""

    def __init__(self, task: TaskPort, current_id: Callable[[], int]) -> None:
        self._task = task
        self._env = task.env
        self._current_id = current_id
        self._decision: CapDecision | None = None

    @property
    def cap(self) -> Cap:
        """What the protocol asks of it; settings as they are when it asks."""
        return Cap(
            self.cap_bytes,
            self._in_flight,
            lambda: self._env.config.on_cap == "decline",
            self._decided,
            lambda: self._env.config.on_cap == "partial",
        )

    def cap_bytes(self) -> int:
        """CAP-6: the cap of this subtask."""
        cap = self._env.coordinator.cap_bytes(self._task.key)
        return _NO_CAP_BYTES if cap == UNLIMITED else cap

    def at_source(self) -> CapAction:
        """A source has no front to drain: what does not fit goes on aligned at once, or is declined (CAP-3, CAP-4)."""
        cap_bytes, output_bytes = self.cap_bytes(), self._in_flight().output_bytes
        action = CapAction.OVERTOOK
        if output_bytes > cap_bytes:
            by_setting = {"decline": CapAction.DECLINED, "partial": CapAction.PARTIAL}
            action = by_setting.get(self._env.config.on_cap, CapAction.ALIGNED)
        self._decision = CapDecision(cap_bytes, output_bytes, output_bytes, 0, action)
        return action

    def take_decision(self) -> CapDecision | None:
        """CAP-7: what was decided of the checkpoint that now snapshots or is given up; told once."""
        decision, self._decision = self._decision, None
        return decision

    def _decided(self, decision: CapDecision) -> None:
        self._decision = decision

    def _in_flight(self) -> InFlight:
        """CAP-1: what would be persisted if the checkpoint started now."""
        task, pending = self._task, self._current_id()
        waiting = sum(channel.front_bytes(pending) for channel in task.gate.channels)
        overtakable = sum(output.queued[1] for output in task.outputs if output.can_overtake)
        return InFlight(waiting, overtakable)


def may_poll(channel: InputChannel) -> bool:
    """A channel that is closed behind its cut yields what is in front of it (CAP-3)."""
    return not channel.is_closed or channel.has_front
