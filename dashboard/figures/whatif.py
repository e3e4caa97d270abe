"""Draws what-ifs: the durations before and after, and the duration against the persisted data of each what-if."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from backend.contracts.advice import IntervalOut
from backend.contracts.whatif import Measure, PredictionOut, WhatIfOut
from dashboard import text
from dashboard.figures.base import Cell, Chart, Figure, Table, Trace, axis, empty, layout, note, size_ticks, ticks_ms
from dashboard.figures.scaling import spread
from dashboard.palette import ACKED, ALIGNED, CONTRAST, Theme

DURATIONS_HEIGHT_PX = 260
PARETO_HEIGHT_PX = 340
_LOG_MIN_RATIO = 10.0
# An axis over more powers of ten has one tick for each.
_POWERS_MAX = 3
# Labels of points that are nearer than this, as a share of the axis, would lie on each other.
_LABEL_WIDTH_RATIO, _LABEL_HEIGHT_RATIO = 0.12, 0.07
_ROWS = ("measured", "predicted, as it is", "predicted, changed")
_COLUMNS = ("row", "duration (ms)")
_PARETO_COLUMNS = ("what-if", "duration (ms)", "persisted (bytes)", "expire (ratio)", "front")


def name_of(settings: Mapping[str, str]) -> str:
    """Return a what-if in a few words."""
    if not settings:
        return "as it is"
    words = dict(settings)
    mode, timeout = words.pop("mode", None), words.pop("aligned-timeout", None)
    parts = []
    if mode == "aligned-with-timeout" or (mode is None and timeout is not None):
        parts.append(f"timeout {timeout}" if timeout else "with timeout")
    elif mode is not None:
        parts.append(mode)
    return ", ".join([*parts, *(f"{k} {v}" if v != "true" else k.replace("-", " ") for k, v in words.items())])


def _interval_of(prediction: PredictionOut, measure: Measure) -> IntervalOut | None:
    return next((e.predicted for e in prediction.estimates if e.measure is measure), None)


# --- durations ----------------------------------------------------------------------------------------------------


def durations(what_if: WhatIfOut, *, theme: Theme, is_narrow: bool = False) -> Chart:
    """Draw the measured durations, and those that the model predicts for the job as it is and as changed."""
    measured = next((m.values for m in what_if.measured if m.measure is Measure.DURATION), [])
    rows = [
        (_ROWS[0], [v for v in measured if v is not None], None, CONTRAST),
        (_ROWS[1], what_if.current.durations_ms, _interval_of(what_if.current, Measure.DURATION), ALIGNED),
    ]
    if what_if.is_changed:
        rows.append((_ROWS[2], what_if.asked.durations_ms, _interval_of(what_if.asked, Measure.DURATION), ACKED))
    everything = [v for _, points, _, _ in rows for v in points]
    everything += [v for _, _, b, _ in rows if b is not None for v in (b.low, b.high)]
    if not everything:
        return empty(theme, "No duration was measured or predicted.", height_px=DURATIONS_HEIGHT_PX)
    traces: list[Trace] = []
    shapes: list[dict[str, object]] = []
    for row, (name, points, band, color) in enumerate(rows):
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": list(points),
                "y": spread(row, len(points)),
                "marker": {"color": color, "size": 7, "opacity": 0.75},
                "text": [f"{name}: {text.duration(v)}" for v in points],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
        if band is not None:
            place = {"xref": "x", "yref": "y", "layer": "below"}
            ends = {"y0": row - 0.44, "y1": row + 0.44}
            shapes += [
                place | ends | {"type": "rect", "x0": band.low, "x1": band.high, "fillcolor": color,
                                "opacity": 0.2, "line": {"width": 0}},
                place | ends | {"type": "line", "x0": band.value, "x1": band.value,
                                "line": {"color": color, "width": 2}},
            ]  # fmt: skip
    labels = [name.replace(", ", ",<br>") if is_narrow else name for name, *_ in rows]
    figure: Figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=DURATIONS_HEIGHT_PX,
            revision="whatif-durations",
            margin={"l": 90 if is_narrow else 130, "r": 20, "t": 12, "b": 48},
            hovermode="closest",
            shapes=shapes,
            xaxis=time_axis("end-to-end duration", everything, theme),
            yaxis=axis(
                theme, range=[len(rows) - 0.4, -0.6], tickvals=list(range(len(rows))), ticktext=labels, showgrid=False
            ),
        ),
    }
    cells: list[tuple[Cell, ...]] = [(name, v) for name, points, _, _ in rows for v in points]
    said = [
        f"{name} {text.duration(b.value)}, {text.duration(b.low)} to {text.duration(b.high)}"
        for name, _, b, _ in rows
        if b is not None
    ]
    return Chart(figure, Table(_COLUMNS, tuple(cells)), f"Durations. {'; '.join(said)}.", DURATIONS_HEIGHT_PX)


# --- duration against persisted data ------------------------------------------------------------------------------


def pareto(what_if: WhatIfOut, *, theme: Theme, proposed: Mapping[str, str] | None = None) -> Chart:
    """Draw the predicted duration of each what-if against its persisted data, and those that none beats."""
    everything = [("now", what_if.current), *(("", p) for p in what_if.others)]
    if what_if.is_changed:
        everything.insert(1, ("asked", what_if.asked))
    placed = [
        (_role(role, p, proposed), p, d, k)
        for role, p in everything
        if (d := _interval_of(p, Measure.DURATION)) is not None
        and (k := _interval_of(p, Measure.PERSISTED)) is not None
    ]
    if not placed:
        return empty(theme, "Nothing was predicted for these settings.", height_px=PARETO_HEIGHT_PX)
    front = sorted({(d.value, k.value) for _, p, d, k in placed if p.is_on_front})
    # A what-if under which fewer checkpoints expire is on the front although it takes longer and persists more. Then no
    # line of two axes separates the front from the others.
    is_line = all(one[1] >= other[1] for one, other in pairwise(front))
    colors = {"now": CONTRAST, "asked": ACKED, "proposed": "#CC79A7"}
    traces: list[Trace] = [
        {
            "type": "scatter", "mode": "lines", "name": "front", "hoverinfo": "skip",
            "x": [d for d, _ in front] if is_line else [], "y": [k for _, k in front] if is_line else [],
            "line": {"color": theme.muted, "width": 1, "dash": "dot", "shape": "hv"},
        }
    ]  # fmt: skip
    for role in ("", "now", "proposed", "asked"):
        chosen = [row for row in placed if row[0] == role]
        if not chosen:
            continue
        color = colors.get(role, ALIGNED)
        x: list[float | None] = []
        y: list[float | None] = []
        for _, _, d, k in chosen:
            x += [d.low, d.high, None, d.value, d.value, None]
            y += [k.value, k.value, None, k.low, k.high, None]
        traces += [
            {
                "type": "scatter", "mode": "lines", "x": x, "y": y, "hoverinfo": "skip", "showlegend": False,
                "line": {"color": color, "width": 1.5}, "opacity": 0.6,
            },
            {
                "type": "scatter", "mode": "markers", "name": role or "other candidates",
                "x": [d.value for _, _, d, _ in chosen], "y": [k.value for _, _, _, k in chosen],
                "marker": {
                    "color": color, "size": 11 if role else 8,
                    "line": {"color": theme.surface, "width": [1 if p.is_on_front else 2 for _, p, _, _ in chosen]},
                    "symbol": ["circle" if p.is_on_front else "circle-open" for _, p, _, _ in chosen],
                },
                "text": [
                    f"{name_of(p.settings)}<br>{text.duration(d.value)}, {text.size(k.value)} persisted{_expiring(p)}"
                    for _, p, d, k in chosen
                ],
                "hovertemplate": "%{text}<extra></extra>",
            },
        ]  # fmt: skip
    most = max(k.high for _, _, _, k in placed)
    # If nothing is persisted, the axis has a height all the same, but no tick other than 0.
    largest = most or 1.0
    ends = [v for _, _, d, _ in placed for v in (d.low, d.high)]
    x_axis = time_axis("predicted end-to-end duration", ends, theme)
    figure: Figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=PARETO_HEIGHT_PX,
            revision="whatif-pareto",
            margin={"l": 72, "r": 20, "t": 34, "b": 48},
            showlegend=True,
            hovermode="closest",
            xaxis=x_axis,
            yaxis=axis(theme, "predicted persisted data", range=[-0.06 * largest, 1.1 * largest], **size_ticks(most)),
            annotations=_labels(theme, [(role, d.value, k.value) for role, _, d, k in placed if role], x_axis, largest),
        ),
    }
    table = tuple(
        (name_of(p.settings), d.value, k.value, _expired(p), "yes" if p.is_on_front else "no") for _, p, d, k in placed
    )
    said = "; ".join(
        f"{role}: {text.duration(d.value)} and {text.size(k.value)} persisted" for role, _, d, k in placed if role
    )
    summary = f"{len(placed)} what-ifs by duration and persisted data. {said}."
    return Chart(figure, Table(_PARETO_COLUMNS, table), summary, PARETO_HEIGHT_PX)


def _labels(
    theme: Theme, named: Sequence[tuple[str, float, float]], x_axis: Mapping[str, object], largest: float
) -> list[dict[str, object]]:
    """Return the labels of the named what-ifs. Those whose points lie nearly on each other share one label."""
    is_log = x_axis.get("type") == "log"
    ends = x_axis["range"]
    assert isinstance(ends, list)
    width, height = _LABEL_WIDTH_RATIO * (ends[1] - ends[0]), _LABEL_HEIGHT_RATIO * largest
    shared: list[tuple[list[str], float, float]] = []
    for role, duration_ms, size in named:
        x = math.log10(duration_ms) if is_log else duration_ms
        near = next((row for row in shared if abs(row[1] - x) < width and abs(row[2] - size) < height), None)
        if near is None:
            shared.append(([role], x, size))
        else:
            near[0].append(role)
    return [note(theme, ", ".join(roles), x, y, yanchor="bottom", yshift=7) for roles, x, y in shared]


def _role(role: str, prediction: PredictionOut, proposed: Mapping[str, str] | None) -> str:
    return "proposed" if not role and proposed and prediction.settings == dict(proposed) else role


def _expiring(prediction: PredictionOut) -> str:
    share = _expired(prediction)
    words = f"<br>{text.percent(share)} expire" if share else ""
    return f"{words}<br>on the front" if prediction.is_on_front else words


def _expired(prediction: PredictionOut) -> float | None:
    interval = _interval_of(prediction, Measure.EXPIRED)
    return None if interval is None else interval.value


def time_axis(title: str, values_ms: Sequence[float], theme: Theme) -> dict[str, object]:
    """Return an axis of durations with round ticks, logarithmic if the longest is ten times the shortest."""
    least, most = min(values_ms), max(values_ms)
    if least <= 0 or most < _LOG_MIN_RATIO * least:
        values, labels = ticks_ms(most or 1.0)
        return axis(theme, title, range=[-0.03 * most, 1.06 * most or 1.0], tickvals=values, ticktext=labels)
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    within = (1, 2, 5) if len(powers) <= _POWERS_MAX else (1,)
    steps = [s * 10.0**p for p in powers for s in within if least / 2 <= s * 10.0**p <= most * 2]
    ends = [math.log10(least / 1.4), math.log10(most * 1.4)]
    labels = [text.duration(v) for v in steps]
    return axis(theme, f"{title} (log)", type="log", range=ends, tickvals=steps, ticktext=labels)
