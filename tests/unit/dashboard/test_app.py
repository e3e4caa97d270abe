"""The application over HTTP, called as a browser does: addresses, headers, footer and errors."""

from __future__ import annotations

import json

import pytest

from tests.support.dash_calls import LOOK, checkpoint_values, job_values, texts

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize(
    ("output", "values", "message"),
    [
        ("fleet-grid.rowData", LOOK, "fleet-message"),
        ("job-head.children", job_values("jE"), "job-message"),
        ("cp-head.children", checkpoint_values("jE", 14), "cp-message"),
        ("targets-list.children", LOOK, "targets-message"),
    ],
)
async def test_if_the_api_is_down_a_page_shows_the_error_and_keeps_its_content(ui, output, values, message):
    ui.fake.is_down = True

    answer = await ui.call(output, values, by="look.data")

    assert set(answer) == {message}
    assert "No fresh data" in texts(answer[message]["children"])
    assert "does not answer (ConnectError)" in texts(answer[message]["children"])


async def test_an_unknown_job_or_checkpoint_gives_a_message(ui):
    job = await ui.call("job-head.children", job_values("jnone"), by="look.data")
    checkpoint = await ui.call("cp-head.children", checkpoint_values("jE", 999), by="look.data")

    assert "no such job" in texts(job["job-message"]["children"])
    assert "no such checkpoint" in texts(checkpoint["cp-message"]["children"])
