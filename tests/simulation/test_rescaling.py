"""Goal: a job restarted at another parallelism loses and repeats nothing, whatever it restarts from (RS-1 to RS-14).

Method: the jobs of ``tests/support/rescaled_jobs.py`` fill the channels of both edges, stop, and start again
with other parallelisms. The ledger must contain each record once, with counts 1..n for each key. The tests
combine every partitioner with every kind of checkpoint. Each combination runs one or two of the changes of
RS-13, so that the changes take turns. ``RESCALE_SEEDS=n`` runs all changes for n seeds.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest

from backend.domain.errors import PlanError
from backend.runtime.coordinator.rescales import RescaleSpec
from backend.runtime.core.prng import Stream
from backend.runtime.engine.jobfile import load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.engine.simulate import simulate
from backend.runtime.job.graph import FaultAction, FaultSpec, Partitioner
from backend.runtime.task.recovery import Recovery
from backend.runtime.task.task import TaskStatus
from tests.support.inside_jobs import take_over
from tests.support.invariants import InvariantError
from tests.support.rescaled_jobs import (
    MODES,
    PARTITIONERS,
    RECORDS,
    TARGETS,
    filtered,
    finish,
    out_of_order,
    rescaled_job,
    run_rescaled,
    violations,
)
from tests.support.runtime_jobs import STAYS

_SEEDS = int(os.environ.get("RESCALE_SEEDS", "0"))
_TURN = [(mode, partitioner) for mode in MODES for partitioner in PARTITIONERS]


def _changes(mode: str, partitioner: str) -> list[tuple[tuple[int, int], int]]:
    """Return the changes to run: pairs of parallelisms (before, after), each with a seed."""
    if _SEEDS:
        return [(pair, seed) for pair in TARGETS for seed in range(_SEEDS)]
    turn = _TURN.index((mode, partitioner))
    return [(TARGETS[(3 * turn + n) % len(TARGETS)], turn + n) for n in ((0, 4) if "unaligned" in mode else (0,))]


def _run(mode: str, partitioner: str, pair: tuple[int, int], seed: int) -> JobEngine:
    """Run a job that changes the parallelism of its map from ``pair[0]`` to ``pair[1]``, and return the engine.

    For odd seeds, the source and the keyed vertex change in the same way. For even seeds, they change differently
    (RS-13).
    """
    before, after = pair
    first = (before, before, before), {"source": after, "map": after, "keyed": after}
    other = (2, before, 3), {"source": 3, "map": after, "keyed": 2}
    parallelism, wanted = first if seed % 2 else other
    spec = rescaled_job(mode, partitioner, parallelism, seed=seed)
    return run_rescaled(spec, wanted, from_savepoint=mode == "savepoint")


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_job_continues_exactly_once_at_another_parallelism(mode: str, partitioner: str) -> None:
    in_flight = 0
    for pair, seed in _changes(mode, partitioner):
        engine = _run(mode, partitioner, pair, seed)
        where = f"{mode}, {partitioner}, {pair}, seed {seed}"
        assert violations(engine) == [], where
        (rescale,) = engine.rescales
        assert rescale.restored_id is not None, where
        assert engine.restarts[-1].restored_id == rescale.restored_id, where
        assert engine.restart_count == 1, where
        assert {t.spec.id: t.spec.parallelism for t in engine.tasks}["map"] == pair[1], where
        assert {task.status for task in engine.tasks} == {TaskStatus.FINISHED}, where
        assert engine.coordinator.newest is not None, where
        assert engine.coordinator.newest.record.id > rescale.restored_id, where
        in_flight += rescale.persisted_bytes
    if mode in ("aligned", "savepoint"):
        assert in_flight == 0
    elif mode == "unaligned":
        assert in_flight > 0, f"{mode}, {partitioner}: no in-flight data, so that nothing was tested"


def test_ambiguous_records_are_kept_by_one_subtask_and_their_copies_are_counted() -> None:
    """Each in-flight record of a hashed edge is processed by only one subtask (RS-9).

    Its copies at other subtasks count as filtered (ME-17).
    """
    for seed, (before, after) in enumerate(((2, 3), (3, 2), (1, 2))):
        spec = rescaled_job("unaligned", "hash", (2, before, before), seed=seed)
        engine = run_rescaled(spec, {"map": after, "keyed": after}, from_savepoint=False)
        assert violations(engine) == [], f"seed {seed}"
        assert filtered(engine) > 0, f"seed {seed}"
        by_vertex = Counter[int]()
        for key, one in engine.restarts[-1].subtasks.items():
            by_vertex[key[0]] += one.records_filtered
        assert by_vertex[0] == 0, "a source reads no channel"
    # No record is ambiguous if only one subtask remains (RS-4), or on edges that distribute records round robin
    # (RS-5).
    for partitioner, wanted in (("hash", {"map": 1, "keyed": 1}), ("rebalance", {"map": 3}), ("shuffle", {"map": 5})):
        engine = run_rescaled(rescaled_job("unaligned", partitioner, (2, 2, 2), seed=4), wanted, from_savepoint=False)
        assert engine.rescales[0].persisted_bytes > 0
        assert (violations(engine), filtered(engine)) == ([], 0), partitioner


@pytest.mark.parametrize("mode", ["unaligned", "aligned-timeout", "savepoint"])
def test_records_of_one_key_and_split_stay_in_order_through_a_rescale(mode: str) -> None:
    """Records of one key and split stay in order through virtual channels (INV-1).

    The keyed vertex reads the sources directly, and the rescale gives splits and keys to other subtasks.
    """
    for seed, (before, after) in enumerate(((2, 3), (3, 2), (4, 2))):
        document = {
            "name": "ordered",
            "seed": seed,
            "config": {
                "execution.checkpointing.interval": "60 ms",
                "execution.checkpointing.unaligned.enabled": True,
                "taskmanager.memory.segment-size": 512,
                "restart-strategy.fixed-delay.delay": "10 ms",
                "runtime.task-managers": 1 + seed % 2,
            }
            | ({"execution.checkpointing.aligned-checkpoint-timeout": "10 ms"} if mode == "aligned-timeout" else {}),
            "vertex": [
                {"id": "source", "kind": "source", "parallelism": before, "keys": 7, "limit": RECORDS, "cost_us": 50},
                {"id": "keyed", "kind": "keyed+sink", "parallelism": before, "cost_us": 1300 * before},
            ],
            "edge": [{"from": "source", "to": "keyed", "partitioner": "hash"}],
            "store": {"latency": "3 ms", "bytes_per_s": "20 mb"},
        }
        wanted = {"source": before + 1, "keyed": after}
        engine = run_rescaled(load_job_document(document), wanted, from_savepoint=mode == "savepoint")
        assert violations(engine) == [], f"{mode}, seed {seed}"
        assert out_of_order(engine) == [], f"{mode}, seed {seed}"
        assert (engine.rescales[0].persisted_bytes > 0) == (mode != "savepoint")


def test_a_crash_while_a_rescaled_job_recovers_loses_and_repeats_nothing() -> None:
    struck: Counter[str] = Counter()
    points = ("recovery.before-output", "recovery.mid-output", "recovery.in-operator", "recovery.mid-input")
    for seed in range(4):
        draws = Stream(seed, "rescaled crashes")
        plan = (
            FaultSpec(points[seed % 4], hit=1 + draws.below(4)),
            FaultSpec(
                ("recovery.before-new-data", "task.in-sync", "coordinator.between-notifies")[seed % 3], at_us=230_000
            ),
        )
        spec = rescaled_job("unaligned", "hash", (2, 2 + seed % 2, 3), seed=seed, plan=plan)
        engine = run_rescaled(spec, {"source": 1 + seed % 3, "map": 3, "keyed": 2}, from_savepoint=False)
        assert violations(engine) == [], f"seed {seed}"
        struck.update(engine.env.faults.struck)
    assert all(struck[point] == 1 for point in points), struck
    assert sum(struck.values()) > 6, struck


def test_a_job_can_be_rescaled_several_times() -> None:
    engine = JobEngine(rescaled_job("unaligned", "hash", (2, 2, 2), seed=3, config=STAYS), keeps_rows=True)
    engine.run_until(200_000)
    changes = ({"map": 4, "keyed": 3}, {"source": 1, "keyed": 1}, {"source": 3, "map": 2, "keyed": 4})
    for n, wanted in enumerate(changes):
        engine.rescale(wanted, from_savepoint=n == 1)
        engine.run_until(engine.now_us + 150_000)
    finish(engine)
    assert violations(engine) == []
    assert [r.refusal for r in engine.rescales] == [None, None, None]
    assert [r.restored_id for r in engine.rescales] == sorted({r.restored_id or 0 for r in engine.rescales})
    assert [t.spec.parallelism for t in engine.tasks if t.index == 0] == [3, 2, 4]
    (source,) = (v for v in engine.env.graph.vertices if v.kind.is_source)
    assert (source.parallelism, source.split_count) == (3, 2), (
        "the number of splits belongs to the log and does not change"
    )


def test_another_job_starts_from_a_savepoint_at_another_parallelism() -> None:
    first = JobEngine(rescaled_job("unaligned", "hash", (3, 2, 2), seed=3, config=STAYS), keeps_rows=True)
    first.run_until(200_000)
    # No later checkpoint may commit the records that follow the savepoint.
    first.set_config({"execution.checkpointing.interval": "1 h"})
    first.run_until(260_000)
    asked = first.request_savepoint()
    first.run_until(500_000)
    first.rescale({"source": 1, "map": 1, "keyed": 1})
    stored = first.savepoint(asked.checkpoint_id or 0)
    assert stored is not None, "the savepoint still has its parallelism"
    second = JobEngine(rescaled_job("unaligned", "hash", (2, 4, 3), seed=3), keeps_rows=True, restore=stored)
    take_over(second.ledger, first.ledger)
    committed = first.ledger.committed_count
    finish(second)
    assert 0 < committed < RECORDS
    assert violations(second) == []


def test_a_job_that_lost_a_worker_continues_with_fewer_subtasks_if_checkpoints_fail() -> None:
    """Under overload, the store rejects writes, so only the last unaligned checkpoint is available (RS-14)."""
    refusing = tuple(FaultSpec("store.write", at_us=260_000, action=FaultAction.ERROR) for _ in range(400))
    engine = JobEngine(rescaled_job("unaligned", "rebalance", (2, 4, 4), seed=2, plan=refusing), keeps_rows=True)
    engine.run_until(600_000)
    newest = engine.coordinator.newest
    assert newest is not None
    assert engine.coordinator.failed_count > 2, "checkpoints fail"
    assert newest.record.triggered_at_us < 260_000
    rescale = engine.rescale({"map": 3, "keyed": 2})
    assert (rescale.restored_id, rescale.persisted_bytes > 0) == (newest.record.id, True)
    engine.env.faults = type(engine.env.faults)((), lambda: engine.now_us)
    finish(engine)
    assert violations(engine) == []


# --- event time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [{"source": 2}, {"source": 3, "keyed": 3}, {"source": 1, "keyed": 1}])
def test_no_window_fires_early_if_splits_and_channels_change_subtasks(wanted: dict[str, int]) -> None:
    """Although the splits differ much in progress, no record is late, and each window has all its records (RS-10)."""
    for seed in (1, 2):
        document = {
            "name": "windows",
            "seed": seed,
            "config": {
                "execution.checkpointing.interval": "60 ms",
                "execution.checkpointing.unaligned.enabled": True,
                "taskmanager.memory.segment-size": 512,
                "restart-strategy.fixed-delay.delay": "10 ms",
                "runtime.task-managers": seed,
            },
            "vertex": [
                {
                    "id": "source",
                    "kind": "source",
                    "parallelism": 4,
                    "keys": 5,
                    "limit": RECORDS,
                    "cost_us": 1500,
                    "slow_subtasks": {"1": 4.0},
                    "watermark_interval_ms": 2,
                },
                {"id": "keyed", "kind": "window+sink", "window": "5 ms", "parallelism": 2, "cost_us": 1800},
            ],
            "edge": [{"from": "source", "to": "keyed", "partitioner": "hash"}],
            "store": {"latency": "3 ms", "bytes_per_s": "20 mb"},
        }
        engine = JobEngine(load_job_document(document), keeps_rows=True)
        engine.run_until(200_000)
        rescale = engine.rescale(wanted)
        dead, late = engine.tasks, 0
        while sum(row.value for row in engine.ledger.rows) < RECORDS and engine.now_us < 5_000_000:
            engine.run_until(engine.now_us + 50_000)
            late = sum(getattr(task.operators[0], "late_count", 0) for task in engine.tasks)
            assert late == 0, f"seed {seed}"
        assert engine.tasks is not dead
        assert rescale.persisted_bytes > 0, f"seed {seed}"
        assert sum(row.value for row in engine.ledger.rows) == RECORDS, f"seed {seed}"
        windows = Counter((row.key, row.origin) for row in engine.ledger.rows)
        assert max(windows.values()) == 1, f"seed {seed}"


def _untagged(*, is_unaligned: bool, stores_watermark: bool) -> int:
    """Return the number of in-flight records that saw no watermark after a rescale."""
    keyed: dict[str, object] = {"kind": "tag+sink", "store_watermark": stores_watermark}
    config: dict[str, object] = {"execution.checkpointing.unaligned.enabled": is_unaligned}
    spec = rescaled_job("aligned", "rebalance", (1, 1, 2), seed=1, keyed=keyed, config=config, watermark_interval_ms=2)
    engine = JobEngine(spec, keeps_rows=True)
    engine.run_until(250_000)
    before = len(engine.ledger.rows)
    engine.rescale({"map": 2, "keyed": 3})
    while len(engine.ledger.rows) < RECORDS and engine.now_us < 10_000_000:
        engine.run_until(engine.now_us + 50_000)
    assert len({row.origin for row in engine.ledger.rows}) == len(engine.ledger.rows) == RECORDS
    return sum(row.value == -1 for row in engine.ledger.rows[before:])


def test_the_watermark_problem_of_in_flight_data_and_its_cure_hold_through_a_rescale() -> None:
    """The watermark is stored for each key group in union state, so the group's new owner knows it (RC-9)."""
    plain = _untagged(is_unaligned=True, stores_watermark=False)
    assert plain > 20, plain
    assert _untagged(is_unaligned=True, stores_watermark=True) == 0


# --- rescales that are refused ----------------------------------------------------------------------------------------


def test_a_pointwise_edge_with_in_flight_data_is_not_rescaled_and_the_job_continues() -> None:
    """A pointwise edge has in-flight data only if ``unaligned.forced`` is set (RS-11, OPT-7)."""
    config: dict[str, object] = {"execution.checkpointing.unaligned.forced": True}
    spec = rescaled_job("unaligned", "rebalance", (2, 2, 2), seed=2, config=config)
    for partitioner in ("forward", "rescale"):
        document_edge = spec.graph.edges[0]
        graph = replace(
            spec.graph,
            edges=(replace(document_edge, partitioner=Partitioner(partitioner)), *spec.graph.edges[1:]),
        )
        engine = JobEngine(replace(spec, graph=graph), keeps_rows=True)
        engine.run_until(200_000)
        newest = engine.coordinator.newest
        assert newest is not None
        tasks, hashed = engine.tasks, engine.trace_hash
        with pytest.raises(PlanError, match=r"RS-11 at 'source -> map': .*; rescale from a savepoint") as refused:
            engine.rescale({"source": 3, "map": 3})
        assert (refused.value.rule, refused.value.vertex) == ("RS-11", "source -> map")
        assert (engine.tasks is tasks, engine.trace_hash, engine.rescales) == (True, hashed, []), "it changed the job"
        # The vertices after that edge can still be rescaled. If the job restarts from a savepoint, all vertices can
        # be rescaled.
        engine.rescale({"keyed": 3})
        engine.run_until(engine.now_us + 60_000)
        engine.rescale({"source": 3, "map": 3}, from_savepoint=True)
        finish(engine)
        assert violations(engine) == [], partitioner
        assert {t.spec.parallelism for t in engine.tasks} == {3}


def test_a_rescale_in_a_job_file_is_carried_out_or_reported_as_refused() -> None:
    spec = rescaled_job("unaligned", "hash", (2, 2, 2), seed=1, config=STAYS)
    rescales = (
        RescaleSpec(150_000, {"map": 3, "keyed": 4}),
        RescaleSpec(400_000, {"keyed": 200}),
        RescaleSpec(450_000, {"source": 1}, from_savepoint=True),
    )
    engine = JobEngine(replace(spec, rescales=rescales), keeps_rows=True)
    finish(engine)
    assert violations(engine) == []
    done, refused, saved = engine.rescales
    assert (done.stopped_at_us, done.refusal) == (150_000, None)
    assert str(refused.refusal).startswith("G-6 at 'keyed': parallelism 200 above its maximum 128; ")
    assert [e.name for e in engine.exceptions] == ["RescaleRefused"]
    assert saved.stopped_at_us is not None
    assert saved.stopped_at_us > 450_000
    assert saved.persisted_bytes == 0
    assert engine.restart_count == 2
    assert engine.restarts[0].cause == "rescaled: keyed 2 -> 4, map 2 -> 3"


def test_a_simulation_prints_the_result_of_a_rescale_and_the_refusal_of_one() -> None:
    spec = rescaled_job("unaligned", "hash", (2, 2, 2), seed=1)
    fine = replace(spec, rescales=(RescaleSpec(200_000, {"map": 3}),))
    (row,) = simulate(fine, duration_us=250_000).to_json()["rescales"]
    assert row["parallelism"] == {"map": {"before": 2, "after": 3}}
    assert (row["requested_at_us"], row["stopped_at_us"], row["from"]) == (200_000, 200_000, "checkpoint")
    assert row["restored_id"] > 0
    assert row["persisted_bytes"] > 0
    (row,) = simulate(replace(spec, rescales=(RescaleSpec(200_000, {"map": 300}),)), duration_us=250_000).to_json()[
        "rescales"
    ]
    assert row["status"] == "REFUSED"
    assert row["refusal"].startswith("G-6 at 'map'")


def test_a_job_that_stops_is_not_rescaled() -> None:
    engine = JobEngine(rescaled_job("aligned", "hash", (2, 2, 2), seed=1), keeps_rows=True)
    engine.run_until(100_000)
    asked = engine.rescale({"map": 3}, from_savepoint=True)
    engine.request_stop()
    with pytest.raises(PlanError, match="SV-3: the job has ended or is stopping with a savepoint"):
        engine.rescale({"map": 4})
    engine.run_until(5_000_000)
    assert engine.status == "FINISHED"
    assert asked.refusal is not None
    with pytest.raises(PlanError, match="SV-3"):
        engine.rescale({"map": 4})


@pytest.mark.parametrize("mode", ["unaligned", "aligned-timeout"])
def test_a_run_by_sizes_is_rescaled_like_one_with_payloads(mode: str) -> None:
    for seed, (before, after) in enumerate(((2, 3), (3, 2))):
        spec = rescaled_job(mode, "hash", (2, before, before), seed=seed)
        spec = replace(spec, rescales=(RescaleSpec(200_000, {"map": after, "keyed": after}),))
        engines = [JobEngine(spec, keeps_rows=True, is_size_only=is_size_only) for is_size_only in (False, True)]
        for engine in engines:
            finish(engine)
            assert violations(engine) == [], f"{mode}, seed {seed}"
        one, other = engines
        assert one.trace_hash == other.trace_hash, f"{mode}, seed {seed}"
        assert one.rescales[0].persisted_bytes == other.rescales[0].persisted_bytes > 0
        assert filtered(one) == filtered(other) > 0


def test_a_savepoint_that_fails_rescales_nothing() -> None:
    spec = rescaled_job(
        "aligned",
        "hash",
        (2, 2, 2),
        seed=1,
        plan=(FaultSpec("coordinator.metadata", at_us=200_000, action=FaultAction.ERROR),),
    )
    spec = spec.with_config({"execution.checkpointing.interval": "1 h"})
    engine = JobEngine(spec, keeps_rows=True)
    engine.run_until(200_000)
    rescale = engine.rescale({"keyed": 3}, from_savepoint=True)
    engine.run_until(2_000_000)
    assert str(rescale.refusal).startswith("SV-1: the savepoint to rescale from failed: ")
    assert (engine.restart_count, rescale.stopped_at_us) == (0, None)


def test_a_rescale_restores_a_checkpoint_that_is_newer_than_its_savepoint() -> None:
    """A start from the savepoint would repeat what the newer checkpoint has already committed (CO-8)."""
    late = (FaultSpec("rpc.ack", hit=1, at_us=200_000, action=FaultAction.DELAY, delay_us=300_000),)
    config: dict[str, object] = {"execution.checkpointing.max-concurrent-checkpoints": 2}
    spec = rescaled_job("aligned", "hash", (2, 2, 2), seed=1, plan=late, config=config | STAYS)
    engine = JobEngine(spec, keeps_rows=True)
    engine.run_until(200_000)
    rescale = engine.rescale({"keyed": 3}, from_savepoint=True)
    assert rescale.status == "IN_PROGRESS"
    finish(engine)
    assert rescale.status == "COMPLETED"
    assert (rescale.restored_id or 0) > max(engine.coordinator.savepoints), (
        "the savepoint completed first, so that nothing was tested"
    )
    assert violations(engine) == []


def test_missing_filters_of_ambiguous_records_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control (T-9): without the filter of ambiguous channels, an invariant must be broken."""
    monkeypatch.setattr(Recovery, "_keeps", lambda self, edge: lambda record: True)
    spec = rescaled_job("unaligned", "hash", (2, 2, 2), seed=1)
    with pytest.raises(InvariantError, match="PT-2"):
        # Copies of records arrive at a subtask that does not own their keys.
        run_rescaled(spec, {"keyed": 3}, from_savepoint=False)
    with pytest.raises(InvariantError, match="INV-4"):
        run_rescaled(spec, {"map": 3}, from_savepoint=False)
