"""Goal: a capped checkpoint never persists more than its cap, and never stalls the job (T-21; CAP-1 to CAP-3, CAP-6).

Method: the caps range from zero to more than enough. Each seed chooses a schedule and a record size. Some
seeds also trigger every second source late. Every subtask of every completed checkpoint is compared with the
cap in force.
"""

from __future__ import annotations

import itertools
import statistics

import pytest

from backend.domain.barriers import BarrierEvent, BarrierEventKind
from backend.domain.failure import FailureReason
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import MeasuredCheckpoint
from tests.support.runtime_jobs import late_triggers, small_job

_CAPS = (0, 2_000, 6_000, 20_000)


def _run(cap: dict[str, object], *, seed: int, until_us: int = 2_500_000) -> tuple[JobEngine, list[MeasuredCheckpoint]]:
    spec = small_job(
        "unaligned",
        seed=seed,
        fuzz=1 + seed,
        task_managers=1 + seed % 2,
        record_bytes=(60, 120, 700, 1500)[seed % 4],
        plan=tuple(late_triggers()) if seed % 3 == 0 else (),
        records=None,
        config=cap,
    )
    engine = JobEngine(spec)
    terminal: list[MeasuredCheckpoint] = []
    engine.coordinator.on_terminal = terminal.append
    engine.run_until(until_us)
    return engine, terminal


@pytest.mark.parametrize("cap_bytes", _CAPS)
def test_no_subtask_persists_more_than_its_cap_and_none_gives_up(cap_bytes: int) -> None:
    persisted = completed = 0
    for seed in range(6):
        _, terminal = _run({"runtime.inflight-cap.bytes": cap_bytes}, seed=seed)
        for record in terminal:
            where = f"cap {cap_bytes}, seed {seed}, checkpoint {record.id}"
            # A checkpoint of this job may expire, because alignment can take longer than the timeout. It must not
            # fail for any other reason.
            assert record.failed_at_us is None or record.reason is FailureReason.EXPIRED, f"{where}: {record.reason}"
            completed += record.failed_at_us is None
            for key, ack in record.acks.items():
                size = ack.measured.persisted_bytes
                assert size <= cap_bytes, f"{where}, {key}: {size}"
                persisted += size
    assert completed > 20
    assert (persisted > 0) == (cap_bytes > 0)


def test_the_job_as_a_whole_persists_no_more_than_its_cap() -> None:
    largest = 0
    for seed in range(6):
        _, terminal = _run({"runtime.inflight-cap.job-bytes": 20_000}, seed=seed)
        sizes = [r.persisted_bytes for r in terminal if r.failed_at_us is None]
        assert max(sizes, default=0) <= 20_000, f"seed {seed}"
        largest = max([largest, *sizes])
    assert largest > 5_000


def test_a_higher_cap_makes_checkpoints_shorter_and_larger_at_the_same_throughput() -> None:
    times: list[float] = []
    sizes: list[float] = []
    records: list[int] = []
    for cap in (0, 1_000, 3_000, 6_000, 9_000, "unlimited"):
        done: list[MeasuredCheckpoint] = []
        received = 0
        # Several seeds, because a cap that is hardly ever reached changes the course of a run, and not what is usual.
        for seed in range(4, 8):
            settings = {"runtime.inflight-cap.bytes": cap}
            engine = JobEngine(small_job("unaligned", seed=seed, task_managers=2, records=None, config=settings))
            engine.run_until(3_000_000)
            done += engine.coordinator.all_completed
            received += sum(t.records_in for t in engine.tasks if t.spec.id == "keyed")
        times.append(statistics.median(r.end_to_end_us or 0 for r in done))
        sizes.append(statistics.median(r.persisted_bytes for r in done))
        records.append(received)
    # A cap that is never reached changes only the moment of the cut, by a few microseconds in a checkpoint of 11 ms.
    assert all(later <= earlier + 100 for earlier, later in itertools.pairwise(times)), times
    assert sizes == sorted(sizes)
    # A cap that bounds only a part of the queues is between aligned and unaligned, and not one of the two (CAP-3).
    assert all(later < 0.9 * earlier for earlier, later in itertools.pairwise(times[:4])), times
    assert all(later > earlier + 1_000 for earlier, later in itertools.pairwise(sizes[:4])), sizes
    assert times[0] > 20 * times[-1]
    assert min(records) > 0.97 * max(records)


def test_a_cap_that_declines_reports_it_and_does_not_fail_the_job() -> None:
    cap: dict[str, object] = {
        "runtime.inflight-cap.bytes": 100,
        "runtime.inflight-cap.on-cap": "decline",
        "execution.checkpointing.tolerable-failed-checkpoints": 0,
    }
    engine, terminal = _run(cap, seed=1)
    assert {r.reason for r in terminal} >= {FailureReason.INFLIGHT_LIMIT_EXCEEDED}
    assert engine.restart_count == 0


def test_channels_are_open_again_when_a_capped_checkpoint_is_over() -> None:
    for seed in range(4):
        engine, _ = _run({"runtime.inflight-cap.bytes": 2_000}, seed=seed)
        closed: dict[tuple[str, int, object], int] = {}
        _count(engine, closed)
        engine.set_config({"execution.checkpointing.interval": "1 h"})
        engine.run_until(engine.now_us + 2_000_000)
        assert not any(c.is_closed or c._write is not None for t in engine.tasks for c in t.gate.channels), (
            f"seed {seed}"
        )
        before = engine.ledger.committed_count + sum(t.records_in for t in engine.tasks)
        engine.run_until(engine.now_us + 500_000)
        assert engine.ledger.committed_count + sum(t.records_in for t in engine.tasks) > before, f"seed {seed}"
        assert not [key for key, open_count in closed.items() if open_count], f"seed {seed}"


def _count(engine: JobEngine, closed: dict[tuple[str, int, object], int]) -> None:
    """From now on, count the open blocks of each channel in ``closed``: a block adds 1, and its end subtracts 1."""

    def on_event(_: int, event: BarrierEvent) -> None:
        key = (event.vertex_id, event.subtask, event.channel)
        if event.kind is BarrierEventKind.CHANNEL_BLOCKED:
            closed[key] = closed.get(key, 0) + 1
        if event.kind is BarrierEventKind.CHANNEL_UNBLOCKED and key in closed:
            closed[key] -= 1

    engine.env.log.listener = on_event
