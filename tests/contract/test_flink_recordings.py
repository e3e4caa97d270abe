"""The collector on six recordings of a real Flink 1.20.5, poll by poll in virtual time.

The tests read the recorded JSON a second time, independently of ``collectors``. The ids of all checkpoints and
the values of all vertices and subtasks must equal the recorded ones. A value that was not reported must be
None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backend.domain.checkpoint import DETAIL_ARRAYS, Checkpoint, CheckpointCounts, CheckpointStatus
from backend.domain.engines import flink
from backend.domain.errors import TargetUnavailableError
from backend.domain.ids import TargetId
from backend.domain.observation import JobObservation, JobState, Observation
from collectors.flink.collector import FlinkCollector
from tests.support.recorded_flink import NAMES, RECORDINGS, Answer, RecordedFlink, Recording
from tests.support.recorded_values import (
    expected_columns,
    expected_header,
    recorded_entries,
    recorded_histories,
    recorded_subtasks,
)

TARGET = TargetId("t0000000000000000")


class Replay:
    """The observations of a recording that is read to its end, with ``step_s`` seconds between polls."""

    def __init__(self, name: str, *, step_s: float) -> None:
        self.flink = RecordedFlink(RECORDINGS / name)
        self.recording = self.flink.recording
        self.collector = FlinkCollector(self.flink, target_id=TARGET, monotonic_s=self.flink.monotonic_s)
        self.step_s = step_s
        self.observations: list[Observation] = []

    async def run(self) -> Replay:
        self.flink.at_s = self.recording.begins_s
        # Poll beyond the end, because the collector sees the end of an idle job only when it lists the jobs again.
        while self.flink.at_s <= self.recording.end_s + max(self.step_s, 6.0):
            self.observations.append(await self.collector.collect(self.flink.now))
            self.flink.at_s += self.step_s
        return self

    @property
    def jobs(self) -> list[JobObservation]:
        return [j for o in self.observations for j in o.jobs if j.engine_run_id == self.recording.job_id]

    @property
    def terminal(self) -> dict[int, list[Checkpoint]]:
        found: dict[int, list[Checkpoint]] = {}
        for job in self.jobs:
            for checkpoint in job.checkpoints:
                if checkpoint.header.status.is_terminal:
                    found.setdefault(checkpoint.header.checkpoint_id, []).append(checkpoint)
        return found

    @property
    def detailed(self) -> dict[int, Checkpoint]:
        """The terminal checkpoints that have details, by checkpoint id."""
        return {cid: c for cid, handed_on in self.terminal.items() for c in handed_on if c.details}


@pytest.fixture(params=[(n, s) for n in NAMES for s in (1.0, 2.0, 7.3)], ids=lambda p: f"{p[0]}-every-{p[1]:g}s")
async def replay(request: pytest.FixtureRequest, anyio_backend: str) -> Replay:
    name, step_s = request.param
    return await Replay(name, step_s=step_s).run()


@pytest.mark.anyio
async def test_every_recorded_checkpoint_is_handed_on_once_with_its_detail(replay: Replay) -> None:
    entries = recorded_entries(replay.recording)
    assert len(entries) >= 14
    assert set(replay.terminal) == set(entries)
    for checkpoint_id, handed_on in replay.terminal.items():
        assert len([c for c in handed_on if c.details]) == 1, checkpoint_id


@pytest.mark.anyio
async def test_every_subtask_value_equals_the_recorded_one_and_missing_stays_missing(replay: Replay) -> None:
    recorded = recorded_subtasks(replay.recording)
    assert recorded
    seen = 0
    for checkpoint_id, checkpoint in replay.detailed.items():
        for detail in checkpoint.details:
            for field, expected in expected_columns(recorded[checkpoint_id, detail.vertex_id]).items():
                assert getattr(detail, field) == expected, (checkpoint_id, detail.vertex_id, field)
                seen += len(expected)
    assert seen == sum(10 * body["num_subtasks"] for body in recorded.values())


@pytest.mark.anyio
async def test_the_subtasks_of_a_source_that_ended_are_recognized_although_flink_acknowledged_them_later() -> None:
    replay = await Replay("H", step_s=2.0).run()
    recorded = recorded_subtasks(replay.recording)
    job = next(b for p, rows in replay.recording.answers.items() if p.count("/") == 2 for s, b in rows if s == 200)
    (bounded,) = (v["id"] for v in job["vertices"] if v["name"] == "Source: bounded-source")
    delays = {row["end_to_end_duration"] for n in range(7, 17) for row in recorded[n, bounded]["subtasks"]}
    assert delays == {0, 1, 2}, "the coordinator acknowledged them up to 2 ms after the trigger"
    for checkpoint_id, checkpoint in replay.detailed.items():
        for detail in checkpoint.details:
            is_over = detail.vertex_id == bounded and checkpoint_id >= 7
            finished = [detail.has_finished(i) for i in range(detail.subtask_count)]
            assert finished == [is_over] * 4, (checkpoint_id, detail.vertex_id)


@pytest.mark.anyio
async def test_every_header_equals_the_recorded_one(replay: Replay) -> None:
    for checkpoint_id, entry in recorded_entries(replay.recording).items():
        header = replay.terminal[checkpoint_id][-1].header
        # Compare the last reported header. When a newer checkpoint completes, Flink discards this checkpoint, and the
        # collector reports the header again.
        for field, expected in expected_header(entry).items():
            assert getattr(header, field) == expected, (checkpoint_id, field)


@pytest.mark.anyio
async def test_a_checkpoint_in_progress_has_no_duration_and_no_size_before_an_acknowledgement(replay: Replay) -> None:
    running = [c for j in replay.jobs for c in j.checkpoints if not c.header.status.is_terminal]
    for checkpoint in running:
        header = checkpoint.header
        assert header.end_to_end_duration_ms is None
        # Once a subtask has acknowledged, its values no longer change.
        final = {d.vertex_id: d for d in replay.detailed[header.checkpoint_id].details}
        for detail in checkpoint.details:
            assert len(detail.pending) < detail.subtask_count
            for field in DETAIL_ARRAYS:
                for so_far, in_the_end in zip(
                    getattr(detail, field), getattr(final[detail.vertex_id], field), strict=True
                ):
                    assert so_far in (None, in_the_end), (header.checkpoint_id, field)
        if header.acknowledged_count == 0:
            assert (header.latest_ack_at, header.checkpointed_size_bytes, header.persisted_bytes) == (None, None, None)


@pytest.mark.anyio
async def test_counts_are_passed_through_with_failures_that_were_never_listed(replay: Replay) -> None:
    last = recorded_histories(replay.recording)[-1]["counts"]
    counts = [j.counts for j in replay.jobs if j.counts is not None]
    newest = counts[-1].newest_completed_id, counts[-1].newest_triggered_at
    assert replace(counts[-1], newest_completed_id=None, newest_triggered_at=None) == CheckpointCounts(**last)
    completed = [e for e in recorded_entries(replay.recording).values() if e["status"] == "COMPLETED"]
    expected = max(completed, key=lambda e: e["id"], default=None)
    assert newest[0] == (None if expected is None else expected["id"])
    assert (newest[1] is None) is (expected is None)
    if replay.recording.folder.name == "E":
        listed = sum(e["status"] == "FAILED" for e in recorded_entries(replay.recording).values())
        assert counts[-1].failed == listed + 1


@pytest.mark.anyio
async def test_a_poll_costs_a_target_few_requests(
    replay: Replay, record_property: Callable[[str, object], None]
) -> None:
    counts = [o.cost.request_count for o in replay.observations]
    assert sum(counts) == len(replay.flink.asked)
    vertex_count = 4 if replay.recording.folder.name == "H" else 3
    first, later = counts[0], counts[1:]
    mean = sum(later) / len(later)
    record_property("requests_per_poll", f"first {first}, then mean {mean:.1f}, most {max(later)}")
    # Each poll requests the list of jobs and the history, and for each vertex the details once and the metrics once.
    # With long pauses between polls, a poll may read two checkpoints.
    assert mean <= (2 + vertex_count * (1 + 1)) * (1 if replay.step_s <= 2 else 2)
    # A poll needs more requests once in a run, when its tasks first change: for the graph, exceptions, restarts,
    # placements, settings and metric names.
    assert max(counts) <= 6 + vertex_count * (5 + 2 * replay.step_s)
    assert max(len(path) for path in replay.flink.asked) < 4000


@pytest.mark.anyio
async def test_details_are_requested_once_and_those_of_an_ended_job_never_again(replay: Replay) -> None:
    final = [p for p in replay.flink.asked if "/subtasks/" in p and "details" in p]
    ids_in_progress = {
        c.header.checkpoint_id for j in replay.jobs for c in j.checkpoints if not c.header.status.is_terminal
    }
    # The vertices that lacked acknowledgements when their checkpoint failed are read a second time.
    lacking = {
        (cid, d.vertex_id)
        for cid, c in replay.detailed.items()
        for d in c.details
        if d.pending and c.header.status is CheckpointStatus.FAILED
    }
    for path in set(final):
        cid, vertex_id = int(path.split("/")[5]), path.split("/")[7]
        if cid not in ids_in_progress:
            assert final.count(path) <= (2 if (cid, vertex_id) in lacking else 1), path
    replay.flink.at_s = replay.recording.end_s + 3600
    await replay.collector.collect(replay.flink.now)
    replay.flink.asked.clear()
    await replay.collector.collect(replay.flink.now)
    assert replay.flink.asked == ["/jobs/overview"]


@pytest.mark.anyio
async def test_the_job_is_described_as_recorded(replay: Replay) -> None:
    observation = replay.observations[0]
    assert (observation.engine, observation.engine_version) == (flink("1.20.5"), "1.20.5")
    job = replay.jobs[0]
    assert job.state is JobState.RUNNING
    assert job.topology is not None
    names = [v.name for v in job.topology.vertices]
    assert names[0] == "Source: main-source"
    assert names[-1] == "slow-stage-2 -> sink: Writer"
    assert {e.ship_strategy for e in job.topology.edges} == {"HASH"}
    order = {v.id: n for n, v in enumerate(job.topology.vertices)}
    assert all(order[e.source] < order[e.target] for e in job.topology.edges)
    config = next(j.config for j in replay.jobs if j.config is not None)
    arguments = replay.recording.run["job_args"]
    assert config.interval_ms == 5000
    assert config.timeout_ms == (3000 if replay.recording.folder.name == "E" else 600_000)
    assert config.is_unaligned_enabled == (arguments["mode"] == "unaligned")
    # Flink prints 0 with and without unaligned checkpoints. Without them, the setting does not apply. With them, 0
    # means "unaligned from the start".
    assert config.aligned_timeout_ms == (0 if arguments["mode"] == "unaligned" else None)
    placements = {p.vertex_id: p for j in replay.jobs for p in j.placements}
    assert set(placements) == set(order)
    assert all(p.hosts == ("localhost",) * 4 for p in placements.values()), placements
    assert replay.jobs[-1].state is JobState.ENDED


@pytest.mark.anyio
async def test_other_jobs_that_had_ended_are_not_observed(replay: Replay) -> None:
    assert {j.engine_run_id for o in replay.observations for j in o.jobs} == {replay.recording.job_id}


@pytest.mark.anyio
@pytest.mark.parametrize("name", NAMES)
async def test_pressure_agrees_with_the_backpressure_endpoint_at_that_time(name: str) -> None:
    replay = await Replay(name, step_s=2.0).run()
    recording, agreeing, compared = replay.recording, 0, 0
    for job in replay.jobs:
        for reading in job.pressure:
            at_s = (reading.observed_at - recording.began_at).total_seconds()
            # The recorder queried the two endpoints some milliseconds apart, and Flink may have fetched its metrics in
            # between. So the response after that time counts too.
            path = f"/jobs/{recording.job_id}/vertices/{reading.vertex_id}/backpressure"
            answers = [recording.last(path, at_s + later_s) for later_s in (0.0, 0.5)]
            bodies = [a[1] for a in answers if a is not None and a[0] == 200 and a[1]["status"] == "ok"]
            if len(bodies) < len(answers):
                continue
            for n, measured in enumerate(reading.backpressured_ratio):
                if measured is not None:
                    ratios = {row["ratio"] for body in bodies for row in body["subtasks"] if row["subtask"] == n}
                    compared += 1
                    agreeing += any(abs(measured - ratio) < 1e-6 for ratio in ratios)
    assert compared >= 40
    assert agreeing >= 0.97 * compared


@pytest.mark.anyio
@pytest.mark.parametrize("step_s", [1.0, 2.0])
async def test_late_barriers_give_the_first_barrier_of_subtasks_that_never_acknowledged(step_s: float) -> None:
    replay = await Replay("E", step_s=step_s).run()
    details = {(cid, d.vertex_id): d for cid, found in replay.detailed.items() for d in found.details}
    pending = {(*key, n) for key, detail in details.items() for n in detail.pending}
    late = {
        (p.checkpoint_id, b.vertex_id, b.subtask): b for j in replay.jobs for p in j.progress for b in p.late_barriers
    }
    assert len(pending) >= 40
    # If a subtask acknowledged later, its start delay equals the start delay that was observed while it was pending.
    for cid, vertex_id, subtask in set(late) - pending:
        assert late[cid, vertex_id, subtask].start_delay_ms == details[cid, vertex_id].start_delay_ms[subtask]
    # The recording has the metrics of nearly all pending subtasks, but not of all.
    assert len(set(late) & pending) >= 0.9 * len(pending), sorted(pending - set(late))
    # An independent check: after the trigger, the subtask's metric in the recording must have had the observed value.
    for (cid, vertex_id, subtask), barrier in late.items():
        triggered_at = replay.terminal[cid][-1].header.triggered_at
        shown = gauge_readings(replay.recording, vertex_id, subtask)
        at = [t for t, v in shown if v // 1_000_000 == barrier.start_delay_ms]
        assert at, (cid, vertex_id, subtask, barrier)
        first_shown_ms = (at[0] - triggered_at).total_seconds() * 1000
        assert barrier.start_delay_ms - 50 <= first_shown_ms <= barrier.start_delay_ms + 5000, (cid, barrier)


class CutFlink(RecordedFlink):
    """A recording in which the source comes last, and answers no request for metrics."""

    source_id = ""

    async def get(self, path: str) -> bytes:
        if f"/vertices/{self.source_id}/metrics" in path:
            raise TargetUnavailableError(url=self.url, reason="no answer")
        return await super().get(path)

    def answer(self, path: str) -> Answer:
        status, body = super().answer(path)
        if path == f"/jobs/{self.recording.job_id}" and status == 200:
            self.source_id = body["vertices"][0]["id"]
            # Without edges, vertices are read in the order in which they are listed.
            nodes = [{"id": node["id"]} for node in body["plan"]["nodes"]]
            return status, body | {"vertices": body["vertices"][::-1], "plan": {"nodes": nodes}}
        return status, body


@pytest.mark.anyio
async def test_late_barriers_that_were_read_before_a_poll_was_cut_are_not_lost() -> None:
    def late_of(replay: Replay) -> set[tuple[int, str, int]]:
        late = [(p.checkpoint_id, b) for j in replay.jobs for p in j.progress for b in p.late_barriers]
        return {(cid, b.vertex_id, b.subtask) for cid, b in late}

    whole, cut = await Replay("E", step_s=1.0).run(), Replay("E", step_s=1.0)
    cut.flink.__class__ = CutFlink
    await cut.run()
    assert any("no answer" in p for j in cut.jobs for p in j.problems)
    assert late_of(cut) == late_of(whole) != set()


def gauge_readings(recording: Recording, vertex_id: str, subtask: int) -> list[tuple[datetime, int]]:
    found = []
    prefix = f"/jobs/{recording.job_id}/vertices/{vertex_id}/metrics?get="
    for path, times in recording.times.items():
        if path.startswith(prefix):
            for at_s, (_, body) in zip(times, recording.answers[path], strict=True):
                for row in body:
                    if row["id"] == f"{subtask}.checkpointStartDelayNanos":
                        at_ms = recording.began_at.timestamp() + at_s
                        found.append((datetime.fromtimestamp(at_ms, UTC), int(row["value"])))
    return sorted(found)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["A", "C2", "H"])
async def test_a_healthy_job_has_no_late_barriers(name: str) -> None:
    replay = await Replay(name, step_s=1.0).run()
    assert not [b for j in replay.jobs for p in j.progress for b in p.late_barriers]
