"""The pages over HTTP, called as a browser does: answers and errors of callbacks, and what is not sent again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.dash_calls import DashCalls, texts
from tests.support.fake_api import HOSTILE, FakeApi

pytestmark = pytest.mark.anyio

LOOK = {"look.data": {"theme": "light", "zone": "UTC"}}


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def ui(clock):
    async with DashCalls(FakeApi(now=clock)) as calls:
        yield calls


# --- the shell ----------------------------------------------------------------------------------------------------


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


# --- V1 -----------------------------------------------------------------------------------------------------------


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


# --- a job: V2, V8 ------------------------------------------------------------------------------------------------


def _job(job: str) -> dict[str, object]:
    return LOOK | {"job-route.data": {"job": job}, "job-log.aria-pressed": "false"}


async def test_a_job_shows_its_verdict_first_then_every_checkpoint_and_the_settings(ui):
    answer = await ui.call("job-head.children", _job("jE"), by="look.data")

    assert texts(answer["job-verdict"]["children"]).startswith("Expired at 3.0 s: the barrier reached slow-stage-2")
    marks = sum(len(t["x"]) for t in answer["timeline-graph"]["figure"]["data"])
    assert marks == len(ui.fake.jobs["jE"].checkpoints)
    assert "unlimited" in texts(answer["job-facts"]["children"])
    assert answer["job-title"]["data"] == "payments-settlement"
    assert "REST API of the cluster" in texts(answer["job-source"]["children"])


async def test_an_unchanged_job_is_not_drawn_again_and_another_theme_is(ui, clock):
    first = await ui.call("job-head.children", _job("jE"), by="look.data")
    values = _job("jE") | {
        "job-digest.data": first["job-digest"]["data"],
        "job-progress-target.data": first["job-progress-target"]["data"],
    }
    clock.now += timedelta(seconds=2)

    again = await ui.call("job-head.children", values, by="tick.n_intervals")
    dark = await ui.call("job-head.children", values | {"look.data": {"theme": "dark", "zone": "UTC"}}, by="look.data")

    assert set(again) == {"job-message", "job-source"}
    assert dark["timeline-graph"]["figure"] != first["timeline-graph"]["figure"]


async def test_a_range_of_the_timeline_filters_the_checkpoints_the_events_and_the_pressure_below(ui):
    times = sorted(c.triggered_at for c in ui.fake.jobs["jE"].checkpoints)
    ends = {"since": _epoch_ms(times[1]), "until": _epoch_ms(times[3])}

    answer = await ui.call("job-head.children", _job("jE") | {"job-range.data": ends}, by="job-range.data")
    none = {"since": 0, "until": 1}
    nothing = await ui.call("job-head.children", _job("jE") | {"job-range.data": none}, by="job-range.data")

    recent = texts(answer["job-recent"]["children"])
    assert recent.startswith("Checkpoints in the range the newest 3 of 3 in the chosen range")
    assert "event" not in recent
    assert "Below: 3 of 17 checkpoints" in answer["job-range-words"]["children"]
    assert answer["job-span"]["data"] == [_epoch_ms(times[0]), _epoch_ms(times[-1])]
    shades = [a for t in answer["timeline-graph"]["figure"]["data"] for a in t["marker"]["opacity"]]
    assert (shades.count(1), len(shades)) == (3, 17)
    assert "chosen range" in answer["job-pressure-hint"]["children"]
    assert "none of the 17" in nothing["job-range-words"]["children"]


def _epoch_ms(at):
    return round(at.timestamp() * 1000)


async def test_a_click_on_a_mark_opens_its_checkpoint(ui):
    click = {"points": [{"customdata": ["rE", 14, 1_700_000_000_000]}]}
    values = {"timeline-graph.clickData": click, "job-route.data": {"job": "jE"}}

    answer = await ui.call("url.href", values, by="timeline-graph.clickData")

    assert answer["url"]["href"] == "/ui/jobs/jE/runs/rE/checkpoints/14"


async def test_the_checkpoint_in_progress_shows_what_it_waits_for_and_a_judgement(ui, clock):
    clock.now += timedelta(seconds=5)
    target = {"job": "jruntime", "run": "rruntime", "checkpoint": 24}

    answer = await ui.call(
        "job-progress-head.children", LOOK | {"job-progress-target.data": target}, by="tick.n_intervals"
    )

    head = texts(answer["job-progress-head"]["children"])
    assert "Checkpoint 24 slow" in head
    assert "nine of ten earlier checkpoints" in head
    waiting = texts(answer["job-progress-waiting"]["children"])
    assert "Waiting on" in waiting
    assert "ledger-sink 0/4 0, 1, 2, 3" in waiting
    own = next(t for t in answer["job-acks-graph"]["figure"]["data"] if t["name"] == "this checkpoint")
    assert own["x"][-1] == 5000


async def test_an_ended_checkpoint_names_subtasks_that_never_acknowledged(ui):
    target = {"job": "jE", "run": "rE", "checkpoint": ui.fake.jobs["jE"].checkpoints[-1].checkpoint_id}

    answer = await ui.call(
        "job-progress-head.children", LOOK | {"job-progress-target.data": target}, by="tick.n_intervals"
    )

    assert "Never acknowledged" in texts(answer["job-progress-waiting"]["children"])


# --- a checkpoint: V3, V5 -----------------------------------------------------------------------------------------


def _checkpoint(job: str, number: int, **more: object) -> dict[str, object]:
    route = {"job": job, "run": f"r{job[1:]}", "checkpoint": number}
    return LOOK | {"cp-route.data": route, "gantt-sort.value": "topology", "gantt-path.aria-pressed": "true"} | more


async def _loaded(ui, values):
    first = await ui.call("cp-head.children", values, by="look.data")
    return first, values | {"cp-digest.data": first["cp-digest"]["data"], "front-slider.max": 1000}


async def test_a_checkpoint_opens_with_the_verdict_and_the_named_vertex_open(ui):
    answer = await ui.call("cp-head.children", _checkpoint("jE", 14), by="look.data")

    assert texts(answer["cp-verdict"]["children"]).startswith("Expired at 3.0 s")
    rows = next(t for t in answer["gantt-graph"]["figure"]["data"] if t["name"] == "row")["customdata"]
    assert len(rows) == 3 + 4
    assert "Message of the engine: Checkpoint expired before completing." in texts(answer["cp-evidence"]["children"])
    assert answer["cp-progress"]["style"] == {"display": "none"}
    assert '"aria-pressed": "true"' in json.dumps(answer["cp-vertices"]["children"])


async def test_an_open_checkpoint_shows_its_progress_and_an_ended_one_is_read_less_often(ui):
    live = await ui.call("cp-head.children", _checkpoint("jruntime", 24), by="look.data")
    _, settled = await _loaded(ui, _checkpoint("jruntime", 22))
    before = len(ui.fake.requests)

    seldom = await ui.call("cp-head.children", settled | {"tick.n_intervals": 3}, by="tick.n_intervals")

    assert live["cp-progress"]["style"] == {"display": "block"}
    assert live["cp-progress-target"]["data"]["checkpoint"] == 24
    assert seldom is None
    assert len(ui.fake.requests) == before


async def test_the_scrubber_moves_the_front(ui):
    _, values = await _loaded(ui, _checkpoint("jruntime", 22))

    early = await ui.call("front-graph.figure", values | {"front-at.data": 10}, by="front-at.data")
    late = await ui.call("front-graph.figure", values | {"front-at.data": 4600}, by="front-at.data")
    end = await ui.call("front-graph.figure", values, by="cp-digest.data")

    assert early["front-position"]["children"] == "10 ms"
    assert "ledger-sink: barrier at 0 of 4" in early["front-summary"]["children"]
    assert "enrich: barrier at 4 of 4" in late["front-summary"]["children"]
    assert "measured per channel" in texts(late["front-basis"]["children"])
    assert end["front-slider"]["value"] == end["front-slider"]["max"]
    assert "ledger-sink: barrier at 4 of 4, 4 acknowledged" in end["front-summary"]["children"]


async def test_without_channels_the_front_says_that_it_is_reconstructed(ui):
    _, values = await _loaded(ui, _checkpoint("jE", 14))

    answer = await ui.call("front-graph.figure", values, by="cp-digest.data")

    assert "reconstructed the engine does not report channels" in texts(answer["front-basis"]["children"])


async def test_vertices_open_and_close_by_click_and_by_key(ui):
    values = _checkpoint("jruntime", 22)
    press = json.dumps({"type": "vertex-toggle", "vertex": "parse"}, separators=(",", ":")) + ".n_clicks"

    by_key = await ui.call("cp-opened.data", values | {press: 1}, by=press)
    click = {"gantt-graph.clickData": {"points": [{"customdata": ["enrich", None]}]}}
    closed = await ui.call("cp-opened.data", values | click, by="gantt-graph.clickData")
    picked = {"gantt-graph.clickData": {"points": [{"customdata": ["enrich", 2]}]}}
    answer = await ui.call("cp-opened.data", values | picked, by="gantt-graph.clickData")
    every = await ui.call("cp-opened.data", values, by="gantt-open-all.n_clicks")
    none = await ui.call("cp-opened.data", values | {press: None}, by=press)

    assert by_key["cp-opened"]["data"] == ["enrich", "parse"]
    assert closed["cp-opened"]["data"] == []
    assert answer == {"cp-picked": {"data": "enrich:2"}}
    assert len(every["cp-opened"]["data"]) == 4
    assert none is None


async def test_a_picked_subtask_shows_its_numbers_with_their_basis_and_its_ids(ui):
    _, values = await _loaded(ui, _checkpoint("jruntime", 22))

    answer = await ui.call("cp-picked-panel.children", values | {"cp-picked.data": "enrich:2"}, by="cp-picked.data")

    shown = texts(answer["cp-picked-panel"]["children"])
    assert shown.startswith("enrich subtask 2 first barrier")
    assert shown.count("measured") == 5
    assert "worker-0" in shown
    assert "127.0.0.1:40001-a81c" in shown


# --- targets ------------------------------------------------------------------------------------------------------


async def _send(ui, by: str, url: str | None, name: str | None = None):
    values = {"target-url.value": url, "target-name.value": name, f"{by}.n_clicks": 1}
    return await ui.call("target-answer.children", values, by=f"{by}.n_clicks")


async def test_a_connection_is_tested_without_adding_anything(ui):
    before = dict(ui.fake.targets)

    good = await _send(ui, "target-test", "http://my-flink:8081")
    bad = await _send(ui, "target-test", "http://nowhere.invalid")

    assert "Connected: flink 1.20.5, running: orders" in texts(good["target-answer"]["children"])
    assert "does not resolve" in texts(bad["target-answer"]["children"])
    assert ui.fake.targets == before


async def test_a_target_is_added_once_and_the_refusal_of_the_second_is_shown(ui):
    first = await _send(ui, "target-add", "http://my-flink:8081", "mine")
    second = await _send(ui, "target-add", "http://my-flink:8081")

    assert "mine was added" in texts(first["target-answer"]["children"])
    assert first["target-url"]["value"] == ""
    assert "is a target already" in texts(second["target-answer"]["children"])
    assert "target-url" not in second


async def test_an_empty_or_overlong_address_is_refused_before_it_is_sent(ui):
    empty = await _send(ui, "target-add", "  ")
    long = await _send(ui, "target-add", "http://x/" + "y" * 3000)

    assert "Enter an address" in texts(empty["target-answer"]["children"])
    assert "at most 2000" in texts(long["target-answer"]["children"])
    assert not any(r.startswith("POST") for r in ui.fake.requests)


async def test_the_list_shows_health_with_its_reason_and_what_a_poll_costs(ui):
    answer = await ui.call("targets-list.children", LOOK, by="look.data")
    shown = texts(answer["targets-list"]["children"])

    assert "connection refused (10.9.8.7:8081); 14 attempts in a row" in shown
    assert "7.4 requests, 21.3 kB, 38 ms" in shown


async def test_a_target_is_paused_and_removed(ui):
    pause = json.dumps({"type": "target-pause", "target": "tflink", "to": "off"}, separators=(",", ":")) + ".n_clicks"

    await ui.call("targets-changed.data", {pause: 1}, by=pause)
    confirmed = {"target-confirm.submit_n_clicks": 1, "target-to-remove.data": "told"}
    await ui.call("targets-changed.data", confirmed, by="target-confirm.submit_n_clicks")

    assert ui.fake.targets["tflink"].is_enabled is False
    assert "told" not in ui.fake.targets


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "values", "message"),
    [
        ("fleet-grid.rowData", LOOK, "fleet-message"),
        ("job-head.children", _job("jE"), "job-message"),
        ("cp-head.children", _checkpoint("jE", 14), "cp-message"),
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
    job = await ui.call("job-head.children", _job("jnone"), by="look.data")
    checkpoint = await ui.call("cp-head.children", _checkpoint("jE", 999), by="look.data")

    assert "no such job" in texts(job["job-message"]["children"])
    assert "no such checkpoint" in texts(checkpoint["cp-message"]["children"])
