"""The inputs of figures, taken from a fake API."""

from __future__ import annotations

from datetime import UTC, datetime

from backend.contracts import api
from dashboard.figures.front import times

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def newest(fake, job: str) -> api.CheckpointDetailOut:
    return fake.jobs[job].checkpoints[-1]


def front_of(fake, job: str, checkpoint: api.CheckpointDetailOut | None = None, **more) -> times.Front:
    found = checkpoint or newest(fake, job)
    barriers = fake._answer("GET", f"jobs/{job}/runs/r/checkpoints/{found.checkpoint_id}/barriers", b"")
    detail = fake.jobs[job].detail
    return times.build(found, detail.vertices, detail.edges, barriers, **more)
