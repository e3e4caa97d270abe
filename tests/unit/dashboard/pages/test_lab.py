"""Tests of the Lab page. Its callbacks are called as a browser calls them, over simulations that really ran."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from dash.exceptions import PreventUpdate
from plotly.utils import PlotlyJSONEncoder

from backend.contracts.simulations import EXAMPLE, SimulationIn, SimulationState, simulation_id_of
from backend.services.simulations.catalog import catalog
from dashboard import routes
from dashboard.pages.lab import controls, details, guide, more
from tests.support.api_examples import example
from tests.support.dash_calls import LOOK, texts

pytestmark = pytest.mark.anyio

_TIMEOUT = "execution.checkpointing.aligned-checkpoint-timeout"
_SMALL = {"parallelism": 2, "duration_s": 8, "settings": {"execution.checkpointing.interval": "2 s"}}
_STATE = "lab-status.children"


def wanted(**changed):
    return dict(EXAMPLE) | _SMALL | changed


def request(**changed):
    return SimulationIn.model_validate(wanted(**changed))


async def refreshed(ui, asked=None, **more):
    values = LOOK | {"lab-wanted.data": asked or wanted(), "lab-pressed.data": 0} | more
    return await ui.call(_STATE, values, by="lab-wanted.data")


def shown_of(answer):
    return {"lab-shown.data": answer["lab-shown"]["data"]}


async def test_while_the_api_does_not_answer_the_page_says_so_and_asks_again(ui):
    ui.fake.is_down = True
    answer = await refreshed(ui)

    assert "No fresh data" in texts(answer["lab-message"]["children"])
    assert answer["lab-tick"] == {"disabled": False}


# --- the request ------------------------------------------------------------------------------------------------------


async def changed(ui, by, before=None, **values):
    before = before or wanted()
    catalog = ui.fake.simulations.answer("GET", ["simulation-catalog"], b"")
    sliders = controls.sliders_of(catalog, before["shape"])
    moved = values.pop("moved", {})
    given = (
        {
            "lab-wanted.data": before,
            "lab-shape.value": before["shape"],
            "lab-protocol.value": before["protocol"],
            "lab-second.value": before["second_protocol"] or controls.NO_SECOND,
            "lab-seed.value": before["seed"],
        }
        | {
            json.dumps({"key": s.key, "type": "lab-slider"}, separators=(",", ":")) + ".value": moved.get(
                s.key, controls.value_of(s, before)
            )
            for s in sliders
        }
        | {slider(s.key).replace("lab-slider", "lab-words").replace(".value", ".children"): "" for s in sliders}
    )
    answer = await ui.call("lab-wanted.data", given | values, by=by)
    return None if answer is None else answer["lab-wanted"]["data"]


def slider(key):
    return json.dumps({"key": key, "type": "lab-slider"}, separators=(",", ":")) + ".value"


async def test_a_number_of_an_address_that_is_too_large_is_no_number(ui):
    catalog = ui.fake.simulations.answer("GET", ["simulation-catalog"], b"")
    for slider_ in controls.sliders_of(catalog, "backpressured"):
        if "." in slider_.key:
            asked = wanted(settings={slider_.key: "9" * 400})
            assert controls.value_of(slider_, asked) == slider_.own
            assert slider_.words(controls.value_of(slider_, asked))


async def test_each_control_changes_its_part_of_the_request(ui):
    assert await changed(ui, "lab-shape.value", **{"lab-shape.value": "hot-key"}) == wanted(shape="hot-key")
    one = await changed(ui, "lab-second.value", **{"lab-second.value": controls.NO_SECOND})
    assert one == wanted(second_protocol=None)
    assert await changed(ui, "lab-seed.value", **{"lab-seed.value": 8}) == wanted(seed=8)
    longer = await changed(ui, slider("duration_s"), moved={"duration_s": 90})
    assert longer == wanted(duration_s=90)
    timeout = "execution.checkpointing.timeout"
    found = await changed(ui, slider(timeout), moved={timeout: 9_000})
    assert found["settings"] == _SMALL["settings"] | {timeout: "9000 ms"}


async def test_a_slider_at_the_value_of_the_job_sets_nothing(ui):
    interval = "execution.checkpointing.interval"

    assert (await changed(ui, slider(interval), moved={interval: 5_000}))["settings"] == {}
    assert (await changed(ui, slider("parallelism"), moved={"parallelism": 4}))["parallelism"] is None
    # Dash reports a new slider as a change, which must not change the request.
    assert await changed(ui, slider(interval)) is None


async def test_a_setting_leaves_with_the_last_protocol_that_uses_it(ui):
    before = wanted(second_protocol="aligned-timeout", settings={_TIMEOUT: "3 s"})
    after = await changed(ui, "lab-second.value", before, **{"lab-second.value": "unaligned"})

    assert after["settings"] == {}


async def test_the_lists_offer_every_protocol_and_unused_sliders_are_off(ui):
    values = {"lab-wanted.data": wanted(), "lab-shape.value": "bounded", "lab-protocol.value": "gone"}
    answer = await ui.call("lab-sliders.children", values | {"lab-second.value": "capped"}, by="lab-shape.value")

    catalog = ui.fake.simulations.answer("GET", ["simulation-catalog"], b"")
    offered = [i["value"] for group in answer["lab-protocol"]["data"] for i in group["items"]]
    assert sorted(offered) == sorted(p.name for p in catalog.protocols)
    said = texts(answer["lab-said"]["children"])
    assert "Bounded sources" in said
    assert "this version does not have 'gone'" in said
    off = {s["props"]["children"][1]["props"]["id"]["key"]: s["props"]["children"][1]["props"]["disabled"]
           for s in answer["lab-sliders"]["children"]}  # fmt: skip
    assert [key for key, is_off in off.items() if is_off] == [_TIMEOUT]


# --- settings without a slider ----------------------------------------------------------------------------------------


async def opened(ui, clicks=1, by="lab-more-summary.n_clicks", asked=None, **chosen):
    asked = asked or wanted()
    values = {
        "lab-more-summary.n_clicks": clicks,
        "lab-shape.value": asked["shape"],
        "lab-protocol.value": asked["protocol"],
        "lab-second.value": asked["second_protocol"],
        "lab-wanted.data": asked,
    }
    return await ui.call("lab-more-list.children", values | chosen, by=by)


async def test_the_list_has_every_setting_of_the_chosen_protocols_each_with_a_sentence_and_a_link(ui):
    found = json.dumps((await opened(ui))["lab-more-list"]["children"])

    for setting in catalog().settings:
        is_listed = setting.least is None and (setting.protocols is None or "unaligned" in setting.protocols)
        assert (f'"{setting.key}"' in found) is is_listed, setting.key
        assert not is_listed or (setting.sentence in found and routes.lab_guide(setting.key) in found)


async def test_the_list_is_built_when_it_is_opened_or_the_address_sets_one_of_its_settings(ui):
    closed = await opened(ui, 0, "lab-shape.value")
    assert "list" not in closed.get("lab-more-list", {})
    assert closed["lab-more-count"]["children"].startswith("44 settings of the runtime")
    assert await opened(ui, 2) is None

    asked = wanted(settings={"runtime.spilling": "continuous"})
    given = await opened(ui, 0, "lab-shape.value", asked)
    assert given["lab-more"]["open"] is True
    assert "1 changed" in given["lab-more-count"]["children"]
    assert '"value": "continuous"' in json.dumps(given["lab-more-list"]["children"])


async def test_a_setting_of_the_list_changes_the_request_and_its_own_value_takes_it_out():
    client: Any = SimpleNamespace(simulation_catalog=AsyncMock(return_value=catalog()))
    id_ = {"type": "lab-setting", "key": "runtime.spilling"}

    async def set_to(value, before):
        try:
            answer = await more.choose(client, values=[value], ids=[id_], before=before, trigger=id_)
        except PreventUpdate:
            return None
        return answer["wanted"]["settings"]

    assert await set_to("continuous", wanted()) == _SMALL["settings"] | {"runtime.spilling": "continuous"}
    assert await set_to("ad-hoc", wanted(settings={"runtime.spilling": "continuous"})) == {}
    assert await set_to("ad-hoc", wanted()) is None


async def test_a_value_that_cannot_be_used_is_a_sentence_at_its_field(ui):
    key, at_once = "runtime.changelog.flush-interval", "execution.checkpointing.max-concurrent-checkpoints"
    bad = wanted(protocol="incremental-changelog", settings={key: "soon"})
    answer = await refreshed(ui, bad)
    assert "cannot run" in texts(answer["lab-status"]["children"])
    problems = answer["lab-problems"]["data"]
    assert list(problems) == [key]

    both = await refreshed(ui, wanted(settings={at_once: "2"}))
    assert list(both["lab-problems"]["data"]) == [at_once]
    assert "run one at a time; set" in both["lab-problems"]["data"][at_once]
    assert (await refreshed(ui))["lab-problems"]["data"] == {}


def test_each_sentence_is_at_its_own_field():
    ids = [{"type": "lab-problem", "key": key} for key in ("a.b", "duration_s")]

    assert more.say(problems={"a.b": "is wrong"}, ids=ids) == {"said": ["Is wrong.", ""]}
    assert more.say(problems=None, ids=ids) == {"said": ["", ""]}


def test_the_page_of_the_settings_explains_each_of_them_at_the_anchor_of_its_link():
    found = json.dumps(guide.listed(catalog()), cls=PlotlyJSONEncoder)

    for setting in catalog().settings:
        anchor = routes.lab_guide(setting.key).partition("#")[2]
        assert f'"{anchor}"' in found
        assert setting.sentence in found


# --- the state --------------------------------------------------------------------------------------------------------


async def test_a_request_without_a_kept_result_offers_to_run_it(ui):
    answer = await refreshed(ui)

    assert "not run yet" in texts(answer["lab-status"]["children"])
    assert answer["lab-results"]["className"] == "lab-results is-empty"
    assert answer["lab-tick"]["disabled"] is True


async def test_a_first_visit_shows_the_kept_example_and_says_that_it_is_one(ui):
    ui.fake.simulations.add_completed(request(), is_example=True)
    answer = await refreshed(ui)

    assert "This is an example, which the server simulated by itself." in texts(answer["lab-status"]["children"])
    assert answer["lab-results"]["className"] == "lab-results has-two"


async def test_a_run_is_queued_runs_and_shows_its_results(ui):
    pressed = {"lab-run.n_clicks": 1, "lab-wanted.data": wanted(), "lab-pressed.data": 0}
    assert (await ui.call("lab-pressed.data", pressed, by="lab-run.n_clicks"))["lab-pressed"]["data"] == 1

    queued = await refreshed(ui)
    assert "queued 1 simulation before it" in texts(queued["lab-status"]["children"])
    assert (queued["lab-cancel"]["disabled"], queued["lab-tick"]["disabled"]) == (False, False)
    assert "Aligned and Unaligned: 40 %" in texts((await refreshed(ui))["lab-status"]["children"])
    done = await refreshed(ui)
    assert "completed" in texts(done["lab-status"]["children"])
    assert done["lab-results"]["className"] == "lab-results has-two"
    said = texts(done["lab-differences"]["children"])
    assert "End-to-end duration, median" in said
    assert "simulated" in said
    assert done["lab-tick"]["disabled"] is True
    again = await refreshed(ui, **{"lab-digest.data": done["lab-digest"]["data"]})
    assert "lab-differences" not in again


async def test_a_queue_that_no_worker_takes_says_so(ui, clock):
    ui.fake.simulations.is_held = True
    ui.fake.simulations.answer("POST", ["simulations"], request().model_dump_json().encode())
    later = clock() + timedelta(seconds=30)
    ui.fake.simulations.set(simulation_id_of(request()), queue_position=0, as_of=later)

    assert "Is the role lab running?" in texts((await refreshed(ui))["lab-status"]["children"])


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        (SimulationState.FAILED, "it needs more than 120 s of CPU time", "failed The simulation failed: it needs more"),
        (SimulationState.CANCELLED, None, "cancelled The simulation was cancelled."),
    ],
)
async def test_other_ends_have_their_words(ui, state, reason, words):
    ui.fake.simulations.answer("POST", ["simulations"], request().model_dump_json().encode())
    ui.fake.simulations.set(simulation_id_of(request()), state=state, reason=reason)
    answer = await refreshed(ui)

    assert words in texts(answer["lab-status"]["children"])
    assert answer["lab-cancel"]["disabled"] is True


async def test_a_running_simulation_can_be_cancelled(ui):
    ui.fake.simulations.answer("POST", ["simulations"], request().model_dump_json().encode())
    values = {"lab-cancel.n_clicks": 1, "lab-wanted.data": wanted(), "lab-pressed.data": 3}
    answer = await ui.call("lab-pressed.data", values, by="lab-cancel.n_clicks")

    assert answer["lab-pressed"]["data"] == 4
    assert "cancelled" in texts((await refreshed(ui))["lab-status"]["children"])


async def test_a_limit_and_a_wrong_address_are_named(ui):
    async def said(asked):
        values = {"lab-run.n_clicks": 1, "lab-wanted.data": asked, "lab-pressed.data": 0}
        return texts((await ui.call("lab-pressed.data", values, by="lab-run.n_clicks"))["lab-message"]["children"])

    assert "96" in await said(wanted(parallelism=200))
    assert "'x' of seed cannot be used" in await said(wanted(seed="x"))
    assert "'x' of seed cannot be used" in texts((await refreshed(ui, wanted(seed="x")))["lab-status"]["children"])


async def test_results_of_other_settings_stay_but_are_dimmed(ui):
    ui.fake.simulations.add_completed(request())
    done = await refreshed(ui)
    answer = await refreshed(ui, wanted(seed=99), **shown_of(done))

    assert answer["lab-results"]["className"] == "lab-results is-stale"
    assert "lab-differences" not in answer


# --- the details ------------------------------------------------------------------------------------------------------


async def test_each_chart_is_drawn_only_in_view_and_only_once_for_the_same_data(ui):
    ui.fake.simulations.add_completed(request())
    done = await refreshed(ui)
    for name in ("timeline", "gantt", "front", "space-time"):
        for side in ("a", "b"):
            chart = f"lab-{name}-{side}"
            values = LOOK | shown_of(done) | {"lab-at.value": 5, "lab-checkpoint.data": None}
            by, figure = f"{chart}-visible.data", f"{chart}-graph.figure"
            assert await ui.call(figure, values, by=by) is None
            drawn = await ui.call(figure, values | {by: True}, by=by)
            assert drawn[f"{chart}-data"]["data"]["rows"]
            height = drawn[f"{chart}-graph"]["figure"]["layout"]["height"]
            assert done[f"{chart}-box"]["style"] == {"height": f"{height}px"}
            same = {by: True, f"{chart}-digest.data": drawn[f"{chart}-digest"]["data"]}
            assert await ui.call(figure, values | same, by=by) is None


@pytest.mark.parametrize("kind", ["timeline", "gantt", "space-time"])
async def test_two_charts_beside_each_other_have_the_same_axes_unless_the_viewer_wants_their_own(ui, kind):
    a, b = await layouts_of(ui, kind, "same")

    for axis in ("xaxis", "yaxis"):
        assert a[axis]["range"] == b[axis]["range"]
        assert a[axis].get("tickvals") == b[axis].get("tickvals")
    # The durations of the two protocols differ, so a chart of its own has other axes.
    axis = "xaxis" if kind != "timeline" else "yaxis"
    assert a[axis]["range"][1] > 100
    own = await layouts_of(ui, kind, "own")
    assert own[0][axis]["range"] != own[1][axis]["range"]
    longest = max(own, key=lambda layout: layout[axis]["range"][1])
    assert longest[axis]["range"] == a[axis]["range"]


async def layouts_of(ui, kind, axes):
    ui.fake.simulations.add_completed(request())
    values = LOOK | shown_of(await refreshed(ui)) | {"lab-checkpoint.data": None, "lab-at.value": 5}
    values["lab-axes.value"] = axes
    layouts = []
    for side in ("a", "b"):
        chart = f"lab-{kind}-{side}"
        by = f"{chart}-visible.data"
        drawn = await ui.call(f"{chart}-graph.figure", values | {by: True}, by=by)
        layouts.append(drawn[f"{chart}-graph"]["figure"]["layout"])

    return layouts


@pytest.mark.parametrize(("axes", "words"), [("same", "lengths can be compared"), ("own", "not the lengths")])
async def test_the_page_says_whether_lengths_can_be_compared(ui, axes, words):
    answer = await ui.call("lab-axes-words.children", {"lab-axes.value": axes}, by="lab-axes.value")

    assert words in answer["lab-axes-words"]["children"]


async def test_the_timeline_has_virtual_times_and_no_date(ui):
    ui.fake.simulations.add_completed(request())
    values = LOOK | shown_of(await refreshed(ui)) | {"lab-timeline-a-visible.data": True}
    answer = await ui.call("lab-timeline-a-graph.figure", values, by="lab-timeline-a-visible.data")
    figure = answer["lab-timeline-a-graph"]["figure"]

    hovers = [words for trace in figure["data"] for words in trace.get("hovertext", [])]
    assert hovers
    assert all("of virtual time" in words and "1970" not in words for words in hovers)
    assert "virtual time" in figure["layout"]["xaxis"]["title"]["text"]


async def test_one_protocol_alone_has_no_comparison(ui):
    ui.fake.simulations.add_completed(request(second_protocol=None))
    answer = await refreshed(ui, wanted(second_protocol=None))

    assert answer["lab-results"]["className"] == "lab-results has-one"
    assert "compared with" not in texts(answer["lab-differences"]["children"])


async def test_a_checkpoint_is_chosen_by_list_button_or_click(ui):
    ui.fake.simulations.add_completed(request())
    shown = shown_of(await refreshed(ui))
    ids, default = shown["lab-shown.data"]["ids"], shown["lab-shown.data"]["default"]

    async def chosen(by, value, **more):
        answer = await ui.call("lab-checkpoint.data", shown | {by: value} | more, by=by)
        return None if answer is None else answer["lab-checkpoint"]["data"]

    click = {"points": [{"customdata": ["aligned", ids[0], 0]}]}
    assert await chosen("lab-pick.value", str(ids[0])) == ids[0]
    assert await chosen("lab-pick.value", str(default)) is None
    assert await chosen("lab-back.n_clicks", 1) == ids[ids.index(default) - 1]
    assert await chosen("lab-back.n_clicks", 1, **{"lab-checkpoint.data": ids[0]}) is None
    assert await chosen("lab-timeline-a-graph.clickData", click) == ids[0]
    moved = await ui.call(
        "lab-head-a.children", LOOK | shown | {"lab-checkpoint.data": ids[0]}, by="lab-checkpoint.data"
    )
    assert moved["lab-pick"]["value"] == str(ids[0])
    assert "end to end" in texts(moved["lab-head-a"]["children"])


async def test_an_expired_result_says_so_when_a_chart_comes_into_view(ui):
    ui.fake.simulations.add_completed(request())
    shown = shown_of(await refreshed(ui))
    ui.fake.simulations.known.clear()
    values = LOOK | shown | {"lab-front-a-visible.data": True}
    answer = await ui.call("lab-front-a-graph.figure", values, by="lab-front-a-visible.data")

    assert "has expired" in texts(answer["lab-message"]["children"])


async def test_a_chart_without_an_answer_says_to_reload_because_it_has_no_button(ui):
    ui.fake.simulations.add_completed(request())
    shown = shown_of(await refreshed(ui))
    ui.fake.is_down = True
    values = LOOK | shown | {"lab-front-a-visible.data": True}
    answer = await ui.call("lab-front-a-graph.figure", values, by="lab-front-a-visible.data")

    said = texts(answer["lab-message"]["children"])
    assert "When the service answers again, reload the page." in said
    assert "button" not in said


async def test_phases_without_every_subtask_are_shown_as_lower_bounds():
    found = example("simulated_checkpoint")
    bound = found.checkpoint.model_copy(update={"is_lower_bound": True, "alignment_max_ms": 4_000})

    def facts(checkpoint):
        shown = details.Shown(None, found.model_copy(update={"checkpoint": checkpoint}), is_beside=False)
        return texts(details.head(shown, "A", "aligned"))

    assert "alignment up to > 4.0 s" in facts(bound)
    assert "alignment up to 4.0 s" in facts(bound.model_copy(update={"is_lower_bound": False}))
