"""Assigns the state of a checkpoint to the subtasks of a graph, at any parallelism (runtime.md 4.3 to 4.5).

This module also decides which changes of the graph are accepted. A refused change raises a PlanError that names the
rule, the vertex and the fix.

Invariant: each key group (RS-1), each entry of split state and each old sender's channel state has exactly one new
owner. Several new subtasks may read an old receiver's channel state, and exactly one of them keeps each record (RS-9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from backend.domain.errors import PlanError
from backend.runtime.job.graph import EdgeSpec, Graph, Partitioner, VertexSpec
from backend.runtime.measure.measures import ChannelState, Finished, SubtaskSnapshot, TaskKey
from backend.runtime.network.buffers import Data
from backend.runtime.network.channel import ChannelKey
from backend.runtime.network.rescaling import EdgeRescale, rescale_of
from backend.runtime.operators.redistribution import restored_max_parallelism, restored_operator
from backend.runtime.operators.sources import held_splits
from backend.runtime.operators.state import NO_STATE, OperatorSnapshot
from backend.runtime.snapshot.finished import VertexEnd, check_predecessors, end_of_vertex
from backend.runtime.snapshot.metadata import ReadCheckpoint, VertexState, operator_ids

_Side = dict[ChannelKey, list[Data]]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The snapshot that each subtask restores.

    On the edges in ``rescaled``, channel state is stored under the keys of the old channels.
    """

    snapshots: Mapping[TaskKey, SubtaskSnapshot]
    rescaled: Mapping[int, EdgeRescale]


def assign(read: ReadCheckpoint, graph: Graph) -> Assignment:
    """Assign a checkpoint's state to the subtasks of ``graph``, which must come from ``restored_graph``.

    Raises:
        PlanError: an edge with data in flight cannot be rescaled (RS-11) or no longer exists (GR-2).
    """
    edges = _edges_with_data(read, graph)
    rescaled = {}
    for new in edges.values():
        edge = graph.edges[new]
        old_source, old_target = read.vertices[edge.source].parallelism, read.vertices[edge.target].parallelism
        rescale = rescale_of(edge, graph, old_source=old_source, old_target=old_target)
        if rescale is not None:
            rescaled[new] = rescale
    inputs, outputs = _channel_state(read, edges)
    ends = vertex_ends(read, graph)
    snapshots: dict[TaskKey, SubtaskSnapshot] = {}
    for index, vertex in enumerate(graph.vertices):
        state = read.vertices.get(vertex.id)
        for subtask in range(vertex.parallelism):
            channels = ChannelState(
                _of_receiver(inputs, vertex, subtask, graph, rescaled),
                _of_sender(outputs, vertex, subtask, graph, rescaled),
            )
            if ends[vertex.id] is VertexEnd.ALL:
                none = (NO_STATE,) * len(operator_ids(vertex))
                snapshots[index, subtask] = SubtaskSnapshot(none, channels, -1, 0, 0, finished=Finished.RESTORED)
                continue
            operators = _operators(read, state, vertex, subtask)
            snapshots[index, subtask] = _snapshot(state, vertex, subtask, operators, channels)
    return Assignment(snapshots, rescaled)


def vertex_ends(read: ReadCheckpoint, graph: Graph) -> dict[str, VertexEnd]:
    """Return how much of each vertex of ``graph`` had finished in the checkpoint.

    Raises:
        PlanError: the graph changed in a way that is not allowed with finished operators (FN-18).
    """
    known = read.ends
    ends = {vertex.id: end_of_vertex(vertex.id, operator_ids(vertex), known) for vertex in graph.vertices}
    check_predecessors(graph, ends)
    return ends


def without_channel_state(read: ReadCheckpoint) -> tuple[ReadCheckpoint, int]:
    """Return the checkpoint without its in-flight data, and the number of bytes that were removed (RC-8)."""
    lost_bytes = sum(s.persisted_bytes for v in read.vertices.values() for s in v.subtasks)
    vertices = {
        name: replace(
            state, subtasks=tuple(replace(s, channels=ChannelState(), persisted_bytes=0) for s in state.subtasks)
        )
        for name, state in read.vertices.items()
    }
    return replace(read, vertices=vertices), lost_bytes


# --- the restored graph -----------------------------------------------------------------------------------------------


def restored_graph(read: ReadCheckpoint, graph: Graph, *, allows_non_restored: bool = False) -> Graph:
    """Return the graph to run, which keeps the checkpoint's splits and maximum parallelisms (PT-4).

    Operators are matched by id. New operators start empty. With ``allows_non_restored``, the state of operators that no
    longer exist is left out (GR-1).

    Raises:
        PlanError: the graph sets a different maximum parallelism, or a parallelism above it; state matches no operator;
            an edge with data in flight changed; or the sources' splits are not those that were assigned (CK-1).
    """
    with_data = _edges_with_data(read, graph)
    vertex_ends(read, graph)
    if not allows_non_restored:
        _check_all_is_taken(read, graph)
    hashed = {e.target for e in graph.edges if e.partitioner is Partitioner.HASH}
    needs_maximum = {graph.edges[new].target for new in with_data.values()} & hashed
    vertices = []
    for vertex in graph.vertices:
        state = read.vertices.get(vertex.id)
        if state is None:
            vertices.append(vertex)
            continue
        _check_splits(vertex, state)
        if state.is_keyed or vertex.id in needs_maximum:
            vertex = replace(vertex, max_parallelism=_maximum(vertex, state))
        elif vertex.id in hashed and not vertex.max_parallelism and state.max_parallelism >= vertex.parallelism:
            vertex = replace(vertex, max_parallelism=state.max_parallelism)
        if state.splits is not None and len(state.splits) != vertex.parallelism:
            vertex = replace(vertex, splits=len(state.splits))
        vertices.append(vertex)
    return Graph(tuple(_numbered(vertices, read)), graph.edges)


def at_own_risk(read: ReadCheckpoint, graph: Graph) -> tuple[str, ...]:
    """Return the vertices whose operators changed although an edge to or from them has data in flight.

    Nothing checks that the changed operators can process this data (GR-2).
    """
    edges = _edges_with_data(read, graph)
    touched = {end for new in edges.values() for end in (graph.edges[new].source, graph.edges[new].target)}
    before = _operators_before(read)
    return tuple(v.id for v in graph.vertices if v.id in touched and before[v.id] != operator_ids(v))


def left_out(read: ReadCheckpoint, graph: Graph) -> tuple[tuple[str, str], ...]:
    """Return the operators with state in the checkpoint that ``graph`` does not have, each as (vertex, operator)."""
    now = {v.id: set(operator_ids(v)) for v in graph.vertices}
    return tuple(
        (vertex, operator)
        for vertex, operators in _operators_before(read).items()
        for n, operator in enumerate(operators)
        if operator not in now.get(vertex, set())
        and any(s.operators[n].keyed or _entry_bytes(s.operators[n]) for s in read.vertices[vertex].subtasks)
    )


def _check_all_is_taken(read: ReadCheckpoint, graph: Graph) -> None:
    for vertex, operator in left_out(read, graph):
        raise PlanError(
            f"the checkpoint has state of operator {operator!r}, which the job does not have",
            rule="GR-1",
            vertex=vertex,
            fix="keep the operator, or allow state that is not restored",
        )


def _maximum(vertex: VertexSpec, state: VertexState) -> int:
    maximum = restored_max_parallelism(state.max_parallelism, vertex.max_parallelism, vertex=vertex.id)
    if vertex.parallelism > maximum:
        raise PlanError(
            f"parallelism {vertex.parallelism} above the maximum {maximum} that the checkpoint was taken with",
            rule="G-6",
            vertex=vertex.id,
            fix=f"at most {maximum}",
        )
    return maximum


def _check_splits(vertex: VertexSpec, state: VertexState) -> None:
    if state.splits is None:
        return
    held = sorted(split for snapshot in state.subtasks for split in held_splits(snapshot.operators[0]))
    # A subtask that had finished has read its splits to the end and holds none any more, so splits may be missing
    # (FN-10). No split may be held twice, so this compares how often each split is held, not which ones are.
    has_finished = any(snapshot.finished is not Finished.NO for snapshot in state.subtasks)
    if held != sorted(state.splits) and not (has_finished and Counter(held) < Counter(state.splits)):
        raise PlanError(
            f"its subtasks read the splits {held}, but {sorted(state.splits)} were assigned",
            rule="CK-1",
            vertex=vertex.id,
            fix="restore another checkpoint: this one would lose or duplicate records",
        )
    if vertex.splits and vertex.splits != len(state.splits):
        raise PlanError(
            f"splits {vertex.splits}, but the checkpoint has {len(state.splits)}",
            rule="CK-1",
            vertex=vertex.id,
            fix=f"set splits = {len(state.splits)}, or leave it out",
        )


def _numbered(vertices: list[VertexSpec], read: ReadCheckpoint) -> Iterator[VertexSpec]:
    """Yield the vertices with their numbers from the checkpoint, so that sources continue with the same data.

    A new vertex has its index as its number, or an unused number if another vertex already has that one.
    """
    taken = {state.number for state in read.vertices.values()}
    for index, vertex in enumerate(vertices):
        state = read.vertices.get(vertex.id)
        number = index if vertex.number is None else vertex.number
        if state is not None:
            number = state.number
        elif number in taken:
            number = next(n for n in count() if n not in taken)
            taken.add(number)
        yield vertex if number == index else replace(vertex, number=number)


# --- edges ------------------------------------------------------------------------------------------------------------


def _edges_with_data(read: ReadCheckpoint, graph: Graph) -> dict[int, int]:
    """Map each edge with data in flight from its index in the checkpoint's graph to its index in ``graph`` (GR-2).

    Raises:
        PlanError: such an edge no longer exists, or its partitioner changed.
    """
    held = {
        key.edge
        for state in read.vertices.values()
        for s in state.subtasks
        for side in (s.channels.inputs, s.channels.outputs)
        for key, chunks in side.items()
        if any(chunks)
    }
    now = dict(zip(_named([_now(e) for e in graph.edges]), range(len(graph.edges)), strict=True))
    before = _named([_before(e) for e in read.graph["edges"]])
    for edge in sorted(held):
        if before[edge] not in now:
            raise _edge_changed(before[edge][0], graph)
    return {edge: now[before[edge]] for edge in sorted(held)}


_Edge = tuple[str, str, str, bool]
"""An edge: source, target, partitioner, and whether records are partitioned by the hash of their origin."""


def _now(edge: EdgeSpec) -> _Edge:
    return edge.source, edge.target, edge.partitioner.value, edge.by_origin


def _before(edge: Mapping[str, Any]) -> _Edge:
    return edge["source"], edge["target"], edge["partitioner"], edge["by_origin"]


def _named(edges: list[_Edge]) -> list[tuple[_Edge, int]]:
    """Return each edge with the number of equal edges before it, which makes equal edges distinct."""
    seen: Counter[_Edge] = Counter()
    names = []
    for edge in edges:
        names.append((edge, seen[edge]))
        seen[edge] += 1
    return names


def _edge_changed(edge: _Edge, graph: Graph) -> PlanError:
    source, target, partitioner, _ = edge
    now = sorted({e.partitioner.value for e in graph.edges if (e.source, e.target) == (source, target)})
    changed = f"is {' and '.join(now)} now" if now and partitioner not in now else "no longer exists"
    return PlanError(
        f"the checkpoint has data in flight on this {partitioner} edge, which {changed}",
        rule="GR-2",
        vertex=f"{source} -> {target}",
        fix="change the graph from a savepoint or an aligned checkpoint, or leave this edge as it was",
    )


# --- channel state ----------------------------------------------------------------------------------------------------


def _channel_state(read: ReadCheckpoint, edges: Mapping[int, int]) -> tuple[_Side, _Side]:
    """Return all input and all output channel state.

    The keys are the old channels, but with the new index of their edge.
    """
    sides: tuple[_Side, _Side] = ({}, {})
    for state in read.vertices.values():
        for snapshot in state.subtasks:
            for side, own in zip(sides, (snapshot.channels.inputs, snapshot.channels.outputs), strict=True):
                for key, chunks in own.items():
                    if key.edge in edges:
                        side[replace(key, edge=edges[key.edge])] = chunks
    return sides


def _of_receiver(
    inputs: _Side, vertex: VertexSpec, subtask: int, graph: Graph, rescaled: Mapping[int, EdgeRescale]
) -> _Side:
    olds = {e: rescaled[e].receivers[subtask] if e in rescaled else (subtask,) for e in graph.inputs(vertex.id)}
    return {key: chunks for key, chunks in inputs.items() if key.target_subtask in olds.get(key.edge, ())}


def _of_sender(
    outputs: _Side, vertex: VertexSpec, subtask: int, graph: Graph, rescaled: Mapping[int, EdgeRescale]
) -> _Side:
    olds = {e: rescaled[e].senders[subtask] if e in rescaled else (subtask,) for e in graph.outputs(vertex.id)}
    return {key: chunks for key, chunks in outputs.items() if key.source_subtask in olds.get(key.edge, ())}


# --- state ------------------------------------------------------------------------------------------------------------


def _operators_before(read: ReadCheckpoint) -> dict[str, list[str]]:
    return {v["id"]: v["operators"] for v in read.graph["vertices"]}


def _operators(
    read: ReadCheckpoint, state: VertexState | None, vertex: VertexSpec, subtask: int
) -> tuple[OperatorSnapshot, ...]:
    """Return the restored state of each operator of one subtask, matched by operator id (GR-1).

    New operators start empty.
    """
    if state is None:
        return tuple(NO_STATE for _ in operator_ids(vertex))
    places = {operator: n for n, operator in enumerate(_operators_before(read)[vertex.id])}
    return tuple(
        NO_STATE
        if (n := places.get(operator)) is None
        else restored_operator(
            [snapshot.operators[n] for snapshot in state.subtasks],
            subtask,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.effective_max_parallelism,
        )
        for operator in operator_ids(vertex)
    )


def _snapshot(
    state: VertexState | None,
    vertex: VertexSpec,
    subtask: int,
    operators: tuple[OperatorSnapshot, ...],
    channels: ChannelState,
) -> SubtaskSnapshot:
    persisted_bytes = sum(
        len(chunk) for side in (channels.inputs, channels.outputs) for chunks in side.values() for chunk in chunks
    )
    if state is not None and len(state.subtasks) == vertex.parallelism:
        # A subtask of a partly finished vertex starts again, with nothing left to do (FN-17).
        old = replace(state.subtasks[subtask], finished=Finished.NO)
        return replace(old, operators=operators, channels=channels, persisted_bytes=persisted_bytes)
    state_bytes, replayed = (0, 0) if state is None else _state_bytes(state, operators)
    # The in-flight records of a new subtask come from several old ones, so only the lowest of their watermarks is sure.
    watermark_us = -1 if state is None else min(old.watermark_us for old in state.subtasks)
    return SubtaskSnapshot(operators, channels, watermark_us, state_bytes, persisted_bytes, replayed)


def _state_bytes(state: VertexState, operators: tuple[OperatorSnapshot, ...]) -> tuple[int, int]:
    """Return the declared size of a new subtask's state, and the number of changes that its restore applies.

    The size is that of the subtask's operator state, plus its share of the declared keyed state of each old subtask, in
    proportion to the bytes of the key groups that it takes over. The changes are shared in the same way.
    """
    size, replayed = sum(_entry_bytes(operator) for operator in operators), 0
    own = {group for operator in operators for group in operator.keyed}
    for old in state.subtasks:
        declared = max(0, old.state_bytes - sum(_entry_bytes(operator) for operator in old.operators))
        groups = {group: len(data) for operator in old.operators for group, data in operator.keyed.items()}
        if groups:
            taken, total = sum(n for group, n in groups.items() if group in own), sum(groups.values())
            size += declared * taken // total
            replayed += old.replayed_changes * taken // total
    return size, replayed


def _entry_bytes(operator: OperatorSnapshot) -> int:
    return sum(len(entry) for each in operator.states for entry in each.entries)
