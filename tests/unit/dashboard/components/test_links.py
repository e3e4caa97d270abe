"""Tests of the row of links: only addresses that the API offers, and no way back to this page."""

from __future__ import annotations

from backend.contracts.links import LinkOut
from dashboard.components import links
from tests.support.api_examples import example


def _anchors(row):
    return [part for part in row.children if part.__class__.__name__ == "A"]


def test_the_links_that_have_an_address_are_offered_in_a_new_tab_without_a_referrer():
    row = links.row(example("links"))

    assert row is not None
    found = _anchors(row)
    assert [a.children for a in found] == ["job", "back pressure", "TaskManager log", "Grafana"]
    assert {(a.target, a.rel) for a in found} == {("_blank", "noopener noreferrer")}
    assert all(a.href.startswith(("http://", "https://")) for a in found)


def test_the_engine_is_named_once_before_its_pages():
    row = links.row(example("links"))
    assert row is not None
    words = [part.children for part in row.children if part.__class__.__name__ == "Span"]
    assert words[1:] == ["in Flink:"]


def test_without_an_address_there_is_no_row():
    none = LinkOut(name="Grafana", origin="template", url=None, reason="no value")
    assert links.row(None) is None
    assert links.row(example("links").model_copy(update={"items": [none]})) is None
