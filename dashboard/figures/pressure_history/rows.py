"""Draws the row of each vertex: its busy, back-pressured and idle time, and the maxima of its subtasks.

All rows share one y axis: the row of vertex ``i`` of ``n`` begins at ``n - 1 - i`` and is ``FULL`` high. So the number
of traces does not depend on the number of vertices.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend.contracts.pressure_history import VertexHistoryOut
from dashboard import text
from dashboard.figures.base import Trace, note
from dashboard.figures.pressure_history.cells import Cells
from dashboard.palette import IN_TRANSIT, Theme

FULL = 0.84
"""The part of a row that stands for 100 % of the time."""
_NAME_MAX = 20

Path = tuple[list[float | None], list[float | None]]


def row_base(index: int, count: int) -> int:
    """Return the y position of the lower edge of a row. The first vertex is at the top."""
    return count - 1 - index


def areas(vertices: Sequence[VertexHistoryOut], cells: Cells, theme: Theme) -> list[Trace]:
    """Return the stacked areas of all rows: idle on top of back-pressured on top of busy time."""
    paths: dict[str, Path] = {name: ([], []) for name in ("idle", "backpressured", "busy")}
    for index, vertex in enumerate(vertices):
        base = row_base(index, len(vertices))
        busy, held, idle = vertex.busy_ratio, vertex.backpressured_ratio, vertex.idle_ratio
        # A source of the older kind never reports its busy time. Its other shares are drawn all the same.
        first_needed = busy if any(b is not None for b in busy) else idle
        is_read = [b is not None and h is not None for b, h in zip(first_needed, held, strict=True)]
        for run in cells.runs(is_read):
            first = [busy[i] or 0.0 for i in run]
            second = [min(1.0, (busy[i] or 0.0) + (held[i] or 0.0)) for i in run]
            third = [min(1.0, top + (idle[i] or 0.0)) for i, top in zip(run, second, strict=True)]
            for name, tops in (("busy", first), ("backpressured", second), ("idle", third)):
                _outline(paths[name], [cells.begins[i] for i in run], cells.ends[run[-1]], base, tops, cells, run)
    colors = {"idle": theme.idle, "backpressured": IN_TRANSIT, "busy": theme.busy}
    return [
        {
            "type": "scatter", "mode": "lines", "fill": "toself", "name": name, "x": x, "y": y, "hoverinfo": "skip",
            "fillcolor": colors[name], "line": {"width": 0},
        }
        for name, (x, y) in paths.items()
    ]  # fmt: skip


def _outline(
    path: Path, begins: Sequence[int], end: int, base: float, tops: Sequence[float], cells: Cells, run: range
) -> None:
    """Add the outline of one area: along the tops of its buckets, and back along its base."""
    middles = [(cells.begins[i] + cells.ends[i]) // 2 for i in run]
    heights = [round(base + FULL * top, 3) for top in tops]
    path[0].extend([begins[0], begins[0], *middles, end, end, begins[0], None])
    path[1].extend([base, heights[0], *heights, heights[-1], base, base, None])


def maxima(vertices: Sequence[VertexHistoryOut], cells: Cells, theme: Theme) -> list[Trace]:
    """Return the lines of the busiest and of the most back-pressured subtask of each vertex.

    A vertex with one subtask has no such lines, because they would repeat the mean.
    """
    return [
        _line("busiest subtask", [v.busy_max_ratio for v in vertices], vertices, cells, theme.path, "solid"),
        _line(
            "most backpressured subtask",
            [v.backpressured_max_ratio for v in vertices],
            vertices,
            cells,
            theme.path,
            "dot",
        ),
    ]


def _line(
    name: str,
    values: Sequence[Sequence[float | None]],
    vertices: Sequence[VertexHistoryOut],
    cells: Cells,
    color: str,
    dash: str,
) -> Trace:
    x: list[float | None] = []
    y: list[float | None] = []
    for index, (vertex, row) in enumerate(zip(vertices, values, strict=True)):
        if vertex.parallelism < 2:
            continue
        base = row_base(index, len(vertices))
        for run in cells.runs([v is not None for v in row]):
            heights = [round(base + FULL * (row[i] or 0.0), 3) for i in run]
            x.extend([cells.begins[run[0]], *(cells.middles[i] for i in run), cells.ends[run[-1]], None])
            y.extend([heights[0], *heights, heights[-1], None])
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "hoverinfo": "skip",
        "line": {"color": color, "width": 1.2, "dash": dash},
    }  # fmt: skip


def hovers(vertices: Sequence[VertexHistoryOut], cells: Cells) -> list[Trace]:
    """Return an invisible line through the middle of each row, which shows the row's values under the pointer.

    The ``customdata`` of a point begins with the id of the vertex.
    """
    traces: list[Trace] = []
    for index, v in enumerate(vertices):
        columns = (v.backpressured_ratio, v.backpressured_max_ratio, v.idle_ratio)
        shown = [
            [
                v.vertex_id,
                _busy(v, i),
                *(text.percent(c[i]) for c in columns),
                text.size(v.queued_max_bytes[i]),
                _consumed(v, i),
            ]
            for i in range(len(v.busy_ratio))
        ]
        subtasks = "its only subtask" if v.parallelism == 1 else f"{v.parallelism} subtasks"
        traces.append(
            {
                "type": "scatter", "mode": "lines", "name": "", "showlegend": False,
                "x": cells.middles, "y": [row_base(index, len(vertices)) + FULL / 2] * len(shown),
                "line": {"width": 0, "color": "rgba(0,0,0,0)"}, "customdata": shown,
                "hovertemplate": (
                    f"<b>{text.plain(v.vertex)}</b>, {subtasks}<br>%{{x|%Y-%m-%d %H:%M:%S}}<br>"
                    "%{customdata[1]}<br>"
                    "backpressured %{customdata[2]}, most backpressured subtask %{customdata[3]}<br>"
                    "idle %{customdata[4]}<br>buffered at most %{customdata[5]}%{customdata[6]}<extra></extra>"
                ),
            }
        )  # fmt: skip
    return traces


def _busy(vertex: VertexHistoryOut, bucket: int) -> str:
    busy, held, idle = (v[bucket] for v in (vertex.busy_ratio, vertex.backpressured_ratio, vertex.idle_ratio))
    said = text.busy(busy, held, idle, is_source=vertex.is_source)
    most = vertex.busy_max_ratio[bucket]
    return said if most is None else f"{said}, busiest subtask {text.percent(most)}"


def _consumed(vertex: VertexHistoryOut, bucket: int) -> str:
    seconds = vertex.time_to_consume_s[bucket]
    # A source has no input, so nothing is missing there.
    return "" if seconds is None else f"<br>read in about {text.duration(1000 * seconds)} (reconstructed)"


def labels(
    vertices: Sequence[VertexHistoryOut], opened: str | None, theme: Theme, *, is_narrow: bool
) -> list[dict[str, object]]:
    """Return the name of each row: beside it or, in a narrow window, above it."""
    texts = []
    for index, v in enumerate(vertices):
        base = row_base(index, len(vertices))
        name = text.plain(text.short(v.vertex, 40 if is_narrow else _NAME_MAX))
        shown = f"<b>{name}</b>" if v.vertex_id == opened else name
        more: dict[str, object] = {"xref": "paper", "font": {"size": 11, "color": theme.text}, "borderpad": 0}
        if is_narrow:
            more |= {"xanchor": "left", "yanchor": "bottom"}
            texts.append(note(theme, shown, 0, base + FULL, **more))
        else:
            more |= {"xanchor": "right", "yanchor": "middle", "xshift": -8, "hovertext": text.plain(v.vertex)}
            texts.append(note(theme, shown, 0, base + FULL / 2, **more))
    return texts


def frames(vertices: Sequence[VertexHistoryOut], opened: str | None, theme: Theme) -> list[dict[str, object]]:
    """Return a thin frame around each row, so that a gap is visible as an empty part of it."""
    return [
        {
            "type": "rect", "xref": "paper", "x0": 0, "x1": 1, "layer": "below",
            "y0": row_base(index, len(vertices)), "y1": row_base(index, len(vertices)) + FULL,
            "line": {"width": 1, "color": theme.text if v.vertex_id == opened else theme.grid},
        }
        for index, v in enumerate(vertices)
    ]  # fmt: skip
