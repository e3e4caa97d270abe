"""Returns the space-time diagram of one checkpoint (V4).

The trace is measured if the engine reports barrier events, and otherwise reconstructed from the phases of subtasks.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.analysis.measures.critical_path import critical_path
from backend.analysis.measures.cut import CutCheck, check_cut
from backend.analysis.measures.phases import checkpoint_phases
from backend.analysis.space_time import measured, reconstructed
from backend.analysis.space_time.folding import Diagram, LaneVertex, fold
from backend.analysis.space_time.trace import Trace
from backend.contracts.space_time import ArrowOut, CutOut, CutProblemOut, LaneOut, SpaceTimeOut
from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.cut import CutError, CutState
from backend.domain.ids import VertexId
from backend.domain.topology import Topology
from backend.domain.verdict import Basis
from backend.services.checkpoints.reader import CheckpointKey, CheckpointService, Opened, check_size
from backend.store.checkpoints.reader import barriers_of
from backend.store.postgres.connections import reading

_RECONSTRUCTED = (
    "reconstructed from what this engine's REST reports of each subtask; {why}, so an arrow shows the most likely"
    " sender of the first or the last barrier"
)
_NO_CHANNELS = "the engine does not report channels"
_NOT_READ = (
    "the events of the channels were not read, because the engine no longer kept them or because they were larger than"
    " the collector accepts"
)
_PROBLEMS_MAX = 20
_ERROR_WORDS = {
    CutError.BACKWARDS: "crossed it backwards",
    CutError.REPEATED: "would be processed twice after a restore",
    CutError.LOST: "would be lost by a restore",
}


class SpaceTimeService:
    """Handles requests for space-time diagrams."""

    def __init__(self, engine: AsyncEngine, checkpoints: CheckpointService) -> None:
        self._engine = engine
        self._checkpoints = checkpoints

    async def of(self, key: CheckpointKey, opened: Sequence[str] = ()) -> SpaceTimeOut:
        """Return the diagram of one checkpoint. ``opened`` are vertices to show with their subtasks if it is folded.

        Raises:
            UnknownEntityError: there is no such job, run or checkpoint.
            TooLargeError: the checkpoint has too many subtasks.
        """
        async with reading(self._engine) as connection:
            found = await self._checkpoints.open(connection, key, is_alone=True)
            check_size(found.record)
            events = await barriers_of(connection, found.record.place)
        # A trace may have a hundred thousand events, so it is read outside the event loop.
        return await self._checkpoints.work.run(_diagram, found, events, {VertexId(v) for v in opened})


def _diagram(found: Opened, events: Sequence[BarrierEvent] | None, opened: set[VertexId]) -> SpaceTimeOut:
    topology, config = found.evidence.topology, found.evidence.config
    if events is None:
        trace = reconstructed.trace_of(checkpoint_phases(found.checkpoint, config, found.late), topology)
    else:
        trace = measured.trace_of(events)
    path = critical_path(found.checkpoint, topology, config, found.late)
    pinned = [] if path is None else [(s.vertex_id, s.subtask) for s in path.steps]
    header = found.record.header
    diagram = fold(trace, _vertices(found, trace, topology), opened=opened, pinned=pinned)
    check = None
    if events is not None:
        check = check_cut(events, is_completed=header.status is CheckpointStatus.COMPLETED)
    end_ms = max(trace.end_ms, float(header.end_to_end_duration_ms or 0))
    why = _NOT_READ if found.run.engine.has_channel_events else _NO_CHANNELS
    return space_time_out(diagram, trace.basis, check, end_ms, topology, why=why)


def _vertices(opened: Opened, trace: Trace, topology: Topology) -> list[LaneVertex]:
    """Return the vertices with the numbers of subtasks that they had in this checkpoint."""
    counts: dict[VertexId, int] = {}
    for vertex_id, subtask in trace.subtasks:
        counts[vertex_id] = max(counts.get(vertex_id, 0), subtask + 1)
    counts |= {d.vertex_id: d.subtask_count for d in opened.checkpoint.details}
    known = [LaneVertex(v.id, v.name, counts.pop(v.id, v.parallelism)) for v in topology.vertices]
    # If the job was redeployed since, the graph may lack a vertex of the checkpoint. Such a vertex comes after the
    # others.
    return known + [LaneVertex(v, str(v), count) for v, count in counts.items()]


def space_time_out(
    diagram: Diagram,
    basis: Basis,
    check: CutCheck | None,
    end_ms: float,
    topology: Topology,
    *,
    why: str = _NO_CHANNELS,
) -> SpaceTimeOut:
    """Convert a diagram to the API's shape.

    ``check`` is None if there are no events of channels; ``why`` is then the reason.
    """
    return SpaceTimeOut(
        basis=basis,
        note=None if basis is Basis.MEASURED else _RECONSTRUCTED.format(why=why),
        end_ms=end_ms,
        subtask_count=sum(lane.subtask_count for lane in diagram.lanes),
        is_folded=diagram.is_folded,
        opened=list(diagram.opened),
        lanes=[LaneOut.model_validate(lane) for lane in diagram.lanes],
        arrows=[ArrowOut.model_validate(arrow) for arrow in diagram.arrows],
        cut=_cut_out(check, topology, why),
    )


def _cut_out(check: CutCheck | None, topology: Topology, why: str) -> CutOut:
    if check is None:
        check = CutCheck(CutState.UNCHECKED, 0, 0)
    names = {v.id: v.name for v in topology.vertices}
    return CutOut(
        state=check.state,
        sentence=_sentence(check, why),
        channel_count=check.channel_count,
        checked_count=check.checked_count,
        problem_count=len(check.problems),
        problems=[
            CutProblemOut(
                source=names.get(p.channel.source, str(p.channel.source)),
                source_subtask=p.channel.source_subtask,
                target=names.get(p.channel.target, str(p.channel.target)),
                target_subtask=p.channel.target_subtask,
                error=p.error,
                size_bytes=p.size_bytes,
            )
            for p in check.problems[:_PROBLEMS_MAX]
        ],
    )


def _sentence(check: CutCheck, why: str) -> str:
    """Describe the result of the check in a sentence."""
    channels = "1 channel" if check.channel_count == 1 else f"{check.channel_count} channels"
    match check.state:
        case CutState.CONSISTENT:
            return f"No message crosses the cut backwards and none is lost or repeated: checked on {channels}."
        case CutState.INCONSISTENT:
            parts = []
            for error, words in _ERROR_WORDS.items():
                of_error = [p.size_bytes for p in check.problems if p.error is error]
                if of_error:
                    parts.append(f"{sum(of_error)} bytes on {len(of_error)} of {channels} {words}")
            return f"The cut is not consistent: {'; '.join(parts)}."
        case CutState.INCOMPLETE:
            return (
                f"The checkpoint did not complete, so the cut has gaps. It could be checked on {check.checked_count} of"
                f" {channels}, which show no error."
            )
        case CutState.UNCHECKED:
            if not check.channel_count:
                return f"The cut cannot be checked: {why}."
            return (
                "The cut cannot be checked: the trace does not contain the positions of all snapshots in the channels."
            )
