"""Tests of the operators with broadcast state and with union list state (ST-2)."""

from __future__ import annotations

import pytest

from backend.domain.errors import PlanError
from backend.runtime.core.elements import Record
from backend.runtime.engine.jobfile import load_job_document
from backend.runtime.job.graph import VertexKind, VertexSpec
from backend.runtime.operators.operator_state import BroadcastRules, UnionNumbers
from backend.runtime.operators.redistribution import restored_operator


def _record(key: int) -> Record:
    return Record(key, 7, 0, 0, 100)


def _values(found: list[Record]) -> list[int]:
    return [record.value for record in found]


def test_a_record_of_another_input_gets_the_number_of_the_rules_of_its_key() -> None:
    operator = BroadcastRules()
    operator.is_rule = lambda: True
    assert [operator.process(_record(key)) for key in (1, 1, 2)] == [[], [], []]
    operator.is_rule = lambda: False
    assert [_values(operator.process(_record(key))) for key in (1, 2, 3)] == [[2], [1], [0]]
    assert operator.state_bytes == 32


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_each_subtask_restores_the_copy_of_a_subtask_that_was_running(parallelism: int) -> None:
    """FN-14: the first subtask had finished, so it stored no copy."""
    running = BroadcastRules()
    running.counts = {5: 2, 9: 1}
    old = [BroadcastRules().snapshot(1), running.snapshot(1)]
    for subtask in range(parallelism):
        restored = BroadcastRules()
        restored.restore(restored_operator(old, subtask, parallelism=parallelism, max_parallelism=8), 1)
        assert restored.counts == {5: 2, 9: 1}


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_subtasks_take_each_entry_of_the_union_once_at_any_parallelism(parallelism: int) -> None:
    def operator(subtask: int, of: int) -> UnionNumbers:
        return UnionNumbers(VertexSpec("n", VertexKind.UNION, "n", parallelism=of), subtask)

    before = [operator(subtask, 3) for subtask in range(3)]
    for each, count in zip(before, (4, 0, 7), strict=True):
        for _ in range(count):
            each.process(_record(1))
    old = [each.snapshot(1) for each in before]
    after = [operator(subtask, parallelism) for subtask in range(parallelism)]
    for subtask, each in enumerate(after):
        each.restore(restored_operator(old, subtask, parallelism=parallelism, max_parallelism=8), 1)
    assert sum(each.count for each in after) == 11
    if parallelism == 3:
        assert [each.count for each in after] == [4, 0, 7]
    assert _values(after[0].process(_record(1))) == [after[0].count]


def test_a_vertex_with_broadcast_state_needs_rules_and_another_input() -> None:
    def load(*inputs: tuple[str, str]) -> None:
        load_job_document(
            {
                "name": "rules",
                "vertex": [
                    *({"id": name, "kind": "source"} for name, _ in inputs),
                    {"id": "match", "kind": "broadcast+sink"},
                ],
                "edge": [{"from": name, "to": "match", "partitioner": how} for name, how in inputs],
            }
        )

    load(("rules", "broadcast"), ("data", "rebalance"))
    for inputs in ([("rules", "broadcast")], [("data", "rebalance")], [("a", "broadcast"), ("b", "broadcast")]):
        with pytest.raises(PlanError, match="ST-2"):
            load(*inputs)
