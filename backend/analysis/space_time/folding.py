"""Chooses the lanes of a space-time diagram, and merges the arrows between them.

A diagram of up to ``LANES_MAX`` subtasks has a lane for each. In a larger one, each vertex is folded into one lane that
shows its earliest and latest times, and the subtasks on the critical path keep lanes of their own. An opened vertex
shows as many of its subtasks as there is room for, the slowest first; its other subtasks stay folded.

Invariant: a diagram has at most ``LANES_MAX`` lanes, or one for each vertex if the job has more vertices than that.
Every subtask belongs to exactly one lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from backend.analysis.space_time.trace import ChannelTrace, Stretch, Subtask, SubtaskTrace, Trace
from backend.domain.ids import VertexId

LANES_MAX = 60


@dataclass(frozen=True, slots=True)
class LaneVertex:
    """A vertex and the number of its subtasks."""

    id: VertexId
    name: str
    subtask_count: int


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane: a subtask, or several subtasks of a vertex if ``subtask`` is None.

    If the lane has several subtasks, a time is the earliest of theirs, or the latest if its name ends in ``last_ms``.
    """

    vertex_id: VertexId
    vertex: str
    subtask: int | None
    subtask_count: int
    first_ms: float | None
    last_ms: float | None
    """When the last barrier arrived."""
    snapshot_ms: float | None
    snapshot_last_ms: float | None
    sync_end_ms: float | None
    sync_end_last_ms: float | None
    async_end_last_ms: float | None
    ack_ms: float | None
    ack_last_ms: float | None
    aborted_ms: float | None
    switched_ms: float | None
    blocked: tuple[Stretch, ...]
    """In a lane of several subtasks, this is one stretch from the earliest begin to the latest end.

    The number of channels of this stretch is None.
    """
    recorded: Stretch | None
    """In a lane of several subtasks, this is one stretch, as in ``blocked``."""
    logged_bytes: int | None
    overtaken_bytes: int | None
    snapshot_count: int
    ack_count: int
    finished_count: int = 0
    """The subtasks that had finished before the checkpoint."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """The barriers from one lane to another; the lanes are given by their indexes.

    If the barriers crossed several channels, the first times are the earliest, and the last times are the latest.
    """

    source: int
    target: int
    channel_count: int
    emitted_ms: float
    received_ms: float | None
    emitted_last_ms: float
    received_last_ms: float | None
    """None if the barrier was not received on at least one channel."""
    unreceived_count: int
    overtook_bytes: int | None


@dataclass(frozen=True, slots=True)
class Diagram:
    """The lanes from top to bottom, and the arrows between them. ``opened`` are the vertices with subtasks shown."""

    lanes: tuple[Lane, ...]
    arrows: tuple[Arrow, ...]
    is_folded: bool
    opened: tuple[VertexId, ...]


def fold(
    trace: Trace,
    vertices: Sequence[LaneVertex],
    *,
    opened: Collection[VertexId] = (),
    pinned: Iterable[Subtask] = (),
    lanes_max: int = LANES_MAX,
) -> Diagram:
    """Return the diagram of a checkpoint. ``vertices`` are in the order of the lanes.

    ``opened`` are the vertices whose subtasks the viewer wants to see, ``pinned`` the subtasks on the critical path.
    """
    total = sum(v.subtask_count for v in vertices)
    is_folded = total > lanes_max
    if is_folded:
        shown = _shown(trace, vertices, opened, pinned, lanes_max)
    else:
        shown = {v.id: set(range(v.subtask_count)) for v in vertices}
    lanes: list[Lane] = []
    lane_of: dict[Subtask, int] = {}
    for vertex in vertices:
        for members in _groups(vertex, shown[vertex.id]):
            lane_of |= dict.fromkeys(((vertex.id, i) for i in members), len(lanes))
            lanes.append(_lane(vertex, members, trace.subtasks))
    wanted = tuple(v.id for v in vertices if v.id in opened) if is_folded else ()
    return Diagram(tuple(lanes), _arrows(trace.channels, lane_of), is_folded, wanted)


def _shown(
    trace: Trace,
    vertices: Sequence[LaneVertex],
    opened: Collection[VertexId],
    pinned: Iterable[Subtask],
    lanes_max: int,
) -> dict[VertexId, set[int]]:
    """Return the subtasks of each vertex that have a lane of their own."""
    shown: dict[VertexId, set[int]] = {v.id: set() for v in vertices}
    counts = {v.id: v.subtask_count for v in vertices}
    # Each vertex may need a lane for the rest of its subtasks.
    room = max(0, lanes_max - len(vertices))
    for vertex_id, subtask in pinned:
        if room and subtask < counts.get(vertex_id, 0) and subtask not in shown[vertex_id]:
            shown[vertex_id].add(subtask)
            room -= 1
    waiting = [v for v in vertices if v.id in opened]
    for at, vertex in enumerate(waiting):
        own = shown[vertex.id]
        most = room // (len(waiting) - at)
        added = [i for i in _slowest(trace, vertex) if i not in own][:most]
        own.update(added)
        room -= len(added)
    return shown


def _slowest(trace: Trace, vertex: LaneVertex) -> list[int]:
    """Return the subtasks of a vertex, the slowest first: those that did not acknowledge, then by their last event."""

    def key(i: int) -> tuple[bool, float, int]:
        s = trace.subtasks.get((vertex.id, i), SubtaskTrace())
        return s.ack_ms is not None, -(s.ack_ms or s.last_ms or s.first_ms or 0.0), i

    return sorted(range(vertex.subtask_count), key=key)


def _groups(vertex: LaneVertex, shown: Collection[int]) -> list[list[int]]:
    rest = [i for i in range(vertex.subtask_count) if i not in shown]
    # If the rest is a single subtask, its lane shows that subtask.
    return [*([rest] if len(rest) > 1 else []), *([i] for i in sorted({*shown, *(rest if len(rest) == 1 else [])}))]


def _lane(vertex: LaneVertex, members: Sequence[int], subtasks: Mapping[Subtask, SubtaskTrace]) -> Lane:
    own = [subtasks.get((vertex.id, i), SubtaskTrace()) for i in members]
    one = own[0] if len(own) == 1 else None
    snapshots, acks = _known([s.snapshot_ms for s in own]), _known([s.ack_ms for s in own])
    sync_ends = _known([s.sync_end_ms for s in own])
    recorded = [s.recorded for s in own if s.recorded is not None]
    return Lane(
        vertex_id=vertex.id,
        vertex=vertex.name,
        subtask=members[0] if one is not None else None,
        subtask_count=len(members),
        first_ms=min(_known([s.first_ms for s in own]), default=None),
        last_ms=max(_known([s.last_ms for s in own]), default=None),
        snapshot_ms=min(snapshots, default=None),
        snapshot_last_ms=max(snapshots, default=None),
        sync_end_ms=min(sync_ends, default=None),
        sync_end_last_ms=max(sync_ends, default=None),
        async_end_last_ms=max(_known([s.async_end_ms for s in own]), default=None),
        ack_ms=min(acks, default=None),
        ack_last_ms=max(acks, default=None),
        aborted_ms=min(_known([s.aborted_ms for s in own]), default=None),
        switched_ms=min(_known([s.switched_ms for s in own]), default=None),
        blocked=one.blocked if one is not None else _hull([b for s in own for b in s.blocked]),
        recorded=one.recorded if one is not None else next(iter(_hull(recorded)), None),
        logged_bytes=_sum([s.logged_bytes for s in own]),
        overtaken_bytes=_sum([s.overtaken_bytes for s in own]),
        snapshot_count=len(snapshots),
        ack_count=len(acks),
        finished_count=sum(s.has_finished for s in own),
    )


def _hull(stretches: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """Return one stretch from the earliest begin to the latest end.

    The number of channels at one time is left out, because it is not known for several subtasks together.
    """
    if not stretches:
        return ()
    ends = [s.end_ms for s in stretches]
    known = [e for e in ends if e is not None]
    end_ms = max(known) if len(known) == len(ends) else None
    return (Stretch(min(s.begin_ms for s in stretches), end_ms),)


def _arrows(channels: Iterable[ChannelTrace], lane_of: Mapping[Subtask, int]) -> tuple[Arrow, ...]:
    between: dict[tuple[int, int], list[ChannelTrace]] = {}
    for c in channels:
        if c.sender in lane_of and c.receiver in lane_of:
            between.setdefault((lane_of[c.sender], lane_of[c.receiver]), []).append(c)
    return tuple(_arrow(source, target, group) for (source, target), group in sorted(between.items()))


def _arrow(source: int, target: int, group: Sequence[ChannelTrace]) -> Arrow:
    received = _known([c.received_ms for c in group])
    is_received = len(received) == len(group)
    return Arrow(
        source=source,
        target=target,
        channel_count=len(group),
        emitted_ms=min(c.emitted_ms for c in group),
        received_ms=min(received, default=None),
        emitted_last_ms=max(c.emitted_ms for c in group),
        received_last_ms=max(received) if is_received else None,
        unreceived_count=len(group) - len(received),
        overtook_bytes=_sum([c.overtook_bytes for c in group]),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def _sum(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None
