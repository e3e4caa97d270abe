"""The page of a job, called as a browser does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.dash_calls import job_values, texts

pytestmark = pytest.mark.anyio


async def test_a_job_shows_its_verdict_first_then_every_checkpoint_and_the_settings(ui):
    answer = await ui.call("job-head.children", job_values("jE"), by="look.data")

    assert texts(answer["job-verdict"]["children"]).startswith(
        "Expired after 3.0 s because slow-stage-2 is at capacity"
    )
    marks = sum(len(t["x"]) for t in answer["timeline-graph"]["figure"]["data"])
    assert marks == len(ui.fake.jobs["jE"].checkpoints)
    assert "unlimited" in texts(answer["job-facts"]["children"])
    assert answer["job-title"]["data"] == "payments-settlement"
    assert "REST API of the cluster" in texts(answer["job-source"]["children"])


async def test_an_unchanged_job_is_not_drawn_again_and_another_theme_is(ui, clock):
    first = await ui.call("job-head.children", job_values("jE"), by="look.data")
    values = job_values("jE") | {
        "job-digest.data": first["job-digest"]["data"],
        "job-progress-target.data": first["job-progress-target"]["data"],
    }
    clock.now += timedelta(seconds=2)

    again = await ui.call("job-head.children", values, by="tick.n_intervals")
    dark = await ui.call("job-head.children", values | {"look.data": {"theme": "dark", "zone": "UTC"}}, by="look.data")

    assert set(again) == {"job-message", "job-source"}
    assert dark["timeline-graph"]["figure"] != first["timeline-graph"]["figure"]


async def test_a_range_of_the_timeline_filters_the_checkpoints_the_events_and_the_pressure_below(ui):
    times = sorted(c.triggered_at for c in ui.fake.jobs["jE"].checkpoints)
    ends = {"since": _epoch_ms(times[1]), "until": _epoch_ms(times[3])}

    answer = await ui.call("job-head.children", job_values("jE") | {"job-range.data": ends}, by="job-range.data")
    none = {"since": 0, "until": 1}
    nothing = await ui.call("job-head.children", job_values("jE") | {"job-range.data": none}, by="job-range.data")

    recent = texts(answer["job-recent"]["children"])
    assert recent.startswith("Checkpoints in the range the newest 3 of 3 in the chosen range")
    assert "event" not in recent
    assert "Below: 3 of 17 checkpoints" in answer["job-range-words"]["children"]
    assert answer["job-span"]["data"] == [_epoch_ms(times[0]), _epoch_ms(times[-1])]
    shades = [a for t in answer["timeline-graph"]["figure"]["data"] for a in t["marker"]["opacity"]]
    assert (shades.count(1), len(shades)) == (3, 17)
    assert "chosen range" in answer["job-pressure-hint"]["children"]
    assert "none of the 17" in nothing["job-range-words"]["children"]


def _epoch_ms(at):
    return round(at.timestamp() * 1000)


async def test_a_click_on_a_mark_opens_its_checkpoint(ui):
    click = {"points": [{"customdata": ["rE", 14, 1_700_000_000_000]}]}
    values = {"timeline-graph.clickData": click, "job-route.data": {"job": "jE"}}

    answer = await ui.call("url.href", values, by="timeline-graph.clickData")

    assert answer["url"]["href"] == "/ui/jobs/jE/runs/rE/checkpoints/14"
