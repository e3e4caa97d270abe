"""What all figures share: the chart with its table, axes and layout.

Figures are plain dictionaries in Plotly's schema. Plotly's Python constructors would validate every value, which takes
a hundred times as long as everything else. The unit tests validate the figures instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dashboard.palette import Theme

Figure = Mapping[str, object]
Trace = dict[str, object]
Cell = str | int | float | None

FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"


LEGEND: Figure = {
    "orientation": "h",
    "x": 0,
    "y": 1.02,
    "yanchor": "bottom",
    "itemclick": False,
    "itemdoubleclick": False,
}
"""The place of a legend. A click on it does nothing."""


@dataclass(frozen=True, slots=True)
class Table:
    """The values of a figure as rows. ``columns`` are the heads, with units."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure, its table, and a summary for screen readers."""

    figure: Figure
    table: Table
    summary: str
    height_px: int = 320
    hints: tuple[str, ...] = field(default=())


def layout(theme: Theme, *, height_px: int, revision: str, **more: object) -> dict[str, object]:
    """The common layout of figures. Zoom and pan are kept while ``revision`` stays the same."""
    base: dict[str, object] = {
        "height": height_px,
        "margin": {"l": 64, "r": 16, "t": 12, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": theme.text},
        "hoverlabel": {
            "bgcolor": theme.surface,
            "bordercolor": theme.border,
            "font": {"family": FONT, "size": 12, "color": theme.text},
            "align": "left",
        },
        "legend": {**LEGEND, "font": {"size": 11, "color": theme.muted}},
        "modebar": modebar(theme, removed=("select2d",)),
        "uirevision": revision,
        "showlegend": False,
        "dragmode": "zoom",
    }
    return base | more


def modebar(theme: Theme, *, removed: Sequence[str] = ()) -> dict[str, object]:
    """The buttons over a figure, in the colours of the page."""
    return {
        "bgcolor": "rgba(0,0,0,0)",
        "color": theme.muted,
        "activecolor": theme.text,
        "remove": list(removed),
    }


def axis(theme: Theme, title: str | None = None, **more: object) -> dict[str, object]:
    """An axis with quiet grid lines."""
    base: dict[str, object] = {
        "gridcolor": theme.grid,
        "linecolor": theme.border,
        "zerolinecolor": theme.border,
        "zeroline": False,
        "tickfont": {"size": 11, "color": theme.muted},
        "automargin": True,
    }
    if title is not None:
        base["title"] = {"text": title, "font": {"size": 11, "color": theme.muted}, "standoff": 6}
    return base | more


def note(theme: Theme, text: str, x: float, y: float, **more: object) -> dict[str, object]:
    """An annotation without an arrow."""
    base: dict[str, object] = {
        "text": text,
        "x": x,
        "y": y,
        "showarrow": False,
        "font": {"size": 11, "color": theme.muted},
    }
    return base | more


def empty(theme: Theme, text: str, *, height_px: int = 200) -> Chart:
    """A figure without data that shows the reason."""
    figure: Figure = {
        "data": [],
        "layout": layout(
            theme,
            height_px=height_px,
            revision="empty",
            xaxis={"visible": False},
            yaxis={"visible": False},
            annotations=[
                note(theme, text, 0.5, 0.5, xref="paper", yref="paper", font={"size": 13, "color": theme.muted})
            ],
        ),
    }
    return Chart(figure, Table((), ()), text, height_px)


def ticks_ms(longest_ms: float) -> tuple[list[float], list[str]]:
    """Round tick positions from 0 to ``longest_ms`` milliseconds, with labels in one unit."""
    steps = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000)
    step = next((s for s in steps if longest_ms / s <= 9), None)
    if step is None:
        step = 600_000
        while longest_ms / step > 9:
            step *= 2
    values = [float(step * i) for i in range(int(longest_ms // step) + 1)]
    return values, [_tick(v, step) for v in values]


def _tick(value_ms: float, step_ms: int) -> str:
    if step_ms >= 60_000:
        return f"{value_ms / 60_000:g} min"
    return f"{value_ms / 1_000:g} s" if step_ms >= 100 else f"{value_ms:g} ms"


def largest(values: Sequence[int | float | None]) -> float | None:
    """The largest value that is not None; None if there is none."""
    return max((v for v in values if v is not None), default=None)
