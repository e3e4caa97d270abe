"""Tests of building and parsing the addresses of pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.rollup import Measure
from dashboard import compare_address, routes
from dashboard.checkpoint_address import CheckpointView, SubtaskOrder
from dashboard.fleet_address import FleetView
from dashboard.incidents_address import IncidentList
from dashboard.job_address import JobView
from dashboard.span import epoch_ms

opaque = st.text(min_size=1, max_size=30).filter(lambda s: s.strip("/ ") == s and s not in (".", ".."))

views = st.builds(
    CheckpointView,
    opened=st.none() | st.lists(st.text(min_size=1, max_size=12), max_size=4, unique=True).map(tuple),
    sort=st.sampled_from(SubtaskOrder),
    at_ms=st.none() | st.integers(0, 10**9),
    picked=st.none() | st.text(min_size=1, max_size=20),
)


@given(job=opaque, run=opaque, checkpoint=st.integers(0, 2**60), view=views)
def test_a_permalink_parses_to_the_choices_that_made_it(job, run, checkpoint, view):
    path, _, query = routes.checkpoint(job, run, checkpoint, view).partition("?")

    route = routes.parse(path, query)

    assert route == routes.Route("checkpoint", job=job, run=run, checkpoint=checkpoint, checkpoint_view=view)
    assert routes.parse(routes.job(job)) == routes.Route("job", job=job)


@given(job=opaque, run=opaque, a=st.integers(0, 10**17), b=st.none() | st.integers(0, 10**17))
def test_the_address_of_a_comparison_parses_to_its_checkpoints(job, run, a, b):
    address = routes.comparison(job, (run, a), None if b is None else (run, b))
    path, _, query = address.partition("?")

    route = routes.parse(path, query)

    assert (route.page, route.job) == ("comparison", job)
    assert route.compared == compare_address.Compared(f"{run}:{a}", None if b is None else f"{run}:{b}")
    mangled = routes.parse(path, "?a=7&b=:8&order=evil")
    assert mangled.compared == compare_address.Compared()


def test_the_address_of_two_windows_parses_to_their_ends():
    at = datetime(2026, 11, 21, 14, 5, tzinfo=UTC)
    path, _, query = routes.windows_around("j", at, timedelta(minutes=10)).partition("?")
    ms = epoch_ms(at)

    route = routes.parse(path, query + "&measure=sync_max_ms")

    assert (route.page, route.job) == ("windows", "j")
    assert route.windows == compare_address.Windows((ms - 600_000, ms), (ms, ms + 600_000), measure=Measure.SYNC)
    mangled = "?before-from=x&before-to=2&after-from=3&after-to=4&measure=evil"
    assert routes.parse(path, mangled).windows == compare_address.Windows()


def test_the_address_of_a_comparison_with_another_job_holds_it():
    at = datetime(2026, 11, 21, 14, 5, tzinfo=UTC)
    hour = (at - timedelta(hours=1), at)
    addresses = (
        routes.comparison("j", ("r", 3), ("s", 3), other="j/2"),
        routes.windows("j", hour, hour, other="j/2"),
        routes.newest_hour("j", other="j/2"),
    )

    found = [routes.parse(*address.split("?")) for address in addresses]

    assert found[0].compared == compare_address.Compared("r:3", "s:3", other="j/2")
    assert [r.windows.other for r in found[1:]] == ["j/2", "j/2"]
    assert routes.parse("/ui/jobs/j/compare", "?with=" + "x" * 101).compared.other is None


def test_the_address_of_the_newest_hour_and_yesterday_has_no_windows_until_these_are_known():
    path, query = routes.newest_hour("j").split("?")

    assert routes.parse(path, query).windows == compare_address.Windows(against="yesterday")
    ends = "before-from=1&before-to=2&after-from=3&after-to=4"
    assert routes.parse(path, f"{query}&{ends}").windows == compare_address.Windows((1, 2), (3, 4))
    assert routes.parse(path, "against=evil").windows == compare_address.Windows()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api/v1/jobs",
        "/ui/jobs",
        "/ui/jobs/a/b",
        "/ui/x",
        "/uix/",
        "/ui/jobs/a/runs/b/checkpoints/-1",
        "/ui/jobs/a/runs/b/checkpoints/" + "9" * 5000,
    ],
)
def test_any_other_address_is_an_unknown_page(path):
    assert routes.parse(path).page == "unknown"


def test_a_mangled_query_falls_back_to_the_defaults():
    path = routes.checkpoint("j", "r", 7)

    assert routes.parse(path, "?sort=evil&t=-5&pick=&heat=x&view=1").checkpoint_view == CheckpointView()
    assert routes.parse(path, "?open=").checkpoint_view.opened == ()
    assert routes.parse("/ui/jobs/j", "?from=1e9&to=99999999999999&range=ever&rows=x").job_view == JobView()


def test_the_page_of_a_checkpoint_is_found_by_its_path_in_the_api():
    assert routes.from_api_link("/api/v1/jobs/a%2Fb/runs/r/checkpoints/3") == "/ui/jobs/a%2Fb/runs/r/checkpoints/3"
    assert routes.from_api_link("https://evil.example/") is None
    assert routes.from_api_link(None) is None


@pytest.mark.parametrize(
    ("path", "page"),
    [
        (routes.alerts(), "alerts"),
        (routes.alert_rules(), "alert-rules"),
        (routes.alert_receivers(), "alert-receivers"),
        (routes.alert_silences(), "alert-silences"),
        (routes.incident("a/b c"), "incident"),
        (routes.alert("a/b c"), "alert"),
        (routes.runbook("Watchdog"), "runbook"),
    ],
)
def test_addresses_of_alert_pages_parse_to_their_routes(path, page):
    route = routes.parse(path)

    assert route.page == page
    named = {"alert": ("a/b c", None, None), "runbook": (None, "Watchdog", None), "incident": (None, None, "a/b c")}
    assert (route.alert, route.rule, route.incident) == named.get(page, (None, None, None))


def test_the_address_of_the_list_of_incidents_contains_its_filters():
    view = IncidentList("open", "critical", "job", "or&ders", "env=a b", "WzFd")

    assert routes.parse(*routes.alerts(view).split("?")).incidents == view
    assert routes.alerts(IncidentList()) == "/ui/alerts"
    assert routes.parse("/ui/alerts", "?state=evil&severity=none&group=x").incidents == IncidentList()
    assert routes.parse(*routes.alert_silences("job=a, b!=c").split("?")).matchers == "job=a, b!=c"


def test_the_address_of_a_page_contains_its_order_and_its_axis():
    by_p99 = routes.parse("/ui/", "?sort=p99&desc=1").fleet
    assert (by_p99.column, by_p99.is_descending) == ("p99", True)
    assert routes.parse("/ui/").fleet == FleetView()

    assert routes.parse("/ui/jobs/j", "?from=5&log=1").job_view == JobView(since_ms=5, is_log=True)
