"""Tests of which finished parts of a job a checkpoint and a restore accept (FN-9 to FN-15, FN-18)."""

from __future__ import annotations

import pytest

from backend.domain.errors import PlanError
from backend.runtime.job.graph import EdgeSpec, Graph, Partitioner, VertexKind, VertexSpec
from backend.runtime.measure.measures import ChannelState, Finished, SubtaskSnapshot
from backend.runtime.operators.redistribution import redistribute
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode
from backend.runtime.snapshot.finished import (
    VertexEnd,
    check_predecessors,
    end_of,
    end_of_vertex,
    nothing_left,
    partly_finished_union,
)


def _snapshot(finished: Finished, mode: StateMode = StateMode.UNION) -> SubtaskSnapshot:
    state = OperatorSnapshot(states=(OperatorState("held", mode, (b"x",)),))
    return SubtaskSnapshot((state,), ChannelState(), -1, 1, 0, finished=finished)


@pytest.mark.parametrize(
    ("finished", "end"),
    [
        ([Finished.NO, Finished.NO], VertexEnd.NONE),
        ([Finished.OPERATORS, Finished.OPERATORS], VertexEnd.NONE),
        ([Finished.TASK, Finished.NO], VertexEnd.PART),
        ([Finished.TASK, Finished.OPERATORS], VertexEnd.PART),
        ([Finished.TASK, Finished.TASK], VertexEnd.ALL),
        ([Finished.TASK, Finished.RESTORED], VertexEnd.ALL),
    ],
)
def test_a_vertex_has_finished_if_all_its_subtasks_have(finished: list[Finished], end: VertexEnd) -> None:
    assert end_of([_snapshot(each) for each in finished]) is end


@pytest.mark.parametrize("mode", StateMode)
@pytest.mark.parametrize("first", Finished)
@pytest.mark.parametrize("second", Finished)
def test_union_state_of_a_partly_finished_vertex_is_refused(first: Finished, second: Finished, mode: StateMode) -> None:
    ended = (Finished.TASK, Finished.RESTORED)
    own = [nothing_left(1) if each in ended else _snapshot(each, mode) for each in (first, second)]
    graph = Graph((VertexSpec(id="v", name="v", kind=VertexKind.MAP, parallelism=2),), ())
    has_state = first not in ended or second not in ended
    is_part = (first is Finished.NO) is not (second is Finished.NO) or (first in ended) is not (second in ended)
    expected = "v" if mode is StateMode.UNION and has_state and is_part else None
    assert partly_finished_union(graph, {(0, 0): own[0], (0, 1): own[1]}) == expected


def test_a_broadcast_copy_comes_from_a_subtask_that_had_not_finished() -> None:
    assert redistribute(StateMode.BROADCAST, [(), ("a", "b"), ()], 2) == [("a", "b"), ("a", "b")]


def test_operators_that_had_finished_are_not_combined_with_others() -> None:
    ends = {"v:keyed": VertexEnd.ALL, "v:sink": VertexEnd.ALL, "w:map": VertexEnd.PART}
    assert end_of_vertex("v", ["v:keyed", "v:sink"], ends) is VertexEnd.ALL
    assert end_of_vertex("w", ["w:map"], ends) is VertexEnd.PART
    assert end_of_vertex("new", ["new:map"], ends) is VertexEnd.NONE
    with pytest.raises(PlanError, match="FN-18"):
        end_of_vertex("v", ["v:keyed", "v:other"], ends)


_ALLOWED = {
    # For each end of the target: the ends of the source that are allowed, over a pointwise edge and over an all-to-all
    # edge.
    VertexEnd.NONE: ({*VertexEnd}, {*VertexEnd}),
    VertexEnd.PART: ({VertexEnd.PART, VertexEnd.ALL}, {VertexEnd.ALL}),
    VertexEnd.ALL: ({VertexEnd.ALL}, {VertexEnd.ALL}),
}


@pytest.mark.parametrize("how", [Partitioner.FORWARD, Partitioner.HASH])
@pytest.mark.parametrize("before", VertexEnd)
@pytest.mark.parametrize("end", VertexEnd)
def test_nothing_that_runs_feeds_something_that_had_finished(
    before: VertexEnd, end: VertexEnd, how: Partitioner
) -> None:
    vertices = tuple(
        VertexSpec(id=name, name=name, kind=kind, parallelism=2)
        for name, kind in (("a", VertexKind.SOURCE), ("b", VertexKind.MAP))
    )
    graph = Graph(vertices, (EdgeSpec(source="a", target="b", partitioner=how),))
    ends = {"a": before, "b": end}
    if before in _ALLOWED[end][how is Partitioner.HASH]:
        check_predecessors(graph, ends)
    else:
        what = "had partly finished" if end is VertexEnd.PART else "had finished"
        with pytest.raises(PlanError, match=rf"FN-18 at 'b': it {what}, but its input 'a' had not"):
            check_predecessors(graph, ends)


def test_a_subtask_that_had_ended_adds_nothing_to_the_checkpoint():
    snapshot = nothing_left(2)

    assert len(snapshot.operators) == 2
    assert (snapshot.state_bytes, snapshot.persisted_bytes, snapshot.replayed_changes) == (0, 0, 0)
    assert snapshot.finished is Finished.TASK
