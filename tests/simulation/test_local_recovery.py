"""A subtask that restores its state from its worker's local copy gets the stored state without a transfer (RC-10)."""

from __future__ import annotations

import pytest

from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from backend.runtime.measure.measures import ChannelState, SubtaskSnapshot, TaskKey
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode
from backend.runtime.snapshot.local_copies import LocalCopies
from tests.support.invariants import run_to_the_end
from tests.support.runtime_jobs import RECORDS, STAYS, small_job

_LOCAL: dict[str, object] = {
    "execution.state-recovery.from-local": True,
    "runtime.cost.recovery-bytes-per-s": 100_000,
}


def _restarted(protocol: str, config: dict[str, object], *plan: FaultSpec) -> tuple[JobEngine, list[tuple[bool, bool]]]:
    """Run a job until it has restarted after a crash.

    Return its engine, and a pair for each subtask with keyed state: whether the subtask used its local copy, and
    whether the restored state equals that of the store.
    """
    spec = small_job(protocol, seed=4, plan=plan, config=config | STAYS, keyed={"state_bytes": 100})
    engine = JobEngine(spec, keeps_rows=True)
    told: list[tuple[bool, bool]] = []
    restored = engine.env.local.restored

    def told_restored(task: TaskKey, checkpoint_id: int, read: SubtaskSnapshot) -> tuple[SubtaskSnapshot, bool]:
        snapshot, is_local = restored(task, checkpoint_id, read)
        if any(operator.keyed for operator in read.operators):
            told.append((is_local, snapshot == read))
        return snapshot, is_local

    engine.env.local.restored = told_restored  # type: ignore[method-assign]
    while engine.coordinator.restored_count == 0:
        engine.run_until(engine.now_us + 20_000)
    return engine, told


_CRASH = FaultSpec("coordinator.between-notifies", hit=20)


@pytest.mark.parametrize("protocol", ["aligned", "unaligned"])
def test_a_restart_reads_the_same_state_from_the_worker_in_no_time(protocol: str) -> None:
    remote, from_store = _restarted(protocol, _LOCAL | {"execution.state-recovery.from-local": False}, _CRASH)
    local, from_worker = _restarted(protocol, _LOCAL, _CRASH)
    assert from_store == [(False, True), (False, True)]
    assert from_worker == [(True, True), (True, True)]
    assert local.trace_hash != remote.trace_hash
    assert local.restarts[0].state_load_us < remote.restarts[0].state_load_us
    keyed = [task.initialization for task in local.tasks if task.spec.id == "keyed"]
    assert all(0 < each.local_bytes <= each.state_bytes for each in keyed)
    kept = [list(copies) for copies in local.env.local._copies.values()]
    assert max(map(len, kept)) <= 2, "copies older than the last completed checkpoint are dropped"
    whole = run_to_the_end(local.spec, records=RECORDS)
    assert whole.restart_count == 1


def test_at_another_parallelism_the_store_is_read() -> None:
    engine, _ = _restarted("aligned", _LOCAL, _CRASH)
    engine.run_until(engine.now_us + 300_000)
    engine.rescale({"keyed": 3})
    engine.run_until(engine.now_us + 500_000)
    assert [t.initialization.local_bytes for t in engine.tasks if t.spec.id == "keyed"] == [0, 0, 0]
    assert engine.status == "RUNNING"


def _snapshot(*keyed: dict[int, bytes], entries: tuple[bytes, ...] = ()) -> SubtaskSnapshot:
    state = OperatorState("own", StateMode.SPLIT, entries)
    return SubtaskSnapshot(tuple(OperatorSnapshot(each, (state,)) for each in keyed), ChannelState(), -1, 9, 0)


def test_a_copy_serves_one_checkpoint_and_its_key_groups_and_is_dropped_after_it() -> None:
    copies, task, read = LocalCopies(), (0, 1), _snapshot({1: b"a", 2: b"b"}, entries=(b"dealt out anew",))
    for checkpoint_id in (3, 4, 5):
        copies.keep(task, checkpoint_id, _snapshot({1: b"a", 2: b"b"}, entries=(b"old",)).operators)
    # The copy provides only keyed state. Other operator state always comes from the store.
    assert copies.restored(task, 4, read) == (read, True)
    assert copies.restored((0, 2), 4, read) == (read, False)
    assert copies.restored(task, 6, read) == (read, False)
    assert copies.restored(task, 4, _snapshot({1: b"a"}))[1] is False
    copies.confirm(task, 4)
    assert [copies.restored(task, k, read)[1] for k in (3, 4, 5)] == [False, True, True]
    copies.drop(task, 5)
    assert [copies.restored(task, k, read)[1] for k in (3, 4, 5)] == [False, True, False]
    copies.clear()
    assert not copies.restored(task, 4, read)[1]
