"""Tests of the page that compares two windows. Its callbacks are called as a browser calls them."""

from __future__ import annotations

import pytest
from dash.exceptions import PreventUpdate

from dashboard.pages.windows import choose
from dashboard.span import epoch_ms
from tests.support.dash_calls import LOOK, texts

pytestmark = pytest.mark.anyio

_MESSAGE = "windows-message.children"
DURATION = "end_to_end_duration_ms"
BEFORE = {"before": None, "after": None, "measure": DURATION}
AT = 1_800_000_000_000
HOUR = 3_600_000
SHOWN = {"windows": [[AT - HOUR, AT], [AT, AT + HOUR]]}


def values(before=None, after=None, measure=DURATION):
    data = {"before": before, "after": after, "measure": measure}
    return LOOK | {"windows-route.data": {"job": "jE"}, "windows-chosen.data": data}


def chosen(trigger, **given):
    names = ("instant", "width", "measure", "before_from", "before_to", "after_from", "after_to")
    return choose(**dict.fromkeys(names) | given, before=BEFORE, shown=SHOWN, look=LOOK["look.data"], trigger=trigger)


async def test_without_windows_the_hours_around_the_newest_event_are_compared(ui):
    answer = await ui.call("windows-headline.children", values(), by="look.data")

    (event,) = ui.fake.jobs["jE"].events
    at = epoch_ms(event.at)
    assert answer["windows-digest"]["data"]["windows"] == [[at - HOUR, at], [at, at + HOUR]]
    assert "Failed: 8 of 8 before, 9 of 9 after" in texts(answer["windows-headline"]["children"])
    assert "configuration changed" in texts(answer["windows-changed"]["children"])
    assert answer["windows-before-to"]["value"] == answer["windows-after-from"]["value"]


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
