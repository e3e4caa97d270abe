"""Draws the lines around the marks of the timeline: limits, events, annotations, and changes of the median."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from itertools import groupby

from backend.contracts.annotations import AnnotationOut
from backend.contracts.api import JobEventOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.history import UsualRangeOut
from dashboard import text
from dashboard.figures.base import note
from dashboard.palette import ACKED, ALIGNED, FAILED, Theme

_EVENT_WORDS = {
    "run-started": "run started",
    "run-ended": "run ended",
    "restarted": "restart",
    "configuration-changed": "settings",
    "rescaled": "rescaled",
    "exception": "exception",
    "rows-lost": "rows lost",
    "pod-ended": "pod ended",
    "restored": "restored",
}

_RULES_MAX = 40
_SAID_MAX = 4
# A job that fails again and again has these events over and over.
_OF_RESTARTS = {"run-started", "run-ended", "restarted", "exception", "rows-lost", "pod-ended", "restored"}
_DENSE_MIN_COUNT = 3
# Labels that are closer to each other than this many times ``apart`` overlap on a phone: 17 of 290 pixels.
_WIDTH_OF_APART = 24 / 17
# The size of a letter, of the gap between two labels, and of what the labels may take of the height of the chart.
_CHARACTER_PX, _GAP_PX, _ROOM_PX = 6, 8, 200


def usual_band(usual: UsualRangeOut | None, theme: Theme) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Draw the usual range of durations, if it is known. Its label stands above the chart, where it covers no mark."""
    if usual is None:
        return [], []
    band: dict[str, object] = {
        "type": "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": usual.p10_ms,
        "y1": usual.p90_ms,
        "fillcolor": ALIGNED,
        "opacity": 0.1,
        "line": {"width": 0},
        "layer": "below",
    }
    label = note(
        theme,
        f"usual (shaded): {text.duration(round(usual.p10_ms))} to {text.duration(round(usual.p90_ms))}",
        1,
        1,
        xref="paper",
        yref="paper",
        xanchor="right",
        yanchor="bottom",
        hovertext=f"p10 to p90 of {text.count(usual.checkpoint_count)} completed checkpoints in 7 days"
        f"<br>median {text.duration(round(usual.p50_ms))}; from hourly rollups (reconstructed)",
    )
    return [band], [label]


def annotation_rules(
    annotations: Sequence[AnnotationOut], theme: Theme, where: tzinfo, turned: datetime
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Draw each annotation as a vertical line, or as a band if it lasted for some time, with its text."""
    shapes: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    for annotation in list(annotations)[:_RULES_MAX]:
        at = text.axis_instant(annotation.at_engine, where)
        line: dict[str, object] = {"color": ACKED, "width": 1.5}
        place = {"x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
        shapes.append({"type": "line", "line": line} | place)
        if annotation.until_engine is not None:
            end = text.axis_instant(annotation.until_engine, where)
            fill = {"fillcolor": ACKED, "opacity": 0.12, "line": {"width": 0}}
            shapes.append({"type": "rect"} | place | {"x1": end} | fill)
        said = [f"<b>{text.plain(text.short(annotation.text, 120))}</b>"]
        if annotation.tags or annotation.author:
            by = f"by {annotation.author}" if annotation.author else None
            said.append(text.plain(text.short(", ".join([*annotation.tags, *([by] if by else [])]), 120)))
        labels.append(
            {
                "x": at,
                "y": 0.02,
                "yref": "paper",
                "yanchor": "bottom",
                "xanchor": "right" if annotation.at_engine > turned else "left",
                "showarrow": False,
                "text": text.plain(text.short(annotation.text, 24)),
                "font": {"size": 10, "color": theme.text},
                "textangle": -90,
                "bgcolor": theme.surface,
                "hovertext": "<br>".join(
                    [*said, text.instant(annotation.at_engine, where), text.instant_utc(annotation.at_engine)]
                ),
            }
        )
    return shapes, labels


def limit_lines(
    timeout_ms: int | None, interval_ms: int | None, theme: Theme
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    shapes, labels = [], []
    for value, word, dash in ((timeout_ms, "timeout", "dash"), (interval_ms, "interval", "dot")):
        if not value:
            continue
        color = FAILED if word == "timeout" else theme.muted
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
        # The labels are at opposite ends, because the interval may be close to the timeout.
        x, anchor = (1, "right") if word == "timeout" else (0, "left")
        labels.append(
            note(
                theme,
                f"{word} {text.duration(value)}",
                x,
                value,
                xref="paper",
                xanchor=anchor,
                yanchor="bottom",
                bgcolor=theme.surface,
                # The checkpoints that expired lie on the line, and the newest one of them at its right end.
                yshift=6 if word == "timeout" else 0,
            )
        )
    return shapes, labels


def event_rules(
    events: Sequence[JobEventOut], theme: Theme, where: tzinfo, turned: datetime, apart: timedelta
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Draw the events as vertical lines. Restarts that are closer to each other than ``apart`` share one mark."""
    shapes: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    stack = _Stack(turned, apart * _WIDTH_OF_APART)
    for together in _marked_together(events, apart)[:_RULES_MAX]:
        instant, last = together[0].at, together[-1].at
        at = text.axis_instant(instant, where)
        times = [text.instant_utc(instant)]
        words = list(dict.fromkeys(_EVENT_WORDS[e.kind] for e in together))
        said = [text.plain(text.short(e.text, 120)) for e in together[:_SAID_MAX]]
        if last > instant:
            counts = Counter(_EVENT_WORDS[e.kind] for e in together)
            words = [word if count == 1 else f"{count} × {word}" for word, count in counts.items()]
            said += [f"and {len(together) - _SAID_MAX} more"] if len(together) > _SAID_MAX else []
            times = [f"{text.instant_utc(instant)} to {text.instant_utc(last)}"]
            place = {"x0": at, "x1": text.axis_instant(last, where), "yref": "paper", "y0": 0, "y1": 1}
            fill = {"fillcolor": theme.muted, "opacity": 0.12, "line": {"width": 0}, "layer": "below"}
            shapes.append({"type": "rect"} | place | fill)
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
                "yshift": -stack.place(instant, ", ".join(words)),
                "xanchor": "right" if instant > turned else "left",
                "showarrow": False,
                "text": ", ".join(words),
                "font": {"size": 10, "color": theme.muted},
                "textangle": -90,
                "hovertext": "<br>".join([*said, *times]),
                "bgcolor": theme.surface,
            }
        )
    return shapes, labels


@dataclass(slots=True)
class _Stack:
    """Places labels that are ``width`` wide below one another, if they would overlap. They are read upwards.

    A label stands on the right of its line, and on its left after ``turned``.
    """

    turned: datetime
    width: timedelta
    placed: list[tuple[datetime, int, int]] = field(default_factory=list)
    """Of each label the instant of its left side, its upper end and its lower end in pixels below the top."""

    def place(self, at: datetime, words: str) -> int:
        """Return how many pixels below the top of the chart a label begins."""
        left = at - self.width if at > self.turned else at
        near = [(top, bottom) for other, top, bottom in self.placed if abs(other - left) < self.width]
        length = len(words) * _CHARACTER_PX + _GAP_PX
        free = (
            top
            for top in sorted({0, *(bottom for _, bottom in near)})
            if all(top >= bottom or top + length <= above for above, bottom in near)
        )
        found = next(free)
        if found + length > _ROOM_PX:
            # It overlaps at the top, because lower it would cover the marks of checkpoints. It takes no room from
            # later labels, which may be short enough for what is left.
            return 0
        self.placed.append((left, found, found + length))
        return found


def _marked_together(events: Sequence[JobEventOut], apart: timedelta) -> list[list[JobEventOut]]:
    """Return the events of each mark, oldest first. The marks are in the order of their first events.

    Events at the same instant share one line and one label, because labels on top of each other could not be read. So
    do at least three events of restarts, if each follows the one before within ``apart``.
    """
    ordered = sorted(events, key=lambda e: e.at)
    marks = [
        list(group) for _, group in groupby((e for e in ordered if e.kind not in _OF_RESTARTS), key=lambda e: e.at)
    ]
    run: list[JobEventOut] = []
    runs = [run]
    for event in (e for e in ordered if e.kind in _OF_RESTARTS):
        if run and event.at - run[-1].at > apart:
            run = []
            runs.append(run)
        run.append(event)
    for dense in runs:
        if len(dense) >= _DENSE_MIN_COUNT:
            marks.append(dense)
        else:
            marks += [[e] for e in dense]
    # Marks that begin at one instant share their label too.
    job_events: dict[datetime, list[JobEventOut]] = {}
    for mark in marks:
        job_events.setdefault(mark[0].at, []).extend(mark)
    place = {id(event): n for n, event in enumerate(ordered)}
    return [sorted(mark, key=lambda e: place[id(e)]) for _, mark in sorted(job_events.items())]


def median_steps(
    changes: Sequence[ChangePointOut], since: datetime, theme: Theme, where: tzinfo
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Draw each change: both medians as lines over their checkpoints, the step between them, and a label."""
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
                # The label is lower than the labels of the events, so that it does not cover them.
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
