"""Defines what all figures share: the chart with its table, axes and layout.

Figures are plain dictionaries in Plotly's schema. Plotly's Python constructors would validate every value, which
takes a hundred times as long as all other steps of drawing. The unit tests validate the figures instead.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dashboard import text as words
from dashboard.palette import Theme

Figure = Mapping[str, object]
Trace = dict[str, object]
Cell = str | int | float | None

FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"

MEASURED_NAMES = "measured-names"
"""The value of ``meta`` in a layout whose left margin the script ``charts.js`` widens if the names of the rows need it.

The names are the labels of the y axis, and the annotations whose right end is at the left end of the axis.
"""

_NOTE_CHARACTERS = 52

LEGEND: Figure = {
    "orientation": "h",
    "x": 0,
    "y": 1.02,
    "yanchor": "bottom",
    "itemclick": False,
    "itemdoubleclick": False,
}
"""The position of a legend over the figure. A click on the legend does nothing."""


@dataclass(frozen=True, slots=True)
class Table:
    """The values of a figure as rows. ``columns`` are the column heads, with units."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure, its table, and its summary for screen readers."""

    figure: Figure
    table: Table
    summary: str
    height_px: int = 320
    hints: tuple[str, ...] = field(default=())


def layout(theme: Theme, *, height_px: int, revision: str, **more: object) -> dict[str, object]:
    """Return the layout that all figures have in common. Zoom and pan persist while ``revision`` stays the same."""
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
    """Return the buttons over a figure, in the colours of the page."""
    return {
        "bgcolor": "rgba(0,0,0,0)",
        "color": theme.muted,
        "activecolor": theme.text,
        "remove": list(removed),
    }


def axis(theme: Theme, title: str | None = None, **more: object) -> dict[str, object]:
    """Return an axis with grid lines in muted colours.

    A margin that is too small for the labels grows. The figure is then drawn twice, so margins should be large enough.
    """
    base: dict[str, object] = {
        "gridcolor": theme.grid,
        "linecolor": theme.border,
        "zerolinecolor": theme.border,
        "zeroline": False,
        "tickfont": {"size": 11, "color": theme.muted},
        "automargin": True,
    }
    if title is not None:
        base["title"] = axis_title(theme, title)
    found = base | more
    if found["automargin"]:
        # The margin has room for every label, so Plotly need not measure each of them to hide those without room.
        found.setdefault("ticklabeloverflow", "allow")
    return found


def axis_title(theme: Theme, words: str, *, standoff_px: int = 6) -> dict[str, object]:
    """Return the title of an axis. Its distance is that from the labels, or from the axis if the labels are names."""
    return {"text": words, "font": {"size": 11, "color": theme.muted}, "standoff": standoff_px}


def note(theme: Theme, text: str, x: float, y: float, **more: object) -> dict[str, object]:
    """Return an annotation without an arrow."""
    base: dict[str, object] = {
        "text": text,
        "x": x,
        "y": y,
        "showarrow": False,
        "font": {"size": 11, "color": theme.muted},
    }
    return base | more


def labels_above(theme: Theme, labels: Sequence[str], *, font_px: int, thickness_px: float) -> list[dict[str, object]]:
    """Return annotations that label the rows 0, 1, 2 and so on. Each label stands above the bar of its row.

    On a phone, labels beside the bars would leave them a quarter of the width. ``thickness_px`` is that of the bars.
    """
    more: dict[str, object] = {
        "xref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": round(thickness_px / 2),
        "font": {"size": font_px, "color": theme.text}, "borderpad": 0,
    }  # fmt: skip
    return [note(theme, label, 0, row, **more) for row, label in enumerate(labels)]


def empty(theme: Theme, text: str, *, height_px: int = 200) -> Chart:
    """Return a figure without data that shows ``text``, the reason why there is none."""
    # A phone shows about this many characters in a line, and Plotly breaks no lines.
    lines = [line for part in text.split("<br>") for line in textwrap.wrap(part, _NOTE_CHARACTERS)]
    figure: Figure = {
        "data": [],
        "layout": layout(
            theme,
            height_px=height_px,
            revision="empty",
            margin={"l": 8, "r": 8, "t": 4, "b": 4},
            xaxis={"visible": False},
            yaxis={"visible": False},
            annotations=[
                note(
                    theme, "<br>".join(lines), 0.5, 0.5, xref="paper", yref="paper",
                    font={"size": 13, "color": theme.muted},
                )
            ],
        ),
    }  # fmt: skip
    return Chart(figure, Table((), ()), text, height_px)


def size_ticks(most_bytes: float) -> dict[str, object]:
    """Return the parts of an axis that place at most seven round ticks from 0 to ``most_bytes``, and their labels.

    Each label is that of one tick. If ``most_bytes`` is less than a byte, the only tick is 0.
    """
    step = 10.0 ** math.floor(math.log10(most_bytes)) if most_bytes > 0 else 1.0
    # Labels have whole bytes, so ticks that are closer would repeat them.
    step = max(1.0, next(step * f for f in (0.2, 0.5, 1.0, 2.0) if most_bytes / (step * f) <= 6))
    values = [step * i for i in range(int(most_bytes / step) + 1)]
    return {"tickvals": values, "ticktext": [whole(words.size(v)) for v in values]}


def whole(label: str) -> str:
    """Return the label of a tick without a decimal that is 0."""
    # All ticks of an axis have the precision of its step, so the label of a whole number has no decimal.
    return label.replace(".0 ", " ")


def ticks_ms(longest_ms: float, *, steps_max: int = 9) -> tuple[list[float], list[str]]:
    """Return round tick positions from 0 to ``longest_ms`` milliseconds, and their labels, all in one unit.

    There are at most ``steps_max`` steps between them. On a phone, an axis to the right has room for six labels.
    """
    steps = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000)
    step = next((s for s in steps if longest_ms / s <= steps_max), None)
    if step is None:
        step = 600_000
        while longest_ms / step > steps_max:
            step *= 2
    values = [float(step * i) for i in range(int(longest_ms // step) + 1)]
    return values, [_tick(v, step) for v in values]


def _tick(value_ms: float, step_ms: int) -> str:
    if step_ms >= 60_000:
        return f"{value_ms / 60_000:g} min"
    return f"{value_ms / 1_000:g} s" if step_ms >= 100 else f"{value_ms:g} ms"


def whole_step(most: int) -> int:
    """Return the step between the ticks of a count: 1, 2 or 5 times a power of ten, for at most six ticks."""
    power = 1
    while True:
        for step in (power, 2 * power, 5 * power):
            if most <= 6 * step:
                return step
        power *= 10


def largest(values: Sequence[int | float | None]) -> float | None:
    """Return the largest value that is not None, or None if there is no such value."""
    return max((v for v in values if v is not None), default=None)
