"""Tests of the snapshot store, which transfers one write at a time (DET-7, TE-8), and of the ledger of rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from backend.domain.errors import ProtocolViolationError
from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Record
from backend.runtime.core.scheduler import Scheduler
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.operators.storage import SnapshotStore, TransactionLedger, Upload
from tests.support.inside_jobs import oldest_open_us, take_over
from tests.support.runtime_jobs import two_subtasks_job


class _Store:
    """A store that transfers one megabyte per second, and the instant at which each write was complete."""

    def __init__(self, **limits: int) -> None:
        self.scheduler = Scheduler()
        self.store = SnapshotStore(self.scheduler, latency_us=5, bytes_per_s=1_000_000, **limits)
        self.done_us: dict[str, int] = {}
        self.uploads: dict[str, Upload] = {}

    def write(self, name: str, size_bytes: int, *, factor: float = 1.0) -> None:
        self.uploads[name] = self.store.write(size_bytes, partial(self._done, name), factor=factor)

    def _done(self, name: str, _: object) -> None:
        self.done_us[name] = self.scheduler.now

    def cancel(self, name: str) -> None:
        self.store.cancel(self.uploads[name])

    def all_done_us(self) -> dict[str, int]:
        self.scheduler.run_until(10_000)
        return self.done_us


@pytest.mark.parametrize(
    ("at_us", "cancelled", "done_us"),
    [
        (0, (), {"a": 105, "b": 305, "c": 605}),
        # Cancelling a write that has not begun: the writes behind it move forward.
        (50, ("b",), {"a": 105, "c": 405}),
        # Cancelling a write in progress: the next write begins now.
        (50, ("a",), {"b": 255, "c": 555}),
        (150, ("b",), {"a": 105, "c": 455}),
        (150, ("b", "c"), {"a": 105}),
        # Cancelling a write that is transferred but not yet reported: no time is saved, and its completion is never
        # reported.
        (102, ("a",), {"b": 305, "c": 605}),
        # Cancelling a write whose completion was reported: nothing changes.
        (200, ("a",), {"a": 105, "b": 305, "c": 605}),
        (50, ("b", "b"), {"a": 105, "c": 405}),
    ],
)
def test_a_cancelled_write_never_ends_and_frees_its_time(
    at_us: int, cancelled: tuple[str, ...], done_us: dict[str, int]
) -> None:
    store = _Store()
    for name, size_bytes in (("a", 100), ("b", 200), ("c", 300)):
        store.write(name, size_bytes)
    store.scheduler.run_until(at_us)
    for name in cancelled:
        store.cancel(name)
    assert store.all_done_us() == done_us


def test_a_later_write_begins_no_earlier_than_its_request() -> None:
    store = _Store()
    store.write("a", 100)
    store.scheduler.run_until(90)
    store.write("b", 50)
    store.cancel("a")
    store.write("c", 10)
    assert store.all_done_us() == {"b": 145, "c": 155}


def test_a_stalled_store_writes_nothing_whatever_is_cancelled() -> None:
    store = _Store()
    store.write("a", 100)
    store.store.stand_still(1_000)
    store.write("b", 50)
    store.write("c", 10)
    store.cancel("a")
    store.cancel("b")
    store.cancel("c")
    store.write("d", 10)
    assert store.all_done_us() == {"d": 1_115}


def test_an_upload_with_its_own_limit_leaves_the_rest_to_others() -> None:
    store = _Store(upload_bytes_per_s=500_000)
    store.write("a", 100)
    store.write("b", 100)
    store.scheduler.run_until(10)
    store.cancel("a")
    assert store.all_done_us() == {"b": 215}


def test_a_slow_writer_multiplies_transfer_and_latency_and_delays_others_by_the_transfer() -> None:
    """DET-7: even a write of zero bytes waits until the store responds."""
    store = _Store()
    store.write("slow", 100, factor=3.0)
    store.write("other", 50)
    store.write("nothing", 0)
    assert store.all_done_us() == {"slow": 315, "other": 355, "nothing": 355}
    alone = _Store(upload_bytes_per_s=500_000)
    alone.write("slow", 100, factor=1.5)
    alone.write("nothing", 0)
    assert alone.all_done_us() == {"slow": 307, "nothing": 155}


def test_a_failed_job_leaves_no_writes_in_the_queue_and_the_next_job_writes_at_once() -> None:
    store = _Store()
    store.write("a", 500)
    store.store.stand_still(1_000)
    store.scheduler.run_until(100)
    store.store.forget()
    store.write("b", 20)
    store.cancel("a")
    store.write("c", 20)
    assert store.all_done_us() == {"b": 125, "c": 145}


def test_an_expired_checkpoint_does_not_delay_the_next_one() -> None:
    spec = two_subtasks_job(store_ms=1, interval="10 s", timeout="100 ms")
    engine = JobEngine(spec)
    engine.run_until(50_000)
    engine.env.store.bytes_per_s = 100
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(155_000)
    assert engine.coordinator.history[0].reason is FailureReason.EXPIRED
    engine.env.store.bytes_per_s = 10**12
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(160_000)
    assert engine.coordinator.history[0].reason is None
    assert engine.coordinator.completed_count == 1


class _Clock:
    """A clock in virtual microseconds that the test sets."""

    now_us = 0

    def __call__(self) -> int:
        return self.now_us


def _record(number: int) -> Record:
    return Record(key=number % 3, origin=number, event_time_us=0, value=number, size_bytes=40)


def _ledger(*, keeps_rows: bool = True, timeout_us: int = 1_000) -> tuple[TransactionLedger, _Clock]:
    clock = _Clock()
    return TransactionLedger(clock, keeps_rows=keeps_rows, timeout_us=timeout_us), clock


def test_the_hash_of_committed_rows_depends_on_the_rows_but_not_on_their_order() -> None:
    def folded(*numbers: int) -> int:
        ledger, _ = _ledger(keeps_rows=False)
        for at, number in enumerate(numbers):
            ledger.begin(f"t{at}")
            ledger.write(f"t{at}", _record(number))
            ledger.prepare(f"t{at}")
            ledger.commit(f"t{at}")
        assert ledger.rows == []
        assert ledger.committed_count == len(numbers)
        return ledger.folded

    assert folded(1, 2, 3) == folded(3, 1, 2)
    assert len({folded(1, 2, 3), folded(1, 2), folded(1, 2, 4), folded(1, 2, 2)}) == 4


def test_the_external_system_outlives_the_job_and_a_new_run_continues_with_its_content() -> None:
    """SNK-3: a new run can commit transactions that an earlier run left open. It does not repeat committed ones."""
    first, _ = _ledger()
    for name, number in (("a", 1), ("b", 2), ("both", 3)):
        first.begin(name)
        first.write(name, _record(number))
        first.prepare(name)
    first.commit("a")
    first.put(_record(7))
    first.put(_record(8))
    second, _ = _ledger()
    second.begin("both")
    second.write("both", _record(4))
    second.prepare("both")
    second.append(_record(5))
    second.put(replace(_record(7), value=70))
    take_over(second, first)
    for name in ("a", "b", "both"):
        second.commit(name)
    assert [row.value for row in second.rows] == [1, 5, 2, 4], "of two transactions with one name, its own counts"
    assert second.committed_count == 4
    assert (second.table, second.put_count) == ({1: 70, 2: 8}, 3)
    with pytest.raises(ProtocolViolationError, match="neither open"):
        second.commit("c")


def test_the_newest_attempt_is_the_highest_of_all_open_and_committed_transactions() -> None:
    ledger, clock = _ledger()
    assert (ledger.newest_attempt, oldest_open_us(ledger)) == (-1, None)
    clock.now_us = 5
    ledger.begin("a/sink/0/11/2")
    clock.now_us = 9
    ledger.begin("sink/1/3/99")
    assert (ledger.newest_attempt, oldest_open_us(ledger)) == (11, 5)
    assert (ledger.open_of("a/sink"), ledger.open_of("a")) == (["a/sink/0/11/2"], [])
    ledger.prepare("a/sink/0/11/2")
    ledger.commit("a/sink/0/11/2")
    assert (ledger.newest_attempt, oldest_open_us(ledger)) == (11, 9)
    assert ledger.open_of("sink") == ["sink/1/3/99"]
    assert ledger.open_of("a/sink") == []
