"""V2: draws the checkpoints of a job over time, with the trigger, duration, mode and result of each.

The x axis is the trigger time in the viewer's time zone, the y axis the end-to-end duration. A circle is a completed
checkpoint, a square a savepoint, a cross a failed checkpoint, and a hollow circle one in progress. The fill shows the
mode, and the size shows the persisted in-flight bytes.

Failed checkpoints are orange. Many failures in a row merge into a band with their count. If a few durations are far
longer than the others, the axis ends below them, and a text states how many are above it.

A dashed line is the timeout, a dotted line the interval, and a vertical line a restart or a change of settings. A
lasting change of the duration is drawn as a step from the median before it to the median after it. A shaded band is the
usual range of durations. Annotations are vertical lines with their text. Dragging across the chart zooms in.

A range with many checkpoints is drawn in steps, with one value for each hour or longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo

from backend.contracts.annotations import AnnotationOut
from backend.contracts.api import CheckpointOut, JobEventOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.history import HistoryOut, UsualRangeOut
from dashboard import text
from dashboard.figures.base import LEGEND, Chart, Trace, axis, empty, layout, modebar, note, ticks_ms, whole_step
from dashboard.figures.scaling import ABOVE_RATIO, usual_largest
from dashboard.figures.timeline.failures import failure_bands, failures_in_a_row
from dashboard.figures.timeline.lines import annotation_rules, event_rules, limit_lines, median_steps, usual_band
from dashboard.figures.timeline.marks import checkpoint_marks, mode_of, shape_of, shown_duration_ms
from dashboard.figures.timeline.steps import failed_max, step_summary, step_table, step_traces
from dashboard.figures.timeline.steps import longest_ms as longest_step_ms
from dashboard.figures.timeline.words import summary, table
from dashboard.palette import Theme

HEIGHT_PX = 380
# The margin over the chart has room for a label below Plotly's buttons, which appear if the pointer is over the chart.
_UNDER_BUTTONS_PX = 42
# A legend at this share of the chart's height leaves room for a label below it.
_ABOVE_LABEL = 1.08
# The words on checkpoints above the axis stand here. If there are any, the upright labels of events hang from here.
_ABOVE_Y = 0.93
_UPRIGHT = -90


@dataclass(frozen=True, slots=True)
class Around:
    """What is drawn around the checkpoints. ``since`` and ``until`` are the limits of the time axis, if it has any."""

    events: Sequence[JobEventOut] = ()
    annotations: Sequence[AnnotationOut] = ()
    usual: UsualRangeOut | None = None
    since: datetime | None = None
    until: datetime | None = None
    changes: Sequence[ChangePointOut] = field(default=())


def timeline(
    checkpoints: Sequence[CheckpointOut],
    around: Around,
    *,
    theme: Theme,
    where: tzinfo,
    timeout_ms: int | None,
    interval_ms: int | None,
    now: datetime,
    is_log: bool = False,
    revision: str = "",
    axis_ms: float = 0.0,
) -> Chart:
    """Draw the timeline of ``checkpoints``, which are newest first.

    The ``customdata`` of a mark is ``[run id, checkpoint id, trigger time in epoch ms]``. A checkpoint in progress is
    drawn with the time from its trigger to ``now`` as its duration. The axis of durations goes at least to ``axis_ms``.
    """
    if not checkpoints:
        words = "No checkpoint has been seen yet." if around.since is None else "There is no checkpoint in this range."
        return empty(theme, words, height_px=HEIGHT_PX)
    longest_ms = max(axis_ms, longest_shown_ms(checkpoints, timeout_ms, now))
    since = around.since or min(c.triggered_at for c in checkpoints)
    brackets = median_steps([c for c in around.changes if c.at >= since], since, theme, where)
    until = around.until or max(c.triggered_at for c in checkpoints)
    shapes, labels = _lines(around, since, until, timeout_ms, interval_ms, theme, where, is_log=is_log)
    rows = failures_in_a_row(checkpoints)
    bands = failure_bands(rows, theme, where, now)
    most_ms = None if is_log else longest_ms * ABOVE_RATIO
    if above := _above(checkpoints, most_ms, theme, now):
        labels = [label | {"y": _ABOVE_Y} if label.get("textangle") == _UPRIGHT else label for label in labels]
    more = {
        "shapes": [*bands[0], *shapes, *brackets[0]],
        "annotations": [*labels, *brackets[1], *bands[1], *above],
    }
    figure = {
        "data": _traces(checkpoints, theme, where, now, most_ms, [c for row in rows for c in row]),
        "layout": _layout(around, theme, where, longest_ms, is_log=is_log, revision=revision) | more,
    }
    return Chart(figure, table(checkpoints), summary(checkpoints, timeout_ms, around.changes), HEIGHT_PX)


def timeline_in_steps(
    history: HistoryOut,
    around: Around,
    *,
    theme: Theme,
    where: tzinfo,
    timeout_ms: int | None,
    interval_ms: int | None,
    is_log: bool = False,
    revision: str = "",
) -> Chart:
    """Draw a range that has many checkpoints, in steps. Dragging across the chart chooses whole steps."""
    if not history.points:
        return empty(theme, "There is no checkpoint in this range.", height_px=HEIGHT_PX)
    longest_ms = longest_step_ms(history)
    since = around.since or history.points[-1].at
    until = around.until or history.until
    shapes, labels = _lines(around, since, until, timeout_ms, interval_ms, theme, where, is_log=is_log)
    most = max(4, 3 * failed_max(history))
    base = _layout(around, theme, where, longest_ms, is_log=is_log, revision=revision)
    more = {
        "margin": {"l": 64, "r": 56, "t": 30, "b": 44},
        "showlegend": True,
        # The label of the usual range stands between the chart and the legend.
        "legend": {
            **LEGEND,
            "font": {"size": 11, "color": theme.muted},
            "y": 1.02 if around.usual is None else _ABOVE_LABEL,
        },
        "yaxis2": axis(
            theme, "failed", overlaying="y", side="right", showgrid=False, range=[0, most], dtick=whole_step(most)
        ),
        "shapes": shapes,
        "annotations": labels,
    }
    figure = {"data": step_traces(history, theme, where), "layout": base | more}
    return Chart(figure, step_table(history), step_summary(history), HEIGHT_PX)


def _lines(
    around: Around,
    since: datetime,
    until: datetime,
    timeout_ms: int | None,
    interval_ms: int | None,
    theme: Theme,
    where: tzinfo,
    *,
    is_log: bool,
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the lines and bands around the checkpoints, and their labels."""
    limits = limit_lines(timeout_ms, interval_ms, theme)
    usual = usual_band(around.usual, theme)
    # The labels of the last lines stand on their left, because there is no room on their right.
    turned = until - (until - since) / 12
    # Labels that are closer than this overlap on a phone.
    apart = (until - since) / 24
    rules = event_rules(
        [e for e in around.events if _is_within(e.at, since, around.until)], theme, where, since, turned, apart
    )
    notes = annotation_rules(
        [a for a in around.annotations if _is_within(a.until_engine or a.at_engine, since, around.until)],
        theme,
        where,
        turned,
    )
    # On a logarithmic axis, the position of a label would be the logarithm of its value.
    beside = [*([] if is_log else limits[1]), *usual[1]]
    return [*usual[0], *limits[0], *rules[0], *notes[0]], [*beside, *rules[1], *notes[1]]


def _is_within(at: datetime, since: datetime, until: datetime | None) -> bool:
    return at >= since and (until is None or at <= until)


def _layout(
    around: Around, theme: Theme, where: tzinfo, longest_ms: float, *, is_log: bool, revision: str
) -> dict[str, object]:
    ends = around.since, around.until
    limits: dict[str, object] = {}
    if ends[0] is not None and ends[1] is not None:
        # Marks at the ends are drawn in full.
        margin = max((ends[1] - ends[0]) / 100, timedelta(milliseconds=10))
        limits["range"] = [text.axis_instant(ends[0] - margin, where), text.axis_instant(ends[1] + margin, where)]
    return layout(
        theme,
        height_px=HEIGHT_PX,
        revision=f"{revision}{is_log}{ends}",
        margin={"l": 64, "r": 16, "t": 18 if around.usual is None else _UNDER_BUTTONS_PX, "b": 56},
        xaxis=axis(theme, f"triggered at ({where})", type="date", **limits),
        yaxis=_duration_axis(theme, longest_ms, is_log=is_log),
        hovermode="closest",
        dragmode="select",
        # Unlike other figures, this one shows the selection button, so that a range can be chosen again after zooming.
        modebar=modebar(theme),
        selectdirection="h",
        selections=[],
        selectionrevision=f"{revision}{ends}",
        newselection={"line": {"color": theme.text, "width": 1, "dash": "dot"}},
    )


def _traces(
    checkpoints: Sequence[CheckpointOut],
    theme: Theme,
    where: tzinfo,
    now: datetime,
    most_ms: float | None,
    merged: Sequence[CheckpointOut],
) -> list[Trace]:
    """Return the marks as one trace for each combination of shape and mode.

    A mark higher than ``most_ms`` is drawn at that height. The marks of ``merged`` are small, because a band stands
    for them.
    """
    small = frozenset((c.run_id, c.checkpoint_id) for c in merged)
    groups: dict[tuple[str, str], list[CheckpointOut]] = {}
    for checkpoint in checkpoints:
        groups.setdefault((shape_of(checkpoint), mode_of(checkpoint)), []).append(checkpoint)
    return [
        checkpoint_marks(members, shape, mode, theme, where, now, most_ms, small)
        for (shape, mode), members in sorted(groups.items())
    ]


def longest_shown_ms(checkpoints: Sequence[CheckpointOut], timeout_ms: int | None, now: datetime) -> float:
    """Return the longest duration, or the timeout if it is longer, but not much longer.

    On an axis up to a much longer timeout, all marks would be near zero. An open checkpoint counts only if no other one
    is known, so that it does not stretch the axis.
    """
    ended = [c for c in checkpoints if c.status.is_terminal] or checkpoints
    longest_ms = usual_largest([shown_duration_ms(c, now) for c in ended])
    is_near = timeout_ms is not None and timeout_ms <= 2.5 * longest_ms
    return max(longest_ms, float(timeout_ms)) if is_near and timeout_ms is not None else longest_ms


def _above(
    checkpoints: Sequence[CheckpointOut], most_ms: float | None, theme: Theme, now: datetime
) -> list[dict[str, object]]:
    """Return a text with the number of ended checkpoints that are above the axis, or nothing if all are within it."""
    if most_ms is None:
        return []
    above = [d for c in checkpoints if c.status.is_terminal and (d := shown_duration_ms(c, now)) > most_ms]
    if not above:
        return []
    words = f"{len(above)} above, up to {text.duration(max(above))}: see the log scale"
    place = {"xref": "paper", "yref": "paper", "xanchor": "center", "yanchor": "bottom", "bgcolor": theme.surface}
    return [note(theme, words, 0.5, _ABOVE_Y, **place)]


def _duration_axis(theme: Theme, longest_ms: float, *, is_log: bool) -> dict[str, object]:
    if is_log:
        values = [10**e for e in range(8)]
        return axis(
            theme, "end-to-end duration (log)", type="log", tickvals=values, ticktext=[text.duration(v) for v in values]
        )
    values_ms, labels = ticks_ms(longest_ms * 1.1)
    return axis(
        theme,
        "end-to-end duration",
        tickvals=values_ms,
        ticktext=labels,
        range=[0, max(1.0, longest_ms * ABOVE_RATIO)],
    )
