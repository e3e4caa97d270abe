"""Tests of the application over HTTP, as a browser uses it: addresses, headers, footer and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs_version

import dashboard
from backend.contracts.status import StatusOut
from tests.support.api_examples import example
from tests.support.dash_calls import LOOK, checkpoint_values, job_values, texts

pytestmark = pytest.mark.anyio

_ASSETS = Path(dashboard.__file__).parent / "assets"


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/ui/", "fleet-grid"),
        ("/ui/targets", "target-form"),
        ("/ui/jobs/jE", "timeline-graph"),
        ("/ui/jobs/jE/runs/rE/checkpoints/14", "gantt-graph"),
    ],
)
async def test_an_address_leads_to_its_page(ui, path, part):
    answer = await ui.call("page.children", {"url.pathname": path}, by="url.pathname")

    assert f'"id": "{part}"' in json.dumps(answer)
    page = await ui.http.get(path)
    assert page.status_code == 200
    assert page.text.lower().startswith("<!doctype html")


async def test_an_unknown_address_says_so_with_status_404(ui):
    answer = await ui.call("page.children", {"url.pathname": "/ui/nope"}, by="url.pathname")

    assert "Page not found" in texts(answer["page"]["children"])
    assert (await ui.http.get("/ui/nope")).status_code == 404


async def test_every_page_forbids_foreign_scripts_and_frames(ui):
    for path in ("/ui/", "/ui/targets", "/ui/nope"):
        headers = (await ui.http.get(path)).headers
        policy = dict(p.split(" ", 1) for p in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert "unsafe-inline" not in policy["script-src"]
        assert "unsafe-eval" not in policy["script-src"]
        assert headers["x-content-type-options"] == "nosniff"


async def test_data_of_a_page_has_no_policy_for_documents_but_keeps_its_type(ui):
    data = (await ui.http.get("/ui/_dash-dependencies")).headers
    script = (await ui.http.get("/ui/assets/barrierscope.js")).headers

    assert data["content-type"] == "application/json"
    assert ("content-security-policy" in data, "content-security-policy" in script) == (False, True)
    assert data["x-content-type-options"] == script["x-content-type-options"] == "nosniff"


async def test_charts_are_drawn_by_the_version_of_plotly_that_the_figures_are_checked_against(ui):
    script = await ui.http.get("/ui/_dash-component-suites/plotly/package_data/plotly.min.js")

    assert script.status_code == 200
    assert f"plotly.js (scatter, bar, heatmap - minified) v{get_plotlyjs_version()}" in script.text[:200]


async def test_the_script_that_others_use_is_loaded_before_them(ui):
    scripts = re.findall(r'src="/ui/assets/(\w+)\.js\?', (await ui.http.get("/ui/")).text)

    assert scripts[0] == "barrierscope"
    assert {"requests", "focus", "cells", "session"} < set(scripts)


async def test_each_function_that_dash_calls_in_the_browser_is_defined_in_one_script(ui):
    in_browser = [c["clientside_function"] for c in (await ui.http.get("/ui/_dash-dependencies")).json()]
    called = {f["function_name"] for f in in_browser if f is not None and f["namespace"] == "bs"}
    defined = [
        name
        for script in _ASSETS.glob("*.js")
        for block in script.read_text(encoding="utf-8").split("    addCallbacks({\n")[1:]
        for name in re.findall(r"^ {8}(\w+): ", block, re.MULTILINE)
    ]

    assert len(called) > 30
    assert sorted(called) == sorted(defined)


async def test_nothing_is_fetched_from_another_server(ui):
    page = (await ui.http.get("/ui/")).text
    css = (await ui.http.get("/ui/assets/barrierscope.css")).text
    script = (await ui.http.get("/ui/assets/barrierscope.js")).text

    for body in (page, css, script):
        assert "https://" not in body
        assert "http://" not in body.replace("http://www.w3.org", "")


async def test_the_footer_shows_the_state_of_the_service(ui):
    answer = await ui.call("service-state.children", {"status-tick.n_intervals": 1}, by="status-tick.n_intervals")

    assert "3 targets, 1 unhealthy" in texts(answer["service-state"]["children"])


async def test_every_page_says_that_a_list_of_targets_is_wrong_and_says_it_anew_only_if_it_changes(ui):
    async def asked(before):
        values = {"status-tick.n_intervals": 1, "unread-sources-digest.data": before}
        return await ui.call("service-state.children", values, by="status-tick.n_intervals")

    none = await asked(None)
    ui.fake.unread_sources = StatusOut.model_validate(example("status")).unread_sources
    said = await asked(none["unread-sources-digest"]["data"])
    again = await asked(said["unread-sources-digest"]["data"])

    assert none["unread-sources"]["children"] == []
    assert "targets[0].intervall: is not a key" in texts(said["unread-sources"]["children"])
    assert "unread-sources" not in again


_ENDED = {"job": "jE", "run": "rE", "checkpoint": 14}


@pytest.mark.parametrize(
    ("output", "values", "message", "digest"),
    [
        ("fleet-delta.data", {"fleet-view.data": {"first": 0, "ids": ["jE"]}}, "fleet-message", "fleet-page"),
        ("job-head.children", job_values("jE"), "job-message", "job-digest"),
        ("cp-head.children", checkpoint_values("jE", 14), "cp-message", "cp-digest"),
        ("targets-rows.nodes", LOOK, "targets-message", "targets-digest"),
        ("advice-cards.children", LOOK | {"advice-route.data": {"job": "jruntime"}}, "advice-message", "advice-digest"),
        (
            "job-progress-head.children",
            LOOK | {"job-progress-target.data": _ENDED},
            "job-progress-message",
            "job-progress-digest",
        ),
    ],
)
async def test_if_the_api_is_down_a_page_shows_the_error_and_keeps_its_content(ui, output, values, message, digest):
    ui.fake.is_down = True

    answer = await ui.call(output, values, by="fleet-view.data" if "fleet-view.data" in values else "look.data")

    assert set(answer) == {message, digest}
    assert "No fresh data" in texts(answer[message]["children"])
    assert "does not answer (ConnectError)" in texts(answer[message]["children"])

    # The digest is cleared, so that the first response after the error removes the message, even if nothing changed.
    assert not any(answer[digest].values())
    ui.fake.is_down = False
    again = await ui.call(output, values, by="fleet-view.data" if "fleet-view.data" in values else "look.data")
    assert again[message]["children"] is None


async def test_an_unknown_job_or_checkpoint_gives_a_message(ui):
    job = await ui.call("job-head.children", job_values("jnone"), by="look.data")
    checkpoint = await ui.call("cp-head.children", checkpoint_values("jE", 999), by="look.data")

    for said, what in ((job["job-message"], "job"), (checkpoint["cp-message"], "checkpoint")):
        assert f"Nothing at this address No such {what}." in texts(said["children"])
        # This class makes the style sheet hide all other parts of the page.
        assert "not-found" in said["children"]["props"]["className"]


async def test_every_request_of_a_page_that_was_just_opened_is_repeated_by_a_tick(ui):
    """Otherwise a page that was opened while the API was away stays empty, although its message says otherwise."""
    dependencies = (await ui.http.get("/ui/_dash-dependencies")).json()
    once = {
        d["output"].strip(".").split("...")[0].split("@")[0]
        for d in dependencies
        if d["clientside_function"] is None
        and d["prevent_initial_call"] is not True
        and not any(i["property"] in ("n_intervals", "n_clicks") for i in d["inputs"])
    }

    without_requests = {"page.children", "url.href"}
    changed_by_ticks = {"fleet-message.children", "cp-message.children", "cp-picked-panel.children"}
    of_the_page_itself = {'{"key":["ALL"],"type":"lab-problem"}.children'}
    assert once == without_requests | changed_by_ticks | of_the_page_itself
