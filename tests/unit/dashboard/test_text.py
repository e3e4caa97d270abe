"""Formatted values, addresses and ranges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import routes, text
from dashboard.span import epoch_ms, span_of


@pytest.mark.parametrize(
    ("value_ms", "shown"),
    [
        (None, "–"), (0, "0 ms"), (0.4, "0.4 ms"), (840, "840 ms"), (999, "999 ms"), (1_000, "1 s"), (7_900, "7.9 s"),
        (7_945, "7.95 s"), (12_345, "12.3 s"), (125_000, "2 min 05 s"), (12_000_000, "3 h 20 min"),
        (187_200_000, "2 d 4 h"), (-1_500, "-1.5 s"),
    ],
)  # fmt: skip
def test_a_duration_is_written_with_the_unit_that_fits(value_ms, shown):
    assert text.duration(value_ms) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (999_499, "999 kB"), (999_500, "1 MB"),
        (3_172_554, "3.17 MB"), (2.5e15, "2.5 PB"), (-4_812_000, "-4.81 MB"),
    ],
)  # fmt: skip
def test_a_size_is_written_in_decimal_units_as_the_sentences_write_it(value, shown):
    assert text.size(value) == shown


@pytest.mark.parametrize(
    ("ratio", "shown"), [(None, "–"), (0.0, "0 %"), (0.954, "95 %"), (1.0, "100 %"), (0.9999, "99.9 %")]
)
def test_a_ratio_below_one_is_never_written_as_100_percent(ratio, shown):
    assert text.percent(ratio) == shown


def test_a_factor_is_not_written_as_a_percentage():
    assert text.evidence_value(0.91, "ratio") == "91 %"
    assert text.evidence_value(1.9, "ratio") == "1.9 ×"
    assert text.evidence_value(None, "ms") == text.MISSING


def test_a_long_name_keeps_both_its_ends():
    shown = text.short("Source: clickstream -> Timestamps/Watermarks -> Filter", 20)

    assert len(shown) == 20
    assert shown.startswith("Source")
    assert shown.endswith("Filter")


def test_markup_in_names_is_escaped():
    assert text.plain("<b>x</b>&\n") == "&lt;b&gt;x&lt;/b&gt;&amp; "


def test_an_unknown_time_zone_is_utc():
    assert text.zone("Nowhere/Land") is UTC
    assert text.zone("../../etc/passwd") is UTC
    assert text.zone("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    at = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
    assert text.instant(at, ZoneInfo("Europe/Berlin")) == "2026-11-22 00:30:00"
    assert text.instant_utc(at) == "2026-11-21 23:30:00.000 UTC"


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


def test_an_invalid_end_of_a_range_means_no_limit_and_a_reversed_range_is_ignored():
    assert span_of({"since": True, "until": 9e15}).is_whole
    assert span_of({"since": "1", "until": None}).is_whole
    assert span_of({"since": 2_000, "until": 1_000}).is_whole
    one = span_of({"since": 1_000, "until": 1_000})
    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert [one.holds(at), one.holds(at - timedelta(milliseconds=1)), one.holds(at + timedelta(milliseconds=1))] == [
        True, False, False,
    ]  # fmt: skip
    assert epoch_ms(at) == 1_000


def test_the_page_of_a_checkpoint_is_found_by_its_path_in_the_api():
    assert routes.from_api_link("/api/v1/jobs/a%2Fb/runs/r/checkpoints/3") == "/ui/jobs/a%2Fb/runs/r/checkpoints/3"
    assert routes.from_api_link("https://evil.example/") is None
    assert routes.from_api_link(None) is None
