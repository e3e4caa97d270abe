"""Goal: a job either stops with a savepoint or continues as if there had been no request (SV-3, FN-30).

Method: jobs of every protocol are stopped in the middle of their work. All records read before the stop must
be committed once. A job that starts from the savepoint must process the rest. Crashes occur at every step of
stopping. The events that a task receives at the end are compared with a list (runtime.md 6.6).
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.coordinator.failure_policy import Failure, FailurePolicy
from backend.runtime.core.elements import Alignment, Barrier, Element, EndOfData, EndOfPartition, Event, SnapshotType
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.measures import CheckpointState
from backend.runtime.network.channel import InputChannel
from backend.runtime.network.gate import InputGate
from backend.runtime.task.task import TaskStatus
from tests.support.inside_jobs import oldest_open_us, take_over
from tests.support.runtime_jobs import PROTOCOLS, STAYS, exactly_once_violations, small_job, two_subtasks_job

_CP = "execution.checkpointing."
_HELD: dict[str, object] = {"kind": "timer+sink", "hold": "40 ms", "cost_us": 300, "timer_cost_us": 50}


def _read(engine: JobEngine) -> int:
    return sum(task.source.offset for task in engine.tasks if task.source is not None)


def _stopped(spec: JobSpec, *, at_us: int = 330_000, drains: bool = False) -> JobEngine:
    """Run the job, request a stop at ``at_us``, and return the engine.

    The run ends when the job has finished, or after five seconds of virtual time.
    """
    engine = JobEngine(spec, keeps_rows=True)
    engine.run_until(at_us)
    engine.request_stop(drains=drains)
    while engine.status != "FINISHED" and engine.now_us < 5_000_000:
        engine.run_until(engine.now_us + 20_000)
    return engine


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_records_read_before_a_stop_are_committed_once_and_nothing_remains(protocol: str) -> None:
    drains = protocol in ("unaligned", "capped")
    engine = _stopped(small_job(protocol, records=None, task_managers=2), at_us=150_000, drains=drains)
    assert engine.status == "FINISHED"
    assert {task.status for task in engine.tasks} == {TaskStatus.FINISHED}
    assert exactly_once_violations(engine.ledger.rows, _read(engine)) == []
    coordinator = engine.coordinator
    (stop,) = coordinator.triggering.savepoint_requests.values()
    assert (stop.reason, stop.ended_at_us) == (None, engine.ended_at_us)
    assert stop.completed_at_us is not None
    assert coordinator.in_progress_count == engine.queued_bytes == 0
    assert oldest_open_us(engine.ledger) is None, "a transaction was left open"
    total, at_us = coordinator.total_count, engine.now_us
    engine.run_until(at_us + 1_000_000)
    assert coordinator.total_count == total, "a finished job has no checkpoints"
    engine.request_savepoint()
    assert list(coordinator.triggering.savepoint_requests.values())[-1].reason is FailureReason.NOT_ALL_TASKS_RUNNING


@pytest.mark.parametrize("protocol", ["aligned", "unaligned"])
def test_a_stopped_job_continues_from_its_savepoint(protocol: str) -> None:
    records = 1000
    spec = small_job(protocol, records=records)
    first = _stopped(spec, at_us=100_000)
    assert first.status == "FINISHED"
    committed = first.ledger.committed_count
    assert 0 < committed < records
    (stop,) = first.coordinator.triggering.savepoint_requests.values()
    assert stop.checkpoint_id is not None
    second = JobEngine(spec, keeps_rows=True, restore=first.savepoint(stop.checkpoint_id))
    take_over(second.ledger, first.ledger)
    while second.ledger.committed_count < records and second.now_us < 30_000_000:
        second.run_until(second.now_us + 100_000)
    assert exactly_once_violations(second.ledger.rows, records) == []


def test_with_drain_every_timer_fires_and_without_drain_none_does() -> None:
    spec = small_job("aligned", records=None, keyed=_HELD)
    drained, suspended = (_stopped(spec, drains=drains) for drains in (True, False))
    assert drained.ledger.committed_count == _read(drained)
    # The records that timers still hold are stored in the savepoint.
    assert 0 < suspended.ledger.committed_count < _read(suspended)
    fired = [max(task.watermark_us for task in e.tasks) for e in (drained, suspended)]
    assert fired[0] > 1 << 60 > fired[1]


def test_each_channel_ends_in_the_specified_order(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    next_element = InputGate.next_element

    def watched(gate: InputGate) -> tuple[InputChannel, Element | Event] | None:
        found = next_element(gate)
        if found is not None and isinstance(found[1], (EndOfData, EndOfPartition, Barrier)):
            element = found[1]
            is_stop = not isinstance(element, Barrier) or element.snapshot_type.is_synchronous
            if is_stop:
                drained = element.is_drained if isinstance(element, EndOfData) else None
                seen[id(gate), found[0].index].append(
                    type(element).__name__ + ("" if drained is None else str(drained))
                )
        return found

    monkeypatch.setattr(InputGate, "next_element", watched)
    # Every subtask is notified twice that the savepoint is complete, but must finish only once.
    twice = FaultSpec("rpc.notify", hit=1, action=FaultAction.DUPLICATE, times=1_000, delay_us=100)
    for drains in (False, True):
        seen.clear()
        spec = small_job("unaligned", records=None, task_managers=2, plan=(twice,))
        engine = _stopped(spec, at_us=120_000, drains=drains)
        assert engine.status == "FINISHED"
        assert engine.env.faults.struck["rpc.notify"] >= len(engine.tasks)
        assert Counter(map(tuple, seen.values())) == {(f"EndOfData{drains}", "Barrier", "EndOfPartition"): 2 * 2 * 2}


_STEPS = (
    "task.before-first-barrier",
    "task.before-forward",
    "task.between-outputs",
    "task.in-sync",
    "task.after-sync",
    "task.before-ack",
    "task.after-ack",
    "coordinator.on-ack",
    "coordinator.before-metadata",
    "coordinator.after-metadata",
    "coordinator.after-store",
    "coordinator.between-notifies",
    "task.in-notify",
    "sink.before-pre-commit",
    "sink.after-pre-commit",
    "sink.before-commit",
    "sink.after-commit",
)


def test_after_a_crash_at_any_step_of_stopping_the_job_runs_and_loses_and_repeats_nothing() -> None:
    """With an interval of an hour, no other checkpoint runs, so every failpoint that is reached belongs to the stop."""
    records, recovered_from_it = 400, 0
    for number, point in enumerate(_STEPS):
        drains = number % 2 == 1
        hit = 1 + number % 3 if point.startswith("task.") else 1
        plan = (FaultSpec(point, hit=hit),)
        spec = small_job("aligned", records=records, seed=number, plan=plan, config=STAYS | {f"{_CP}interval": "1 h"})
        engine = JobEngine(spec, keeps_rows=True)
        engine.run_until(60_000)
        stop = engine.request_stop(drains=drains)
        engine.run_until(1_500_000)
        assert engine.env.faults.struck[point] == 1, point
        # The crash must strike before the last subtask is notified. Otherwise, the job would have ended without a
        # restart.
        assert engine.restart_count == 1, point
        assert (engine.status, stop.reason is None) == ("RUNNING", False), point
        is_complete = stop.completed_at_us is not None
        recovered_from_it += is_complete
        assert engine.restored_id == (stop.checkpoint_id if is_complete else None), f"{point}: CO-8"
        assert stop.reason is (FailureReason.TASK_FAILURE if is_complete else FailureReason.COORDINATOR_SUSPENDED), (
            point
        )
        # The job has not stopped in part (FN-30): it still reads records, and its checkpoints commit them.
        engine.set_config({f"{_CP}interval": "100 ms"})
        while engine.ledger.committed_count < records and engine.now_us < 30_000_000:
            engine.coordinator.triggering.request_checkpoint()
            engine.run_until(engine.now_us + 100_000)
        assert exactly_once_violations(engine.ledger.rows, records) == [], f"{point}, drain {drains}"
    assert recovered_from_it >= 4


def test_a_failure_after_the_savepoint_ends_the_job_if_the_settings_say_so() -> None:
    config: dict[str, object] = {"runtime.on-stop-failure": "fail", f"{_CP}interval": "1 h"}
    engine = JobEngine(small_job("aligned", plan=(FaultSpec("sink.after-commit"),), config=config | STAYS))
    engine.run_until(60_000)
    stop = engine.request_stop()
    engine.run_until(2_000_000)
    assert (engine.status, stop.reason) == ("FAILED", FailureReason.TASK_FAILURE)
    assert str(stop.checkpoint_id) in engine.exceptions[0].message
    # If the savepoint is not complete yet, the job restarts, because a restart loses nothing.
    engine = JobEngine(small_job("aligned", plan=(FaultSpec("task.before-ack"),), config=config | STAYS))
    engine.run_until(60_000)
    engine.request_stop()
    engine.run_until(2_000_000)
    assert engine.status == "RUNNING"


def test_a_savepoint_from_which_the_job_recovered_stays_owned_by_the_user() -> None:
    engine = JobEngine(
        small_job("aligned", plan=(FaultSpec("sink.after-commit"),), config=STAYS | {f"{_CP}interval": "1 h"})
    )
    engine.run_until(60_000)
    stop = engine.request_stop()
    engine.run_until(1_000_000)
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(1_500_000)
    newest = engine.coordinator.newest
    assert newest is not None
    assert newest.record.id > (stop.checkpoint_id or 0), "a newer checkpoint has taken its place (CO-12)"
    record = next(r for r in engine.coordinator.history if r.id == stop.checkpoint_id)
    assert not record.is_discarded
    assert engine.savepoint(record.id) is not None


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (FaultSpec("rpc.ack", at_us=200_000, action=FaultAction.DROP), FailureReason.EXPIRED),
        (FaultSpec("store.write", at_us=200_000, action=FaultAction.ERROR), FailureReason.ASYNC_FAILURE),
        (FaultSpec("coordinator.metadata", at_us=200_000, action=FaultAction.ERROR), FailureReason.FINALIZE_FAILURE),
    ],
    ids=lambda value: value.value if isinstance(value, FailureReason) else "",
)
def test_a_stop_that_fails_fails_the_job_whatever_failures_are_tolerable(
    fault: FaultSpec, reason: FailureReason
) -> None:
    engine = JobEngine(
        two_subtasks_job(store_ms=10, timeout="300 ms", interval="100 ms", plan=(fault,)), keeps_rows=True
    )
    engine.run_until(200_000)
    stop = engine.request_stop()
    engine.run_until(1_500_000)
    assert (stop.reason, engine.restart_count, engine.status) == (reason, 1, "RUNNING")
    assert engine.exceptions[0].message.startswith("Stopping with a savepoint failed")
    newest = engine.coordinator.newest
    assert newest is not None
    assert newest.record.triggered_at_us > engine.exceptions[0].at_us, "checkpoints continue"


def test_a_stop_is_refused_while_a_task_restores_and_the_job_continues() -> None:
    spec = two_subtasks_job(store_ms=1, plan=(FaultSpec("source.after-emit", at_us=300_000),), interval="20 ms")
    engine = JobEngine(spec.with_config({"runtime.cost.recovery-bytes-per-s": 1_000}))
    while engine.status != "RESTARTING":
        engine.run_until(engine.now_us + 1_000)
    while engine.status == "RESTARTING":
        engine.run_until(engine.now_us + 1_000)
    stop = engine.request_stop()
    assert stop.reason is FailureReason.NOT_ALL_TASKS_RUNNING
    completed = engine.coordinator.completed_count
    engine.run_until(engine.now_us + 1_000_000)
    assert (engine.status, engine.coordinator.triggering.stop) == ("RUNNING", None)
    assert engine.coordinator.completed_count > completed + 10


def test_while_a_job_stops_nothing_else_is_triggered_and_a_second_stop_returns_the_first() -> None:
    engine = JobEngine(two_subtasks_job(store_ms=400, interval="100 ms", max_concurrent_checkpoints=2))
    engine.run_until(150_000)
    assert engine.coordinator.in_progress_count == 2
    stop = engine.request_stop()
    assert engine.coordinator.in_progress_count == 1, "the pending checkpoints fail before the savepoint begins"
    assert engine.request_stop(drains=True) is stop
    waiting = engine.request_savepoint()
    engine.run_until(2_000_000)
    assert (engine.status, stop.reason, stop.kind) == ("FINISHED", None, SnapshotType.SAVEPOINT_SUSPEND)
    assert waiting.reason is FailureReason.COORDINATOR_SHUTDOWN
    assert [(r.id, r.state, r.reason) for r in engine.coordinator.history] == [
        (stop.checkpoint_id, CheckpointState.COMPLETED, None),
        (2, CheckpointState.FAILED, FailureReason.COORDINATOR_SUSPENDED),
        (1, CheckpointState.FAILED, FailureReason.COORDINATOR_SUSPENDED),
    ]


def test_a_stop_in_at_least_once_mode_is_at_least_once() -> None:
    engine = _stopped(small_job("aligned", records=None, config={f"{_CP}mode": "AT_LEAST_ONCE"}))
    assert engine.status == "FINISHED"
    assert engine.coordinator.history[0].barrier.alignment is Alignment.AT_LEAST_ONCE
    assert engine.ledger.committed_count == _read(engine)


def test_a_job_file_can_request_a_stop_at_a_time() -> None:
    document = {
        "name": "stops",
        "vertex": [{"id": "s", "kind": "source", "rate": 10}],
        "savepoint": [{"at": "1 s", "stop": "drain"}],
    }
    engine = JobEngine(load_job_document(document))
    engine.run_until(3_000_000)
    (asked,) = engine.coordinator.triggering.savepoint_requests.values()
    assert (engine.status, asked.kind, asked.requested_at_us) == (
        "FINISHED",
        SnapshotType.SAVEPOINT_TERMINATE,
        1_000_000,
    )


def test_every_failure_of_a_savepoint_that_stops_the_job_fails_the_job() -> None:
    for kind in (SnapshotType.SAVEPOINT_SUSPEND, SnapshotType.SAVEPOINT_TERMINATE):
        for reason in (FailureReason.EXPIRED, FailureReason.SUBSUMED, FailureReason.DECLINED_ON_CANCELLATION):
            assert FailurePolicy().failed(Failure(1, reason, kind, is_at_task=True), tolerable=-1)
