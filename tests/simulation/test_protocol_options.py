"""Goal: options that are off by default have their documented effect and lose no record (UC-13, AT-13, AT-14, CAP-7).

Method: a small job runs with an option and without it, and the checkpoints of both runs are compared. Another
job runs with all options and with crashes at random failpoints, and its committed ledger is compared with the
sources.
"""

from __future__ import annotations

import pytest

from backend.domain.barriers import BarrierEvent, BarrierEventKind
from backend.runtime.core.elements import Alignment
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.cap_decisions import CapAction
from backend.runtime.measure.measures import MeasuredCheckpoint, PhaseOrder
from tests.support.invariants import run_to_the_end
from tests.support.runtime_jobs import RECORDS, drawn_run, late_triggers, small_job

_AT = "execution.checkpointing.aligned-checkpoint-timeout"
_MISSING, _UNFLUSHED = "runtime.prioritize-missing", "runtime.overtake-unflushed"
_OWN_CLOCK = "runtime.align-after-first-barrier"


def _completed(engine: JobEngine, until_us: int) -> list[MeasuredCheckpoint]:
    engine.run_until(until_us)
    return list(engine.coordinator.all_completed)


def _median_us(records: list[MeasuredCheckpoint]) -> int:
    return sorted(r.end_to_end_us or 0 for r in records)[len(records) // 2]


def test_channels_without_barrier_are_read_first_but_the_checkpoint_is_no_shorter() -> None:
    medians: list[int] = []
    behind: list[int] = []
    for prefers in (False, True):
        spec = small_job(
            "unaligned", seed=2, records=None, parallelism=3, plan=tuple(late_triggers()), config={_MISSING: prefers}
        )
        engine = JobEngine(spec)
        counter = _BehindBarriers(engine)
        records = _completed(engine, 8_000_000)
        assert len(records) > 30
        medians.append(_median_us(records))
        behind.append(counter.bytes)
        assert all(task.gate.prefers is None or engine.coordinator.in_progress_count for task in engine.tasks)
    # With the option, channels whose barrier has arrived are read only while no other channel has input.
    assert behind[1] < 0.8 * behind[0]
    assert medians[1] == pytest.approx(medians[0], rel=0.1)


class _BehindBarriers:
    """Counts the bytes that a task reads from channels whose barrier has arrived, while it waits for other barriers."""

    def __init__(self, engine: JobEngine) -> None:
        self.bytes = 0
        self._engine = engine
        self._at_barrier: dict[tuple[int, str, int], dict[int, int]] = {}
        engine.env.log.listener = self._on_event

    def _on_event(self, checkpoint_id: int, event: BarrierEvent) -> None:
        if event.kind is not BarrierEventKind.BARRIER_RECEIVED:
            return
        task = next(t for t in self._engine.tasks if (t.spec.id, t.index) == (event.vertex_id, event.subtask))
        channel = next(c for c in task.gate.channels if task.channel_id(c.key) == event.channel)
        received = self._at_barrier.setdefault((checkpoint_id, event.vertex_id, event.subtask), {})
        received[channel.index] = channel.bytes_received
        if len(received) == len(task.gate.channels):
            self.bytes += sum(task.gate.channels[i].bytes_received - then for i, then in received.items())


def test_a_barrier_overtakes_after_its_wait_in_an_output_queue_long_before_the_timeout() -> None:
    # The global timeout never expires, so a barrier can overtake only because it waited in an output queue.
    never = {_AT: "1 h"}
    aligned = _completed(JobEngine(small_job("aligned-timeout", seed=4, records=None, config=dict(never))), 4_000_000)
    config: dict[str, object] = {**never, _UNFLUSHED: "10 ms"}
    unflushed = _completed(JobEngine(small_job("aligned-timeout", seed=4, records=None, config=config)), 4_000_000)
    assert sum(r.persisted_bytes for r in aligned) == 0
    assert all(r.persisted_bytes > 0 for r in unflushed[3:])
    assert _median_us(unflushed) < _median_us(aligned) / 5
    first_hop = max(a.measured.start_delay_us for a in unflushed[-1].acks.values())
    assert first_hop < 60_000, "each hop waits 10 ms at most, and the running step"


def test_the_global_timeout_still_bounds_the_age_if_the_hop_would_wait_longer() -> None:
    config: dict[str, object] = {_AT: "20 ms", _UNFLUSHED: "30 s"}
    plain = _completed(JobEngine(small_job("aligned-timeout", seed=4, records=None, config={_AT: "20 ms"})), 3_000_000)
    both = _completed(JobEngine(small_job("aligned-timeout", seed=4, records=None, config=config)), 3_000_000)
    assert [r.end_to_end_us for r in both] == [r.end_to_end_us for r in plain]


def test_with_a_clock_per_task_barriers_wait_longer_and_switch_less_often() -> None:
    switched: list[int] = []
    medians: list[int] = []
    for own in (False, True):
        engine = JobEngine(small_job("aligned-timeout", seed=5, records=None, config={_AT: "200 ms", _OWN_CLOCK: own}))
        records = _completed(engine, 4_000_000)
        orders = [a.measured.order for r in records for a in r.acks.values()]
        switched.append(orders.count(PhaseOrder.FORWARD_SNAPSHOT_LOG))
        medians.append(_median_us(records))
    assert switched[1] < switched[0]
    assert medians[1] > medians[0] + 20_000


def test_the_decision_at_the_cap_is_reported_for_each_subtask() -> None:
    actions: set[CapAction] = set()
    for cap in (300, 3_000, 6_000, 12_000):
        config: dict[str, object] = {"runtime.inflight-cap.bytes": cap}
        late = tuple(late_triggers())
        engine = JobEngine(small_job("unaligned", seed=1, records=None, task_managers=2, plan=late, config=config))
        for record in _completed(engine, 2_500_000):
            for key, ack in record.acks.items():
                where = f"cap {cap}, checkpoint {record.id}, {key}"
                decision = ack.measured.cap
                assert decision is not None, where
                actions.add(decision.action)
                assert decision.cap_bytes == cap, where
                if decision.action in (CapAction.OVERTOOK, CapAction.WAITED):
                    assert ack.measured.persisted_bytes == decision.in_flight_bytes <= cap, where
                    assert (decision.waited_us > 0) == (decision.action is CapAction.WAITED), where
                    assert (decision.in_flight_before_bytes > cap) == (decision.action is CapAction.WAITED), where
                else:
                    assert ack.measured.persisted_bytes == 0, where
                    assert decision.in_flight_before_bytes > cap, where
    assert actions == {CapAction.OVERTOOK, CapAction.WAITED, CapAction.ALIGNED}
    uncapped = JobEngine(small_job("unaligned", seed=1, records=None))
    assert all(a.measured.cap is None for r in _completed(uncapped, 1_000_000) for a in r.acks.values())


def test_the_event_of_a_decline_at_the_cap_has_its_bytes() -> None:
    config: dict[str, object] = {"runtime.inflight-cap.bytes": 100, "runtime.inflight-cap.on-cap": "decline"}
    engine = JobEngine(small_job("unaligned", seed=1, records=None, config=config))
    declined: list[int | None] = []

    def on_event(_: int, event: BarrierEvent) -> None:
        if event.kind is BarrierEventKind.ABORTED and event.reason == "inflight-limit-exceeded":
            declined.append(event.size_bytes)

    engine.env.log.listener = on_event
    engine.run_until(2_000_000)
    assert declined
    assert all(size is not None and size > 100 for size in declined)


@pytest.mark.parametrize("protocol", ["unaligned", "aligned-timeout"])
def test_all_options_together_lose_and_repeat_nothing(protocol: str) -> None:
    restarts = 0
    for seed in range(0, 45, 5):
        options = {_MISSING: True, _UNFLUSHED: "5 ms", _OWN_CLOCK: bool(seed % 2)}
        engine = run_to_the_end(drawn_run(protocol, seed).with_config(options), records=RECORDS)
        restarts += engine.restart_count
    assert restarts > 5


def test_phase_order_and_kinds_of_barriers_are_reported_for_each_subtask() -> None:
    orders: dict[str, set[PhaseOrder]] = {}
    kinds: set[tuple[Alignment | None, Alignment | None]] = set()
    for protocol in ("aligned", "unaligned", "aligned-timeout"):
        timeout = {_AT: "200 ms"} if protocol == "aligned-timeout" else {}
        engine = JobEngine(small_job(protocol, seed=5, records=None).with_config(timeout))
        for record in _completed(engine, 3_000_000):
            for ack in record.acks.values():
                orders.setdefault(protocol, set()).add(ack.measured.order)
                kinds.add((ack.measured.received, ack.measured.forwarded))
    source, aligned, unaligned = PhaseOrder.FORWARD_SNAPSHOT, PhaseOrder.ALIGN_FORWARD_SNAPSHOT, PhaseOrder("F-S-L")
    assert orders["aligned"] == {source, aligned}
    assert orders["unaligned"] == {source, unaligned}
    assert orders["aligned-timeout"] == {source, aligned, unaligned}
    assert kinds >= {(kind, kind) for kind in (Alignment.ALIGNED, Alignment.UNALIGNED)}
