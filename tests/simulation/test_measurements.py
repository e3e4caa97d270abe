"""Goal: every measurement equals what an oracle computes from the trace (T-13; ME-1 to ME-9, ME-11, ME-19).

Method: the oracle listens to the barrier events and to the polls of each gate, and knows nothing of how the runtime
measures. Ten seeds of drawn schedules a protocol.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from backend.domain.barriers import BarrierEvent, BarrierEventKind
from backend.runtime.kernel import Engine
from backend.runtime.measures import CheckpointRecord, PhaseOrder
from tests.support.runtime_jobs import PROTOCOLS, small_job

Kind = BarrierEventKind


class _Trace:
    """Events by (checkpoint, vertex, subtask) at absolute virtual times, and bytes polled by then."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.events: defaultdict[tuple[int, str, int], list[tuple[int, int, BarrierEvent]]] = defaultdict(list)
        engine.env.log.listener = self._on_event

    def _on_event(self, checkpoint_id: int, event: BarrierEvent) -> None:
        task = next(t for t in self._engine.tasks if (t.spec.id, t.index) == (event.vertex_id, event.subtask))
        polled = sum(c.bytes_received for c in task.gate.channels)
        row = (self._engine.now_us, polled, event)
        self.events[checkpoint_id, event.vertex_id, event.subtask].append(row)

    def times(self, key: tuple[int, str, int], kind: Kind) -> list[int]:
        return [at for at, _, event in self.events[key] if event.kind is kind]

    def bytes_of(self, key: tuple[int, str, int], kind: Kind) -> int:
        return sum(event.size_bytes or 0 for _, _, event in self.events[key] if event.kind is kind)

    def polled(self, key: tuple[int, str, int]) -> tuple[int, int]:
        received = [polled for _, polled, event in self.events[key] if event.kind is Kind.BARRIER_RECEIVED]
        return received[0], received[-1]


def _check(engine: Engine, trace: _Trace, record: CheckpointRecord, what: str) -> int:
    for (vertex, subtask), ack in record.acks.items():
        spec = engine.spec.graph.vertices[vertex]
        key = (record.id, spec.id, subtask)
        where = f"{what}, checkpoint {record.id}, {spec.id}/{subtask}"
        measured = ack.measured
        received = trace.times(key, Kind.BARRIER_RECEIVED)
        first = received[0] if received else trace.times(key, Kind.SNAPSHOT_SYNC_START)[0]
        last = received[-1] if received else first
        assert measured.start_delay_us == first - record.triggered_at_us, where
        assert measured.alignment_us == last - first, where
        (sync_start,) = trace.times(key, Kind.SNAPSHOT_SYNC_START)
        (sync_end,) = trace.times(key, Kind.SNAPSHOT_SYNC_END)
        (async_end,) = trace.times(key, Kind.SNAPSHOT_ASYNC_END)
        assert measured.sync_us == sync_end - sync_start, where
        assert measured.async_us == async_end - sync_end, where
        assert [ack.at_us] == trace.times(key, Kind.ACKED), where
        if received:
            before, after = trace.polled(key)
            assert measured.processed_bytes == after - before, where
        assert measured.persisted_bytes == trace.bytes_of(key, Kind.CHANNEL_STATE_PERSISTED), where
        assert trace.bytes_of(key, Kind.OVERTOOK) <= measured.persisted_bytes, where
        # ME-11: nothing is between the phases but the barrier's own cost and the way of the acknowledgement.
        parts = measured.start_delay_us + (measured.sync_us or 0) + (measured.async_us or 0)
        if not measured.persisted_bytes and sync_start == last:
            parts += measured.alignment_us or 0
        assert ack.at_us - record.triggered_at_us >= parts, where
    return len(record.acks)


def _check_critical_path(record: CheckpointRecord, where: str) -> None:
    path = record.critical_path
    assert path is not None
    ack = record.acks[path.task]
    assert ack.at_us == record.latest_ack_us == record.triggered_at_us + path.end_to_end_us, where
    parts = path.start_delay_us + path.before_snapshot_us + path.sync_us + path.async_us
    assert path.end_to_end_us == parts + path.residual_us, where
    assert (path.start_delay_us, path.sync_us) == (ack.measured.start_delay_us, ack.measured.sync_us), where
    assert path.async_us == ack.measured.async_us, where
    if ack.measured.order is PhaseOrder.ALIGN_FORWARD_SNAPSHOT and ack.measured.cap is None:
        assert path.before_snapshot_us == ack.measured.alignment_us, where
    # ME-11: the message takes at most twice its millisecond here.
    assert 0 <= path.residual_us <= 2_100, where


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_measurement_is_what_the_trace_says(protocol: str) -> None:
    checked = 0
    for seed in range(10):
        spec = small_job(protocol, seed=seed, fuzz=seed, task_managers=1 + seed % 2, record_bytes=(120, 700)[seed % 2])
        engine = Engine(spec)
        trace = _Trace(engine)
        records: list[CheckpointRecord] = []
        engine.coordinator.on_terminal = records.append
        engine.run_until(2_000_000)
        for record in records:
            if record.failed_at_us is None:
                _check_critical_path(record, f"{protocol}, seed {seed}, checkpoint {record.id}")
                checked += _check(engine, trace, record, f"{protocol}, seed {seed}")
    assert checked > 300


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_busy_idle_and_backpressured_time_add_up_to_all_time(protocol: str) -> None:
    engine = Engine(small_job(protocol, seed=3, records=None))
    engine.run_until(12_345_678)
    for task in engine.tasks:
        assert sum(task.account.settle(engine.now_us)) == engine.now_us, task.name
        busy, idle, soft, hard = task.account.ms_per_s()
        assert 996 <= busy + idle + soft + hard <= 1000, task.name
    assert any(t.account.totals_us[2] for t in engine.tasks), "nothing was backpressured: the test shows nothing"
