"""Tests of the barrier front: states of subtasks, steps, senders, and what an engine without channels can show."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import combinations, pairwise

import plotly.graph_objects as go
import pytest

from backend.contracts.pressure_history import PressureHistoryOut, VertexHistoryOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.verdict import Basis
from dashboard import text
from dashboard.checkpoint_address import Heat
from dashboard.figures import front, gantt
from dashboard.figures.front import FrontView, edges, folding, senders, times, vertices
from dashboard.figures.front.places import arrange
from dashboard.figures.front.readings import Readings
from dashboard.palette import LIGHT
from tests.support.figures import NOW, front_of, newest


def test_the_front_of_the_runtime_is_measured_and_steps_from_event_to_event(fake):
    model = front_of(fake, "jruntime")

    assert model.basis is Basis.MEASURED
    assert all(e.is_measured and len(e.channels) == 16 for e in model.edges)
    assert list(model.steps_ms) == sorted(set(model.steps_ms))
    assert model.steps_ms[0] == 0


def test_the_front_of_flink_is_reconstructed_and_dotted_with_intervals_instead_of_instants(fake):
    model = front_of(fake, "jB2")
    chart = front.draw(model, model.end_ms / 2, FrontView(theme=LIGHT))

    assert model.basis is Basis.RECONSTRUCTED
    assert all(e.channels == () for e in model.edges)
    lines = [t for t in chart.figure["data"] if t["mode"] == "lines+markers"]
    assert [t["line"]["dash"] for t in lines] == ["dot", "dot"]
    notes = [n["text"] for n in chart.figure["layout"]["annotations"]]
    assert sum("first barrier" in n and " to " in n for n in notes) == 2
    assert {row[chart.table.columns.index("basis")] for row in chart.table.rows} == {"reconstructed"}


def test_a_vertex_whose_subtasks_had_finished_is_called_ended_and_sends_no_barrier(fake):
    model = front_of(fake, "jruntime")
    first = model.vertices[0]
    over = tuple(times.SubtaskTimes(s.subtask, None, None, 0.0, has_finished=True) for s in first.subtasks)
    edges_out = tuple(replace(e, channels=()) if e.source == first.vertex_id else e for e in model.edges)
    model = replace(model, vertices=(replace(first, subtasks=over), *model.vertices[1:]), edges=edges_out)
    figure = front.draw(model, model.end_ms, FrontView(theme=LIGHT)).figure

    notes = [n["text"] for n in figure["layout"]["annotations"]]
    assert sum("sender ended" in n for n in notes) == len([e for e in edges_out if e.source == first.vertex_id]) > 0
    assert not any("no barrier yet" in n for n in notes)
    (centres,) = (t for t in figure["data"] if t["mode"] == "markers+text")
    assert centres["text"][0] == "ended"


def test_words_that_do_not_fit_into_a_ring_are_left_out(fake):
    (vertex, *_) = front_of(fake, "jruntime").vertices
    shown = [vertices._centre(vertex, 0.0, None, room_px) for room_px in (60.0, 12.0)]

    assert shown == ["0/4", ""]


def test_on_a_phone_edges_have_no_labels_and_the_names_of_neighbours_do_not_overlap(fake):
    model = front_of(fake, "jruntime")
    layout = front.draw(model, model.end_ms / 2, FrontView(theme=LIGHT, is_narrow=True)).figure["layout"]

    notes = layout["annotations"]
    assert not any("first barrier" in n["text"] for n in notes)
    names = sorted((n for n in notes if n["text"].startswith("<b>")), key=lambda n: n["x"])
    assert len(names) == len(model.vertices)
    first, last = layout["xaxis"]["range"]
    px = 330 / (last - first)
    for left, right in pairwise(names):
        letters = (len(left["text"]) + len(right["text"]) - 2 * len("<b></b>")) / 2
        assert letters * 7 <= (right["x"] - left["x"]) * px, (left["text"], right["text"])


def test_a_graph_that_fits_keeps_its_scale_when_its_card_gets_another_size(fake):
    model = front_of(fake, "jruntime")
    layout = front.draw(model, model.end_ms / 2, FrontView(theme=LIGHT)).figure["layout"]

    # Otherwise Plotly widens the ranges for each size that the card has had, and the graph stays small.
    assert [layout[name]["constrain"] for name in ("xaxis", "yaxis")] == ["domain", "domain"]


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
    notes = front.draw(model, 0, FrontView(theme=LIGHT)).figure["layout"]["annotations"]
    assert sum(n["text"] == "named by the verdict" for n in notes) == 1


def test_an_opened_vertex_names_the_sender_of_its_last_barrier(fake):
    measured, likely = front_of(fake, "jruntime"), front_of(fake, "jB2")

    said = senders.held_by(measured.vertices[2], measured)
    assert len(said) == 4
    assert all("from parse subtask 3" in s and "sent at" in s for s in said.values())
    said = senders.held_by(likely.vertices[2], likely)
    assert all("most likely from stage-1 subtask" in s and "(reconstructed)" in s for s in said.values())
    chart = front.draw(likely, likely.end_ms, FrontView(theme=LIGHT, opened=[likely.vertices[2].vertex_id]))
    dots = next(t for t in chart.figure["data"] if t.get("customdata") and t["customdata"][0][1] is not None)
    assert all("most likely from" in h for h in dots["hovertext"])


def test_a_wide_vertex_shows_only_its_slowest_subtasks_and_a_label(fake):
    model = front_of(fake, "jwide")
    chart = front.draw(model, model.end_ms, FrontView(theme=LIGHT, opened=["w1"]))

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


@pytest.mark.parametrize(
    ("changes", "opens_ms"),
    [
        ({}, 3_000),
        # The coordinator noticed the timeout late.
        ({"end_to_end_duration_ms": 3_300}, 3_000),
        # The timeout was made longer since.
        ({"timeout_ms": 600_000}, 3_002),
        ({"failure_reason": FailureReason.DECLINED}, 3_002),
        ({"failure_reason": FailureReason.DECLINED, "end_to_end_duration_ms": None}, 3_380),
        ({"status": CheckpointStatus.COMPLETED, "failure_reason": None}, 3_380),
    ],
)
def test_the_front_opens_at_the_end_of_the_checkpoint_and_not_at_a_barrier_after_it(fake, changes, opens_ms):
    expired = next(c for c in fake.jobs["jE"].checkpoints if c.checkpoint_id == 14)

    model = front_of(fake, "jE", expired.model_copy(update=changes))

    assert model.end_ms == 3_380
    assert model.opens_ms == opens_ms


def test_a_checkpoint_of_an_older_graph_is_still_drawn(fake):
    found = newest(fake, "jruntime")
    model = times.build(found, [], [], None)

    assert [v.layer for v in model.vertices] == [0, 1, 2, 3]
    go.Figure(front.draw(model, 0, FrontView(theme=LIGHT)).figure)


def test_a_checkpoint_without_subtasks_shows_the_reason(fake):
    bare = newest(fake, "jruntime").model_copy(update={"vertices": [], "status": CheckpointStatus.FAILED})

    assert "no longer had" in gantt.gantt(bare, theme=LIGHT).summary
    assert "no longer had" in front.draw(times.build(bare, [], [], None), 0, FrontView(theme=LIGHT)).summary


def _places(chart):
    """Return the place of each vertex whose centre or subtasks can be clicked."""
    found = {}
    for t in chart.figure["data"]:
        for x, y, of in zip(t["x"], t["y"], t.get("customdata") or (), strict=False):
            found.setdefault(of[0], []).append((x, y))
    return {v: (sum(x for x, _ in p) / len(p), sum(y for _, y in p) / len(p)) for v, p in found.items()}


def test_nothing_moves_between_instants_checkpoints_and_opened_vertices(fake):
    checkpoints = fake.jobs["jruntime"].checkpoints[:3]
    drawn = []
    for found in checkpoints:
        model = front_of(fake, "jruntime", found)
        for share, opened in (
            (0, ()),
            (0.5, (found.vertices[0].vertex_id,)),
            (1, tuple(v.vertex_id for v in found.vertices)),
        ):
            drawn.append(front.draw(model, share * model.end_ms, FrontView(LIGHT, opened=opened)))

    layouts = [c.figure["layout"] for c in drawn]
    assert len({(str(x["xaxis"]["range"]), str(x["yaxis"]["range"]), x["height"]) for x in layouts}) == 1
    for chart in drawn[1:]:
        for vertex, (x, y) in _places(chart).items():
            assert (x, y) == pytest.approx(_places(drawn[0])[vertex]), vertex


def test_an_open_checkpoint_shows_all_vertices_from_the_start(fake):
    made, detail = newest(fake, "jruntime"), fake.jobs["jruntime"].detail
    begun = made.model_copy(update={"status": CheckpointStatus.IN_PROGRESS, "vertices": made.vertices[:1]})
    model = times.build(begun, detail.vertices, detail.edges, None, elapsed_ms=50)

    assert [v.vertex_id for v in model.vertices] == [v.id for v in detail.vertices]
    assert [len(v.subtasks) for v in model.vertices] == [v.parallelism for v in detail.vertices]
    assert all(v.counts(50)["not reached"] == len(v.subtasks) for v in model.vertices[1:])
    # If an ended checkpoint lacks a vertex, the states of the subtasks of this vertex are unknown.
    ended = times.build(begun.model_copy(update={"status": made.status}), detail.vertices, detail.edges, None)
    assert [v.subtasks for v in ended.vertices[1:]] == [()] * 3
    assert "not reported" in front.draw(ended, 0, FrontView(LIGHT)).summary


def test_the_counts_of_a_vertex_are_those_of_its_subtasks(fake):
    for job in ("jE", "jruntime", "jB2"):
        model = front_of(fake, job)
        for at in (0, *model.steps_ms[::7], model.end_ms):
            for v in model.vertices:
                states = [s.state(at) for s in v.subtasks]
                assert v.counts(at) == {state: states.count(state) for state in times.SubtaskState}


def _readings(model, **values):
    began = NOW
    kept = {"busy_ratio": [None], "backpressured_ratio": [None], "idle_ratio": [None], "busy_max_ratio": [None]}
    own = [
        VertexHistoryOut(
            vertex_id=v.vertex_id,
            vertex=v.name,
            parallelism=4,
            backpressured_max_ratio=[values["held"].get(i)],
            queued_bytes=[values["queued"].get(i)],
            queued_max_bytes=[values["queued"].get(i)],
            time_to_consume_s=[None],
            records_in_skew_ratio=[values["skew"].get(i)],
            **kept,
        )
        for i, v in enumerate(model.vertices)
    ]
    history = PressureHistoryOut(
        since=began, until=began + timedelta(seconds=1), bucket_s=1, buckets=[began], vertices=own, suspects=[],
        readings_count=1, readings_used_count=1, as_of=began,
    )  # fmt: skip
    return Readings(history, began)


def test_the_width_of_an_edge_is_the_queue_and_a_missing_queue_is_not_an_empty_one(fake):
    model = front_of(fake, "jruntime")
    readings = _readings(model, held={}, skew={}, queued={1: 0, 2: 8_000_000})
    chart = front.draw(model, 0, FrontView(LIGHT, readings=readings))

    lines = [t for t in chart.figure["data"] if t["mode"] == "lines+markers"]
    by_end = {t["x"][1]: t["line"]["width"] for t in lines}
    empty, full, unknown = (by_end[x] for x in sorted(by_end))
    assert (empty, unknown) == (edges.WIDTH_EMPTY, edges.WIDTH_UNKNOWN)
    assert unknown < empty < full <= edges.WIDTH_MAX
    hovers = next(t for t in chart.figure["data"] if "queued in front" in str(t.get("hovertext")))["hovertext"]
    assert ["(not reported)" in h for h in hovers] == [False, False, True]
    # A reading of another minute is not used.
    assert readings.at(120_000) == {}


def test_heat_fills_the_vertices_whose_value_is_known(fake):
    model = front_of(fake, "jruntime")
    readings = _readings(model, held={1: 0.37, 2: 1.0}, skew={2: 2.5}, queued={})
    centres = {}
    for heat in Heat:
        chart = front.draw(model, 0, FrontView(LIGHT, heat=heat, readings=readings))
        go.Figure(chart.figure)
        centres[heat] = next(t["text"] for t in chart.figure["data"] if t["mode"] == "markers+text")

    assert centres[Heat.NONE] == ["0/4"] * 4
    assert centres[Heat.PRESSURE] == ["–", "37 %", "100 %", "–"]
    assert centres[Heat.SKEW] == ["–", "–", "2.5 ×", "–"]
    slowest = [max(s.start_delay_ms for s in v.subtasks) for v in newest(fake, "jruntime").vertices]
    assert centres[Heat.START_DELAY] == [text.duration(ms) for ms in slowest]


def _large(vertices=60, subtasks=200):
    """Return a front whose layers have four vertices. Each vertex is connected to two vertices of the next layer."""
    made = [
        times.FrontVertex(
            f"v{i}", f"operator-{i:02d} -> map", i // 4, i % 4,
            tuple(times.SubtaskTimes(s, 10.0 * i, 10.0 * i + s, 10.0 * i + 2 * s) for s in range(subtasks)), i == 30,
        )
        for i in range(vertices)
    ]  # fmt: skip
    ends = [(i, 4 * (i // 4 + 1) + row) for i in range(vertices - 4) for row in {i % 4, (i + 1) % 4}]
    drawn = tuple(times.FrontEdge(f"v{a}", f"v{b}", (), False) for a, b in ends)
    return times.Front(tuple(made), drawn, times.steps(made, drawn), 1000.0, 1000.0, Basis.RECONSTRUCTED)


def test_a_large_graph_is_shown_in_part_with_a_map_of_all_of_it():
    model = _large()
    view = FrontView(LIGHT)
    chart, small = front.draw(model, 300, view), front.overview(model, 300, view)

    go.Figure(chart.figure)
    layout = chart.figure["layout"]
    assert layout["dragmode"] == "pan"
    x, y = _places(chart)["v30"]
    assert layout["xaxis"]["range"][0] < x < layout["xaxis"]["range"][1]
    assert layout["yaxis"]["range"][0] < y < layout["yaxis"]["range"][1]
    assert len(small["marks"]) == 60
    # The browser needs time for each trace, note and table row. So the chart has few traces, no note except that of the
    # verdict, and no table.
    assert len(chart.figure["data"]) < 16
    assert len(layout["annotations"]) == 1
    assert front.is_large(model)
    assert front.draw(model, 300, view, has_table=False).table.rows == ()
    assert len(front.draw(model, 300, view).table.rows) == 60 * 200
    # The viewer moved the visible part.
    moved = front.draw(model, 300, replace(view, centre=(200.0, -100.0))).figure["layout"]
    assert moved["xaxis"]["range"][0] < 0 < moved["xaxis"]["range"][1]
    assert front.overview(_large(vertices=12), 0, view) is None


def test_a_fold_keeps_the_neighbours_of_the_vertex_that_was_found_and_counts_the_others():
    model = _large()
    found = folding.folded(model, "v30")

    kept = [v for v in found.vertices if not v.folded]
    folds = {v.name: v for v in found.vertices if v.folded}
    assert {v.vertex_id for v in kept} >= {"v30", "v26", "v34"}
    assert len(kept) + sum(len(v.folded) for v in folds.values()) == 60
    assert sum(len(v.subtasks) for v in found.vertices) == 60 * 200
    assert {name.split()[1] for name in folds} == {"upstream", "downstream", "beside"}
    assert len({(v.layer, v.row) for v in found.vertices}) == len(found.vertices)
    assert all(e.source != e.target for e in found.edges)
    # The folded graph is small enough to be shown as a whole. Which vertices are folded does not depend on the times.
    assert front.overview(model, 0, FrontView(LIGHT, found="v30", is_folded=True)) is None
    other = replace(model, vertices=tuple(replace(v, subtasks=v.subtasks[:3]) for v in model.vertices))
    assert [(v.vertex_id, v.layer, v.row) for v in folding.folded(other, "v30").vertices] == [
        (v.vertex_id, v.layer, v.row) for v in found.vertices
    ]
    assert folding.folded(model, "unknown") is model


@pytest.mark.parametrize("is_narrow", [False, True])
def test_five_instants_stand_side_by_side_or_one_above_another(fake, is_narrow):
    model = front_of(fake, "jruntime")
    chart = front.multiples(model, FrontView(LIGHT, is_narrow=is_narrow))

    go.Figure(chart.figure)
    layout = chart.figure["layout"]
    titles = [n["text"] for n in layout["annotations"]]
    assert [t.split(" %")[0] for t in titles] == ["<b>0", "<b>25", "<b>50", "<b>75", "<b>100"]
    lefts = [layout[f"xaxis{n}"]["domain"][0] for n in ("", 2, 3, 4, 5)]
    tops = [layout[f"yaxis{n}"]["domain"][1] for n in ("", 2, 3, 4, 5)]
    assert len(set(lefts)) == (1 if is_narrow else 5)
    assert len(set(tops)) == (5 if is_narrow else 1)
    assert "16 of 16 subtasks, 16 acknowledged" in chart.summary


def test_the_labels_of_edges_that_cross_keep_apart():
    subtasks = (times.SubtaskTimes(0, 3_000.0, 3_000.0, 4_000.0),)
    layers = {"s0": (0, 0), "s1": (0, 1), "s2": (0, 2), "j0": (1, 0), "j1": (1, 1)}
    made = tuple(times.FrontVertex(v, v, layer, row, subtasks, is_guilty=False) for v, (layer, row) in layers.items())
    lines = tuple(times.FrontEdge(f"s{s}", f"j{j}", (), is_measured=False) for s in range(3) for j in range(2))

    crossing = times.Front(made, lines, (0.0,), 5_000.0, 5_000.0, Basis.RECONSTRUCTED)
    chart = front.draw(crossing, 1_000.0, FrontView(LIGHT))

    go.Figure(chart.figure)
    scale = arrange(crossing, is_narrow=False).scale
    labels = [n for n in chart.figure["layout"]["annotations"] if "first barrier" in n["text"]]
    assert len(labels) >= 4
    for one, other in combinations(labels, 2):
        high = 13 * len(one["text"].split("<br>"))
        wide = 5 * max(map(len, one["text"].split("<br>")))
        apart = abs(one["x"] - other["x"]) * scale >= wide or abs(one["y"] - other["y"]) * scale >= high
        assert apart, (one, other)
