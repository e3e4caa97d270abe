"""Tests of the page that compares two windows. Its callbacks are called as a browser calls them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from dash.exceptions import PreventUpdate

from backend.domain.freshness import Freshness
from dashboard.pages.windows import choose
from dashboard.span import epoch_ms
from tests.support.api_examples import stale
from tests.support.dash_calls import LOOK, texts

pytestmark = pytest.mark.anyio

_MESSAGE = "windows-message.children"
DURATION = "end_to_end_duration_ms"
BEFORE = {"before": None, "after": None, "with": None, "against": None, "measure": DURATION}
AT = 1_800_000_000_000
HOUR = 3_600_000
SHOWN = {"windows": [[AT - HOUR, AT], [AT, AT + HOUR]], "with": None, "as_of": AT + 3 * HOUR}


def values(before=None, after=None, measure=DURATION, **more):
    data = {"before": before, "after": after, "with": None, "against": None, "measure": measure} | more
    return LOOK | {"windows-route.data": {"job": "jE"}, "windows-chosen.data": data}


def chosen(trigger, **given):
    names = (
        "other",
        "yesterday",
        "now",
        "instant",
        "width",
        "measure",
        "before_from",
        "before_to",
        "after_from",
        "after_to",
    )
    return choose(
        **dict.fromkeys(names) | given,
        before=BEFORE,
        shown=SHOWN,
        route={"job": "jE"},
        look=LOOK["look.data"],
        trigger=trigger,
    )


async def test_without_windows_the_hours_around_the_newest_event_are_compared(ui):
    answer = await ui.call("windows-headline.children", values(), by="look.data")

    (event,) = ui.fake.jobs["jE"].events
    at = epoch_ms(event.at)
    assert answer["windows-digest"]["data"]["windows"] == [[at - HOUR, at], [at, at + HOUR]]
    assert "Failed: 8 of 8 before, 9 of 9 after" in texts(answer["windows-headline"]["children"])
    assert "configuration changed" in texts(answer["windows-changed"]["children"])
    assert answer["windows-before-to"]["value"] == answer["windows-after-from"]["value"]


async def test_windows_that_have_passed_are_final_and_those_up_to_now_are_as_old_as_the_readings_of_the_job(ui):
    job = ui.fake.jobs["jE"]
    job.detail = job.detail.model_copy(update={"freshness": stale(Freshness.NO_COLLECTOR)})
    (event,) = job.events
    at = epoch_ms(event.at)

    now = await ui.call("windows-headline.children", values(), by="look.data")
    past = values([at - 2 * HOUR, at - HOUR], [at - HOUR, at - HOUR // 2])
    passed = await ui.call("windows-headline.children", past, by="look.data")

    assert texts(now["windows-stale"]["children"]).startswith("This job was last read")
    assert "'data-stale': 'final'" in str(passed["windows-stale"])


async def test_a_new_reading_alone_does_not_draw_the_comparison_again(ui):
    job, fresh = ui.fake.jobs["jE"], stale(Freshness.FRESH)
    job.detail = job.detail.model_copy(update={"freshness": fresh})
    first = await ui.call("windows-headline.children", values(), by="look.data")
    newer = fresh.model_copy(update={"read_at": fresh.read_at + timedelta(seconds=2)})
    job.detail = job.detail.model_copy(update={"freshness": newer})

    kept = {"windows-digest.data": first["windows-digest"]["data"]}
    again = await ui.call("windows-headline.children", values() | kept, by="status-tick.n_intervals")

    assert set(again) == {"windows-message"}


async def test_windows_that_cannot_be_compared_keep_what_the_page_shows(ui):
    first = await ui.call("windows-headline.children", values(), by="look.data")
    kept = {"windows-digest.data": first["windows-digest"]["data"]}

    wrong = await ui.call("windows-headline.children", values([AT, AT], [AT, AT + 1]) | kept, by="windows-chosen.data")
    same = await ui.call("windows-headline.children", values() | kept, by="status-tick.n_intervals")

    assert set(wrong) == set(same) == {"windows-message"}
    assert "is not before the end" in texts(wrong["windows-message"]["children"])


def test_an_instant_sets_both_windows():
    found = chosen("windows-instant", instant=str(AT + 5), width="600")["chosen"]

    assert (found["before"], found["after"]) == ([AT + 5 - 600_000, AT + 5], [AT + 5, AT + 5 + 600_000])


def test_another_length_keeps_the_ends_between_the_windows():
    found = chosen("windows-width", width="600")["chosen"]

    assert (found["before"], found["after"]) == ([AT - 600_000, AT], [AT, AT + 600_000])


def test_an_end_can_be_typed():
    typed = {"before_from": "2027-01-15 06:30", "before_to": "2027-01-15 08:00:00", "after_from": "2027-01-15T08:00:00"}
    found = chosen("windows-before-from", **typed, after_to="2027-01-15 09:00:00")["chosen"]

    assert found["before"] == [AT - HOUR - HOUR // 2, AT]
    assert found["after"] == [AT, AT + HOUR]


def test_a_text_that_is_no_instant_is_a_message():
    ends = {"before_to": "2027-01-15 08:00:00", "after_from": "2027-01-15 08:00:00", "after_to": "2027-01-15 09:00:00"}

    assert "is not an instant" in texts(chosen("windows-before-from", before_from="soon", **ends)["message"])


def test_values_that_the_page_set_itself_change_nothing():
    ends = {"before_from": "2027-01-15 07:00:00", "before_to": "2027-01-15 08:00:00"}
    with pytest.raises(PreventUpdate):
        chosen("windows-after-to", **ends, after_from="2027-01-15 08:00:00", after_to="2027-01-15 09:00:00")
    with pytest.raises(PreventUpdate):
        chosen("windows-measure", measure=DURATION)


def test_another_measure_is_kept():
    assert chosen("windows-measure", measure="sync_max_ms")["chosen"]["measure"] == "sync_max_ms"


def test_another_job_is_compared_in_the_same_time_and_the_own_job_with_yesterday():
    found = chosen("windows-other", other="j2")["chosen"]

    assert (found["with"], found["before"], found["after"]) == ("j2", [AT, AT + HOUR], [AT, AT + HOUR])
    with pytest.raises(PreventUpdate):
        chosen("windows-other", other="jE")


def test_the_newest_time_is_compared_with_that_of_yesterday_or_of_the_other_job():
    now = SHOWN["as_of"]
    found = chosen("windows-yesterday", yesterday=1, width="3600")["chosen"]
    both = chosen("windows-now", now=1, width="3600")["chosen"]

    assert (found["before"], found["after"]) == ([now - 25 * HOUR, now - 24 * HOUR], [now - HOUR, now])
    assert both["before"] == both["after"] == [now - HOUR, now]


async def test_two_jobs_are_called_by_their_names(ui):
    given = {"with": "jruntime"}
    answer = await ui.call("windows-headline.children", values([1, 2], [1, 2], **given), by="look.data")

    assert "demo-backpressured" in texts(answer["windows-before"]["children"])
    assert answer["windows-other"]["value"] == "jruntime"
    assert answer["windows-now"]["disabled"] is False
    assert answer["windows-changed"]["children"] is None


@pytest.mark.parametrize("trigger", ["windows-before-from", "windows-other"])
def test_a_measure_that_comes_together_with_values_of_the_page_is_kept(trigger):
    ends = {"before_from": "2027-01-15 07:00:00", "before_to": "2027-01-15 08:00:00"}
    more = ends | {"after_from": "2027-01-15 08:00:00", "after_to": "2027-01-15 09:00:00", "other": "jE"}

    assert chosen(trigger, measure="sync_max_ms", **more)["chosen"] == BEFORE | {"measure": "sync_max_ms"}
