"""Goal: the waits of barriers, triggers and commits are bounded as runtime.md says (rows of section 8).

The queueing time of a barrier depends on the buffers before it (CR-1 to CR-6). The wait of a source's trigger depends
on one step (SRC-1), and the wait of a row for its commit depends on the checkpoint (SNK-2). The number of records
that are read again depends on the checkpoint's age (RC-11).

Method: the jobs are so small that each figure follows from the settings.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Alignment
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint

_CP = "execution.checkpointing."
_UNALIGNED = {f"{_CP}unaligned.enabled": True}
_WITH_TIMEOUT = {**_UNALIGNED, f"{_CP}aligned-checkpoint-timeout": "30 s"}
_SEGMENT_BYTES = 1_000
_RECORD_BYTES = 100
_SINK_US = 1_000
_STEP_US = 100
_RPC_US = 1_000


def _chain(
    *, hops: int = 1, config: dict[str, object] | None = None, store_ms: int = 1, source: dict[str, Any] | None = None
) -> JobSpec:
    """Return a job with a source, maps and a sink, with a queue between neighbours.

    Each vertex has one subtask, and the job runs on two task managers.
    """
    settings: dict[str, object] = {
        f"{_CP}interval": "200 ms",
        f"{_CP}tolerable-failed-checkpoints": "unlimited",
        "taskmanager.memory.segment-size": _SEGMENT_BYTES,
        "runtime.task-managers": 2,
        "runtime.cost.rpc-latency": f"{_RPC_US} us",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    maps = [{"id": f"map-{n}", "kind": "map", "cost_us": _STEP_US} for n in range(hops - 1)]
    first = {"id": "source", "kind": "source", "cost_us": _STEP_US, "record_bytes": _RECORD_BYTES} | (source or {})
    vertices = [first, *maps, {"id": "sink", "kind": "sink", "cost_us": _SINK_US}]
    edges = [{"from": a["id"], "to": b["id"], "partitioner": "rebalance"} for a, b in pairwise(vertices)]
    document = {"name": "chain", "config": settings | (config or {}), "vertex": vertices, "edge": edges}
    return load_job_document(document | {"store": {"latency": f"{store_ms} ms", "bytes_per_s": "1 gb"}})


def _completed(spec: JobSpec, *, until_us: int = 2_000_000) -> list[MeasuredCheckpoint]:
    """Return the completed checkpoints, without the first two, because these ran while the buffers were filling."""
    engine = JobEngine(spec, is_size_only=True)
    engine.run_until(until_us)
    records = list(engine.coordinator.all_completed)[2:]
    assert len(records) > 3
    return records


def _start_delay_us(record: MeasuredCheckpoint, vertex: int) -> int:
    return record.acks[vertex, 0].measured.start_delay_us


def test_an_aligned_barrier_waits_no_longer_than_the_buffers_before_it_take() -> None:
    waits_us = []
    for floating in (1, 8, 40):
        limits: dict[str, object] = {
            "taskmanager.network.memory.buffers-per-channel": 2,
            "taskmanager.network.memory.floating-buffers-per-gate": floating,
            "taskmanager.network.memory.max-buffers-per-channel": 2 + floating,
        }
        records = _completed(_chain(config=limits), until_us=4_000_000)
        # The sender and the receiver each hold at most 2 + floating buffers, and each may be working on one more
        # buffer.
        most_records = 2 * (2 + floating + 1) * (_SEGMENT_BYTES // _RECORD_BYTES + 1)
        longest_us = max(_start_delay_us(record, 1) for record in records)
        assert longest_us <= most_records * _SINK_US + 2 * _RPC_US, f"{floating} floating buffers"
        waits_us.append(statistics.median(_start_delay_us(record, 1) for record in records))
    # All buffers are full, so more buffers mean a longer wait.
    assert waits_us[0] * 2 < waits_us[1] < waits_us[2] / 2, waits_us


def test_aligned_checkpoints_expire_under_backpressure() -> None:
    ends = []
    for config in ({}, _UNALIGNED):
        engine = JobEngine(_chain(config={**config, f"{_CP}timeout": "50 ms"}), is_size_only=True)
        engine.run_until(2_000_000)
        ends.append({(r.state, r.reason) for r in list(engine.coordinator.history)[:5] if r.end_to_end_us})
    assert ends == [{(CheckpointState.FAILED, FailureReason.EXPIRED)}, {(CheckpointState.COMPLETED, None)}]


@pytest.mark.parametrize("config", [{}, _UNALIGNED])
def test_a_source_is_triggered_within_a_step_however_many_hops_follow(config: dict[str, object]) -> None:
    for hops in (1, 3):
        records = _completed(_chain(hops=hops, config=config), until_us=2_000_000)
        delays_us = [_start_delay_us(record, 0) for record in records]
        assert max(delays_us) <= _RPC_US + _STEP_US, f"{hops} hops"
        if config:
            assert max(_start_delay_us(record, hops) for record in records) < 20 * (hops + 1) * _SINK_US
        else:
            assert min(_start_delay_us(record, hops) for record in records) > hops * 50 * _SINK_US


@pytest.mark.parametrize(("config", "store_ms"), [({}, 1), (_UNALIGNED, 1), (_UNALIGNED, 150)])
def test_rows_are_committed_when_their_checkpoint_completes_and_not_before(
    config: dict[str, object], store_ms: int
) -> None:
    engine = JobEngine(_chain(config=config, store_ms=store_ms), is_size_only=True)
    commits_us: list[int] = []
    engine.ledger.committed = lambda: commits_us.append(engine.now_us)
    engine.run_until(2_000_000)
    records = list(engine.coordinator.all_completed)
    assert len(records) > 5
    for record, at_us in zip(records, commits_us, strict=False):
        # A row is committed when the notification has arrived and the running step is over.
        latency_us = at_us - record.triggered_at_us - (record.end_to_end_us or 0)
        assert _RPC_US <= latency_us <= _RPC_US + 2 * _SINK_US, record.id
    durations_us = [record.end_to_end_us or 0 for record in records]
    if not config:
        assert statistics.median(durations_us) > 60_000
    else:
        # Barriers of unaligned checkpoints are fast, but the commit of a row still waits until the checkpoint is
        # stored.
        assert store_ms * 1_000 < statistics.median(durations_us) < store_ms * 1_000 + 10_000


def test_the_records_read_again_grow_with_the_age_of_the_last_checkpoint() -> None:
    replayed = []
    for age_us in (100_000, 400_000, 1_200_000):
        crash = FaultSpec("source.after-emit", at_us=300_000 + age_us)
        spec = replace(_chain(config={f"{_CP}interval": "1 h"}, source={"rate": 500}), faults=(crash,))
        engine = JobEngine(spec, is_size_only=True)
        engine.run_until(300_000)
        engine.request_checkpoint()
        engine.run_until(300_000 + 3 * age_us)
        (restart,) = engine.restarts
        assert restart.restored_id == 1
        # Since the checkpoint, the source has emitted 500 records per second. It emits all of them again after the
        # restart, and the sink processes a thousand records per second.
        assert restart.source_replay_us is not None
        replayed.append(restart.source_replay_us)
        assert (restart.catch_up_us or 0) > 0
    assert replayed[0] * 2 < replayed[1] < replayed[2] / 1.8, replayed


def test_without_backpressure_all_mechanisms_take_about_the_same_time() -> None:
    idle = {"rate": 200}
    aligned, unaligned, timed = (
        _completed(_chain(hops=3, config=dict(config), source=idle)) for config in ({}, _UNALIGNED, _WITH_TIMEOUT)
    )
    assert {record.barrier.alignment for record in timed} == {Alignment.ALIGNED}
    assert {record.persisted_bytes for record in timed} == {0}
    durations_us = [statistics.median(r.end_to_end_us or 0 for r in each) for each in (aligned, unaligned, timed)]
    assert durations_us[2] == durations_us[0]
    # An aligned barrier follows the records that wait in a buffer for the flush. There are at most twenty of them.
    assert max(durations_us) < min(durations_us) + 20 * _SINK_US, durations_us
