"""Goal: the cost of a restart is reported in parts, and each part equals what an oracle sees (ME-17, RC-8, RC-11).

Method: small jobs crash once. The oracle advances virtual time in small steps. At each step, it reads the
states and offsets of the subtasks, without the runtime's measurements. Other jobs drop in-flight data in a
restart on request.
"""

from __future__ import annotations

import pytest

from backend.runtime.core.elements import HEADER
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from backend.runtime.measure.measures import TaskKey
from backend.runtime.task.task import TaskStatus
from tests.support.runtime_jobs import PROTOCOLS, exactly_once_violations, small_job

_STEP_US = 250
_DROP = "execution.checkpointing.recover-without-channel-state.checkpoint-id"


def _crashing(protocol: str, seed: int) -> JobSpec:
    plan = (FaultSpec("source.after-emit", hit=40, at_us=700_000),)
    config: dict[str, object] = {
        "runtime.cost.recovery-bytes-per-s": 200_000,
        "restart-strategy.fixed-delay.delay": "35 ms",
    }
    return small_job(protocol, seed=seed, records=None, plan=plan, task_managers=1 + seed % 2, config=config)


class _Watched:
    """Advances a run in small steps, and records instants of its restart.

    For each subtask, these are the instants at which it ran and at which its gate was restored. For each source,
    it is the instant at which the source had reached its offset before the crash.
    """

    def __init__(self, engine: JobEngine) -> None:
        self.failed_us = self.deployed_us = 0
        self.running: dict[TaskKey, int] = {}
        self.restored: dict[TaskKey, int] = {}
        self.back: dict[TaskKey, int] = {}
        offsets: dict[TaskKey, int] = {}
        while not engine.restart_count:
            offsets = {t.key: t.source.offset for t in engine.tasks if t.source}
            engine.run_until(engine.now_us + _STEP_US)
        self.failed_us = engine.exceptions[0].at_us
        dead = engine.tasks
        # A source may emit a record in the same event in which the job crashes, so read the offsets again.
        offsets = {t.key: t.source.offset for t in dead if t.source}
        while engine.tasks is dead:
            engine.run_until(engine.now_us + _STEP_US)
        self.deployed_us = engine.now_us
        while len(self.back) < len(offsets) or len(self.running) < len(engine.tasks):
            for task in engine.tasks:
                if task.status is TaskStatus.RUNNING:
                    self.running.setdefault(task.key, engine.now_us)
                if not task.gate.is_recovering:
                    self.restored.setdefault(task.key, engine.now_us)
                if task.source and task.source.offset >= offsets[task.key]:
                    self.back.setdefault(task.key, engine.now_us)
            engine.run_until(engine.now_us + _STEP_US)


def _near(measured_us: int | None, seen_us: int) -> bool:
    return measured_us is not None and seen_us - 2 * _STEP_US <= measured_us <= seen_us


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_part_of_a_restart_equals_what_the_oracle_saw(protocol: str) -> None:
    for seed in (1, 2):
        engine = JobEngine(_crashing(protocol, seed))
        seen = _Watched(engine)
        (restart,) = engine.restarts
        where = f"{protocol}, seed {seed}"
        assert restart.failed_at_us == seen.failed_us, where
        assert restart.restart_us == 35_000, where
        assert restart.restored_id == engine.restored_id is not None, where
        assert restart.cause.startswith("InducedFailure"), where
        assert _near(restart.running_at_us, max(seen.running.values())), where
        assert _near((restart.deployed_at_us or 0) + (restart.source_replay_us or 0), max(seen.back.values())), where
        assert restart.catch_up_us is None, "an unlimited source has no schedule to catch up with"
        completed = {c.record.id: c for c in engine.coordinator.completed}
        for key, one in restart.subtasks.items():
            what = f"{where}, {key}"
            assert _near(one.gate_restored_at_us, seen.restored[key]), what
            assert _near(one.running_at_us, seen.running[key]), what
            loaded = one.state_bytes + one.channel_bytes
            assert one.mailbox_start_us == loaded * 1_000_000 // 200_000, what
            assert (one.gate_restore_us or 0) >= 0, what
        snapshots = completed.get(restart.restored_id or 0)
        if snapshots is not None:
            assert {k: s.persisted_bytes for k, s in snapshots.snapshots.items()} == {
                k: one.channel_bytes for k, one in restart.subtasks.items()
            }
        channel_bytes = sum(one.channel_bytes for one in restart.subtasks.values())
        assert (channel_bytes > 0) == (protocol != "aligned"), where
        assert (restart.channel_load_us > 0) == (protocol != "aligned"), where
        assert restart.state_load_us > 0, where
        if protocol != "aligned":
            assert (restart.channel_replay_us or 0) > 1_000, where


def test_the_time_until_a_source_with_a_rate_has_caught_up_is_reported() -> None:
    document = {
        "name": "rated",
        "config": {
            "execution.checkpointing.interval": "200 ms",
            "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
            "restart-strategy.fixed-delay.delay": "300 ms",
        },
        "vertex": [
            {"id": "source", "kind": "source", "rate": 500, "cost_us": 100},
            {"id": "sink", "kind": "keyed+sink", "cost_us": 1000},
        ],
        "edge": [{"from": "source", "to": "sink", "partitioner": "hash"}],
        "fault": [{"point": "task.in-sync", "hit": 7}],
    }
    engine = JobEngine(load_job_document(document))
    while not engine.restart_count:
        engine.run_until(engine.now_us + _STEP_US)
    failed_us = engine.exceptions[0].at_us
    while engine.now_us < failed_us + 301_000:
        engine.run_until(engine.now_us + _STEP_US)
    (restart,) = engine.restarts
    assert restart.catch_up_us is None
    behind = True
    while behind:
        engine.run_until(engine.now_us + _STEP_US)
        source = engine.tasks[0].source
        assert source is not None
        behind = (source.due_us() or 0) <= engine.now_us
    seen_us = engine.now_us
    engine.run_until(seen_us + 2_000)
    # The source detects only at its next step that no record is due, so the times may differ by one step.
    assert seen_us - _STEP_US <= (restart.deployed_at_us or 0) + (restart.catch_up_us or 0) <= seen_us + _STEP_US
    assert (restart.source_replay_us or 0) < (restart.catch_up_us or 0)


def test_a_failure_during_a_restart_begins_a_second_one_and_the_first_stays_unfinished() -> None:
    plan = (FaultSpec("source.after-emit", hit=40, at_us=700_000), FaultSpec("recovery.before-new-data", at_us=700_000))
    engine = JobEngine(small_job("unaligned", records=None, plan=plan))
    engine.run_until(2_000_000)
    first, second = engine.restarts
    assert first.running_at_us is None
    assert first.source_replay_us is None
    assert second.running_at_us is not None
    assert all(second.source_offsets[key] >= offset for key, offset in first.source_offsets.items())


@pytest.mark.parametrize("protocol", ["unaligned", "aligned-timeout"])
def test_in_flight_data_is_left_out_only_on_request_and_the_loss_is_reported(protocol: str) -> None:
    records = 1_000
    for drops in (False, True):
        plan = (FaultSpec("source.after-emit", hit=1, at_us=700_000),)
        engine = JobEngine(small_job(protocol, seed=6, records=records, plan=plan), keeps_rows=True)
        while not engine.restart_count:
            engine.run_until(engine.now_us + 1_000)
        newest = engine.coordinator.newest
        assert newest is not None
        in_flight_bytes = newest.record.persisted_bytes
        assert in_flight_bytes > 0
        engine.set_config({_DROP: newest.record.id if drops else newest.record.id + 1})
        engine.run_until(8_000_000)
        (restart,) = engine.restarts
        assert restart.lost_channel_bytes == (in_flight_bytes if drops else 0)
        # Each missing record has 120 bytes. A snapshot may have cut one record in two. All other lost bytes are
        # watermarks.
        missing = records - engine.ledger.committed_count
        assert (missing > 0) == drops
        if drops:
            assert 0 <= in_flight_bytes - 120 * missing < in_flight_bytes / 10
            assert (in_flight_bytes - 120 * missing) % HEADER.size == 0
        violations = exactly_once_violations(engine.ledger.rows, records)
        assert violations == ([f"{missing} records missing"] if drops else [])
