"""What subtasks report after the end of a failed checkpoint: the collector looks a second time, and only once."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.ids import TargetId
from backend.domain.observation import Observation
from collectors.flink.collector import FlinkCollector
from tests.support.recorded_flink import RECORDINGS, RecordedFlink

pytestmark = pytest.mark.anyio


class Late:
    """The recording *E*, to which subtask 3 of the last vertex reports 8 s after the trigger if ``is_late``."""

    def __init__(self) -> None:
        self.flink = RecordedFlink(RECORDINGS / "E")
        self.url = self.flink.url
        self.is_late = False
        self.collector = FlinkCollector(self, target_id=TargetId("t"), monotonic_s=self.flink.monotonic_s)

    async def get(self, path: str) -> bytes:
        body = await self.flink.get(path)
        if not self.is_late or "/details/" not in path or "/subtasks/" not in path:
            return body
        document: Any = orjson.loads(body)
        done = next((r for r in document["subtasks"] if r["className"] == "completed"), None)
        if document["status"] != "FAILED" or done is None:
            return body
        began_ms = done["ack_timestamp"] - done["end_to_end_duration"]
        late = done | {"index": 3, "ack_timestamp": began_ms + 8000, "end_to_end_duration": 8000, "aborted": True}
        rows = [late if r["index"] == 3 and r["className"] != "completed" else r for r in document["subtasks"]]
        return orjson.dumps(document | {"subtasks": rows})

    async def at(self, seconds: float) -> Observation:
        self.flink.at_s = seconds
        return await self.collector.collect(self.flink.now)


def failed(observation: Observation) -> dict[int, Checkpoint]:
    return {
        c.header.checkpoint_id: c
        for job in observation.jobs
        for c in job.checkpoints
        if c.header.status is CheckpointStatus.FAILED
    }


def asked(late: Late, number: int) -> list[str]:
    return [path for path in late.flink.asked if f"/details/{number}/subtasks/" in path]


async def first_failure(late: Late) -> tuple[float, Checkpoint]:
    """Poll until a checkpoint has failed. Return the time and the checkpoint."""
    for tenth in range(60, 400, 10):
        found = {n: c for n, c in failed(await late.at(tenth / 10)).items() if c.details}
        if found:
            return tenth / 10, found[min(found)]
    raise AssertionError("no checkpoint failed")


async def test_a_late_report_is_taken_after_one_more_timeout_with_one_request_for_each_vertex_that_lacked_one() -> None:
    late = Late()
    at_s, before = await first_failure(late)
    number = before.header.checkpoint_id
    (lacking,) = (d for d in before.details if d.pending)
    late.is_late = True
    late.flink.asked.clear()

    assert number not in failed(await late.at(at_s + 0.5)), "not before it is due"
    assert asked(late, number) == []
    seen = failed(await late.at(at_s + 4.0))
    assert len(asked(late, number)) == 1
    (after,) = (d for d in seen[number].details if d.vertex_id == lacking.vertex_id)
    assert after.ack_delay_ms[3] == 8000
    assert set(lacking.pending) - set(after.pending) == {3}
    assert [d for d in seen[number].details if d is not after] == [d for d in before.details if d is not lacking]

    assert number not in failed(await late.at(at_s + 8.0)), "only once"
    assert len(asked(late, number)) == 1


async def test_a_second_look_that_finds_nothing_new_reports_nothing() -> None:
    late = Late()
    at_s, before = await first_failure(late)
    number = before.header.checkpoint_id
    late.flink.asked.clear()

    assert number not in failed(await late.at(at_s + 4.0))
    assert len(asked(late, number)) == 1
