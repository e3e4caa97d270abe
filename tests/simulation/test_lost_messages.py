"""Each kind of message between coordinator and tasks is lost, and nothing waits forever (CO-11, SNK-2, AL-6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.engine.jobfile import load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec
from tests.support.inside_jobs import pending_ids
from tests.support.runtime_jobs import small_job, two_subtasks_job


def _lost(point: str, *hits: int) -> tuple[FaultSpec, ...]:
    """Return faults that drop messages at ``point``.

    Each of ``hits`` is the number of the message to drop, counted from the previously dropped message.
    """
    return tuple(FaultSpec(point, hit=hit, action=FaultAction.DROP) for hit in hits)


@pytest.mark.parametrize("hits", [(1, 1), (1,), (2,), (1, 1, 1, 1, 1)])
@pytest.mark.parametrize("drains", [False, True])
def test_a_job_that_stops_ends_although_notifications_of_its_savepoint_are_lost(
    hits: tuple[int, ...], drains: bool
) -> None:
    engine = JobEngine(two_subtasks_job(plan=_lost("rpc.notify", *hits), interval="1 s"))
    engine.run_until(50_000)
    stop = engine.request_stop(drains=drains)
    engine.run_until(300_000)
    assert stop.completed_at_us is not None
    assert engine.status == ("RUNNING" if stop.ended_at_us is None else "FINISHED")
    engine.run_until(8_000_000)
    assert engine.status == "FINISHED"
    assert (stop.ended_at_us is not None, stop.reason) == (True, None)
    assert engine.restart_count == 0
    ended = [task.ended_us for task in engine.tasks]
    assert len(ended) == 2
    # A lost notification is repeated after one checkpoint interval. In a job that is not stopped, the next checkpoint
    # would contain the notification at that time.
    rounds = {(1, 1): 1, (1,): 1, (2,): 1, (1, 1, 1, 1, 1): 3}[hits]
    assert stop.ended_at_us is not None
    assert (stop.ended_at_us - stop.completed_at_us + 500_000) // 1_000_000 == rounds


def test_an_abort_also_reports_a_completion_whose_notification_was_lost() -> None:
    # The sink never receives the first completion message. The second checkpoint expires, and its abort message
    # reports the first checkpoint as completed.
    late = FaultSpec("rpc.ack", hit=4, action=FaultAction.DELAY, delay_us=500_000)
    engine = JobEngine(two_subtasks_job(interval="10 s", timeout="100 ms", plan=(*_lost("rpc.notify", 2), late)))
    for at_us in (50_000, 100_000):
        engine.run_until(at_us)
        engine.coordinator.triggering.request_checkpoint()
    engine.run_until(199_999)
    assert (engine.coordinator.completed_count, engine.coordinator.failed_count) == (1, 0)
    assert engine.ledger.committed_count == 0
    engine.run_until(201_000)
    assert engine.coordinator.history[0].reason is FailureReason.EXPIRED
    assert engine.ledger.committed_count > 0


def _joining_job(plan: tuple[FaultSpec, ...]) -> Any:
    """Return a job with three sources. A map joins the first two, and a sink reads the map and the third source."""
    document: dict[str, Any] = {
        "name": "joining",
        "config": {
            "execution.checkpointing.interval": "10 s",
            "execution.checkpointing.timeout": "200 ms",
            "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
        },
        "vertex": [
            *({"id": f"source-{n}", "kind": "source", "rate": 200} for n in range(3)),
            {"id": "map", "kind": "map"},
            {"id": "sink", "kind": "sink"},
        ],
        "edge": [
            {"from": "source-0", "to": "map", "partitioner": "rebalance"},
            {"from": "source-1", "to": "map", "partitioner": "rebalance"},
            {"from": "source-2", "to": "sink", "partitioner": "rebalance"},
            {"from": "map", "to": "sink", "partitioner": "rebalance"},
        ],
    }
    return replace(load_job_document(document), faults=plan)


def test_a_task_whose_abort_is_lost_gets_a_cancel_marker() -> None:
    # The second source never receives its trigger. The map waits for the barrier of this source, and the sink waits
    # for the barrier of the map.
    plan = (*_lost("rpc.trigger", 2), *_lost("rpc.abort", 5))
    engine = JobEngine(_joining_job(plan))
    engine.run_until(50_000)
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(150_000)
    sink = engine.tasks[-1]
    blocked = [channel for channel in sink.gate.channels if channel.subpartition.is_blocked]
    assert [engine.env.graph.edges[channel.key.edge].source for channel in blocked] == ["source-2"]
    engine.run_until(300_000)
    assert engine.coordinator.latest_failed is not None
    assert engine.coordinator.latest_failed.reason is FailureReason.EXPIRED
    assert not any(c.subpartition.is_blocked for task in engine.tasks for c in task.gate.channels)
    assert pending_ids(sink) == ()


def test_a_barrier_that_waits_in_the_output_is_dropped_at_the_next_one_if_the_abort_is_lost() -> None:
    # The first checkpoint's barriers wait in full output queues until it expires, and all aborts are lost (AT-7,
    # UC-12).
    config: dict[str, object] = {
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.timeout": "50 ms",
        "execution.checkpointing.aligned-checkpoint-timeout": "5 s",
    }
    engine = JobEngine(small_job("aligned-timeout", config=config, plan=_lost("rpc.abort", *[1] * 6)))
    engine.run_until(200_000)
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(260_000)
    sources = [task for task in engine.tasks if task.sourcing is not None]
    assert [record.reason for record in engine.coordinator.history] == [FailureReason.EXPIRED]
    assert [pending_ids(task) for task in sources] == [(1,), (1,)], "the aborts after the expiry are lost"
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(265_000)
    assert [pending_ids(task) for task in sources] == [(2,), (2,)]
    assert engine.env.faults.struck["rpc.abort"] == 6
