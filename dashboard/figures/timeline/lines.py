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
# The width of a label is so many pixels if the chart is 1000 pixels wide.
_WIDTH_OF_LINE = 60
# The size of a letter, of the gap between two labels, and of what the labels may take of the height of the chart.
_CHARACTER_PX, _GAP_PX, _ROOM_PX = 6, 8, 200
# The shortest form of a label. It may be lower than the others, because it covers little.
_ELLIPSIS, _ELLIPSIS_ROOM_PX = "…", 270


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
    events: Sequence[JobEventOut], theme: Theme, where: tzinfo, since: datetime, turned: datetime, apart: timedelta
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Draw the events as vertical lines. Restarts that are closer to each other than ``apart`` share one mark.

    A label that does not fit is shortened, and has all its words where the pointer is over it.
    """
    shapes: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    marks = _marked_together(events, apart)[:_RULES_MAX]
    all_words = [_words_on(together) for together in marks]
    stack = _Stack(since, turned, apart * _WIDTH_OF_APART)
    places = _placed(stack, marks, all_words)
    for together, words, placed in zip(marks, all_words, places, strict=True):
        instant, last = together[0].at, together[-1].at
        at = text.axis_instant(instant, where)
        times = [text.instant_utc(instant)]
        said = [text.plain(text.short(e.text, 120)) for e in together[:_SAID_MAX]]
        if last > instant:
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
        if placed is None:
            continue
        whole = ", ".join(words)
        if placed.words != whole:
            said = [whole, *said]
        labels.append(
            {
                "x": at,
                "y": 1,
                "yref": "paper",
                "yanchor": "top",
                "yshift": -placed.below_px,
                "xanchor": "right" if placed.is_left else "left",
                "showarrow": False,
                "text": placed.words,
                "font": {"size": 10, "color": theme.muted},
                "textangle": -90,
                "hovertext": "<br>".join([*said, *times]),
                "bgcolor": theme.surface,
            }
        )
    return shapes, labels


def _words_on(together: Sequence[JobEventOut]) -> list[str]:
    """Return the words on the label of a mark: one for each kind of event, with a count if the mark has a length."""
    counts = Counter(_EVENT_WORDS[e.kind] for e in together)
    if together[-1].at == together[0].at:
        return list(counts)
    return [word if count == 1 else f"{count} × {word}" for word, count in counts.items()]


@dataclass(frozen=True, slots=True)
class _Placed:
    """What a label says, how many pixels below the top of the chart it begins, and on which side of its line."""

    words: str
    below_px: int
    is_left: bool


@dataclass(slots=True)
class _Stack:
    """Places labels that are ``width`` wide below one another, if they would overlap. They are read upwards.

    A label stands on the right of its line, and on its left after ``turned``. It also stands on the left if there is no
    room on the right, but not before ``since``, where the axis is.
    """

    since: datetime
    turned: datetime
    width: timedelta
    taken: list[tuple[datetime, bool, int, int]] = field(default_factory=list)
    """Of each label its instant, whether it is on the left, and its upper and its lower end in pixels below the top."""

    def place(self, at: datetime, words: str, room_px: int = _ROOM_PX) -> _Placed | None:
        """Place a label, or return None if it would overlap others, or end more than ``room_px`` below the top."""
        length = len(words) * _CHARACTER_PX + _GAP_PX
        for is_left in (False, True):
            if at > self.turned if not is_left else at - self.width < self.since:
                continue
            near = [(top, bottom) for other, side, top, bottom in self.taken if self._meet(at, is_left, other, side)]
            free = (
                top
                for top in sorted({0, *(bottom for _, bottom in near)})
                if all(top >= bottom or top + length <= above for above, bottom in near)
            )
            found = next(free)
            if found + length <= room_px:
                self.taken.append((at, is_left, found, found + length))
                return _Placed(words, found, is_left)
        return None

    def _meet(self, at: datetime, is_left: bool, other: datetime, is_other_left: bool) -> bool:
        """Return whether two labels at these instants, each on the left of its line or not, overlap at some height."""
        if is_left is is_other_left:
            return abs(other - at) < self.width
        # Between the two lines, a label of each overlaps the other. Lines within this distance are drawn as one.
        apart = at - other if is_left else other - at
        return self.width / _WIDTH_OF_LINE < apart < 2 * self.width


def _placed(
    stack: _Stack, marks: Sequence[Sequence[JobEventOut]], all_words: Sequence[Sequence[str]]
) -> list[_Placed | None]:
    """Place the labels of all marks. Those that fit in whole come first, so that a short form takes no room of one.

    None stands for a label without room for any form: its mark is a line only.
    """
    begins = [together[0].at for together in marks]
    places = [stack.place(at, ", ".join(words)) for at, words in zip(begins, all_words, strict=True)]
    for n, (at, together, words) in enumerate(zip(begins, marks, all_words, strict=True)):
        if places[n] is None:
            forms = [f"{len(together)} events"] if len(words) > 1 else []
            # A word with a count and "6 more" would be read as a count of events.
            if len(words) > 1 and together[-1].at == at:
                forms.insert(0, f"{words[0]} and {len(words) - 1} more")
            tried = (stack.place(at, form) for form in forms)
            places[n] = next((p for p in tried if p), None) or stack.place(at, _ELLIPSIS, _ELLIPSIS_ROOM_PX)
    return places


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
