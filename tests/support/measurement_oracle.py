"""Compute every measurement of a checkpoint from the trace, to check the runtime's values (T-13; ME-1 to ME-9, ME-11).

The oracle uses only the barrier events and the bytes that each gate polled, not the runtime's measuring code.
"""

from __future__ import annotations

from collections import defaultdict

from backend.domain.barriers import BarrierEvent, BarrierEventKind
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import Ack, MeasuredCheckpoint, PhaseOrder
from backend.runtime.task.task import Task

Kind = BarrierEventKind
_ARRIVALS = (Kind.BARRIER_RECEIVED, Kind.LOG_CLOSED)
_Row = tuple[int, int, BarrierEvent]


class MeasurementOracle:
    """The barrier events of each checkpoint, by vertex and subtask.

    Each event has its absolute virtual time, and the number of bytes that the subtask had polled by then.
    """

    def __init__(self, engine: JobEngine) -> None:
        self._engine = engine
        self._events: defaultdict[int, defaultdict[tuple[str, int], list[_Row]]] = defaultdict(
            lambda: defaultdict(list)
        )
        # If faults delay acknowledgements, the usual bound on their latency does not hold.
        self._are_acks_late = any(fault.point == "rpc.ack" for fault in engine.spec.faults)

    def on_event(self, checkpoint_id: int, event: BarrierEvent, task: Task) -> None:
        """Record an event of a checkpoint at a task."""
        is_received = event.kind in _ARRIVALS
        polled = sum(c.bytes_received for c in task.gate.channels) if is_received else 0
        self._events[checkpoint_id][event.vertex_id, event.subtask].append((self._engine.now_us, polled, event))

    def forget(self, checkpoint_id: int) -> None:
        """Discard the events of a checkpoint that ended."""
        self._events.pop(checkpoint_id, None)

    def check(self, record: MeasuredCheckpoint) -> int:
        """Assert that the measurements of a completed checkpoint match the trace.

        Return how many subtasks were checked.
        """
        has_bundles = any(vertex.bundle for vertex in record.graph.vertices)
        residual_us = None if self._are_acks_late else self._message_us()
        _check_critical_path(record, residual_us=residual_us, has_bundles=has_bundles)
        for (vertex, subtask), ack in record.acks.items():
            name = self._engine.spec.graph.vertices[vertex].id
            trace = self._events[record.id][name, subtask]
            _check_subtask(record, ack, trace, f"checkpoint {record.id}, {name}/{subtask}")
        self.forget(record.id)
        return len(record.acks)

    def _message_us(self) -> int:
        # A random schedule may double the latency of a message. The barrier's own cost comes on top, and the time that
        # an acknowledgement waits while the coordinator sends trigger messages (CL-7).
        config, wait_us = self._engine.config, self._engine.env.message_wait_max_us
        return 2 * config.rpc_latency_us + 2 * config.barrier_cost_us + wait_us


def _times(trace: list[_Row], kind: Kind) -> list[int]:
    return [at for at, _, event in trace if event.kind is kind]


def _arrivals(trace: list[_Row]) -> list[tuple[int, int]]:
    """Return (time, bytes read so far) of the first event that shows the barrier on each channel, in order.

    The log of a channel may end before its marker is read (CL-6).
    """
    seen: dict[object, tuple[int, int]] = {}
    for at, polled, event in trace:
        if event.kind in _ARRIVALS:
            seen.setdefault(event.channel, (at, polled))
    return list(seen.values())


def _bytes_of(trace: list[_Row], kind: Kind) -> int:
    return sum(event.size_bytes or 0 for _, _, event in trace if event.kind is kind)


def _check_subtask(record: MeasuredCheckpoint, ack: Ack, trace: list[_Row], where: str) -> None:
    measured = ack.measured
    received = _arrivals(trace)
    first = received[0][0] if received else _times(trace, Kind.SNAPSHOT_SYNC_START)[0]
    last = received[-1][0] if received else first
    assert measured.start_delay_us == first - record.triggered_at_us, where
    assert measured.alignment_us == last - first, where
    (sync_start,) = _times(trace, Kind.SNAPSHOT_SYNC_START)
    (sync_end,) = _times(trace, Kind.SNAPSHOT_SYNC_END)
    (async_end,) = _times(trace, Kind.SNAPSHOT_ASYNC_END)
    assert measured.sync_us == sync_end - sync_start, where
    assert measured.async_us == async_end - sync_end, where
    assert [ack.at_us] == _times(trace, Kind.ACKED), where
    if received:
        assert measured.processed_bytes == received[-1][1] - received[0][1], where
    assert measured.persisted_bytes == _bytes_of(trace, Kind.CHANNEL_STATE_PERSISTED), where
    assert _bytes_of(trace, Kind.OVERTOOK) <= measured.persisted_bytes, where
    # ME-11: the phases fit into the total time. What remains is the barrier's own cost and the latency of the
    # acknowledgement.
    parts = measured.start_delay_us + (measured.sync_us or 0) + (measured.async_us or 0)
    if not measured.persisted_bytes and sync_start == last:
        parts += measured.alignment_us or 0
    assert ack.at_us - record.triggered_at_us >= parts, where


def _check_critical_path(record: MeasuredCheckpoint, *, residual_us: int | None, has_bundles: bool) -> None:
    where = f"the critical path of checkpoint {record.id}"
    path = record.critical_path
    assert path is not None
    ack = record.acks[path.task]
    assert ack.at_us == record.latest_ack_us == record.triggered_at_us + path.end_to_end_us, where
    parts = path.start_delay_us + path.before_snapshot_us + path.sync_us + path.async_us
    assert path.end_to_end_us == parts + path.residual_us, where
    assert (path.start_delay_us, path.sync_us) == (ack.measured.start_delay_us, ack.measured.sync_us), where
    assert path.async_us == ack.measured.async_us, where
    if ack.measured.order is PhaseOrder.ALIGN_FORWARD_SNAPSHOT and ack.measured.cap is None:
        # After the alignment, the barrier may wait only for the buffers of bundled records (TE-2).
        waited_us = path.before_snapshot_us - (ack.measured.alignment_us or 0)
        assert waited_us == 0 or (has_bundles and waited_us > 0), where
    assert path.residual_us >= 0, where
    assert residual_us is None or path.residual_us <= residual_us, f"{where}: {path.residual_us} us are unaccounted for"
