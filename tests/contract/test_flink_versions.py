"""The collector on recordings of versions of Flink whose responses differ from those of 1.20.

The tests read the recorded JSON a second time, independently of ``collectors``. What a version does not report must be
None.
"""

from __future__ import annotations

import json

import pytest

from backend.domain.checkpoint import Checkpoint
from backend.domain.ids import TargetId
from backend.domain.observation import JobObservation, Observation
from collectors import diagnose
from collectors.flink.collector import FlinkCollector
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, served
from tests.support.recorded_values import instant, recorded_entries, recorded_subtasks

FOLDER = RECORDINGS.with_name("recordings_versions") / "1.13-slow-aggregation"


async def read_to_the_end() -> tuple[RecordedFlink, list[Observation]]:
    flink = RecordedFlink(FOLDER)
    collector = FlinkCollector(flink, target_id=TargetId("t0000000000000000"), monotonic_s=flink.monotonic_s)
    flink.at_s = flink.recording.begins_s
    observations = []
    while flink.at_s <= flink.recording.end_s:
        observations.append(await collector.collect(flink.now))
        flink.at_s += 2.0
    return flink, observations


def jobs_of(observations: list[Observation]) -> list[JobObservation]:
    return [job for o in observations for job in o.jobs]


def completed(observations: list[Observation]) -> dict[int, Checkpoint]:
    checkpoints = [c for job in jobs_of(observations) for c in job.checkpoints if c.header.status.is_terminal]
    return {c.header.checkpoint_id: c for c in checkpoints if c.details}


@pytest.mark.anyio
async def test_flink_1_13_is_read_without_a_problem() -> None:
    _, observations = await read_to_the_end()

    assert observations[0].engine_version == "1.13.6"
    assert {p for job in jobs_of(observations) for p in job.problems} == set()


@pytest.mark.anyio
async def test_every_header_of_flink_1_13_has_the_bytes_it_wrote_and_no_full_size() -> None:
    flink, observations = await read_to_the_end()
    entries = recorded_entries(flink.recording)
    found = completed(observations)

    assert len(found) >= 5
    for checkpoint_id, checkpoint in found.items():
        header, entry = checkpoint.header, entries[checkpoint_id]
        assert header.triggered_at == instant(entry["trigger_timestamp"])
        assert header.end_to_end_duration_ms == entry["end_to_end_duration"]
        assert header.checkpointed_size_bytes == entry["state_size"]
        assert header.full_state_size_bytes is None
        assert header.processed_bytes == entry["processed_data"]
        assert header.is_unaligned is False, "its subtasks report it, because the type of 1.13 does not"


@pytest.mark.anyio
async def test_every_subtask_value_of_flink_1_13_equals_the_recorded_one() -> None:
    flink, observations = await read_to_the_end()
    recorded = recorded_subtasks(flink.recording)

    for checkpoint_id, checkpoint in completed(observations).items():
        assert len(checkpoint.details) == 2
        for detail in checkpoint.details:
            rows = recorded[checkpoint_id, detail.vertex_id]["subtasks"]
            assert detail.ack_delay_ms == tuple(r["end_to_end_duration"] for r in rows)
            assert detail.start_delay_ms == tuple(r["start_delay"] for r in rows)
            assert detail.sync_duration_ms == tuple(r["checkpoint"]["sync"] for r in rows)
            assert detail.async_duration_ms == tuple(r["checkpoint"]["async"] for r in rows)
            assert detail.alignment_duration_ms == tuple(r["alignment"]["duration"] for r in rows)
            assert detail.processed_bytes == tuple(r["alignment"]["processed"] for r in rows)
            assert detail.persisted_bytes == tuple(r["alignment"]["persisted"] for r in rows)
            assert detail.checkpointed_size_bytes == tuple(r["state_size"] for r in rows)
            assert detail.full_state_size_bytes == (None, None)
            assert detail.unaligned == (0, 0)


@pytest.mark.usefixtures("diagnose_without_pauses")
def test_diagnose_judges_the_checkpoints_of_flink_1_13(capsys: pytest.CaptureFixture[str]) -> None:
    flink = RecordedFlink(FOLDER, 20.0)
    with served(flink) as url:
        assert diagnose.run(url, job=None, output_format="json") == 0

    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["health"] == "slow"
