"""The collector reads Flink's counter of commits that failed and are not tried again, and reports what is added."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import orjson
import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.contracts import flink as flink_names
from backend.domain.errors import TargetProtocolError
from backend.domain.ids import TargetId
from backend.domain.losses import Loss
from backend.domain.observation import JobObservation
from backend.domain.verdict import Confidence, VerdictKind
from collectors.flink.collector import CollectorOptions, FlinkCollector
from collectors.readings import Gathered
from tests.support.recorded_flink import RECORDINGS, RecordedFlink

pytestmark = pytest.mark.anyio

_NAME = "Sink__Committer.failedCommittables"


class _WithCommitter:
    """A ``FlinkTransport`` on a recording without events, whose sink also counts failed commits, by subtask."""

    def __init__(self) -> None:
        self.flink = RecordedFlink(RECORDINGS / "A")
        self.flink.at_s = self.flink.recording.begins_s + 40.0
        self.url = self.flink.url
        self.passed_s = 0.0
        self.failed = {0: 0, 1: 0}
        self.state = "RUNNING"
        self.is_interval_told = True
        self.restored_ms: int | None = None
        self.asked: list[str] = []
        _, described = self.flink.answer(f"/jobs/{self.flink.recording.job_id}")
        self.sink = described["vertices"][-1]["id"]

    @property
    def now(self) -> datetime:
        return self.flink.now + timedelta(seconds=self.passed_s)

    def monotonic_s(self) -> float:
        return self.flink.at_s + self.passed_s

    async def get(self, path: str) -> bytes:
        self.asked.append(path)
        body = await self.flink.get(path)
        job_id = self.flink.recording.job_id
        if path == "/jobmanager/config" and not self.is_interval_told:
            raise TargetProtocolError(url=path, status=404, reason="not found")
        if path == "/jobs/overview":
            now_ms = round(self.now.timestamp() * 1000)
            rows = [r | {"duration": now_ms - r["start-time"]} for r in orjson.loads(body)["jobs"]]
            rows = [r | {"state": self.state} for r in rows]
            return orjson.dumps({"jobs": rows})
        if path == flink_names.checkpoints(job_id) and self.restored_ms is not None:
            history = orjson.loads(body)
            history["latest"]["restored"] = {"id": 1, "restore_timestamp": self.restored_ms, "is_savepoint": False}
            return orjson.dumps(history)
        if path == flink_names.metric_names(job_id, self.sink):
            return orjson.dumps([*orjson.loads(body), {"id": _NAME}, {"id": "Sink__Committer.totalCommittables"}])
        if path.startswith(flink_names.vertex_metrics(job_id, self.sink)):
            wanted = path.partition("get=")[2].split(",")
            counted = [{"id": i, "value": str(n)} for s, n in self.failed.items() if (i := f"{s}.{_NAME}") in wanted]
            return orjson.dumps([*orjson.loads(body), *counted])
        return body


async def _readings(flink: _WithCommitter, collector: FlinkCollector, count: int = 1) -> list[JobObservation]:
    """Return the observations of the next complete readings of the metrics, and what was read between them."""
    found: list[JobObservation] = []
    while sum(bool(job.pressure) for job in found) < count:
        flink.passed_s += 2.0
        found += (await collector.collect(flink.now)).jobs
    return found


async def _half_a_minute(flink: _WithCommitter, collector: FlinkCollector) -> list[JobObservation]:
    """Return the observations of half a minute and of the reading after it."""
    found: list[JobObservation] = []
    begin_s = flink.passed_s
    while flink.passed_s < begin_s + 30.0:
        found += await _readings(flink, collector)
    return found + await _readings(flink, collector)


def _losses(jobs: Sequence[JobObservation]) -> list[Loss]:
    return [loss for job in jobs for loss in job.losses]


def _collector(flink: _WithCommitter) -> FlinkCollector:
    options = CollectorOptions(pressure_interval_s=1.0, list_interval_s=1.0)
    return FlinkCollector(flink, target_id=TargetId("t"), monotonic_s=flink.monotonic_s, options=options)


async def test_commits_that_fail_between_two_readings_are_a_loss_of_unknown_rows() -> None:
    flink = _WithCommitter()
    collector = _collector(flink)
    flink.failed = {0: 4, 1: 0}
    before = await _readings(flink, collector)
    flink.failed = {0: 6, 1: 1}
    after = await _readings(flink, collector)
    read_at = flink.now
    soon = await _readings(flink, collector)
    later = await _half_a_minute(flink, collector)
    much_later = await _half_a_minute(flink, collector)

    assert _losses(before) == [], "a commit at the start may have been committed before"
    assert _losses(after + soon) == [], "the attempt may end, and the next one commit again"
    (loss,) = _losses(later)
    assert (loss.transaction_count, loss.row_count, loss.timeout_ms) == (3, None, None)
    assert "3 transactions failed to commit and will not be tried again" in loss.text
    assert read_at - timedelta(seconds=5) < loss.at <= read_at, "it was lost before the reading that saw it"
    assert _losses(much_later) == [], "each failed commit is reported once"

    gathered = Gathered(before[0])
    for job in (*before, *after, *soon, *later, *much_later):
        gathered.add(job, flink.now, timedelta())
    verdict = diagnose(gathered.evidence()).verdict
    assert (verdict.kind, verdict.confidence) == (VerdictKind.LOST_ROWS, Confidence.MEDIUM)
    assert "but output is most likely lost: 3 transactions failed to commit since" in verdict.sentence


async def test_a_counter_that_begins_again_after_a_restart_reports_only_what_is_added_then() -> None:
    flink = _WithCommitter()
    collector = _collector(flink)
    flink.failed = {0: 9, 1: 9}
    await _readings(flink, collector)
    flink.failed = {0: 2, 1: 0}
    assert _losses(await _readings(flink, collector)) == []
    flink.failed = {0: 3, 1: 0}
    assert [loss.transaction_count for loss in _losses(await _half_a_minute(flink, collector))] == [1]


async def test_commits_that_fail_in_each_reading_are_each_reported_once() -> None:
    flink = _WithCommitter()
    collector = _collector(flink)
    await _readings(flink, collector)
    found: list[JobObservation] = []
    for count in range(1, 4):
        flink.failed = {0: count, 1: 0}
        found += await _readings(flink, collector)
    found += await _half_a_minute(flink, collector)

    assert [loss.transaction_count for loss in _losses(found)] == [1, 1, 1]


async def _with_a_failed_commit() -> tuple[_WithCommitter, FlinkCollector]:
    """Return a target and its collector, whose newest reading has one failed commit more than the one before."""
    flink = _WithCommitter()
    collector = _collector(flink)
    await _readings(flink, collector)
    flink.failed = {0: 1, 1: 0}
    assert _losses(await _readings(flink, collector)) == []
    return flink, collector


async def test_a_commit_that_ends_its_attempt_is_no_loss_because_the_next_attempt_commits_again() -> None:
    flink, collector = await _with_a_failed_commit()
    flink.state = "RESTARTING"
    flink.passed_s += 2.0
    assert _losses((await collector.collect(flink.now)).jobs) == []
    flink.state, flink.failed = "RUNNING", {0: 1, 1: 0}

    assert _losses(await _half_a_minute(flink, collector)) == []


async def test_a_task_that_closes_for_a_while_after_its_failed_commit_is_no_loss() -> None:
    flink, collector = await _with_a_failed_commit()
    found = await _readings(flink, collector)
    flink.state = "RESTARTING"
    flink.passed_s += 2.0
    found += (await collector.collect(flink.now)).jobs

    assert _losses(found) == []


async def test_a_restart_between_two_polls_is_seen_by_its_checkpoint_or_by_a_counter_that_begins_again() -> None:
    flink, collector = await _with_a_failed_commit()
    flink.restored_ms = round(flink.now.timestamp() * 1000)
    assert _losses(await _half_a_minute(flink, collector)) == []

    flink.failed = {0: 2, 1: 0}
    assert _losses(await _readings(flink, collector)) == []
    flink.failed = {0: 0, 1: 0}
    assert _losses(await _half_a_minute(flink, collector)) == []


@pytest.mark.parametrize("left", [{}, {1: 0}], ids=["all", "the one that rose"])
async def test_a_counter_that_vanishes_while_its_task_closes_is_neither_a_loss_nor_a_proof_of_one(
    left: dict[int, int],
) -> None:
    flink, collector = await _with_a_failed_commit()
    flink.failed = left
    assert _losses(await _half_a_minute(flink, collector)) == []
    flink.failed = {0: 1, 1: 0}
    assert [loss.transaction_count for loss in _losses(await _half_a_minute(flink, collector))] == [1]


async def test_a_reading_that_is_not_new_proves_nothing() -> None:
    flink = _WithCommitter()
    flink.is_interval_told = False
    collector = _collector(flink)
    await _readings(flink, collector)
    flink.failed = {0: 1, 1: 0}
    assert _losses(await _readings(flink, collector)) == []
    begin_s = flink.passed_s
    found: list[JobObservation] = []
    while flink.passed_s < begin_s + 60.0:
        flink.passed_s += 2.0
        found += (await collector.collect(flink.now)).jobs
    assert not any(job.pressure for job in found), "no value has moved, so these may be the values of before"
    assert _losses(found) == []

    assert [loss.transaction_count for loss in _losses(await _readings(flink, collector))] == [1]


@pytest.mark.parametrize(("state", "lost"), [("FINISHED", [1]), ("FAILED", []), ("CANCELED", [])])
async def test_what_failed_last_is_lost_if_the_job_finishes(state: str, lost: list[int]) -> None:
    flink, collector = await _with_a_failed_commit()
    flink.state = state
    found: list[JobObservation] = []
    for _ in range(3):
        flink.passed_s += 2.0
        found += (await collector.collect(flink.now)).jobs

    assert [loss.transaction_count for loss in _losses(found)] == lost


async def test_only_a_vertex_that_commits_is_asked_and_in_the_same_requests() -> None:
    flink = _WithCommitter()
    collector = _collector(flink)
    await _readings(flink, collector, count=2)
    asked = [path for path in flink.asked if _NAME in path]

    assert asked
    assert all(f"/vertices/{flink.sink}/" in path and "busyTimeMsPerSecond" in path for path in asked)
    assert not any("totalCommittables" in path for path in flink.asked)
