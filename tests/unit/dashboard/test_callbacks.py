"""Tests of page functions without Dash. Their outputs are passed to Dash by name, and every output gets a value."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest
from dash import Output, no_update
from dash.exceptions import PreventUpdate

from dashboard.callbacks import filled, pressed_id
from dashboard.client import ApiClient
from dashboard.pages import alerts, fleet
from dashboard.pages.checkpoint import refresh, selection
from tests.support.dash_calls import texts
from tests.support.fake_api import FakeApi

pytestmark = pytest.mark.anyio

LOOK = {"theme": "light", "zone": "UTC"}


@pytest.fixture
def fake():
    return FakeApi(now=lambda: datetime(2026, 11, 21, 8, 0, tzinfo=UTC))


@pytest.fixture
async def client(fake):
    found = ApiClient(transport=httpx.MockTransport(fake.handle), base_url="http://api.test")
    yield found
    await found.close()


def test_outputs_without_a_change_keep_their_value():
    outputs = {"a": Output("a", "x"), "chart": {"figure": Output("b", "x"), "table": Output("c", "x")}}

    assert filled({"a": None}, outputs) == {"a": None, "chart": {"figure": no_update, "table": no_update}}
    assert filled({"chart": {"figure": 1}}, outputs) == {"a": no_update, "chart": {"figure": 1, "table": no_update}}


def test_a_change_without_an_output_is_an_error():
    with pytest.raises(KeyError, match="not an output: b"):
        filled({"b": 1}, {"a": Output("a", "x")})


def test_a_press_is_not_the_first_drawing_of_the_buttons():
    assert pressed_id([None, 1], {"type": "t"}) == {"type": "t"}
    assert pressed_id([None, None], {"type": "t"}) is None
    assert pressed_id([1], "tick") is None


async def test_a_page_function_returns_only_what_changed(client, fake):
    view = {"first": 0, "ids": ["jE"], "since": None, "total": len(fake.jobs)}
    first = await fleet.refresh(client, view=view, before=None)
    again = await fleet.refresh(client, view=view | {"since": first["delta"]["version"]}, before=first["digest"])

    assert [row["id"] for row in first["delta"]["rows"]] == ["jE"]
    assert again == {"message": None}


async def test_a_checkpoint_that_has_ended_is_read_on_every_fifth_tick(client, fake):
    route = {"job": "jE", "run": "rE", "checkpoint": 14}
    same = {"look": LOOK, "sort": "topology", "path": "true", "chosen": None, "route": route}
    first = await refresh.refresh(client, tick=0, before=None, trigger="look", **same)
    count = len(fake.requests)

    with pytest.raises(PreventUpdate):
        await refresh.refresh(client, tick=4, before=first["digest"], trigger="tick", **same)

    assert first["digest"]["is_settled"]
    assert len(fake.requests) == count


async def test_a_click_on_a_closed_vertex_opens_it(client):
    click = {"points": [{"customdata": ["parse", None]}]}
    route = {"job": "jruntime", "run": "rruntime", "checkpoint": 22}

    changes = await selection.select(
        client,
        in_gantt=click,
        in_front=None,
        open_all=None,
        toggles=[],
        chosen=[],
        route=route,
        trigger="gantt-graph",
    )

    assert changes == {"opened": ["parse"]}


async def test_the_warning_that_alerts_are_not_evaluated_stays_while_nothing_changes(client, fake, monkeypatch):
    status = await client.status()
    stopped = status.model_copy(update={"roles": {**status.roles, "alert": "unreachable"}})

    async def answer():
        return stopped

    monkeypatch.setattr(client, "status", answer)
    first = await alerts.refresh(client, tick=0, look=LOOK, search="", before=None)
    again = await alerts.refresh(client, tick=1, look=LOOK, search="", before=first["digest"])

    assert "digest" not in again
    assert texts(again["message"]) == texts(first["message"]) != ""
