"""A checkpoint restored into another graph: what is taken, what is refused, with rule, vertex and cure (4.3, 4.5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.domain.errors import InvalidInputError, PlanError
from backend.runtime.coordinator.rescales import rescaled_graph
from backend.runtime.core.elements import Alignment, SnapshotType
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import Graph, Partitioner
from backend.runtime.snapshot.capabilities import CAPABILITIES, SnapshotKind, Support, Use
from backend.runtime.snapshot.metadata import StoredCheckpoint, read_checkpoint
from backend.runtime.snapshot.restoring import assign, restored_graph
from tests.support.inside_jobs import take_over
from tests.support.rescaled_jobs import RECORDS, finish, rescaled_job, violations

_KINDS = {
    SnapshotKind.CANONICAL_SAVEPOINT: ("savepoint", SnapshotType.SAVEPOINT),
    SnapshotKind.ALIGNED: ("aligned", SnapshotType.CHECKPOINT),
    SnapshotKind.UNALIGNED: ("unaligned", SnapshotType.CHECKPOINT),
}


def _run_to(kind: SnapshotKind, spec: JobSpec) -> tuple[JobEngine, StoredCheckpoint]:
    """A run that stands still at its newest snapshot of the kind: nothing is committed behind it."""
    engine = JobEngine(spec, keeps_rows=True)
    engine.run_until(80_000)
    while engine.coordinator.newest is None:
        engine.run_until(engine.now_us + 1_000)
    engine.set_config({"execution.checkpointing.interval": "1 h"})
    engine.run_until(engine.now_us + 80_000)
    newest = engine.coordinator.newest
    if kind is SnapshotKind.CANONICAL_SAVEPOINT:
        asked = engine.request_savepoint()
        engine.run_until(engine.now_us + 700_000)
        stored = engine.savepoint(asked.checkpoint_id or 0)
        assert stored is not None
        return engine, stored
    assert newest is not None
    return engine, newest.stored(newest.record.graph)


def _spec(kind: SnapshotKind, parallelism: tuple[int, int, int] = (2, 2, 2)) -> JobSpec:
    return rescaled_job(_KINDS[kind][0], "hash", parallelism, seed=3, record_bytes=400)


def _with_vertex(graph: Graph, vertex_id: str, **changes: Any) -> Graph:
    return Graph(tuple(replace(v, **changes) if v.id == vertex_id else v for v in graph.vertices), graph.edges)


def _grown(spec: JobSpec) -> JobSpec:
    """Another source in front of all, a map beside the old one, and the sink's stage fed by both."""
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


@pytest.mark.parametrize("kind", _KINDS)
def test_a_job_that_grew_goes_on_from_what_it_had_and_its_sources_read_the_same_log(kind: SnapshotKind) -> None:
    """GR-1, GR-2: what is new starts empty; edges with data in flight are as they were, at another place."""
    first, stored = _run_to(kind, _spec(kind))
    committed = first.ledger.committed_count
    assert read_checkpoint(stored).has_channel_state == (kind is SnapshotKind.UNALIGNED)
    second = JobEngine(_grown(_spec(kind, (3, 1, 3))), keeps_rows=True, restore=stored)
    take_over(second.ledger, first.ledger)
    finish(second)
    assert len({row.origin for row in second.ledger.rows}) == len(second.ledger.rows), "a new source has its own log"
    rows = [row for row in second.ledger.rows if row.value > 0]
    assert 0 < committed < RECORDS == len(rows)
    second.ledger.rows = rows
    assert violations(second) == []
    assert second.ledger.committed_count == RECORDS + 1, "the new source's record came out as well"
    assert second.at_own_risk == ()
    # And again from what this one wrote: numbers of sources are kept, not places.
    newest = second.coordinator.newest
    assert newest is not None
    third = restored_graph(
        read_checkpoint(newest.stored(newest.record.graph)), _spec(kind).graph, allows_non_restored=True
    )
    assert {v.id: v.number for v in third.vertices if v.kind.is_source} == {"source": None}


def test_state_that_no_operator_takes_is_refused_unless_it_may_be_left_out() -> None:
    kind = SnapshotKind.ALIGNED
    first, stored = _run_to(kind, _spec(kind))
    spec = _spec(kind)
    without = _with_vertex(spec.graph, "keyed", kind=type(spec.graph.vertices[2].kind)("map+sink"))
    with pytest.raises(PlanError, match="GR-1 at 'keyed': the checkpoint has state of operator 'keyed:keyed'") as wrong:
        JobEngine(replace(spec, graph=without), restore=stored)
    assert wrong.value.fix == "keep the operator, or allow state that is not restored"
    second = JobEngine(replace(spec, graph=without), keeps_rows=True, restore=stored, allows_non_restored=True)
    take_over(second.ledger, first.ledger)
    finish(second)
    assert len({row.origin for row in second.ledger.rows}) == len(second.ledger.rows) == RECORDS


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"partitioner": Partitioner.REBALANCE, "by_origin": False}, "hash edge, which is rebalance now"),
        ({"source": "keyed", "target": "source"}, "hash edge, which is not there any more"),
    ],
)
def test_an_edge_with_data_in_flight_is_not_changed(change: dict[str, Any], told: str) -> None:
    for kind in (SnapshotKind.UNALIGNED, SnapshotKind.ALIGNED):
        read = read_checkpoint(_run_to(kind, _spec(kind))[1])
        graph = _spec(kind).graph
        changed = Graph(graph.vertices, (replace(graph.edges[0], **change), graph.edges[1]))
        if kind is SnapshotKind.ALIGNED:
            assert restored_graph(read, changed).edges == changed.edges
            continue
        with pytest.raises(PlanError, match=f"GR-2 at 'source -> map': .* on this {told}; change the graph from"):
            restored_graph(read, changed)


def test_other_operators_in_front_of_data_in_flight_are_at_own_risk_and_it_is_told() -> None:
    for kind, told in ((SnapshotKind.UNALIGNED, ("map",)), (SnapshotKind.ALIGNED, ())):
        _, stored = _run_to(kind, _spec(kind))
        spec = _spec(kind)
        tagged = _with_vertex(spec.graph, "map", kind=type(spec.graph.vertices[1].kind)("timer"))
        assert JobEngine(replace(spec, graph=tagged), restore=stored).at_own_risk == told


def test_key_groups_and_splits_are_those_of_the_checkpoint() -> None:
    kind = SnapshotKind.UNALIGNED
    _, stored = _run_to(kind, _spec(kind))
    read = read_checkpoint(stored)
    # At parallelism 100 the default maximum is 256; the checkpoint's is 128, and holds for hashed edges too (RS-4).
    many = _with_vertex(_with_vertex(_spec(kind).graph, "map", parallelism=100), "source", parallelism=5)
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
        ("source", {"splits": 3}, "CK-1 at 'source': splits 3, and the checkpoint has 2; set splits = 2"),
    ):
        with pytest.raises(PlanError, match=rule):
            restored_graph(read, _with_vertex(_spec(kind).graph, vertex, **changes))


def test_a_hashed_vertex_without_state_keeps_its_key_groups_while_they_are_enough() -> None:
    """PT-4: nothing of it is bound to them, so more subtasks than that are no fault."""
    kind = SnapshotKind.ALIGNED
    read = read_checkpoint(_run_to(kind, _spec(kind))[1])
    for parallelism, groups in ((3, 128), (127, 128), (128, 128), (129, 256)):
        graph = restored_graph(read, _with_vertex(_spec(kind).graph, "map", parallelism=parallelism))
        assert graph.vertex("map").effective_max_parallelism == groups, parallelism
    own = restored_graph(read, _with_vertex(_spec(kind).graph, "map", max_parallelism=64))
    assert own.vertex("map").effective_max_parallelism == 64


def test_every_key_group_split_and_byte_in_flight_has_its_new_owners() -> None:
    """RS-1, RS-2, RS-6: state is dealt out once, channel state as often as its channel is ambiguous."""
    kind = SnapshotKind.UNALIGNED
    _, stored = _run_to(kind, _spec(kind, (3, 2, 3)))
    read = read_checkpoint(stored)
    graph = restored_graph(read, _spec(kind, (2, 5, 4)).graph)
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


def test_what_a_snapshot_may_be_used_for_is_flinks_matrix_and_what_this_runtime_does() -> None:
    """GR-4."""
    cells = {use.value: "".join(CAPABILITIES[use][kind].value[0] for kind in SnapshotKind) for use in Use}
    assert list(cells.values()) == ["ynnn", "yynn", "yaaa", "yyyn", "yyyn", "yyyn", "yyyy", "yyyy"]
    for kind in _KINDS:
        _, stored = _run_to(kind, _spec(kind))
        rescaled = rescaled_graph(_spec(kind).graph, {"map": 3, "keyed": 1}, _spec(kind).config)
        assert JobEngine(replace(_spec(kind), graph=rescaled), restore=stored).restored_id is None, "not before time 0"
        graph = _spec(kind).graph
        upgraded = Graph(graph.vertices, (replace(graph.edges[0], partitioner=Partitioner.SHUFFLE), graph.edges[1]))
        is_taken = True
        try:
            JobEngine(replace(_spec(kind), graph=upgraded), restore=stored)
        except PlanError:
            is_taken = False
        assert is_taken == (CAPABILITIES[Use.ARBITRARY_UPGRADE][kind] is Support.YES), kind


def test_a_native_savepoint_and_a_checkpoint_without_data_in_flight_are_as_free_as_an_aligned_one() -> None:
    spec = rescaled_job("unaligned", "hash", (2, 2, 2), seed=3)
    engine = JobEngine(spec)
    engine.run_until(10_000_000)
    newest = engine.coordinator.newest
    assert newest is not None
    assert newest.record.barrier.alignment is Alignment.UNALIGNED
    read = read_checkpoint(newest.stored(newest.record.graph))
    assert not read.has_channel_state
    graph = Graph(
        spec.graph.vertices, (replace(spec.graph.edges[0], partitioner=Partitioner.GLOBAL), spec.graph.edges[1])
    )
    assert restored_graph(read, graph).edges == graph.edges


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


def test_a_job_file_says_when_and_from_what_a_job_is_rescaled() -> None:
    rows = (
        {"at": "9 s", "vertex": "k", "parallelism": 3, "from": "savepoint"},
        {"at": "4 s", "vertex": "k", "parallelism": 1},
        {"at": "4 s", "vertex": "s", "parallelism": 5},
    )
    one, other = load_job_document(_document(*rows)).rescales
    assert (one.at_us, one.parallelism, one.from_savepoint) == (4_000_000, {"k": 1, "s": 5}, False)
    assert (other.at_us, other.parallelism, other.from_savepoint) == (9_000_000, {"k": 3}, True)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({}, "rescale[0].at"),
        ({"at": "1 s", "parallelism": 2}, "rescale[0].vertex"),
        ({"at": "1 s", "vertex": "k"}, "rescale[0].parallelism"),
        ({"at": "1 s", "vertex": "x", "parallelism": 2}, "rescale[0].vertex"),
        ({"at": "soon", "vertex": "k", "parallelism": 2}, "rescale[0].at"),
        ({"at": "1 s", "vertex": "k", "parallelism": 0}, "rescale[0].parallelism"),
        ({"at": "1 s", "vertex": "k", "parallelism": 2, "from": "memory"}, "rescale[0].from"),
        ({"at": "1 s", "vertex": "k", "parallelism": 2, "to": 3}, "rescale[0].to"),
    ],
)
def test_what_is_wrong_with_a_rescale_of_a_job_file_is_named(row: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInputError) as wrong:
        load_job_document(_document(row))
    assert field in {problem.field for problem in wrong.value.problems}


def test_a_rescale_that_could_never_run_is_refused_with_the_job_file() -> None:
    asked = {"at": "1 s", "vertex": "k", "parallelism": 129}
    with pytest.raises(PlanError, match=r"G-6 at 'k': parallelism 129 above its maximum 128; "):
        load_job_document(_document(asked))
    assert load_job_document(_document(asked, max_parallelism=200)).rescales[0].parallelism == {"k": 129}
    twice = ({"at": "1 s", "vertex": "k", "parallelism": 1}, {"at": "1000 ms", "vertex": "k", "parallelism": 3})
    with pytest.raises(InvalidInputError, match="twice at one instant"):
        load_job_document(_document(*twice))
    forward = _document({"at": "1 s", "vertex": "s", "parallelism": 3})
    forward["vertex"][1]["kind"], forward["edge"][0]["partitioner"] = "sink", "forward"
    with pytest.raises(PlanError, match="G-6 at 'k': forward from parallelism 3 to 2"):
        load_job_document(forward)


def test_splits_are_the_logs_and_are_dealt_out_to_the_subtasks_of_a_source() -> None:
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
