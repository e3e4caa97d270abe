"""The page of the fleet, called as a browser does."""

from __future__ import annotations

import pytest

from tests.support.dash_calls import LOOK, texts
from tests.support.fake_api import HOSTILE

pytestmark = pytest.mark.anyio


async def test_the_fleet_keeps_the_order_of_urgency_and_shows_one_status_each(ui):
    answer = await ui.call("fleet-grid.rowData", LOOK, by="look.data")
    rows = answer["fleet-grid"]["rowData"]

    assert [r["id"] for r in rows] == list(ui.fake.jobs)
    assert rows[0]["health_badge"]["word"] == "failing"
    assert rows[0]["verdict_badge"]["word"] == "vertex at capacity"
    assert rows[0]["href"] == "/ui/jobs/jE"
    assert "old data" in next(r for r in rows if r["id"] == "jwide")["target"]
    assert next(r for r in rows if r["id"] == "jwide")["name"] == HOSTILE
    assert texts(answer["fleet-counts"]["children"]).startswith("1 failing")


async def test_values_that_a_job_does_not_report_are_dashes_in_the_fleet(ui):
    answer = await ui.call("fleet-grid.rowData", LOOK, by="look.data")
    new = next(r for r in answer["fleet-grid"]["rowData"] if r["id"] == "jnew")

    assert new["age_text"] == new["success_text"] == new["p50_text"] == new["pressure_text"] == "–"
    assert new["mode_chip"] is None
    assert new["phase_chip"] is None


async def test_an_unchanged_fleet_is_not_sent_again(ui):
    first = await ui.call("fleet-grid.rowData", LOOK, by="look.data")
    values = LOOK | {"fleet-page.data-digest": first["fleet-page"]["data-digest"]}

    again = await ui.call("fleet-grid.rowData", values, by="tick.n_intervals")

    assert "fleet-grid" not in again
