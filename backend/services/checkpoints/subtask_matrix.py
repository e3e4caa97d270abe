"""Builds the matrix of one measure: the subtasks of a job in rows, its newest ended checkpoints in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts.subtask_matrix import (
    MatrixCheckpointOut,
    MatrixGroup,
    MatrixRowOut,
    MatrixUnit,
    MatrixVertexOut,
    SubtaskMatrixOut,
)
from backend.domain.checkpoint import CheckpointHeader, SubtaskMeasure
from backend.domain.clock import Clock
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import VertexId
from backend.domain.topology import Placement, Topology
from backend.store.checkpoints.reader import CheckpointFilter, CheckpointPlace, CheckpointRecord, list_checkpoints
from backend.store.checkpoints.subtask_values import VertexValues, places_with_details, subtask_counts, subtask_values
from backend.store.jobs.reader import get_job, newest_shapes
from backend.store.postgres.connections import reading

ROWS_MAX: Final = 200
"""If a job has more subtasks than this, each row is a whole vertex, unless one vertex is requested."""
VALUES_MAX: Final = 500_000
"""To fold a job to its hosts, about this many values are read at most, which limits the time of a request."""
_COLUMNS_MIN: Final = 10


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
        group: MatrixGroup,
        limit: int,
    ) -> SubtaskMatrixOut:
        """Return the matrix of the newest ``limit`` ended checkpoints that match ``wanted``.

        Folded to hosts, it has fewer checkpoints if the job has so many subtasks that reading them would take long.

        Raises:
            UnknownEntityError: there is no such job, or ``vertex_id`` is not one of its vertices.
        """
        async with reading(self._engine) as connection:
            job = await get_job(connection, job_id)
            # A job has few open checkpoints. They are left out, because their subtasks still acknowledge.
            checkpoints = await list_checkpoints(connection, job_id, wanted, before=None, limit=limit + _OPEN_MAX)
            records = [r for r in checkpoints if r.header.status.is_terminal][:limit][::-1]
            places = [r.place for r in records]
            topology = (await newest_shapes(connection, [job.run.id]))[job.run.id].topology
            counts = await subtask_counts(connection, places)
            vertices = _vertices(topology, counts)
            # A vertex of the graph may be requested although it has no values in these checkpoints.
            known = {v.vertex_id for v in vertices} | {v.id for v in topology.vertices}
            if vertex_id is not None and vertex_id not in known:
                raise UnknownEntityError(kind="vertex", id=vertex_id)
            count = sum(counts.values())
            is_folded = vertex_id is None and count > ROWS_MAX
            is_of_vertices = is_folded and group is MatrixGroup.VERTEX
            if is_folded and not is_of_vertices:
                kept = max(_COLUMNS_MIN, VALUES_MAX // count)
                records, places = records[-kept:], places[-kept:]
            values = await subtask_values(
                connection, places, measure, vertex_id=vertex_id, is_largest_only=is_of_vertices
            )
            # A checkpoint whose details are stored may lack the requested vertex. So the values of this vertex do not
            # show which checkpoints have details.
            stored = {v.place for v in values} if vertex_id is None else await places_with_details(connection, places)
        shown = [v for v in vertices if vertex_id in (None, v.vertex_id)]
        table = _by_vertex(shown, is_folded=is_folded)
        if group is MatrixGroup.HOST:
            by_host = partial(_by_host, shown, job.run.placements, is_folded=is_folded)
            table = await anyio.to_thread.run_sync(by_host)
        return SubtaskMatrixOut(
            measure=measure,
            unit=MatrixUnit.BYTES if measure.is_bytes else MatrixUnit.MS,
            group=group,
            is_folded=is_folded,
            checkpoints=_columns(records, stored),
            vertices=vertices,
            rows=table.rows,
            values=await anyio.to_thread.run_sync(_matrix, table, places, values, measure.is_bytes),
            as_of=self._clock.now(),
        )


# The number of checkpoints that are read beyond the limit, because up to this many of them may be open.
_OPEN_MAX = 20


def _vertices(topology: Topology, counts: Mapping[VertexId, int]) -> list[MatrixVertexOut]:
    """Return the vertices with values: those of the graph in its order, then those that an earlier graph had."""
    names = {v.id: v.name for v in topology.vertices}
    order = [v for v in names if v in counts] + sorted(counts.keys() - names.keys())
    return [MatrixVertexOut(vertex_id=v, vertex=names.get(v, v), parallelism=counts[v]) for v in order]


@dataclass(frozen=True, slots=True)
class _Table:
    """The rows of a matrix. ``index`` has, for each vertex, the row of each of its values."""

    rows: list[MatrixRowOut]
    index: Mapping[str, Sequence[int]]


def _by_vertex(vertices: Sequence[MatrixVertexOut], *, is_folded: bool) -> _Table:
    rows: list[MatrixRowOut] = []
    index: dict[str, Sequence[int]] = {}
    for vertex in vertices:
        subtasks: Sequence[int | None] = [None] if is_folded else range(vertex.parallelism)
        index[vertex.vertex_id] = range(len(rows), len(rows) + len(subtasks))
        rows += [MatrixRowOut(vertex_id=vertex.vertex_id, subtask=i) for i in subtasks]
    return _Table(rows, index)


def _by_host(vertices: Sequence[MatrixVertexOut], placements: Sequence[Placement], *, is_folded: bool) -> _Table:
    """Return the subtasks sorted by host, or the hosts. Subtasks whose host is not known are last."""
    hosts: dict[str, Sequence[str | None]] = {p.vertex_id: p.hosts for p in placements}
    placed = [(_host(hosts, v.vertex_id, i), v.vertex_id, i) for v in vertices for i in range(v.parallelism)]
    index = {v.vertex_id: [0] * v.parallelism for v in vertices}
    rows: list[MatrixRowOut] = []
    # The sort is stable, so the subtasks of a host stay in the order of the vertices.
    for host, vertex_id, subtask in sorted(placed, key=lambda p: (p[0] is None, p[0] or "")):
        if not is_folded:
            rows.append(MatrixRowOut(vertex_id=vertex_id, subtask=subtask, host=host))
        elif not rows or rows[-1].host != host:
            rows.append(MatrixRowOut(vertex_id=None, subtask=None, host=host))
        index[vertex_id][subtask] = len(rows) - 1
    return _Table(rows, index)


def _host(hosts: Mapping[str, Sequence[str | None]], vertex_id: str, subtask: int) -> str | None:
    row = hosts.get(vertex_id, ())
    return row[subtask] if subtask < len(row) else None


def _columns(records: Sequence[CheckpointRecord], stored: Set[CheckpointPlace]) -> list[MatrixCheckpointOut]:
    return [
        MatrixCheckpointOut.of(
            r,
            r.header,
            r.place,
            is_unaligned=_is_unaligned(r.header),
            are_arrays_removed=r.has_maxima and r.place not in stored,
        )
        for r in records
    ]


def _is_unaligned(header: CheckpointHeader) -> bool | None:
    """Return whether barriers overtook data. None if this is not reported, or if the protocol never overtakes."""
    return None if header.protocol is not None and not header.protocol.overtakes else header.is_unaligned


def _matrix(
    table: _Table,
    places: Sequence[CheckpointPlace],
    values: Sequence[VertexValues],
    is_summed: bool,
) -> list[list[int | None]]:
    """Return the values by row and checkpoint. Several values of one row are summed, or else the largest counts."""
    column = {place: i for i, place in enumerate(places)}
    matrix: list[list[int | None]] = [[None] * len(places) for _ in table.rows]
    for one in values:
        # The rows were read before the values. A vertex or subtask that reported its first value in between has no row,
        # so its value is left out.
        at = column[one.place]
        for row, value in zip(table.index.get(one.vertex_id, ()), one.values, strict=False):
            before = matrix[row][at]
            if before is None or value is None:
                matrix[row][at] = before if value is None else value
            else:
                matrix[row][at] = before + value if is_summed else max(before, value)
    return matrix
