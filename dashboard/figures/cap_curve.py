"""Draws the curve over the cap on in-flight data: duration above, persisted data below, from aligned to unaligned."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from backend.contracts.cap_curves import CapPointOut
from dashboard import text
from dashboard.figures.base import Chart, Figure, Table, Trace, axis, empty, layout, note, size_ticks, ticks_ms
from dashboard.palette import ALIGNED, UNALIGNED, Theme

HEIGHT_PX: Final = 420
_NEARLY: Final = 0.05
"""A value may step back by this share of the range between the ends: the schedules of the runs differ."""
_END_GAP: Final = 0.14
"""The distance of the two ends from the outer caps, as a share of the range of the caps."""
_LABEL_GAP, _NARROW_LABEL_GAP = 0.09, 0.24
"""The least distance of two labels, as a share of the axis."""
_COLUMNS: Final = (
    "protocol", "cap (bytes)", "completed", "failed", "duration, median (ms)", "duration, longest (ms)",
    "persisted, median (bytes)", "persisted, most (bytes)", "persisted by one subtask, most (bytes)",
)  # fmt: skip
_TOP, _BOTTOM = (0.57, 1.0), (0.0, 0.43)


def cap_curve(points: Sequence[CapPointOut], *, theme: Theme, revision: str, is_narrow: bool = False) -> Chart:
    """Draw a curve. ``points`` are aligned, then the caps in ascending order, then unaligned."""
    if all(p.duration_p50_ms is None for p in points):
        return empty(theme, "No checkpoint completed at any cap.", height_px=HEIGHT_PX)
    places = _places(points)
    longest = max(p.duration_p50_ms or 0.0 for p in points)
    most = max(p.persisted_p50_bytes or 0.0 for p in points)
    ticks = size_ticks(max(most, 1.0))
    values, labels = ticks_ms(max(longest, 1.0), steps_max=5)
    figure: Figure = {
        "data": [
            _trace("y", places, [p.duration_p50_ms for p in points], points, theme),
            _trace("y2", places, [p.persisted_p50_bytes for p in points], points, theme),
        ],
        "layout": layout(
            theme,
            height_px=HEIGHT_PX,
            revision=revision,
            hovermode="closest",
            margin={"l": 64, "r": 24, "t": 26, "b": 48},
            xaxis=axis(
                theme,
                "cap on the in-flight data of one subtask",
                range=[places[0] - 0.06, places[-1] + 0.06],
                anchor="y2",
                tickangle=0,
                tickvals=places,
                ticktext=_labels(points, places, is_narrow=is_narrow),
            ),
            yaxis=axis(
                theme, domain=list(_TOP), range=[0, 1.1 * max(longest, 1.0)], tickvals=values, ticktext=labels
            ),
            yaxis2=axis(theme, domain=list(_BOTTOM), range=[0, 1.1 * max(most, 1.0)]) | ticks,
            annotations=[_title(theme, "duration, median", _TOP[1]), _title(theme, "persisted, median", _BOTTOM[1])],
        ),
    }  # fmt: skip
    return Chart(figure, _table(points), sentence(points), HEIGHT_PX)


def sentence(points: Sequence[CapPointOut]) -> str:
    """Return what the curve says, and where it steps back."""
    aligned, unaligned = points[0], points[-1]
    if any(p.duration_p50_ms is None for p in points):
        without = " and ".join(name_of(p) for p in points if p.duration_p50_ms is None)
        return f"No checkpoint completed with {without}, so these have no point."
    if not unaligned.persisted_max_bytes:
        return "The unaligned checkpoints of this job persisted no in-flight data, so no cap changes anything."
    low, high = text.size(aligned.persisted_p50_bytes), text.size(unaligned.persisted_p50_bytes)
    ends = (
        f"From aligned to unaligned, the median duration goes from {text.duration(aligned.duration_p50_ms)} to"
        f" {text.duration(unaligned.duration_p50_ms)}, and a checkpoint persists {low} to {high} in flight."
    )
    back = [
        f"{what} at {name_of(after)}"
        for what, values, sign in (
            ("the duration rises", [p.duration_p50_ms or 0.0 for p in points], 1),
            ("the persisted data falls", [p.persisted_p50_bytes or 0.0 for p in points], -1),
        )
        for (before, after), (old, new) in zip(pairwise(points), pairwise(values), strict=True)
        if sign * (new - old) > _NEARLY * (max(values) - min(values))
    ]
    if not back:
        return f"{ends} Neither steps back at a higher cap."
    return f"{ends} There are steps back: {'; '.join(back)}."


def name_of(point: CapPointOut) -> str:
    """Return the name of a point: its protocol, or its cap."""
    return point.protocol if point.cap_bytes is None else f"the cap of {text.size(point.cap_bytes)}"


def _places(points: Sequence[CapPointOut]) -> list[float]:
    """Return where the points lie on the axis: the caps from 0 to 1 by their size, the ends outside of them."""
    caps = [p.cap_bytes for p in points if p.cap_bytes is not None]
    low, span = min(caps), max(caps) - min(caps)
    inner = [(cap - low) / span if span else 0.5 for cap in caps]
    return [-_END_GAP, *inner, 1 + _END_GAP]


def _trace(
    axis_name: str, places: Sequence[float], values: Sequence[float | None], points: Sequence[CapPointOut], theme: Theme
) -> Trace:
    colors = {"aligned": ALIGNED, "unaligned": UNALIGNED}
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "cliponaxis": False,
        "x": list(places),
        "y": list(values),
        "xaxis": "x",
        "yaxis": axis_name,
        "line": {"color": theme.muted, "width": 1.5},
        "marker": {"color": [colors.get(p.protocol, theme.text) for p in points], "size": 9},
        "text": [_words(p) for p in points],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _words(point: CapPointOut) -> str:
    most = "" if point.subtask_persisted_max_bytes is None else (
        f"<br>one subtask persisted at most {text.size(point.subtask_persisted_max_bytes)}"
    )  # fmt: skip
    return (
        f"{name_of(point)}<br>duration, median {text.duration(point.duration_p50_ms)}"
        f"<br>persisted, median {text.size(point.persisted_p50_bytes)}{most}"
        f"<br>{point.completed_count} completed, {point.failed_count} failed"
    )


def _labels(points: Sequence[CapPointOut], places: Sequence[float], *, is_narrow: bool) -> list[str]:
    """Return the label of each point. A label that would lie on another one is left out, but never that of an end."""
    least = _NARROW_LABEL_GAP if is_narrow else _LABEL_GAP
    labels: list[str] = []
    last = float("-inf")
    for number, (point, place) in enumerate(zip(points, places, strict=True)):
        is_end = number in (0, len(points) - 1)
        if is_end or (place - last >= least and places[-1] - place >= least):
            labels.append(point.protocol if point.cap_bytes is None else text.size(point.cap_bytes))
            last = place
        else:
            labels.append("")
    return labels


def _title(theme: Theme, words: str, y: float) -> dict[str, object]:
    return note(theme, words, 0, y, xref="paper", yref="paper", xanchor="left", yanchor="bottom")


def _table(points: Sequence[CapPointOut]) -> Table:
    rows = tuple(
        (
            p.protocol, p.cap_bytes, p.completed_count, p.failed_count, p.duration_p50_ms, p.duration_max_ms,
            p.persisted_p50_bytes, p.persisted_max_bytes, p.subtask_persisted_max_bytes,
        )
        for p in points
    )  # fmt: skip
    return Table(_COLUMNS, rows)
