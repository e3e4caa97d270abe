"""Draws the distributions of one measure in two windows: for each value, the share of checkpoints up to it.

A curve further to the right means larger values. The medians are marked where the curves cross one half.
"""

from __future__ import annotations

from backend.contracts.comparing_windows import DistributionOut, WindowMeasureOut, WindowsComparisonOut
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


def distributions(found: WindowsComparisonOut, measure: Measure, *, theme: Theme) -> Chart:
    """Draw the distributions of ``measure`` in both windows, on one axis."""
    one = next((m for m in found.measures if m.measure is measure), None)
    if one is None:
        chart = empty(theme, f"No checkpoint in either window reported its {WORDS[measure]}.", height_px=HEIGHT_PX)
        return Chart(chart.figure, _table(found), chart.summary, HEIGHT_PX)
    sides = ((found.before.name, one.before, ALIGNED, "dash"), (found.after.name, one.after, CONTRAST, "solid"))
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
    return Chart(figure, _table(found), _summary(found, one), HEIGHT_PX)


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
    median = one.median
    word = _format(median.value, unit)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{text.plain(name)} ({text.count(one.count)})",
            # The curve begins at zero and steps up at each value.
            "x": [one.points[0], *one.points],
            "y": [0.0, *one.shares],
            "line": {"color": color, "width": 2, "dash": dash, "shape": "hv"},
            "hovertext": [
                "",
                *(
                    f"{text.plain(name)}: {text.percent(share)} took up to {_format(v, unit)}"
                    for v, share in zip(one.points, one.shares, strict=True)
                ),
            ],
            "hovertemplate": "%{hovertext}<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"median {text.plain(name)}",
            "x": [median.value],
            "y": [0.5],
            "showlegend": False,
            "marker": {"color": color, "size": 9, "symbol": "diamond"},
            "hovertext": [f"median {text.plain(name)}: {'at least ' if median.is_at_least else ''}{word}"],
            "hovertemplate": "%{hovertext}<extra></extra>",
        },
    ]


def _format(value: float, unit: str) -> str:
    return text.duration(round(value)) if unit == "ms" else text.size(value)


def _summary(found: WindowsComparisonOut, one: WindowMeasureOut) -> str:
    said = [
        f"{name}: median {_format(d.median.value, one.unit)} of {d.count}, 95 % up to {_format(d.p95.value, one.unit)}"
        for name, d in ((found.before.name, one.before), (found.after.name, one.after))
        if d is not None
    ]
    return f"Distribution of {WORDS[one.measure]}. {'; '.join(said)}."


def _table(found: WindowsComparisonOut) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (WORDS[m.measure], m.unit, name, round(100 * share, 2), value)
        for m in found.measures
        for name, one in ((found.before.name, m.before), (found.after.name, m.after))
        if one is not None
        for value, share in zip(one.points, one.shares, strict=True)
    ]
    return Table(_COLUMNS, tuple(rows))
