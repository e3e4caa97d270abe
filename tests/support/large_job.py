"""A fake API with one large job: 40 vertices of 400 subtasks each, and 5,000 checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import httpx

from backend.contracts import api
from backend.contracts.subtask_matrix import (
    MatrixCheckpointOut,
    MatrixRowOut,
    MatrixUnit,
    MatrixVertexOut,
    SubtaskMatrixOut,
)
from backend.domain.checkpoint import CheckpointStatus, SubtaskMeasure
from backend.domain.verdict import Health
from tests.support.fake_api import FakeApi, problem
from tests.support.made_up_checkpoints import header_of, late, vertex
from tests.support.made_up_jobs import MadeUpJob

LARGE = "jlarge"
VERTICES, PARALLELISM, CHECKPOINTS = 40, 400, 5_000
CULPRIT = "v22"
_ROWS = 4
_EVERY = timedelta(seconds=10)
_COLUMNS = 100


class LargeJobApi(FakeApi):
    """A fake service whose job ``LARGE`` has many subtasks and checkpoints. The graph has ten layers of four vertices.

    The newest checkpoint has all values of its subtasks. The other checkpoints have headers only.
    """

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        super().__init__(now=now)
        vertices = [
            vertex(f"v{i}", f"operator-{i:02d} -> map -> filter", i // _ROWS, PARALLELISM).model_copy(
                update={"row": i % _ROWS}
            )
            for i in range(VERTICES)
        ]
        edges = [
            api.EdgeOut(source=f"v{i}", target=f"v{_ROWS * (i // _ROWS + 1) + row}", ship_strategy="HASH")
            for i in range(VERTICES - _ROWS)
            for row in {i % _ROWS, (i + 1) % _ROWS}
        ]
        detail = self._made(CHECKPOINTS, LARGE, "large", vertices, 20_000)
        guilty = next(v for v in detail.vertices if v.vertex_id == CULPRIT)
        detail = detail.model_copy(
            update={"triggered_at": self._began, "verdict": late(guilty.vertex, CULPRIT), "has_barriers": False}
        )
        job = self._detail(LARGE, "large", "tflink", "production-eu", Health.SLOW, [detail], vertices, edges)
        pressure = [
            self._pressure(
                v.id,
                v.name,
                [0.97 if v.id == CULPRIT else 0.3 + 0.001 * (i % 100) for i in range(PARALLELISM)],
                [0.0 if int(v.id[1:]) >= int(CULPRIT[1:]) else 0.55 for _ in range(PARALLELISM)],
            )
            for v in vertices
        ]
        update = {"verdict": detail.verdict, "backpressured_max_ratio": 0.55}
        self.jobs = {LARGE: MadeUpJob(job.model_copy(update=update), [detail], pressure, [])} | self.jobs
        self.headers = self._headers(header_of(detail))

    def _headers(self, newest: api.CheckpointOut) -> list[api.CheckpointOut]:
        """Return the checkpoints, newest first. Each fiftieth is far longer than the others, and 40 in a row failed."""
        found = []
        for age in range(CHECKPOINTS):
            is_failed = 60 <= age < 100
            update = {
                "checkpoint_id": CHECKPOINTS - age,
                "triggered_at": newest.triggered_at - age * _EVERY,
                "end_to_end_duration_ms": 180_000 if age % 50 == 7 else 4_000 + 40 * (age % 90),
                "status": CheckpointStatus.FAILED if is_failed else CheckpointStatus.COMPLETED,
                "failed_at": newest.triggered_at - age * _EVERY + timedelta(seconds=60) if is_failed else None,
            }
            found.append(newest if age == 0 else newest.model_copy(update=update))
        return found

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Respond to one request. The lists of checkpoints of the large job have the requested length."""
        path, asked = request.url.path, request.url.params
        if path == f"/api/v1/jobs/{LARGE}/checkpoints":
            found: Sequence[api.CheckpointOut] = self.headers
            if "from" in asked:
                since, until = (datetime.fromisoformat(asked[name]) for name in ("from", "to"))
                found = [c for c in found if since <= c.triggered_at < until]
            limit = int(asked.get("limit", 50))
            following = "more" if len(found) > limit else None
            return _json(api.Page[api.CheckpointOut](items=found[:limit], next=following, as_of=self._now()))
        if path.startswith(f"/api/v1/jobs/{LARGE}/") and path.endswith("/barriers"):
            return problem(404, "no barriers are stored")
        if path == f"/api/v1/jobs/{LARGE}/subtask-matrix":
            return _json(self._large_matrix(SubtaskMeasure(asked.get("measure", "duration")), asked.get("vertex")))
        return super().handle(request)

    def _large_matrix(self, measure: SubtaskMeasure, vertex_id: str | None) -> SubtaskMatrixOut:
        columns = self.headers[:_COLUMNS][::-1]
        vertices = self.jobs[LARGE].detail.vertices
        rows: list[tuple[str, int | None]] = [(v.id, None) for v in vertices]
        if vertex_id is not None:
            rows = [(vertex_id, i) for i in range(PARALLELISM)]
        return SubtaskMatrixOut(
            measure=measure,
            unit=MatrixUnit.BYTES if measure.is_bytes else MatrixUnit.MS,
            is_folded=vertex_id is None,
            checkpoints=[MatrixCheckpointOut.of(c, is_unaligned=False, are_arrays_removed=False) for c in columns],
            vertices=[MatrixVertexOut(vertex_id=v.id, vertex=v.name, parallelism=PARALLELISM) for v in vertices],
            rows=[MatrixRowOut(vertex_id=v, subtask=i) for v, i in rows],
            values=[[100 * r + 13 * (c % 17) for c in range(len(columns))] for r in range(len(rows))],
            as_of=self._now(),
        )


def _json(value: Any) -> httpx.Response:
    return httpx.Response(200, content=value.model_dump_json().encode(), headers={"content-type": "application/json"})
