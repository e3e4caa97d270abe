"""Computes the times of a checkpoint on its job's graph, from which the barrier front (V5) is drawn.

If the engine reports channels, the times are those of its barrier events. Otherwise the times of a subtask come from
its phases, and channels have no times.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from backend.contracts.api import CheckpointDetailOut, EdgeOut, SubtaskPhasesOut, VertexOut
from backend.contracts.barriers import BarriersOut
from backend.domain.barriers import BarrierEventKind as Kind
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.verdict import Basis, VerdictKind


class SubtaskState(StrEnum):
    """The state of a subtask in a checkpoint. Members are in the order in which a subtask passes through them."""

    NOT_REACHED = "not reached"
    ALIGNING = "aligning"
    SNAPSHOTTING = "snapshotting"
    ACKNOWLEDGED = "acknowledged"


class BarrierPlace(StrEnum):
    """Whether the barrier has yet to enter a channel, is in it, or has left it."""

    BEFORE = "before"
    IN_TRANSIT = "in transit"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class SubtaskTimes:
    """The times at which a subtask changed its state, in milliseconds since the trigger.

    A time is None if it was not reported, or if the subtask has not changed to this state yet.
    """

    subtask: int
    first_ms: float | None
    snapshot_ms: float | None
    ack_ms: float | None
    last_ms: float | None = None
    """The time at which the last barrier arrived, which ends the alignment."""
    host: str | None = None
    start_delay_ms: int | None = None
    alignment_ms: int | None = None
    has_finished: bool = False
    """Whether the subtask had finished before the checkpoint. It counts as acknowledged from the trigger on."""

    def state(self, at_ms: float) -> SubtaskState:
        """Return the state of the subtask at ``at_ms`` milliseconds since the trigger."""
        if self.ack_ms is not None and at_ms >= self.ack_ms:
            return SubtaskState.ACKNOWLEDGED
        if self.snapshot_ms is not None and at_ms >= self.snapshot_ms:
            return SubtaskState.SNAPSHOTTING
        is_reached = self.first_ms is not None and at_ms >= self.first_ms
        return SubtaskState.ALIGNING if is_reached else SubtaskState.NOT_REACHED


@dataclass(frozen=True, slots=True)
class ChannelTimes:
    """The times at which a barrier entered and left one channel, in milliseconds since the trigger."""

    source_subtask: int
    target_subtask: int
    emitted_ms: float | None
    received_ms: float | None
    overtook_bytes: int | None = None

    def state(self, at_ms: float) -> BarrierPlace:
        """Return the state of the channel at ``at_ms`` milliseconds since the trigger."""
        if self.received_ms is not None and at_ms >= self.received_ms:
            return BarrierPlace.AFTER
        is_entered = self.emitted_ms is not None and at_ms >= self.emitted_ms
        return BarrierPlace.IN_TRANSIT if is_entered else BarrierPlace.BEFORE


@dataclass(frozen=True, slots=True)
class FrontVertex:
    """A vertex with its position in the graph, and the times of its subtasks by index."""

    vertex_id: str
    name: str
    layer: int
    row: int
    subtasks: tuple[SubtaskTimes, ...]
    is_guilty: bool
    folded: tuple[str, ...] = ()
    """The ids of the vertices that this one stands for. Empty unless it is a fold (``front.folding``)."""
    _sorted: tuple[tuple[float, ...], ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        moments: tuple[list[float], ...] = ([], [], [])
        for s in self.subtasks:
            known = (s.ack_ms, s.snapshot_ms, s.first_ms)
            for i, found in enumerate(moments):
                # A subtask in a later state has passed the earlier ones, even if their times were not reported.
                times = [t for t in known[: i + 1] if t is not None]
                if times:
                    found.append(min(times))
        object.__setattr__(self, "_sorted", tuple(tuple(sorted(m)) for m in moments))

    @property
    def has_finished(self) -> bool:
        """Whether all subtasks had finished before the checkpoint."""
        return bool(self.subtasks) and all(s.has_finished for s in self.subtasks)

    def counts(self, at_ms: float) -> dict[SubtaskState, int]:
        """Return how many subtasks are in each state at ``at_ms`` milliseconds since the trigger."""
        acked, begun, reached = (bisect_right(m, at_ms) for m in self._sorted)
        return {
            SubtaskState.NOT_REACHED: len(self.subtasks) - reached,
            SubtaskState.ALIGNING: reached - begun,
            SubtaskState.SNAPSHOTTING: begun - acked,
            SubtaskState.ACKNOWLEDGED: acked,
        }


@dataclass(frozen=True, slots=True)
class FrontEdge:
    """An edge with the times of its channels. ``channels`` is empty if the engine does not report channels."""

    source: str
    target: str
    channels: tuple[ChannelTimes, ...]
    is_measured: bool
    """Whether the engine reports channels. If it does, an empty ``channels`` means that no barrier has entered a
    channel yet.
    """


@dataclass(frozen=True, slots=True)
class Front:
    """Everything that ``draw`` needs, except the instant to draw."""

    vertices: tuple[FrontVertex, ...]
    edges: tuple[FrontEdge, ...]
    steps_ms: tuple[float, ...]
    """The instants at which a state changed, ascending. The arrow keys step through them."""
    end_ms: float
    opens_ms: float
    """The instant that is shown at first: the end of the checkpoint, or now if it is in progress.

    Barriers and acknowledgements may arrive after a checkpoint has failed, and thus after this instant.
    """
    basis: Basis


def build(
    checkpoint: CheckpointDetailOut,
    vertices: Sequence[VertexOut],
    edges: Sequence[EdgeOut],
    barriers: BarriersOut | None,
    *,
    elapsed_ms: int | None = None,
) -> Front:
    """Compute the times of one checkpoint on the graph of its job.

    The vertices of the graph have the same places in all checkpoints of the job. If an open checkpoint does not list a
    vertex yet, no barrier has reached the vertex. If an ended checkpoint does not list it, it has no subtasks here.
    If the job was redeployed, the graph may lack a vertex of the checkpoint. Such a vertex gets its own layer, and the
    vertices that only the graph has are left out.
    """
    is_measured = barriers is not None and barriers.basis is Basis.MEASURED
    seen = _subtask_events(barriers) if barriers is not None and is_measured else {}
    places = {v.id: (v.layer, v.row) for v in vertices}
    guilty = checkpoint.verdict.vertex_id if checkpoint.verdict.kind is not VerdictKind.NONE else None
    placed = []
    listed = {v.vertex_id for v in checkpoint.vertices}
    is_open = not checkpoint.status.is_terminal
    is_of_graph = not listed - places.keys() and (is_open or bool(listed))
    silent = [v for v in vertices if v.id not in listed] if is_of_graph else []
    for index, v in enumerate(checkpoint.vertices):
        layer, row = places.get(v.vertex_id, (index, 0))
        times = tuple(_times(s, seen.get((v.vertex_id, s.subtask), {})) for s in v.subtasks)
        placed.append(FrontVertex(v.vertex_id, v.vertex, layer, row, times, v.vertex_id == guilty))
    for w in silent:
        unknown = tuple(_untold(i, seen.get((w.id, i), {})) for i in range(w.parallelism if is_open else 0))
        placed.append(FrontVertex(w.id, w.name, w.layer, w.row, unknown, w.id == guilty))
    placed.sort(key=lambda f: (f.layer, f.row))
    channels = _channels(barriers) if barriers is not None and is_measured else {}
    known = {v.vertex_id for v in placed}
    drawn = tuple(
        FrontEdge(e.source, e.target, channels.get((e.source, e.target), ()), is_measured)
        for e in edges
        if e.source in known and e.target in known
    )
    moments = steps(placed, drawn)
    end_ms = max([*moments, float(checkpoint.end_to_end_duration_ms or 0), float(elapsed_ms or 0), 1.0])
    basis = Basis.MEASURED if is_measured else Basis.RECONSTRUCTED
    return Front(tuple(placed), drawn, moments, end_ms, min(end_ms, _failed_ms(checkpoint, end_ms)), basis)


def _failed_ms(checkpoint: CheckpointDetailOut, end_ms: float) -> float:
    """Return when a checkpoint failed, or ``end_ms`` if it did not fail or the time is not known."""
    if checkpoint.status is not CheckpointStatus.FAILED:
        return end_ms
    limit = checkpoint.timeout_ms if checkpoint.failure_reason is FailureReason.EXPIRED else None
    return min((float(t) for t in (checkpoint.end_to_end_duration_ms, limit) if t is not None), default=end_ms)


def with_measured_barriers(checkpoint: CheckpointDetailOut, barriers: BarriersOut | None) -> CheckpointDetailOut:
    """Return the checkpoint, with measured first barriers for the subtasks that have not acknowledged.

    If ``barriers`` are not measured, the checkpoint is returned unchanged.
    """
    if barriers is None or barriers.basis is not Basis.MEASURED:
        return checkpoint
    seen = _subtask_events(barriers)

    def with_first_barrier(vertex_id: str, s: SubtaskPhasesOut) -> SubtaskPhasesOut:
        first = seen.get((vertex_id, s.subtask), {}).get("first")
        if first is None or s.is_acknowledged:
            return s
        update = {
            "first_barrier_ms": round(first),
            "first_barrier_basis": Basis.MEASURED,
            "first_barrier_resolution_ms": None,
        }
        return s.model_copy(update=update)

    vertices = [
        v.model_copy(update={"subtasks": [with_first_barrier(v.vertex_id, s) for s in v.subtasks]})
        for v in checkpoint.vertices
    ]
    return checkpoint.model_copy(update={"vertices": vertices})


_Seen = dict[tuple[str, int], dict[str, float]]


def _subtask_events(barriers: BarriersOut) -> _Seen:
    seen: _Seen = {}
    for event in barriers.events:
        own = seen.setdefault((event.vertex_id, event.subtask), {})
        match event.kind:
            case Kind.BARRIER_RECEIVED:
                own["first"] = min(event.at_ms, own.get("first", event.at_ms))
                own["last"] = max(event.at_ms, own.get("last", event.at_ms))
            case Kind.SNAPSHOT_SYNC_START:
                own.setdefault("snapshot", event.at_ms)
            case Kind.ACKED:
                own.setdefault("ack", event.at_ms)
            case _:
                pass
    for own in seen.values():
        # A source has no input channels. The barrier reaches it when its snapshot begins.
        if "first" not in own and "snapshot" in own:
            own["first"] = own["snapshot"]
    return seen


def _times(subtask: SubtaskPhasesOut, seen: dict[str, float]) -> SubtaskTimes:
    if subtask.has_finished:
        return SubtaskTimes(subtask.subtask, None, None, 0.0, host=subtask.host, has_finished=True)

    def reported(key: str, value: int | None) -> float | None:
        return seen.get(key, None if value is None else float(value))

    return SubtaskTimes(
        subtask.subtask,
        first_ms=reported("first", subtask.first_barrier_ms),
        snapshot_ms=reported("snapshot", subtask.snapshot_at_ms),
        ack_ms=reported("ack", subtask.ack_ms),
        # Until the subtask acknowledges, further barriers may arrive, so the last one is not known.
        last_ms=reported("last", subtask.alignment_end_ms) if subtask.is_acknowledged else None,
        host=subtask.host,
        start_delay_ms=subtask.start_delay_ms,
        alignment_ms=subtask.alignment_duration_ms,
    )


def _untold(subtask: int, seen: dict[str, float]) -> SubtaskTimes:
    return SubtaskTimes(subtask, first_ms=seen.get("first"), snapshot_ms=seen.get("snapshot"), ack_ms=seen.get("ack"))


def _channels(barriers: BarriersOut) -> dict[tuple[str, str], tuple[ChannelTimes, ...]]:
    emitted: dict[tuple[str, str, int, int], float] = {}
    received: dict[tuple[str, str, int, int], float] = {}
    overtook: dict[tuple[str, str, int, int], int] = {}
    for event in barriers.events:
        if event.channel is None:
            continue
        c = event.channel
        key = (c.source, c.target, c.source_subtask, c.target_subtask)
        if event.kind is Kind.BARRIER_EMITTED:
            emitted.setdefault(key, event.at_ms)
        elif event.kind is Kind.BARRIER_RECEIVED:
            received.setdefault(key, event.at_ms)
        elif event.kind is Kind.OVERTOOK:
            overtook[key] = overtook.get(key, 0) + (event.size_bytes or 0)
    channel_times: dict[tuple[str, str], list[ChannelTimes]] = {}
    for key in sorted(emitted.keys() | received.keys()):
        times = ChannelTimes(key[2], key[3], emitted.get(key), received.get(key), overtook.get(key))
        channel_times.setdefault((key[0], key[1]), []).append(times)
    return {edge: tuple(channels) for edge, channels in channel_times.items()}


def steps(vertices: Sequence[FrontVertex], edges: Sequence[FrontEdge]) -> tuple[float, ...]:
    """Return the instants at which the state of a subtask or channel changes, ascending, in ms since the trigger."""
    times_ms = {0.0}
    for vertex in vertices:
        for s in vertex.subtasks:
            times_ms.update(_step(v) for v in (s.first_ms, s.snapshot_ms, s.ack_ms) if v is not None and v >= 0)
    for edge in edges:
        for c in edge.channels:
            times_ms.update(_step(v) for v in (c.emitted_ms, c.received_ms) if v is not None and v >= 0)
    return tuple(sorted(times_ms))


def _step(at_ms: float) -> float:
    # The instant is rounded up to a tenth of a millisecond, so that the event has already happened at this instant.
    return math.ceil(at_ms * 10) / 10
