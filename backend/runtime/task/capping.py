"""What a checkpoint with an in-flight cap needs from its subtask: the cap, and the in-flight bytes (runtime.md 2.10).

The module also stores what the checkpoint did because of the cap.
"""

from __future__ import annotations

from collections.abc import Callable

from backend.runtime.job.config import UNLIMITED
from backend.runtime.job.graph import Partitioner
from backend.runtime.measure.cap_decisions import CapDecision
from backend.runtime.network.channel import InputChannel
from backend.runtime.protocols.mode import Cap, InFlight
from backend.runtime.task.ports import TaskPort

_NO_CAP_BYTES = 1 << 62


class Capping:
    """Provides the in-flight cap of one attempt of one subtask to the protocol.

    ``current_id`` returns the id of the newest checkpoint that has reached the subtask's input.
    """

    def __init__(self, task: TaskPort, current_id: Callable[[], int]) -> None:
        self._task = task
        self._env = task.env
        self._current_id = current_id
        self._decision: CapDecision | None = None

    @property
    def cap(self) -> Cap:
        """What the protocol can read of this subtask. Each call uses the settings in force at that time."""
        return Cap(
            self.cap_bytes,
            self._in_flight,
            lambda: self._env.config.on_cap,
            self._decided,
            self._begun_bytes_max,
        )

    def cap_bytes(self) -> int:
        """Return the in-flight cap of this subtask, in bytes (CAP-6)."""
        cap = self._env.coordinator.cap_bytes(self._task.key)
        return _NO_CAP_BYTES if cap == UNLIMITED else cap

    def take_decision(self) -> CapDecision | None:
        """Remove and return the cap decision on the checkpoint that snapshots or is given up now (CAP-7)."""
        decision, self._decision = self._decision, None
        return decision

    def _decided(self, decision: CapDecision) -> None:
        self._decision = decision

    def _begun_bytes_max(self) -> int:
        """Return the most that a receiver of this subtask may hold of records whose ends have not arrived.

        This is one byte less than a record for each input channel of the receiver.
        """
        graph = self._env.graph
        largest = max(max(vertex.record_bytes, vertex.output_bytes) for vertex in graph.vertices)
        receivers = [graph.edges[edge].target for edge in graph.outputs(self._task.spec.id)]
        return (largest - 1) * max((self._channels_into(receiver) for receiver in receivers), default=0)

    def _channels_into(self, vertex_id: str) -> int:
        graph = self._env.graph
        edges = [graph.edges[edge] for edge in graph.inputs(vertex_id)]
        return sum(1 if e.partitioner is Partitioner.FORWARD else graph.vertex(e.source).parallelism for e in edges)

    def _in_flight(self) -> InFlight:
        """Return the bytes that would be persisted if the checkpoint started now (CAP-1)."""
        overtakable = sum([output.queued_bytes for output in self._task.outputs if output.can_overtake])
        return InFlight(self.input_bytes(), overtakable)

    def input_bytes(self) -> int:
        """Return the bytes of input in front of the cuts of the newest checkpoint that are not processed."""
        pending = self._current_id()
        return sum([channel.front_bytes(pending) for channel in self._task.gate.channels])


def may_poll(channel: InputChannel) -> bool:
    """Return whether the channel may be read.

    From a closed channel, only data in front of its cut may be read (CAP-3).
    """
    return not channel.is_closed or channel.has_front
