"""Tests of the barrier front: states of subtasks, steps, senders, and what an engine without channels can show."""

from __future__ import annotations

from itertools import pairwise

import plotly.graph_objects as go

from backend.domain.checkpoint import CheckpointStatus
from backend.domain.verdict import Basis
from dashboard.figures import front, gantt
from dashboard.figures.front import senders, times, vertices
from dashboard.palette import LIGHT
from tests.support.figures import front_of, newest


def test_the_front_of_the_runtime_is_measured_and_steps_from_event_to_event(fake):
    model = front_of(fake, "jruntime")

    assert model.basis is Basis.MEASURED
    assert all(e.is_measured and len(e.channels) == 16 for e in model.edges)
    assert list(model.steps_ms) == sorted(set(model.steps_ms))
    assert model.steps_ms[0] == 0


def test_the_front_of_flink_is_reconstructed_and_dotted_with_intervals_instead_of_instants(fake):
    model = front_of(fake, "jB2")
    chart = front.draw(model, model.end_ms / 2, theme=LIGHT)

    assert model.basis is Basis.RECONSTRUCTED
    assert all(e.channels == () for e in model.edges)
    lines = [t for t in chart.figure["data"] if t["mode"] == "lines+markers"]
    assert [t["line"]["dash"] for t in lines] == ["dot", "dot"]
    notes = [n["text"] for n in chart.figure["layout"]["annotations"]]
    assert sum("first barrier" in n and " to " in n for n in notes) == 2
    assert {row[chart.table.columns.index("basis")] for row in chart.table.rows} == {"reconstructed"}


def test_on_a_phone_edges_have_no_labels_and_the_names_of_neighbours_do_not_overlap(fake):
    model = front_of(fake, "jruntime")
    layout = front.draw(model, model.end_ms / 2, theme=LIGHT, is_narrow=True).figure["layout"]

    notes = layout["annotations"]
    assert not any("first barrier" in n["text"] for n in notes)
    names = sorted((n for n in notes if n["text"].startswith("<b>")), key=lambda n: n["x"])
    assert len(names) == len(model.vertices)
    first, last = layout["xaxis"]["range"]
    px = 330 / (last - first)
    for left, right in pairwise(names):
        letters = (len(left["text"]) + len(right["text"]) - 2 * len("<b></b>")) / 2
        assert letters * 7 <= (right["x"] - left["x"]) * px, (left["text"], right["text"])


def test_subtasks_never_return_to_an_earlier_state(fake):
    for job in ("jE", "jB2", "jruntime"):
        model = front_of(fake, job)
        before = -1
        for at in model.steps_ms:
            states = [s.state(at) for v in model.vertices for s in v.subtasks]
            reached = sum(list(times.SubtaskState).index(s) for s in states)
            assert reached >= before, (job, at)
            before = reached


def test_before_the_trigger_no_subtask_is_reached_and_at_the_end_all_have_acknowledged(fake):
    model = front_of(fake, "jruntime")

    assert {s.state(-1) for v in model.vertices for s in v.subtasks} == {"not reached"}
    assert {s.state(model.end_ms) for v in model.vertices for s in v.subtasks} == {"acknowledged"}


def test_at_each_step_its_event_has_happened():
    s = times.SubtaskTimes(0, first_ms=1.0, snapshot_ms=2.0, ack_ms=3944.04)
    vertex = times.FrontVertex("v", "v", 0, 0, (s,), False)

    assert s.state(times.steps([vertex], [])[-1]) == "acknowledged"


def test_the_vertex_that_the_verdict_names_is_marked(fake):
    checkpoint = newest(fake, "jruntime")
    model = front_of(fake, "jruntime")

    assert [v.vertex_id for v in model.vertices if v.is_guilty] == [checkpoint.verdict.vertex_id]
    notes = front.draw(model, 0, theme=LIGHT).figure["layout"]["annotations"]
    assert sum(n["text"] == "named by the verdict" for n in notes) == 1


def test_an_opened_vertex_names_the_sender_of_its_last_barrier(fake):
    measured, likely = front_of(fake, "jruntime"), front_of(fake, "jB2")

    said = senders.held_by(measured.vertices[2], measured)
    assert len(said) == 4
    assert all("from parse subtask 3" in s and "sent at" in s for s in said.values())
    said = senders.held_by(likely.vertices[2], likely)
    assert all("most likely from stage-1 subtask" in s and "(reconstructed)" in s for s in said.values())
    chart = front.draw(likely, likely.end_ms, theme=LIGHT, opened=[likely.vertices[2].vertex_id])
    dots = next(t for t in chart.figure["data"] if t.get("customdata") and t["customdata"][0][1] is not None)
    assert all("most likely from" in h for h in dots["hovertext"])


def test_a_wide_vertex_shows_only_its_slowest_subtasks_and_a_label(fake):
    model = front_of(fake, "jwide")
    chart = front.draw(model, model.end_ms, theme=LIGHT, opened=["w1"])

    shown = vertices.shown_subtasks(model.vertices[1])
    assert len(shown) == 16
    assert min(s.ack_ms for s in shown) >= sorted(s.ack_ms for s in model.vertices[1].subtasks)[-16]
    assert any("the 16 slowest of 250" in n["text"] for n in chart.figure["layout"]["annotations"])


def test_events_give_the_first_barrier_of_subtasks_that_have_not_acknowledged(fake):
    made = newest(fake, "jruntime")
    barriers = fake._answer("GET", f"jobs/jruntime/runs/r/checkpoints/{made.checkpoint_id}/barriers", b"")
    silent = (
        made.vertices[-1]
        .subtasks[2]
        .model_copy(
            update={"is_acknowledged": False, "ack_ms": None, "first_barrier_ms": None, "first_barrier_basis": None}
        )
    )
    last = made.vertices[-1].model_copy(
        update={"subtasks": [silent if s.subtask == 2 else s for s in made.vertices[-1].subtasks]}
    )
    expired = made.model_copy(update={"vertices": [*made.vertices[:-1], last]})

    told = times.with_measured_barriers(expired, barriers)

    first = min(e.at_ms for e in barriers.events if (e.vertex_id, e.subtask, e.kind) == ("sink", 2, "barrier_received"))
    assert told.vertices[-1].subtasks[2].first_barrier_ms == round(first)
    assert told.vertices[:-1] == expired.vertices[:-1]
    reconstructed = barriers.model_copy(update={"basis": Basis.RECONSTRUCTED})
    assert times.with_measured_barriers(expired, reconstructed) == expired


def test_the_front_of_an_open_checkpoint_ends_at_the_elapsed_time(fake):
    assert front_of(fake, "jruntime", elapsed_ms=99_000).end_ms == 99_000


def test_a_checkpoint_of_an_older_graph_is_still_drawn(fake):
    found = newest(fake, "jruntime")
    model = times.build(found, [], [], None)

    assert [v.layer for v in model.vertices] == [0, 1, 2, 3]
    go.Figure(front.draw(model, 0, theme=LIGHT).figure)


def test_a_checkpoint_without_subtasks_shows_the_reason(fake):
    bare = newest(fake, "jruntime").model_copy(update={"vertices": [], "status": CheckpointStatus.FAILED})

    assert "no longer had" in gantt.gantt(bare, theme=LIGHT).summary
    assert "no longer had" in front.draw(times.build(bare, [], [], None), 0, theme=LIGHT).summary
