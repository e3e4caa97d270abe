"""Tests of the plan of a checkpoint if some subtasks have finished (FN-1 to FN-6)."""

from __future__ import annotations

import pytest

from backend.runtime.coordinator.plan import CheckpointPlan, plan_of
from backend.runtime.core.prng import Stream
from backend.runtime.job.graph import EdgeSpec, Graph, Partitioner, VertexKind, VertexSpec
from backend.runtime.measure.measures import TaskKey


def _graph(parallelism: dict[str, int], edges: list[tuple[str, str, Partitioner]]) -> Graph:
    targets = {target for _, target, _ in edges}
    vertices = tuple(
        VertexSpec(id=name, name=name, kind=VertexKind.MAP if name in targets else VertexKind.SOURCE, parallelism=count)
        for name, count in parallelism.items()
    )
    return Graph(vertices, tuple(EdgeSpec(source=a, target=b, partitioner=how) for a, b, how in edges))


_PATH = _graph(
    {"source": 2, "map": 2, "sink": 2}, [("source", "map", Partitioner.FORWARD), ("map", "sink", Partitioner.HASH)]
)


def test_while_all_run_the_sources_are_triggered_and_all_are_waited_for() -> None:
    plan = plan_of(_PATH)
    assert plan.trigger == ((0, 0), (0, 1))
    assert plan.wait_for == tuple((v, s) for v in range(3) for s in range(2))
    assert plan.finished == plan.fully_finished == ()


def test_a_subtask_behind_a_finished_pointwise_input_is_triggered() -> None:
    plan = plan_of(_PATH, {(0, 0)})
    assert plan.trigger == ((0, 1), (1, 0))
    assert (0, 0) not in plan.wait_for
    assert plan.finished == ((0, 0),)
    assert plan.fully_finished == ()


@pytest.mark.parametrize(
    ("finished", "trigger"),
    [
        ({(0, 0), (0, 1), (1, 0)}, ((1, 1),)),
        ({(0, 0), (0, 1), (1, 0), (1, 1)}, ((2, 0), (2, 1))),
        ({(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)}, ((2, 0),)),
    ],
)
def test_behind_an_all_to_all_edge_every_sender_must_have_finished(
    finished: set[TaskKey], trigger: tuple[TaskKey, ...]
) -> None:
    assert plan_of(_PATH, finished).trigger == trigger


def test_a_vertex_with_two_inputs_is_triggered_only_when_both_have_finished() -> None:
    graph = _graph({"a": 1, "b": 1, "join": 1}, [("a", "join", Partitioner.HASH), ("b", "join", Partitioner.RESCALE)])
    assert plan_of(graph, {(0, 0)}).trigger == ((1, 0),)
    assert plan_of(graph, {(1, 0)}).trigger == ((0, 0),)
    assert plan_of(graph, {(0, 0), (1, 0)}).trigger == ((2, 0),)


def test_when_everything_has_finished_nothing_is_triggered() -> None:
    everything = {(v, s) for v in range(3) for s in range(2)}
    plan = plan_of(_PATH, everything)
    assert plan == CheckpointPlan((), (), tuple(sorted(everything)), (0, 1, 2))


def test_every_running_subtask_is_reached_from_a_triggered_one_whatever_has_finished() -> None:
    """The barrier of a triggered subtask follows the channels, so each running subtask gets it on its open channels."""
    for seed in range(300):
        draws = Stream(seed, "plans")
        count = 2 + draws.below(4)
        parallelism = {f"v{n}": 1 + draws.below(4) for n in range(count)}
        kinds = (Partitioner.HASH, Partitioner.REBALANCE, Partitioner.RESCALE)
        edges = [
            (f"v{a}", f"v{b}", kinds[draws.below(3)])
            for b in range(1, count)
            for a in range(b)
            if draws.below(2) or a == b - 1
        ]
        graph = _graph(parallelism, edges)
        # Subtasks finish in the order of the graph: one finishes only after everything that feeds it.
        senders: dict[TaskKey, set[TaskKey]] = {
            (v, s): set() for v, spec in enumerate(graph.vertices) for s in range(spec.parallelism)
        }
        number = {spec.id: v for v, spec in enumerate(graph.vertices)}
        for e, edge in enumerate(graph.edges):
            for i, j in graph.channels(e):
                senders[number[edge.target], j].add((number[edge.source], i))
        finished: set[TaskKey] = set()
        for task in sorted(senders):
            if senders[task] <= finished and draws.below(3):
                finished.add(task)
        plan = plan_of(graph, finished)
        reached = set(plan.trigger)
        for task in sorted(senders):
            if task not in finished and senders[task] - finished:
                assert task not in plan.trigger, f"seed {seed}: {task} still has running senders"
                assert senders[task] - finished <= reached, f"seed {seed}: {task}"
                reached.add(task)
        assert reached == set(plan.wait_for) == set(senders) - finished, f"seed {seed}"
        assert set(plan.finished) == finished
