"""V7: draws the backpressure of a job over time, above its checkpoints, so that cause and effect line up.

From the top: one row for each vertex with its busy, back-pressured and idle time, and the maxima of its subtasks; the
subtasks of the opened vertex; the buffered bytes; the checkpoints. All share one time axis. A time without readings is
a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

from backend.contracts.api import CheckpointOut
from backend.contracts.pressure_history import PressureHistoryOut, VertexHistoryOut
from dashboard import text
from dashboard.figures.base import Chart, Trace, axis, empty, layout, note, ticks_ms
from dashboard.figures.pressure_history import below, rows, words
from dashboard.figures.pressure_history.cells import Cells, axis_ms, cells_of
from dashboard.palette import Theme

HEIGHT_PX = 560
_TOP_PX, _BOTTOM_PX = 8, 44
_GAP_PX = 30
_QUEUE_PX = 76
_CHECKPOINTS_PX = 92
_SUBTASKS_PX = (56, 260)
_MARGIN_PX = 150
_NARROW_MARGIN_PX = 52


@dataclass(frozen=True, slots=True)
class View:
    """How the viewer wants to see the history: theme, time zone, width of the window, and the opened vertex."""

    theme: Theme
    where: tzinfo
    is_narrow: bool = False
    opened: str | None = None
    debloat_target_ms: int | None = None
    """The target of buffer debloating now; None if debloating is off or not reported."""


@dataclass(frozen=True, slots=True)
class _Panel:
    """A part of the figure with a y axis of its own, and its place in pixels from the bottom of the plot."""

    name: str
    bottom_px: int
    height_px: int

    def domain(self, plot_px: int) -> list[float]:
        return [self.bottom_px / plot_px, (self.bottom_px + self.height_px) / plot_px]


def pressure_history(
    history: PressureHistoryOut, checkpoints: Sequence[CheckpointOut], view: View, *, revision: str = ""
) -> Chart:
    """Draw a history and the checkpoints that began in its range.

    The first value in the ``customdata`` of a point is the id of a vertex. The ``customdata`` of a checkpoint is
    ``[None, run id, checkpoint id]``.
    """
    theme = view.theme
    if not history.buckets:
        return empty(theme, "There are no backpressure readings in this time.", height_px=HEIGHT_PX)
    cells = cells_of(history, view.where)
    opened = next((v for v in history.vertices if v.vertex_id == view.opened), None)
    panels = _panels(history, opened, is_narrow=view.is_narrow)
    plot_px = panels["rows"].bottom_px + panels["rows"].height_px
    height_px = plot_px + _TOP_PX + _BOTTOM_PX
    traces = [
        *rows.areas(history.vertices, cells, theme),
        *rows.maxima(history.vertices, cells, theme),
        *rows.hovers(history.vertices, cells),
    ]
    axes, more, titles = _below(history, checkpoints, opened, cells, panels, plot_px, view)
    ends = [axis_ms(at, view.where) for at in (history.since, history.until)]
    figure = {
        "data": [*traces, *more],
        "layout": layout(
            theme,
            height_px=height_px,
            revision=f"{revision} {history.since} {view.opened}" if view.opened else f"{revision} {history.since}",
            margin={"l": _NARROW_MARGIN_PX if view.is_narrow else _MARGIN_PX, "r": 16, "t": _TOP_PX, "b": _BOTTOM_PX},
            xaxis=axis(
                theme, None if view.is_narrow else f"time ({view.where})", type="date", range=ends, automargin=False,
                anchor="y4", showspikes=True, spikemode="across", spikesnap="cursor", spikethickness=1,
                spikecolor=theme.muted, spikedash="dot",
            ),
            yaxis=axis(
                theme, range=[-0.06, len(history.vertices)], domain=panels["rows"].domain(plot_px), fixedrange=True,
                showticklabels=False, showgrid=False, automargin=False,
            ),
            **axes,
            shapes=rows.frames(history.vertices, view.opened, theme),
            annotations=[*rows.labels(history.vertices, view.opened, theme, is_narrow=view.is_narrow), *titles],
            hovermode="closest",
            hoverdistance=60,
            barmode="overlay",
            dragmode="zoom",
        ),
    }  # fmt: skip
    return Chart(figure, words.table(history, opened), words.summary(history, checkpoints), height_px)


def _panels(history: PressureHistoryOut, opened: VertexHistoryOut | None, *, is_narrow: bool) -> dict[str, _Panel]:
    count = len(history.vertices)
    row_px = 72 if count <= 6 else 54 if count <= 14 else 38
    if is_narrow:
        # The name of a row is above it.
        row_px = max(row_px, 88)
    sizes = [("checkpoints", _CHECKPOINTS_PX)]
    if any(q is not None for v in history.vertices for q in v.queued_bytes):
        sizes.append(("queue", _QUEUE_PX))
    if opened is not None and history.subtasks is not None:
        low, high = _SUBTASKS_PX
        sizes.append(("subtasks", min(high, max(low, 14 * len(history.subtasks.values)))))
    sizes.append(("rows", row_px * count))
    panels: dict[str, _Panel] = {}
    bottom = 0
    for name, size in sizes:
        panels[name] = _Panel(name, bottom, size)
        bottom += size + _GAP_PX
    return panels


def _with_times(which: str, opened: VertexHistoryOut | None, view: View) -> str:
    """Append the time in which the opened vertex would read its queue, and the target of buffer debloating."""
    target = None if view.debloat_target_ms is None else text.duration(view.debloat_target_ms)
    if view.is_narrow:
        # In a narrow window, the whole sentence would be cut off.
        return which if target is None else f"debloated to {target}"
    said = []
    if opened is not None and opened.time_to_consume_s[-1] is not None:
        said.append(f"read in about {text.duration(1000 * opened.time_to_consume_s[-1])}, reconstructed")
    if target is not None:
        said.append(f"debloating target now {target}")
    return f"{which} ({'; '.join(said)})" if said else which


def _below(
    history: PressureHistoryOut,
    checkpoints: Sequence[CheckpointOut],
    opened: VertexHistoryOut | None,
    cells: Cells,
    panels: dict[str, _Panel],
    plot_px: int,
    view: View,
) -> tuple[dict[str, object], list[Trace], list[dict[str, object]]]:
    """Return the axes, the traces and the titles of the panels under the rows."""
    theme = view.theme
    axes: dict[str, object] = {}
    traces: list[Trace] = []
    titles: list[dict[str, object]] = []

    def add(name: str, number: int, title: str, *, top: float, found: Sequence[Trace], **more: object) -> None:
        domain = panels[name].domain(plot_px)
        axes[f"yaxis{number}"] = (
            axis(theme, domain=domain, anchor="x", range=[0, top], fixedrange=True, automargin=False) | more
        )
        at = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 3}
        titles.append(note(theme, title, 0, domain[1], **at))
        traces.extend(found)

    if opened is not None and history.subtasks is not None:
        name, count = text.plain(text.short(opened.vertex, 40)), len(history.subtasks.values)
        step = max(1, -(-count // 8))
        at = list(range(0, count, step))
        shown = [below.subtask_cells(opened.vertex, history.subtasks, cells, theme, "y2")]
        what = f"{history.subtasks.measure.value} time"
        if all(v is None for row in history.subtasks.values for v in row) and what == "busy time":
            what = text.busy(None, 0.0, is_source=opened.is_source)
        title = what if view.is_narrow else f"<b>{name}</b>: {what} of each subtask, 0 to 100 %"
        add(
            "subtasks", 2, title, top=1, found=shown, range=[count - 0.5, -0.5], tickvals=at,
            ticktext=[str(i) if view.is_narrow else f"subtask {i}" for i in at], showgrid=False,
        )  # fmt: skip
    if "queue" in panels:
        shown = below.queue_lines(history, opened, cells, theme, "y3")
        top = max((q for line in shown for q in line["y"] if q is not None), default=1)  # type: ignore[attr-defined]
        which = "all vertices" if opened is None else f"all vertices, and {text.plain(text.short(opened.vertex, 30))}"
        which = _with_times(which, opened, view)
        marks = [0.0, top]
        add(
            "queue", 3, f"buffered bytes, mean: {which}", top=max(1.0, top * 1.1), found=shown,
            tickvals=marks, ticktext=[text.size(m) for m in marks],
        )  # fmt: skip
    span_ms = max(1, axis_ms(history.until, view.where) - axis_ms(history.since, view.where))
    shown, top_ms, above = below.checkpoint_bars(checkpoints, history.until, span_ms, theme, view.where, "y4")
    values_ms, labels = ticks_ms(top_ms)
    step = max(1, len(values_ms) // 3)
    title = "checkpoints: duration" + (f"; {above} above" if above else "")
    add(
        "checkpoints", 4, title if checkpoints else "no checkpoint began in this time", top=top_ms, found=shown,
        tickvals=values_ms[::step], ticktext=labels[::step],
    )  # fmt: skip
    return axes, traces, titles
