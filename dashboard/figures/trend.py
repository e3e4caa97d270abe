"""Draws the last 7 days of a job by hour: the median, p95 and p99 of the duration, and the number of failures.

An hour without a checkpoint is a gap in the lines. A single hour is not drawn but written out. An hour without a rollup
is computed from its checkpoints, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta, tzinfo

from backend.contracts.rollups import MeasureRollupOut, RollupHourOut
from backend.domain.rollup import is_lower_bound
from dashboard import text
from dashboard.figures.base import Cell, Chart, Table, Trace, axis, empty, layout, ticks_ms, whole_step
from dashboard.figures.scaling import ABOVE_RATIO, usual_largest
from dashboard.palette import ALIGNED, CONTRAST, FAILED, IN_TRANSIT, Theme

HEIGHT_PX = 300
_TEXT_HEIGHT_PX = 72
_DURATION = "end_to_end_duration_ms"
_HOUR = timedelta(hours=1)
_HOURS_MIN = 2
_LINES = (("p50", ALIGNED, "solid"), ("p95", IN_TRANSIT, "dash"), ("p99", CONTRAST, "dot"))
_COLUMNS = (
    "hour (UTC)",
    "source",
    "triggered",
    "completed",
    "failed",
    "duration p50 (ms)",
    "duration p95 (ms)",
    "duration p99 (ms)",
    "duration max (ms)",
    "start delay p95 (ms)",
    "alignment p95 (ms)",
    "checkpointed size p95 (bytes)",
    "persisted in-flight p95 (bytes)",
    "replay debt at its end (ms)",
)
_MORE = ("start_delay_max_ms", "alignment_max_ms", "checkpointed_size_bytes", "persisted_bytes")


def trend(hours: Sequence[RollupHourOut], *, theme: Theme, where: tzinfo, revision: str = "") -> Chart:
    """Draw ``hours``, which are newest first, as the API lists them."""
    if not hours:
        return empty(theme, "There are no hours with checkpoints.", height_px=_TEXT_HEIGHT_PX)
    ordered = sorted(hours, key=lambda h: h.hour)
    if len(ordered) < _HOURS_MIN:
        chart = empty(theme, _only_one(ordered[0]), height_px=_TEXT_HEIGHT_PX)
        return replace(chart, table=_table(ordered), summary=_summary(ordered))
    slowest = [v for h in ordered if (v := _quantile(h, "p99")) is not None]
    longest_ms = usual_largest(slowest) or 1.0
    above = sum(v > longest_ms * ABOVE_RATIO for v in slowest)
    values_ms, labels = ticks_ms(longest_ms * 1.1)
    failed = max(h.failed_count for h in ordered)
    figure = {
        "data": [_failures(ordered, where), *(_line(ordered, *line, theme, where) for line in _LINES)],
        "layout": layout(
            theme,
            height_px=HEIGHT_PX,
            revision=revision,
            margin={"l": 64, "r": 56, "t": 30, "b": 44},
            showlegend=True,
            xaxis=axis(theme, f"hour of the trigger ({where})", type="date", range=_span(ordered, where)),
            yaxis=axis(
                theme,
                "end-to-end duration" + (f" ({above} h above)" if above else ""),
                tickvals=values_ms,
                ticktext=labels,
                range=[0, longest_ms * ABOVE_RATIO],
            ),
            yaxis2=axis(
                theme,
                "failed",
                overlaying="y",
                side="right",
                showgrid=False,
                range=[0, max(4, 3 * failed)],
                dtick=whole_step(max(4, 3 * failed)),
            ),
            hovermode="closest",
        ),
    }
    return Chart(figure, _table(ordered), _summary(ordered), HEIGHT_PX)


def _only_one(hour: RollupHourOut) -> str:
    """Return the values of a single hour. A chart of it would be one dot, which shows no trend."""
    median, p95 = (text.plain(_words(hour, name)) for name in ("p50", "p95"))
    return (
        f"So far there is one hour with checkpoints: {hour.completed_count} completed (median {median}, p95 {p95}), "
        f"{hour.failed_count} failed.<br>A trend needs two."
    )


def _span(hours: Sequence[RollupHourOut], where: tzinfo) -> list[str]:
    """Return the range of the time axis: from the first hour to the last, but at least half a day.

    Otherwise a single hour would fill the chart.
    """
    first, last = hours[0].hour, hours[-1].hour
    return [text.axis_instant(at, where) for at in (min(first, last - 11 * _HOUR) - _HOUR / 2, last + _HOUR)]


def _line(hours: Sequence[RollupHourOut], name: str, color: str, dash: str, theme: Theme, where: tzinfo) -> Trace:
    x: list[str] = []
    y: list[float | None] = []
    hover: list[str] = []
    for before, hour in zip([None, *hours], hours, strict=False):
        if before is not None and hour.hour - before.hour > _HOUR:
            x.append(text.axis_instant(before.hour + _HOUR, where))
            y.append(None)
            hover.append("")
        x.append(text.axis_instant(hour.hour, where))
        y.append(_quantile(hour, name))
        hover.append(_hover(hour, where))
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": x,
        "y": y,
        "connectgaps": False,
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "line": {"color": color, "width": 1.5, "dash": dash},
        "marker": {"color": color, "size": 5, "line": {"width": 0.5, "color": theme.surface}},
    }


def _failures(hours: Sequence[RollupHourOut], where: tzinfo) -> Trace:
    return {
        "type": "bar",
        "name": "failed",
        "yaxis": "y2",
        "x": [text.axis_instant(h.hour, where) for h in hours],
        "y": [h.failed_count for h in hours],
        "width": 3_000_000,
        "hovertext": [_hover(h, where) for h in hours],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": FAILED, "opacity": 0.35, "pattern": {"shape": "x", "size": 6}},
    }


def _quantile(hour: RollupHourOut, name: str) -> float | None:
    measure = hour.measures.get(_DURATION)
    return None if measure is None else float(getattr(measure, name))


def _words(hour: RollupHourOut, name: str) -> str:
    """Return a statistic of the hour's durations, as a lower bound if it is one."""
    measure = hour.measures.get(_DURATION)
    if measure is None:
        return text.MISSING
    value = float(getattr(measure, name))
    return text.bounded(
        text.duration(value), is_lower_bound=is_lower_bound(value, measure.expired_min, measure.exact_max)
    )


def _hover(hour: RollupHourOut, where: tzinfo) -> str:
    reasons = ", ".join(f"{number} {reason.value}" for reason, number in hour.failed_by_reason.items())
    lines = [
        f"<b>{text.instant(hour.hour, where)}</b>, one hour ({_SOURCES[hour.source]})",
        f"{hour.completed_count} completed, {hour.failed_count} failed" + (f" ({reasons})" if reasons else ""),
        ", ".join(f"{name} {text.plain(_words(hour, name))}" for name, _, _ in _LINES),
        *([] if hour.replay_debt_ms is None else [f"a failure at its end replays {text.plain(_debt(hour))}"]),
        text.instant_utc(hour.hour),
    ]
    return "<br>".join(lines)


def _debt(hour: RollupHourOut) -> str:
    return text.bounded(text.duration(hour.replay_debt_ms), is_lower_bound=hour.is_replay_debt_at_least)


_SOURCES = {"rollup": "hourly rollup", "checkpoints": "computed from its checkpoints"}


def _summary(hours: Sequence[RollupHourOut]) -> str:
    completed, failed = sum(h.completed_count for h in hours), sum(h.failed_count for h in hours)
    slowest = max(hours, key=lambda h: _quantile(h, "p95") or 0.0)
    unit = "hour" if len(hours) == 1 else "hours"
    return (
        f"{len(hours)} {unit} with checkpoints: {completed} completed, {failed} failed; the slowest hour began "
        f"{text.instant_utc(slowest.hour)} with a 95th percentile of {_words(slowest, 'p95')}."
    )


def _cell(measure: MeasureRollupOut | None, name: str) -> Cell:
    """Return a statistic for the table. One that is only a lower bound is text that says so."""
    if measure is None:
        return None
    value: float = getattr(measure, name)
    return f"> {value:.15g}" if is_lower_bound(value, measure.expired_min, measure.exact_max) else value


def _table(hours: Sequence[RollupHourOut]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for h in reversed(hours):
        duration = h.measures.get(_DURATION)
        more = [h.measures.get(name) for name in _MORE]
        rows.append(
            (
                h.hour.isoformat(),
                _SOURCES[h.source],
                h.triggered_count,
                h.completed_count,
                h.failed_count,
                *(_cell(duration, name) for name in ("p50", "p95", "p99", "max")),
                *(_cell(m, "p95") for m in more),
                f"> {h.replay_debt_ms}" if h.is_replay_debt_at_least else h.replay_debt_ms,
            )
        )
    return Table(_COLUMNS, tuple(rows))
