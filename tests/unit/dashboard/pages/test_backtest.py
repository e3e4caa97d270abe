"""The callbacks of the pages that follow work in a queue, while the API does not answer or refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from backend.contracts.backtests import BacktestIn
from backend.contracts.simulations import EXAMPLE
from backend.domain import spelling
from backend.domain.backtest import Part
from tests.support.dash_calls import LOOK, texts
from tests.support.fake_api import problem
from tests.support.made_up_backtests import COMPLETED

pytestmark = pytest.mark.anyio

_ROUTE = {"backtest-route.data": {"job": "jruntime"}}
_SAID = "backtest-state.children"
_RETRIED = {
    "whatif": ("whatif-said.children", "whatif-answer-retry", LOOK | {"whatif-wanted.data": {"settings": {}}}),
    "whatif sliders": ("whatif-sliders.children", "whatif-fill-retry", {"whatif-wanted.data": {"settings": {}}}),
    "runbook": ("runbook-text.children", "runbook-retry", {"runbook-route.data": {"rule": "CheckpointStuck"}}),
    "lab": (
        "lab-sliders.children",
        "lab-fill-retry",
        {
            "lab-wanted.data": dict(EXAMPLE),
            "lab-shape.value": EXAMPLE["shape"],
            "lab-protocol.value": EXAMPLE["protocol"],
            "lab-second.value": "none",
        },
    ),
}
"""Requests that only the first call of a page sends: an output, the retry interval, and the values of the inputs."""
_WHAT_IF = {
    "whatif-route.data": {"job": "jruntime"},
    "whatif-answered.data": {"settings": {"mode": "unaligned"}, "digest": "", "tier": "formulas"},
}


def followed_values(name: str = COMPLETED) -> dict[str, Any]:
    return LOOK | _ROUTE | {"backtest-id.data": name, "backtest-pressed.data": 0}


async def test_a_backtest_is_asked_for_again_until_the_api_answers_and_the_message_goes(ui):
    ui.fake.is_down = True
    away = await ui.call(_SAID, followed_values(), by="backtest-tick.n_intervals")

    assert "does not answer (ConnectError)" in texts(away["backtest-state"]["children"])
    assert away["backtest-tick"] == {"disabled": False}
    assert set(away) == {"backtest-state", "backtest-tick"}, "what the page shows stays"

    ui.fake.is_down = False
    back = await ui.call(_SAID, followed_values(), by="backtest-tick.n_intervals")
    assert "Replayed." in texts(back["backtest-state"]["children"])
    assert back["backtest-tick"] == {"disabled": True}


async def test_a_refused_backtest_is_said_and_not_asked_for_again(ui, monkeypatch):
    monkeypatch.setattr(ui.fake.backtests, "answer", lambda *_: problem(403, "the role is missing"))
    answer = await ui.call(_SAID, followed_values(), by="backtest-tick.n_intervals")

    assert "The request was refused: the role is missing" in texts(answer["backtest-state"]["children"])
    assert answer["backtest-tick"] == {"disabled": True}


async def test_the_head_is_asked_for_again_only_while_it_is_missing(ui):
    values = _ROUTE | {"status-tick.n_intervals": 1}
    ui.fake.is_down = True
    away = await ui.call("backtest-head.children", values, by="status-tick.n_intervals")
    assert "No fresh data" in texts(away["backtest-message"]["children"])

    ui.fake.is_down = False
    back = await ui.call("backtest-head.children", values, by="status-tick.n_intervals")
    assert (back["backtest-message"]["children"], back["backtest-title"]["data"][:9]) == (None, "Backtest:")
    known = values | {"backtest-title.data": "Backtest: j"}
    assert await ui.call("backtest-head.children", known, by="status-tick.n_intervals") is None


@pytest.mark.parametrize("name", _RETRIED)
async def test_a_page_that_was_opened_while_the_api_was_away_asks_again_until_it_answers(ui, name):
    output, retry, values = _RETRIED[name]
    values = {"whatif-route.data": {"job": "jruntime"}} | values
    ui.fake.is_down = True
    away = await ui.call(output, values, by=f"{retry}.n_intervals")
    assert away[retry] == {"disabled": False}
    assert output.partition(".")[0] not in away
    messages = [v["children"] for k, v in away.items() if k.endswith("-message")]
    # The request of the sliders is also that of the prediction, which has the message.
    assert all("It refreshes automatically." in texts(m) for m in messages)
    assert bool(messages) == (name != "whatif sliders")

    ui.fake.is_down = False
    back = await ui.call(output, values, by=f"{retry}.n_intervals")
    assert back[retry] == {"disabled": True}
    assert texts(back[output.partition(".")[0]]["children"])
    assert all(v["children"] is None for k, v in back.items() if k.endswith("-message"))


async def test_a_refused_what_if_is_not_asked_for_again(ui, monkeypatch):
    monkeypatch.setattr(ui.fake.what_ifs, "answer", lambda *_: problem(422, "too few checkpoints"))
    output, retry, values = _RETRIED["whatif"]
    answer = await ui.call(output, _WHAT_IF | values, by=f"{retry}.n_intervals")

    assert answer[retry] == {"disabled": True}
    assert "too few checkpoints" in texts(answer["whatif-message"]["children"])


async def test_what_then_happened_has_its_own_message_which_goes_when_the_api_answers(ui):
    values = LOOK | _WHAT_IF
    ui.fake.is_down = True
    away = await ui.call("whatif-then.children", values, by="tick.n_intervals")
    assert set(away) == {"whatif-then-message", "whatif-then-digest"}

    ui.fake.is_down = False
    back = await ui.call("whatif-then.children", values, by="tick.n_intervals")
    assert back["whatif-then-message"] == {"children": None}


async def test_an_action_that_got_no_answer_does_not_promise_to_be_repeated(ui):
    ui.fake.is_down = True
    values = _ROUTE | {"backtest-run.n_clicks": 1, "backtest-parts.value": ["verdict"], "backtest-count.value": "100"}
    answer = await ui.call("backtest-message.children", values, by="backtest-run.n_clicks")

    said = texts(answer["backtest-message"]["children"])
    assert "The page does not repeat this request. When the service answers again, press the button again." in said
    assert "automatically" not in said


@pytest.mark.parametrize("part", ["verdict", "advice", "warning"])
@pytest.mark.parametrize("is_asked", [False, True])
async def test_a_chart_of_a_part_that_was_not_replayed_claims_nothing(ui, part, is_asked):
    known = ui.fake.backtests.known
    result = known[COMPLETED].result
    changed = getattr(result, part).model_copy(update={"checkpoint_count": 0}) if is_asked else None
    known[COMPLETED] = known[COMPLETED].model_copy(update={"result": result.model_copy(update={part: changed})})
    answer = await ui.call(_SAID, followed_values(), by="backtest-tick.n_intervals")

    charts = {"verdict": "said", "advice": "effects", "warning": "warnings"}
    empty = {
        name for name in charts.values() if "This part was not replayed." in repr(answer[f"backtest-{name}-graph"])
    }
    assert empty == {charts[part]}


async def test_a_what_if_that_waits_for_a_better_tier_asks_again_or_stops_if_it_is_refused(ui, monkeypatch):
    values = _WHAT_IF | {"whatif-better.n_intervals": 1}
    ui.fake.is_down = True
    assert await ui.call("whatif-ready.data", values, by="whatif-better.n_intervals") is None

    ui.fake.is_down = False
    monkeypatch.setattr(ui.fake.what_ifs, "answer", lambda *_: problem(404, "no such job"))
    answer = await ui.call("whatif-ready.data", values, by="whatif-better.n_intervals")
    assert answer == {"whatif-ready": {"data": 1}, "whatif-better": {"disabled": True}}


async def test_a_confirmation_is_asked_for_again_too(ui):
    ui.fake.is_down = True
    values = _WHAT_IF | {"whatif-confirmation.data": "w1", "whatif-pressed.data": 0}
    answer = await ui.call("whatif-state.children", values, by="whatif-tick.n_intervals")

    assert "The page asks again." in texts(answer["whatif-state"]["children"])
    assert answer["whatif-tick"] == {"disabled": False}


@pytest.mark.parametrize("count", [2_000, 100, 750])
async def test_the_controls_show_what_the_shown_result_was_asked_for_until_the_viewer_changes_them(ui, count):
    known = ui.fake.backtests.known
    request = BacktestIn(parts=[Part.ADVICE], checkpoint_count=count)
    known[COMPLETED] = known[COMPLETED].model_copy(update={"request": request})
    first = await ui.call(_SAID, followed_values(), by="backtest-id.data")

    assert first["backtest-count"]["value"] == str(count)
    assert str(count) in [choice["value"] for choice in first["backtest-count"]["data"]]
    assert first["backtest-parts"] == {"value": ["advice"]}
    assert first["backtest-filled"] == {"data": COMPLETED}

    later = await ui.call(_SAID, followed_values() | {"backtest-filled.data": COMPLETED}, by="look.data")
    assert "backtest-count" not in later
    assert "backtest-parts" not in later
    assert f"at most the newest {spelling.count(count)} checkpoints".replace("\u202f", " ") in texts(
        later["backtest-state"]["children"]
    )


async def test_a_result_since_an_instant_says_so(ui):
    known = ui.fake.backtests.known
    request = BacktestIn(since=datetime(2026, 11, 20, 8, 30, tzinfo=UTC))
    known[COMPLETED] = known[COMPLETED].model_copy(update={"request": request})
    answer = await ui.call(_SAID, followed_values(), by="backtest-id.data")

    words = "at most the newest 500 checkpoints, triggered from 2026-11-20 08:30 UTC on."
    assert words in texts(answer["backtest-state"]["children"])
