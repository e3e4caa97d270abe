"""Draws the backpressure of a job: for each vertex, the mean shares of busy, backpressured and idle time.

The mean is over the subtasks that reported. If no subtask of a vertex reported, the vertex has no bar.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend.contracts.backpressure import BackpressureOut, PressurePointOut, VertexPressureOut
from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, axis, empty, labels_above, layout
from dashboard.palette import IN_TRANSIT, Theme

_ROW_PX = 34
_NARROW_ROW_PX = 46
_COLUMNS = (
    "vertex",
    "subtask",
    "busy (ratio)",
    "backpressured (ratio)",
    "idle (ratio)",
    "output pool usage (ratio)",
    "input pool usage (ratio)",
    "queued input (bytes)",
    "queued output (bytes)",
    "records in (count)",
    "records/s",
    "basis of records/s",
    "observed at (UTC)",
)
# A smaller part of a bar has no room for the words.
_NOT_REPORTED_MIN_RATIO = 0.4
_SERIES_COLUMNS = (
    "vertex",
    "observed at (UTC)",
    "busy (ratio)",
    "backpressured (ratio)",
    "idle (ratio)",
    "queued (bytes)",
)


def backpressure(reading: BackpressureOut, *, theme: Theme, is_narrow: bool = False) -> Chart:
    """Draw the latest readings as stacked bars. The first vertex of the topology is at the top.

    In a narrow window, the names stand above the bars.
    """
    vertices = reading.vertices
    if not vertices:
        return empty(theme, "No backpressure reading yet.")
    names = [text.plain(text.short(v.vertex, 26)) for v in vertices]
    rows = list(range(len(vertices)))
    parts = (
        ("busy", theme.busy, [mean(v.busy_ratio) for v in vertices], ""),
        ("backpressured", IN_TRANSIT, [mean(v.backpressured_ratio) for v in vertices], "/"),
        ("idle", theme.idle, [mean(v.idle_ratio) for v in vertices], ""),
    )
    row_px = _NARROW_ROW_PX if is_narrow else _ROW_PX
    gap = 0.55 if is_narrow else 0.35
    above = labels_above(theme, names, font_px=12, thickness_px=row_px * (1 - gap)) if is_narrow else []
    height_px = max(120, 48 + row_px * len(vertices))
    figure = {
        "data": [
            *(_part(word, color, values, rows, vertices, theme, pattern) for word, color, values, pattern in parts),
            *_not_reported(parts[0][2], parts[1][2], parts[2][2], rows, vertices, theme),
        ],
        "layout": layout(
            theme,
            height_px=height_px,
            revision="backpressure",
            barmode="stack",
            bargap=gap,
            margin={"l": 20 if is_narrow else _labels_px(names), "r": 18, "t": 18 if is_narrow else 4, "b": 30},
            xaxis=axis(theme, range=[0, 1.0], tickformat=".0%"),
            yaxis=axis(
                theme, tickvals=rows, ticktext=names, autorange="reversed",
                tickfont={"size": 12, "color": theme.text}, showgrid=False,
                showticklabels=not is_narrow,
            ),
            annotations=above,
        ),
    }  # fmt: skip
    return Chart(figure, _table(vertices), _summary(vertices), height_px)


def _labels_px(names: Sequence[str]) -> int:
    """Return about the width of the longest name. The margin grows if the name is wider."""
    return 10 + round(5.6 * max(map(len, names), default=0))


def along(reading: BackpressureOut, *, theme: Theme, is_narrow: bool = False) -> Chart:
    """Draw the bars of ``backpressure``, but with means over all readings of a range. The table lists every reading."""
    means = [_mean_of(v, [p for p in reading.series if p.vertex_id == v.vertex_id]) for v in reading.vertices]
    if not reading.series or not means:
        return empty(theme, "There are no backpressure readings for that time.")
    chart = backpressure(reading.model_copy(update={"vertices": means}), theme=theme, is_narrow=is_narrow)
    names = {v.vertex_id: v.vertex for v in reading.vertices}
    rows = tuple(
        (
            names.get(p.vertex_id, p.vertex_id), p.at.isoformat(), _round(p.busy_ratio),
            _round(p.backpressured_ratio), _round(p.idle_ratio), p.queued_bytes,
        )
        for p in reading.series
    )  # fmt: skip
    summary = f"Mean over the readings of the range. {chart.summary}"
    return Chart(chart.figure, Table(_SERIES_COLUMNS, rows), summary, chart.height_px)


def _mean_of(vertex: VertexPressureOut, points: Sequence[PressurePointOut]) -> VertexPressureOut:
    means = {
        "busy_ratio": [mean([p.busy_ratio for p in points])],
        "backpressured_ratio": [mean([p.backpressured_ratio for p in points])],
        "idle_ratio": [mean([p.idle_ratio for p in points])],
    }
    return vertex.model_copy(update=means)


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None if there is no such value."""
    there = [v for v in values if v is not None]
    return sum(there) / len(there) if there else None


def _part(
    word: str,
    color: str,
    values: Sequence[float | None],
    rows: Sequence[int],
    vertices: Sequence[VertexPressureOut],
    theme: Theme,
    pattern: str,
) -> Trace:
    marker: dict[str, object] = {"color": color, "line": {"color": theme.outline, "width": 0.5}}
    if pattern:
        marker["pattern"] = {
            "shape": pattern,
            "size": 7,
            "solidity": 0.12,
            "fgcolor": theme.outline,
            "bgcolor": color,
        }
    return {
        "type": "bar",
        "orientation": "h",
        "name": word,
        "y": list(rows),
        "x": list(values),
        "marker": marker,
        "hovertext": [
            f"<b>{text.plain(v.vertex)}</b><br>{_said(word, value, v)}"
            f"{f' (mean of {len(v.busy_ratio)} subtasks)' if len(v.busy_ratio) > 1 else ''}"
            for v, value in zip(vertices, values, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "textposition": "inside",
        "insidetextanchor": "middle",
        "text": [_in_bar(word, value, v) for v, value in zip(vertices, values, strict=True)],
        "textfont": {"size": 11, "color": _text_on(word, theme)},
        "constraintext": "none",
    }


def _in_bar(word: str, value: float | None, vertex: VertexPressureOut) -> str:
    """Return the text in a bar: its share and, if the rest has no room for it, that no busy time is reported."""
    if value is None or value < 0.12:
        return ""
    busy = _busy(vertex)
    is_told_here = word == "backpressured" and "not reported" in busy and value > 1 - _NOT_REPORTED_MIN_RATIO
    return f"{text.percent(value)} · {busy}" if is_told_here else text.percent(value)


def _busy(vertex: VertexPressureOut) -> str:
    busy, held, idle = (mean(v) for v in (vertex.busy_ratio, vertex.backpressured_ratio, vertex.idle_ratio))
    return text.busy(busy, held, idle, is_source=vertex.is_source)


def _said(word: str, value: float | None, vertex: VertexPressureOut) -> str:
    busy = _busy(vertex)
    if word == "busy" or "not reported" not in busy:
        return busy if word == "busy" else f"{word} {text.percent(value)}"
    return f"{word} {text.percent(value)}, {busy}"


def _not_reported(
    busy: Sequence[float | None],
    held: Sequence[float | None],
    idle: Sequence[float | None],
    rows: Sequence[int],
    vertices: Sequence[VertexPressureOut],
    theme: Theme,
) -> list[Trace]:
    """Fill the time of which the engine does not say whether a vertex was busy, and say so in it if there is room."""
    bars = [
        (row, max(0.0, 1 - (h or 0.0) - (i or 0.0)), _busy(v))
        for row, b, h, i, v in zip(rows, busy, held, idle, vertices, strict=True)
        if b is None and (h is not None or i is not None)
    ]
    if not bars:
        return []
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": "busy time not reported",
            "y": [row for row, _, _ in bars],
            "x": [left for _, left, _ in bars],
            "marker": {"color": "rgba(0,0,0,0)", "line": {"color": theme.unknown, "width": 1}},
            "hovertext": [f"<b>{text.plain(vertices[row].vertex)}</b><br>{said}" for row, _, said in bars],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "textposition": "inside",
            "insidetextanchor": "middle",
            "text": [said if left >= _NOT_REPORTED_MIN_RATIO else "" for _, left, said in bars],
            "textfont": {"size": 11, "color": theme.text},
            "constraintext": "inside",
        }
    ]


def _text_on(word: str, theme: Theme) -> str:
    if word == "backpressured":
        return "#1b2330"
    if word == "busy":
        return "#ffffff" if theme.name == "light" else "#10151d"
    return theme.text


def _summary(vertices: Sequence[VertexPressureOut]) -> str:
    said = [
        f"{v.vertex}: {_busy(v)}, "
        f"backpressured {text.percent(mean(v.backpressured_ratio))}, "
        f"idle {text.percent(mean(v.idle_ratio))}"
        for v in vertices
    ]
    return "Mean over subtasks. " + "; ".join(said) + "."


def _table(vertices: Sequence[VertexPressureOut]) -> Table:
    rows = []
    for v in vertices:
        arrays: tuple[Sequence[float | int | None], ...] = (
            v.busy_ratio, v.backpressured_ratio, v.idle_ratio, v.out_pool_usage_ratio, v.in_pool_usage_ratio,
            v.queued_in_bytes, v.queued_out_bytes, v.records_in_count, v.records_per_s,
        )  # fmt: skip
        for i in range(max(len(a) for a in arrays)):
            values = tuple(_round(a[i]) if i < len(a) else None for a in arrays)
            has_rate = i < len(v.records_per_s) and v.records_per_s[i] is not None
            basis = v.records_per_s_basis.value if has_rate and v.records_per_s_basis is not None else None
            rows.append((v.vertex, i, *values, basis, v.observed_at.isoformat()))
    return Table(_COLUMNS, tuple(rows))


def _round(value: float | int | None) -> float | int | None:
    return round(value, 3) if isinstance(value, float) else value
