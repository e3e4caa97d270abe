"""Reads one or two measures of the subtasks of many checkpoints, for a heatmap or for the alert rules.

``reader.details_of`` reads all measures, which would be too much for a job with thousands of subtasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, func, literal, null, select
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.checkpoint import SubtaskMeasure, Values
from backend.domain.ids import VertexId
from backend.domain.stored_form import expand
from backend.store.checkpoints.reader import CheckpointPlace, of_places, place_values
from backend.store.schema import tables
from backend.store.schema.rows import value_of

_D = tables.checkpoint_details.c
_COLUMNS = {
    # 0 means that the subtask had finished before the checkpoint, so it has no duration.
    SubtaskMeasure.DURATION: func.array_replace(_D.ack_delay_ms, 0, null(), type_=_D.ack_delay_ms.type),
    SubtaskMeasure.START_DELAY: _D.start_delay_ms,
    SubtaskMeasure.ALIGNMENT: _D.alignment_duration_ms,
    SubtaskMeasure.SYNC: _D.sync_duration_ms,
    SubtaskMeasure.ASYNC: _D.async_duration_ms,
    SubtaskMeasure.PERSISTED: _D.persisted_bytes,
    SubtaskMeasure.CHECKPOINTED: _D.checkpointed_size_bytes,
}


@dataclass(frozen=True, slots=True)
class VertexValues:
    """A measure of one vertex in one checkpoint: one value for each subtask, or only the largest one.

    A value is None if the subtask did not report it.
    """

    place: CheckpointPlace
    vertex_id: VertexId
    values: tuple[int | None, ...]


async def subtask_values(
    connection: AsyncConnection,
    places: Sequence[CheckpointPlace],
    measure: SubtaskMeasure,
    *,
    vertex_id: str | None = None,
    is_largest_only: bool = False,
) -> list[VertexValues]:
    """Return a measure of the subtasks in these checkpoints, of all vertices or of one vertex.

    With ``is_largest_only``, ``values`` has one value for each vertex: the largest over its subtasks. A vertex or a
    checkpoint without details is absent.
    """
    if not places:
        return []
    statement = _statement(measure, is_of_one_vertex=vertex_id is not None, is_largest_only=is_largest_only)
    rows = (await connection.execute(statement, place_values(places) | {"vertex": vertex_id})).mappings()
    return [
        VertexValues(value_of(CheckpointPlace, row), row["vertex_id"], expand(row["values"], row["subtask_count"]))
        for row in rows
    ]


@cache
def _statement(measure: SubtaskMeasure, *, is_of_one_vertex: bool, is_largest_only: bool) -> Select[Any]:
    column = _COLUMNS[measure]
    if is_largest_only:
        each = func.unnest(column).column_valued("each")
        largest = select(func.max(each)).scalar_subquery()
        shown: tuple[ColumnElement[Any], ...] = (literal(1).label("subtask_count"), array([largest]).label("values"))
    else:
        shown = (_D.subtask_count, column.label("values"))
    query = of_places(tables.checkpoint_details).with_only_columns(
        _D.run_id, _D.checkpoint_id, _D.triggered_on, _D.vertex_id, *shown, maintain_column_froms=True
    )
    return query.where(_D.vertex_id == bindparam("vertex")) if is_of_one_vertex else query


_WITH_DETAILS = (
    of_places(tables.checkpoint_details)
    .with_only_columns(_D.run_id, _D.checkpoint_id, _D.triggered_on, maintain_column_froms=True)
    .distinct()
)


async def places_with_details(
    connection: AsyncConnection, places: Sequence[CheckpointPlace]
) -> frozenset[CheckpointPlace]:
    """Return those of the checkpoints for which details of at least one vertex are stored."""
    if not places:
        return frozenset()
    rows = (await connection.execute(_WITH_DETAILS, place_values(places))).mappings()
    return frozenset(value_of(CheckpointPlace, row) for row in rows)


_COUNTS = (
    of_places(tables.checkpoint_details)
    .with_only_columns(_D.vertex_id, func.max(_D.subtask_count), maintain_column_froms=True)
    .group_by(_D.vertex_id)
)


async def subtask_counts(connection: AsyncConnection, places: Sequence[CheckpointPlace]) -> dict[VertexId, int]:
    """Return the vertices with details in these checkpoints, each with the largest number of subtasks that it had."""
    if not places:
        return {}
    rows = (await connection.execute(_COUNTS, place_values(places))).all()
    return {row[0]: row[1] for row in rows}


@dataclass(frozen=True, slots=True)
class VertexAcks:
    """When the subtasks of one vertex acknowledged a checkpoint, and when their first barrier arrived.

    Both tuples have one entry for each subtask, in milliseconds since the trigger; see ``VertexDetail``.
    """

    vertex_id: VertexId
    ack_delay_ms: Values
    start_delay_ms: Values

    @property
    def pending(self) -> tuple[int, ...]:
        """Indices of the subtasks that have not acknowledged the checkpoint."""
        return tuple(i for i, v in enumerate(self.ack_delay_ms) if v is None)


_ACKS = (
    of_places(tables.checkpoint_details)
    .with_only_columns(
        _D.run_id,
        _D.checkpoint_id,
        _D.triggered_on,
        _D.vertex_id,
        _D.subtask_count,
        _D.ack_delay_ms,
        _D.start_delay_ms,
        maintain_column_froms=True,
    )
    .order_by(_D.vertex_id)
)


async def acks_of(
    connection: AsyncConnection, places: Sequence[CheckpointPlace]
) -> dict[CheckpointPlace, tuple[VertexAcks, ...]]:
    """Return the acknowledgements of these checkpoints, one value for each vertex.

    A checkpoint without details is absent.
    """
    if not places:
        return {}
    vertex_acks: dict[CheckpointPlace, list[VertexAcks]] = {}
    for run_id, checkpoint_id, triggered_on, vertex_id, count, acks_ms, starts_ms in await connection.execute(
        _ACKS, place_values(places)
    ):
        acks = VertexAcks(vertex_id, expand(acks_ms, count), expand(starts_ms, count))
        vertex_acks.setdefault(CheckpointPlace(run_id, checkpoint_id, triggered_on), []).append(acks)
    return {place: tuple(vertices) for place, vertices in vertex_acks.items()}
