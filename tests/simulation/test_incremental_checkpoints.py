"""Goal: incremental checkpoints restore the state of full ones, write less, and leave no file (runtime.md 5, T-19).

Small jobs run with each backend, through crashes, aborted checkpoints, lost messages, rescales and restarts from local
copies. ``Watch`` compares each completed checkpoint with the whole state and looks at all files.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from backend.domain.errors import CorruptCheckpointError, PlanError
from backend.runtime.coordinator.coordinator import AckOutcome
from backend.runtime.coordinator.rescales import RescaleSpec
from backend.runtime.demo import demo_path
from backend.runtime.engine.jobfile import load_job
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.engine.simulate import simulate
from backend.runtime.job.faults import corrupted
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.measures import MeasuredCheckpoint
from backend.runtime.operators.backends.base import Chain
from backend.runtime.snapshot.metadata import StoredCheckpoint, read_checkpoint
from tests.support.inside_jobs import take_over
from tests.support.invariants import Watch
from tests.support.runtime_jobs import STAYS, small_job

BACKENDS = ("changelog", "diff", "sst")
_RECORDS = 300


def _config(backend: str, **more: object) -> dict[str, object]:
    settings: dict[str, object] = {
        "runtime.state-backend": backend,
        "execution.checkpointing.incremental": backend != "full",
        "runtime.changelog.flush-interval": "15 ms",
        "runtime.changelog.materialize-interval": "170 ms",
        "runtime.diff.chain-max": 3,
        "runtime.sst.runs-max": 3,
    } | STAYS
    return settings | {name.replace("_", "-"): value for name, value in more.items()}


def _engine(backend: str, *plan: FaultSpec, protocol: str = "aligned", **named: Any) -> JobEngine:
    config = _config(backend) | named.pop("config", {})
    spec = small_job(protocol, seed=5, plan=plan, records=_RECORDS, config=config, **named)
    return JobEngine(spec, keeps_rows=True)


def _watched(engine: JobEngine) -> Watch:
    watch = Watch(engine, records=_RECORDS)
    watch.run_to_the_end()
    return watch


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["keyed+sink", "timer+sink", "window+sink"])
def test_a_job_restores_its_increments_after_crashes(backend: str, kind: str) -> None:
    plan = [FaultSpec("coordinator.between-notifies", hit=3 + 9 * n) for n in range(3)]
    keyed: dict[str, object] = {"kind": kind, "state_bytes": 500}
    keyed |= {"hold": "15 ms", "cost_us": 1800} if kind == "timer+sink" else {}
    if kind == "window+sink":
        engine = _engine(backend, *plan, keyed={"kind": kind, "window": "40 ms"})
        watch = Watch(engine)
        watch.run_until(1_500_000)
        watch.end()
    else:
        engine = _engine(backend, *plan, keyed=keyed)
        watch = _watched(engine)
    assert engine.restart_count == 3
    assert watch.shared_files.shared_count > 3
    assert engine.env.files.deleted_count > 3


def _keyed_bytes(engine: JobEngine) -> list[dict[int, bytes]]:
    newest = engine.coordinator.newest
    assert newest is not None
    read = read_checkpoint(newest.stored(engine.env.graph))
    return [dict(subtask.operators[0].keyed) for subtask in read.vertices["keyed"].subtasks]


def test_every_backend_restores_the_bytes_of_the_full_one_at_the_same_barrier() -> None:
    # Costs that differ between the backends are zero, so that the barriers of all runs are at the same place.
    free = {
        "runtime.cost.diff-ns-per-byte": 0,
        "runtime.changelog.flush-interval": 0,
        "runtime.changelog.materialize-interval": "1 h",
        "execution.checkpointing.interval": "90 ms",
    }
    engines = {backend: _engine(backend, config=free) for backend in ("full", *BACKENDS)}
    compared = 0
    for at_us in range(300_000, 1_000_000, 90_000):
        states = {}
        for backend, engine in engines.items():
            engine.run_until(at_us)
            states[backend] = _keyed_bytes(engine)
        for backend in BACKENDS:
            assert states[backend] == states["full"], backend
        compared += bool(states["full"])
    assert compared > 5


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_checkpoint_writes_less_than_it_refers_to_and_both_sizes_are_shown(backend: str) -> None:
    engine = _engine(backend, keyed={"state_bytes": 2000})
    engine.run_until(900_000)
    done = [record for record in engine.coordinator.all_completed if record.is_incremental]
    assert any(0 < record.written_bytes < record.state_bytes for record in done)
    for record in engine.coordinator.all_completed:
        assert 0 < record.written_bytes <= record.state_bytes
    full = _engine("full", keyed={"state_bytes": 2000})
    full.run_until(900_000)
    for record in full.coordinator.all_completed:
        assert record.written_bytes == record.state_bytes
        assert not record.is_incremental


def test_the_metadata_marks_full_and_incremental_parts_and_names_the_base() -> None:
    engine = _engine("diff")
    kinds: list[tuple[str, int | None]] = []
    for at_us in range(100_000, 900_000, 25_000):
        engine.run_until(at_us)
        newest = engine.coordinator.newest
        if newest is None:
            continue
        document = json.loads(newest.stored(engine.env.graph).metadata)
        rows = {v["id"]: v["subtasks"][0]["operators"] for v in document["vertices"]}
        keyed = rows["keyed"][0]["keyed"]
        assert document["is_incremental"] == (keyed["kind"] == "incremental")
        assert keyed["backend"] == "diff"
        assert [f["file"] for f in keyed["shared"]] == [f["file"] for f in keyed["shared"] if "shared/" in f["file"]]
        # State without keys does not record its changes. It is written in full, into the document itself (IN-11).
        for without_keys in (rows["keyed"][1], rows["source"][0]):
            assert "shared" not in without_keys["keyed"]
            assert without_keys["states"]
            assert all("inline" in state and state["size"] < 1000 for state in without_keys["states"])
        kinds.append((keyed["kind"], keyed["base"]))
    bases = [base for kind, base in dict.fromkeys(kinds) if kind == "incremental"]
    assert ("full", None) in kinds
    assert len(bases) > 3
    assert bases == sorted(set(bases), key=bases.index)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_full_checkpoint_on_request_breaks_the_chain(backend: str) -> None:
    engine = _engine(backend)
    engine.run_until(450_000)
    asked = engine.request_checkpoint(is_full=True)
    engine.run_until(900_000)
    records = {record.id: record for record in engine.coordinator.all_completed}
    assert asked.checkpoint_id is not None
    full = records[asked.checkpoint_id]
    assert not full.is_incremental
    later = [record for k, record in records.items() if k > full.id]
    assert later[0].is_incremental
    assert {a.measured.increment.base_id for a in later[0].acks.values() if a.measured.increment} == {full.id}


def test_every_nth_checkpoint_is_full_if_the_settings_say_so() -> None:
    engine = _engine("sst", config={"runtime.full-checkpoint-every": 3})
    engine.run_until(900_000)
    records = list(engine.coordinator.all_completed)
    assert len(records) > 6
    assert all(not record.is_incremental for record in records if record.id % 3 == 0)
    assert any(record.is_incremental for record in records)


def test_switching_increments_off_and_on_while_the_job_runs() -> None:
    engine = _engine("diff")
    watch = Watch(engine, records=_RECORDS)
    for at_us, wanted in ((300_000, False), (500_000, True), (620_000, False), (700_000, True)):
        watch.run_until(at_us)
        engine.set_config({"execution.checkpointing.incremental": wanted})
    watch.run_to_the_end()
    kinds = [record.is_incremental for record in engine.coordinator.all_completed]
    assert True in kinds
    assert False in kinds[kinds.index(True) :]


def test_a_savepoint_is_whole_and_shares_no_file() -> None:
    engine = _engine("sst")
    engine.run_until(400_000)
    asked = engine.request_savepoint()
    engine.run_until(700_000)
    assert asked.checkpoint_id is not None
    kept = engine.coordinator.savepoints[asked.checkpoint_id]
    assert kept.shared_files == {}
    assert not any(isinstance(o.keyed, Chain) for s in kept.snapshots.values() for o in s.operators)
    stored = engine.savepoint(asked.checkpoint_id)
    assert stored is not None
    assert not any("shared" in name for name in stored.files)
    again = JobEngine(engine.spec, keeps_rows=True, restore=stored)
    take_over(again.ledger, engine.ledger)
    again.run_until(500_000)
    first = min(again.coordinator.all_completed, key=lambda record: record.id)
    assert not first.is_incremental
    assert any(record.is_incremental for record in again.coordinator.all_completed)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("from_savepoint", [False, True])
def test_a_rescaled_job_reads_the_increments_and_begins_new_ones(backend: str, *, from_savepoint: bool) -> None:
    spec = small_job("unaligned", seed=5, records=_RECORDS, config=_config(backend))
    asked = (
        RescaleSpec(330_000, {"keyed": 3}, from_savepoint),
        RescaleSpec(600_000, {"keyed": 1, "map": 3}, from_savepoint),
        RescaleSpec(800_000, {"map": 2}, from_savepoint),
    )
    engine = JobEngine(replace(spec, rescales=asked), keeps_rows=True)
    watch = _watched(engine)
    assert [rescale.status for rescale in engine.rescales] == ["COMPLETED"] * 3
    assert watch.shared_files.shared_count > 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_restart_from_local_copies_continues_the_chain(backend: str) -> None:
    plan = FaultSpec("task.before-sync", hit=21)
    engine = _engine(backend, plan, config={"execution.state-recovery.from-local": True})
    _watched(engine)
    assert engine.restart_count == 1
    assert any(one.local_bytes for restart in engine.restarts for one in restart.subtasks.values())
    assert engine.restored_id is not None
    next_one = next(r for r in engine.coordinator.all_completed if r.id > engine.restored_id)
    assert next_one.is_incremental, "the restored checkpoint is the base"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "fault",
    [
        FaultSpec("rpc.ack", hit=6, action=FaultAction.DROP, times=3),
        FaultSpec("rpc.ack", hit=6, action=FaultAction.DELAY, delay_us=500_000, times=3),
        FaultSpec("rpc.ack", hit=6, action=FaultAction.DUPLICATE, times=3),
        FaultSpec("rpc.notify", hit=4, action=FaultAction.DROP, times=9),
        FaultSpec("rpc.abort", hit=1, action=FaultAction.DROP, times=4),
        FaultSpec("store.write", hit=7, action=FaultAction.ERROR, times=4),
        FaultSpec("store.write", hit=7, action=FaultAction.DELAY, delay_us=400_000),
        FaultSpec("coordinator.metadata", hit=3, action=FaultAction.ERROR, times=2),
        FaultSpec("task.mid-upload", hit=9),
        FaultSpec("task.before-ack", hit=9),
        FaultSpec("task.after-ack", hit=9),
        FaultSpec("coordinator.on-subsume", hit=3),
        FaultSpec("coordinator.after-store", hit=3),
    ],
    ids=lambda fault: f"{fault.point}-{fault.action.value}",
)
def test_aborted_and_subsumed_checkpoints_release_their_files_once(backend: str, fault: FaultSpec) -> None:
    late = [FaultSpec("rpc.ack", hit=12, action=FaultAction.DELAY, delay_us=400_000)]
    others = late if fault.point == "rpc.abort" else []
    engine = _engine(backend, fault, *others, config={"execution.checkpointing.timeout": "250 ms"})
    _watched(engine)
    assert engine.env.faults.struck[fault.point]
    assert len(engine.env.files) == 0, "checked and cleaned up by the watch"


def test_the_log_between_checkpoints_is_limited_by_writing_the_whole_state() -> None:
    spec = small_job(
        "aligned", seed=5, records=None, config=_config("changelog") | {"execution.checkpointing.interval": "1 h"}
    )
    engine = JobEngine(spec)
    kept = []
    for at_us in range(100_000, 4_100_000, 100_000):
        if at_us == 500_000:
            engine.request_checkpoint()
        engine.run_until(at_us)
        pieces = [piece for task in engine.tasks for piece in task.increments.owned]
        kept.append(sum(piece.change_count for piece in pieces))
    first, *later = kept[8:]
    assert first > 0
    assert max(later[20:]) < 2 * max(later[:10]), "nothing grows with the time since the checkpoint"


def test_files_of_a_late_acknowledgement_are_registered_and_go_with_the_next_subsumption() -> None:
    late = FaultSpec("rpc.ack", hit=9, action=FaultAction.DELAY, delay_us=330_000)
    engine = _engine("diff", late, config={"execution.checkpointing.timeout": "250 ms"})
    engine.run_until(1_500_000)
    assert engine.coordinator.ack_outcomes[AckOutcome.DISCARDED] >= 1
    newest = engine.coordinator.newest
    assert newest is not None
    assert engine.env.files.registry.paths == set(newest.shared_files)


@pytest.mark.parametrize("backend", BACKENDS)
def test_concurrent_checkpoints_share_files_only_with_confirmed_ones(backend: str) -> None:
    config = {
        "execution.checkpointing.max-concurrent-checkpoints": 3,
        "execution.checkpointing.interval": "25 ms",
        "execution.checkpointing.num-retained": 2,
    }
    slow = [FaultSpec("store.write", hit=5 + 6 * n, action=FaultAction.DELAY, delay_us=60_000) for n in range(6)]
    engine = _engine(backend, *slow, config=config)
    watch = _watched(engine)
    assert watch.shared_files.shared_count > 5


# --- damage -----------------------------------------------------------------------------------------------------------


def _stored(backend: str) -> StoredCheckpoint:
    engine = _engine(backend)
    newest = None
    for at_us in range(300_000, 1_500_000, 20_000):
        engine.run_until(at_us)
        newest = engine.coordinator.newest
        if newest is not None and newest.record.is_incremental and len(newest.shared_files) > 3:
            break
    assert newest is not None
    return newest.stored(engine.env.graph)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_damaged_increment_or_a_missing_shared_file_is_one_error_with_place_and_cure(backend: str) -> None:
    stored = _stored(backend)
    shared = [name for name in stored.files if name.startswith("shared/")]
    assert len(shared) > 1
    for name in shared:
        missing = replace(stored, files={k: v for k, v in stored.files.items() if k != name})
        torn = replace(stored, files={**stored.files, name: stored.files[name][:-1] + b"\xff"})
        for broken, word in ((missing, "missing"), (torn, "damaged")):
            with pytest.raises(CorruptCheckpointError) as caught:
                read_checkpoint(broken)
            assert caught.value.part == name
            assert str(caught.value) == (
                f"CK-3: the shared file {name} of {name.split('/')[1].replace('-', '/')} is {word}; "
                "restore another checkpoint or savepoint"
            )


@pytest.mark.parametrize("backend", BACKENDS)
def test_any_flipped_bit_is_found(backend: str) -> None:
    stored = _stored(backend)
    parts = set()
    for draw in range(60):
        with pytest.raises(CorruptCheckpointError) as caught:
            read_checkpoint(StoredCheckpoint(*corrupted(stored.metadata, stored.files, draw=draw)))
        parts.add(caught.value.part)
    assert parts == {"metadata", *(name for name in stored.files if stored.files[name])}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_whose_increment_is_damaged_ends_and_restores_nothing(backend: str) -> None:
    crash, damage = FaultSpec("task.before-sync", hit=25), FaultSpec("store.read", action=FaultAction.CORRUPT)
    engine = _engine(backend, crash, damage)
    engine.run_until(3_000_000)
    assert engine.status == "FAILED"
    assert engine.exceptions[0].name == "CorruptCheckpointError"
    assert all(task.is_dead for task in engine.tasks), "no task of a new attempt exists"
    committed = engine.ledger.committed_count
    engine.run_until(4_000_000)
    assert engine.ledger.committed_count == committed


def test_increments_without_a_backend_that_has_them_are_refused_with_the_cure() -> None:
    spec = small_job("aligned")
    with pytest.raises(PlanError, match=r"IN-1: the state backend full has no incremental checkpoints; set runtime"):
        spec.with_config({"execution.checkpointing.incremental": True})


# --- costs ------------------------------------------------------------------------------------------------------------


def _large_kv(backend: str, *, crash_at_us: int = 0) -> tuple[JobEngine, list[MeasuredCheckpoint]]:
    changes = {"runtime.state-backend": backend, "execution.checkpointing.incremental": backend != "full"}
    # At the end, the state is so large that a full checkpoint spends most of its time on writing the state.
    spec = load_job(demo_path("large_kv")).with_config(changes | {"web.checkpoints.history": 100})
    if crash_at_us:
        spec = replace(spec, faults=(FaultSpec("source.after-emit", at_us=crash_at_us),))
    engine = JobEngine(spec, is_size_only=True)
    engine.run_until(48_000_000)
    return engine, list(engine.coordinator.all_completed)


def test_large_state_of_which_little_changes_compared_between_all_backends() -> None:
    runs = {backend: _large_kv(backend)[1] for backend in ("full", *BACKENDS)}
    written = {backend: sum(record.written_bytes for record in done) for backend, done in runs.items()}
    full_sizes = {backend: done[-1].state_bytes for backend, done in runs.items()}
    assert written["diff"] < 0.5 * written["full"]
    assert written["sst"] < 0.6 * written["full"]
    for of_diff, of_log in zip(runs["diff"], runs["changelog"], strict=True):
        deltas = [a.measured.increment for a in (*of_diff.acks.values(), *of_log.acks.values()) if a.measured.increment]
        if of_diff.is_incremental and all(each.base_id for each in deltas):
            assert of_diff.written_bytes <= of_log.written_bytes, "a difference collapses overwrites"
    # The changelog is written before the barrier, so its checkpoints take the least time, and need the most space
    # (IN-10).
    slowest = {backend: max(record.end_to_end_us or 0 for record in done) for backend, done in runs.items()}
    assert slowest["changelog"] < 0.1 * slowest["full"]
    assert full_sizes["changelog"] > full_sizes["full"]
    extra = {a.measured.increment.extra_bytes for a in runs["diff"][-1].acks.values() if a.measured.increment}
    assert min(extra) > 0.3 * full_sizes["full"]


def test_a_restart_applies_the_changes_of_a_log_and_this_takes_time() -> None:
    loads = {}
    for backend in ("full", "changelog", "sst"):
        engine, _ = _large_kv(backend, crash_at_us=40_000_000)
        [restart] = engine.restarts
        loads[backend] = (restart.state_load_us, restart.replay_us)
    assert loads["full"][1] == loads["sst"][1] == 0
    assert loads["changelog"][1] > 1_000
    assert loads["changelog"][0] > loads["full"][0]


def test_simulate_shows_the_written_and_the_full_size_of_large_kv() -> None:
    document = simulate(load_job(demo_path("large_kv")), duration_us=18_000_000, is_size_only=True).to_json()
    sizes = [(c["written_bytes"], c["state_bytes"], c["is_incremental"]) for c in document["checkpoints"]]
    assert [incremental for *_, incremental in sizes] == [False, True, True, True]
    assert all(written < full for written, full, incremental in sizes if incremental)
    assert document["settings"]["runtime.state-backend"] == "sst"
