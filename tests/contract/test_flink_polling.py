"""The requests of a poll: their number is bounded, and some metrics are requested only of pending subtasks.

The start delay of a subtask is requested while the subtask is pending, and for one checkpoint timeout longer.
Recordings of a real Flink are replayed, frozen while time passes without any event, or multiplied to many jobs.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest

from backend.contracts import flink as flink_names
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.observation import JobState, KnownRun, Observation
from collectors.flink.collector import CollectorOptions, FlinkCollector
from collectors.flink.job import JobReader
from collectors.flink.parse import JobEntry
from collectors.flink.reading import EngineFacts, RunMemory
from collectors.flink.requests import Requests
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, Recording
from tests.support.recorded_values import expected_columns, instant, recorded_subtasks

pytestmark = pytest.mark.anyio

TARGET = TargetId("t")


class Frozen:
    """A ``FlinkTransport`` on a recording. Its clock can advance by ``passed_s`` while its responses stay the same."""

    def __init__(self, name: str) -> None:
        self.flink = RecordedFlink(RECORDINGS / name)
        self.url = self.flink.url
        self.passed_s = 0.0
        self.asked: list[str] = []

    @property
    def now(self) -> datetime:
        return self.flink.now + timedelta(seconds=self.passed_s)

    def monotonic_s(self) -> float:
        return self.flink.at_s + self.passed_s

    async def get(self, path: str) -> bytes:
        self.asked.append(path)
        body = await self.flink.get(path)
        if path != "/jobs/overview":
            return body
        now_ms = round(self.now.timestamp() * 1000)
        rows = [r | {"duration": now_ms - r["start-time"]} for r in orjson.loads(body)["jobs"]]
        return orjson.dumps({"jobs": rows})


def is_gauges_only(path: str) -> bool:
    return "checkpointStartDelayNanos" in path and "busyTimeMsPerSecond" not in path


async def read_until(frozen: Frozen, collector: FlinkCollector, at_s: float) -> None:
    frozen.flink.at_s = frozen.flink.recording.begins_s
    while frozen.flink.at_s < at_s:
        await collector.collect(frozen.now)
        frozen.flink.at_s += 0.5
    frozen.flink.at_s = at_s


def all_quiet(recording: Recording) -> tuple[float, dict[str, Any]]:
    """Return an instant without a checkpoint in progress, and the newest entry of the history then.

    The instant is in seconds.
    """
    path = f"/jobs/{recording.job_id}/checkpoints"
    for at_s, (_, body) in zip(recording.times[path], recording.answers[path], strict=True):
        newest = max(body["history"], key=lambda entry: entry["id"], default=None)
        if newest is not None and newest["id"] > 5 and body["counts"]["in_progress"] == 0:
            return at_s + 0.01, newest
    raise AssertionError("no such moment")


async def test_gauges_are_requested_for_one_timeout_after_an_expiry_and_no_longer() -> None:
    frozen = Frozen("E")
    collector = FlinkCollector(
        frozen,
        target_id=TARGET,
        monotonic_s=frozen.monotonic_s,
        # A full reading of a vertex would request the start delay too. This interval prevents full readings, so every
        # request for a start delay is for pending subtasks.
        options=CollectorOptions(pressure_interval_s=10_000.0),
    )
    recording = frozen.flink.recording
    at_s, newest = all_quiet(recording)
    failed_at = instant(newest["failure_timestamp"])
    assert failed_at is not None
    await read_until(frozen, collector, at_s)
    # After an expiry, a barrier may still arrive within one timeout of 3 s. Its delay appears in Flink's next fetch
    # of the metrics.
    first_s = 3.0 + 1.0 + recording.run["poll_seconds"]
    last_s = first_s + 2.0
    asked_at_s = []
    for _ in range(40):
        frozen.asked.clear()
        await collector.collect(frozen.now)
        since_s = (frozen.now - failed_at).total_seconds()
        if any(is_gauges_only(p) for p in frozen.asked):
            asked_at_s.append(since_s)
        else:
            assert since_s > first_s, "gauges must be requested while the barrier may still arrive"
        frozen.passed_s += 0.5
    assert first_s < max(asked_at_s) <= last_s + 0.5


async def test_gauges_are_requested_only_for_pending_subtasks() -> None:
    flink = RecordedFlink(RECORDINGS / "E")
    recording = flink.recording
    collector = FlinkCollector(
        flink,
        target_id=TARGET,
        monotonic_s=flink.monotonic_s,
        options=CollectorOptions(pressure_interval_s=10_000.0),
    )
    flink.at_s = recording.begins_s
    pending_ever = {
        (vertex, n)
        for (_, vertex), body in recorded_subtasks(recording).items()
        for n, value in enumerate(expected_columns(body)["ack_delay_ms"])
        if value is None
    }
    vertices = {vertex for vertex, _ in pending_ever}
    asked = 0
    open_polls = 0
    while flink.at_s < recording.last_running_s - 5:
        flink.asked.clear()
        observation = await collector.collect(flink.now)
        awaited = {
            (vertex, n)
            for j in observation.jobs
            for p in j.progress
            for vertex, subtasks in p.pending
            for n in subtasks
        }
        open_polls += bool(awaited)
        for path in filter(is_gauges_only, flink.asked):
            vertex = path.split("/")[4]
            subtasks = {int(m.partition(".")[0]) for m in path.partition("get=")[2].split(",")}
            asked += 1
            assert {(vertex, n) for n in subtasks} <= awaited | pending_ever, path
        flink.at_s += 1.0
    assert asked >= open_polls > 20
    # One request for a vertex covers all its subtasks.
    assert asked <= open_polls * (len(vertices) + 2)


async def test_rates_are_requested_once_they_cover_a_whole_minute_of_the_running_tasks() -> None:
    frozen = Frozen("A")
    options = CollectorOptions(pressure_interval_s=1.0, list_interval_s=1.0)
    collector = FlinkCollector(frozen, target_id=TARGET, monotonic_s=frozen.monotonic_s, options=options)
    begun_s = frozen.flink.recording.begins_s
    await read_until(frozen, collector, begun_s + 40.0)

    async def read() -> dict[str, tuple[int, int]]:
        """Return for each vertex how many rates of what it reads, and of what it emits, the next reading has."""
        for _ in range(5):
            frozen.passed_s += 2.0
            (job,) = (await collector.collect(frozen.now)).jobs
            if job.pressure:
                break
        return {p.vertex_id: (len(p.records_in_per_s), len(p.records_out_per_s)) for p in job.pressure}

    young = await read()
    assert len(young) == 3
    assert set(young.values()) == {(0, 0)}, "Flink divides by a minute, so the rates of 40 s are too small"
    assert not any("RecordsInPerSecond" in path for path in frozen.asked)
    frozen.passed_s += 60.0
    assert sorted((await read()).values()) == [(0, 4), (4, 0), (4, 0)], "a source emits, and the others read"


async def test_gauges_alone_are_not_requested_for_a_healthy_job() -> None:
    flink = RecordedFlink(RECORDINGS / "A")
    collector = FlinkCollector(flink, target_id=TARGET, monotonic_s=flink.monotonic_s)
    flink.at_s = flink.recording.begins_s
    while flink.at_s < flink.recording.end_s:
        await collector.collect(flink.now)
        flink.at_s += 2.0
    assert not list(filter(is_gauges_only, flink.asked))


class Crowd:
    """A ``FlinkTransport`` that presents the job of a recording as ``count`` jobs, each with its own id."""

    def __init__(self, flink: RecordedFlink, count: int) -> None:
        self._flink = flink
        self.url = flink.url
        self.ids = [f"{n:032x}" for n in range(1, count + 1)]
        self.asked_of: dict[str, int] = {}

    async def get(self, path: str) -> bytes:
        original = self._flink.recording.job_id
        parts = path.split("/")
        job_id = parts[2] if len(parts) > 3 or (len(parts) == 3 and len(parts[2]) == 32) else ""
        self.asked_of[job_id] = self.asked_of.get(job_id, 0) + 1
        if path == "/jobs/overview":
            (row,) = [r for r in orjson.loads(await self._flink.get(path))["jobs"] if r["jid"] == original]
            return orjson.dumps({"jobs": [row | {"jid": i, "name": f"job {i}"} for i in self.ids]})
        body = await self._flink.get(path.replace(job_id, original) if job_id else path)
        return body.replace(original.encode(), job_id.encode()) if job_id else body


async def test_many_jobs_are_read_in_turns_and_none_is_left_out_or_taken_for_ended() -> None:
    flink = RecordedFlink(RECORDINGS / "B2", at_s=40.0)
    crowd = Crowd(flink, 60)
    collector = FlinkCollector(
        crowd,
        target_id=TARGET,
        monotonic_s=flink.monotonic_s,
        options=CollectorOptions(budget_count=60, limit_count=150),
    )
    seen: dict[EngineRunId, set[int]] = {}
    detailed: dict[EngineRunId, list[int]] = {}
    polls = 0
    while len(detailed) < 60 or min(len(d) for d in detailed.values()) < 6:
        observation = await collector.collect(flink.now)
        polls += 1
        assert observation.cost.request_count < 150 + 60
        for job in observation.jobs:
            assert job.state is JobState.RUNNING
            for checkpoint in job.checkpoints:
                if checkpoint.header.status.is_terminal:
                    seen.setdefault(job.engine_run_id, set()).add(checkpoint.header.checkpoint_id)
                    if checkpoint.details:
                        detailed.setdefault(job.engine_run_id, []).append(checkpoint.header.checkpoint_id)
        assert polls < 100, (len(seen), len(detailed))
    assert set(seen) == set(crowd.ids)
    assert all(len(d) == len(set(d)) for d in detailed.values())


async def last_of(collector: FlinkCollector, flink: RecordedFlink) -> Observation:
    return await collector.collect(flink.now)


async def test_a_known_run_that_has_vanished_is_handed_on_as_ended_once() -> None:
    flink = RecordedFlink(RECORDINGS / "A", at_s=40.0)
    vanished = (EngineRunId("e" * 32), flink.now - timedelta(hours=3))
    job_id = EngineRunId(flink.recording.job_id)
    started_at = (await last_of(FlinkCollector(flink, target_id=TARGET), flink)).jobs[0].started_at
    known = {vanished: KnownRun("gone"), (job_id, started_at): KnownRun("A")}
    collector = FlinkCollector(flink, target_id=TARGET, monotonic_s=flink.monotonic_s, known=known)
    jobs = {j.engine_run_id: j for j in (await last_of(collector, flink)).jobs}
    assert set(jobs) == {vanished[0], job_id}
    assert (jobs[vanished[0]].state, jobs[vanished[0]].name) == (JobState.ENDED, "gone")
    assert jobs[job_id].state is JobState.RUNNING
    assert len(jobs[job_id].checkpoints) >= 7
    assert {j.engine_run_id for j in (await last_of(collector, flink)).jobs} == {job_id}


async def test_forget_reads_checkpoints_again_and_keeps_the_known_runs() -> None:
    flink = RecordedFlink(RECORDINGS / "A", at_s=40.0)
    vanished = (EngineRunId("e" * 32), flink.now - timedelta(hours=3))
    collector = FlinkCollector(
        flink, target_id=TARGET, monotonic_s=flink.monotonic_s, known={vanished: KnownRun("gone")}
    )
    collector.forget()
    first = await last_of(collector, flink)
    assert JobState.ENDED in {j.state for j in first.jobs}
    collector.forget()
    again = await last_of(collector, flink)
    assert again.jobs[0].checkpoints == first.jobs[0].checkpoints


class LaggingRuntime(Crowd):
    """Two jobs of a live runtime. The clock of the second job is eight seconds behind the clock of the first."""

    lag_ms = 0

    async def get(self, path: str) -> bytes:
        body = await super().get(path)
        if path == "/config":
            return orjson.dumps(orjson.loads(body) | {flink_names.RUNTIME_FIELD: "0.1.0"})
        if path == "/jobs/overview":
            first, second = orjson.loads(body)["jobs"]
            now_ms = round(self._flink.now.timestamp() * 1000)
            first["duration"] = now_ms - first["start-time"] - self.lag_ms
            second["duration"] = first["duration"] - 8000
            return orjson.dumps({"jobs": [first, second]})
        return body


async def test_a_job_of_the_runtime_has_its_own_clock_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets_s: dict[str, float] = {}

    class Noting(JobReader):
        def __init__(self, requests: Requests, entry: JobEntry, memory: RunMemory, *, engine: EngineFacts) -> None:
            offsets_s[entry.engine_run_id] = engine.offset.total_seconds()
            super().__init__(requests, entry, memory, engine=engine)

    monkeypatch.setattr("collectors.flink.collector.JobReader", Noting)
    flink = RecordedFlink(RECORDINGS / "E", at_s=60.0)
    runtime = LaggingRuntime(flink, 2)
    observation = await FlinkCollector(runtime, target_id=TARGET, monotonic_s=flink.monotonic_s).collect(flink.now)
    # The clock of a target is the clock of its most advanced job. Each job also has its own clock.
    assert observation.clock_offset_ms == pytest.approx(0, abs=1)
    assert [j.clock_offset_ms for j in observation.jobs] == [pytest.approx(0, abs=10), pytest.approx(-8000, abs=10)]
    assert offsets_s == {runtime.ids[0]: pytest.approx(0, abs=0.01), runtime.ids[1]: pytest.approx(-8, abs=0.01)}


async def test_the_clock_offset_of_a_runtime_that_falls_behind_is_updated_at_once() -> None:
    flink = RecordedFlink(RECORDINGS / "E", at_s=60.0)
    runtime = LaggingRuntime(flink, 2)
    collector = FlinkCollector(runtime, target_id=TARGET, monotonic_s=flink.monotonic_s)
    await collector.collect(flink.now)
    runtime.lag_ms = 45_000
    observation = await collector.collect(flink.now)
    assert observation.clock_offset_ms == pytest.approx(-45_000, abs=10)
    assert [j.clock_offset_ms for j in observation.jobs] == [
        pytest.approx(-45_000, abs=10),
        pytest.approx(-53_000, abs=10),
    ]


async def quiet_polls(frozen: Frozen, collector: FlinkCollector, count: int) -> list[list[str]]:
    """Poll every two seconds while nothing happens. Return the requests of each poll."""
    found = []
    for _ in range(count):
        frozen.passed_s += 2.0
        frozen.asked.clear()
        await collector.collect(frozen.now)
        found.append(list(frozen.asked))
    return found


async def test_a_poll_of_an_idle_job_is_one_request_until_the_list_of_jobs_is_due() -> None:
    frozen = Frozen("A")
    options = CollectorOptions(pressure_interval_s=10_000.0, list_interval_s=5.0)
    collector = FlinkCollector(frozen, target_id=TARGET, monotonic_s=frozen.monotonic_s, options=options)
    at_s, _ = all_quiet(frozen.flink.recording)
    await read_until(frozen, collector, at_s)
    await collector.collect(frozen.now)

    # These polls are not counted, because they read the names of metrics a second time, and the list of jobs.
    await quiet_polls(frozen, collector, 4)
    polls = await quiet_polls(frozen, collector, 9)

    history = flink_names.checkpoints(frozen.flink.recording.job_id)
    assert all(history in requests for requests in polls)
    assert sum(flink_names.JOBS_OVERVIEW in requests for requests in polls) == 3
    assert [requests for requests in polls if flink_names.JOBS_OVERVIEW not in requests] == [[history]] * 6


async def test_a_job_that_fails_to_answer_is_read_again_with_a_new_list_in_the_same_poll() -> None:
    frozen = Frozen("A")
    collector = FlinkCollector(frozen, target_id=TARGET, monotonic_s=frozen.monotonic_s)
    at_s, _ = all_quiet(frozen.flink.recording)
    await read_until(frozen, collector, at_s)
    await collector.collect(frozen.now)
    while not any(flink_names.JOBS_OVERVIEW in requests for requests in await quiet_polls(frozen, collector, 1)):
        pass
    get, history = frozen.flink.get, flink_names.checkpoints(frozen.flink.recording.job_id)
    ended_ms = round(frozen.now.timestamp() * 1000)

    async def after_the_end(path: str) -> bytes:
        body = await get(path)
        if path == history and flink_names.JOBS_OVERVIEW not in frozen.asked:
            return b"[]"
        if path != flink_names.JOBS_OVERVIEW:
            return body
        rows = [
            r | ({"state": "CANCELED", "end-time": ended_ms} if r["jid"] == frozen.flink.recording.job_id else {})
            for r in orjson.loads(body)["jobs"]
        ]
        return orjson.dumps({"jobs": rows})

    frozen.flink.get = after_the_end  # type: ignore[method-assign]
    frozen.asked.clear()
    frozen.passed_s += 1.0
    (job,) = (await collector.collect(frozen.now)).jobs

    assert frozen.asked.index(history) < frozen.asked.index(flink_names.JOBS_OVERVIEW)
    assert job.state is JobState.ENDED
    assert job.problems == ()
