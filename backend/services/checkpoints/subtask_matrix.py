"""Builds the matrix of one measure: the subtasks of a job in rows, its newest ended checkpoints in columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Final

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts.subtask_matrix import (
    MatrixCheckpointOut,
    MatrixRowOut,
    MatrixUnit,
    MatrixVertexOut,
    SubtaskMatrixOut,
)
from backend.domain.checkpoint import SubtaskMeasure
from backend.domain.clock import Clock
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import VertexId
from backend.domain.topology import Topology
from backend.store.checkpoints.reader import CheckpointFilter, CheckpointPlace, CheckpointRecord, list_checkpoints
from backend.store.checkpoints.subtask_values import VertexValues, places_with_details, subtask_counts, subtask_values
from backend.store.jobs.reader import get_job, newest_shapes
from backend.store.postgres.connections import reading

ROWS_MAX: Final = 200
"""If a job has more subtasks than this, each row is a whole vertex, unless one vertex is requested."""


class SubtaskMatrixService:
    """Handles requests for matrices of subtasks and checkpoints."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def of_job(
        self,
        job_id: str,
        measure: SubtaskMeasure,
        wanted: CheckpointFilter,
        *,
        vertex_id: str | None,
        limit: int,
    ) -> SubtaskMatrixOut:
        """Return the matrix of the newest ``limit`` ended checkpoints that match ``wanted``.

        Raises:
            UnknownEntityError: there is no such job, or ``vertex_id`` is not one of its vertices.
        """
        async with reading(self._engine) as connection:
            job = await get_job(connection, job_id)
            # A job has few open checkpoints. They are left out, because their subtasks still acknowledge.
            found = await list_checkpoints(connection, job_id, wanted, before=None, limit=limit + _OPEN_MAX)
            records = [r for r in found if r.header.status.is_terminal][:limit][::-1]
            places = [r.place for r in records]
            topology = (await newest_shapes(connection, [job.run.id]))[job.run.id].topology
            counts = await subtask_counts(connection, places)
            vertices = _vertices(topology, counts)
            # A vertex of the graph may have no values in these checkpoints.
            known = {v.vertex_id for v in vertices} | {v.id for v in topology.vertices}
            if vertex_id is not None and vertex_id not in known:
                raise UnknownEntityError(kind="vertex", id=vertex_id)
            is_folded = vertex_id is None and sum(counts.values()) > ROWS_MAX
            values = await subtask_values(connection, places, measure, vertex_id=vertex_id, is_largest_only=is_folded)
            # A vertex that was requested may be missing in a checkpoint whose details are stored.
            stored = {v.place for v in values} if vertex_id is None else await places_with_details(connection, places)
        shown = [v for v in vertices if vertex_id in (None, v.vertex_id)]
        rows = _rows(shown, is_folded=is_folded)
        return SubtaskMatrixOut(
            measure=measure,
            unit=MatrixUnit.BYTES if measure.is_bytes else MatrixUnit.MS,
            is_folded=is_folded,
            checkpoints=_columns(records, stored),
            vertices=vertices,
            rows=rows,
            values=await anyio.to_thread.run_sync(_matrix, rows, places, values),
            as_of=self._clock.now(),
        )


# The number of checkpoints that are read beyond the limit, because up to this many of them may be open.
_OPEN_MAX = 20


def _vertices(topology: Topology, counts: Mapping[VertexId, int]) -> list[MatrixVertexOut]:
    """Return the vertices with values: those of the graph in its order, then those that an earlier graph had."""
    names = {v.id: v.name for v in topology.vertices}
    order = [v for v in names if v in counts] + sorted(counts.keys() - names.keys())
    return [MatrixVertexOut(vertex_id=v, vertex=names.get(v, v), parallelism=counts[v]) for v in order]


def _rows(vertices: Sequence[MatrixVertexOut], *, is_folded: bool) -> list[MatrixRowOut]:
    if is_folded:
        return [MatrixRowOut(vertex_id=v.vertex_id, subtask=None) for v in vertices]
    return [MatrixRowOut(vertex_id=v.vertex_id, subtask=i) for v in vertices for i in range(v.parallelism)]


def _columns(records: Sequence[CheckpointRecord], stored: Set[CheckpointPlace]) -> list[MatrixCheckpointOut]:
    return [
        MatrixCheckpointOut.of(r, r.header, r.place, are_arrays_removed=r.has_maxima and r.place not in stored)
        for r in records
    ]


def _matrix(
    rows: Sequence[MatrixRowOut], places: Sequence[CheckpointPlace], values: Sequence[VertexValues]
) -> list[list[int | None]]:
    first: dict[str, int] = {}
    for index, row in enumerate(rows):
        first.setdefault(row.vertex_id, index)
    sizes = Counter(row.vertex_id for row in rows)
    column = {place: i for i, place in enumerate(places)}
    found: list[list[int | None]] = [[None] * len(places) for _ in rows]
    for one in values:
        # The rows were read before the values. Meanwhile, another vertex or subtask may have reported its first value.
        if one.vertex_id not in first:
            continue
        begin, at = first[one.vertex_id], column[one.place]
        for index, value in enumerate(one.values[: sizes[one.vertex_id]], begin):
            found[index][at] = value
    return found
