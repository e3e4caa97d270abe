"""Tests of restoring a checkpoint into the same or another graph: what is accepted and what is refused (4.3, 4.5)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backend.domain.errors import PlanError
from backend.runtime.core.elements import Alignment
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec, Graph, Partitioner, VertexKind, VertexSpec
from backend.runtime.measure.measures import ChannelState, Finished, SubtaskSnapshot
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode
from backend.runtime.snapshot import restoring
from backend.runtime.snapshot.capabilities import SnapshotKind
from backend.runtime.snapshot.metadata import (
    ReadCheckpoint,
    StoredCheckpoint,
    VertexState,
    fingerprint,
    read_checkpoint,
)
from backend.runtime.snapshot.restoring import assign, restored_graph, without_channel_state
from backend.runtime.snapshot.saved import RestoreOptions
from tests.support.inside_jobs import take_over
from tests.support.rescaled_jobs import RECORDS, finish, violations
from tests.support.runtime_jobs import exactly_once_violations, small_job
from tests.support.snapshot_runs import SNAPSHOT_SETTINGS, run_to_snapshot, snapshot_job


def _with_vertex(graph: Graph, vertex_id: str, **changes: Any) -> Graph:
    return Graph(tuple(replace(v, **changes) if v.id == vertex_id else v for v in graph.vertices), graph.edges)


def _grown(spec: JobSpec) -> JobSpec:
    """Return the job with an additional source, map and sink, so that its vertices and edges have other positions."""
    document = {
        "name": "grown",
        "seed": spec.seed,
        "vertex": [
            {"id": "a-first", "kind": "source", "limit": 1, "cost_us": 1},
            {"id": "other", "kind": "map", "parallelism": 3, "cost_us": 1},
            {"id": "out", "kind": "sink", "cost_us": 1},
        ],
        "edge": [
            {"from": "a-first", "to": "other", "partitioner": "rebalance"},
            {"from": "other", "to": "out", "partitioner": "global"},
        ],
    }
    added = load_job_document(document).graph
    first, *others = added.vertices
    vertices = (first, *spec.graph.vertices, *others)
    return replace(spec, graph=Graph(vertices, (*added.edges, *spec.graph.edges)))


@pytest.mark.parametrize("kind", SNAPSHOT_SETTINGS)
def test_an_extended_job_continues_from_its_checkpoint_and_its_sources_read_the_same_log(kind: SnapshotKind) -> None:
    """GR-1, GR-2: added vertices start empty.

    Edges with in-flight data connect the same vertices as before, although their positions in the graph's lists have
    changed.
    """
    first, stored = run_to_snapshot(kind, snapshot_job(kind))
    committed = first.ledger.committed_count
    assert read_checkpoint(stored).has_channel_state == (kind is SnapshotKind.UNALIGNED)
    second = JobEngine(_grown(snapshot_job(kind, (3, 1, 3))), keeps_rows=True, restore=stored)
    take_over(second.ledger, first.ledger)
    finish(second)
    assert len({row.origin for row in second.ledger.rows}) == len(second.ledger.rows), "a new source has its own log"
    rows = [row for row in second.ledger.rows if row.value > 0]
    assert 0 < committed < RECORDS == len(rows)
    second.ledger.rows = rows
    assert violations(second) == []
    assert second.ledger.committed_count == RECORDS + 1, "the new source's record was committed as well"
    assert second.at_own_risk == ()
    # Restore a checkpoint of the second run into the original graph. The source keeps its number 0 from the checkpoint.
    # None is stored, because 0 is also the index of the source in this graph.
    newest = second.coordinator.newest
    assert newest is not None
    third = restored_graph(
        read_checkpoint(newest.stored(newest.record.graph)), snapshot_job(kind).graph, allows_non_restored=True
    )
    assert {v.id: v.number for v in third.vertices if v.kind.is_source} == {"source": None}


def test_state_without_an_operator_is_refused_unless_it_may_be_left_out() -> None:
    kind = SnapshotKind.ALIGNED
    first, stored = run_to_snapshot(kind, snapshot_job(kind))
    spec = snapshot_job(kind)
    without = _with_vertex(spec.graph, "keyed", kind=type(spec.graph.vertices[2].kind)("map+sink"))
    with pytest.raises(PlanError, match="GR-1 at 'keyed': the checkpoint has state of operator 'keyed:keyed'") as wrong:
        JobEngine(replace(spec, graph=without), restore=stored)
    assert wrong.value.fix == "keep the operator, or allow state that is not restored"
    second = JobEngine(
        replace(spec, graph=without), keeps_rows=True, restore=stored, options=RestoreOptions(allows_non_restored=True)
    )
    take_over(second.ledger, first.ledger)
    finish(second)
    assert len({row.origin for row in second.ledger.rows}) == len(second.ledger.rows) == RECORDS


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"partitioner": Partitioner.REBALANCE, "by_origin": False}, "hash edge, which is rebalance now"),
        ({"source": "keyed", "target": "source"}, "hash edge, which no longer exists"),
    ],
)
def test_a_change_of_an_edge_with_in_flight_data_is_refused(change: dict[str, Any], told: str) -> None:
    for kind in (SnapshotKind.UNALIGNED, SnapshotKind.ALIGNED):
        read = read_checkpoint(run_to_snapshot(kind, snapshot_job(kind))[1])
        graph = snapshot_job(kind).graph
        changed = Graph(graph.vertices, (replace(graph.edges[0], **change), graph.edges[1]))
        if kind is SnapshotKind.ALIGNED:
            assert restored_graph(read, changed).edges == changed.edges
            continue
        with pytest.raises(PlanError, match=f"GR-2 at 'source -> map': .* on this {told}; change the graph from"):
            restored_graph(read, changed)


def test_changed_operators_upstream_of_in_flight_data_are_reported_as_at_own_risk() -> None:
    for kind, told in ((SnapshotKind.UNALIGNED, ("map",)), (SnapshotKind.ALIGNED, ())):
        _, stored = run_to_snapshot(kind, snapshot_job(kind))
        spec = snapshot_job(kind)
        tagged = _with_vertex(spec.graph, "map", kind=type(spec.graph.vertices[1].kind)("timer"))
        assert JobEngine(replace(spec, graph=tagged), restore=stored).at_own_risk == told


def test_key_groups_and_splits_are_those_of_the_checkpoint() -> None:
    kind = SnapshotKind.UNALIGNED
    _, stored = run_to_snapshot(kind, snapshot_job(kind))
    read = read_checkpoint(stored)
    # At parallelism 100, the default maximum is 256. The checkpoint's maximum of 128 applies instead, also to hashed
    # edges (RS-4).
    many = _with_vertex(_with_vertex(snapshot_job(kind).graph, "map", parallelism=100), "source", parallelism=5)
    restored = restored_graph(read, many)
    assert (restored.vertex("map").effective_max_parallelism, restored.vertex("source").split_count) == (128, 2)
    assert [len(s.operators[0].entries("splits")) for s in assign(read, restored).snapshots.values()][:5] == [
        1,
        1,
        0,
        0,
        0,
    ]
    for vertex, changes, rule in (
        ("keyed", {"max_parallelism": 64}, "PT-4 at 'keyed': max_parallelism 64, and the checkpoint has 128"),
        ("map", {"max_parallelism": 64}, "PT-4 at 'map': max_parallelism 64, and the checkpoint has 128"),
        ("map", {"parallelism": 129}, "G-6 at 'map': parallelism 129 above the maximum 128"),
        ("keyed", {"parallelism": 200}, "G-6 at 'keyed': parallelism 200 above the maximum 128"),
        ("source", {"splits": 3}, "CK-1 at 'source': splits 3, but the checkpoint has 2; set splits = 2"),
    ):
        with pytest.raises(PlanError, match=rule):
            restored_graph(read, _with_vertex(snapshot_job(kind).graph, vertex, **changes))


def test_a_hashed_vertex_without_state_keeps_its_key_groups_as_long_as_they_suffice() -> None:
    """PT-4: the vertex has no keyed state, so its parallelism may exceed the checkpoint's number of key groups."""
    kind = SnapshotKind.ALIGNED
    read = read_checkpoint(run_to_snapshot(kind, snapshot_job(kind))[1])
    for parallelism, groups in ((3, 128), (127, 128), (128, 128), (129, 256)):
        graph = restored_graph(read, _with_vertex(snapshot_job(kind).graph, "map", parallelism=parallelism))
        assert graph.vertex("map").effective_max_parallelism == groups, parallelism
    own = restored_graph(read, _with_vertex(snapshot_job(kind).graph, "map", max_parallelism=64))
    assert own.vertex("map").effective_max_parallelism == 64


def test_every_key_group_split_and_in_flight_byte_is_assigned_to_its_new_owners() -> None:
    """RS-1, RS-2, RS-6: each part of the state goes to one subtask. Channel state goes once to each new receiver."""
    kind = SnapshotKind.UNALIGNED
    _, stored = run_to_snapshot(kind, snapshot_job(kind, (3, 2, 3)))
    read = read_checkpoint(stored)
    graph = restored_graph(read, snapshot_job(kind, (2, 5, 4)).graph)
    assigned = assign(read, graph)
    for index, vertex in enumerate(graph.vertices):
        old = read.vertices[vertex.id].subtasks
        new = [assigned.snapshots[index, n] for n in range(vertex.parallelism)]
        groups = [group for s in new for group in s.operators[0].keyed]
        assert sorted(groups) == sorted(group for s in old for group in s.operators[0].keyed)
        splits = [e for s in new for e in s.operators[0].entries("splits")]
        assert sorted(splits) == sorted(e for s in old for e in s.operators[0].entries("splits"))
        for side in ("inputs", "outputs"):
            keys = [key for s in new for key in getattr(s.channels, side)]
            held = {key for s in old for key in getattr(s.channels, side)}
            assert set(keys) == held
            for key in held:
                copies = len(assigned.rescaled[key.edge].new_receivers(key.target_subtask)) if side == "inputs" else 1
                assert keys.count(key) == copies, (side, key)
        assert [s.persisted_bytes for s in new] == [
            sum(len(c) for m in (s.channels.inputs, s.channels.outputs) for cs in m.values() for c in cs) for s in new
        ]
        declared = sum(s.state_bytes for s in old)
        assert 0.9 * declared <= sum(s.state_bytes for s in new) <= 1.1 * declared or vertex.kind.has_sink


# --- the job file -----------------------------------------------------------------------------------------------------


def _document(*rescales: object, **vertex: object) -> dict[str, Any]:
    return {
        "name": "asked",
        "vertex": [
            {"id": "s", "kind": "source", "rate": 10, "parallelism": 2},
            {"id": "k", "kind": "keyed+sink", "parallelism": 2} | vertex,
        ],
        "edge": [{"from": "s", "to": "k", "partitioner": "hash"}],
        "rescale": list(rescales),
    }


def test_the_splits_of_the_log_are_distributed_to_the_subtasks_of_a_source() -> None:
    document = _document()
    document["vertex"][0] |= {"splits": 5, "limit": 50, "rate": 1000}
    engine = JobEngine(load_job_document(document), keeps_rows=True)
    engine.run_until(0)
    sources = [task.source for task in engine.tasks if task.source is not None]
    assert [[split.number for split in source.splits] for source in sources] == [[0, 1, 2], [3, 4]]
    engine.run_until(1_000_000)
    assert [source.offset for source in sources] == [30, 20]
    assert [source.is_processing_backlog for source in sources] == [False, False]
    with pytest.raises(PlanError, match="G-6 at 'x': there is no such vertex to rescale; one of s, k"):
        engine.rescale({"x": 1})


_M = 128
_RECORDS = 700


# --- a checkpoint as bytes --------------------------------------------------------------------------------------------


def _stored(engine: JobEngine, **options: int) -> StoredCheckpoint:
    newest = engine.coordinator.newest
    assert newest is not None
    return newest.stored(engine.env.graph, **options)


def test_a_source_whose_subtasks_do_not_read_the_assigned_splits_is_not_restored() -> None:
    engine = JobEngine(small_job("aligned", seed=3))
    engine.run_until(450_000)
    graph = engine.env.graph
    read = read_checkpoint(_stored(engine))
    source = read.vertices["source"]
    assert source.splits == (0, 1)
    ended = replace(source.subtasks[0], finished=Finished.OPERATORS)
    # A finished subtask may explain that a split is missing, but not that another one is held twice.
    for subtasks in ((source.subtasks[0],) * 2, (source.subtasks[0],), (source.subtasks[0], ended)):
        broken = replace(read, vertices={**read.vertices, "source": replace(source, subtasks=subtasks)})
        with pytest.raises(
            PlanError, match=r"CK-1 at 'source': its subtasks read the splits \[0(, 0)?\], but \[0, 1\]"
        ):
            restored_graph(broken, graph)


@pytest.mark.parametrize("inline_below_bytes", [0, 300, 1 << 20])
@pytest.mark.parametrize("protocol", ["aligned", "unaligned"])
def test_a_job_restored_from_the_bytes_alone_continues_exactly_once(protocol: str, inline_below_bytes: int) -> None:
    spec = small_job(protocol, seed=4, task_managers=2, records=_RECORDS)
    # This crash comes after the checkpoint, so that the first run restarts once.
    crash = FaultSpec("task.in-sync", hit=9)
    first = JobEngine(replace(spec, faults=(crash,)), keeps_rows=True)
    first.run_until(600_000)
    assert first.restart_count == 1
    stored = _stored(first, inline_below_bytes=inline_below_bytes)
    before = first.ledger.committed_count
    second = JobEngine(spec, keeps_rows=True, restore=StoredCheckpoint(bytes(stored.metadata), dict(stored.files)))
    # Both runs share the external system, so the second run commits or aborts the open transactions of the first run.
    take_over(second.ledger, first.ledger)
    while second.ledger.committed_count < _RECORDS and second.now_us < 20_000_000:
        second.run_until(second.now_us + 100_000)
    second.run_until(second.now_us + 500_000)
    assert 0 < before < _RECORDS
    assert not exactly_once_violations(second.ledger.rows, _RECORDS)
    assert second.restored_id == read_checkpoint(stored).id
    assert second.coordinator.newest is not None
    assert second.coordinator.newest.record.id > read_checkpoint(stored).id


def _read_by_hand(*subtasks: SubtaskSnapshot) -> tuple[ReadCheckpoint, VertexSpec]:
    """Build a checkpoint of one keyed vertex with a sink from these snapshots, and return it with the vertex."""
    vertex = VertexSpec("k", VertexKind("keyed+sink"), "k", parallelism=len(subtasks), max_parallelism=_M)
    state = VertexState(len(subtasks), _M, is_keyed=True, subtasks=subtasks)
    return ReadCheckpoint(1, 0, Alignment.ALIGNED, fingerprint(Graph((vertex,), ())), {"k": state}), vertex


def test_the_declared_state_size_follows_key_groups_and_entries_count_where_they_are_read() -> None:
    """RS-1, ME-17: the size is what a rescaled subtask loads. It may differ from the number of stored bytes."""

    def snapshot(keyed: dict[int, bytes], entry: bytes, state_bytes: int) -> SubtaskSnapshot:
        states = (OperatorState("transactions", StateMode.UNION, (entry,)),)
        operators = (OperatorSnapshot(keyed), OperatorSnapshot({}, states))
        return SubtaskSnapshot(operators, ChannelState(), -1, state_bytes, 0)

    # The first subtask declares 400 bytes for 40 bytes of key groups, plus 6 bytes for its entry. The second declares
    # only 3 bytes, fewer than its entry has.
    one, other = snapshot({0: b"a" * 10, 40: b"b" * 30}, b"first.", 406), snapshot({100: b"c" * 5}, b"second", 3)
    read, vertex = _read_by_hand(one, other)
    for parallelism, sizes in ((4, [112, 312, 12, 12]), (1, [412]), (2, [406, 3])):
        graph = Graph((replace(vertex, parallelism=parallelism),), ())
        restored = assign(read, graph).snapshots
        assert [restored[0, n].state_bytes for n in range(parallelism)] == sizes, parallelism


def test_a_checkpoint_without_its_channel_state_is_otherwise_unchanged_and_reports_the_lost_bytes() -> None:
    """RC-8: a restore may ignore the channel state of a checkpoint, and then reports how many bytes are lost."""
    engine = JobEngine(small_job("unaligned", seed=3))
    engine.run_until(450_000)
    read = read_checkpoint(_stored(engine))
    left, lost_bytes = without_channel_state(read)
    assert lost_bytes == read.persisted_bytes > 0
    assert (left.persisted_bytes, left.has_channel_state) == (0, False)
    for name, vertex in read.vertices.items():
        bare = [replace(s, channels=ChannelState(), persisted_bytes=0) for s in vertex.subtasks]
        assert list(left.vertices[name].subtasks) == bare
    assert without_channel_state(left) == (left, 0)


def test_keyed_state_is_not_restored_under_another_explicit_maximum_parallelism() -> None:
    engine = JobEngine(small_job("aligned", seed=3))
    engine.run_until(450_000)
    read = read_checkpoint(_stored(engine))
    graph = engine.env.graph

    def with_maximum(vertex_id: str, maximum: int) -> Graph:
        vertices = tuple(replace(v, max_parallelism=maximum) if v.id == vertex_id else v for v in graph.vertices)
        return Graph(vertices, graph.edges)

    with pytest.raises(PlanError, match="PT-4 at 'keyed': max_parallelism 64, and the checkpoint has 128"):
        restored_graph(read, with_maximum("keyed", 64))
    # The same maximum is accepted. The maximum of a vertex without keyed state does not matter. Without an explicit
    # maximum, the recorded one applies.
    assert restored_graph(read, with_maximum("keyed", 128)).vertex("keyed").max_parallelism == 128
    assert restored_graph(read, with_maximum("map", 64)).vertex("map").max_parallelism == 64
    assert restored_graph(read, graph).vertex("keyed").max_parallelism == 128


def test_a_new_subtask_has_the_lowest_watermark_of_the_old_ones_and_a_new_vertex_has_none() -> None:
    """A record in flight may be as old as the lowest watermark that any old subtask had seen."""
    old = [SubtaskSnapshot((), ChannelState(), watermark_us, 0, 0) for watermark_us in (700, 300, 900)]
    state, vertex = SimpleNamespace(subtasks=old), SimpleNamespace(parallelism=2)

    def watermark(of: Any) -> int:
        return restoring._snapshot(of, cast(Any, vertex), 0, (), ChannelState()).watermark_us

    assert watermark(state) == 300
    assert watermark(None) == -1
