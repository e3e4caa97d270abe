"""Tests of the timeline: a mark for each checkpoint, lines for limits and events, and steps for changes of duration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import get_args

import plotly.graph_objects as go
import pytest

from backend.contracts import api
from backend.domain.checkpoint import CheckpointStatus
from dashboard.figures import timeline
from dashboard.pages import incident
from dashboard.palette import FAILED, LIGHT
from tests.support.api_examples import example
from tests.support.fake_api import FakeApi
from tests.support.figures import NOW, newest
from tests.support.made_up_history import history_of, usual_of


def _timeline(fake, job: str, **more):
    made = fake.jobs[job]
    around = timeline.Around(events=made.events, changes=more.pop("changes", ()), **more.pop("around", {}))
    values = {"theme": LIGHT, "where": UTC, "timeout_ms": None, "interval_ms": None, "now": NOW} | more
    return timeline.timeline(fake._answer("GET", f"jobs/{job}/checkpoints", b"").items, around, **values)


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


def test_a_checkpoint_in_progress_does_not_stretch_the_axis(fake):
    made = newest(fake, "jruntime")
    fields = {k: getattr(made, k) for k in api.CheckpointOut.model_fields}
    ended = api.CheckpointOut.model_validate(fields).model_copy(
        update={"status": CheckpointStatus.COMPLETED, "end_to_end_duration_ms": 4_000}
    )
    opened = ended.model_copy(
        update={"checkpoint_id": 99, "status": CheckpointStatus.IN_PROGRESS, "end_to_end_duration_ms": None}
    )
    now = opened.triggered_at + timedelta(minutes=22)

    figure = timeline.timeline(
        [opened, ended], timeline.Around(), theme=LIGHT, where=UTC, timeout_ms=None, interval_ms=None, now=now
    ).figure

    top_ms = figure["layout"]["yaxis"]["range"][1]
    assert top_ms == 4_000 * 1.15
    live = next(t for t in figure["data"] if t["name"].startswith("in progress"))
    # The mark is at the top, and its text has its real duration.
    assert live["y"] == [top_ms]
    assert "22 min so far" in live["hovertext"][0]


def test_a_checkpoint_whose_end_was_not_seen_stops_growing(fake):
    made = newest(fake, "jruntime")
    lost = api.CheckpointOut.model_validate({k: getattr(made, k) for k in api.CheckpointOut.model_fields}).model_copy(
        update={
            "status": CheckpointStatus.IN_PROGRESS, "end_to_end_duration_ms": None, "is_lost": True,
            "latest_ack_at": made.triggered_at + timedelta(seconds=2),
        }
    )  # fmt: skip

    later = NOW + timedelta(days=3)
    chart = timeline.timeline(
        [lost], timeline.Around(), theme=LIGHT, where=UTC, timeout_ms=None, interval_ms=None, now=later
    )

    (trace,) = chart.figure["data"]
    assert trace["name"].startswith("end not seen")
    assert trace["y"] == [2000.0]
    go.Figure(chart.figure)


def test_events_are_vertical_lines_and_the_timeout_is_a_horizontal_one(fake):
    layout = _timeline(fake, "jE", timeout_ms=3000, interval_ms=5000).figure["layout"]
    texts = [n["text"] for n in layout["annotations"]]

    assert "settings" in texts
    assert "timeout 3.0 s" in texts
    limits = [s for s in layout["shapes"] if s.get("xref") == "paper" and s["type"] == "line"]
    assert [[s[side] for side in ("x0", "x1", "y0", "y1")] for s in limits] == [[0, 1, 3000, 3000], [0, 1, 5000, 5000]]
    assert sum(s.get("yref") == "paper" and s["type"] == "line" for s in layout["shapes"]) == len(
        fake.jobs["jE"].events
    )


def test_every_kind_of_event_has_its_word_on_the_timeline_and_on_the_page_of_an_incident():
    kinds = get_args(api.JobEventOut.model_fields["kind"].annotation)
    words = {}
    for kind in kinds:
        fake = FakeApi(now=lambda: NOW)
        fake.jobs["jE"].events[:] = [fake.jobs["jE"].events[0].model_copy(update={"kind": kind})]
        (mark,) = [n for n in _timeline(fake, "jE").figure["layout"]["annotations"] if n.get("textangle") == -90]
        words[kind] = mark["text"]
        assert mark["font"]["color"] == LIGHT.muted
    assert words["pod-ended"] == "pod ended"
    assert words["restored"] == "restored"
    assert len(set(words.values())) == len(kinds)
    assert set(kinds) <= set(incident._CHANGES)


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
    assert sum(s.get("yref") == "paper" and s["type"] == "line" for s in layout["shapes"]) == len(
        {e.at for e in fake.jobs["jE"].events}
    )


def test_dense_restarts_are_one_mark_with_their_count_and_a_settings_change_keeps_its_own():
    fake = FakeApi(now=lambda: NOW)
    checkpoints = fake.jobs["jE"].checkpoints
    begin = checkpoints[0].triggered_at
    length = checkpoints[-1].triggered_at - begin
    event = fake.jobs["jE"].events[0].model_copy(update={"kind": "restarted", "text": "restart"})
    dense = [event.model_copy(update={"at": begin + length * (0.3 + n / 400)}) for n in range(60)]
    alone = event.model_copy(update={"at": begin + length * 0.8})
    settings = event.model_copy(
        update={"kind": "configuration-changed", "at": begin + length * 0.35, "text": "timeout"}
    )
    fake.jobs["jE"].events[:] = [alone, settings, *dense]

    layout = _timeline(fake, "jE").figure["layout"]

    marks = [n for n in layout["annotations"] if n.get("textangle") == -90]
    assert [n["text"] for n in marks] == ["60 × restart", "settings", "restart"]
    assert "and 56 more" in marks[0]["hovertext"]
    assert sum(s.get("yref") == "paper" and s["type"] == "line" for s in layout["shapes"]) == 3
    (band,) = [s for s in layout["shapes"] if s.get("opacity") == 0.12 and s["type"] == "rect"]
    assert band["x0"] < band["x1"]
    assert (band["y0"], band["y1"], band["line"]["width"]) == (0, 1, 0), "from top to bottom, without a border"


@pytest.mark.parametrize(("count", "marks"), [(2, ["restart", "restart"]), (3, ["3 × restart"])])
def test_three_restarts_close_together_are_one_mark_and_two_are_not(count, marks):
    fake = FakeApi(now=lambda: NOW)
    begin = fake.jobs["jE"].checkpoints[0].triggered_at
    length = fake.jobs["jE"].checkpoints[-1].triggered_at - begin
    event = fake.jobs["jE"].events[0].model_copy(update={"kind": "restarted", "text": "restart"})
    fake.jobs["jE"].events[:] = [event.model_copy(update={"at": begin + length * n / 400}) for n in range(count)]

    drawn = _timeline(fake, "jE").figure["layout"]["annotations"]

    assert [n["text"] for n in drawn if n.get("textangle") == -90] == marks


@pytest.mark.parametrize("begin", [0.1, 0.9, 0.94])
@pytest.mark.parametrize("distance", [0.0005, 0.03, 0.045, 0.055])
def test_labels_of_events_close_to_each_other_do_not_overlap_on_a_phone(begin, distance):
    fake = FakeApi(now=lambda: NOW)
    first, last = (fake.jobs["jE"].checkpoints[n].triggered_at for n in (0, -1))
    kinds = ["run-ended", "run-started", "rescaled"]
    fake.jobs["jE"].events[:] = [
        fake.jobs["jE"]
        .events[0]
        .model_copy(update={"kind": kind, "at": first + (last - first) * (begin + n * distance)})
        for n, kind in enumerate(kinds)
        if begin + n * distance <= 1
    ]
    layout = _timeline(fake, "jE").figure["layout"]

    boxes = []
    for label in (n for n in layout["annotations"] if n.get("textangle") == -90):
        # A phone has 270 pixels between the marks. The text is read upwards: its height is its length.
        x = 270 * (datetime.fromisoformat(label["x"]).replace(tzinfo=UTC) - first) / (last - first)
        left = x - 15 if label["xanchor"] == "right" else x
        boxes.append((left, left + 15, -label["yshift"], -label["yshift"] + 6 * len(label["text"])))
    overlapping = [
        (a, b) for a, b in combinations(boxes, 2) if a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
    ]
    assert len(boxes) >= 2
    assert not overlapping


def test_a_label_without_room_takes_none_from_a_shorter_one_after_it(fake):
    fake = FakeApi(now=lambda: NOW)
    first = fake.jobs["jE"].checkpoints[0].triggered_at
    both = ["configuration-changed", "rescaled"]
    groups = [both, ["run-started", *both], ["rescaled"]]
    fake.jobs["jE"].events[:] = [
        fake.jobs["jE"].events[0].model_copy(update={"kind": kind, "at": first + timedelta(milliseconds=n)})
        for n, kinds in enumerate(groups)
        for kind in kinds
    ]

    labels = [n for n in _timeline(fake, "jE").figure["layout"]["annotations"] if n.get("textangle") == -90]

    top, crowded, short = (-n["yshift"] for n in labels)
    assert top == 0
    assert short == 6 * len(labels[0]["text"]) + 8
    assert labels[2]["text"] == "rescaled"
    # It stands below both, as its shortest form.
    assert (labels[1]["text"], crowded) == ("…", short + 6 * len("rescaled") + 8)
    assert labels[1]["hovertext"].startswith("run started, settings, rescaled<br>")


_FOUR = ("run-started", "restarted", "configuration-changed", "rescaled")
_EIGHT = (*_FOUR, "exception", "rows-lost", "pod-ended", "restored")
_LEFT = ("configuration-changed", "rescaled")


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([_EIGHT], ["run started and 7 more"]),
        ([("rescaled",), _EIGHT], ["rescaled", "run started and 7 more"]),
        # The label of the second group stands on the left of its line, where there is room for all of it.
        ([("run-started", "rescaled"), _LEFT], ["run started, rescaled", "settings, rescaled"]),
        (
            [("run-started", "rescaled"), _LEFT, ("pod-ended", *_LEFT)],
            ["run started, rescaled", "settings, rescaled", "3 events"],
        ),
        # Restarts close to each other are one mark. A word with a count and "2 more" would be read as 2 events.
        ([_EIGHT, ("exception",), ("exception",)], ["10 events"]),
    ],
)
def test_a_long_label_is_shortened_or_moved_so_that_it_covers_nothing_and_the_pointer_shows_all(groups, words):
    fake = FakeApi(now=lambda: NOW)
    first, last = (fake.jobs["jE"].checkpoints[n].triggered_at for n in (0, -1))
    middle, event = first + (last - first) / 2, fake.jobs["jE"].events[0]
    fake.jobs["jE"].events[:] = [
        event.model_copy(update={"kind": kind, "at": middle + timedelta(milliseconds=n)})
        for n, kinds in enumerate(groups)
        for kind in kinds
    ]

    labels = [n for n in _timeline(fake, "jE").figure["layout"]["annotations"] if n.get("textangle") == -90]

    assert [n["text"] for n in labels] == words
    boxes = [(n["xanchor"], -n["yshift"], -n["yshift"] + 6 * len(n["text"])) for n in labels]
    assert all(end <= 200 for _, _, end in boxes)
    assert not [(a, b) for a, b in combinations(boxes, 2) if a[0] == b[0] and a[1] < b[2] and b[1] < a[2]]
    if " more" in words[-1]:
        assert labels[-1]["hovertext"].startswith(
            "run started, restart, settings, rescaled, exception, rows lost, pod ended, restored<br>"
        )


def test_a_mark_without_room_for_any_label_is_a_line_only():
    fake = FakeApi(now=lambda: NOW)
    first, event = fake.jobs["jE"].checkpoints[0].triggered_at, fake.jobs["jE"].events[0]
    fake.jobs["jE"].events[:] = [
        event.model_copy(update={"kind": "configuration-changed", "at": first + timedelta(milliseconds=n)})
        for n in range(20)
    ]

    layout = _timeline(fake, "jE").figure["layout"]

    texts = [n["text"] for n in layout["annotations"] if n.get("textangle") == -90]
    assert set(texts) == {"settings", "…"}
    assert 4 < len(texts) < 20
    assert sum(s.get("yref") == "paper" and s["type"] == "line" for s in layout["shapes"]) == 20


def test_a_change_of_durations_is_a_step_between_labelled_medians(fake):
    chart = _timeline(fake, "jE")
    change = example("change_point").model_copy(update={"at": NOW, "is_after_at_least": True})

    changed = _timeline(fake, "jE", changes=[change])

    steps = [s for s in changed.figure["layout"]["shapes"] if s["line"]["width"] == 2]
    assert [(s["y0"], s["y1"]) for s in steps] == [(12_100, 12_100), (12_100, 41_300), (41_300, 41_300)]
    words = f"median 12.1 s → at least 41.3 s at {NOW:%H:%M}"
    (label,) = [n for n in changed.figure["layout"]["annotations"] if n["text"] == words]
    assert (label["showarrow"], label["y"]) == (False, 0.8), "the label covers those of the events"
    assert change.sentence in changed.summary
    assert not [s for s in chart.figure["layout"]["shapes"] if s["line"]["width"] == 2]


def test_a_timeout_of_ten_minutes_does_not_flatten_checkpoints_of_seconds(fake):
    axis = _timeline(fake, "jB2", timeout_ms=600_000).figure["layout"]["yaxis"]

    assert axis["range"][1] < 20_000


def _rows(fake, *, failed=(), slow=()):
    """Return 40 checkpoints, oldest first. The numbers in ``failed`` failed, those in ``slow`` took a minute."""
    made = newest(fake, "jruntime")
    base = api.CheckpointOut.model_validate({k: getattr(made, k) for k in api.CheckpointOut.model_fields})
    return [
        base.model_copy(
            update={
                "checkpoint_id": n,
                "triggered_at": NOW + timedelta(seconds=10 * n),
                "status": CheckpointStatus.FAILED if n in failed else CheckpointStatus.COMPLETED,
                "end_to_end_duration_ms": 60_000 if n in slow else 1_000,
            }
        )
        for n in range(40)
    ]


def _drawn(checkpoints, **more):
    values = {"theme": LIGHT, "where": UTC, "timeout_ms": None, "interval_ms": None, "now": NOW} | more
    return timeline.timeline(checkpoints[::-1], timeline.Around(), **values).figure


def test_failures_in_a_row_merge_into_a_band_with_their_count_and_few_failures_do_not(fake):
    figure = _drawn(_rows(fake, failed={3, 4, *range(10, 22), 30}))

    (band,) = [s for s in figure["layout"]["shapes"] if s["type"] == "rect"]
    assert band["fillcolor"] == FAILED
    assert "✕ 12 failed" in [a["text"] for a in figure["layout"]["annotations"]]
    failed = next(t for t in figure["data"] if t["name"].startswith("failed"))
    sizes = {c[1]: size for c, size in zip(failed["customdata"], failed["marker"]["size"], strict=True)}
    assert sizes[10] == sizes[21] < sizes[3] == sizes[30]
    go.Figure(figure)


def test_failures_are_orange_whatever_their_mode(fake):
    colors = {t["name"].split(",")[0]: t["marker"]["color"] for t in _drawn(_rows(fake, failed={3}))["data"]}

    assert colors["failed"] == FAILED
    assert colors["completed"] != FAILED


def test_an_outlier_does_not_flatten_the_other_durations_and_is_counted(fake):
    figure = _drawn(_rows(fake, slow={7}))

    assert figure["layout"]["yaxis"]["range"][1] < 2_000
    assert any("1 above, up to 1 min: see the log scale" in a["text"] for a in figure["layout"]["annotations"])
    (said,) = (a for a in figure["layout"]["annotations"] if "see the log scale" in a["text"])
    assert said["yanchor"] == "bottom"
    logarithmic = _drawn(_rows(fake, slow={7}), is_log=True)
    assert not any("above" in a["text"] for a in logarithmic["layout"]["annotations"])


@pytest.mark.parametrize("is_log", [False, True])
def test_the_labels_of_events_hang_below_the_words_on_what_is_above_the_axis(fake, is_log):
    event = fake.jobs["jE"].events[0].model_copy(update={"at": NOW})
    rows = _rows(fake, slow={7})
    around = timeline.Around(events=[event], since=NOW - timedelta(hours=1), until=NOW + timedelta(hours=1))
    values = {"theme": LIGHT, "where": UTC, "timeout_ms": None, "interval_ms": None, "now": NOW, "is_log": is_log}
    labels = timeline.timeline(rows, around, **values).figure["layout"]["annotations"]

    (of_event,) = (a for a in labels if a.get("textangle") == -90)
    said = [a["y"] for a in labels if "see the log scale" in a["text"]]
    assert of_event["yanchor"] == "top"
    assert (of_event["y"], said) == ((1, []) if is_log else (0.93, [0.93]))


def test_the_usual_range_is_a_band_with_its_words(fake):
    usual = usual_of(fake._answer("GET", "jobs/jB2/checkpoints", b"").items, NOW).usual

    layout = _timeline(fake, "jB2", around={"usual": usual}).figure["layout"]

    (band,) = [s for s in layout["shapes"] if s["type"] == "rect"]
    assert (band["y0"], band["y1"]) == (usual.p10_ms, usual.p90_ms)
    (label,) = [n for n in layout["annotations"] if n["text"].startswith("usual (shaded): ")]
    assert "p10 to p90" in label["hovertext"]
    assert "reconstructed" in label["hovertext"]
    assert (label["y"], label["yref"], label["yanchor"]) == (1, "paper", "bottom"), "the label covers marks"
    assert (label["x"], label["xref"], label["xanchor"]) == (1, "paper", "right")
    assert layout["margin"]["t"] >= 40, "the label lies under the buttons"
    assert not [s for s in _timeline(fake, "jB2").figure["layout"]["shapes"] if s["type"] == "rect"]


def test_an_annotation_is_a_line_or_a_band_with_its_text_escaped(fake):
    at = newest(fake, "jB2").triggered_at
    made = example("annotation").model_copy(update={"at_engine": at, "until_engine": None, "text": "<b>new</b>"})
    lasting = made.model_copy(update={"until_engine": at + timedelta(seconds=5), "text": "load test"})
    older = made.model_copy(update={"at_engine": at - timedelta(days=9)})

    layout = _timeline(fake, "jB2", around={"annotations": [lasting, made, older]}).figure["layout"]

    labels = [n for n in layout["annotations"] if n["text"] in ("load test", "&lt;b&gt;new&lt;/b&gt;")]
    assert len(labels) == 2
    assert all("deployment, by ci" in label["hovertext"] for label in labels)
    (band,) = [s for s in layout["shapes"] if s["type"] == "rect"]
    assert band["x1"] > band["x0"]


def test_the_axis_of_a_chosen_range_is_the_whole_range(fake):
    since, until = NOW - timedelta(hours=6), NOW

    axis = _timeline(fake, "jB2", around={"since": since, "until": until}).figure["layout"]["xaxis"]

    assert axis["range"][0] < f"{since:%Y-%m-%d %H:%M}" < f"{until:%Y-%m-%d %H:%M}" <= axis["range"][1]


def test_a_long_range_is_drawn_in_steps_with_gaps_failures_and_keys_to_zoom():
    history = history_of([], NOW - timedelta(days=7), NOW, NOW)
    around = timeline.Around(since=history.since, until=history.until)

    chart = timeline.timeline_in_steps(
        history, around, theme=LIGHT, where=UTC, timeout_ms=60_000, interval_ms=None, revision="j"
    )

    go.Figure(chart.figure)
    bars, median, p95, longest = chart.figure["data"]
    assert (bars["type"], [t["name"] for t in (median, p95, longest)]) == ("bar", ["median", "p95", "longest"])
    assert bars["customdata"][0][2:] == [round(history.points[-1].at.timestamp() * 1000), 3_600_000]
    assert median["y"].count(None) == 3, "the hours without checkpoints are gaps"
    assert len(chart.table.rows) == len(history.points) == len(bars["x"])
    assert "computed from its checkpoints" in chart.table.rows[0]


def test_in_steps_the_label_of_the_usual_range_stands_between_the_chart_and_its_legend(fake):
    usual = usual_of(fake._answer("GET", "jobs/jB2/checkpoints", b"").items, NOW).usual
    history = history_of([], NOW - timedelta(days=7), NOW, NOW)
    around = timeline.Around(since=history.since, until=history.until, usual=usual)
    for is_log in (False, True):
        layout = timeline.timeline_in_steps(
            history, around, theme=LIGHT, where=UTC, timeout_ms=None, interval_ms=None, is_log=is_log
        ).figure["layout"]

        (label,) = [n for n in layout["annotations"] if n["text"].startswith("usual (shaded): ")]
        assert (label["y"], label["yref"], label["yanchor"]) == (1, "paper", "bottom"), "the label covers lines"
        assert layout["legend"]["y"] > 1.05, "the label lies under the legend"
    empty = history.model_copy(update={"points": []})
    nothing = timeline.timeline_in_steps(empty, around, theme=LIGHT, where=UTC, timeout_ms=None, interval_ms=None)
    assert nothing.summary == "There is no checkpoint in this range."
