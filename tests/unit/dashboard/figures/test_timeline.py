"""The timeline: one mark for each checkpoint, lines for limits and events, steps for changes."""

from __future__ import annotations

from datetime import UTC, timedelta

import plotly.graph_objects as go

from backend.contracts import api
from backend.domain.checkpoint import CheckpointStatus
from dashboard.figures import timeline
from dashboard.palette import LIGHT
from tests.support.api_examples import example
from tests.support.fake_api import FakeApi
from tests.support.figures import NOW, newest


def _timeline(fake, job: str, **more):
    made = fake.jobs[job]
    values = {"theme": LIGHT, "where": UTC, "timeout_ms": None, "interval_ms": None, "now": NOW} | more
    return timeline.timeline(fake._answer("GET", f"jobs/{job}/checkpoints", b"").items, made.events, **values)


def test_every_checkpoint_is_one_mark_that_leads_to_it(fake):
    chart = _timeline(fake, "jE")
    marks = [c for t in chart.figure["data"] for c in t["customdata"]]

    assert sorted(c[1] for c in marks) == sorted(c.checkpoint_id for c in fake.jobs["jE"].checkpoints)
    assert {t["marker"]["symbol"] for t in chart.figure["data"]} == {"x"}


def test_a_checkpoint_in_progress_is_hollow_and_drawn_at_its_duration_so_far(fake):
    later = NOW + timedelta(seconds=3)
    live = next(t for t in _timeline(fake, "jruntime", now=later).figure["data"] if t["name"].startswith("in progress"))

    assert live["marker"]["symbol"] == "circle-open"
    assert live["y"] == [3000.0]


def test_a_checkpoint_whose_end_was_not_seen_stops_growing(fake):
    made = newest(fake, "jruntime")
    lost = api.CheckpointOut.model_validate({k: getattr(made, k) for k in api.CheckpointOut.model_fields}).model_copy(
        update={
            "status": CheckpointStatus.IN_PROGRESS, "end_to_end_duration_ms": None, "is_lost": True,
            "latest_ack_at": made.triggered_at + timedelta(seconds=2),
        }
    )  # fmt: skip

    later = NOW + timedelta(days=3)
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
    fake = FakeApi(now=lambda: NOW)
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
    change = example("change_point").model_copy(update={"at": NOW, "is_after_at_least": True})

    changed = _timeline(fake, "jE", changes=[change])

    steps = [s for s in changed.figure["layout"]["shapes"] if s["line"]["width"] == 2]
    assert [(s["y0"], s["y1"]) for s in steps] == [(12_100, 12_100), (12_100, 41_300), (41_300, 41_300)]
    words = f"median 12.1 s → at least 41.3 s at {NOW:%H:%M}"
    assert any(n["text"] == words for n in changed.figure["layout"]["annotations"])
    assert change.sentence in changed.summary
    assert not [s for s in chart.figure["layout"]["shapes"] if s["line"]["width"] == 2]


def test_a_timeout_of_ten_minutes_does_not_flatten_checkpoints_of_seconds(fake):
    axis = _timeline(fake, "jB2", timeout_ms=600_000).figure["layout"]["yaxis"]

    assert axis["range"][1] < 20_000
