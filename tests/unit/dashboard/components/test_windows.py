"""Tests of the parts of the page that compares two windows."""

from __future__ import annotations

from datetime import UTC, timedelta

from backend.contracts.comparing_windows import ChangeOut, DirectionOut
from dashboard.components import windows
from tests.support.api_examples import example
from tests.support.dash_calls import texts


def _found(**changes):
    return example("windows_comparison").model_copy(update=changes)


def test_the_change_of_each_phase_has_its_interval_and_its_direction():
    said = texts(windows.changes(_found()))

    assert "alignment 38 ms 8.6 s +8.6 s +8.0 s to +9.2 s higher" in said
    assert windows.changes(_found(measures=[])) is None


def test_too_few_checkpoints_show_no_interval():
    one = example("windows_comparison").measures[0]
    few = ChangeOut(difference=9.0, low=None, high=None, direction=DirectionOut.TOO_FEW)

    said = texts(windows.changes(_found(measures=[one.model_copy(update={"median": few})])))

    assert "+9 ms too few to tell" in said


def test_a_capped_window_is_said():
    window = example("windows_comparison").before.model_copy(update={"is_capped": True, "considered_count": 10_000})

    assert "newest 10 000 checkpoints before" in texts(windows.headline(_found(before=window)))
    assert "newest" not in texts(windows.headline(_found()))


def test_nothing_known_to_have_changed_is_said():
    assert "No change of settings" in texts(windows.changed(_found(events=[]), UTC))


def test_failures_are_counted_by_reason():
    assert "1 expired" in texts(windows.side(_found().after, "After", UTC))


def test_a_change_of_the_duration_leads_to_the_time_before_and_after_it():
    point = example("change_point")

    yesterday, link = windows.change_links("j", [point], [], UTC)

    assert yesterday.href == "/ui/jobs/j/compare-windows?against=yesterday"

    ms = windows.epoch_ms
    assert f"before-from={ms(point.before_since)}&before-to={ms(point.at)}" in link.href
    assert f"after-from={ms(point.at)}&after-to={ms(point.after_until + timedelta(seconds=1))}" in link.href


def test_the_last_change_of_settings_leads_to_the_time_before_and_after_it():
    event = example("job_event").model_copy(update={"kind": "configuration-changed"})
    later = event.model_copy(update={"at": event.at + timedelta(hours=1), "kind": "restarted"})

    _, link = windows.change_links("j", [], [later, event], UTC)

    ms = windows.epoch_ms(event.at)
    assert f"before-to={ms}&after-from={ms}&" in link.href
    assert link.children.startswith("Before and after the settings changed at ")


def test_the_list_of_instants_has_changes_and_events_newest_first():
    point, event = example("change_point"), example("job_event")
    earlier = event.model_copy(update={"at": point.at - timedelta(hours=1)})

    options = windows.instants([point], [earlier], UTC)

    assert [o["value"] for o in options] == [str(windows.epoch_ms(point.at)), str(windows.epoch_ms(earlier.at))]
    assert "median" in options[0]["label"]
