"""The pages of Spark jobs: values that Spark lacks are absent and never zero, and no text mentions barriers."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from dashboard.components.micro_batch import job_card
from dashboard.figures import micro_batch, timeline
from dashboard.palette import LIGHT
from tests.support.dash_calls import LOOK, DashCalls, elements, texts
from tests.support.fake_api import FakeApi
from tests.support.fake_spark import BEHIND, FAILED_BATCH, SILENT, STATELESS, TARGET, add_spark

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
_OF_BARRIERS = ("align", "start delay", "subtask", "vert", "in-flight", "acked", "acknowledged", "persisted")


@pytest.fixture
def fake():
    return add_spark(FakeApi(now=lambda: NOW))


@pytest.fixture
async def ui(fake):
    async with DashCalls(fake) as calls:
        yield calls


async def _job(ui, job):
    return await ui.call("job-head.children", LOOK | {"job-route.data": {"job": job}}, by="look.data")


async def _checkpoint(ui, job, number):
    route = {"job": job, "run": f"r{job[1:]}", "checkpoint": number, "open": None}
    return await ui.call("cp-batch-facts.children", LOOK | {"cp-route.data": route}, by="look.data")


async def test_a_fleet_row_of_a_spark_job_leaves_missing_values_empty(ui):
    view = {"first": 0, "ids": [BEHIND, SILENT], "since": None}
    answer = await ui.call("fleet-delta.data", {"fleet-view.data": view}, by="fleet-view.data")
    request = {"fleet-request.data": {"number": 1, "startRow": 0, "endRow": 500}}
    block = await ui.call("fleet-rows.data", request, by="fleet-request.data")
    rows = {r["id"]: r for r in block["fleet-rows"]["data"]["rows"]}

    behind = rows[BEHIND]
    assert behind["verdict_badge"]["word"] == "query at capacity"
    assert (behind["mode"], behind["mode_chip"], behind["phase"], behind["phase_chip"]) == (None,) * 4
    assert (behind["pressure"], behind["pressure_text"]) == (None, "–")
    assert (behind["debt"], behind["p50_text"]) == (7_200.0, "6.0 s")
    assert rows[SILENT]["target"] == "lab (silent: old data)"
    assert rows[SILENT]["health_badge"]["word"] == "failing"
    source = texts(answer["fleet-source"]["children"])
    assert "Source: REST API of the cluster, reference runtime, the listener in the query's driver, " in source


async def test_a_fleet_without_spark_does_not_mention_listeners():
    async with DashCalls(FakeApi(now=lambda: NOW)) as calls:
        view = {"fleet-view.data": {"first": 0, "ids": [], "since": None}}
        answer = await calls.call("fleet-source.children", view, by="fleet-view.data")

    assert "listener" not in texts(answer["fleet-source"]["children"])


async def test_a_job_of_spark_shows_batches_and_signs_and_no_view_of_barriers(ui):
    answer = await _job(ui, BEHIND)

    hidden = {"display": "none"}
    assert answer["job-micro-batches"]["style"] == {}
    assert (answer["job-pressure"]["style"], answer["job-progress-panel"]["style"]) == (hidden, hidden)
    # A Spark job never has a checkpoint in progress, so the response does not fill the progress panel.
    assert "job-progress-target" not in answer
    said = " ".join(
        texts(answer[part]["children"])
        for part in ("job-head", "job-verdict", "timeline-legend", "job-facts", "job-recent", "job-source")
    )
    assert [word for word in _OF_BARRIERS if word in said.lower()] == []
    for words in ("query at capacity", "Trigger interval 5.0 s", "Newest micro-batches", "batch 12", "the listener in"):
        assert words in said
    # If no source reports its newest offset, the page shows this reason instead of a number.
    assert "Backlog grows – no source reports its newest offset" in texts(answer["job-facts"]["children"])
    assert "Longer than the interval raised" in texts(answer["job-facts"]["children"])


async def test_a_job_with_a_silent_driver_is_not_shown_as_running(ui):
    head = texts((await _job(ui, SILENT))["job-head"]["children"])

    assert "Spark: active at the last report" in head
    assert "target silent: old data" in head


async def test_a_target_that_pushes_says_so_and_costs_no_polls(ui):
    answer = await ui.call("targets-rows.nodes", LOOK, by="look.data")
    _, body = elements(answer, "targets-rows")["props"]["children"]
    (row,) = [r for r in body["props"]["children"] if "its jobs push" in texts(r)]

    said = texts(row)
    for words in ("the driver of orders-by-value has sent nothing for 4 min 2 s", "lab", "pushes every 5.0 s"):
        assert words in said
    assert "0 requests" not in said
    assert '"disabled": true' not in json.dumps(row)


async def test_a_micro_batch_shows_its_phases_and_any_state(ui):
    with_state = await _checkpoint(ui, BEHIND, 3)
    without = await _checkpoint(ui, STATELESS, 3)
    said, bare = (texts(json.loads(json.dumps(a))["cp-facts"]["children"]) for a in (with_state, without))

    assert with_state["cp-batch-views"]["style"] == {}
    for words in ("Batch duration 6.0 s", "State rows 4 200", "State commit 17 ms", "Checkpoint log 79 ms"):
        assert words in said
    # The state store provider of this job makes no snapshots, so their lag is shown as missing.
    assert "Snapshot lag –" in said
    assert "State" not in bare
    assert [word for word in _OF_BARRIERS if word in (said + bare).lower()] == []
    assert "8800 4 800" in texts(with_state["cp-batch-facts"]["children"])
    # A file source does not report a backlog.
    assert texts(without["cp-batch-facts"]["children"]).endswith("– –")


async def test_a_batch_that_failed_has_neither_duration_nor_phases(ui):
    answer = await _checkpoint(ui, BEHIND, FAILED_BATCH)
    said = texts(answer["cp-facts"]["children"])

    assert "Batch duration –" in said
    assert f"Batch number {FAILED_BATCH} reconstructed" in said
    assert "Rows read –" in said
    assert "Checkpoint log –" in said
    assert " 0 ms" not in said
    assert "Spark reported no phases" in answer["cp-batch-summary"]["children"]


def test_the_legend_of_the_phases_has_the_order_of_the_bars(fake):
    figure = micro_batch.phases(fake.jobs[BEHIND].detail.batches, theme=LIGHT).figure

    names = [t["name"] for t in figure["data"]]
    assert (names[0], names[-2:]) == ("ask sources", ["write commits file", "other"])
    assert " ".join(names) in texts(job_card())
    assert figure["layout"]["legend"]["orientation"] == "h"


def test_the_timeline_of_batches_has_no_modes_and_no_empty_columns(fake):
    made = fake.jobs[BEHIND]
    chart = timeline.timeline(
        made.checkpoints, timeline.Around(), theme=LIGHT, where=UTC, timeout_ms=None, interval_ms=5_000, now=NOW
    )

    assert [t["name"] for t in chart.figure["data"]] == ["completed, micro-batch", "failed, micro-batch"]
    assert chart.table.columns == (
        *(
            "checkpoint",
            "run",
            "kind",
            "status",
            "triggered (UTC)",
            "duration (ms)",
            "full state size (bytes)",
            "failure",
        ),
    )
    assert {len(row) for row in chart.table.rows} == {8}
    hover = " ".join(text for trace in chart.figure["data"] for text in trace["hovertext"])
    assert "not reported" not in hover
    assert "5.0 s at most (reconstructed)" in hover


def test_the_targets_page_knows_every_state():
    from backend.domain.target import TargetState
    from dashboard.components.status import TARGET_ICONS, TARGET_TONES

    assert set(TARGET_ICONS) == set(TARGET_TONES) == set(TargetState) >= {"silent"}
    assert TARGET == "tspark"
