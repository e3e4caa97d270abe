"""Goal: at-least-once mode loses no record and repeats exactly the predicted ones (INV-6, ALO-5, INV-15).

Method: an oracle observes every element that a task reads during a checkpoint. If a record arrives after
barrier k of its channel and before the task's snapshot k, this snapshot already includes the record. After a
restore from checkpoint k, the source emits the record again, so it is repeated. The committed ledger must
contain each record once, and once more for each restored checkpoint that includes it early. The runtime's own
counts must equal those of the oracle. Each seed chooses crashes, lost and late messages, records and task
managers.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from backend.domain.barriers import BarrierEvent, BarrierEventKind
from backend.domain.errors import PlanError
from backend.runtime.core.elements import Alignment, Barrier, Element, Event, Record
from backend.runtime.core.prng import Stream
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.measures import CheckpointState
from backend.runtime.network.channel import InputChannel
from backend.runtime.network.gate import InputGate
from backend.runtime.protocols.at_least_once import AtLeastOnce
from backend.runtime.protocols.base import Began, Ended, Forget, Snapshot
from backend.runtime.task.task import Task
from tests.support.inside_jobs import pending_ids
from tests.support.invariants import Watch, run_to_the_end
from tests.support.runtime_jobs import RECORDS, STAYS, late_triggers, points_of, small_job, two_subtasks_job

_CP = "execution.checkpointing."
_MODE: dict[str, object] = {f"{_CP}mode": "AT_LEAST_ONCE"}
_RECORDS = 700
_SEEDS = 12


class _Oracle:
    """Counts, for each checkpoint, the records that tasks processed after its barriers and before their snapshots."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.repeatable: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._behind: defaultdict[int, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        take = Task._take

        def taken(task: Task, channel: InputChannel, element: Element | Event) -> None:
            self._on_element(task.gate, channel, element)
            take(task, channel, element)

        monkeypatch.setattr(Task, "_take", taken)

    def attach(self, engine: JobEngine) -> None:
        """Observe the snapshots of the engine's tasks."""

        def on_event(checkpoint_id: int, event: BarrierEvent) -> None:
            if event.kind is BarrierEventKind.SNAPSHOT_SYNC_START:
                task = next(t for t in engine.tasks if t.spec.id == event.vertex_id and t.index == event.subtask)
                behind = self._behind[id(task.gate)]
                for over in [k for k in behind if k <= checkpoint_id]:
                    del behind[over]

        engine.env.log.listener = on_event

    def _on_element(self, gate: InputGate, channel: InputChannel, element: Element | Event) -> None:
        behind = self._behind[id(gate)]
        if isinstance(element, Barrier):
            behind[element.checkpoint_id].add(channel.index)
        elif isinstance(element, Record):
            for k, channels in behind.items():
                if channel.index in channels:
                    self.repeatable[k][element.origin] += 1


def _drawn(seed: int) -> JobSpec:
    draws = Stream(seed, "at least once")
    points = points_of("aligned")
    plan = [FaultSpec("coordinator.between-notifies", hit=2 + draws.below(14))]
    plan += [FaultSpec(points[draws.below(len(points))], hit=1 + draws.below(20)) for _ in range(draws.below(3))]
    plan += [FaultSpec("rpc.abort", hit=1 + draws.below(4), action=FaultAction.DROP)]
    if seed % 3:
        plan += late_triggers()
    if seed % 4 == 0:
        plan += [FaultSpec("rpc.ack", hit=4 + 9 * i, action=FaultAction.DROP) for i in range(3)]
    config = _MODE | {f"{_CP}max-concurrent-checkpoints": 1 + seed % 3, f"{_CP}timeout": "400 ms"}
    return small_job(
        "aligned",
        seed=seed,
        parallelism=2 + seed % 2,
        task_managers=1 + draws.below(2),
        fuzz=draws.below(3) and 1 + seed,
        plan=tuple(plan),
        records=_RECORDS,
        record_bytes=(60, 120, 700)[draws.below(3)],
        config=config,
    )


def test_no_record_is_lost_and_exactly_the_predicted_ones_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    repeated_in_all = counted_checkpoints = 0
    for seed in range(_SEEDS):
        oracle = _Oracle(monkeypatch)
        engine = JobEngine(_drawn(seed), keeps_rows=True)
        oracle.attach(engine)
        Watch(engine, records=_RECORDS, is_exact=False).run_to_the_end()
        restored = {r.restored_id for r in engine.restarts if r.restored_id is not None}
        found = Counter(row.origin for row in engine.ledger.rows)
        predicted = Counter(dict.fromkeys(found, 1))
        for k in restored:
            predicted.update(dict.fromkeys(oracle.repeatable[k], 1))
        assert len(found) == _RECORDS, f"seed {seed}: records are missing"
        assert found == predicted, f"seed {seed}: {sum(found.values())} rows, {sum(predicted.values())} predicted"
        repeated_in_all += sum(found.values()) - _RECORDS
        for record in engine.coordinator.all_completed:
            counted_checkpoints += record.repeatable_records > 0
            told, seen = record.repeatable_records, sum(oracle.repeatable[record.id].values())
            assert told == seen, f"seed {seed}, checkpoint {record.id}: {told} reported, {seen} seen"
        told_of_restarts = [r.repeated_records for r in engine.restarts]
        seen_of_restarts = [sum(oracle.repeatable[r.restored_id or 0].values()) for r in engine.restarts]
        assert told_of_restarts == seen_of_restarts, f"seed {seed}"
        monkeypatch.undo()
    assert repeated_in_all > 150, f"only {repeated_in_all} records were repeated: the seeds test little"
    assert counted_checkpoints > 10


def test_no_channel_is_ever_blocked_and_nothing_is_persisted_in_flight() -> None:
    late = tuple(late_triggers())
    engine = JobEngine(small_job("aligned", parallelism=3, task_managers=2, config=_MODE | STAYS, plan=late))
    seen: Counter[BarrierEventKind] = Counter()
    engine.env.log.listener = lambda _, event: seen.update([event.kind])
    engine.run_until(600_000)
    assert engine.coordinator.completed_count >= 3
    assert seen[BarrierEventKind.SNAPSHOT_SYNC_START] > 20
    assert not seen[BarrierEventKind.CHANNEL_BLOCKED]
    assert {r.persisted_bytes for r in engine.coordinator.all_completed} == {0}
    assert {r.barrier.alignment for r in engine.coordinator.history} == {Alignment.AT_LEAST_ONCE}


def test_the_alignment_is_measured_although_no_channel_is_blocked() -> None:
    late = tuple(late_triggers())
    engine = JobEngine(small_job("aligned", parallelism=2, records=None, config=_MODE, plan=late))
    engine.run_until(900_000)
    acks = [ack.measured for record in engine.coordinator.all_completed for ack in record.acks.values()]
    aligning = [m for m in acks if m.alignment_us]
    # Every second trigger is 45 ms late. A map subtask waits about as long for its second barrier, and reads records
    # meanwhile.
    assert max(m.alignment_us or 0 for m in aligning) > 40_000
    assert sum(m.processed_bytes or 0 for m in aligning) > 0
    assert all(m.alignment_us is not None and m.processed_bytes is not None for m in acks)
    assert all(m.repeatable_records == 0 for m in acks if not m.alignment_us)


def test_a_savepoint_of_a_job_in_this_mode_is_at_least_once_too() -> None:
    engine = JobEngine(two_subtasks_job(mode="AT_LEAST_ONCE"))
    engine.run_until(200_000)
    savepoint = engine.request_savepoint()
    engine.run_until(300_000)
    record = next(r for r in engine.coordinator.history if r.id == savepoint.checkpoint_id)
    assert record.state is CheckpointState.COMPLETED
    assert (record.is_savepoint, record.barrier.alignment) == (True, Alignment.AT_LEAST_ONCE)


def test_the_mode_allows_concurrent_checkpoints_but_not_unaligned_ones() -> None:
    engine = run_to_the_end(
        small_job("aligned", config=_MODE | {f"{_CP}max-concurrent-checkpoints": 3}), records=RECORDS
    )
    assert engine.coordinator.completed_count > 2
    with pytest.raises(PlanError, match="require exactly-once mode") as refused:
        small_job("unaligned", config=_MODE)
    assert refused.value.rule == "ALO-5"
    with pytest.raises(PlanError):
        engine.set_config({f"{_CP}unaligned.enabled": True})


def test_checkpoints_whose_aborts_are_lost_do_not_pile_up_at_a_task() -> None:
    drop = tuple(FaultSpec("rpc.abort", hit=1, action=FaultAction.DROP) for _ in range(400))
    lost = tuple(FaultSpec("rpc.trigger", hit=3, action=FaultAction.DROP) for _ in range(12))
    config = _MODE | {f"{_CP}timeout": "150 ms", f"{_CP}max-concurrent-checkpoints": 2}
    spec = small_job("aligned", records=None, plan=(*drop, *lost), config=config, keyed={"cost_us": 150})
    engine = JobEngine(spec)
    engine.run_until(3_000_000)
    assert engine.coordinator.failed_count > 5
    assert engine.coordinator.completed_count > 5
    # Although all aborts were lost, a task drops an aborted checkpoint as soon as a newer one completes at this task
    # (ALO-2).
    assert max(len(pending_ids(task)) for task in engine.tasks) <= 4


def test_fifty_checkpoints_are_tracked_and_a_further_one_drops_the_oldest() -> None:
    def barrier(k: int) -> Barrier:
        return Barrier(k, 0, Alignment.AT_LEAST_ONCE)

    keeper = AtLeastOnce(2)
    for k in range(1, 51):
        assert keeper.barrier(0, barrier(k), 0) == [Began(barrier(k))]
    assert keeper.barrier(0, barrier(51), 0) == [Began(barrier(51)), Forget(1)]
    assert keeper.barrier(1, barrier(1), 0) == []
    assert keeper.barrier(1, barrier(2), 0) == [Ended(2), Snapshot(barrier(2))]
