"""Draws the distributions of one measure in two windows: for each value, the share of checkpoints up to it.

A curve further to the right means larger values. The medians are marked where the curves cross one half. A curve ends
with an open arrow at the first expired checkpoint, because longer durations are lower bounds.
"""

from __future__ import annotations

from backend.contracts.comparing_windows import DistributionOut, EstimateOut, WindowMeasureOut, WindowsComparisonOut
from backend.domain.rollup import Measure
from dashboard import text
from dashboard.figures.base import Cell, Chart, Table, Trace, axis, empty, layout, ticks_ms
from dashboard.palette import ALIGNED, CONTRAST, Theme

HEIGHT_PX = 300
WORDS: dict[Measure, str] = {
    Measure.DURATION: "end-to-end duration",
    Measure.START_DELAY: "start delay",
    Measure.ALIGNMENT: "alignment",
    Measure.SYNC: "sync",
    Measure.ASYNC: "async",
    Measure.CHECKPOINTED_SIZE: "checkpointed size",
    Measure.FULL_STATE_SIZE: "full state size",
    Measure.PERSISTED: "persisted in-flight",
    Measure.PROCESSED: "processed during alignment",
}
_COLUMNS = ("measure", "unit", "window", "share of checkpoints (%)", "value")


def distributions(comparison: WindowsComparisonOut, measure: Measure, *, theme: Theme) -> Chart:
    """Draw the distributions of ``measure`` in both windows, on one axis."""
    one = next((m for m in comparison.measures if m.measure is measure), None)
    if one is None:
        chart = empty(theme, f"No checkpoint in either window reported its {WORDS[measure]}.", height_px=HEIGHT_PX)
        return Chart(chart.figure, _table(comparison), chart.summary, HEIGHT_PX)
    sides = (
        (comparison.before.name, one.before, ALIGNED, "dash"),
        (comparison.after.name, one.after, CONTRAST, "solid"),
    )
    traces = [trace for side in sides for trace in _traces(*side, unit=one.unit)]
    figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=HEIGHT_PX,
            revision=f"windows{measure}",
            margin={"l": 64, "r": 16, "t": 30, "b": 44},
            showlegend=True,
            xaxis=_values_axis(one, theme),
            yaxis=axis(
                theme, "share of checkpoints", range=[0, 1.04], tickvals=[0, 0.25, 0.5, 0.75, 0.95],
                ticktext=["0 %", "25 %", "median", "75 %", "95 %"],
            ),
            hovermode="closest",
        ),
    }  # fmt: skip
    return Chart(figure, _table(comparison), _summary(comparison, one), HEIGHT_PX)


def _values_axis(one: WindowMeasureOut, theme: Theme) -> dict[str, object]:
    most = max(d.maximum for d in (one.before, one.after) if d is not None) or 1.0
    if one.unit == "ms":
        values, labels = ticks_ms(most)
        ticks: dict[str, object] = {"tickvals": values, "ticktext": labels}
    else:
        steps = [most * i / 5 for i in range(6)]
        ticks = {"tickvals": steps, "ticktext": [text.size(round(v)) for v in steps]}
    return axis(theme, WORDS[one.measure], range=[0, most * 1.04], **ticks)


def _traces(name: str, one: DistributionOut | None, color: str, dash: str, *, unit: str) -> list[Trace]:
    if one is None:
        return []
    median, whose = one.median, text.plain(name)
    # From the first expired checkpoint on, only lower bounds are known, so the curve ends there with an open arrow.
    known = [(v, s) for v, s in zip(one.points, one.shares, strict=True) if not _is_bound(v, one)]
    share = known[-1][1] if known else 0.0
    # The curve begins at zero and steps up at each value.
    path = [(one.points[0] if known else 0.0, 0.0), *known]
    path += [] if one.expired_from is None else [(one.expired_from, share)]
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{whose} ({text.count(one.count)})",
            "x": [v for v, _ in path],
            "y": [s for _, s in path],
            "line": {"color": color, "width": 2, "dash": dash, "shape": "hv"},
            "hovertext": ["", *(f"{whose}: {text.percent(s)} took up to {_format(v, unit)}" for v, s in path[1:])],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }
    ]
    if one.expired_from is not None:
        words = (
            f"{whose}: {text.percent(1 - share)} took longer than {_format(one.expired_from, unit)}, or expired there"
        )
        mark = {"color": color, "size": 12, "symbol": "triangle-right-open"}
        traces.append(_mark(f"expired {whose}", one.expired_from, share, mark, words))
    if not median.is_at_least:
        mark = {"color": color, "size": 9, "symbol": "diamond"}
        traces.append(
            _mark(f"median {whose}", median.value, 0.5, mark, f"median {whose}: {_format(median.value, unit)}")
        )
    return traces


def _is_bound(value: float, one: DistributionOut) -> bool:
    return one.expired_from is not None and value >= one.expired_from


def _mark(name: str, x: float, y: float, marker: dict[str, object], words: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [x],
        "y": [y],
        "showlegend": False,
        "cliponaxis": False,
        "marker": marker,
        "hovertext": [words],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _format(value: float, unit: str) -> str:
    return text.duration(round(value)) if unit == "ms" else text.size(value)


def _summary(comparison: WindowsComparisonOut, one: WindowMeasureOut) -> str:
    said = [
        f"{name}: median {_quantile(d.median, one.unit)} of {d.count}, 95th percentile {_quantile(d.p95, one.unit)}"
        for name, d in ((comparison.before.name, one.before), (comparison.after.name, one.after))
        if d is not None
    ]
    return f"Distribution of {WORDS[one.measure]}. {'; '.join(said)}."


def _quantile(one: EstimateOut, unit: str) -> str:
    return f"{'at least ' if one.is_at_least else ''}{_format(one.value, unit)}"


def _table(comparison: WindowsComparisonOut) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (WORDS[m.measure], m.unit, name, round(100 * share, 2), value)
        for m in comparison.measures
        for name, one in ((comparison.before.name, m.before), (comparison.after.name, m.after))
        if one is not None
        for value, share in zip(one.points, one.shares, strict=True)
    ]
    return Table(_COLUMNS, tuple(rows))
