"""The texts of the space-time diagram: labels of lanes, hover texts, summary and table."""

from __future__ import annotations

from collections.abc import Sequence

from backend.contracts.space_time import ArrowOut, LaneOut, SpaceTimeOut, StretchOut
from backend.domain.verdict import Basis
from dashboard import text
from dashboard.figures.base import Cell, Table


def labels(lanes: Sequence[LaneOut], *, name_max: int) -> list[str]:
    """Return the label of each lane. Only the first lane of a vertex has the vertex's name."""
    found, before = [], None
    for lane in lanes:
        name = text.plain(text.short(lane.vertex, name_max)) if lane.vertex_id != before else ""
        found.append(f"{name} {_which(lane)}".strip())
        before = lane.vertex_id
    return found


def _which(lane: LaneOut) -> str:
    which = f"× {lane.subtask_count}" if lane.subtask is None else str(lane.subtask)
    if not lane.finished_count:
        return which
    return f"{which} ended" if lane.finished_count == lane.subtask_count else f"{which}, {lane.finished_count} ended"


def name_of(lane: LaneOut) -> str:
    """Return the full name of a lane."""
    who = f"{lane.subtask_count} subtasks" if lane.subtask is None else f"subtask {lane.subtask}"
    return f"{text.plain(lane.vertex)} {who}"


def at(value: float | None) -> str:
    """Return a time since the trigger."""
    return text.duration(value)


def of_snapshot(lane: LaneOut) -> str:
    said = [f"<b>{name_of(lane)}</b>"]
    if lane.subtask is None:
        said.append(f"{lane.snapshot_count} snapshots, {at(lane.snapshot_ms)} to {at(lane.snapshot_last_ms)}")
    else:
        said.append(f"snapshot at {at(lane.snapshot_ms)}")
    if lane.logged_bytes:
        said.append(f"{text.size(lane.logged_bytes)} of input in the checkpoint")
    if lane.overtaken_bytes:
        said.append(f"{text.size(lane.overtaken_bytes)} of overtaken output in the checkpoint")
    return "<br>".join(said)


def of_ack(lane: LaneOut) -> str:
    if lane.subtask is None:
        times = f"{at(lane.ack_ms)} to {at(lane.ack_last_ms)}"
        return f"<b>{name_of(lane)}</b><br>{lane.ack_count} acknowledged, {times}"
    return f"<b>{name_of(lane)}</b><br>acknowledged at {at(lane.ack_ms)}"


def of_part(lane: LaneOut, part: str, begin_ms: float, end_ms: float) -> str:
    """Return the hover text of a part of a snapshot.

    For a lane of several subtasks, it names the first begin and the last end.
    """
    if lane.subtask is None:
        said = f"{part} parts: first began {at(begin_ms)}, last ended {at(end_ms)}"
    else:
        said = f"{part} part to {at(end_ms)}"
    return f"<b>{name_of(lane)}</b><br>{said}"


def of_stretch(lane: LaneOut, stretch: StretchOut, subject: str, verb: str) -> str:
    """Return the hover text of a stretch in which ``subject``, such as channels, was ``verb``, such as blocked."""
    end = "not ended" if stretch.end_ms is None else at(stretch.end_ms)
    if lane.subtask is None:
        said = f"{subject} first {verb} {at(stretch.begin_ms)}, last {end}"
    else:
        said = f"{subject} {verb}: {at(stretch.begin_ms)} to {end}{_at_once(stretch.channel_count)}"
    return f"<b>{name_of(lane)}</b><br>{said}"


def _at_once(channel_count: int | None) -> str:
    match channel_count:
        case None:
            return ""
        case 1:
            return ", 1 channel"
        case _:
            return f", at most {channel_count} channels at once"


def of_arrow(arrow: ArrowOut, lanes: Sequence[LaneOut], basis: Basis) -> str:
    """Return the hover text of the barriers from one lane to another."""
    way = f"<b>{name_of(lanes[arrow.source])} → {name_of(lanes[arrow.target])}</b>"
    if arrow.channel_count == 1:
        end = "not received" if arrow.received_ms is None else f"received at {at(arrow.received_ms)}"
        said = f"barrier sent at {at(arrow.emitted_ms)}, {end}"
    else:
        said = (
            f"{arrow.channel_count} barriers, sent {at(arrow.emitted_ms)} to {at(arrow.emitted_last_ms)},"
            f" received {at(arrow.received_ms)} to {at(arrow.received_last_ms)}"
        )
        if arrow.unreceived_count:
            said += f"; {arrow.unreceived_count} not received"
    if arrow.overtook_bytes:
        said += f"<br>overtook {text.size(arrow.overtook_bytes)}"
    if basis is Basis.RECONSTRUCTED:
        said += "<br>reconstructed: the most likely sender"
    return f"{way}<br>{said}"


def summary(diagram: SpaceTimeOut) -> str:
    """Return the description for screen readers."""
    overtook = sum(a.overtook_bytes or 0 for a in diagram.arrows)
    parts = [
        f"{len(diagram.lanes)} lanes for {diagram.subtask_count} subtasks,"
        f" {sum(a.channel_count for a in diagram.arrows)} barriers, {diagram.basis.value},"
        f" from 0 to {text.duration(diagram.end_ms)}"
    ]
    if overtook:
        parts.append(f"barriers overtook {text.size(overtook)}")
    blocked = sum(bool(lane.blocked) for lane in diagram.lanes)
    if blocked:
        parts.append(f"channels were blocked at {blocked} lanes")
    recorded = sum(lane.recorded is not None for lane in diagram.lanes)
    if recorded:
        parts.append(f"input was recorded at {recorded} lanes")
    finished = sum(lane.finished_count for lane in diagram.lanes)
    if finished:
        parts.append(f"{finished} subtasks had finished before")
    return f"{'; '.join(parts)}. {diagram.cut.sentence}"


def table(diagram: SpaceTimeOut) -> Table:
    """Return the times of each lane."""
    columns = (
        "vertex", "subtask", "subtasks", "first barrier ms", "last barrier ms", "snapshot ms", "sync end ms",
        "async end ms", "acknowledged ms", "blocked ms", "recorded ms", "logged bytes", "overtaken bytes",
        "had finished before",
    )  # fmt: skip
    return Table(columns, tuple(_row(lane) for lane in diagram.lanes))


def _row(lane: LaneOut) -> tuple[Cell, ...]:
    recorded = [] if lane.recorded is None else [lane.recorded]
    times = (
        lane.first_ms, lane.last_ms, lane.snapshot_last_ms, lane.sync_end_last_ms,
        lane.async_end_last_ms, lane.ack_last_ms, _length(lane, lane.blocked), _length(lane, recorded),
    )  # fmt: skip
    return (
        lane.vertex,
        lane.subtask,
        lane.subtask_count,
        *(None if t is None else round(t, 3) for t in times),
        lane.logged_bytes,
        lane.overtaken_bytes,
        lane.finished_count,
    )


def _length(lane: LaneOut, stretches: Sequence[StretchOut]) -> float | None:
    """Return the sum of the lengths, or None if one of them has not ended.

    For a lane of several subtasks, only the first begin and the last end are known, so the result is None.
    """
    if stretches and lane.subtask is None:
        return None
    lengths = [None if s.end_ms is None else s.end_ms - s.begin_ms for s in stretches]
    return None if None in lengths else sum(n for n in lengths if n is not None)
