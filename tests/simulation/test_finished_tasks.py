"""Goal: checkpoints go on after some tasks have finished, and a bounded job that ends has committed every record once.

Method: the steps by which each subtask ends are compared with the lists of runtime.md 6.6 (T-20). Jobs whose sources
end at different times are crashed at every step, and are restored from checkpoints in which some subtasks had finished.
Broken variants must be caught.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from backend.analysis.measures.cut import check_cut
from backend.domain.barriers import BarrierEventKind
from backend.domain.cut import CutState
from backend.domain.errors import PlanError
from backend.domain.failure import FailureReason
from backend.runtime.coordinator import coordinator
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.faults import FINISH_POINTS, FinishStep
from backend.runtime.job.graph import FaultSpec
from backend.runtime.measure.measures import CheckpointState, Finished, SubtaskSnapshot
from backend.runtime.network.channel import InputChannel
from backend.runtime.snapshot.finished import VertexEnd, nothing_left
from backend.runtime.snapshot.metadata import StoredCheckpoint, read_checkpoint
from backend.runtime.task.ending import Ending
from backend.runtime.task.task import Task, TaskStatus
from tests.support.ending_jobs import bounded_and_unbounded, cascade, ending_job, run, source, steps_of
from tests.support.inside_jobs import take_over, waiting_files
from tests.support.invariants import InvariantError, Watch, run_to_the_end
from tests.support.runtime_jobs import PROTOCOLS, RECORDS, exactly_once_violations, small_job

_REVISED: dict[str, object] = {"runtime.finish-protocol": "revised"}
_LEGACY = {"runtime.finish-protocol": "legacy"}
_WITHOUT = {"execution.checkpointing.checkpoints-after-tasks-finish": "false"}
_OFTEN: dict[str, object] = {"execution.checkpointing.interval": "10 ms", "runtime.cost.rpc-latency": "5 ms"}
_NO_FAILURE: dict[str, object] = {"execution.checkpointing.tolerable-failed-checkpoints": 0}
_UNALIGNED = {"execution.checkpointing.unaligned.enabled": True}
_FILE_SIZE = "execution.checkpointing.file-merging.max-file-size"
_CLOSED = ["close", "end-of-partition", "cleanup"]


def _ended(*inputs: int, fires: bool = False) -> list[str]:
    fired = ["timers-fired"] if fires else []
    return [*fired, "max-watermark", *(f"end-input({edge})" for edge in inputs), "finish", "end-of-data"]


# --- the order of the end (T-20) --------------------------------------------------------------------------------------


def test_a_bounded_job_ends_in_the_revised_order_and_commits_everything() -> None:
    engine, ended = run(cascade())
    assert engine.status == "FINISHED"
    assert {task.status for task in engine.tasks} == {TaskStatus.FINISHED}
    assert exactly_once_violations(engine.ledger.rows, 300) == []
    for vertex, edge in (("source", 0), ("stage0", 0), ("stage1", 1), ("stage2", 2)):
        for subtask in range(2):
            assert steps_of(engine, vertex, subtask) == [*_ended(edge), *_CLOSED], vertex
    # All subtasks wait for one checkpoint, which is triggered as soon as the last one has ended (FN-24, FN-25).
    at_us = {step: [at for at, _, each, _ in engine.env.finish_steps if each is step] for step in FinishStep}
    last_end_us = max(at_us[FinishStep.END_OF_DATA])
    final = [record for record in ended if record.triggered_at_us >= last_end_us]
    assert [record.state for record in final if record.state is CheckpointState.COMPLETED] == [
        CheckpointState.COMPLETED
    ]
    assert final[0].triggered_at_us - last_end_us <= 2 * engine.config.rpc_latency_us
    assert min(at_us[FinishStep.CLOSE]) > last_end_us
    newest = engine.coordinator.newest
    assert newest is not None
    assert {snapshot.finished for snapshot in newest.snapshots.values()} == {Finished.OPERATORS}


def test_timers_fire_before_the_final_watermark_and_windows_close() -> None:
    vertices = [source("source", limit=200), {"id": "window", "kind": "window+sink", "window": "30 ms"}]
    engine, _ = run(ending_job(vertices, [("source", "window", "hash")]))
    assert steps_of(engine, "window") == [*_ended(0, fires=True), *_CLOSED]
    assert sum(row.value for row in engine.ledger.rows) == 200


def test_the_final_snapshot_holds_neither_data_in_flight_nor_open_windows() -> None:
    vertices = [source("source", limit=200, parallelism=2), {"id": "window", "kind": "window+sink", "window": "30 ms"}]
    engine, ended = run(ending_job(vertices, [("source", "window", "hash")], **_UNALIGNED))
    assert engine.status == "FINISHED"
    newest = engine.coordinator.newest
    assert newest is not None
    assert newest.record is ended[-1]
    assert {snapshot.persisted_bytes for snapshot in newest.snapshots.values()} == {0}
    window, sink = newest.snapshots[1, 0].operators
    assert (window.keyed, window.states) == ({}, ())
    assert [(state.name, len(state.entries)) for state in sink.states] == [("transactions", 1)]


@pytest.mark.parametrize("more", [_LEGACY, _WITHOUT], ids=["legacy", "no checkpoints after the end"])
def test_without_a_final_checkpoint_the_tail_of_a_bounded_job_is_lost(more: dict[str, object]) -> None:
    engine, ended = run(cascade(**more))
    assert engine.status == "FINISHED"
    assert engine.ledger.committed_count < 300
    assert exactly_once_violations(engine.ledger.rows, engine.ledger.committed_count) == []
    for vertex, edge in (("source", 0), ("stage0", 0), ("stage2", 2)):
        expected = ["max-watermark", f"end-input({edge})", *_CLOSED] if more is _LEGACY else [*_ended(edge), *_CLOSED]
        assert steps_of(engine, vertex) == expected
    assert not any(record.finished for record in ended if record.state is CheckpointState.COMPLETED)


@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize("protocol", ["revised", "legacy"])
def test_a_stop_ends_sources_and_joins_in_the_order_of_its_protocol(protocol: str, drains: bool) -> None:
    engine = JobEngine(bounded_and_unbounded(**{"runtime.finish-protocol": protocol}), keeps_rows=True)
    engine.run_until(120_000)
    stop = engine.request_stop(drains=drains)
    engine.run_until(1_000_000)
    assert (engine.status, stop.reason) == ("FINISHED", None)
    for vertex, edges in (("a", [0]), ("c", [0]), ("d", [0]), ("e", [1, 2])):
        if protocol == "legacy":
            before = ["max-watermark", *(f"end-input({edge})" for edge in edges)] if drains else []
        else:
            before = _ended(*edges) if drains else ["end-of-data"]
        assert sorted(steps_of(engine, vertex)) == sorted([*before, *_CLOSED]), vertex
        assert steps_of(engine, vertex)[-3:] == _CLOSED


# --- some tasks have finished -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_while_a_source_runs_on_checkpoints_complete_without_the_finished_tasks(protocol: str) -> None:
    """FLIP-147's example (FN-27): D ends when C ends, with the same final checkpoint, and E goes on with A."""
    engine, ended = run(bounded_and_unbounded(**PROTOCOLS[protocol]), 800_000)
    assert engine.status == "RUNNING"
    finished = {task.name for task in engine.tasks if task.status is TaskStatus.FINISHED}
    assert finished == {"c/0", "c/1", "d/0", "d/1"}
    assert steps_of(engine, "a") == []
    assert steps_of(engine, "e") == ["end-input(1)"]
    later = [record for record in ended if record.finished]
    assert len(later) > 5
    for record in later:
        if record.state is CheckpointState.COMPLETED:
            assert set(record.acks) | set(record.finished) == {task.key for task in engine.tasks}
            assert not set(record.acks) & set(record.finished)
    assert sum(record.state is CheckpointState.COMPLETED for record in later) > 5
    assert {row.origin for row in engine.ledger.rows if row.value}, "the running part still commits"


def _stored(engine: JobEngine) -> StoredCheckpoint:
    newest = engine.coordinator.newest
    assert newest is not None
    return newest.stored(engine.env.graph)


def _again(spec: JobSpec, engine: JobEngine) -> JobEngine:
    again = JobEngine(spec, keeps_rows=True, restore=_stored(engine))
    take_over(again.ledger, engine.ledger)
    return again


@pytest.mark.parametrize("more", [{}, _UNALIGNED], ids=["aligned", "unaligned"])
def test_a_restore_skips_the_operators_that_had_finished(more: dict[str, object]) -> None:
    spec = bounded_and_unbounded(**more)
    engine, _ = run(spec, 600_000)
    read = read_checkpoint(_stored(engine))
    ends = {"c": VertexEnd.ALL, "d": VertexEnd.ALL}
    assert {operator.split(":")[0]: end for operator, end in read.ends.items()} == ends
    assert not any(o.keyed or o.states for v in "cd" for s in read.vertices[v].subtasks for o in s.operators)
    again = _again(spec, engine)
    again.run_until(500_000)
    assert again.status == "RUNNING"
    assert {task.name for task in again.tasks if task.is_finished_on_restore} == {"c/0", "c/1", "d/0", "d/1"}
    assert steps_of(again, "c") == steps_of(again, "d") == ["max-watermark", "end-of-data", *_CLOSED]
    assert sum(task.records_out for task in again.tasks if task.spec.id == "c") == 0
    # The 200 records of C reached the ledger once through D and once through E, and those of A once.
    times = Counter(Counter(row.origin for row in again.ledger.rows).values())
    assert times[2] == 200
    assert set(times) == {1, 2}
    assert again.coordinator.completed_count > 3


def test_a_finished_vertex_may_be_rescaled_and_stays_finished() -> None:
    spec = bounded_and_unbounded()
    engine, _ = run(spec, 600_000)
    wider = replace(
        spec,
        graph=replace(
            spec.graph,
            vertices=tuple(replace(v, parallelism=3) if v.id == "d" else v for v in spec.graph.vertices),
        ),
    )
    again = _again(wider, engine)
    again.run_until(300_000)
    assert sum(task.is_finished_on_restore for task in again.tasks if task.spec.id == "d") == 3
    assert again.coordinator.completed_count > 0


def test_a_running_vertex_in_front_of_a_finished_one_is_refused() -> None:
    engine, _ = run(bounded_and_unbounded(), 600_000)
    changed = ending_job(
        [
            source("a"),
            source("c", limit=200, parallelism=2),
            {"id": "new", "kind": "map"},
            {"id": "d", "kind": "keyed+sink", "cost_us": 50, "parallelism": 2},
            {"id": "e", "kind": "keyed+sink", "cost_us": 50},
        ],
        [("c", "new", "rebalance"), ("new", "d", "hash"), ("c", "e", "hash"), ("a", "e", "hash")],
    )
    with pytest.raises(PlanError, match=r"FN-18: vertex 'd'.*'new' had not|FN-18"):
        JobEngine(changed, restore=_stored(engine))


def _uneven(sink: str, **settings: object) -> JobSpec:
    """Build a job in which source subtask 0 ends early.

    A forward edge connects each source subtask to one sink subtask.
    """
    vertices = [
        source("source", limit=400, parallelism=2, splits=3, rate=0, slow_subtasks={"1": 20.0}),
        {"id": "sink", "kind": "sink", "parallelism": 2, "sink": sink, "cost_us": 20},
    ]
    return ending_job(vertices, [("source", "sink", "forward")], **settings)


def test_partly_finished_state_is_redistributed_at_the_same_and_another_parallelism() -> None:
    spec = _uneven("append")
    engine = JobEngine(spec, keeps_rows=True)
    while not any(task.status is TaskStatus.FINISHED for task in engine.tasks) and engine.now_us < 3_000_000:
        engine.run_until(engine.now_us + 10_000)
    engine.run_until(engine.now_us + 70_000)
    read = read_checkpoint(_stored(engine))
    assert read.vertices["source"].ends["source:source"] is VertexEnd.PART
    assert [s.finished for s in read.vertices["source"].subtasks].count(Finished.TASK) == 1
    for parallelism in (2, 1, 3):
        vertices = tuple(replace(v, parallelism=parallelism, slow_factors={}) for v in spec.graph.vertices)
        again = _again(replace(spec, graph=replace(spec.graph, vertices=vertices)), engine)
        again.run_until(6_000_000)
        assert again.status == "FINISHED", parallelism
        assert {row.origin for row in again.ledger.rows} >= {row.origin for row in engine.ledger.rows}
        assert len({row.origin for row in again.ledger.rows}) == 400, parallelism


def test_union_state_of_a_partly_finished_vertex_fails_the_checkpoint_until_all_have_finished() -> None:
    """The transactional sink keeps its transactions in union state, so its subtasks share one final checkpoint."""
    engine, ended = run(_uneven("transactional", **_NO_FAILURE), 20_000_000)
    reasons = {record.reason for record in ended}
    assert FailureReason.DECLINED_TASK_CLOSING in reasons
    assert engine.status == "FINISHED"
    assert engine.restart_count == 0, "such failures are not counted"
    assert len({row.origin for row in engine.ledger.rows}) == len(engine.ledger.rows) == 400


def test_a_trigger_that_reaches_a_finished_task_fails_the_checkpoint() -> None:
    """After the final checkpoint of a source, the next one is planned before the source has finished (FN-5)."""
    engine, ended = run(bounded_and_unbounded(**_OFTEN, **_NO_FAILURE), 700_000)
    assert FailureReason.DECLINED_TASK_CLOSING in {record.reason for record in ended}
    assert engine.restart_count == 0
    assert ended[-1].state is CheckpointState.COMPLETED


@pytest.mark.parametrize("backend", ["changelog", "diff", "sst"])
@pytest.mark.parametrize("crash", [(), (FaultSpec("coordinator.before-first-rpc", at_us=400_000),)], ids=["", "crash"])
def test_shared_files_of_a_finished_task_stay_while_a_checkpoint_needs_them(
    backend: str, crash: tuple[FaultSpec, ...]
) -> None:
    """While D finishes, acknowledgements of further checkpoints of D are on their way."""
    settings = _OFTEN | {
        "runtime.state-backend": backend,
        "execution.checkpointing.incremental": True,
        "execution.checkpointing.max-concurrent-checkpoints": 4,
        "runtime.changelog.flush-interval": "15 ms",
        "runtime.changelog.materialize-interval": "70 ms",
    }
    watch = Watch(JobEngine(bounded_and_unbounded(plan=crash, **settings), keeps_rows=True))
    engine = watch.engine
    for at_us in range(5_000, 800_000, 5_000):
        watch.run_until(at_us)
        for path in waiting_files(engine):
            assert path in engine.env.files.paths, f"{path} of a pending checkpoint is deleted"
    finished = {task.spec.id for task in engine.tasks if task.status is TaskStatus.FINISHED}
    assert finished == {"c", "d"}
    assert engine.restart_count == len(crash)
    assert watch.shared_files.shared_count > 10
    watch.end()


def test_the_log_of_a_finished_sender_is_deleted_although_its_finished_receivers_report_no_offsets() -> None:
    settings = _UNALIGNED | {"runtime.spilling": "continuous", _FILE_SIZE: "1 kb"}
    watch = Watch(JobEngine(bounded_and_unbounded(**settings)))
    watch.run_until(150_000)
    store = watch.engine.env.channel_files.store
    assert any(path.startswith("spill/c-") for path in store.paths)
    watch.run_until(700_000)
    assert {task.spec.id for task in watch.engine.tasks if task.status is TaskStatus.FINISHED} == {"c", "d"}
    assert {path[: len("spill/a")] for path in store.paths} == {"spill/a"}
    watch.end()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_cut_of_a_checkpoint_with_finished_tasks_is_checked_on_every_channel(protocol: str) -> None:
    engine, ended = run(bounded_and_unbounded(**PROTOCOLS[protocol]), 500_000)
    later = [record for record in ended if record.finished and record.state is CheckpointState.COMPLETED]
    assert later
    for record in later:
        events = engine.barriers(record.id)
        assert events is not None
        assert {(e.vertex_id, e.subtask) for e in events if e.kind is BarrierEventKind.FINISHED} == {
            (engine.env.graph.vertices[v].id, subtask) for v, subtask in record.finished
        }
        found = check_cut(events, is_completed=True)
        assert (found.state, found.checked_count) == (CutState.CONSISTENT, found.channel_count), record.id


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", FINISH_POINTS)
def test_a_crash_at_any_step_of_the_end_loses_and_repeats_nothing(point: str) -> None:
    struck = 0
    for number, protocol in enumerate(PROTOCOLS):
        keyed: dict[str, object] = {"kind": "timer+sink", "hold": "15 ms", "cost_us": 600, "timer_cost_us": 100}
        hit = 1 + number % (2 if point == FinishStep.TIMERS_FIRED else 6)
        engine = run_to_the_end(
            small_job(
                protocol, seed=number, fuzz=number, plan=(FaultSpec(point, hit=hit),), keyed=keyed, config=_REVISED
            ),
            records=RECORDS,
        )
        assert engine.status == "FINISHED"
        struck += engine.restart_count
    assert struck == len(PROTOCOLS), point


# --- negative controls ------------------------------------------------------------------------------------------------


def _broken_run(protocol: str = "unaligned") -> JobEngine:
    return run_to_the_end(small_job(protocol, task_managers=2, config=_REVISED), records=RECORDS)


def test_a_task_that_does_not_wait_for_its_final_checkpoint_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    _broken_run()
    monkeypatch.setattr(Ending, "may_close", property(lambda self: self.is_at_end and self._are_inputs_ended))
    with pytest.raises(InvariantError, match="INV-"):
        _broken_run()


def test_a_task_that_takes_any_checkpoint_for_its_final_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def completed(self: Ending, checkpoint_id: int) -> None:
        self.is_final_complete = True

    monkeypatch.setattr(Ending, "completed", completed)
    with pytest.raises(InvariantError, match="INV-5"):
        _broken_run()


def test_a_sender_that_ends_before_its_data_is_processed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without FN-23, a checkpoint misses what a finished sender still has in its queue."""
    monkeypatch.setattr(InputChannel, "acknowledge_end", lambda self: None, raising=False)
    ended_data = Ending.ended_data

    def at_once(self: Ending) -> None:
        ended_data(self)
        self.processed()

    monkeypatch.setattr(Ending, "ended_data", at_once)
    caught = 0
    for seed in range(6):
        try:
            config: dict[str, object] = _REVISED | {"execution.checkpointing.interval": "15 ms"}
            run_to_the_end(small_job("unaligned", seed=seed, config=config), records=RECORDS)
        except InvariantError:
            caught += 1
    assert caught > 0


def _two_ends(*crashes: FaultSpec, **sink: object) -> JobSpec:
    """Build a job of a short source C and a long one A, both of which E reads."""
    vertices = [source("a", limit=600), source("c", limit=100), {"id": "e", "kind": "keyed+sink", "cost_us": 50} | sink]
    return ending_job(vertices, [("a", "e", "hash"), ("c", "e", "hash")], plan=crashes)


_AFTER_C = FaultSpec("source.after-emit", at_us=400_000)


def test_a_checkpoint_that_forgets_which_tasks_had_finished_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = run_to_the_end(_two_ends(_AFTER_C), records=700)
    assert (engine.restart_count, engine.status) == (1, "FINISHED")
    assert [task.name for task in engine.tasks if task.is_finished_on_restore] == ["c/0"]

    def forgotten(operators: int) -> SubtaskSnapshot:
        return replace(nothing_left(operators), finished=Finished.NO)

    monkeypatch.setattr(coordinator, "nothing_left", forgotten)
    with pytest.raises((InvariantError, AssertionError), match=r"INV-"):
        # C reads its records again.
        run_to_the_end(_two_ends(_AFTER_C), records=700)


def test_an_end_of_data_that_leaves_the_last_records_behind_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map that holds records back when its data ends loses them (TE-2, SRC-4)."""
    spec = ending_job(
        [
            source("s", limit=150),
            {"id": "m", "kind": "map", "bundle": 40},
            {"id": "w", "kind": "keyed+sink", "cost_us": 50},
        ],
        [("s", "m", "hash"), ("m", "w", "hash")],
    )
    assert run_to_the_end(spec, records=150).status == "FINISHED"
    monkeypatch.setattr(Task, "flush", lambda self: None)
    with pytest.raises(InvariantError, match="INV-"):
        run_to_the_end(spec, records=150)
