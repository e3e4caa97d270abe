"""Draws the pressure of a Spark query over time: its input rate against its processing rate, and its batch durations.

Spark measures no backpressure. A query is behind if rows arrive faster than it can process them, or if its batches
take longer than the trigger interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from itertools import pairwise

from backend.contracts.micro_batches import MicroBatchOut
from dashboard import text
from dashboard.figures.base import Cell, Chart, Table, Trace, axis, empty, layout, note, ticks_ms
from dashboard.figures.scaling import clipped_top
from dashboard.palette import ALIGNED, FAILED, IN_TRANSIT, Theme

HEIGHT_PX = 380
_COLUMNS = (
    "batch",
    "triggered at (UTC)",
    "rows (count)",
    "arrived (rows/s)",
    "processed (rows/s)",
    "duration (ms)",
)
_RATES, _DURATIONS = [0.54, 0.96], [0.0, 0.42]


def batch_rates(
    batches: Sequence[MicroBatchOut], *, theme: Theme, where: tzinfo, interval_ms: int | None, revision: str = ""
) -> Chart:
    """Draw the newest micro-batches, which are oldest first. ``interval_ms`` is the trigger interval, if known."""
    if not batches:
        return empty(theme, "No micro-batch has been reported yet.", height_px=HEIGHT_PX)
    at = [text.axis_instant(b.triggered_at, where) for b in batches]
    arrived, processed = arrival_rates(batches), [b.processed_rows_per_s for b in batches]
    durations = [b.duration_ms for b in batches]
    top = clipped_top([*(float(d) for d in durations if d is not None), float(interval_ms or 0)])
    values_ms, labels = ticks_ms(top)
    step = max(1, len(values_ms) // 4)
    titles = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 3}
    lines = _interval_line(interval_ms, theme) if interval_ms and interval_ms <= top else []
    figure = {
        "data": [
            _line("arrived (reconstructed)", at, arrived, IN_TRANSIT, "solid"),
            _line("processed", at, processed, ALIGNED, "dot"),
            _bars(at, durations, interval_ms, top, theme),
        ],
        "layout": layout(
            theme,
            height_px=HEIGHT_PX,
            revision=revision,
            margin={"l": 72, "r": 16, "t": 12, "b": 44},
            xaxis=axis(theme, f"triggered at ({where})", type="date", anchor="y2"),
            yaxis=axis(theme, domain=_RATES, rangemode="tozero"),
            yaxis2=axis(
                theme, domain=_DURATIONS, anchor="x", range=[0, top], tickvals=values_ms[::step],
                ticktext=labels[::step],
            ),
            shapes=lines,
            annotations=[
                note(theme, "rows/s: — arrived (reconstructed)   ┄ processed", 0, _RATES[1], **titles),
                note(theme, "duration of each batch" + _interval_words(interval_ms), 0, _DURATIONS[1], **titles),
            ],
            hovermode="closest",
        ),
    }  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (b.checkpoint_id, b.triggered_at.isoformat(), b.input_row_count, a, b.processed_rows_per_s, b.duration_ms)
        for b, a in zip(batches, arrived, strict=True)
    ]
    return Chart(figure, Table(_COLUMNS, tuple(rows)), _summary(batches, arrived, interval_ms), HEIGHT_PX)


def arrival_rates(batches: Sequence[MicroBatchOut]) -> list[float | None]:
    """Return the rows of each batch per second since the previous trigger. The rate of the first batch is not known."""
    rates: list[float | None] = [None]
    for before, batch in pairwise(batches):
        seconds = (batch.triggered_at - before.triggered_at).total_seconds()
        is_known = batch.input_row_count is not None and seconds > 0 and batch.run_id == before.run_id
        rates.append(round((batch.input_row_count or 0) / seconds, 1) if is_known else None)
    return rates


def _line(name: str, at: Sequence[str], values: Sequence[float | None], color: str, dash: str) -> Trace:
    return {
        "type": "scatter", "mode": "lines+markers", "name": name, "x": list(at), "y": list(values),
        "line": {"color": color, "width": 1.8, "dash": dash}, "marker": {"size": 4, "color": color},
        "text": [text.rate(v, "rows") for v in values],
        "hovertemplate": f"{name}<br>%{{x|%H:%M:%S}}<br>%{{text}}<extra></extra>",
    }  # fmt: skip


def _bars(
    at: Sequence[str], durations: Sequence[int | None], interval_ms: int | None, top: float, theme: Theme
) -> Trace:
    def is_late(duration: int | None) -> bool:
        return duration is not None and interval_ms is not None and duration > interval_ms

    return {
        "type": "bar", "name": "duration", "yaxis": "y2", "x": list(at),
        "y": [None if d is None else min(d, top) for d in durations],
        "marker": {"color": [FAILED if is_late(d) else theme.busy for d in durations]},
        "hovertext": [text.duration(d) for d in durations],
        "hovertemplate": "batch of %{x|%H:%M:%S}<br>%{hovertext}<extra></extra>",
    }  # fmt: skip


def _interval_line(interval_ms: int, theme: Theme) -> list[dict[str, object]]:
    line = {"color": theme.muted, "width": 1.5, "dash": "dash"}
    return [
        {
            "type": "line",
            "xref": "paper",
            "yref": "y2",
            "x0": 0,
            "x1": 1,
            "y0": interval_ms,
            "y1": interval_ms,
            "line": line,
        }
    ]


def _interval_words(interval_ms: int | None) -> str:
    return "" if interval_ms is None else f"; dashed: trigger interval {text.duration(interval_ms)}"


def _summary(batches: Sequence[MicroBatchOut], arrived: Sequence[float | None], interval_ms: int | None) -> str:
    pairs = [(a, b.processed_rows_per_s) for a, b in zip(arrived, batches, strict=True)]
    behind = sum(a is not None and p is not None and a > p for a, p in pairs)
    late = sum(interval_ms is not None and (b.duration_ms or 0) > interval_ms for b in batches)
    return (
        f"{len(batches)} micro-batches; in {behind} of them rows arrived faster than they were processed; "
        f"{late} took longer than the trigger interval."
    )
