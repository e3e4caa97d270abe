"""Chandy-Lamport checkpoints: what they log, when they end, which messages trigger them, their cost (CL-1 to CL-10).

The protocol also runs in all tests of ``PROTOCOLS``: crashes, lost messages, rescales, savepoints, measurements.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from backend.domain.barriers import BarrierEventKind as Kind
from backend.experiments.markers import skewed_job
from backend.experiments.measuring import Variant, chain_job, checkpoints_of, late
from backend.experiments.triggering import INITIATIONS, wide_job
from backend.runtime.coordinator.coordinator import Completed
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.measures import MeasuredCheckpoint
from tests.support.invariants import Watch
from tests.support.runtime_jobs import RECORDS, STAYS, late_triggers, small_job

_EVERY_TASK: dict[str, object] = {"runtime.chandy-lamport.initiation": "all-tasks"}
_UNTIL_READ: dict[str, object] = {"runtime.chandy-lamport.log-until": "consumption"}
_BLOCKING: dict[str, object] = {"runtime.chandy-lamport.marked-channels": "block"}
_OVERTAKING: dict[str, object] = {"runtime.chandy-lamport.markers-overtake": True}


def _job(
    seed: int,
    *,
    protocol: str = "chandy-lamport",
    records: int | None = None,
    fuzz: int | None = None,
    **settings: dict[str, object],
) -> JobSpec:
    """Return a small job over two task managers. ``settings`` are groups of settings, in any number."""
    return small_job(
        protocol,
        seed=seed,
        fuzz=seed if fuzz is None else fuzz,
        task_managers=2,
        record_bytes=(60, 120, 700, 1500)[seed % 4],
        parallelism=2 + seed % 2,
        records=records,
        plan=tuple(late_triggers()),
        config={name: value for group in settings.values() for name, value in group.items()},
    )


def _completed(spec: JobSpec, count: int) -> list[Completed]:
    """Run the job until ``count`` checkpoints have completed, and return them. ``count`` is at most 100."""
    engine = JobEngine(replace(spec, config=replace(spec.config, num_retained=100)))
    while len(engine.coordinator.completed) < count:
        engine.run_until(engine.now_us + 10_000)
    return engine.coordinator.completed[:count]


def _acks(record: MeasuredCheckpoint) -> list[Any]:
    return [ack.measured for _, ack in sorted(record.acks.items())]


@pytest.mark.parametrize(
    "more",
    [{}, _EVERY_TASK, _UNTIL_READ, _OVERTAKING, _BLOCKING, _BLOCKING | _EVERY_TASK],
    ids=["default", "all", "read", "overtake", "block", "block all"],
)
def test_each_checkpoint_contains_the_bytes_between_its_snapshots_under_crashes(
    more: dict[str, object],
) -> None:
    crashes = (FaultSpec("task.mid-channel-state", hit=9), FaultSpec("coordinator.after-store", hit=5))
    lost = tuple(FaultSpec(point, hit=5, action=FaultAction.DROP) for point in ("rpc.trigger", "rpc.abort", "rpc.ack"))
    checked_bytes = 0
    for seed in range(1, 4):
        expiring: dict[str, object] = {"execution.checkpointing.timeout": "250 ms"}
        spec = _job(seed, records=RECORDS, more=more, expiring=expiring, stays=STAYS)
        engine = JobEngine(replace(spec, faults=(*spec.faults, *crashes, *lost)), keeps_rows=True)
        watch = Watch(engine, records=RECORDS)
        watch.run_to_the_end()
        assert engine.restart_count > 0, f"seed {seed}"
        checked_bytes += watch.checked_bytes
    assert checked_bytes > 0


@pytest.mark.parametrize("seed", [1, 3])
def test_a_task_blocks_no_channel_and_snapshots_at_the_moment_it_forwards_the_marker(seed: int) -> None:
    engine = JobEngine(_job(seed))
    at: dict[tuple[int, str, int], set[int]] = {}
    kinds: set[Kind] = set()

    def happened(checkpoint_id: int, event: Any) -> None:
        kinds.add(event.kind)
        if event.kind in (Kind.BARRIER_EMITTED, Kind.SNAPSHOT_SYNC_START):
            at.setdefault((checkpoint_id, event.vertex_id, event.subtask), set()).add(event.at_us)

    engine.env.log.listener = happened
    engine.run_until(1_000_000)
    assert len(at) > 20
    assert all(len(times) == 1 for times in at.values()), "CL-2: the state and the marker are apart"
    assert Kind.LOG_CLOSED in kinds
    assert kinds.isdisjoint({Kind.CHANNEL_BLOCKED, Kind.OVERTOOK, Kind.MODE_SWITCHED})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_channel_of_the_first_marker_is_not_logged_and_the_others_make_up_less_than_all_queues(seed: int) -> None:
    engine = JobEngine(_job(seed))
    first: dict[tuple[int, str, int], Any] = {}

    def happened(checkpoint_id: int, event: Any) -> None:
        if event.kind is Kind.BARRIER_RECEIVED:
            first.setdefault((checkpoint_id, event.vertex_id, event.subtask), event.channel)

    engine.env.log.listener = happened
    engine.run_until(1_000_000)
    names = [vertex.id for vertex in engine.env.graph.vertices]
    logged = 0
    for record in engine.coordinator.all_completed:
        for (v, subtask), ack in record.acks.items():
            sources = {key.source_subtask for key in ack.measured.inputs}
            logged += len(sources)
            if v:
                assert first[record.id, names[v], subtask].source_subtask not in sources, f"seed {seed}: {record.id}"
            assert not ack.measured.outputs
    assert logged > 5, f"seed {seed}"
    # Markers log less than unaligned checkpoints persist (section 8, row 15): the log has n - 1 input channels and no
    # output, while overtaking barriers persist all queues in front of them.
    unaligned = JobEngine(_job(seed, protocol="unaligned"))
    unaligned.run_until(1_000_000)
    sizes = [sum(r.persisted_bytes for r in e.coordinator.all_completed) for e in (engine, unaligned)]
    assert 0 < sizes[0] < sizes[1], f"seed {seed}"


def test_a_log_that_ends_when_its_marker_arrives_has_the_same_bytes_and_ends_no_later() -> None:
    earlier = 0
    for seed in range(1, 9):
        ((arrival,), (read,)) = (_completed(_job(seed, fuzz=0, more=more), 1) for more in ({}, _UNTIL_READ))
        for a, b in zip(_acks(arrival.record), _acks(read.record), strict=True):
            assert (a.inputs, a.first_barrier_us) == (b.inputs, b.first_barrier_us), f"seed {seed}"
            assert a.alignment_us <= b.alignment_us, f"seed {seed}"
            earlier += a.alignment_us < b.alignment_us
    assert earlier > 3


@pytest.mark.parametrize("seed", range(1, 7))
def test_overtaking_markers_give_the_bytes_of_an_unaligned_checkpoint(seed: int) -> None:
    overtaking, unaligned = (
        _completed(spec, 5) for spec in (_job(seed, more=_OVERTAKING), _job(seed, protocol="unaligned"))
    )
    persisted = 0
    for one, other in zip(overtaking, unaligned, strict=True):
        a, b = (_stored(each) for each in (one, other))
        assert a == b, f"seed {seed}, checkpoint {one.record.id}"
        assert one.record.end_to_end_us == other.record.end_to_end_us
        persisted += one.record.persisted_bytes
    assert persisted > 0


def _stored(completed: Completed) -> tuple[dict[str, Any], Any]:
    """Return the metadata of a checkpoint without its kind of barrier, and its files."""
    stored = completed.stored(completed.record.graph, inline_below_bytes=1)
    metadata = json.loads(stored.metadata)
    return {name: value for name, value in metadata.items() if name not in ("crc", "alignment")}, stored.files


def _wide(initiation: str, parallelism: int) -> JobSpec:
    """Return the wide job of the experiment, in which events of the same instant have a fixed order."""
    settings = {"runtime.chandy-lamport.initiation": initiation, "runtime.fuzz-schedule": 0}
    return wide_job(0, parallelism=parallelism).with_config(settings)


def _triggered(spec: JobSpec) -> MeasuredCheckpoint:
    engine = JobEngine(spec, is_size_only=True)
    engine.run_until(500_000)
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(3_000_000)
    (completed,) = engine.coordinator.completed
    return completed.record


def test_triggering_every_task_costs_messages_and_writes_that_grow_with_the_tasks() -> None:
    for parallelism in (2, 8):
        by_sources, by_all = (_triggered(_wide(how, parallelism)) for how in INITIATIONS.values())
        assert (by_sources.trigger_count, by_all.trigger_count) == (parallelism, 3 * parallelism)
        # The coordinator takes 1 ms to send a message. A task that receives a marker first starts without waiting for
        # its own message.
        delays = [max(m.start_delay_us for m in _acks(record)) for record in (by_sources, by_all)]
        assert (parallelism - 1) * 1_000 <= delays[0] <= delays[1] + 20_000, parallelism
        assert by_all.concurrent_writes_max >= by_sources.concurrent_writes_max, parallelism
        assert by_all.concurrent_writes_max >= parallelism, parallelism
    # Without delays between the messages, all tasks write to the store at the same time.
    burst = _triggered(replace(spec := _wide("all-tasks", 8), config=replace(spec.config, trigger_cost_us=0)))
    assert burst.concurrent_writes_max == 24


def test_a_broadcast_makes_the_other_messages_of_the_coordinator_wait() -> None:
    waits_us = []
    for how in INITIATIONS.values():
        engine = JobEngine(_wide(how, 8), is_size_only=True)
        engine.run_until(500_000)
        engine.coordinator.triggering.request_checkpoint()
        engine.run_until(502_000)
        # A user aborts the checkpoint while the coordinator still sends trigger messages.
        assert engine.abort_checkpoint(1)
        engine.run_until(3_000_000)
        waits_us.append(engine.env.message_wait_max_us)
    # Of 8 and of 24 messages of 1 ms each, 2 are sent, and the abort messages are on their way for about 1 ms.
    assert 4_000 < waits_us[0] < 6_000
    assert 20_000 < waits_us[1] < 22_000
    free = JobEngine(replace(spec := _wide("all-tasks", 8), config=replace(spec.config, trigger_cost_us=0)))
    free.run_until(500_000)
    free.coordinator.triggering.request_checkpoint()
    free.run_until(1_000_000)
    assert free.env.message_wait_max_us == 0


def test_a_subtask_that_waits_for_markers_does_not_count_as_writing() -> None:
    # One source is triggered 300 ms late, and the vertex "second" logs until its marker comes. Each task does 20 ms of
    # synchronous work before it forwards the marker, so the tasks write their state one after the other.
    job = late(partial(chain_job, sync="20 ms", order="S-F-L"), delay_us=300_000)
    (record,) = [m.record for m in checkpoints_of(Variant().of(job(0)))]
    waiting = record.acks[3, 0].measured
    assert waiting.state_durable_us is not None
    assert waiting.channels_begun_us is not None
    assert waiting.state_durable_us < 20_000
    assert waiting.channels_begun_us > 200_000
    # The late source writes when its marker lets the log of the vertex behind it be written.
    assert record.concurrent_writes_max == 2
    del record.acks[1, 0]
    assert record.concurrent_writes_max == 1


@pytest.mark.parametrize("more", [_BLOCKING, _BLOCKING | _EVERY_TASK], ids=["sources", "all"])
def test_a_blocked_channel_is_read_again_when_the_data_of_the_others_is_processed(more: dict[str, object]) -> None:
    settings: dict[str, object] = {"runtime.chandy-lamport.enabled": True, **more}
    engine = JobEngine(skewed_job(settings, load="skewed", seed=0), is_size_only=True)
    engine.run_until(500_000)
    events: list[tuple[int, Kind, Any]] = []
    engine.env.log.listener = lambda _, event: (
        events.append((event.at_us, event.kind, event))
        if (
            event.vertex_id,
            event.subtask,
        )
        == ("work", 0)
        else None
    )
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(3_000_000)
    blocked = [at for at, kind, _ in events if kind is Kind.CHANNEL_BLOCKED]
    resumed = [at for at, kind, _ in events if kind is Kind.CHANNEL_UNBLOCKED]
    read = [at for at, kind, event in events if kind is Kind.BARRIER_RECEIVED and event.channel is not None]
    closed = [at for at, kind, _ in events if kind is Kind.LOG_CLOSED]
    assert len(blocked) == len(resumed) == 4
    # The channels stay blocked until the last marker is read, so all data in front of the markers is processed.
    assert set(resumed) == {max(read)}
    assert min(blocked) < max(read) - 100_000
    # The logs are complete when the last marker arrives, so the checkpoint does not wait for the processing (CL-6).
    assert max(closed) < max(read)


def test_skew_lets_a_light_channel_start_the_snapshot_but_the_heavy_one_ends_it() -> None:
    unaligned: dict[str, object] = {"execution.checkpointing.unaligned.enabled": True}
    found = {}
    for protocol, settings in {
        "aligned": {},
        "markers": {"runtime.chandy-lamport.enabled": True},
        "unaligned": unaligned,
    }.items():
        for is_even in (True, False):
            record = _triggered(skewed_job(settings, load="even" if is_even else "skewed", seed=0))
            work = [ack.measured for (v, _), ack in record.acks.items() if v == 2]
            found[protocol, is_even] = (
                record.end_to_end_us or 0,
                max(m.start_delay_us for m in work),
                record.persisted_bytes,
            )
    for is_even in (True, False):
        ends, _, sizes = zip(*(found[p, is_even] for p in ("aligned", "markers", "unaligned")), strict=True)
        # The markers wait behind the same data as aligned barriers. Checkpoints with overtaking barriers are far
        # faster, and store more.
        assert ends[1] > 0.7 * ends[0], (is_even, ends)
        assert ends[2] < 0.2 * ends[1], (is_even, ends)
        assert 0 == sizes[0] < sizes[2], (is_even, sizes)
        assert sizes[1] < sizes[2], (is_even, sizes)
    # Under even load, the first marker waits as long as the last. Under skew, the light channel delivers its marker
    # early. The state is therefore taken early, and the log of the heavy channel is much larger than under even load.
    assert found["markers", False][1] < 0.3 * found["markers", False][0]
    assert found["markers", True][1] > 0.5 * found["markers", True][0]
    assert found["markers", False][2] > 5 * found["markers", True][2]


def test_a_lost_trigger_message_of_a_task_is_made_up_for_by_the_first_marker() -> None:
    spec = _wide("all-tasks", 2)
    # The messages go to the tasks in the order of the vertices, so the third one is for a map.
    lost = replace(spec, faults=(FaultSpec("rpc.trigger", hit=3, action=FaultAction.DROP),))
    received = [m.received.value for m in _acks(_triggered(lost))]
    assert received == ["marker"] * 6
