"""Tests that links from one runbook to another lead to existing pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.alerting.rules import RuleName
from dashboard import routes
from dashboard.pages import runbook


@pytest.mark.parametrize("rule", [r.value for r in RuleName])
def test_links_between_runbooks_lead_to_existing_pages(rule):
    written = (Path(__file__).parents[4] / "docs" / "runbooks" / f"{rule}.md").read_text()

    shown = runbook.runbook_text(written).to_plotly_json()["props"]["children"]

    links = re.findall(r"\]\((?!http)([^)]*)\)", shown)
    assert len(links) == len(re.findall(r"\]\((?!http)[^)]*\)", written))
    for link in links:
        route = routes.parse(link)
        assert (route.page, route.rule in set(RuleName)) == ("runbook", True), link
