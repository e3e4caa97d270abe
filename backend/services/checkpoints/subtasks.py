"""Returns the subtasks of one checkpoint, or of some of its vertices, in columns.

In columns, a subtask takes a fifth of the half kilobyte that it takes in the document of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.analysis.measures.phases import SubtaskPhases, checkpoint_phases
from backend.contracts.api import SubtaskPhasesOut
from backend.contracts.subtasks import COLUMNS_MAX, CheckpointSubtasksOut, ColumnValue, SubtaskColumnsOut
from backend.domain.errors import TooLargeError, UnknownEntityError
from backend.domain.topology import Placement
from backend.services.checkpoints.reader import CheckpointKey, CheckpointService, Opened, check_size
from backend.store.postgres.connections import reading

_FIELDS = tuple(name for name in SubtaskPhasesOut.model_fields if name not in ("subtask", "host"))


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a checkpoint that is wanted: some vertices (all if empty), and a range of their subtasks."""

    vertices: tuple[str, ...] = ()
    first: int = 0
    limit: int = COLUMNS_MAX


class SubtaskService:
    """Handles requests for the subtasks of a checkpoint in columns."""

    def __init__(self, engine: AsyncEngine, checkpoints: CheckpointService) -> None:
        self._engine = engine
        self._checkpoints = checkpoints

    async def of(self, key: CheckpointKey, part: Part) -> CheckpointSubtasksOut:
        """Return the subtasks of the wanted part of a checkpoint.

        Raises:
            UnknownEntityError: there is no such job, run or checkpoint, or it has no such vertex.
            TooLargeError: the part has more subtasks than one answer has.
        """
        async with reading(self._engine) as connection:
            opened = await self._checkpoints.open(connection, key, is_alone=True, vertices=part.vertices)
            if not part.vertices:
                check_size(opened.record)
        return await self._checkpoints.work.run(_columns, opened, part)


def _columns(opened: Opened, part: Part) -> CheckpointSubtasksOut:
    phases = checkpoint_phases(opened.checkpoint, opened.evidence.config, opened.late)
    order = [v.id for v in opened.evidence.topology.vertices if v.id in phases]
    order += [v for v in phases if v not in set(order)]
    for vertex in part.vertices:
        if vertex not in phases:
            raise UnknownEntityError(kind="vertex", id=vertex)
    wanted = [v for v in order if not part.vertices or v in part.vertices]
    ranges = {v: range(part.first, min(len(phases[v]), part.first + part.limit)) for v in wanted}
    count = sum(map(len, ranges.values()))
    if count > COLUMNS_MAX:
        raise TooLargeError(
            "answer",
            f"these are {count:,} subtasks, and one answer has at most {COLUMNS_MAX:,}",
            field="vertex",
            fix="name fewer vertices with `vertex`, or ask for a part with `first` and `limit`",
        )
    names = {v.id: v.name for v in opened.evidence.topology.vertices}
    placements = {p.vertex_id: p for p in opened.run.placements}
    return CheckpointSubtasksOut(
        vertices=[
            SubtaskColumnsOut(
                vertex_id=v,
                vertex=names.get(v, v),
                subtask_count=len(phases[v]),
                first=part.first,
                count=len(ranges[v]),
                columns=_of_vertex([phases[v][i] for i in ranges[v]], placements.get(v)),
            )
            for v in wanted
        ]
    )


def _of_vertex(subtasks: Sequence[SubtaskPhases], placement: Placement | None) -> dict[str, list[ColumnValue]]:
    hosts = () if placement is None else placement.hosts
    columns: dict[str, list[ColumnValue]] = {
        "host": [hosts[s.subtask] if s.subtask < len(hosts) else None for s in subtasks]
    }
    columns |= {name: [getattr(s, name) for s in subtasks] for name in _FIELDS}
    return {name: values[:1] if len(set(values)) == 1 else values for name, values in columns.items()}
