"""Tests of a job's page. Its callbacks are called as a browser calls them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from dash.exceptions import PreventUpdate

from backend.contracts.advice import LifeEventOut
from backend.contracts.annotations import AnnotationIn
from backend.contracts.growth import GrowthOut
from backend.contracts.replay_debt import ReplayDebtOut
from backend.domain.advice import AdviceState, AdviceStep
from backend.domain.freshness import Freshness
from backend.domain.replay_debt import DebtOrigin
from dashboard.client import ApiClient
from dashboard.pages.job import alerts, parts, range_picker, refresh
from tests.support.api_examples import example
from tests.support.dash_calls import LOOK, job_values, texts

pytestmark = pytest.mark.anyio
NOON = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


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


def _head(**changes):
    detail = example("job_detail")
    debt = ReplayDebtOut(since=NOON, origin=DebtOrigin.CHECKPOINT, checkpoint_id=63, input_per_s=100.0, use_ratio=0.5)
    known = {
        "replay_debt": debt,
        "replay_debt_ms": 2_100_000.0,
        "replay_debt_records": 210_000.0,
        "replay_debt_catch_up_ms": 2_103_000.0,
        "clock_offset_ms": 1_000,
    }
    return parts.head(detail.model_copy(update=known | changes))


async def test_the_tile_of_the_replay_debt_counts_from_its_checkpoint_by_the_clock_of_the_service():
    page = json.dumps(_head(), default=lambda c: c.to_plotly_json())

    assert '"className": "debt fact-value number"' in page
    assert '"data-instant": "2026-11-29T11:59:59+00:00"' in page, "the engine's clock is a second ahead"
    assert '"data-rate": "0.1"' in page
    assert '"data-pace": "1.0"' in page
    assert '"data-base": "3000.0"' in page
    assert "What a failure now would replay, since checkpoint 63" in page


async def test_what_grows_over_days_stands_below_the_verdict():
    detail = example("job_detail")
    words = "the state doubled in 2 days at the same input: 1.2 GB on Wed 25 Nov, 2.5 GB in the last 24 h"
    found = GrowthOut(sentence=words, what="state", before=1.2e9, before_at=NOON, after=2.5e9, span_s=172_800.0)

    assert texts(parts.growth(detail.model_copy(update={"growth": found}))) == (
        "The state doubled in 2 days at the same input: 1.2 GB on Wed 25 Nov, 2.5 GB in the last 24 h (reconstructed). "
        "What cures it"
    )
    assert parts.growth(detail.model_copy(update={"growth": None})) == []


async def test_the_replay_debt_of_a_stale_job_is_what_it_was_and_does_not_count_up():
    stale = example("job_detail").freshness.model_copy(update={"state": Freshness.NOT_READ, "is_stale": True})
    page = _head(freshness=stale)

    assert "Replay debt, was 35 min" in " ".join(texts(page).split())
    assert "data-instant" not in json.dumps(page[1], default=lambda c: c.to_plotly_json())


async def test_an_unchanged_job_is_not_drawn_again_and_another_theme_is(ui, clock):
    first = await ui.call("job-head.children", job_values("jE"), by="look.data")
    values = job_values("jE") | {
        "job-digest.data": first["job-digest"]["data"],
        "job-progress-target.data": first["job-progress-target"]["data"],
    }
    clock.now += timedelta(seconds=2)

    again = await ui.call("job-head.children", values, by="tick.n_intervals")
    dark = await ui.call("job-head.children", values | {"look.data": {"theme": "dark", "zone": "UTC"}}, by="look.data")

    assert again is None
    assert dark["timeline-graph"]["figure"] != first["timeline-graph"]["figure"]


async def test_the_page_does_not_wait_for_alerts_that_cannot_be_read():
    class Client:
        async def open_alerts_or_none(self, job: str) -> None:
            return None

    values = {"tick": 1, "look": LOOK["look.data"], "route": {"job": "jE"}}
    first = await alerts.refresh(cast(ApiClient, Client()), **values, before=None)

    assert set(first) == {"alerts"}
    assert "could not be read" in texts(first["alerts"])
    with pytest.raises(PreventUpdate):
        await alerts.refresh(cast(ApiClient, Client()), **values, before="digest")


async def test_a_chart_is_drawn_again_only_if_its_own_data_has_changed(ui):
    first = await ui.call("job-head.children", job_values("jE"), by="look.data")
    drawn = {}
    for part in ("page", "timeline", "pressure"):
        before = first["job-digest"]["data"] | {"page": "other", part: "other"}
        answer = await ui.call(
            "job-head.children", job_values("jE") | {"job-digest.data": before}, by="tick.n_intervals"
        )
        assert "job-head" in answer
        drawn[part] = {name for name in ("timeline", "pressure") if f"{name}-graph" in answer}

    assert drawn == {"page": set(), "timeline": {"timeline"}, "pressure": {"pressure"}}


async def test_a_range_of_the_timeline_filters_the_checkpoints_the_events_and_the_pressure_below(ui):
    times = sorted(c.triggered_at for c in ui.fake.jobs["jE"].checkpoints)
    ends = {"since": _epoch_ms(times[1]), "until": _epoch_ms(times[3])}

    answer = await ui.call("job-head.children", job_values("jE") | {"job-range.data": ends}, by="job-range.data")
    none = {"since": 0, "until": 1}
    nothing = await ui.call("job-head.children", job_values("jE") | {"job-range.data": none}, by="job-range.data")

    recent = texts(answer["job-recent"]["children"])
    assert recent.startswith("Checkpoints in the range the newest 3 of 3 in the chosen range")
    assert "event" not in recent
    assert answer["job-range-words"]["children"].startswith("3 checkpoints, ")
    assert answer["job-span"]["data"] == ends
    marks = [k[1] for t in answer["timeline-graph"]["figure"]["data"] for k in t["customdata"]]
    assert len(marks) == 3
    assert nothing["job-range-words"]["children"] == "No checkpoints in this range."


async def test_a_long_range_is_shown_in_steps_and_says_how_far_the_rollups_reach(ui, clock):
    month = {"range": "30d", "since": _epoch_ms(clock.now - timedelta(days=30)), "until": None}

    answer = await ui.call("job-head.children", job_values("jE") | {"job-range.data": month}, by="job-range.data")

    words = answer["job-range-words"]["children"]
    assert words.startswith("Hourly values of ")
    assert "zoom in to single ones" in words
    assert "Rollups reach to " in words
    assert [t["name"] for t in answer["timeline-graph"]["figure"]["data"]] == ["failed", "median", "p95", "longest"]
    assert "choose a shorter range" in texts(answer["job-recent"]["children"])


async def test_a_range_whose_start_the_browser_has_not_added_yet_is_not_drawn(ui):
    values = job_values("jE") | {"job-range.data": {"range": "24h"}}

    assert await ui.call("job-head.children", values, by="look.data") is None


async def test_annotations_are_on_the_timeline_and_in_a_table_with_their_links(ui, clock):
    times = [c.triggered_at for c in ui.fake.jobs["jE"].checkpoints]
    posted = AnnotationIn(text="Deployed 2.14.0", at=times[3], link="https://ci.example/812", tags=["deployment"])
    ui.fake.annotations.add("jE", posted, clock.now)

    answer = await ui.call("job-head.children", job_values("jE"), by="look.data")

    labels = [n["text"] for n in answer["timeline-graph"]["figure"]["layout"]["annotations"]]
    assert "Deployed 2.14.0" in labels
    shown = str(answer["job-recent"]["children"])
    assert "Deployed 2.14.0" in shown
    assert "'href': 'https://ci.example/812'" in shown
    assert "noopener" in shown


def test_a_typed_range_is_in_the_viewers_zone_and_a_wrong_one_is_explained():
    look = {"theme": "light", "zone": "Asia/Kolkata"}

    def typed(since, until):
        return range_picker.own_range(clicks=1, entered=None, confirmed=None, since=since, until=until, look=look)

    found = typed("2026-11-22 05:30", "2026-11-22T06:30:00+05:30")
    assert found["range"] == {"since": 1_795_305_600_000, "until": 1_795_309_200_000}
    assert typed("2026-11-22 05:30", "")["range"] == {"since": 1_795_305_600_000, "until": None}
    assert "is not a time" in typed("yesterday", "")["problem"]
    for typo in ("0206-11-22 14:05", "2206-11-22 14:05"):
        assert "is not between the years 1970 and 2103" in typed(typo, "")["problem"]
    assert "before it begins" in typed("2026-11-22 05:30", "2026-11-22 05:30")["problem"]
    assert "at least one end" in typed("", None)["problem"]


def _epoch_ms(at):
    return round(at.timestamp() * 1000)


async def test_a_click_on_a_mark_opens_its_checkpoint(ui):
    click = {"points": [{"customdata": ["rE", 14, 1_700_000_000_000]}]}
    values = {"timeline-graph.clickData": click, "job-route.data": {"job": "jE"}}

    answer = await ui.call("url.href", values, by="timeline-graph.clickData")

    assert answer["url"]["href"] == "/ui/jobs/jE/runs/rE/checkpoints/14"


async def test_a_job_without_checkpoints_and_readings_shows_no_empty_cards(ui):
    hidden = {"display": "none"}

    page = await ui.call("job-message.children", job_values("jnew"), by="look.data")
    heatmap = await ui.call("heatmap-message.children", job_values("jnew"), by="look.data")
    trend = await ui.call("trend-message.children", job_values("jnew"), by="look.data")

    assert page["job-pressure"]["style"] == heatmap["job-heatmap"]["style"] == trend["trend-panel"]["style"] == hidden
    assert texts(page["job-recent"]["children"]) == ""
    shown = await ui.call("job-message.children", job_values("jE"), by="look.data")
    assert shown["job-pressure"]["style"] != hidden


def test_the_mark_of_applied_advice_names_who_sent_the_change_that_is_in_force():
    def step(kind, minutes, author):
        at = NOON + timedelta(minutes=minutes)
        return LifeEventOut(at=at, kind=kind, state=AdviceState.ACCEPTED, reason="sent", author=author)

    steps = (
        step(AdviceStep.APPLY, 0, "ann"),
        step(AdviceStep.GUARDED_APPLY, 5, "ben"),
        step(AdviceStep.STATE, 6, "the service"),
        step(AdviceStep.APPLY, 20, "eve"),
    )
    card = example("card").model_copy(update={"applied_at": NOON + timedelta(minutes=10), "history": steps})
    by_hand = card.model_copy(update={"history": (steps[2],)})

    marks = refresh._applied(example("job_detail"), [card, by_hand])

    assert [m.author for m in marks] == ["ben", None]


@pytest.mark.parametrize(
    ("mode", "is_unaligned", "words"),
    [
        ("exactly_once", False, "Consistent for queries each checkpoint"),
        ("exactly_once", True, "Consistent for queries only without in-flight data"),
        ("at_least_once", False, "Consistent for queries none: at least once"),
    ],
)
def test_the_settings_say_which_checkpoints_are_consistent_for_queries(mode, is_unaligned, words):
    found = example("job_detail")
    config = found.config.model_copy(update={"mode": mode, "is_unaligned_enabled": is_unaligned})

    assert words in texts(parts.facts(found.model_copy(update={"config": config})))
