"""Subtasks that had finished before a checkpoint: from the live runtime over its REST to the words on the pages.

The job is FLIP-147's example: C and D have finished, while A and E go on. D reads only C, and E reads both.
"""

from __future__ import annotations

import orjson
import pytest

from backend.analysis import space_time
from backend.analysis.measures.delay import vertex_delays
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.phases import checkpoint_phases
from backend.analysis.space_time import folding, measured
from backend.analysis.verdict.case import of_checkpoint
from backend.domain.checkpoint import Checkpoint
from backend.domain.ids import VertexId
from backend.live import checkpoint_json, job_json
from backend.live.engine import build_live_engine
from backend.services.presenting import phases_out
from backend.services.simulations.measured import checkpoint_of
from collectors.flink import parse
from collectors.flink.document import Document
from dashboard.figures.gantt.rows import counted
from tests.support.ending_jobs import bounded_and_unbounded


def _read(value):
    return Document(orjson.loads(orjson.dumps(value)), "http://runtime")


@pytest.fixture(scope="module")
def seen():
    """Return the live engine, its view, and the newest checkpoint as the collector reads it."""
    live = build_live_engine(bounded_and_unbounded())
    live.run_until(600_000)
    view = live.view(job_id="f" * 32, origin_epoch_ms=1_760_000_000_000, lag_ms=0)
    newest = view.latest_completed
    header = parse.header(_read(checkpoint_json.checkpoint_details(view, newest)))
    details = tuple(
        parse.subtasks(_read(checkpoint_json.checkpoint_subtasks(view, newest, v)), VertexId(v)).detail
        for v in newest.acks
    )
    topology = parse.topology(_read(job_json.job(view)))
    return live, view, topology, Checkpoint(header, details)


def test_as_in_flink_the_rest_counts_a_finished_subtask_as_acknowledged_at_the_trigger_with_zeros(seen):
    _, view, _, checkpoint = seen
    header = checkpoint.header
    assert (header.acknowledged_count, header.subtask_count) == (6, 6)
    vertex = next(v.id for v in view.vertices if v.name == "c")
    rows = checkpoint_json.checkpoint_subtasks(view, view.latest_completed, vertex)["subtasks"]
    assert [row["status"] for row in rows] == ["completed", "completed"]
    assert {row["end_to_end_duration"] for row in rows} == {row["state_size"] for row in rows} == {0}


def test_the_collector_stores_no_measurement_of_a_finished_subtask(seen):
    _, _, topology, checkpoint = seen
    ended = {v.name: [checkpoint.detail(v.id).has_finished(i) for i in range(v.parallelism)] for v in topology.vertices}
    assert ended == {"a": [False], "c": [True, True], "d": [True, True], "e": [False]}
    row = checkpoint.detail(next(v.id for v in topology.vertices if v.name == "c"))
    assert row.ack_delay_ms == (0, 0)
    assert set(row.start_delay_ms) | set(row.checkpointed_size_bytes) | set(row.unaligned) == {None}


def test_finished_subtasks_are_neither_pending_nor_last_nor_slow_and_the_verdict_names_their_number(seen):
    _, _, topology, checkpoint = seen
    phases = checkpoint_phases(checkpoint, None)
    names = {v.id: v.name for v in topology.vertices}
    assert all(rows.is_complete and not rows.pending for rows in phases.values())
    assert {names[v] for v, rows in phases.items() if rows.slowest_subtask is None} == {"c", "d"}
    case = of_checkpoint(
        checkpoint, JobEvidence(topology=topology, checkpoints=(checkpoint,), now=checkpoint.header.triggered_at)
    )
    assert case.walked[0].path.last_vertex == "e"
    assert case.lead.endswith("(4 of 6 subtasks had finished before)")
    delays = vertex_delays(topology, phases)
    assert {names[v] for v, delay in delays.items() if delay.start_delay_max_ms is None} == {"c", "d"}
    assert {names[v] for v, delay in delays.items() if delay.delay_passed_on_ms is None} == {"c", "d", "e"}
    shown = phases_out(topology, (), phases)
    assert {v.vertex: counted(v) for v in shown} == {"a": "1/1", "c": "ended", "d": "ended", "e": "1/1"}


def test_the_lanes_of_finished_subtasks_are_marked_in_the_space_time_diagram(seen):
    live, view, topology, _ = seen
    trace = measured.trace_of(live.barriers(view.latest_completed.id))
    vertices = [folding.LaneVertex(v.id, v.name, v.parallelism) for v in topology.vertices]
    for lanes_max in (60, 2):
        lanes = space_time.folding.fold(trace, vertices, lanes_max=lanes_max).lanes
        assert sum(lane.finished_count for lane in lanes) == 4
        assert {lane.vertex for lane in lanes if lane.finished_count} == {"c", "d"}


def test_a_simulated_checkpoint_has_the_same_finished_subtasks(seen):
    live, _, _, read = seen
    simulated = checkpoint_of(live._engine.coordinator.latest_completed)
    assert (simulated.header.acknowledged_count, simulated.header.subtask_count) == (6, 6)
    for mine, other in zip(simulated.details, read.details, strict=True):
        own = [mine.has_finished(i) for i in range(mine.subtask_count)]
        assert own == [other.has_finished(i) for i in range(other.subtask_count)]


@pytest.mark.parametrize("field", ["start_delay", "state_size"])
def test_a_subtask_that_reports_anything_but_zeros_has_not_finished(seen, field):
    _, view, _, _ = seen
    vertex = next(v.id for v in view.vertices if v.name == "c")
    document = checkpoint_json.checkpoint_subtasks(view, view.latest_completed, vertex)
    document["subtasks"][1][field] = 1
    detail = parse.subtasks(_read(document), VertexId(vertex)).detail
    assert [detail.has_finished(i) for i in (0, 1)] == [True, False]
