"""Tests of the search for a time zone."""

from __future__ import annotations

import pytest

from dashboard import text

pytestmark = pytest.mark.anyio


async def test_the_list_has_every_place_with_its_offset_and_is_loaded_once(ui):
    answer = await ui.call("zone-find.data", {"zone-open.n_clicks": 1}, by="zone-open.n_clicks")
    found = {z["value"]: z["label"] for z in answer["zone-find"]["data"]}

    assert found["Asia/Kolkata"] == "Asia/Kolkata (+05:30)"
    assert found["America/New_York"].startswith("America/New York (-0")
    assert next(iter(found)) == "UTC"
    assert not any(name.startswith(("Etc/", "posix/", "right/")) for name in found)
    assert all(str(text.zone(name)) == name for name in found)
    again = {"zone-open.n_clicks": 2, "zone-find.data": [{"value": "UTC", "label": "UTC"}]}
    assert await ui.call("zone-find.data", again, by="zone-open.n_clicks") is None
