"""Tests that links from one runbook or cause to another lead to existing pages, and that the page shows both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.alerting.rules import RuleName
from backend.services.causes import CAUSES
from dashboard import routes
from dashboard.pages import runbook
from tests.support.dash_calls import texts

_DOCS = Path(__file__).parents[4] / "docs"
_PAGES = [("runbooks", r.value) for r in RuleName] + [("causes", c) for c in CAUSES]


@pytest.mark.parametrize(("folder", "name"), _PAGES, ids=lambda value: value)
def test_links_between_runbooks_and_causes_lead_to_existing_pages(folder, name):
    written = (_DOCS / folder / f"{name}.md").read_text()

    shown = runbook.runbook_text(written, is_cause=folder == "causes").to_plotly_json()["props"]["children"]

    links = re.findall(r"\]\((?!http)([^)]*)\)", shown)
    assert len(links) == len(re.findall(r"\]\((?!http)[^)]*\)", written))
    for link in links:
        route = routes.parse(link)
        known = set(CAUSES) if route.page == "cause" else set(RuleName)
        assert (route.cause if route.page == "cause" else route.rule) in known, link


@pytest.mark.anyio
async def test_the_page_of_a_cause_shows_its_text(ui):
    values = {"runbook-route.data": {"rule": None, "cause": "capacity"}}
    answer = await ui.call("runbook-text.children", values, by="runbook-route.data")

    assert "Vertex at capacity" in texts(answer["runbook-text"]["children"])
