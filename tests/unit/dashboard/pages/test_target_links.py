"""Tests of the dialog for the links of a target: what was typed stays until it is stored or refused."""

from __future__ import annotations

import httpx
import pytest
from dash.exceptions import PreventUpdate

from dashboard.client import ApiClient
from dashboard.pages import target_links
from tests.support.dash_calls import texts
from tests.support.fake_api import FakeApi

pytestmark = pytest.mark.anyio
_URL = "https://grafana.example/d/tm?var-tm={taskmanager}"


@pytest.fixture
async def fake(clock):
    return FakeApi(now=clock)


@pytest.fixture
async def client(fake):
    opened = ApiClient(transport=httpx.MockTransport(fake.handle), base_url="http://api.test")
    yield opened
    await opened.close()


def _values(rows):
    """Return what the fields of the rows contain."""
    return [tuple(label.children[1].value for label in row.children[:2]) for row in rows]


async def _save(client, names, urls, ui="", version=""):
    return await target_links.save(client, saves=1, subject="tflink", version=version, names=names, urls=urls, ui=ui)


async def test_the_dialog_opens_with_one_empty_row_or_with_the_stored_links(client, fake):
    empty = await target_links.open_dialog(client, clicks=1, pressed={"of": "tflink"})
    await _save(client, ["Grafana"], [_URL], "https://flink.example")
    stored = await target_links.open_dialog(client, clicks=2, pressed={"of": "tflink"})

    assert (_values(empty["rows"]), empty["ui"], empty["is_open"]) == ([("", "")], "", True)
    assert (_values(stored["rows"]), stored["ui"]) == ([("Grafana", _URL)], "https://flink.example")
    assert stored["title"] == "Links of production-eu"


async def test_links_that_someone_else_changed_meanwhile_are_not_overwritten(client, fake):
    read = await target_links.open_dialog(client, clicks=1, pressed={"of": "tflink"})
    await _save(client, ["Grafana"], [_URL], version=read["version"])
    refused = await _save(client, ["Logs"], [_URL], version=read["version"])

    assert "were changed meanwhile" in repr(refused["answer"])
    assert "is_open" not in refused, "what was typed stays"
    assert [link.name for link in fake.targets["tflink"].links] == ["Grafana"]
    again = await target_links.open_dialog(client, clicks=2, pressed={"of": "tflink"})
    assert (await _save(client, ["Logs"], [_URL], version=again["version"]))["is_open"] is False


def test_a_row_is_added_or_removed_and_the_others_keep_what_was_typed():
    added = target_links.edit(more=1, drops=[None], names=["a"], urls=[None], trigger="links-more")
    assert _values(added["rows"]) == [("a", ""), ("", "")]
    removed = target_links.edit(
        more=1, drops=[1, None], names=["a", "b"], urls=["x", "y"], trigger={"type": "link-drop", "row": 0}
    )
    assert _values(removed["rows"]) == [("b", "y")]
    with pytest.raises(PreventUpdate):
        target_links.edit(more=1, drops=[], names=[""] * 20, urls=[""] * 20, trigger="links-more")


async def test_empty_rows_are_left_out(client, fake):
    saved = await _save(client, ["Grafana", None, " "], [_URL, "", None])

    assert saved["is_open"] is False
    assert [link.name for link in fake.targets["tflink"].links] == ["Grafana"]


@pytest.mark.parametrize(
    ("name", "url", "said"),
    [
        ("Bad", "javascript:alert(1)", "Bad: the template does not begin with http:// or https://."),
        ("Bad", "http://a.example/{nobody}", "the unknown placeholder {nobody}"),
        ("", "http://a.example/", "Link 1: the name is missing."),
        ("Bad", "", "Bad: the address is missing."),
    ],
)
async def test_a_link_that_is_refused_is_named_and_the_dialog_stays_open(client, fake, name, url, said):
    answer = await _save(client, [name], [url])

    assert said in texts(answer["answer"].to_plotly_json())
    assert "is_open" not in answer
    assert fake.targets["tflink"].links == []
