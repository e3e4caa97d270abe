"""Draws the checkpoints of a long range as one value for each step: median, p95 and maximum, and the failures."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta, tzinfo

from backend.contracts.history import HistoryOut, HistoryPointOut
from dashboard import text
from dashboard.figures.base import Cell, Table, Trace
from dashboard.palette import ALIGNED, FAILED, IN_TRANSIT, Theme
from dashboard.span import epoch_ms

_LINES = (
    ("median", "duration_p50_ms", ALIGNED, "solid"),
    ("p95", "duration_p95_ms", IN_TRANSIT, "dash"),
    ("longest", "duration_max_ms", None, "dot"),
)
_COLUMNS = (
    "start of the step (UTC)",
    "length (h)",
    "source",
    "completed",
    "failed",
    "duration p50 (ms)",
    "duration p95 (ms)",
    "duration max (ms)",
)
_SOURCES = {
    "rollup": "from rollups",
    "checkpoints": "computed from its checkpoints",
    "both": "from rollups and checkpoints",
}


def step_traces(history: HistoryOut, theme: Theme, where: tzinfo) -> list[Trace]:
    """Return the lines and the bars of failures.

    The ``customdata`` of a point is ``[None, None, start in epoch ms, length in ms]``.
    """
    points = sorted(history.points, key=lambda p: p.at)
    step = timedelta(seconds=history.step_s or 3600)
    return [
        _failures(points, step, where),
        *(_line(points, step, name, field, color, dash, theme, where) for name, field, color, dash in _LINES),
    ]


def longest_ms(history: HistoryOut) -> float:
    """Return the longest duration that is drawn, or 1 if there is none."""
    return float(max((p.duration_max_ms for p in history.points if p.duration_max_ms), default=1))


def failed_max(history: HistoryOut) -> int:
    """Return the largest number of failures in a step."""
    return max((p.failed_count for p in history.points), default=0)


def _line(
    points: Sequence[HistoryPointOut],
    step: timedelta,
    name: str,
    field: str,
    own_color: str | None,
    dash: str,
    theme: Theme,
    where: tzinfo,
) -> Trace:
    color = own_color or theme.muted
    x: list[str] = []
    y: list[float | None] = []
    keys: list[list[int | None]] = []
    hover: list[str] = []
    before: HistoryPointOut | None = None
    for point in points:
        if before is not None and point.at - before.at > step:
            # A step without checkpoints is a gap in the line.
            x.append(text.axis_instant(before.at + step, where))
            y.append(None)
            keys.append([None, None, epoch_ms(before.at), _ms(step)])
            hover.append("")
        x.append(text.axis_instant(point.at, where))
        y.append(getattr(point, field))
        keys.append([None, None, epoch_ms(point.at), _ms(step)])
        hover.append(_hover(point, step, where))
        before = point
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": x,
        "y": y,
        "connectgaps": False,
        "customdata": keys,
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "line": {"color": color, "width": 1.5, "dash": dash},
        "marker": {"color": color, "size": 4 if len(points) < 200 else 2.5, "line": {"width": 0}, "opacity": 1},
    }


def _failures(points: Sequence[HistoryPointOut], step: timedelta, where: tzinfo) -> Trace:
    return {
        "type": "bar",
        "name": "failed",
        "yaxis": "y2",
        "x": [text.axis_instant(p.at, where) for p in points],
        "y": [p.failed_count for p in points],
        "width": 0.8 * _ms(step),
        "customdata": [[None, None, epoch_ms(p.at), _ms(step)] for p in points],
        "hovertext": [_hover(p, step, where) for p in points],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": FAILED, "opacity": 0.35, "line": {"width": 0}},
    }


def _ms(step: timedelta) -> int:
    return round(step.total_seconds() * 1000)


def _hover(point: HistoryPointOut, step: timedelta, where: tzinfo) -> str:
    lines = [
        f"<b>{text.instant(point.at, where)}</b>, {text.duration(_ms(step))} ({_SOURCES[point.source]})",
        f"{point.completed_count} completed, {point.failed_count} failed",
        ", ".join(f"{name} {_duration(point, field)}" for name, field, _, _ in _LINES),
        text.instant_utc(point.at),
    ]
    return "<br>".join(lines)


def _is_bound(point: HistoryPointOut, field: str) -> bool:
    return {
        "duration_p50_ms": point.is_p50_lower_bound,
        "duration_p95_ms": point.is_p95_lower_bound,
        "duration_max_ms": point.is_max_lower_bound,
    }[field]


def _duration(point: HistoryPointOut, field: str) -> str:
    # The hover text of a figure is markup.
    return text.plain(text.bounded(text.duration(getattr(point, field)), is_lower_bound=_is_bound(point, field)))


def _cell(point: HistoryPointOut, field: str) -> Cell:
    """Return a duration for the table. One that is only a lower bound is text that says so."""
    value: float | None = getattr(point, field)
    return f"> {value:.15g}" if value is not None and _is_bound(point, field) else value


def step_summary(history: HistoryOut) -> str:
    """Return the sentence for screen readers."""
    completed = sum(p.completed_count for p in history.points)
    failed = sum(p.failed_count for p in history.points)
    slowest = max(history.points, key=lambda p: p.duration_p95_ms or 0.0, default=None)
    said = f"{len(history.points)} steps with checkpoints: {completed} completed, {failed} failed"
    if slowest is None or slowest.duration_p95_ms is None:
        return f"{said}."
    return (
        f"{said}; the slowest step began {text.instant_utc(slowest.at)} with a 95th percentile of "
        f"{text.bounded(text.duration(slowest.duration_p95_ms), is_lower_bound=slowest.is_p95_lower_bound)}."
    )


def step_table(history: HistoryOut) -> Table:
    """Return the rows, newest first."""
    rows: list[tuple[Cell, ...]] = [
        (
            p.at.isoformat(), (history.step_s or 0) // 3600, _SOURCES[p.source], p.completed_count, p.failed_count,
            *(_cell(p, field) for _, field, _, _ in _LINES),
        )
        for p in history.points
    ]  # fmt: skip
    return Table(_COLUMNS, tuple(rows))
