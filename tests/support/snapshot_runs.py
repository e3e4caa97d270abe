"""Run jobs until they have a snapshot of a given kind. Tests of restoring and of capabilities start from there."""

from __future__ import annotations

from backend.runtime.core.elements import SnapshotType
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.snapshot.capabilities import SnapshotKind
from backend.runtime.snapshot.metadata import StoredCheckpoint
from tests.support.rescaled_jobs import rescaled_job
from tests.support.runtime_jobs import STAYS

SNAPSHOT_SETTINGS = {
    SnapshotKind.CANONICAL_SAVEPOINT: ("savepoint", SnapshotType.SAVEPOINT),
    SnapshotKind.ALIGNED: ("aligned", SnapshotType.CHECKPOINT),
    SnapshotKind.UNALIGNED: ("unaligned", SnapshotType.CHECKPOINT),
}


def run_to_snapshot(kind: SnapshotKind, spec: JobSpec) -> tuple[JobEngine, StoredCheckpoint]:
    """Run the job until it has a snapshot of this kind, and return before the job commits more records."""
    engine = JobEngine(spec, keeps_rows=True)
    engine.run_until(80_000)
    while engine.coordinator.newest is None:
        engine.run_until(engine.now_us + 1_000)
    engine.set_config({"execution.checkpointing.interval": "1 h"})
    engine.run_until(engine.now_us + 80_000)
    newest = engine.coordinator.newest
    if kind is SnapshotKind.CANONICAL_SAVEPOINT:
        asked = engine.request_savepoint()
        engine.run_until(engine.now_us + 700_000)
        stored = engine.savepoint(asked.checkpoint_id or 0)
        assert stored is not None
        return engine, stored
    assert newest is not None
    return engine, newest.stored(newest.record.graph)


def snapshot_job(kind: SnapshotKind, parallelism: tuple[int, int, int] = (2, 2, 2)) -> JobSpec:
    """Build a job that takes snapshots of this kind."""
    return rescaled_job(SNAPSHOT_SETTINGS[kind][0], "hash", parallelism, seed=3, record_bytes=400, config=STAYS)
