"""Goal: bundled records leave their operator before the barrier (TE-2), and sources report their end (SRC-4, Q-2).

Method: maps bundle records without storing them in state. A record that leaves after the barrier is therefore lost in
the next crash, and missing in the committed ledger. There are few buffers. The last records before a barrier often
find no free buffer, and the barrier must wait for these records.
"""

from __future__ import annotations

from collections import Counter

import pytest

from backend.runtime.core.elements import WATERMARK_MAX, EndOfData, Record
from backend.runtime.core.scheduler import Scheduler
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from backend.runtime.network.buffers import DataBuffer, OutputPool, Subpartition
from backend.runtime.network.emission import Emission, Output
from backend.runtime.operators.timed_operators import Window
from backend.runtime.task.task import TaskStatus
from tests.support.inside_jobs import is_at_end_of_data
from tests.support.invariants import run_to_the_end
from tests.support.runtime_jobs import PROTOCOLS, RECORDS, exactly_once_violations, small_job

_BUNDLE = 30


def _bundled(protocol: str, seed: int, plan: tuple[FaultSpec, ...] = ()) -> JobSpec:
    config: dict[str, object] = {
        "taskmanager.memory.segment-size": 256,
        "taskmanager.network.memory.max-overdraft-buffers-per-gate": seed % 3,
        "taskmanager.network.memory.floating-buffers-per-gate": 1,
    }
    mapped: dict[str, object] = {"bundle": _BUNDLE}
    return small_job(
        protocol, seed=seed, fuzz=seed, task_managers=1 + seed % 2, plan=plan, config=config, mapped=mapped
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bundled_records_leave_before_the_barrier_and_none_is_lost_or_repeated(protocol: str) -> None:
    restores = 0
    for seed in range(6):
        plan = tuple(FaultSpec("source.after-emit", at_us=at_us + 9_000 * seed) for at_us in (230_000, 400_000))
        engine = run_to_the_end(_bundled(protocol, seed, plan), records=RECORDS)
        restores += engine.coordinator.restored_count
    assert restores >= 8, "too few restores: a record left behind would not be noticed"


def test_a_barrier_waits_for_the_records_before_it_if_they_find_no_buffer() -> None:
    engine = JobEngine(_bundled("aligned", 0), keeps_rows=True)
    waited = 0
    while engine.now_us < 1_500_000:
        before = {id(t): (t.checkpointing.last_id, t.emission.is_blocked) for t in engine.tasks}
        engine.run_until(engine.now_us + 500)
        for task in engine.tasks:
            last_id, was_blocked = before.get(id(task), (0, False))
            # The checkpoint has begun, but its barrier was not sent, because the records before it still wait for
            # buffers.
            begun = task.checkpointing.last_id > last_id
            log = engine.barriers(task.checkpointing.last_id) or ()
            sent = any(
                e.vertex_id == task.spec.id and e.subtask == task.index and e.kind.value == "barrier-emitted"
                for e in log
            )
            waited += begun and task.emission.is_blocked and not sent and not was_blocked
    assert waited > 0


def test_an_event_waits_until_a_partly_written_record_is_complete() -> None:
    pool = OutputPool(
        Scheduler(),
        channels=1,
        segment_bytes=256,
        size=2,
        max_per_channel=10,
        max_overdraft=0,
        flush_timeout_us=100_000,
        on_change=lambda: None,
    )
    emission = Emission()
    emission.outputs.append(Output(0, pool, lambda _: (0,), [0], can_overtake=True))
    emission.emit(Record(1, 1, 0, 0, 700))
    emission.broadcast_event(EndOfData())
    subpartition = pool.subpartitions[0]
    assert emission.is_blocked
    assert not any(isinstance(item, EndOfData) for item in subpartition.queue)
    first = subpartition.poll()
    assert isinstance(first, DataBuffer)
    first.owner.recycle()
    assert emission.write_on()
    action = emission.behind()
    assert action is not None
    action()
    assert isinstance(subpartition.queue[-1], EndOfData)
    assert sum(len(b.data) for b in (first, *subpartition.queue) if isinstance(b, DataBuffer)) == 700


def test_a_map_passes_its_records_on_in_bundles() -> None:
    engine = JobEngine(small_job("aligned", mapped={"bundle": 25}, config={"execution.checkpointing.interval": "1 h"}))
    sizes: Counter[int] = Counter()
    out = 0
    while engine.now_us < 300_000:
        engine.run_until(engine.now_us + 50)
        now = sum(t.records_out for t in engine.tasks if t.spec.id == "map")
        sizes[now - out] += 1
        out = now
    # Both subtasks may fill a bundle between two samples. A few other sizes appear because the first watermark of
    # each source sends a bundle early.
    del sizes[0]
    assert sizes[25] + sizes[50] >= 10
    assert sum(sizes.values()) - sizes[25] - sizes[50] <= 4, sizes
    # When the sources end, the last bundles are sent.
    engine.run_until(3_000_000)
    assert sum(t.records_out for t in engine.tasks if t.spec.id == "map") == 400


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_end_of_bounded_sources_reaches_every_task_after_the_last_record(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: Counter[int] = Counter()
    written_behind: list[int] = []
    append, add_event = Subpartition.append, Subpartition.add_event

    def appended(self: Subpartition, data: bytes, at: int = 0) -> int:
        if told[id(self)]:
            written_behind.append(id(self))
        return append(self, data, at)

    def added(self: Subpartition, event: object) -> None:
        told[id(self)] += isinstance(event, EndOfData)
        add_event(self, event)  # type: ignore[arg-type]

    monkeypatch.setattr(Subpartition, "append", appended)
    monkeypatch.setattr(Subpartition, "add_event", added)
    plan = (FaultSpec("task.in-sync", at_us=900_000),)
    stays = {"runtime.finish-protocol": "none"}
    engine = JobEngine(_bundled(protocol, 3, plan).with_config(stays), keeps_rows=True)
    engine.run_until(200_000)
    assert not any(is_at_end_of_data(task) for task in engine.tasks if task.spec.kind.has_sink)
    engine.run_until(3_000_000)
    assert engine.restart_count == 1
    for task in engine.tasks:
        assert is_at_end_of_data(task), task.name
        assert task.status is TaskStatus.RUNNING, "it still takes part in checkpoints"
        if task.source is None:
            assert task.watermark_us == WATERMARK_MAX, task.name
    channels = [c for task in engine.tasks for c in task.gate.channels]
    assert channels
    assert {told[id(c.subpartition)] for c in channels} == {1}
    assert not written_behind
    newest = engine.coordinator.newest
    assert newest is not None
    assert newest.record.triggered_at_us > 2_500_000
    assert not exactly_once_violations(engine.ledger.rows)


def test_no_watermark_overtakes_bundled_records() -> None:
    timed: dict[str, object] = {"kind": "window+sink", "window": "20 ms", "cost_us": 100}
    engine = JobEngine(small_job("aligned", mapped={"bundle": _BUNDLE}, keyed=timed))
    engine.run_until(3_000_000)
    windows = [task.operators[0] for task in engine.tasks if isinstance(task.operators[0], Window)]
    assert [w.late_count for w in windows if isinstance(w, Window)] == [0, 0]
    assert engine.ledger.committed_count > 0


def test_an_unbounded_source_never_ends() -> None:
    engine = JobEngine(small_job("unaligned", records=None))
    engine.run_until(2_000_000)
    assert not any(is_at_end_of_data(task) for task in engine.tasks)
