"""Tests of the transactional sink and of its ledger, which is the external system (SNK-1 to SNK-5, INV-14)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.elements import Record
from backend.runtime.core.prng import LANES
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from backend.runtime.operators.redistribution import restored_operator
from backend.runtime.operators.sinks import TransactionalSink
from backend.runtime.operators.storage import Row, TransactionLedger
from tests.support.inside_jobs import take_over
from tests.support.runtime_jobs import two_subtasks_job


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


def _sink(ledger: TransactionLedger, *, attempt: int = 0, subtask: int = 0, parallelism: int = 2) -> TransactionalSink:
    return TransactionalSink(ledger, vertex="sink", subtask=subtask, parallelism=parallelism, attempt=attempt)


def test_no_row_is_visible_before_its_checkpoint_is_complete() -> None:
    ledger, _ = _ledger()
    sink = _sink(ledger)
    sink.process(_record(1))
    sink.snapshot(1)
    sink.process(_record(2))
    assert ledger.rows == []
    sink.complete(1)
    assert ledger.rows == [Row(1, 1, 1)]


def test_the_next_notification_replaces_a_lost_one() -> None:
    ledger, _ = _ledger()
    sink = _sink(ledger)
    for checkpoint in (1, 2, 3):
        sink.process(_record(checkpoint))
        sink.snapshot(checkpoint)
    sink.complete(2)
    assert [row.origin for row in ledger.rows] == [1, 2]
    sink.complete(3)
    sink.complete(3)
    assert [row.origin for row in ledger.rows] == [1, 2, 3]


def test_an_aborted_checkpoint_loses_no_data() -> None:
    ledger, _ = _ledger()
    sink = _sink(ledger)
    sink.process(_record(1))
    # Checkpoint 1 is aborted and never completes. Checkpoint 2 includes the transaction of checkpoint 1.
    sink.snapshot(1)
    sink.process(_record(2))
    sink.snapshot(2)
    sink.complete(2)
    assert [row.origin for row in ledger.rows] == [1, 2]


def test_a_restored_sink_commits_the_transactions_of_the_checkpoint_and_aborts_others() -> None:
    ledger, _ = _ledger()
    sink, other = _sink(ledger), _sink(ledger, subtask=1)
    other.process(_record(9))
    sink.process(_record(1))
    sink.snapshot(1)
    sink.process(_record(2))
    held = sink.snapshot(2)
    sink.process(_record(3))
    sink.snapshot(3)
    sink.process(_record(4))
    restored = _sink(ledger, attempt=1)
    restored.restore(held, 2)
    assert [row.origin for row in ledger.rows] == [1, 2]
    restored.process(_record(3))
    restored.snapshot(4)
    restored.complete(4)
    assert [row.origin for row in ledger.rows] == [1, 2, 3]
    # The restored sink did not touch the transaction of another subtask.
    other.snapshot(4)
    other.complete(4)
    assert [row.origin for row in ledger.rows] == [1, 2, 3, 9]


def test_sinks_restored_at_another_parallelism_settle_each_transaction_once() -> None:
    ledger, _ = _ledger()
    before = [_sink(ledger, subtask=n, parallelism=5) for n in range(5)]
    for n, sink in enumerate(before):
        sink.process(_record(n))
    held = [sink.snapshot(1) for sink in before]
    for n, sink in enumerate(before):
        sink.process(_record(10 + n))
    for n in range(2):
        old = restored_operator(held, n, parallelism=2, max_parallelism=128)
        _sink(ledger, attempt=1, subtask=n).restore(old, 1)
    assert sorted(row.origin for row in ledger.rows) == [0, 1, 2, 3, 4]
    # Open transactions that are not in the checkpoint were aborted. Each of the two new sinks has one open
    # transaction.
    assert sorted(ledger.open_of("sink")) == ["sink/0/1/1", "sink/1/1/1"]


def test_a_job_that_fails_before_its_first_checkpoint_aborts_its_open_transactions() -> None:
    """SNK-3: without a checkpoint to restore, no new subtask owns the transactions of the failed attempt."""
    plan = (FaultSpec("source.after-emit", hit=5),)
    engine = JobEngine(two_subtasks_job(plan=plan, interval="10 s"), keeps_rows=True)
    while not engine.restart_count or engine.tasks[1].records_in < 3:
        engine.run_until(engine.now_us + 5_000)
    assert engine.restored_id is None
    assert engine.ledger.open_of("sink") == ["sink/0/1/1"]


def test_restoring_twice_commits_once() -> None:
    ledger, _ = _ledger()
    sink = _sink(ledger)
    sink.process(_record(1))
    held = sink.snapshot(1)
    sink.complete(1)
    for attempt in (1, 2):
        _sink(ledger, attempt=attempt).restore(held, 1)
    assert ledger.committed_count == 1


def test_a_transaction_older_than_the_limit_is_lost_and_reported() -> None:
    ledger, clock = _ledger(timeout_us=1_000)
    sink = _sink(ledger)
    sink.process(_record(1))
    sink.snapshot(1)
    clock.now_us = 1_001
    sink.complete(1)
    assert ledger.rows == []
    assert ledger.lost == ["sink/0/0/1"]
    # The next transaction began with the snapshot at time 0, so that transaction is too old as well. The transaction
    # after it is not.
    for checkpoint in (2, 3):
        sink.process(_record(checkpoint))
        sink.snapshot(checkpoint)
        sink.complete(checkpoint)
    assert ledger.lost == ["sink/0/0/1", "sink/0/0/2"]
    assert [row.origin for row in ledger.rows] == [3]


def test_breaking_the_transaction_protocol_is_a_violation() -> None:
    ledger, _ = _ledger()
    ledger.begin("t")
    with pytest.raises(ProtocolViolationError, match="not pre-committed"):
        ledger.commit("t")
    ledger.begin("u")
    ledger.prepare("u")
    with pytest.raises(ProtocolViolationError, match="pre-committed"):
        ledger.write("u", _record(1))
    with pytest.raises(ProtocolViolationError, match="neither open nor committed"):
        ledger.commit("never begun")
    for keeps_rows in (False, True):
        other, _ = _ledger(keeps_rows=keeps_rows)
        other.begin("v")
        other.write_all("v", [_record(1), _record(2)], [10, 20])
        other.prepare("v")
        with pytest.raises(ProtocolViolationError, match="SNK-1: a write into the pre-committed v"):
            other.write_all("v", [_record(3)])
        other.commit("v")
        assert other.rows == ([Row(1, 1, 10), Row(2, 2, 20)] if keeps_rows else [])


def test_the_hash_of_committed_rows_is_the_same_however_they_were_written_and_committed() -> None:
    """INV-5, INV-12: the hash is used to compare runs that divide the same output into different transactions."""
    numbers = list(range(LANES + 5))
    folded = []
    for cuts in ([len(numbers)], [1, 2, len(numbers)], [LANES, len(numbers)]):
        for in_bulk in (False, True):
            ledger, _ = _ledger(keeps_rows=False)
            for begin, end in pairwise([0, *cuts]):
                ledger.begin(name := f"t{begin}")
                records = [_record(n) for n in numbers[begin:end]]
                if in_bulk:
                    ledger.write_all(name, records)
                else:
                    for record in records:
                        ledger.write(name, record)
                ledger.prepare(name)
                ledger.commit(name)
            assert ledger.committed_count == len(numbers)
            folded.append(ledger.folded)
    alone, _ = _ledger(keeps_rows=False)
    for number in numbers:
        alone.append(_record(number))
    assert folded == [alone.folded] * 6
    assert alone.folded > 0
    runs = [_ledger(keeps_rows=False)[0] for _ in range(2)]
    for number in numbers:
        runs[number % 2].append(_record(number))
    take_over(runs[1], runs[0])
    assert (runs[1].folded, runs[1].committed_count) == (alone.folded, len(numbers)), "a run and its successor"


def test_lost_transactions_count_by_rows_and_one_exactly_at_the_limit_is_not_lost() -> None:
    """SNK-4, INV-15: the time limit is 1000 us. Lost transactions are counted by their rows."""
    ledger, clock = _ledger(keeps_rows=False, timeout_us=1_000)
    for name in ("late/0/0/1", "early/0/0/1"):
        ledger.begin(name)
        ledger.write_all(name, [_record(1), _record(2), _record(3)])
        ledger.prepare(name)
    clock.now_us = 1_000
    ledger.commit("early/0/0/1")
    clock.now_us = 1_001
    ledger.commit("late/0/0/1")
    assert (ledger.committed_count, ledger.lost, ledger.lost_count) == (3, ["late/0/0/1"], 3)


def test_each_lost_transaction_with_rows_is_told_by_its_subtask_and_open_ones_that_are_too_old_are_counted() -> None:
    """SNK-4, INV-15: an empty transaction loses nothing."""
    ledger, clock = _ledger(keeps_rows=False, timeout_us=1_000)
    for name, rows in (("out/1/0/1", 3), ("out/1/0/2", 0), ("out/2/0/1", 5)):
        ledger.begin(name)
        ledger.write_all(name, [_record(n) for n in range(rows)])
        ledger.prepare(name)
    assert ledger.overdue == (0, 0)
    clock.now_us = 1_001
    assert ledger.overdue == (2, 8)
    ledger.commit("out/1/0/1")
    ledger.commit("out/1/0/2")
    assert [(x.at_us, x.vertex, x.subtask, x.row_count) for x in ledger.losses] == [(1_001, "out", 1, 3)]
    assert [ledger.lost_of("out", n, parallelism=3) for n in range(3)] == [(0, 0), (1, 3), (0, 0)]
    assert ledger.overdue == (1, 5)
    ledger.commit("out/2/0/1")
    assert [ledger.lost_of("out", n, parallelism=2) for n in range(2)] == [(1, 5), (1, 3)], "fewer subtasks now"
