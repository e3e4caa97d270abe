"""Tests of which uses each kind of snapshot supports (GR-4)."""

from __future__ import annotations

from dataclasses import replace

from backend.domain.errors import PlanError
from backend.runtime.coordinator.rescales import rescaled_graph
from backend.runtime.core.elements import Alignment
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import Graph, Partitioner
from backend.runtime.snapshot.capabilities import CAPABILITIES, SnapshotKind, Support, Use
from backend.runtime.snapshot.metadata import (
    read_checkpoint,
)
from backend.runtime.snapshot.restoring import restored_graph
from tests.support.rescaled_jobs import rescaled_job
from tests.support.snapshot_runs import SNAPSHOT_SETTINGS, run_to_snapshot, snapshot_job


def test_the_uses_of_snapshots_are_flinks_matrix_and_match_the_runtime() -> None:
    """GR-4: compare the table of supported uses with Flink's, and with what the runtime accepts and refuses."""
    cells = {use.value: "".join(CAPABILITIES[use][kind].value[0] for kind in SnapshotKind) for use in Use}
    assert list(cells.values()) == ["ynnn", "yynn", "yaaa", "yyyn", "yyyn", "yyyn", "yyyy", "yyyy"]
    for kind in SNAPSHOT_SETTINGS:
        _, stored = run_to_snapshot(kind, snapshot_job(kind))
        rescaled = rescaled_graph(snapshot_job(kind).graph, {"map": 3, "keyed": 1})
        assert JobEngine(replace(snapshot_job(kind), graph=rescaled), restore=stored).restored_id is None, (
            "restored too early"
        )
        graph = snapshot_job(kind).graph
        upgraded = Graph(graph.vertices, (replace(graph.edges[0], partitioner=Partitioner.SHUFFLE), graph.edges[1]))
        is_taken = True
        try:
            JobEngine(replace(snapshot_job(kind), graph=upgraded), restore=stored)
        except PlanError:
            is_taken = False
        assert is_taken == (CAPABILITIES[Use.ARBITRARY_UPGRADE][kind] is Support.YES), kind


def test_a_checkpoint_without_in_flight_data_allows_the_same_changes_as_an_aligned_one() -> None:
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
