"""Each of several concurrent unaligned checkpoints persists exactly the bytes between its own two snapshots (CC-4)."""

from __future__ import annotations

import pytest

from backend.runtime.core.elements import SnapshotType
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.measures import CheckpointState
from tests.support.invariants import Watch
from tests.support.runtime_jobs import RECORDS, late_triggers, small_job

_CP = "execution.checkpointing."
_CONCURRENT: dict[str, object] = {
    "runtime.concurrent-unaligned": True,
    f"{_CP}max-concurrent-checkpoints": 3,
    f"{_CP}interval": "30 ms",
}


def _engine(seed: int, *plan: FaultSpec, records: int | None = RECORDS) -> JobEngine:
    size = (60, 120, 700, 1500)[seed % 4]
    spec = small_job(
        "unaligned",
        seed=seed,
        fuzz=seed,
        task_managers=1 + seed % 2,
        record_bytes=size,
        parallelism=2 + seed % 4 // 3 * 2,
        records=records,
        plan=(*late_triggers(), *plan),
        config=_CONCURRENT,
    )
    return JobEngine(spec, keeps_rows=True)


def _side_by_side(engine: JobEngine) -> int:
    """Return the number of checkpoints for which a subtask persists input now: the maximum over all subtasks."""
    runs = (task.checkpointing._snapshots.runs.values() for task in engine.tasks if task.source is None)
    return max(sum(run.is_input_open for run in each) for each in runs)


@pytest.mark.parametrize("seed", range(3))
def test_each_concurrent_checkpoint_persists_the_bytes_between_its_own_snapshots(seed: int) -> None:
    watch = Watch(_engine(seed, records=None))
    most = 0
    for at_us in range(5_000, 600_000, 5_000):
        watch.run_until(at_us)
        most = max(most, _side_by_side(watch.engine))
    assert most > 1, f"seed {seed}: never two concurrent ones"
    assert watch.checked_checkpoints > 5, f"seed {seed}"
    assert watch.checked_bytes > 0, f"seed {seed}"


@pytest.mark.parametrize("seed", [1, 4])
def test_concurrent_checkpoints_stay_exactly_once_under_crashes_and_lost_messages(seed: int) -> None:
    lost = tuple(FaultSpec(point, hit=5, action=FaultAction.DROP) for point in ("rpc.trigger", "rpc.abort", "rpc.ack"))
    crash = (FaultSpec("task.mid-channel-state", hit=20), FaultSpec("coordinator.after-store", hit=6))
    watch = Watch(_engine(seed, *lost, *crash), records=RECORDS)
    watch.run_to_the_end()
    assert watch.engine.restart_count > 0, f"seed {seed}"


def test_a_savepoint_never_runs_concurrently_with_them() -> None:
    engine = _engine(3, records=None)
    engine.run_until(200_000)
    savepoint = engine.request_savepoint()
    while savepoint.ended_at_us is None:
        engine.run_until(engine.now_us + 1_000)
        kinds = [p.barrier.snapshot_type for p in engine.coordinator._pending.values()]
        assert SnapshotType.SAVEPOINT not in kinds or kinds == [SnapshotType.SAVEPOINT], kinds
    assert savepoint.reason is None
    done = next(r for r in engine.coordinator.history if r.id == savepoint.checkpoint_id)
    assert done.state is CheckpointState.COMPLETED
