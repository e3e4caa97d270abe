"""Tests of the card with the curve over the cap, over curves that really ran."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backend.contracts.cap_curves import CapCurveIn, cap_curve_id_of
from backend.contracts.simulations import EXAMPLE, SimulationState
from dashboard.pages.lab import curve
from tests.support.dash_calls import LOOK, texts

pytestmark = pytest.mark.anyio

_CAP, _ON_CAP = "runtime.inflight-cap.bytes", "runtime.inflight-cap.on-cap"
_INTERVAL = "execution.checkpointing.interval"
_WANTED = dict(EXAMPLE) | {"parallelism": 2, "duration_s": 6, "settings": {_INTERVAL: "2 s"}}
_ASKED = CapCurveIn(
    shape="backpressured", parallelism=2, duration_s=6, settings={_INTERVAL: "2 s"}, caps_bytes=[0, 8_192]
)
_NAME = cap_curve_id_of(_ASKED)


async def refreshed(ui, wanted=None, caps="0, 8 kb", **more):
    values = {"lab-wanted.data": wanted or _WANTED, "lab-curve-caps.value": caps, "lab-curve-pressed.data": 0}
    return await ui.call("lab-curve-status.children", LOOK | values | more, by="lab-wanted.data")


async def pressed(ui, button, wanted=None, caps="0, 8 kb"):
    values = {"lab-wanted.data": wanted or _WANTED, "lab-curve-caps.value": caps, "lab-curve-pressed.data": 0}
    return await ui.call("lab-curve-pressed.data", values | {f"{button}.n_clicks": 1}, by=f"{button}.n_clicks")


async def test_a_curve_is_queued_runs_and_is_drawn_without_being_drawn_twice(ui):
    assert "not drawn yet" in texts((await refreshed(ui))["lab-curve-status"]["children"])
    assert (await pressed(ui, "lab-curve-run"))["lab-curve-pressed"] == {"data": 1}

    queued = await refreshed(ui)
    assert (queued["lab-curve-cancel"], queued["lab-curve-tick"]) == ({"disabled": False}, {"disabled": False})
    assert "40 % of the runs is simulated" in texts((await refreshed(ui))["lab-curve-status"]["children"])
    done = await refreshed(ui)

    assert "4 runs of 6.0 s simulated." in texts(done["lab-curve-status"]["children"])
    assert done["lab-curve-result"] == {"className": curve.SHOWN}
    assert (done["lab-curve-cancel"], done["lab-curve-tick"]) == ({"disabled": True}, {"disabled": True})
    assert [row[1] for row in done["lab-curve-data"]["data"]["rows"]] == [None, 0, 8_192, None]
    assert done["lab-curve-sentence"]["children"] == done["lab-curve-summary"]["children"]
    again = await refreshed(ui, **{"lab-curve-digest.data": done["lab-curve-digest"]["data"]})
    assert "lab-curve-graph" not in again


async def test_a_curve_can_be_stopped_and_drawn_again(ui):
    await pressed(ui, "lab-curve-run")
    ui.fake.cap_curves.is_held = True

    await pressed(ui, "lab-curve-cancel")
    answer = await refreshed(ui)

    assert "The curve was stopped" in texts(answer["lab-curve-status"]["children"])
    assert answer["lab-curve-tick"] == {"disabled": True}
    await pressed(ui, "lab-curve-run")
    assert ui.fake.cap_curves.of(_NAME).state is SimulationState.QUEUED


async def test_stopping_a_curve_that_has_expired_says_so(ui):
    answer = await pressed(ui, "lab-curve-cancel")

    assert "This curve is no longer known." in texts(answer["lab-message"]["children"])


async def test_a_curve_of_other_controls_stays_dimmed_until_there_is_a_new_one(ui):
    answer = await refreshed(ui, _WANTED | {"seed": 8}, **{"lab-curve-digest.data": "of the old one"})

    assert answer["lab-curve-result"] == {"className": curve.STALE}
    assert (await refreshed(ui))["lab-curve-result"] == {"className": curve.EMPTY}


async def test_a_curve_that_failed_says_why(ui):
    await pressed(ui, "lab-curve-run")
    ui.fake.cap_curves.set(_NAME, state=SimulationState.FAILED, reason="it needs more than 120 s of CPU time")

    assert "more than 120 s of CPU time" in texts((await refreshed(ui))["lab-curve-status"]["children"])


async def test_a_curve_that_no_worker_takes_asks_whether_the_role_runs(ui):
    await pressed(ui, "lab-curve-run")
    queued = ui.fake.cap_curves.of(_NAME)
    ui.fake.cap_curves.set(_NAME, queue_position=0, as_of=queued.queued_at + timedelta(seconds=11))
    ui.fake.cap_curves.is_held = True

    assert "Is the role lab running?" in texts((await refreshed(ui))["lab-curve-status"]["children"])


async def test_a_curve_that_is_too_large_is_refused_in_one_sentence(ui):
    answer = await pressed(ui, "lab-curve-run", _WANTED | {"parallelism": None, "duration_s": 300}, "")

    assert "run at most" in texts(answer["lab-message"]["children"])
    assert "lab-curve-pressed" not in answer


async def test_while_the_api_does_not_answer_the_card_says_so_and_asks_again(ui):
    ui.fake.is_down = True
    answer = await refreshed(ui)

    assert "The page asks again." in texts(answer["lab-curve-status"]["children"])
    assert answer["lab-curve-tick"] == {"disabled": False}


@pytest.mark.parametrize(
    ("caps", "expected"),
    [
        ("", None),
        (" , ", None),
        ("64 kb, 0,8kb", [0, 8_192, 65_536]),
        ("1 mb", [1_048_576]),
        ("500, 500", [500]),
        ("soon", "The cap 'soon' is not a size, such as 64 kb or 1 mb."),
        ("5 s", "The cap '5 s' is not a size, such as 64 kb or 1 mb."),
        ("-1", "The cap '-1' is not a size, such as 64 kb or 1 mb."),
        (",".join("1" * 13), "13 caps are more than 12; leave some out."),
    ],
)
def test_caps_are_sizes_or_a_sentence_says_what_is_wrong(caps, expected):
    assert curve.caps_of(caps) == expected


@pytest.mark.parametrize(
    ("wanted", "caps", "said"),
    [
        (_WANTED, "soon", "The cap 'soon' is not a size"),
        (_WANTED, "9999999999 mb", "The caps cannot be used"),
        (_WANTED | {"duration_s": "long"}, "", "The value 'long' of duration_s cannot be used"),
    ],
)
async def test_what_cannot_be_drawn_is_said_and_not_asked_for(ui, wanted, caps, said):
    ui.fake.requests.clear()

    assert said in texts((await refreshed(ui, wanted, caps))["lab-curve-status"]["children"])
    assert said in texts((await pressed(ui, "lab-curve-run", wanted, caps))["lab-message"]["children"])
    assert not [r for r in ui.fake.requests if "cap-curves" in r]


async def test_the_cap_of_the_controls_and_settings_of_other_protocols_are_left_out(ui):
    settings = {_CAP: "8 kb", _ON_CAP: "partial", "execution.checkpointing.aligned-checkpoint-timeout": "2 s"}
    catalog = ui.fake.simulations.answer("GET", ["simulation-catalog"], b"")

    asked = curve.request_of(_WANTED | {"settings": settings}, "", catalog)
    assert isinstance(asked, CapCurveIn)
    assert (asked.settings, asked.caps_bytes) == ({_ON_CAP: "partial"}, None)
