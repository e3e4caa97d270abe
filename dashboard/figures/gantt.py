"""V3, the phases of one checkpoint: a row a vertex, or a row a subtask where a vertex is opened.

x is milliseconds since the trigger. Segments: start delay, alignment, sync, async, ack wait. Where the snapshot starts
before the last barrier, alignment runs inside async and is a thin overlay, never a second segment. A closed vertex has
its envelope (earliest first barrier to latest acknowledgement) and its slowest subtask; with the critical path pinned,
the subtask on the path. A subtask that has not acknowledged is hatched; its first barrier, read from a gauge, is a mark
with its resolution. Odd clocks are marked, not hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.contracts.api import CheckpointDetailOut, SubtaskPhasesOut, VertexPhasesOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.verdict import Phase
from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, axis, empty, layout, note, ticks_ms
from dashboard.palette import PHASE_COLORS, PHASE_WORDS, UNALIGNED, Theme

_ROW_PX = 22
_ROWS_MAX = 600
_ROWS_SHOWN = 24
_LABELS_PX = 236
_COLUMNS = (
    "vertex",
    "subtask",
    "host",
    "acknowledged",
    "first barrier (ms)",
    "first barrier basis",
    "start delay (ms, measured)",
    "alignment (ms, measured)",
    "sync (ms, measured)",
    "async (ms, measured)",
    "ack (ms, measured)",
    "snapshot at (ms, reconstructed)",
    "ack wait (ms, reconstructed)",
    "unaligned",
    "clock skew",
    "checkpointed size (bytes)",
    "full state size (bytes)",
    "processed during alignment (bytes)",
    "persisted in-flight (bytes)",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the figure; ``subtask`` None where the vertex reported nothing."""

    vertex: VertexPhasesOut
    subtask: SubtaskPhasesOut | None
    label: str
    is_vertex: bool
    is_critical: bool


@dataclass(frozen=True, slots=True)
class _Segment:
    phase: Phase
    start_ms: float
    end_ms: float


def gantt(
    checkpoint: CheckpointDetailOut,
    *,
    theme: Theme,
    opened: Sequence[str] = (),
    sort: str = "topology",
    is_path_pinned: bool = True,
    elapsed_ms: int | None = None,
) -> Chart:
    """The chart of one checkpoint; ``customdata`` of a bar is ``[vertex id, subtask or null]``.

    ``elapsed_ms`` is how long a checkpoint in progress has taken so far.
    """
    rows = _rows(checkpoint, opened, sort, is_path_pinned=is_path_pinned)
    if not rows:
        return empty(theme, "The engine no longer had the subtasks of this checkpoint when it was read.")
    end_ms = _end(checkpoint, rows, elapsed_ms)
    # Past a screenful the page scrolls the rows, and the axis belongs where they begin.
    is_long = len(rows) > _ROWS_SHOWN
    height_px = (108 if is_long else 70) + _ROW_PX * len(rows)
    values, labels = ticks_ms(end_ms)
    shapes, notes = _marks(checkpoint, end_ms, theme, shift_px=40 if is_long else 0)
    figure = {
        "data": [
            _envelopes(rows, theme),
            *_pending(rows, theme, end_ms),
            *(_phase(p, rows, theme) for p in Phase),
            _overlay(rows),
            _barriers(rows, theme),
            *(_path(checkpoint, rows, theme) if is_path_pinned else []),
            _touch(rows, end_ms),
        ],
        "layout": layout(
            theme,
            height_px=height_px,
            revision=f"gantt{checkpoint.run_id}/{checkpoint.checkpoint_id}/{len(rows)}",
            barmode="overlay",
            margin={"l": _LABELS_PX, "r": 20, "t": 60 if is_long else 22, "b": 40},
            xaxis=axis(
                theme,
                "since trigger",
                tickvals=values,
                ticktext=labels,
                range=[0, end_ms * 1.02],
                side="top" if is_long else "bottom",
            ),
            yaxis=axis(
                theme,
                tickvals=list(range(len(rows))),
                ticktext=[r.label for r in rows],
                range=[len(rows) - 0.4, -0.6],
                tickfont={"size": 11, "color": theme.text},
                showgrid=False,
                fixedrange=True,
                # Measuring hundreds of labels to fit the margin takes the browser seconds.
                automargin=False,
            ),
            shapes=[*_bands(rows, theme), *shapes],
            annotations=[*notes, *_skews(rows, theme)],
            hovermode="closest",
        ),
    }
    return Chart(figure, _table(checkpoint), _summary(checkpoint), height_px)


# --- rows ---------------------------------------------------------------------------------------------------------


def _rows(checkpoint: CheckpointDetailOut, opened: Sequence[str], sort: str, *, is_path_pinned: bool) -> list[Row]:
    critical = _critical(checkpoint)
    rows: list[Row] = []
    for vertex in checkpoint.vertices:
        on_path = critical.get(vertex.vertex_id, frozenset())
        shown = _representative(vertex, on_path if is_path_pinned else frozenset())
        is_open = vertex.vertex_id in opened
        rows.append(Row(vertex, shown, _vertex_label(vertex, is_open), True, bool(on_path)))
        if is_open:
            for subtask in _sorted(vertex.subtasks, sort):
                is_on_path = subtask.subtask in on_path
                rows.append(Row(vertex, subtask, _subtask_label(subtask, is_on_path), False, is_on_path))
    return rows[:_ROWS_MAX]


def _critical(checkpoint: CheckpointDetailOut) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for step in checkpoint.critical_path.steps if checkpoint.critical_path else []:
        found.setdefault(step.vertex_id, set()).add(step.subtask)
    return {vertex: frozenset(indices) for vertex, indices in found.items()}


def _representative(vertex: VertexPhasesOut, on_path: frozenset[int]) -> SubtaskPhasesOut | None:
    wanted = max(on_path) if on_path else vertex.slowest_subtask
    found = next((s for s in vertex.subtasks if s.subtask == wanted), None)
    return found or (vertex.subtasks[0] if vertex.subtasks else None)


def _sorted(subtasks: Sequence[SubtaskPhasesOut], sort: str) -> list[SubtaskPhasesOut]:
    def last(value: int | None) -> float:
        # Not reported is the slowest of all: it is what the checkpoint waits for.
        return float("inf") if value is None else float(value)

    match sort:
        case "finish":
            return sorted(subtasks, key=lambda s: (-last(s.ack_ms), -last(s.first_barrier_ms), s.subtask))
        case "start-delay":
            return sorted(subtasks, key=lambda s: (-last(s.first_barrier_ms), s.subtask))
        case "alignment":
            return sorted(subtasks, key=lambda s: (-last(s.alignment_duration_ms), s.subtask))
        case "async":
            return sorted(subtasks, key=lambda s: (-last(s.async_duration_ms), s.subtask))
        case "host":
            return sorted(subtasks, key=lambda s: (s.host or "\uffff", s.subtask))
        case _:
            return sorted(subtasks, key=lambda s: s.subtask)


def _vertex_label(vertex: VertexPhasesOut, is_open: bool) -> str:
    mark = "▾" if is_open else "▸"
    name = text.plain(text.short(vertex.vertex, 26))
    return f"{mark} <b>{name}</b>  {vertex.acknowledged_count}/{vertex.subtask_count}"


def _subtask_label(subtask: SubtaskPhasesOut, is_on_path: bool) -> str:
    host = f" · {text.plain(text.short(subtask.host, 16))}" if subtask.host else ""
    return f"{'● ' if is_on_path else ''}{subtask.subtask}{host}"


# --- segments -----------------------------------------------------------------------------------------------------


def segments(subtask: SubtaskPhasesOut) -> list[_Segment]:
    """The stacked segments of one subtask: none overlaps another, and what was not reported is left out."""
    s = subtask
    found: list[_Segment] = []
    if s.first_barrier_ms is not None:
        found.append(_Segment(Phase.START_DELAY, 0, s.first_barrier_ms))
    if s.first_barrier_ms is not None and s.alignment_end_ms is not None and not s.is_alignment_overlaid:
        found.append(_Segment(Phase.ALIGNMENT, s.first_barrier_ms, s.alignment_end_ms))
    elif s.first_barrier_ms is not None and s.snapshot_at_ms is not None and s.is_alignment_overlaid:
        found.append(_Segment(Phase.ALIGNMENT, s.first_barrier_ms, s.snapshot_at_ms))
    if s.snapshot_at_ms is not None and s.sync_end_ms is not None:
        found.append(_Segment(Phase.SYNC, s.snapshot_at_ms, s.sync_end_ms))
    if s.sync_end_ms is not None and s.async_end_ms is not None:
        found.append(_Segment(Phase.ASYNC, s.sync_end_ms, s.async_end_ms))
    if s.async_end_ms is not None and s.ack_ms is not None:
        found.append(_Segment(Phase.ACK_WAIT, s.async_end_ms, s.ack_ms))
    return [seg for seg in found if seg.end_ms > seg.start_ms]


def _phase(phase: Phase, rows: Sequence[Row], theme: Theme) -> Trace:
    found = [
        (index, segment, row)
        for index, row in enumerate(rows)
        if row.subtask is not None
        for segment in segments(row.subtask)
        if segment.phase is phase
    ]
    marker: dict[str, object] = {"color": PHASE_COLORS[phase], "line": {"color": theme.outline, "width": 0.5}}
    if phase is Phase.ALIGNMENT:
        marker["pattern"] = {
            "shape": "\\",
            "size": 5,
            "solidity": 0.15,
            "fgcolor": theme.outline,
            "bgcolor": PHASE_COLORS[phase],
        }
    return {
        "type": "bar",
        "orientation": "h",
        "name": PHASE_WORDS[phase],
        "y": [index for index, _, _ in found],
        "base": [segment.start_ms for _, segment, _ in found],
        "x": [segment.end_ms - segment.start_ms for _, segment, _ in found],
        "width": [0.62 if row.is_vertex else 0.5 for _, _, row in found],
        "hoverinfo": "skip",
        "marker": marker,
    }


def _touch(rows: Sequence[Row], end_ms: float) -> Trace:
    """One invisible bar a row takes the pointer: a text for each segment would be five times the bytes."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": "row",
        "y": list(range(len(rows))),
        "base": 0,
        "x": [end_ms * 1.02] * len(rows),
        "width": 1,
        "customdata": [_custom(row) for row in rows],
        "hovertext": [_hover(row) for row in rows],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": "rgba(0,0,0,0)"},
    }


def _overlay(rows: Sequence[Row]) -> Trace:
    found = []
    for index, row in enumerate(rows):
        s = row.subtask
        if (
            s is not None
            and s.is_alignment_overlaid
            and s.snapshot_at_ms is not None
            and s.alignment_end_ms is not None
        ):
            found.append((index, s.snapshot_at_ms, s.alignment_end_ms, row))
    return {
        "type": "bar",
        "orientation": "h",
        "name": "alignment inside async",
        "y": [index for index, *_ in found],
        "base": [start for _, start, _, _ in found],
        "x": [max(0, end - start) for _, start, end, _ in found],
        "width": 0.16,
        "hoverinfo": "skip",
        "marker": {"color": PHASE_COLORS[Phase.ALIGNMENT]},
    }


def _envelopes(rows: Sequence[Row], theme: Theme) -> Trace:
    found = []
    for index, row in enumerate(rows):
        firsts = [s.first_barrier_ms for s in row.vertex.subtasks if s.first_barrier_ms is not None]
        acks = [s.ack_ms for s in row.vertex.subtasks if s.ack_ms is not None]
        if row.is_vertex and firsts and acks and max(acks) > min(firsts):
            found.append((index, min(firsts), max(acks), row))
    return {
        "type": "bar",
        "orientation": "h",
        "name": "envelope",
        "y": [index for index, *_ in found],
        "base": [start for _, start, _, _ in found],
        "x": [end - start for _, start, end, _ in found],
        "width": 0.94,
        "hoverinfo": "skip",
        "marker": {"color": theme.unknown, "opacity": 0.35},
    }


def _pending(rows: Sequence[Row], theme: Theme, end_ms: float) -> list[Trace]:
    found = []
    for index, row in enumerate(rows):
        s = row.subtask
        if s is not None and not s.is_acknowledged:
            found.append((index, float(s.first_barrier_ms or 0), row))
    if not found:
        return []
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": "not acknowledged",
            "y": [index for index, *_ in found],
            "base": [start for _, start, _ in found],
            "x": [max(0.0, end_ms - start) for _, start, _ in found],
            "width": 0.5,
            "hoverinfo": "skip",
            "marker": {
                "color": "rgba(0,0,0,0)",
                "line": {"color": theme.unknown, "width": 1},
                "pattern": {"shape": "/", "size": 6, "solidity": 0.25, "fgcolor": theme.unknown},
            },
        }
    ]


def _barriers(rows: Sequence[Row], theme: Theme) -> Trace:
    found = []
    for index, row in enumerate(rows):
        s = row.subtask
        if s is not None and s.first_barrier_ms is not None and s.first_barrier_resolution_ms is not None:
            found.append((index, s.first_barrier_ms, s.first_barrier_resolution_ms, row))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "first barrier (gauge)",
        "x": [at for _, at, _, _ in found],
        "y": [index for index, *_ in found],
        "hoverinfo": "skip",
        "marker": {"symbol": "triangle-left", "size": 9, "color": theme.text},
    }


def _path(checkpoint: CheckpointDetailOut, rows: Sequence[Row], theme: Theme) -> list[Trace]:
    if checkpoint.critical_path is None or not checkpoint.critical_path.steps:
        return []
    at: dict[tuple[str, int], int] = {}
    for index, row in enumerate(rows):
        if row.subtask is not None:
            at[(row.vertex.vertex_id, row.subtask.subtask)] = index
    xs: list[float | None] = []
    ys: list[float | None] = []
    for step in checkpoint.critical_path.steps:
        y = at.get((step.vertex_id, step.subtask))
        if y is not None:
            xs += [step.start_ms, step.end_ms]
            ys += [y + 0.42, y + 0.42]
    line = {"color": theme.path, "width": 2}
    marker = {"symbol": "diamond", "size": 8, "color": theme.path}
    common: Trace = {"type": "scatter", "name": "critical path", "hoverinfo": "skip"}
    end = [{**common, "mode": "markers", "x": [xs[-1]], "y": [ys[-1]], "marker": marker}] if xs else []
    return [{**common, "mode": "lines", "x": xs, "y": ys, "line": line}, *end]


# --- around the bars ----------------------------------------------------------------------------------------------


def _end(checkpoint: CheckpointDetailOut, rows: Sequence[Row], elapsed_ms: int | None) -> float:
    ends: list[float] = [1.0, float(checkpoint.end_to_end_duration_ms or 0), float(elapsed_ms or 0)]
    for vertex in checkpoint.vertices:
        for s in vertex.subtasks:
            ends += [float(v) for v in (s.ack_ms, s.async_end_ms, s.first_barrier_ms) if v is not None]
            if not s.is_acknowledged and s.first_barrier_ms is not None and elapsed_ms is None:
                # Room after a late barrier for the hatching that says "never acknowledged".
                ends.append(1.05 * s.first_barrier_ms)
    return max(ends)


def _marks(
    checkpoint: CheckpointDetailOut, end_ms: float, theme: Theme, *, shift_px: int
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    shapes, notes = [], []
    marks: list[tuple[float | None, str, str]] = [
        (checkpoint.aligned_timeout_ms or None, "aligned timeout", theme.muted)
    ]
    if checkpoint.status is CheckpointStatus.FAILED:
        reason = checkpoint.failure_reason.value if checkpoint.failure_reason else "failed"
        marks.append((checkpoint.end_to_end_duration_ms, reason, UNALIGNED))
    else:
        marks.append((checkpoint.timeout_ms, "timeout", UNALIGNED))
    for at_ms, word, color in marks:
        if at_ms is None or at_ms > end_ms * 1.02:
            continue
        shapes.append(
            {
                "type": "line", "x0": at_ms, "x1": at_ms, "yref": "paper", "y0": 0, "y1": 1,
                "line": {"color": color, "width": 1.5, "dash": "dash"},
            }
        )  # fmt: skip
        anchor = "right" if at_ms > end_ms * 0.85 else "left"
        notes.append(
            note(
                theme, f"{word} {text.duration(at_ms)}", at_ms, 1, yref="paper", yanchor="bottom", xanchor=anchor,
                font={"size": 11, "color": color}, yshift=shift_px,
            )
        )  # fmt: skip
    return shapes, notes


def _bands(rows: Sequence[Row], theme: Theme) -> list[dict[str, object]]:
    return [
        {
            "type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": index - 0.5, "y1": index + 0.5,
            "fillcolor": theme.grid, "opacity": 0.45, "line": {"width": 0}, "layer": "below",
        }
        for index, row in enumerate(rows)
        if row.is_vertex and len(rows) > len({r.vertex.vertex_id for r in rows})
    ]  # fmt: skip


def _skews(rows: Sequence[Row], theme: Theme) -> list[dict[str, object]]:
    return [
        note(
            theme, "clock skew", 1, index, xref="paper", xanchor="right", bordercolor=UNALIGNED, borderpad=1,
            bgcolor=theme.surface, font={"size": 10, "color": theme.text},
        )
        for index, row in enumerate(rows)
        if row.subtask is not None and row.subtask.has_clock_skew
    ]  # fmt: skip


def _custom(row: Row) -> list[object]:
    return [row.vertex.vertex_id, None if row.subtask is None else row.subtask.subtask]


def _hover(row: Row) -> str:
    s = row.subtask
    if s is None:
        return f"<b>{text.plain(row.vertex.vertex)}</b>"
    which = "subtask"
    if row.is_vertex:
        which = "on the critical path: subtask" if row.is_critical else "slowest: subtask"
    lines = [
        f"<b>{text.plain(row.vertex.vertex)}</b>",
        f"{which} {s.subtask}" + (f" on {text.plain(s.host)}" if s.host else ""),
    ]
    if s.first_barrier_ms is not None:
        basis = s.first_barrier_basis.value if s.first_barrier_basis else "measured"
        width = (
            f" ± {text.duration(s.first_barrier_resolution_ms)}" if s.first_barrier_resolution_ms is not None else ""
        )
        lines.append(f"first barrier at {text.duration(s.first_barrier_ms)}{width} ({basis})")
    else:
        lines.append("first barrier not reported")
    if not s.is_acknowledged:
        return "<br>".join([*lines, "has not acknowledged"])
    lines += [
        f"alignment {text.duration(s.alignment_duration_ms)} (measured)",
        f"snapshot from {text.duration(s.snapshot_at_ms)} (reconstructed)",
        f"sync {text.duration(s.sync_duration_ms)}, async {text.duration(s.async_duration_ms)} (measured)",
        f"acknowledged at {text.duration(s.ack_ms)} (measured)",
        f"persisted in-flight {text.size(s.persisted_bytes)}, state {text.size(s.checkpointed_size_bytes)}",
    ]
    if s.has_clock_skew:
        lines.append("clock skew: the clocks of JobManager and TaskManager differ")
    return "<br>".join(lines)


def _summary(checkpoint: CheckpointDetailOut) -> str:
    parts = []
    for vertex in checkpoint.vertices:
        acks = [s.ack_ms for s in vertex.subtasks if s.ack_ms is not None]
        slowest = f", slowest subtask {vertex.slowest_subtask}" if vertex.slowest_subtask is not None else ""
        parts.append(
            f"{vertex.vertex}: {vertex.acknowledged_count} of {vertex.subtask_count} acknowledged, the last "
            f"after {text.duration(max(acks, default=None))}{slowest}"
        )
    path = checkpoint.critical_path
    steps = path.steps if path is not None else []
    said = ", then ".join(
        f"{s.vertex} subtask {s.subtask} {PHASE_WORDS[s.phase]} {text.duration(s.end_ms - s.start_ms)} "
        f"({s.basis.value})"
        for s in steps
    )
    end = f" Critical path: {said}." if said else ""
    return "Phases since the trigger. " + "; ".join(parts) + "." + end


def _table(checkpoint: CheckpointDetailOut) -> Table:
    rows = tuple(
        (
            vertex.vertex, s.subtask, s.host, "yes" if s.is_acknowledged else "no", s.first_barrier_ms,
            s.first_barrier_basis.value if s.first_barrier_basis else None, s.start_delay_ms, s.alignment_duration_ms,
            s.sync_duration_ms, s.async_duration_ms, s.ack_ms, s.snapshot_at_ms, s.ack_wait_ms,
            None if s.is_unaligned is None else ("yes" if s.is_unaligned else "no"),
            "yes" if s.has_clock_skew else "no", s.checkpointed_size_bytes, s.full_state_size_bytes,
            s.processed_bytes, s.persisted_bytes,
        )
        for vertex in checkpoint.vertices
        for s in vertex.subtasks
    )  # fmt: skip
    return Table(_COLUMNS, rows)
