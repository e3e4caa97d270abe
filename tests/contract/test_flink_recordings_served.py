"""For six collected and stored recordings of a real Flink, the responses of the API equal Flink's own numbers.

The tests follow the recorded JSON through collector, PostgreSQL, services and routes to our JSON, without a
socket.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

import httpx
import pytest
from pydantic import BaseModel

from backend.contracts import api
from tests.support.recorded_flink import NAMES
from tests.support.recorded_values import expected_columns, recorded_entries, recorded_subtasks
from tests.support.serving import api_over, asking
from tests.support.stored_recordings import STEP_S, Stored, opened, read

pytestmark = pytest.mark.anyio

M = TypeVar("M", bound=BaseModel)

LAST = "slow-stage-2 -> sink: Writer"
VERDICTS = {
    "A": ("healthy", "none", None, []),
    "B2": ("slow", "capacity", LAST, [0, 1, 2, 3]),
    "C2": ("healthy", "capacity", LAST, [0, 1, 2, 3]),
    "E": ("failing", "capacity", LAST, [0, 1, 2, 3]),
    "G": ("failing", "failing-subtask", LAST, [0]),
    "H": ("healthy", "none", None, []),
}
# The name of each field of a subtask in the API, and its name in the domain.
MEASURED = {
    "start_delay_ms": "start_delay_ms",
    "alignment_duration_ms": "alignment_duration_ms",
    "sync_duration_ms": "sync_duration_ms",
    "async_duration_ms": "async_duration_ms",
    "ack_ms": "ack_delay_ms",
    "checkpointed_size_bytes": "checkpointed_size_bytes",
    "full_state_size_bytes": "full_state_size_bytes",
    "processed_bytes": "processed_bytes",
    "persisted_bytes": "persisted_bytes",
}


async def get(client: httpx.AsyncClient, path: str, model: type[M]) -> M:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return model.model_validate_json(answer.content)


def is_of_gauge(subtask: api.SubtaskPhasesOut) -> bool:
    """Return whether the subtask's values come from a metric, because it did not acknowledge the checkpoint.

    A metric is sampled, so such values have a resolution.
    """
    return not subtask.is_acknowledged and subtask.first_barrier_resolution_ms is not None


async def collected(stored: Stored, until_s: float, *, from_s: float | None = None) -> None:
    await read(stored, from_s=from_s, until_s=until_s)
    stored.clock.at = stored.recording.began_at + timedelta(seconds=until_s)


@pytest.mark.parametrize("name", NAMES)
async def test_every_subtask_of_every_checkpoint_is_served_as_recorded(database: str, name: str) -> None:
    async with opened(database, name) as stored:
        recording = stored.recording
        await collected(stored, recording.last_running_s)
        recorded = recorded_subtasks(recording)
        async with asking(api_over(stored.engine, stored.clock)) as client:
            (job,) = (await get(client, "/api/v1/jobs", api.Page[api.JobOut])).items
            listed = await get(client, f"/api/v1/jobs/{job.id}/checkpoints?limit=100", api.Page[api.CheckpointOut])
            assert {c.checkpoint_id for c in listed.items} <= set(recorded_entries(recording))
            assert len(listed.items) >= 13
            compared = 0
            for checkpoint in listed.items:
                if checkpoint.status == "in-progress":
                    continue
                found = await get(client, checkpoint.link, api.CheckpointDetailOut)
                for vertex in found.vertices:
                    expected = expected_columns(recorded[found.checkpoint_id, vertex.vertex_id])
                    for served, measured in MEASURED.items():
                        values = tuple(None if is_of_gauge(s) else getattr(s, served) for s in vertex.subtasks)
                        # A subtask that had finished did not acknowledge anything itself.
                        pairs = zip(expected[measured], vertex.subtasks, strict=True)
                        wanted = tuple(None if s.has_finished else value for value, s in pairs)
                        assert values == wanted, (found.checkpoint_id, vertex.vertex, served)
                        compared += len(values)
    assert compared >= 9 * 12 * 13


@pytest.mark.parametrize("name", NAMES)
async def test_the_verdict_of_each_recorded_job_names_its_culprit(database: str, name: str) -> None:
    async with opened(database, name) as stored:
        from_s = None
        for at_s in (47.0, 60.0):
            await collected(stored, at_s, from_s=from_s)
            async with asking(api_over(stored.engine, stored.clock)) as client:
                (job,) = (await get(client, "/api/v1/jobs", api.Page[api.JobOut])).items
                found = await get(client, f"/api/v1/jobs/{job.id}/verdict", api.DiagnosisOut)
            verdict = found.verdict
            said = (found.health, verdict.kind, verdict.vertex, verdict.subtasks)
            assert said == VERDICTS[name], (at_s, verdict.sentence)
            from_s = at_s


async def test_the_cost_of_polling_is_served_with_the_target(database: str) -> None:
    async with opened(database, "B2") as stored:
        await collected(stored, 60.0)
        async with asking(api_over(stored.engine, stored.clock)) as client:
            (target,) = (await get(client, "/api/v1/targets", api.Page[api.TargetOut])).items
    costs = [o.cost for o in stored.observations[-20:]]
    assert target.cost is not None
    assert min(c.request_count for c in costs) <= target.cost.requests_per_poll <= 10
    assert target.cost.bytes_per_poll <= max(c.response_bytes for c in costs)
    assert target.cost.poll_interval_s == pytest.approx(STEP_S)
