"""Tests of the page of a job's backpressure over time. Its callbacks are called as a browser calls them."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest

from backend.contracts.engines import CapabilitiesOut
from backend.domain.engines import SPARK
from backend.domain.freshness import Freshness
from backend.domain.pressure import PressureMeasure
from dashboard import routes
from dashboard.span import epoch_ms
from tests.support import fake_api
from tests.support.api_examples import stale
from tests.support.dash_calls import LOOK, texts
from tests.support.made_up_pressure import pressure_history_of

pytestmark = pytest.mark.anyio

_MESSAGE = "pressure-message.children"


def values(job="jE", **more):
    route = {"job": job, "since": None, "until": None}
    return LOOK | {"pressure-route.data": route} | {k.replace("_", "-") + ".value": v for k, v in more.items()}


async def test_the_page_shows_the_rows_the_suspects_and_links_to_their_subtasks(ui):
    answer = await ui.call(_MESSAGE, values(), by="look.data")

    job = ui.fake.jobs["jE"]
    assert len(answer["pressure-history-data"]["data"]["rows"]) > 0
    said = texts(answer["pressure-suspects"]["children"])
    assert "slow-stage-2 -> sink: Writer" in said
    assert "its phases in checkpoint" in said
    assert len(answer["pressure-vertex"]["data"]) == 1 + len(job.pressure)
    assert "648 readings" in texts(answer["pressure-notes"]["children"])


@pytest.mark.parametrize(
    ("state", "note", "when"),
    [(Freshness.FRESH, "", "now"), (Freshness.NO_COLLECTOR, "This job was last read", "then")],
)
async def test_the_page_of_a_stale_job_says_so_and_gives_its_verdict_as_one_of_then(ui, state, note, when):
    job = ui.fake.jobs["jE"]
    job.detail = job.detail.model_copy(update={"freshness": stale(state)})

    shown = await ui.call(_MESSAGE, values(), by="look.data")

    assert texts(shown["pressure-stale"]["children"]).startswith(note)
    assert (shown["pressure-stale"]["children"] is None) == (not note)
    assert f"Verdict on the job {when}: " in texts(shown["pressure-suspects"]["children"])
    assert ("was " in texts(shown["pressure-head"]["children"])) == bool(note)


@pytest.mark.parametrize(
    ("length", "ends"),
    [("6h", {"last": "6h"}), ("chosen", {"from": "1700000000000", "to": "1700003599999"}), ("ever", {})],
)
async def test_the_links_of_a_suspect_keep_the_range_of_the_page(ui, length, ends):
    chosen = {"since": 1_700_000_000_000, "until": 1_700_003_599_999}
    given = values(pressure_length=length) | {"pressure-route.data": {"job": "jE"} | chosen}

    answer = await ui.call(_MESSAGE, given, by="pressure-length.value")

    href = next(
        c["props"]["href"]
        for c in _walk(answer["pressure-suspects"]["children"])
        if str(c.get("props", {}).get("href", "")).startswith("/ui/jobs/jE/pressure")
    )
    query = {k: v for k, (v,) in parse_qs(href.partition("?")[2]).items()}
    assert {k: v for k, v in query.items() if k in ("from", "to", "last")} == ends


async def test_suspects_that_are_not_known_are_not_shown_as_none(ui, monkeypatch):
    made = pressure_history_of

    def unknown(*values_, **more):
        return made(*values_, **more).model_copy(update={"suspects": None})

    monkeypatch.setattr(fake_api, "pressure_history_of", unknown)

    said = texts((await ui.call(_MESSAGE, values(), by="look.data"))["pressure-suspects"]["children"])

    assert "Not known: no readings of backpressure were taken in the two minutes before." in said


async def test_of_a_thousand_suspects_the_ten_most_likely_are_listed_and_the_others_counted(ui, monkeypatch):
    made = pressure_history_of

    def many(*values_, **more):
        found = made(*values_, **more)
        return found.model_copy(update={"suspects": list(found.suspects[:1]) * 1000})

    monkeypatch.setattr(fake_api, "pressure_history_of", many)

    card = (await ui.call(_MESSAGE, values(), by="look.data"))["pressure-suspects"]["children"]

    assert texts(card).count("its phases in checkpoint") == 10
    assert "990 more vertices are less likely causes." in texts(card)


async def test_unchanged_data_is_not_drawn_again(ui):
    fixed = {"pressure-route.data": {"job": "jE", "since": 1_700_000_000_000, "until": 1_700_003_600_000}}
    given = values(pressure_length="chosen") | fixed
    first = await ui.call(_MESSAGE, given, by="look.data")
    digest = {"pressure-digest.data": first["pressure-digest"]["data"]}

    assert set(await ui.call(_MESSAGE, given | digest, by="status-tick.n_intervals")) == {"pressure-message"}


async def test_a_vertex_opens_its_subtasks_and_an_unknown_one_is_a_message(ui):
    vertex = ui.fake.jobs["jE"].pressure[-1].vertex_id

    opened = await ui.call(
        _MESSAGE, values(pressure_vertex=vertex, pressure_measure="busy"), by="pressure-vertex.value"
    )
    unknown = await ui.call(_MESSAGE, values(pressure_vertex="nothing"), by="pressure-vertex.value")

    assert [t["type"] for t in opened["pressure-history-graph"]["figure"]["data"]].count("heatmap") == 1
    assert "o such vertex 'nothing'" in texts(unknown["pressure-message"]["children"])


async def test_a_longer_time_is_asked_for_by_its_name(ui):
    answer = await ui.call(_MESSAGE, values(pressure_length="24h"), by="pressure-length.value")

    since, until = answer["pressure-history-graph"]["figure"]["layout"]["xaxis"]["range"]
    assert until - since == pytest.approx(24 * 3600 * 1000, rel=0.01)


async def test_a_click_on_a_row_toggles_its_vertex_and_one_on_a_checkpoint_opens_it(ui):
    async def after(customdata, vertex=""):
        click = {"pressure-history-graph.clickData": {"points": [{"customdata": customdata}]}}
        given = values() | click | {"pressure-vertex.value": vertex}
        return await ui.call("url.href", given, by="pressure-history-graph.clickData")

    assert (await after(["v1", "4 %"]))["pressure-vertex"]["value"] == "v1"
    assert (await after(["v1", "4 %"], "v1"))["pressure-vertex"]["value"] == ""
    opened = await after([None, "rE", 12], "v1")
    assert opened["url"]["href"] == "/ui/jobs/jE/runs/rE/checkpoints/12?open=v1"
    assert await after(None) is None


async def test_an_engine_without_barriers_shows_its_rates_instead(ui):
    job = ui.fake.jobs["jE"]
    before = job.detail
    job.detail = before.model_copy(update={"capabilities": CapabilitiesOut.model_validate(SPARK)})
    try:
        answer = await ui.call(_MESSAGE, values(), by="look.data")
    finally:
        job.detail = before

    assert answer["pressure-barriers"]["style"] == {"display": "none"}
    assert "reports no backpressure" in texts(answer["pressure-suspects"]["children"])


def test_the_choices_are_in_the_address():
    route = routes.parse("/ui/jobs/j%2F1/pressure", "?vertex=v1&measure=busy&last=24h&from=5&to=9")

    assert (route.page, route.job) == (routes.PageKind.PRESSURE, "j/1")
    chosen = route.pressure
    assert (chosen.vertex, chosen.share, chosen.last) == ("v1", PressureMeasure.BUSY, "24h")
    assert (chosen.since_ms, chosen.until_ms) == (5, 9)
    assert routes.pressure("j/1", vertex="v1", share=PressureMeasure.BUSY, ends_ms=(5, 9)) == (
        "/ui/jobs/j%2F1/pressure?vertex=v1&from=5&to=9&measure=busy"
    )
    assert routes.parse("/ui/jobs/j/pressure", "?measure=hot&last=ever").pressure.share is PressureMeasure.BACKPRESSURED


async def test_the_verdicts_link_to_the_pressure_of_their_time_and_vertex(ui):
    checkpoint = ui.fake.jobs["jE"].checkpoints[-1]
    values_ = LOOK | {
        "cp-route.data": {"job": "jE", "run": checkpoint.run_id, "checkpoint": checkpoint.checkpoint_id},
        "gantt-sort.value": "topology",
        "gantt-path.aria-pressed": "true",
    }

    answer = await ui.call("cp-message.children", values_, by="look.data")

    href = next(
        c["props"]["href"]
        for c in _walk(answer["cp-verdict"]["children"])
        if str(c.get("props", {}).get("href", "")).startswith("/ui/jobs/jE/pressure")
    )
    begin = epoch_ms(checkpoint.triggered_at)
    route = routes.parse(*href.split("?"))
    assert route.pressure.vertex == checkpoint.verdict.vertex_id
    assert route.pressure.since_ms < begin < route.pressure.until_ms


def _walk(node):
    if isinstance(node, dict):
        yield node
        yield from _walk(node.get("props", {}).get("children"))
    elif isinstance(node, list):
        for child in node:
            yield from _walk(child)
