"""Goal: union and broadcast state of a vertex whose subtasks have partly finished is restored correctly (FN-14, FN-15).

Method: in most tests, the sources get such state here, so that a wrong restore shows as records that are lost or
doubled. With union state, a subtask restores the offsets of all splits and takes its own;
it reads a split without an offset from the beginning (as Flink's sources did before FLIP-27). With broadcast state, it
takes its offsets only if it restores the version of their format. One source subtask ends early, and the job crashes
after a checkpoint without it. The job is exactly once with the rules, and an invariant catches it without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.coordinator import coordinator
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from backend.runtime.measure.measures import CheckpointState
from backend.runtime.operators import redistribution
from backend.runtime.operators.operator_state import BroadcastRules
from backend.runtime.operators.sources import _SPLIT, _SPLITS, Source
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode
from tests.support.counting_oracle import SourceRecords
from tests.support.ending_jobs import ending_job, run, source
from tests.support.invariants import InvariantError, run_to_the_end

_RECORDS = 400
_CRASH = FaultSpec("source.after-emit", at_us=300_000)


def _job(*crashes: FaultSpec) -> JobSpec:
    """Build a job in which source subtask 0 ends long before source subtask 1."""
    vertices: list[dict[str, Any]] = [
        source("source", limit=_RECORDS, parallelism=2, splits=2, rate=0, slow_subtasks={"1": 30.0}),
        {"id": "sink", "kind": "keyed+sink", "parallelism": 2, "cost_us": 20},
    ]
    return ending_job(vertices, [("source", "sink", "hash")], plan=crashes)


def _entries(own: Source) -> tuple[bytes, ...]:
    return tuple(_SPLIT.pack(split.number, split.offset) for split in own.splits)


@pytest.fixture
def union(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sources keep their offsets in union state."""

    def snapshot(self: Source, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(states=(OperatorState(_SPLITS, StateMode.UNION, _entries(self)),))

    def restore(self: Source, found: OperatorSnapshot, checkpoint_id: int) -> None:
        offsets = dict(_SPLIT.unpack(entry) for entry in found.entries(_SPLITS)) if found.states else {}
        for split in self.splits:
            split.offset = offsets.get(split.number, 0)

    monkeypatch.setattr(Source, "snapshot", snapshot)
    monkeypatch.setattr(Source, "restore", restore)


@pytest.fixture
def broadcast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sources restore their offsets only together with a version that all subtasks store."""
    plain = Source.restore

    def snapshot(self: Source, checkpoint_id: int) -> OperatorSnapshot:
        version = OperatorState("version", StateMode.BROADCAST, (b"1",))
        return OperatorSnapshot(states=(OperatorState(_SPLITS, StateMode.SPLIT, _entries(self)), version))

    def restore(self: Source, found: OperatorSnapshot, checkpoint_id: int) -> None:
        if found.states and found.entries("version"):
            plain(self, found, checkpoint_id)

    monkeypatch.setattr(Source, "snapshot", snapshot)
    monkeypatch.setattr(Source, "restore", restore)


@pytest.mark.usefixtures("union")
def test_a_restore_from_union_state_is_exactly_once_because_no_checkpoint_has_a_part_of_it() -> None:
    engine = run_to_the_end(_job(_CRASH), records=_RECORDS)

    assert engine.restart_count == 1
    records = engine.coordinator.history
    assert FailureReason.DECLINED_TASK_CLOSING in {r.reason for r in records}
    assert not any(r.finished for r in records if r.state is CheckpointState.COMPLETED)


@pytest.mark.usefixtures("union")
def test_a_checkpoint_with_partly_finished_union_state_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "partly_finished_union", lambda graph, snapshots: None)
    with pytest.raises((InvariantError, AssertionError), match="INV-"):
        run_to_the_end(_job(_CRASH), records=_RECORDS)


@pytest.mark.usefixtures("broadcast")
def test_a_restore_from_broadcast_state_is_exactly_once_because_the_copy_is_that_of_a_running_subtask() -> None:
    engine = run_to_the_end(_job(_CRASH), records=_RECORDS)

    assert engine.restart_count == 1
    completed = [r for r in engine.coordinator.history if r.state is CheckpointState.COMPLETED]
    assert any(r.finished for r in completed)


@pytest.mark.usefixtures("broadcast")
def test_a_broadcast_copy_of_a_finished_subtask_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    redistribute = redistribution.redistribute

    def of_the_first(mode: StateMode, entries: Sequence[Sequence[Any]], parallelism: int) -> list[tuple[Any, ...]]:
        if mode is StateMode.BROADCAST:
            return [tuple(entries[0])] * parallelism
        return redistribute(mode, entries, parallelism)

    monkeypatch.setattr(redistribution, "redistribute", of_the_first)
    with pytest.raises((InvariantError, AssertionError), match="INV-"):
        run_to_the_end(_job(_CRASH), records=_RECORDS)


# --- operators that a job file names ------------------------------------------------------------------


def _with_rules(*crashes: FaultSpec, to_number: str = "rebalance") -> JobSpec:
    """Build a job in which the rules and one subtask of the source end long before the other, and so does ``match``."""
    vertices: list[dict[str, Any]] = [
        source("rules", limit=30, rate=0),
        source("data", limit=_RECORDS, parallelism=2, splits=2, rate=0, slow_subtasks={"1": 30.0}),
        {"id": "match", "kind": "broadcast", "parallelism": 2, "cost_us": 20},
        {"id": "number", "kind": "union", "parallelism": 2, "cost_us": 20},
        {"id": "out", "kind": "sink", "cost_us": 20},
    ]
    edges = [("rules", "match", "broadcast"), ("data", "match", "forward")]
    edges += [("match", "number", to_number), ("number", "out", "rebalance")]
    return ending_job(vertices, edges, plan=crashes)


def _rules_of_the_last_records(engine: JobEngine) -> list[tuple[int, int]]:
    """Return the rules that ``match`` has, and those that it should have, of each key of its running subtask."""
    wanted = Counter(record.key for name, record in SourceRecords(engine).of_bounded() if name == "rules")
    (match,) = (tasks for name, tasks in engine.tasks_of() if name == "match")
    assert isinstance(match[1].operators[0], BroadcastRules)
    return [(match[1].operators[0].counts.get(key, 0), count) for key, count in wanted.items()]


def test_broadcast_state_of_a_partly_finished_vertex_comes_from_the_subtask_that_was_running() -> None:
    engine, ended = run(_with_rules(_CRASH))

    assert (engine.status, engine.restart_count, len(engine.ledger.rows)) == ("FINISHED", 1, _RECORDS)
    (restart,) = engine.restarts
    (restored,) = [r for r in ended if r.id == restart.restored_id]
    assert restored.finished, "a part had finished"
    assert all(found == wanted for found, wanted in _rules_of_the_last_records(engine))


def test_a_copy_of_a_finished_subtask_loses_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    redistribute = redistribution.redistribute

    def of_the_first(mode: StateMode, entries: Sequence[Sequence[Any]], parallelism: int) -> list[tuple[Any, ...]]:
        is_shared = mode is StateMode.BROADCAST
        return [tuple(entries[0])] * parallelism if is_shared else redistribute(mode, entries, parallelism)

    monkeypatch.setattr(redistribution, "redistribute", of_the_first)
    engine, _ = run(_with_rules(_CRASH))
    assert all(found == 0 for found, _ in _rules_of_the_last_records(engine))


def test_numbers_in_union_state_go_on_after_a_restore() -> None:
    engine, _ = run(_with_rules(_CRASH))

    assert sorted(row.value for row in engine.ledger.rows) == sorted([*range(1, _RECORDS // 2 + 1)] * 2)


def test_checkpoints_fail_while_only_a_part_of_a_vertex_with_union_state_has_finished() -> None:
    _, ended = run(_with_rules(to_number="forward"))

    assert FailureReason.DECLINED_TASK_CLOSING in {r.reason for r in ended}
    completed = [r for r in ended if r.state is CheckpointState.COMPLETED]
    number = 3
    assert not any(len({key in r.finished for key in ((number, 0), (number, 1))}) == 2 for r in completed)
