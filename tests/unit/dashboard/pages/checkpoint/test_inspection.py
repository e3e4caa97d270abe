"""Tests of the buttons that read threads and stacks, and of what is shown of the answers."""

from __future__ import annotations

import httpx
import pytest
from dash.exceptions import PreventUpdate

from backend.contracts.engines import CapabilitiesOut
from backend.domain.engines import FLINK, RUNTIME, flink
from backend.domain.errors import ApiUnavailableError
from dashboard.client import ApiClient
from dashboard.components import inspection as shown
from dashboard.pages.checkpoint import inspection
from tests.support.api_examples import example
from tests.support.dash_calls import LOOK, texts
from tests.support.fake_api import FakeApi

pytestmark = pytest.mark.anyio
_ROUTE = {"job": "jB2", "run": "r", "checkpoint": 24}
_SUBJECT = {"vertex": "v1", "subtask": 1, "press": 1}


@pytest.fixture
async def fake(clock):
    return FakeApi(now=clock)


@pytest.fixture
async def client(fake):
    opened = ApiClient(transport=httpx.MockTransport(fake.handle), base_url="http://api.test")
    yield opened
    await opened.close()


def _buttons(engine, vertex="v1", subtask=1):
    found = shown.buttons(CapabilitiesOut.model_validate(engine), vertex, subtask, place="verdict").children
    return [b.disabled for b in found[:2]], " ".join(str(part.children) for part in found[2:])


def test_a_button_that_can_do_nothing_is_inactive_and_says_why():
    assert _buttons(FLINK) == ([False, False], "")
    assert _buttons(RUNTIME) == ([True, True], "Reference runtime offers no thread dumps and no flame graphs")
    assert _buttons(flink("1.16.3")) == ([False, True], "this version of the engine offers no flame graphs of subtasks")
    assert _buttons(FLINK, None, None)[1].startswith("the verdict names no subtask")


def test_each_press_asks_for_the_subtask_of_its_button():
    trigger = {"type": "inspect", "what": "threads", "vertex": "v1", "subtask": 2, "place": "verdict"}
    first = inspection.choose(clicks=[1, None], all_clicks=None, before=None, trigger=trigger)
    again = inspection.choose(clicks=[2, None], all_clicks=None, before=None, trigger=trigger)
    every = inspection.choose(clicks=[2, None], all_clicks=1, before=again["threads"], trigger="cp-threads-all")

    assert first["threads"] == {"vertex": "v1", "subtask": 2, "press": 1, "all": False}
    assert again["threads"] != first["threads"]
    assert every["threads"] == {**again["threads"], "all": True}
    stacks = inspection.choose(clicks=[None, 1], all_clicks=None, before=None, trigger={**trigger, "what": "stacks"})
    assert stacks == {"flame": {"vertex": "v1", "subtask": 2, "press": 1}, "asked": 0}
    with pytest.raises(PreventUpdate):
        inspection.choose(clicks=[None, None], all_clicks=None, before=None, trigger=trigger)


async def test_the_threads_are_shown_with_their_state_and_the_jobs_own_method(client):
    answer = await inspection.show_threads(client, subject={**_SUBJECT, "all": False}, route=_ROUTE)
    words = texts(answer["threads"].to_plotly_json())

    assert "enrich -> sink: Writer (1/2)#0" in words
    assert "timed waiting" in words
    assert "Enrich.processElement" in words
    assert "All 95 threads" in words
    assert answer["message"] is None


async def test_the_flame_graph_is_asked_for_again_until_the_engine_has_sampled(client, fake):
    async def ask(asked, trigger, drawn=None):
        return await inspection.show_flame_graph(
            client, subject=_SUBJECT, kind="full", look=LOOK["look.data"], asked=asked, route=_ROUTE, drawn=drawn,
            trigger=trigger,
        )  # fmt: skip

    first = await ask(0, "cp-flame-subject")
    second = await ask(1, "cp-flame-tick")

    assert (first["is_done"], first["drawn"], first["words"]) == (False, None, None)
    assert (second["is_done"], second["style"]) == (True, {})
    assert second["words"] == "99 % of 100 samples are in example.Enrich.processElement:164."
    with pytest.raises(PreventUpdate):
        await ask(2, "cp-flame-tick", second["drawn"])
    fake.flame_graph_count = 0
    late = await ask(39, "cp-flame-tick")
    assert late["is_done"]
    assert "still sampling" in texts(late["message"].to_plotly_json())


async def test_a_refusal_of_the_engine_is_shown_in_its_words(client, fake, monkeypatch):
    text = "flame graphs are switched off in this Flink: set rest.flamegraph.enabled: true"
    problem = example("problem").model_copy(update={"status": 409, "detail": text, "errors": []})
    answer = httpx.Response(
        409, content=problem.model_dump_json(), headers={"content-type": "application/problem+json"}
    )
    monkeypatch.setattr(fake, "_answer", lambda *_: answer)
    found = await inspection.show_flame_graph(
        client, subject=_SUBJECT, kind="full", look=LOOK["look.data"], asked=0, route=_ROUTE, drawn=None,
        trigger="cp-flame-subject",
    )  # fmt: skip

    assert "Flame graphs are switched off" in texts(found["message"].to_plotly_json())
    assert (found["is_done"], "chart" in found) == (True, False)


def _unanswered(kind):
    problem = example("problem").model_copy(
        update={"status": 503, "type": f"urn:barrierscope:problem:{kind}", "detail": "no answer", "errors": []}
    )
    return httpx.Response(503, content=problem.model_dump_json())


@pytest.mark.parametrize("kind", [None, "store-unavailable"])
async def test_while_the_api_is_away_both_are_asked_for_again(client, fake, monkeypatch, kind):
    fake.is_down = kind is None
    monkeypatch.setattr(fake, "_answer", lambda *_: _unanswered(kind))

    async def ask(asked):
        return await inspection.show_flame_graph(
            client, subject=_SUBJECT, kind="full", look=LOOK["look.data"], asked=asked, route=_ROUTE, drawn=None,
            trigger="cp-flame-tick",
        )  # fmt: skip

    # The callback shows the message, and asks again.
    with pytest.raises(ApiUnavailableError):
        await inspection.show_threads(client, subject={**_SUBJECT, "all": False}, route=_ROUTE)
    first, last = await ask(1), await ask(39)

    assert (first["is_done"], last["is_done"]) == (False, True)
    assert "It refreshes automatically" in texts(first["message"].to_plotly_json())


async def test_if_only_the_engine_does_not_answer_nothing_is_asked_for_again(client, fake, monkeypatch):
    monkeypatch.setattr(fake, "_answer", lambda *_: _unanswered("upstream"))
    found = await inspection.show_threads(client, subject={**_SUBJECT, "all": False}, route=_ROUTE)

    assert found["threads"] is None
    assert texts(found["message"].to_plotly_json()) == "No answer."
