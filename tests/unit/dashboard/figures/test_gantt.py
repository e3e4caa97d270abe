"""Figures match Plotly's schema, show the values of the API, and never show a missing value as zero."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import plotly.graph_objects as go
import pytest

from backend.contracts import api
from backend.contracts.backpressure import BackpressureOut, PressurePointOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.verdict import Basis, Phase
from dashboard.figures import acks, front, gantt, pressure, timeline, trend
from dashboard.figures.front import senders, times, vertices
from dashboard.palette import DARK, LIGHT, PHASE_COLORS
from tests.support.api_examples import example
from tests.support.fake_api import HOSTILE, FakeApi

_NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
_THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
_JOBS = ("jE", "jB2", "jruntime", "jwide", "jplain1", "jnew")


@pytest.fixture(scope="module")
def fake() -> FakeApi:
    return FakeApi(now=lambda: _NOW)


def _newest(fake, job: str) -> api.CheckpointDetailOut:
    return fake.jobs[job].checkpoints[-1]


def _front(fake, job: str, checkpoint: api.CheckpointDetailOut | None = None, **more) -> times.Front:
    found = checkpoint or _newest(fake, job)
    barriers = fake._answer("GET", f"jobs/{job}/runs/r/checkpoints/{found.checkpoint_id}/barriers", b"")
    detail = fake.jobs[job].detail
    return times.build(found, detail.vertices, detail.edges, barriers, **more)


def _charts(fake, job: str, theme):
    made = fake.jobs[job]
    checkpoints = [fake._answer("GET", f"jobs/{job}/checkpoints", b"")][0].items
    for is_log in (False, True):
        yield timeline.timeline(
            checkpoints, made.events, theme=theme, where=UTC, timeout_ms=made.detail.timeout_ms, interval_ms=5000,
            now=_NOW, is_log=is_log,
        )  # fmt: skip
    yield trend.trend(fake._answer("GET", f"jobs/{job}/rollups", b"").items, theme=theme, where=UTC)
    yield pressure.backpressure(BackpressureOut(vertices=made.pressure, as_of=_NOW), theme=theme)
    for checkpoint in made.checkpoints[-2:]:
        ids = [v.vertex_id for v in checkpoint.vertices]
        for opened in ([], ids[-1:], ids):
            yield gantt.gantt(checkpoint, theme=theme, opened=opened, sort="finish")
            model = _front(fake, job, checkpoint)
            for share in (0, 0.5, 1):
                yield front.draw(model, share * model.end_ms, theme=theme, opened=opened)
        progress = fake._answer("GET", f"jobs/{job}/runs/r/checkpoints/{checkpoint.checkpoint_id}/progress", b"")
        yield acks.acknowledgements(progress, theme=theme)


@_THEMES
@pytest.mark.parametrize("job", _JOBS)
def test_every_figure_of_every_job_is_valid_and_has_its_table_and_its_sentence(fake, job, theme):
    for chart in _charts(fake, job, theme):
        go.Figure(chart.figure)
        json.dumps(chart.figure)
        assert chart.summary
        assert all(len(row) == len(chart.table.columns) for row in chart.table.rows)
        assert chart.figure["layout"]["height"] == chart.height_px


@_THEMES
def test_markup_in_a_name_is_escaped_in_figures(fake, theme):
    assert HOSTILE in fake.jobs["jwide"].checkpoints[-1].vertices[1].vertex
    for chart in _charts(fake, "jwide", theme):
        assert "<img" not in json.dumps(chart.figure)


# --- V3 -----------------------------------------------------------------------------------------------------------


def _bars(chart) -> dict[str, dict]:
    return {t["name"]: t for t in chart.figure["data"] if t["type"] == "bar"}


def _subtask(**more) -> api.SubtaskPhasesOut:
    values = {
        "subtask": 0, "is_acknowledged": True, "first_barrier_ms": 100, "first_barrier_basis": Basis.MEASURED,
        "alignment_end_ms": 300, "snapshot_at_ms": 300, "sync_end_ms": 310, "async_end_ms": 400, "ack_ms": 420,
        "start_delay_ms": 100, "alignment_duration_ms": 200, "sync_duration_ms": 10, "async_duration_ms": 90,
        "ack_wait_ms": 20,
    }  # fmt: skip
    return api.SubtaskPhasesOut.model_validate(values | more)


def test_the_segments_of_an_aligned_subtask_follow_each_other():
    found = [(s.phase, s.start_ms, s.end_ms) for s in gantt.segments(_subtask())]

    assert found == [
        (Phase.START_DELAY, 0, 100), (Phase.ALIGNMENT, 100, 300), (Phase.SYNC, 300, 310), (Phase.ASYNC, 310, 400),
        (Phase.ACK_WAIT, 400, 420),
    ]  # fmt: skip


def test_alignment_inside_async_is_an_overlay_and_never_stacked():
    s = _subtask(snapshot_at_ms=150, sync_end_ms=160, async_end_ms=400, is_alignment_overlaid=True)

    segments = gantt.segments(s)

    assert [(g.start_ms, g.end_ms) for g in segments if g.phase is Phase.ALIGNMENT] == [(100, 150)]
    ends = [g.end_ms for g in segments]
    assert [g.start_ms for g in segments] == [0, *ends[:-1]]


def test_a_phase_that_was_not_reported_has_no_segment():
    s = _subtask(
        is_acknowledged=False, first_barrier_ms=None, first_barrier_basis=None, alignment_end_ms=None,
        snapshot_at_ms=None, sync_end_ms=None, async_end_ms=None, ack_ms=None, start_delay_ms=None,
        alignment_duration_ms=None, sync_duration_ms=None, async_duration_ms=None, ack_wait_ms=None,
    )  # fmt: skip

    assert gantt.segments(s) == []


def test_an_expired_checkpoint_shows_the_late_barriers_with_their_resolution_and_when_it_expired(fake):
    expired = _newest(fake, "jE")
    sink = expired.vertices[-1]
    late = [s for s in sink.subtasks if not s.is_acknowledged]
    assert late

    chart = gantt.gantt(expired, theme=LIGHT, opened=[sink.vertex_id])

    marks = next(t for t in chart.figure["data"] if t["name"] == "first barrier (gauge)")
    assert set(marks["x"]) == {s.first_barrier_ms for s in late}
    hover = " ".join(_bars(chart)["row"]["hovertext"])
    assert "± 500 ms" in hover
    assert "has not acknowledged" in hover
    assert any(n["text"] == "expired 3 s" for n in chart.figure["layout"]["annotations"])
    assert "not acknowledged" in _bars(chart)


def test_the_critical_path_is_a_line_over_its_own_subtasks_and_in_the_sentence(fake):
    checkpoint = _newest(fake, "jruntime")
    path = checkpoint.critical_path

    pinned = gantt.gantt(checkpoint, theme=LIGHT)
    loose = gantt.gantt(checkpoint, theme=LIGHT, is_path_pinned=False)

    line = next(t for t in pinned.figure["data"] if t["name"] == "critical path")
    assert line["x"] == [x for s in path.steps for x in (s.start_ms, s.end_ms)]
    assert not any(t["name"] == "critical path" for t in loose.figure["data"])
    assert "Critical path: orders-source subtask" in pinned.summary


def test_a_closed_vertex_is_one_row_and_an_opened_one_has_a_row_for_each_subtask(fake):
    checkpoint = _newest(fake, "jruntime")
    closed = gantt.gantt(checkpoint, theme=LIGHT)
    opened = gantt.gantt(checkpoint, theme=LIGHT, opened=["enrich"])

    assert len(_bars(closed)["row"]["customdata"]) == 4
    rows = _bars(opened)["row"]["customdata"]
    assert [r for r in rows if r[0] == "enrich"][1:] == [["enrich", i] for i in range(4)]


def test_subtasks_sort_by_finish_with_those_that_never_finished_first(fake):
    expired = _newest(fake, "jE")
    sink = expired.vertices[-1]
    never = {s.subtask for s in sink.subtasks if not s.is_acknowledged}

    chart = gantt.gantt(expired, theme=LIGHT, opened=[sink.vertex_id], sort="finish")

    shown = [c[1] for c in _bars(chart)["row"]["customdata"] if c[0] == sink.vertex_id][1:]
    assert set(shown[: len(never)]) == never


def test_clock_skew_is_marked(fake):
    checkpoint = _newest(fake, "jruntime")
    odd = checkpoint.vertices[0].model_copy(update={"subtasks": [_subtask(has_clock_skew=True)]})
    skewed = checkpoint.model_copy(update={"vertices": [odd]})

    chart = gantt.gantt(skewed, theme=LIGHT, opened=[odd.vertex_id])

    assert any(n["text"] == "clock skew" for n in chart.figure["layout"]["annotations"])


def test_the_table_of_the_phases_has_every_subtask_and_leaves_missing_empty(fake):
    expired = _newest(fake, "jE")

    table = gantt.gantt(expired, theme=LIGHT).table

    assert len(table.rows) == expired.subtask_count
    ack = table.columns.index("ack (ms, measured)")
    assert sum(row[ack] is None for row in table.rows) == expired.subtask_count - expired.acknowledged_count


# --- V5 -----------------------------------------------------------------------------------------------------------


def test_the_front_of_the_runtime_is_measured_and_steps_from_event_to_event(fake):
    model = _front(fake, "jruntime")

    assert model.basis is Basis.MEASURED
    assert all(e.is_measured and len(e.channels) == 16 for e in model.edges)
    assert list(model.steps_ms) == sorted(set(model.steps_ms))
    assert model.steps_ms[0] == 0


def test_the_front_of_flink_is_reconstructed_and_dotted_with_intervals_instead_of_instants(fake):
    model = _front(fake, "jB2")
    chart = front.draw(model, model.end_ms / 2, theme=LIGHT)

    assert model.basis is Basis.RECONSTRUCTED
    assert all(e.channels == () for e in model.edges)
    lines = [t for t in chart.figure["data"] if t["mode"] == "lines+markers"]
    assert [t["line"]["dash"] for t in lines] == ["dot", "dot"]
    notes = [n["text"] for n in chart.figure["layout"]["annotations"]]
    assert sum("first barrier" in n and " to " in n for n in notes) == 2
    assert {row[chart.table.columns.index("basis")] for row in chart.table.rows} == {"reconstructed"}


def test_subtasks_never_return_to_an_earlier_state(fake):
    for job in ("jE", "jB2", "jruntime"):
        model = _front(fake, job)
        before = -1
        for at in model.steps_ms:
            states = [s.state(at) for v in model.vertices for s in v.subtasks]
            reached = sum(list(times.SubtaskState).index(s) for s in states)
            assert reached >= before, (job, at)
            before = reached


def test_before_the_trigger_no_subtask_is_reached_and_at_the_end_all_have_acknowledged(fake):
    model = _front(fake, "jruntime")

    assert {s.state(-1) for v in model.vertices for s in v.subtasks} == {"not reached"}
    assert {s.state(model.end_ms) for v in model.vertices for s in v.subtasks} == {"acknowledged"}


def test_at_each_step_its_event_has_happened():
    s = times.SubtaskTimes(0, first_ms=1.0, snapshot_ms=2.0, ack_ms=3944.04)
    vertex = times.FrontVertex("v", "v", 0, 0, (s,), False)

    assert s.state(times.steps([vertex], [])[-1]) == "acknowledged"


def test_the_vertex_that_the_verdict_names_is_marked(fake):
    checkpoint = _newest(fake, "jruntime")
    model = _front(fake, "jruntime")

    assert [v.vertex_id for v in model.vertices if v.is_guilty] == [checkpoint.verdict.vertex_id]
    notes = front.draw(model, 0, theme=LIGHT).figure["layout"]["annotations"]
    assert sum(n["text"] == "named by the verdict" for n in notes) == 1


def test_an_opened_vertex_names_the_sender_of_its_last_barrier(fake):
    measured, likely = _front(fake, "jruntime"), _front(fake, "jB2")

    said = senders.held_by(measured.vertices[2], measured)
    assert len(said) == 4
    assert all("from parse subtask 3" in s and "(measured)" in s for s in said.values())
    said = senders.held_by(likely.vertices[2], likely)
    assert all("most likely from stage-1 subtask" in s and "(reconstructed)" in s for s in said.values())
    chart = front.draw(likely, likely.end_ms, theme=LIGHT, opened=[likely.vertices[2].vertex_id])
    dots = next(t for t in chart.figure["data"] if t.get("customdata") and t["customdata"][0][1] is not None)
    assert all("most likely from" in h for h in dots["hovertext"])


def test_a_wide_vertex_shows_only_its_slowest_subtasks_and_a_label(fake):
    model = _front(fake, "jwide")
    chart = front.draw(model, model.end_ms, theme=LIGHT, opened=["w1"])

    shown = vertices.shown_subtasks(model.vertices[1])
    assert len(shown) == 16
    assert min(s.ack_ms for s in shown) >= sorted(s.ack_ms for s in model.vertices[1].subtasks)[-16]
    assert any("the 16 slowest of 250" in n["text"] for n in chart.figure["layout"]["annotations"])


def test_events_give_the_first_barrier_of_subtasks_that_have_not_acknowledged(fake):
    made = _newest(fake, "jruntime")
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
    assert _front(fake, "jruntime", elapsed_ms=99_000).end_ms == 99_000


def test_a_checkpoint_of_an_older_graph_is_still_drawn(fake):
    found = _newest(fake, "jruntime")
    model = times.build(found, [], [], None)

    assert [v.layer for v in model.vertices] == [0, 1, 2, 3]
    go.Figure(front.draw(model, 0, theme=LIGHT).figure)


# --- V2, V8, pressure ---------------------------------------------------------------------------------------------


def _timeline(fake, job: str, **more):
    made = fake.jobs[job]
    values = {"theme": LIGHT, "where": UTC, "timeout_ms": None, "interval_ms": None, "now": _NOW} | more
    return timeline.timeline(fake._answer("GET", f"jobs/{job}/checkpoints", b"").items, made.events, **values)


def test_every_checkpoint_is_one_mark_that_leads_to_it(fake):
    chart = _timeline(fake, "jE")
    marks = [c for t in chart.figure["data"] for c in t["customdata"]]

    assert sorted(c[1] for c in marks) == sorted(c.checkpoint_id for c in fake.jobs["jE"].checkpoints)
    assert {t["marker"]["symbol"] for t in chart.figure["data"]} == {"x"}


def test_a_checkpoint_in_progress_is_hollow_and_drawn_at_its_duration_so_far(fake):
    later = _NOW + timedelta(seconds=3)
    live = next(t for t in _timeline(fake, "jruntime", now=later).figure["data"] if t["name"].startswith("in progress"))

    assert live["marker"]["symbol"] == "circle-open"
    assert live["y"] == [3000.0]


def test_a_checkpoint_whose_end_was_not_seen_stops_growing(fake):
    made = _newest(fake, "jruntime")
    lost = api.CheckpointOut.model_validate({k: getattr(made, k) for k in api.CheckpointOut.model_fields}).model_copy(
        update={
            "status": CheckpointStatus.IN_PROGRESS, "end_to_end_duration_ms": None, "is_lost": True,
            "latest_ack_at": made.triggered_at + timedelta(seconds=2),
        }
    )  # fmt: skip

    later = _NOW + timedelta(days=3)
    chart = timeline.timeline([lost], [], theme=LIGHT, where=UTC, timeout_ms=None, interval_ms=None, now=later)

    (trace,) = chart.figure["data"]
    assert trace["name"].startswith("end not seen")
    assert trace["y"] == [2000.0]
    go.Figure(chart.figure)


def test_events_are_vertical_lines_and_the_timeout_is_a_horizontal_one(fake):
    layout = _timeline(fake, "jE", timeout_ms=3000, interval_ms=5000).figure["layout"]
    texts = [n["text"] for n in layout["annotations"]]

    assert "settings" in texts
    assert "timeout 3 s" in texts
    assert sum(s.get("yref") == "paper" for s in layout["shapes"]) == len(fake.jobs["jE"].events)


def test_events_at_one_instant_share_one_line_and_label():
    fake = FakeApi(now=lambda: _NOW)
    event = fake.jobs["jE"].events[0]
    fake.jobs["jE"].events[:0] = [
        event.model_copy(update={"kind": "restarted", "text": "restart 1 of this run"}),
        event.model_copy(update={"kind": "rescaled", "text": "parallelism last: 4 -> 6"}),
    ]

    layout = _timeline(fake, "jE").figure["layout"]

    (rule,) = [n for n in layout["annotations"] if "rescaled" in n["text"]]
    assert rule["text"].startswith("restart, rescaled")
    assert "restart 1 of this run<br>parallelism last: 4 -> 6<br>" in rule["hovertext"].replace("&gt;", ">")
    assert sum(s.get("yref") == "paper" for s in layout["shapes"]) == len({e.at for e in fake.jobs["jE"].events})


def test_a_change_of_durations_is_a_step_between_labelled_medians(fake):
    chart = _timeline(fake, "jE")
    change = example("change_point").model_copy(update={"at": _NOW, "is_after_at_least": True})

    changed = _timeline(fake, "jE", changes=[change])

    steps = [s for s in changed.figure["layout"]["shapes"] if s["line"]["width"] == 2]
    assert [(s["y0"], s["y1"]) for s in steps] == [(12_100, 12_100), (12_100, 41_300), (41_300, 41_300)]
    words = f"median 12.1 s → at least 41.3 s at {_NOW:%H:%M}"
    assert any(n["text"] == words for n in changed.figure["layout"]["annotations"])
    assert change.sentence in changed.summary
    assert not [s for s in chart.figure["layout"]["shapes"] if s["line"]["width"] == 2]


def test_a_timeout_of_ten_minutes_does_not_flatten_checkpoints_of_seconds(fake):
    axis = _timeline(fake, "jB2", timeout_ms=600_000).figure["layout"]["yaxis"]

    assert axis["range"][1] < 20_000


def test_the_curve_of_acknowledgements_ends_now_with_earlier_ones_behind(fake):
    progress = fake._answer("GET", "jobs/jruntime/runs/r/checkpoints/24/progress", b"")
    moved = progress.model_copy(update={"elapsed_ms": 4321, "acknowledged": 11})

    chart = acks.acknowledgements(moved, theme=LIGHT)

    own = next(t for t in chart.figure["data"] if t["name"] == "this checkpoint")
    assert (own["x"][-1], own["y"][-1]) == (4321, 11)
    assert sum(t["name"] == "earlier checkpoints" for t in chart.figure["data"]) == len(progress.past_acks)
    assert "11 of 16" in chart.summary


def test_pressure_in_a_range_is_the_mean_of_its_readings_and_the_table_has_each(fake):
    reading = fake.jobs["jruntime"].pressure[0]
    points = [
        PressurePointOut(
            at=_NOW + timedelta(seconds=n), vertex_id=reading.vertex_id, busy_ratio=busy, backpressured_ratio=None,
            idle_ratio=1 - busy, queued_bytes=None,
        )
        for n, busy in enumerate((0.2, 0.6))
    ]  # fmt: skip

    chart = pressure.along(BackpressureOut(vertices=[reading], series=points, as_of=_NOW), theme=LIGHT)
    empty = pressure.along(BackpressureOut(vertices=[reading], as_of=_NOW), theme=LIGHT)

    go.Figure(chart.figure)
    assert [t["x"][0] for t in chart.figure["data"]] == [pytest.approx(0.4), None, pytest.approx(0.6)]
    assert [r[2:5] for r in chart.table.rows] == [(0.2, None, 0.8), (0.6, None, 0.4)]
    assert "no backpressure readings" in empty.summary


def test_pressure_of_a_subtask_that_reported_nothing_is_missing_and_not_idle(fake):
    reading = fake.jobs["jruntime"].pressure[0]
    silent = reading.model_copy(update={k: [None] * 4 for k in ("busy_ratio", "backpressured_ratio", "idle_ratio")})

    chart = pressure.backpressure(BackpressureOut(vertices=[silent], as_of=_NOW), theme=LIGHT)

    assert all(t["x"] == [None] for t in chart.figure["data"])
    assert "idle –" in chart.summary


# --- colours ------------------------------------------------------------------------------------------------------


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@_THEMES
def test_text_is_legible_and_the_critical_path_stands_out(theme):
    assert _contrast(theme.text, theme.surface) >= 7
    assert _contrast(theme.muted, theme.surface) >= 4.5
    assert _contrast(theme.path, theme.surface) >= 7


def test_phases_differ_in_colour_and_brightness():
    greys = sorted(_luminance(c) for c in PHASE_COLORS.values())

    assert len(set(PHASE_COLORS.values())) == len(PHASE_COLORS) == len(Phase)
    assert greys[-1] - greys[0] > 0.3


def test_a_checkpoint_without_subtasks_shows_the_reason(fake):
    bare = _newest(fake, "jruntime").model_copy(update={"vertices": [], "status": CheckpointStatus.FAILED})

    assert "no longer had" in gantt.gantt(bare, theme=LIGHT).summary
    assert "no longer had" in front.draw(times.build(bare, [], [], None), 0, theme=LIGHT).summary
