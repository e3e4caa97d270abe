"""The API over a real store: responses equal the ingested values, and a missing value stays missing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote

import pytest

from backend.contracts import api
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.barriers import BarriersOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.progress import ProgressOut
from backend.contracts.space_time import SpaceTimeOut
from backend.contracts.status import StatusOut
from backend.domain.address_rules import AddressRules
from backend.domain.barriers import BarrierEvent, BarrierEventKind, ChannelId
from backend.domain.errors import TargetProtocolError, TargetUnavailableError, WrongRootError
from backend.domain.observation import JobState
from backend.store.postgres.connections import create_store_engine
from tests.support.observations import (
    CONFIG,
    NOW,
    SINK,
    SOURCE,
    barrier_events,
    completed,
    failed,
    in_progress,
    job,
    observation,
    pressure,
    progress,
)
from tests.support.serving import Probed, api_over, asking
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.fixture
async def written(writer, target):
    """Store and return a job with three terminal checkpoints, one open checkpoint, and readings of its vertices."""
    seen = replace(
        job([completed(1), failed(2), completed(3), in_progress(4, acknowledged_count=4, with_details=True)]),
        pressure=(pressure(SOURCE, NOW), pressure(SINK, NOW, busy=1.0)),
        progress=(progress(4, 4, NOW),),
    )
    await writer.write(observation(target, seen))
    return seen


async def _get(client, path, model, *, status=200):
    answer = await client.get(path)
    assert answer.status_code == status, answer.text
    return model.model_validate_json(answer.content)


async def _the_job(client):
    (row,) = (await _get(client, "/api/v1/jobs", api.Page[api.JobOut])).items
    return row


async def test_an_empty_store_gives_empty_pages(client):
    for path, model in (("jobs", api.JobOut), ("targets", api.TargetOut)):
        page = await _get(client, f"/api/v1/{path}", api.Page[model])
        assert (page.items, page.next) == ([], None)


async def test_the_list_of_jobs_shows_what_was_ingested(client, written):
    row = await _the_job(client)

    assert (row.name, row.engine, row.mode, row.state) == ("orders", "flink", "aligned", "running")
    assert (row.completed_24h_count, row.failed_24h_count) == (2, 1)
    assert row.success_24h_ratio == pytest.approx(2 / 3)
    assert row.in_progress_checkpoint_id == 4
    assert [p.duration_ms for p in row.sparkline] == [301, 302, 303]
    assert row.last_completed_at == NOW - timedelta(hours=1) + timedelta(seconds=30, milliseconds=303)
    assert (row.interval_ms, row.timeout_ms) == (10_000, 60_000)


async def test_checkpoints_are_paged_newest_first_without_gaps_or_repeats(client, written):
    found, cursor, pages = [], "", 0
    job_id = (await _the_job(client)).id
    while pages == 0 or cursor:
        query = f"?limit=3{'&cursor=' + cursor if cursor else ''}"
        page = await _get(client, f"/api/v1/jobs/{job_id}/checkpoints{query}", api.Page[api.CheckpointOut])
        found += [c.checkpoint_id for c in page.items]
        cursor, pages = page.next, pages + 1

    assert (found, pages) == ([4, 3, 2, 1], 2)


async def test_checkpoints_are_filtered_by_status_time_and_run(client, written):
    job_id = (await _the_job(client)).id

    async def ids(query):
        page = await _get(client, f"/api/v1/jobs/{job_id}/checkpoints?{query}", api.Page[api.CheckpointOut])
        return [c.checkpoint_id for c in page.items]

    second = (NOW - timedelta(hours=1) + timedelta(seconds=20)).isoformat().replace("+", "%2B")
    assert await ids("status=failed") == [2]
    assert await ids(f"from={second}") == [4, 3, 2]
    assert await ids(f"to={second}") == [1]
    assert await ids("run=rnothing") == []


async def test_latest_is_the_newest_checkpoint_or_the_newest_with_a_status(client, written):
    root = f"/api/v1/jobs/{(await _the_job(client)).id}/checkpoints/latest"

    assert (await _get(client, root, api.CheckpointOut)).checkpoint_id == 4
    assert (await _get(client, f"{root}?status=completed", api.CheckpointOut)).checkpoint_id == 3
    assert (await _get(client, f"{root}?status=failed", api.CheckpointOut)).checkpoint_id == 2


async def test_a_checkpoint_shows_its_subtasks_and_missing_values_stay_missing(client, written):
    row = await _the_job(client)
    latest = await _get(client, f"/api/v1/jobs/{row.id}/checkpoints/latest?status=failed", api.CheckpointOut)
    found = await _get(client, latest.link, api.CheckpointDetailOut)

    assert (found.job, found.timeout_ms, found.previous_id, found.next_id) == ("orders", 60_000, 1, 3)
    assert [v.vertex for v in found.vertices] == ["Source: orders", "Sink: ledger"]
    sink = found.vertices[1]
    assert (sink.acknowledged_count, sink.subtask_count) == (2, 3)
    assert [s.ack_ms for s in sink.subtasks] == [102, None, 302]
    assert [s.sync_duration_ms for s in sink.subtasks] == [7, None, 7]
    assert [s.host for s in sink.subtasks] == ["host-0", "host-1", "host-2"]
    assert found.last_healthy_link is not None
    assert found.last_healthy_link.endswith("/1")
    assert (latest.is_lower_bound, found.is_lower_bound) == (True, True), "subtask 1 of the sink is missing in them"
    done = await _get(client, f"/api/v1/jobs/{row.id}/checkpoints/latest?status=completed", api.CheckpointOut)
    assert not done.is_lower_bound


async def test_a_checkpoint_shows_per_vertex_the_delay_added_and_the_delay_passed_on(client, written):
    row = await _the_job(client)

    async def delays(number):
        path = f"/api/v1/jobs/{row.id}/runs/{row.run_id}/checkpoints/{number}"
        found = await _get(client, path, api.CheckpointDetailOut)
        return [(v.start_delay_max_ms, v.delay_added_ms, v.delay_passed_on_ms, v.delay_basis) for v in found.vertices]

    assert await delays(3) == [(33, 0, 33, "reconstructed"), (33, None, None, None)]
    assert await delays(2) == [(32, None, None, None), (None, None, None, None)]


async def test_the_progress_of_an_open_checkpoint_names_the_subtasks_it_waits_for(client, written, clock):
    row = await _the_job(client)
    triggered = NOW - timedelta(hours=1) + timedelta(seconds=40)
    clock.at = triggered + timedelta(seconds=25)
    path = f"/api/v1/jobs/{row.id}/runs/{row.run_id}/checkpoints/4/progress"
    found = await _get(client, path, ProgressOut)

    assert (found.elapsed_ms, found.remaining_ms, found.timeout_ms) == (25_000, 35_000, 60_000)
    assert (found.acknowledged, found.total) == (4, 6)
    (waiting,) = found.waiting_on
    assert (waiting.vertex, waiting.acknowledged, waiting.total, waiting.pending) == ("Sink: ledger", 1, 3, [1, 2])
    assert waiting.first_barrier_ms == [2500, None]
    assert waiting.aligning_ms == [900, None]
    assert waiting.hosts == ["host-1", "host-2"]
    assert waiting.queued_bytes == 1 << 40, "of the source's out-queues; in-queues were not requested"
    assert found.queued_bytes == 2 << 40
    assert [len(curve) for curve in found.past_acks] == [6, 6]
    assert found.finish is not None
    assert (
        found.finish.words
        == "not predictable yet: only 3 checkpoints under the present settings to compare with, 5 are needed"
    )
    assert found.unaligned_now is not None
    assert found.unaligned_now.value == pytest.approx(1.1 * (1 << 40)), "only what is queued in front of the sink"
    assert found.judgement == "stuck"
    assert "no acknowledgement" in found.judgement_rule


async def test_queues_of_subtasks_that_barriers_have_passed_are_not_in_front(client, writer, target, clock):
    passed = replace(progress(4, 5, NOW), pending=((SINK, (1,)),), alignment_running_ms=())
    queues = tuple(pressure(v, NOW) for v in (SOURCE, SINK))
    seen = replace(job([in_progress(4, acknowledged_count=5)]), progress=(passed,), pressure=queues)
    await writer.write(observation(target, seen))
    row = await _the_job(client)
    found = await _get(client, f"/api/v1/jobs/{row.id}/runs/{row.run_id}/checkpoints/4/progress", ProgressOut)

    assert found.waiting_on[0].first_barrier_ms == [2500]
    assert (found.queued_bytes, found.unaligned_now.value) == (2 << 40, 0)


async def test_the_elapsed_time_of_a_checkpoint_is_measured_on_the_engines_clock(client, writer, target, clock):
    seen = replace(job([in_progress(4, acknowledged_count=4)]), progress=(progress(4, 4, NOW),))
    await writer.write(replace(observation(target, seen), clock_offset_ms=-20_000))
    row = await _the_job(client)
    clock.at = NOW - timedelta(hours=1) + timedelta(seconds=40 + 25)
    path = f"/api/v1/jobs/{row.id}/runs/{row.run_id}/checkpoints/4/progress"

    found = await _get(client, path, ProgressOut)
    assert (found.elapsed_ms, found.remaining_ms, found.clock_offset_ms) == (5_000, 55_000, -20_000)
    # The browser counts down to a time on our clock.
    assert found.times_out_at == clock.at + timedelta(seconds=55)


async def test_the_elapsed_time_of_a_checkpoint_stops_at_the_last_reading(client, writer, target, clock):
    opened = in_progress(4, acknowledged_count=4)
    read_at = opened.header.triggered_at + timedelta(seconds=7)
    seen = replace(job([opened]), progress=(progress(4, 4, read_at),))
    await writer.write(observation(target, seen, at=read_at))
    row = await _the_job(client)
    clock.at = read_at + timedelta(seconds=40)

    found = await _get(client, f"/api/v1/jobs/{row.id}/runs/{row.run_id}/checkpoints/4/progress", ProgressOut)
    assert found.elapsed_ms == 7_000


async def test_a_checkpoint_of_a_run_that_is_no_longer_listed_is_lost(client, writer, target, clock):
    await writer.write(observation(target, job([in_progress(4, acknowledged_count=4)])))
    gone = replace(job(), state=JobState.ENDED, engine_state="NOT LISTED", ended_at=None)
    await writer.write(observation(target, gone, at=NOW + timedelta(seconds=5)))
    row = await _the_job(client)

    page = await _get(client, f"/api/v1/jobs/{row.id}/checkpoints", api.Page[api.CheckpointOut])
    assert [(c.checkpoint_id, c.is_lost) for c in page.items] == [(4, True)]


async def test_events_and_backpressure_of_a_job_are_on_the_clock_of_its_checkpoints(client, writer, target, clock):
    """The engine's clock is 22 minutes behind. A change of settings and a reading come while a checkpoint runs."""
    behind = timedelta(minutes=22)
    offset_ms = round(-behind / timedelta(milliseconds=1))

    async def report(at, *checkpoints, **more):
        clock.at = at
        seen = replace(job(checkpoints), **more)
        await writer.write(replace(observation(target, seen, at=at), clock_offset_ms=offset_ms))

    opened = in_progress(4, acknowledged_count=4)
    triggered_at = opened.header.triggered_at
    started_at = triggered_at - timedelta(minutes=30)
    await report(triggered_at + behind - timedelta(seconds=5), started_at=started_at, restart_count=0)
    for seconds in (3, 6):
        at = triggered_at + behind + timedelta(seconds=seconds)
        config = replace(CONFIG, timeout_ms=90_000)
        await report(at, opened, started_at=started_at, config=config, pressure=(pressure(SINK, at),), restart_count=1)
    row = await _the_job(client)
    root = f"/api/v1/jobs/{row.id}"

    detail = await _get(client, root, api.JobDetailOut)
    assert (detail.clock_offset_ms, detail.observed_at) == (offset_ms, clock.at)
    assert detail.read_at_engine == triggered_at + timedelta(seconds=6)
    events = {e.kind: e.at for e in (await _get(client, f"{root}/events", api.Page[api.JobEventOut])).items}
    assert events["configuration-changed"] == events["restarted"] == triggered_at + timedelta(seconds=3)
    checkpoint = await _get(client, f"{root}/runs/{row.run_id}/checkpoints/4", api.CheckpointDetailOut)
    assert checkpoint.clock_offset_ms == offset_ms
    # The settings are those that applied at the trigger.
    assert checkpoint.timeout_ms == CONFIG.timeout_ms
    ends = [triggered_at.isoformat(), (triggered_at + timedelta(seconds=4)).isoformat()]
    query = "&".join(f"{name}={quote(at)}" for name, at in zip(("from", "to"), ends, strict=True))
    series = (await _get(client, f"{root}/backpressure?{query}", BackpressureOut)).series
    assert {p.at for p in series} == {triggered_at + timedelta(seconds=3)}


async def test_the_progress_of_a_completed_checkpoint_has_the_whole_curve_and_no_pending_subtask(client, written):
    row = await _the_job(client)
    path = f"/api/v1/jobs/{row.id}/runs/{row.run_id}/checkpoints/3/progress"
    found = await _get(client, path, ProgressOut)

    assert (found.judgement, found.elapsed_ms, found.remaining_ms) == ("ended", 303, None)
    assert found.waiting_on == []
    assert [(p.elapsed_ms, p.acknowledged) for p in found.acks] == [
        (103, 1), (103, 2), (203, 3), (203, 4), (303, 5), (303, 6)
    ]  # fmt: skip


async def test_the_progress_of_a_failed_checkpoint_names_the_missing_subtasks(client, written):
    row = await _the_job(client)
    path = f"/api/v1/jobs/{row.id}/runs/{row.run_id}/checkpoints/2/progress"
    found = await _get(client, path, ProgressOut)

    assert [(w.vertex, w.pending) for w in found.waiting_on] == [("Sink: ledger", [1])]
    assert found.queued_bytes is None


async def test_a_checkpoint_that_never_ended_is_lost_and_no_longer_in_progress(client, writer, target, clock):
    await writer.write(observation(target, job([in_progress(4, acknowledged_count=4)])))
    clock.at = NOW + timedelta(minutes=5)
    await writer.write(observation(target, job([completed(5)]), at=clock.at))
    row = await _the_job(client)

    page = await _get(client, f"/api/v1/jobs/{row.id}/checkpoints", api.Page[api.CheckpointOut])
    assert [(c.checkpoint_id, c.is_lost) for c in page.items] == [(5, False), (4, True)]
    assert row.in_progress_checkpoint_id is None
    path = f"/api/v1/jobs/{row.id}/runs/{row.run_id}/checkpoints/4"
    assert (await _get(client, path, api.CheckpointDetailOut)).is_lost
    assert (await _get(client, f"{path}/progress", ProgressOut)).judgement == "ended"


async def test_a_lasting_change_of_durations_is_served_with_both_medians(client, writer, target):
    def lasting(n):
        took_ms = 2_000 if n <= 10 else 9_000
        return replace(completed(n), header=replace(completed(n).header, end_to_end_duration_ms=took_ms + n))

    await writer.write(observation(target, job([lasting(n) for n in range(1, 21)])))
    row = await _the_job(client)

    path = f"/api/v1/jobs/{row.id}/change-points"
    (change,) = (await _get(client, path, api.Page[ChangePointOut])).items
    assert (change.checkpoint_id, change.at, change.run_id) == (11, completed(11).header.triggered_at, row.run_id)
    assert (change.before_count, change.after_count) == (10, 10)
    assert (change.before_median_ms, change.after_median_ms) == (2_006, 9_016)
    assert (change.before_since, change.after_until) == (
        completed(1).header.triggered_at, completed(20).header.triggered_at,
    )  # fmt: skip
    assert change.sentence.startswith("From checkpoint 11 on, the median duration is 9.0 s (of 10 checkpoints)")
    assert (await client.get("/api/v1/jobs/j0/change-points")).status_code == 404


async def test_barriers_are_measured_if_the_engine_reported_them_and_reconstructed_if_not(client, writer, target):
    events = barrier_events(6)
    await writer.write(observation(target, replace(job([completed(1), completed(2)]), barriers=((1, events),))))
    row = await _the_job(client)
    root = f"/api/v1/jobs/{row.id}/runs/{row.run_id}/checkpoints"

    measured = await _get(client, f"{root}/1/barriers", BarriersOut)
    assert measured.basis == "measured"
    assert [(e.at_ms, e.lamport, e.channel is None) for e in measured.events] == [
        (1.5 * i, i, i % 2 == 0) for i in range(6)
    ]
    reconstructed = await _get(client, f"{root}/2/barriers", BarriersOut)
    assert reconstructed.basis == "reconstructed"
    assert all(e.channel is None for e in reconstructed.events)
    acked = [e for e in reconstructed.events if e.kind == "acked" and e.vertex_id == SINK]
    assert [e.at_ms for e in acked] == [102, 202, 302]
    assert (await _get(client, f"{root}/1", api.CheckpointDetailOut)).has_barriers

    # The whole trace could not be read. What was read while the checkpoint was open is not shown as measured.
    await writer.write(observation(target, replace(job([completed(1), completed(2)]), barriers=((1, ()),))))
    assert (await _get(client, f"{root}/1/barriers", BarriersOut)).basis == "reconstructed"


async def test_the_space_time_diagram_is_measured_from_stored_events_and_reconstructed_without_them(
    client, writer, target
):
    channel = ChannelId(SOURCE, SINK, 0, 0)
    events = (
        BarrierEvent(BarrierEventKind.SENT_BEFORE_SNAPSHOT, SOURCE, 0, 1000, 1, channel, size_bytes=500),
        BarrierEvent(BarrierEventKind.BARRIER_EMITTED, SOURCE, 0, 1000, 1, channel),
        BarrierEvent(BarrierEventKind.BARRIER_RECEIVED, SINK, 0, 4500, 2, channel),
        BarrierEvent(BarrierEventKind.SNAPSHOT_SYNC_START, SINK, 0, 4500, 2),
        BarrierEvent(BarrierEventKind.PROCESSED_BEFORE_SNAPSHOT, SINK, 0, 4500, 2, channel, size_bytes=512),
    )
    await writer.write(observation(target, replace(job([completed(1), completed(2)]), barriers=((1, events),))))
    row = await _the_job(client)
    root = f"/api/v1/jobs/{row.id}/runs/{row.run_id}/checkpoints"

    measured = await _get(client, f"{root}/1/space-time", SpaceTimeOut)
    assert (measured.basis, measured.is_folded, measured.subtask_count) == ("measured", False, 6)
    (arrow,) = measured.arrows
    assert (measured.lanes[arrow.source].vertex, measured.lanes[arrow.target].vertex) == (
        "Source: orders", "Sink: ledger",
    )  # fmt: skip
    assert (arrow.emitted_ms, arrow.received_ms) == (1.0, 4.5)
    assert (measured.cut.state, [(p.error, p.size_bytes) for p in measured.cut.problems]) == (
        "inconsistent", [("backwards", 12)],
    )  # fmt: skip
    assert measured.cut.sentence == "The cut is not consistent: 12 bytes on 1 of 1 channel crossed it backwards."

    reconstructed = await _get(client, f"{root}/2/space-time?open={SINK}&open=gone", SpaceTimeOut)
    assert (reconstructed.basis, reconstructed.cut.state) == ("reconstructed", "unchecked")
    assert [lane.ack_ms for lane in reconstructed.lanes if lane.vertex_id == SINK] == [102, 202, 302]
    assert reconstructed.note is not None
    assert "the engine does not report channels" in reconstructed.note
    assert (await client.get(f"{root}/9/space-time")).status_code == 404


async def test_the_verdict_of_a_job_equals_the_verdict_in_the_list_of_jobs(client, written):
    row = await _the_job(client)
    found = await _get(client, f"/api/v1/jobs/{row.id}/verdict", api.DiagnosisOut)

    assert (found.health, found.verdict, found.checkpoints_considered) == (row.health, row.verdict, 3)
    detail = await _get(client, f"/api/v1/jobs/{row.id}", api.JobDetailOut)
    assert detail.verdict == row.verdict
    assert [(v.name, v.layer, v.row) for v in detail.vertices] == [("Source: orders", 0, 0), ("Sink: ledger", 1, 0)]
    assert detail.counts is not None
    assert (detail.counts.failed, detail.counts.failed_unlisted) == (1, 0)


async def test_backpressure_is_the_latest_reading_and_a_series_if_a_range_is_given(client, written):
    row = await _the_job(client)
    path = f"/api/v1/jobs/{row.id}/backpressure"
    latest = await _get(client, path, BackpressureOut)

    assert [v.vertex for v in latest.vertices] == ["Source: orders", "Sink: ledger"]
    assert latest.vertices[1].busy_ratio == [1.0, 1.0, None]
    assert latest.vertices[1].queued_in_bytes == []
    assert latest.series == []
    since = (NOW - timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    until = (NOW + timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    ranged = await _get(client, f"{path}?from={since}&to={until}", BackpressureOut)
    assert {(p.vertex_id, p.busy_ratio, p.queued_bytes) for p in ranged.series} == {
        (SOURCE, 0.5, 1 << 40),
        (SINK, 1.0, 1 << 40),
    }


async def test_targets_are_added_once_changed_paused_and_removed(client):
    body = {"url": "HTTP://My-Flink:8081/", "labels": {"environment": "prod"}}
    answer = await client.post("/api/v1/targets", json=body)
    added = api.TargetOut.model_validate_json(answer.content)

    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/v1/targets/{added.id}"
    assert (added.url, added.name, added.health.state, added.cost) == (
        "http://my-flink:8081", "my-flink:8081", "pending", None
    )  # fmt: skip
    again = await client.post("/api/v1/targets", json={"url": "http://my-flink:8081"})
    assert (again.status_code, again.json()["type"]) == (409, "urn:barrierscope:problem:target-exists")
    path = answer.headers["location"]
    changed = await client.patch(path, json={"is_enabled": False, "name": "production"})
    assert changed.json()["health"]["state"] == "paused"
    assert changed.json()["labels"] == {"environment": "prod"}
    assert (await client.delete(path)).status_code == 204
    assert (await client.delete(path)).status_code == 404
    assert (await client.get(path)).status_code == 404


async def test_an_address_is_tested_before_it_is_added(engine, clock):
    async def probe(url, timeout_s, *, kind, reach):
        if "dead" in url:
            raise TargetUnavailableError(url=url, reason="cannot connect: Connection refused")
        if "proxy" in url:
            raise TargetProtocolError(url=url, reason="HTTP 503 of a proxy", status=503, is_passing=True)
        if "html" in url:
            raise TargetProtocolError(url=url, reason="answers HTML, not Flink's JSON", status=200, is_passing=True)
        if url.endswith("/jobs"):
            raise WrongRootError(url=url, reason="HTTP 404", root=url.removesuffix("/jobs"))
        return Probed()

    async with asking(api_over(engine, clock, target_probe=probe)) as client:

        async def add(url, path="/api/v1/targets"):
            answer = await client.post(path, json={"url": url})
            return answer.status_code, answer.json()

        wrong, page = await add("http://my-flink:8081/jobs"), await add("http://my-flink:8081/#/overview")
        other, odd = await add("http://html:1"), await add("http://html:1/?q=1")
        tested = await add("http://my-flink:8081/#/overview", "/api/v1/targets/test")
        dead, behind = await add("http://dead:1"), await add("http://proxy:1")
        good = await add("http://my-flink:8081")
        listed = (await client.get("/api/v1/targets")).json()["items"]

    assert (wrong[0], page[0], other[0], odd[0]) == (422, 422, 422, 422)
    assert wrong[1]["errors"][0]["detail"].endswith("the REST root of the target is http://my-flink:8081")
    assert page[1]["errors"][0]["detail"] == (
        "http://my-flink:8081/#/overview: this is a page of a web UI; the REST root of the target is http://my-flink:8081"
    )
    assert "answers HTML, not Flink's JSON; this is not the root of a target" in other[1]["errors"][0]["detail"]
    assert odd[1]["errors"][0]["detail"] == "has a query or fragment"
    assert (tested[0], tested[1]["is_ok"], tested[1]["root"]) == (200, False, "http://my-flink:8081")
    assert (dead[0], behind[0], good[0]) == (201, 201, 201)
    assert "Connection refused" in dead[1]["health"]["reason"]
    assert "503" in behind[1]["health"]["reason"]
    assert good[1]["health"]["reason"] is None
    assert [t["url"] for t in listed] == ["http://dead:1", "http://proxy:1", "http://my-flink:8081"]


async def test_a_target_is_of_an_installed_kind_and_a_flink_by_default(client):
    default = await client.post("/api/v1/targets", json={"url": "http://my-flink:8081"})
    unknown = await client.post("/api/v1/targets", json={"url": "http://my-toy:1", "kind": "flnk"})
    malformed = await client.post("/api/v1/targets", json={"url": "http://my-toy:2", "kind": "No kind!"})

    assert default.json()["kind"] == "flink"
    assert (unknown.status_code, unknown.json()["errors"]) == (
        422,
        [
            {
                "pointer": "kind",
                "detail": "no collector for targets of kind 'flnk' is installed",
                "allowed": "flink, spark",
            }
        ],
    )
    assert (malformed.status_code, malformed.json()["errors"][0]["pointer"]) == (422, "#/kind")


async def test_testing_a_connection_stores_nothing(client):
    well = await client.post("/api/v1/targets/test", json={"url": "http://my-flink:8081"})
    dead = await client.post("/api/v1/targets/test", json={"url": "http://dead:8081"})

    assert (well.json()["is_ok"], well.json()["running_jobs"]) == (True, ["orders"])
    assert (dead.status_code, dead.json()["is_ok"]) == (200, False)
    assert "Connection refused" in dead.json()["problem"]
    assert (await _get(client, "/api/v1/targets", api.Page[api.TargetOut])).items == []


async def test_with_an_allow_list_only_listed_targets_are_tested_or_added(engine, clock):
    rules = AddressRules(is_everything_allowed=False, allowed=("my-flink",))
    async with asking(api_over(engine, clock, rules=rules)) as client:
        for path in ("targets", "targets/test"):
            refused = await client.post(f"/api/v1/{path}", json={"url": "http://169.254.169.254/latest"})
            assert refused.status_code == 422
            assert refused.json()["errors"][0]["allowed"] == "my-flink"
        assert (await client.post("/api/v1/targets/test", json={"url": "http://my-flink:8081"})).json()["is_ok"]


WRONG = [
    ("jobs/jnone", 404, "unknown-job"),
    ("jobs/jnone/verdict", 404, "unknown-job"),
    ("jobs/jnone/runs/rnone/checkpoints/1", 404, "unknown-job"),
    ("targets/tnone", 404, "unknown-target"),
    ("jobs?cursor=nonsense", 422, "invalid-input"),
    ("jobs?cursor=WzEsMiwzXQ", 422, "invalid-input"),
    ("jobs?limit=0", 422, "invalid-input"),
    ("jobs?limit=501", 422, "invalid-input"),
    ("jobs?health=unwell", 422, "invalid-input"),
    ("jobs/%00", 422, "invalid-input"),
    ("jobs/j/runs/r/checkpoints/-1", 422, "invalid-input"),
    ("jobs/j/runs/r/checkpoints/9223372036854775808", 422, "invalid-input"),
    ("jobs/j/runs/r/checkpoints/one", 422, "invalid-input"),
    ("jobs/j/backpressure?from=yesterday", 422, "invalid-input"),
    ("jobs/j/backpressure?from=2026-01-01T00:00:00", 422, "invalid-input"),
    *(
        (f"jobs/j/{path}={at}", 422, "invalid-input")
        for path in ("backpressure?from", "backpressure?to", "checkpoints?from", "history?to", "compare-windows?at")
        for at in ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-12:00")
    ),
    ("board?known=", 422, "invalid-input"),
    ("board?known=%00", 422, "invalid-input"),
    (f"board?known={'x' * 101}", 422, "invalid-input"),
    ("nope", 404, "unknown-path"),
]


async def test_an_invalid_request_is_answered_with_a_problem(client):
    # One store is enough for all paths, because none of these requests writes.
    for path, status, slug in WRONG:
        found = await _get(client, f"/api/v1/{path}", api.Problem, status=status)
        assert (found.status, found.type) == (status, f"urn:barrierscope:problem:{slug}"), path
        assert found.title, path
        assert found.detail, path


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
async def test_an_instant_at_an_end_of_the_calendar_in_a_body_is_a_problem(client, written, at):
    row = await _the_job(client)
    for path, body in (
        ("silences", {"ends_at": at, "author": "ann", "reason": "work", "matchers": [{"label": "job", "value": "x"}]}),
        (f"jobs/{row.id}/annotations", {"text": "deployed", "author": "ann", "at": at}),
    ):
        answer = await client.post(f"/api/v1/{path}", json=body)
        assert answer.status_code == 422, path
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_range_that_ends_before_it_begins_is_refused(client, written):
    row = await _the_job(client)
    query = "from=2026-11-21T12:00:00Z&to=2026-11-21T11:00:00Z"
    found = await _get(client, f"/api/v1/jobs/{row.id}/backpressure?{query}", api.Problem, status=422)

    assert found.errors[0].pointer == "from"


async def test_while_the_store_is_away_the_status_reports_it_and_other_paths_answer_503_with_retry_after(clock):
    away = create_store_engine("postgresql://nobody@127.0.0.1:1/nothing")
    async with asking(api_over(away, clock)) as client:
        status = await _get(client, "/api/v1/status", StatusOut)
        assert (status.store, status.targets_total) == ("unreachable", None)
        answer = await client.get("/api/v1/jobs")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    await away.dispose()


async def test_the_status_has_the_size_of_the_history_and_the_days_that_fit(client, written, clock):
    clock.at = NOW + timedelta(hours=2)
    history = (await client.get("/api/v1/status")).json()["history"]

    assert history["size_limit_bytes"] == 2 * 2**30
    assert 0 < history["size_bytes"] < history["size_limit_bytes"]
    assert (history["promised_days"], history["held_days"]) == (7.0, 7.0)
    assert (history["promised_whole_days"], history["held_whole_days"]) == (2.0, 2.0)
    assert history["is_short"] is False
    assert history["oldest_day"] is not None


async def test_the_status_shows_whether_a_collector_runs(client, database):
    from backend.store.targets.leases import CollectorSession

    silent = {"api": "ok", "collect": "silent", "alert": "silent"}
    assert (await _get(client, "/api/v1/status", StatusOut)).roles == silent
    with CollectorSession(database, holder="here"):
        async with asyncio.timeout(PATIENCE_S):
            while (await _get(client, "/api/v1/status", StatusOut)).roles == silent:
                pass
        assert (await _get(client, "/api/v1/status", StatusOut)).roles == silent | {"collect": "ok"}
    assert (await _get(client, "/api/v1/status", StatusOut)).roles == silent
