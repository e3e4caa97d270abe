"""Computes which subtasks a checkpoint triggers, and which ones must acknowledge the checkpoint (runtime.md 6.1).

The plan depends only on the graph and on the subtasks that the coordinator knows to have finished. It is computed in
one event, so no subtask can finish in the middle (FN-1 to FN-3).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from backend.runtime.job.graph import Graph
from backend.runtime.measure.measures import TaskKey


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """The subtasks that take part in one checkpoint, each list in the order of the graph."""

    trigger: tuple[TaskKey, ...]
    """The running subtasks without a running predecessor: sources, and subtasks whose predecessors finished (FN-3)."""
    wait_for: tuple[TaskKey, ...]
    """The running subtasks, which acknowledge the checkpoint and commit after it."""
    finished: tuple[TaskKey, ...] = ()
    fully_finished: tuple[int, ...] = ()
    """The indices of the vertices whose subtasks have all finished."""


def plan_of(graph: Graph, finished: AbstractSet[TaskKey] = frozenset()) -> CheckpointPlan:
    """Return the plan of a checkpoint that is triggered now. ``finished`` are the subtasks that have finished."""
    number = {vertex.id: index for index, vertex in enumerate(graph.vertices)}
    running = [
        frozenset(subtask for subtask in range(vertex.parallelism) if (index, subtask) not in finished)
        for index, vertex in enumerate(graph.vertices)
    ]
    trigger: list[TaskKey] = []
    wait_for: list[TaskKey] = []
    ended: list[TaskKey] = []
    for index, vertex in enumerate(graph.vertices):
        wait_for += ((index, subtask) for subtask in sorted(running[index]))
        ended += ((index, subtask) for subtask in range(vertex.parallelism) if subtask not in running[index])
        fed = frozenset[int]()
        for edge in graph.inputs(vertex.id):
            fed |= _fed(graph, edge, running[number[graph.edges[edge].source]])
        trigger += ((index, subtask) for subtask in sorted(running[index] - fed))
    full = tuple(index for index, subtasks in enumerate(running) if not subtasks)
    return CheckpointPlan(tuple(trigger), tuple(wait_for), tuple(ended), full)


def _fed(graph: Graph, edge: int, senders: frozenset[int]) -> frozenset[int]:
    """Return the receivers of an edge that are connected to one of ``senders``."""
    if not senders:
        return frozenset()
    spec = graph.edges[edge]
    if not spec.partitioner.is_pointwise:
        return frozenset(range(graph.vertex(spec.target).parallelism))
    return frozenset(receiver for sender, receiver in graph.channels(edge) if sender in senders)
