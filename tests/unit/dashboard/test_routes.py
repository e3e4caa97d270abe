"""Addresses of pages, built and parsed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import routes

opaque = st.text(min_size=1, max_size=30).filter(lambda s: s.strip("/ ") == s and s not in (".", ".."))

selections = st.builds(
    routes.Selection,
    opened=st.none() | st.lists(st.text(min_size=1, max_size=12), max_size=4, unique=True).map(tuple),
    sort=st.sampled_from(routes.SubtaskOrder),
    at_ms=st.none() | st.integers(0, 10**9),
    picked=st.none() | st.text(min_size=1, max_size=20),
    since_ms=st.none() | st.integers(0, 10**13 - 1),
    until_ms=st.none() | st.integers(0, 10**13 - 1),
)


@given(job=opaque, run=opaque, checkpoint=st.integers(0, 2**60), selection=selections)
def test_a_permalink_parses_to_the_selection_that_made_it(job, run, checkpoint, selection):
    route = routes.parse(routes.checkpoint(job, run, checkpoint), routes.query(selection))

    assert route == routes.Route("checkpoint", job=job, run=run, checkpoint=checkpoint, selection=selection)
    assert routes.parse(routes.job(job)) == routes.Route("job", job=job)


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/jobs", "/ui/jobs", "/ui/jobs/a/b", "/ui/jobs/a/runs/b/checkpoints/-1", "/ui/x", "/uix/"]
)
def test_any_other_address_is_an_unknown_page(path):
    assert routes.parse(path).page == "unknown"


def test_a_mangled_query_falls_back_to_the_defaults():
    path = routes.checkpoint("j", "r", 7)

    assert routes.parse(path, "?sort=evil&t=-5&pick=&from=1e9&to=99999999999999").selection == routes.Selection()
    assert routes.parse(path, "?open=").selection.opened == ()


def test_the_page_of_a_checkpoint_is_found_by_its_path_in_the_api():
    assert routes.from_api_link("/api/v1/jobs/a%2Fb/runs/r/checkpoints/3") == "/ui/jobs/a%2Fb/runs/r/checkpoints/3"
    assert routes.from_api_link("https://evil.example/") is None
    assert routes.from_api_link(None) is None


@pytest.mark.parametrize(
    ("path", "page"),
    [
        (routes.alerts(), "alerts"),
        (routes.alert("a/b c"), "alert"),
        (routes.runbook("Watchdog"), "runbook"),
    ],
)
def test_addresses_of_alert_pages_parse_to_their_routes(path, page):
    route = routes.parse(path)

    assert route.page == page
    assert (route.alert, route.rule) == {
        "alerts": (None, None),
        "alert": ("a/b c", None),
        "runbook": (None, "Watchdog"),
    }[page]
