"""V2, the checkpoints of a job over time: trigger, duration, mode and end of each.

x is the trigger time in the viewer's time zone, y the end-to-end duration. A circle is a completed checkpoint, a square
a savepoint, a cross a failed checkpoint, a hollow circle one in progress. The fill shows the mode, the size the
persisted in-flight bytes. A dashed line is the timeout, a dotted one the interval, a vertical one a restart or a change
of settings. A lasting change of the duration is drawn as a step between both medians. Dragging across the chart chooses
a range, which is shaded; marks outside it are faded.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo

from backend.contracts.api import CheckpointOut, JobEventOut
from backend.contracts.changes import ChangePointOut
from dashboard import text
from dashboard.figures.base import Chart, Trace, axis, empty, layout, modebar, ticks_ms
from dashboard.figures.timeline.lines import chosen_band, event_rules, limit_lines, median_steps
from dashboard.figures.timeline.marks import checkpoint_marks, mode_of, shape_of, shown_duration_ms
from dashboard.figures.timeline.words import summary, table
from dashboard.palette import Theme
from dashboard.span import Span

HEIGHT_PX = 380

_WHOLE = Span()


def timeline(
    checkpoints: Sequence[CheckpointOut],
    events: Sequence[JobEventOut],
    changes: Sequence[ChangePointOut] = (),
    *,
    theme: Theme,
    where: tzinfo,
    timeout_ms: int | None,
    interval_ms: int | None,
    now: datetime,
    is_log: bool = False,
    revision: str = "",
    span: Span = _WHOLE,
) -> Chart:
    """The timeline of ``checkpoints``, which are newest first.

    The ``customdata`` of a mark is ``[run id, checkpoint id, trigger time in epoch ms]``. A checkpoint in progress is
    drawn at its duration until ``now``.
    """
    if not checkpoints:
        return empty(theme, "No checkpoint has been seen yet.", height_px=HEIGHT_PX)
    lines = limit_lines(timeout_ms, interval_ms, theme)
    since = min(c.triggered_at for c in checkpoints)
    rules, labels = event_rules([e for e in events if e.at >= since], theme, where)
    brackets = median_steps([c for c in changes if c.at >= since], since, theme, where)
    figure = {
        "data": _traces(checkpoints, theme, where, now, span),
        "layout": layout(
            theme,
            height_px=HEIGHT_PX,
            revision=f"{revision}{is_log}",
            margin={"l": 64, "r": 16, "t": 18, "b": 44},
            xaxis=axis(theme, f"triggered at ({where})", type="date"),
            yaxis=_duration_axis(theme, _longest_ms(checkpoints, timeout_ms, now), is_log=is_log),
            shapes=[*chosen_band(checkpoints, span, theme, where), *lines[0], *rules, *brackets[0]],
            annotations=[*(lines[1] if not is_log else []), *labels, *brackets[1]],
            hovermode="closest",
            dragmode="select",
            # Keep the button that goes back from zooming to choosing a range.
            modebar=modebar(theme),
            selectdirection="h",
            # The chosen range is drawn as a band. Plotly's own box would not follow the ends of the slider.
            selections=[],
            selectionrevision=f"{revision}{span}",
            newselection={"line": {"color": theme.text, "width": 1, "dash": "dot"}},
        ),
    }
    return Chart(figure, table(checkpoints), summary(checkpoints, timeout_ms, changes), HEIGHT_PX)


def _traces(
    checkpoints: Sequence[CheckpointOut], theme: Theme, where: tzinfo, now: datetime, span: Span
) -> list[Trace]:
    """One trace for each shape and mode."""
    groups: dict[tuple[str, str], list[CheckpointOut]] = {}
    for checkpoint in checkpoints:
        groups.setdefault((shape_of(checkpoint), mode_of(checkpoint)), []).append(checkpoint)
    return [
        checkpoint_marks(members, shape, mode, theme, where, now, span)
        for (shape, mode), members in sorted(groups.items())
    ]


def _longest_ms(checkpoints: Sequence[CheckpointOut], timeout_ms: int | None, now: datetime) -> float:
    """The longest duration, or the timeout if that is longer and near. A distant timeout would flatten all marks."""
    longest_ms = max(shown_duration_ms(c, now) for c in checkpoints)
    is_near = timeout_ms is not None and timeout_ms <= 2.5 * longest_ms
    return max(longest_ms, float(timeout_ms)) if is_near and timeout_ms is not None else longest_ms


def _duration_axis(theme: Theme, longest_ms: float, *, is_log: bool) -> dict[str, object]:
    if is_log:
        values = [10**e for e in range(8)]
        return axis(
            theme, "end-to-end duration (log)", type="log", tickvals=values, ticktext=[text.duration(v) for v in values]
        )
    values_ms, labels = ticks_ms(longest_ms * 1.1)
    return axis(
        theme, "end-to-end duration", tickvals=values_ms, ticktext=labels, range=[0, max(1.0, longest_ms * 1.15)]
    )
