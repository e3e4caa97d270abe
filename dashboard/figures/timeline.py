"""V2, a job's checkpoints over time: when triggered, how long, in which mode and how each ended.

x is the trigger time in the viewer's zone, y the end-to-end duration. Circle completed, square savepoint, cross failed,
hollow in progress; the fill is the mode, the size the persisted in-flight bytes. A dashed line stands at the timeout, a
dotted one at the interval, vertical rules at restarts and changes of settings; where durations changed for good, both
medians stand beside the step between them. Dragging across the chart chooses a
range: it is shaded, and marks outside it fade.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, tzinfo
from itertools import groupby

from backend.contracts.api import CheckpointOut, JobEventOut
from backend.contracts.changes import ChangePointOut
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, axis, empty, layout, modebar, note, ticks_ms
from dashboard.palette import ALIGNED, STATUS_WORDS, UNALIGNED, Theme
from dashboard.span import Span, epoch_ms

HEIGHT_PX = 380
_COLUMNS = (
    "checkpoint",
    "run",
    "kind",
    "status",
    "mode",
    "triggered (UTC)",
    "duration (ms)",
    "acknowledged",
    "subtasks",
    "start delay max (ms)",
    "alignment max (ms)",
    "sync max (ms)",
    "async max (ms)",
    "checkpointed size (bytes)",
    "full state size (bytes)",
    "persisted in-flight (bytes)",
    "failure",
)
# What a micro-batch does not have: a column of nothing would look like a value that was not reported.
_OF_BARRIERS = frozenset(_COLUMNS[7:13]) | {"mode", "checkpointed size (bytes)", "persisted in-flight (bytes)"}
_EVENT_WORDS = {
    "run-started": "run started",
    "run-ended": "run ended",
    "restarted": "restart",
    "configuration-changed": "settings",
    "rescaled": "rescaled",
    "exception": "exception",
}


_RULES_MAX = 40
_WHOLE = Span()
_FADED = 0.22


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
    """The chart of a job's checkpoints, newest first as the API lists them.

    ``customdata`` of a mark is ``[run id, checkpoint id, trigger time in epoch ms]``. One in progress stands at the
    time it has taken so far.
    """
    if not checkpoints:
        return empty(theme, "No checkpoint has been seen yet.", height_px=HEIGHT_PX)
    groups: dict[tuple[str, str], list[CheckpointOut]] = {}
    for checkpoint in checkpoints:
        groups.setdefault((_shape(checkpoint), _mode(checkpoint)), []).append(checkpoint)
    traces = [
        _marks(members, shape, mode, theme, where, now, span) for (shape, mode), members in sorted(groups.items())
    ]
    lines = _lines(timeout_ms, interval_ms, theme)
    since = min(c.triggered_at for c in checkpoints)
    rules, labels = _rules([e for e in events if e.at >= since], theme, where)
    brackets = _brackets([c for c in changes if c.at >= since], since, theme, where)
    longest_ms = max(_duration(c, now) for c in checkpoints)
    # A timeout of ten minutes over checkpoints of one second would flatten every mark.
    if timeout_ms is not None and timeout_ms <= 2.5 * longest_ms:
        longest_ms = max(longest_ms, float(timeout_ms))
    figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=HEIGHT_PX,
            revision=f"{revision}{is_log}",
            margin={"l": 64, "r": 16, "t": 18, "b": 44},
            xaxis=axis(theme, f"triggered at ({where})", type="date"),
            yaxis=_duration_axis(theme, longest_ms, is_log=is_log),
            shapes=[*_band(checkpoints, span, theme, where), *lines[0], *rules, *brackets[0]],
            annotations=[*(lines[1] if not is_log else []), *labels, *brackets[1]],
            hovermode="closest",
            dragmode="select",
            # Back to choosing a range after zooming.
            modebar=modebar(theme),
            selectdirection="h",
            # What is chosen is drawn as a band: Plotly's own box would stay behind when the ends are moved.
            selections=[],
            selectionrevision=f"{revision}{span}",
            newselection={"line": {"color": theme.text, "width": 1, "dash": "dot"}},
        ),
    }
    return Chart(figure, _table(checkpoints), _summary(checkpoints, timeout_ms, changes), HEIGHT_PX)


def _shape(checkpoint: CheckpointOut) -> str:
    if checkpoint.status is CheckpointStatus.FAILED:
        return "failed"
    if checkpoint.status is CheckpointStatus.IN_PROGRESS:
        return "end not seen" if checkpoint.is_lost else "in progress"
    return "completed" if checkpoint.kind is CheckpointKind.CHECKPOINT else "savepoint"


def _state(checkpoint: CheckpointOut) -> str:
    return "end not seen" if checkpoint.is_lost else STATUS_WORDS[checkpoint.status]


def _is_micro_batch(checkpoint: CheckpointOut) -> bool:
    # It has no subtasks to wait for, and no barriers: so no mode, nothing aligned, nothing in flight.
    return checkpoint.subtask_count is None


def _mode(checkpoint: CheckpointOut) -> str:
    return _MICRO_BATCH if _is_micro_batch(checkpoint) else checkpoint.mode or "mode not reported"


_SYMBOLS = {
    "completed": "circle",
    "savepoint": "square",
    "failed": "x",
    "in progress": "circle-open",
    "end not seen": "circle-cross-open",
}
_MICRO_BATCH = "micro-batch"
_COLORS = {"aligned": ALIGNED, "unaligned": UNALIGNED, _MICRO_BATCH: ALIGNED}


def _duration(checkpoint: CheckpointOut, now: datetime) -> float:
    if checkpoint.end_to_end_duration_ms is not None:
        return float(checkpoint.end_to_end_duration_ms)
    if checkpoint.failed_at is not None:
        # It ended then, whenever it began.
        now = checkpoint.failed_at
    elif checkpoint.is_lost:
        # As far as it was seen.
        now = checkpoint.latest_ack_at or checkpoint.triggered_at
    return max(0.0, (now - checkpoint.triggered_at).total_seconds() * 1000)


def _marks(
    members: Sequence[CheckpointOut], shape: str, mode: str, theme: Theme, where: tzinfo, now: datetime, span: Span
) -> Trace:
    color = _COLORS.get(mode, theme.unknown)
    is_open = shape in ("in progress", "end not seen")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{shape}, {mode}",
        "x": [text.axis_instant(c.triggered_at, where) for c in members],
        "y": [_duration(c, now) for c in members],
        "customdata": [[c.run_id, c.checkpoint_id, epoch_ms(c.triggered_at)] for c in members],
        "hovertext": [_hover(c, where, now) for c in members],
        "hovertemplate": "%{hovertext}<extra></extra>",
        # One that took next to no time is seen whole.
        "cliponaxis": False,
        "marker": {
            "symbol": _SYMBOLS[shape],
            "color": color,
            "size": [_size(c) for c in members],
            # Plotly fades marks of differing sizes unless told not to.
            "opacity": [1 if span.holds(c.triggered_at) else _FADED for c in members],
            "line": {"width": 2, "color": color} if is_open else {"width": 0.5, "color": theme.surface},
        },
    }


def _size(checkpoint: CheckpointOut) -> float:
    persisted = checkpoint.persisted_bytes or 0
    return 9.0 if persisted <= 0 else min(24.0, 9.0 + 1.6 * math.log2(1 + persisted / 65_536))


def _barrier_lines(c: CheckpointOut) -> list[str]:
    if _is_micro_batch(c):
        return []
    return [
        f"acknowledged {c.acknowledged_count} of {c.subtask_count}",
        f"start delay up to {text.duration(c.start_delay_max_ms)}, alignment up to {text.duration(c.alignment_max_ms)}",
        f"persisted in-flight {text.size(c.persisted_bytes)}",
    ]


def _how_known(c: CheckpointOut) -> str:
    if c.end_to_end_duration_ms is not None:
        return " (measured)"
    # Of a micro-batch that failed neither trigger nor duration is told: it ended so long after the one before it.
    return " at most (reconstructed)" if c.failed_at is not None and _is_micro_batch(c) else " so far (measured)"


def _hover(checkpoint: CheckpointOut, where: tzinfo, now: datetime) -> str:
    c = checkpoint
    lines = [
        f"<b>{c.kind.value} {c.checkpoint_id}</b> {_state(c)}, {_mode(c)}",
        f"{text.duration(_duration(c, now))}{_how_known(c)}",
        *_barrier_lines(c),
        f"{text.instant(c.triggered_at, where)} ({text.instant_utc(c.triggered_at)})",
    ]
    if c.failure_message or c.failure_reason:
        reason = c.failure_reason.value if c.failure_reason else ""
        lines.insert(2, text.plain(text.short(c.failure_message or reason, 80)))
    return "<br>".join(lines)


def _band(checkpoints: Sequence[CheckpointOut], span: Span, theme: Theme, where: tzinfo) -> list[dict[str, object]]:
    if span.is_whole:
        return []
    since = span.since or min(c.triggered_at for c in checkpoints)
    until = span.until or max(c.triggered_at for c in checkpoints)
    band: dict[str, object] = {
        "type": "rect",
        "x0": text.axis_instant(since, where),
        "x1": text.axis_instant(until, where),
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "fillcolor": ALIGNED,
        "opacity": 0.1,
        "line": {"color": theme.text, "width": 1},
        "layer": "below",
    }
    return [band]


def _lines(
    timeout_ms: int | None, interval_ms: int | None, theme: Theme
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    shapes, labels = [], []
    for value, word, dash in ((timeout_ms, "timeout", "dash"), (interval_ms, "interval", "dot")):
        if not value:
            continue
        color = UNALIGNED if word == "timeout" else theme.muted
        shapes.append(
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": value,
                "y1": value,
                "line": {"color": color, "width": 1.5 if word == "timeout" else 1, "dash": dash},
                "layer": "below",
            }
        )
        # One at each end: an interval near the timeout would be written over it.
        x, anchor = (1, "right") if word == "timeout" else (0, "left")
        labels.append(
            note(theme, f"{word} {text.duration(value)}", x, value, xref="paper", xanchor=anchor, yanchor="bottom")
        )
    return shapes, labels


def _rules(
    events: Sequence[JobEventOut], theme: Theme, where: tzinfo
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    shapes: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    # What was seen at once is one rule with all of its words: drawn over one another none can be read.
    for instant, group in groupby(list(events)[:_RULES_MAX], key=lambda e: e.at):
        told = list(group)
        at = text.axis_instant(instant, where)
        words = list(dict.fromkeys(_EVENT_WORDS[e.kind] for e in told))
        said = [text.plain(text.short(e.text, 120)) for e in told]
        shapes.append(
            {
                "type": "line",
                "x0": at,
                "x1": at,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": theme.muted, "width": 1, "dash": "dashdot"},
                "layer": "below",
            }
        )
        labels.append(
            {
                "x": at,
                "y": 1,
                "yref": "paper",
                "yanchor": "top",
                "xanchor": "left",
                "showarrow": False,
                "text": ", ".join(words),
                "font": {"size": 10, "color": theme.muted},
                "textangle": -90,
                "hovertext": "<br>".join([*said, text.instant_utc(instant)]),
                "bgcolor": theme.surface,
            }
        )
    return shapes, labels


def _brackets(
    changes: Sequence[ChangePointOut], since: datetime, theme: Theme, where: tzinfo
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Of each change both medians as lines over what they are of, the step between them, and its words."""
    shapes: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    for change in changes:
        begin, at, end = (
            text.axis_instant(i, where) for i in (max(change.before_since, since), change.at, change.after_until)
        )
        before, after = change.before_median_ms, change.after_median_ms
        for x0, y0, x1, y1 in ((begin, before, at, before), (at, before, at, after), (at, after, end, after)):
            line = {"color": theme.text, "width": 2}
            shapes.append({"type": "line", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "line": line})
        labels.append(
            {
                "x": at,
                # Below the words of the rules.
                "y": 0.8,
                "yref": "paper",
                "xanchor": "right",
                "showarrow": False,
                "text": f"median {_median(before, is_least=change.is_before_at_least)} → "
                f"{_median(after, is_least=change.is_after_at_least)} at {change.at.astimezone(where):%H:%M}",
                "font": {"size": 11, "color": theme.text},
                "bgcolor": theme.surface,
                "bordercolor": theme.muted,
                "borderpad": 2,
                "hovertext": f"{change.sentence} (reconstructed)<br>{text.instant_utc(change.at)}",
            }
        )
    return shapes, labels


def _median(value_ms: int, *, is_least: bool) -> str:
    return f"{'at least ' if is_least else ''}{text.duration(value_ms)}"


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


def _summary(checkpoints: Sequence[CheckpointOut], timeout_ms: int | None, changes: Sequence[ChangePointOut]) -> str:
    done = [c for c in checkpoints if c.status is CheckpointStatus.COMPLETED]
    failed = [c for c in checkpoints if c.status is CheckpointStatus.FAILED]
    durations = sorted(c.end_to_end_duration_ms for c in done if c.end_to_end_duration_ms is not None)
    middle = durations[len(durations) // 2] if durations else None
    return (
        f"{len(checkpoints)} checkpoints: {len(done)} completed (median {text.duration(middle)}, longest "
        f"{text.duration(durations[-1] if durations else None)}), {len(failed)} failed; "
        f"timeout {text.duration(timeout_ms)}." + "".join(f" {c.sentence}" for c in changes)
    )


def _table(checkpoints: Sequence[CheckpointOut]) -> Table:
    rows = tuple(
        (
            c.checkpoint_id, c.run_id, c.kind.value, _state(c), c.mode, c.triggered_at.isoformat(),
            c.end_to_end_duration_ms, c.acknowledged_count, c.subtask_count, c.start_delay_max_ms, c.alignment_max_ms,
            c.sync_max_ms, c.async_max_ms, c.checkpointed_size_bytes, c.full_state_size_bytes, c.persisted_bytes,
            c.failure_message or (c.failure_reason.value if c.failure_reason else None),
        )
        for c in checkpoints
    )  # fmt: skip
    if not all(_is_micro_batch(c) for c in checkpoints):
        return Table(_COLUMNS, rows)
    kept = [i for i, column in enumerate(_COLUMNS) if column not in _OF_BARRIERS]
    return Table(tuple(_COLUMNS[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows))
