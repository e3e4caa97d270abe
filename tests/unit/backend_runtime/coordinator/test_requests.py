"""Tests of the queue of checkpoint requests: their order, the slots for concurrent checkpoints, and the limits."""

from __future__ import annotations

from itertools import pairwise

from backend.runtime.coordinator.requests import REQUESTS_KEPT, Request, RequestQueue, keep
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.requested import RequestedFormat, Savepoint
from tests.support.runtime_jobs import two_subtasks_job

_CP = "execution.checkpointing."


def _request(number: int, *, savepoint: bool, forced: bool = False) -> Request:
    asked = Savepoint(number, RequestedFormat.CANONICAL, number) if savepoint else None
    return Request(forced, number, asked, is_periodic=not savepoint)


def _order(queue: RequestQueue) -> list[int]:
    return [request.number for request in queue.clear()]


def test_the_queue_orders_requests_by_savepoint_forced_user_and_time() -> None:
    queue = RequestQueue()
    for request in (
        _request(1, savepoint=False),
        _request(2, savepoint=True),
        _request(3, savepoint=True, forced=True),
        _request(4, savepoint=True),
        Request(is_forced=False, number=5),
        _request(6, savepoint=False),
    ):
        assert queue.add(request) is None
    assert _order(queue) == [3, 2, 4, 5, 1, 6]


def test_each_tick_is_queued_and_a_change_of_settings_keeps_only_one() -> None:
    engine = JobEngine(two_subtasks_job(store_ms=1_000))
    engine.run_until(1_050_000)
    engine.set_config({f"{_CP}timeout": "9 min"})
    engine.run_until(4_000_000)
    ids = [record.id for record in engine.coordinator.history]
    assert ids[0] in (3, 4), "the requests queued under the old settings became one"

    queue = RequestQueue()
    for number in range(1, 5):
        queue.add(_request(number, savepoint=number == 3))
    queue.keep_one_periodic()
    assert _order(queue) == [3, 1]


def test_after_a_long_checkpoint_the_queued_ones_follow_without_a_pause() -> None:
    slow = tuple(FaultSpec("rpc.ack", hit=1, action=FaultAction.DELAY, delay_us=450_000) for _ in range(1))
    engine = JobEngine(two_subtasks_job(store_ms=10, plan=slow, timeout="2 s"))
    engine.run_until(2_000_000)
    records = sorted(engine.coordinator.history, key=lambda r: r.id)
    between_ms = [(b.triggered_at_us - a.triggered_at_us) // 1000 for a, b in pairwise(records)]
    # The first checkpoint takes 460 ms. The four ticks in this time queue requests, which then run without a pause.
    # After that, the timer triggers again.
    assert between_ms[:1] == [460]
    assert between_ms[1:4] == [10, 10, 10]
    assert between_ms[6:] == [100] * len(between_ms[6:])


def test_a_checkpoint_requested_by_a_user_waits_for_no_pause_and_no_tick() -> None:
    engine = JobEngine(two_subtasks_job(store_ms=10, interval="10 s", min_pause="5 s"))
    engine.run_until(9_990_000)
    before = engine.coordinator.completed_count
    engine.coordinator.triggering.request_checkpoint()
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(10_020_000)
    assert engine.coordinator.completed_count >= before + 1


def test_a_full_queue_drops_its_newest_periodic_request_and_then_refuses_new_ones() -> None:
    queue = RequestQueue(limit=3)
    for number in (1, 2):
        queue.add(_request(number, savepoint=True))
    queue.add(_request(3, savepoint=False))
    dropped = queue.add(_request(4, savepoint=True))
    assert dropped is not None
    assert dropped.is_periodic
    again = queue.add(_request(5, savepoint=True))
    assert again is not None
    assert again.number == 5
    assert queue.add(_request(6, savepoint=False)) is not None
    assert _order(queue) == [1, 2, 4]


def test_of_many_requests_the_oldest_ended_ones_are_forgotten_and_no_pending_one() -> None:
    """SV-4: results of requests can be looked up later.

    Of more than 1000 requests, the oldest ended ones are forgotten, but no pending one.
    """
    kept: dict[int, Savepoint] = {}
    asked = [Savepoint(n, RequestedFormat.CANONICAL, n, ended_at_us=n if n % 2 else None) for n in range(1200)]
    for each in asked[:REQUESTS_KEPT]:
        keep(kept, each)
    assert len(kept) == REQUESTS_KEPT == 1000
    keep(kept, asked[1000])
    assert [n for n in range(1001) if n not in kept] == [1]
    for each in asked[1001:]:
        keep(kept, each)
    assert [n for n in range(1200) if n not in kept] == list(range(1, 400, 2))
    under_way = {n: Savepoint(n, RequestedFormat.CANONICAL, n) for n in range(REQUESTS_KEPT)}
    keep(under_way, asked[1000])
    assert len(under_way) == REQUESTS_KEPT + 1
