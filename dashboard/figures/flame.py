"""Draws the sampled stacks of a subtask: a bar for each method, below the bar of the method that calls it.

The width of a bar is the share of the samples in which the method was on the stack. The methods that all samples share
at the top (the main loop of a task) are left out of the chart. The table has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.contracts.inspection import FlameGraphOut, FrameOut
from backend.domain.inspection import StackType
from backend.domain.verdict import Phase
from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, axis, empty, layout
from dashboard.palette import PHASE_COLORS, Theme
from dashboard.stacks import Owner, hottest, owner_of, short

_ROW_PX = 22
_FRAME_PX = 92
_ROWS_MAX = 60
_SHARE_MIN = 0.002
_OWNERS = {
    Owner.JOB: "the job's code",
    Owner.ENGINE: "Flink and its libraries",
    Owner.PLATFORM: "Java",
}
WORDS = {
    StackType.FULL: "all samples",
    StackType.ON_CPU: "on the CPU",
    StackType.OFF_CPU: "waiting",
}
"""The words for the kinds of samples."""
_COLUMNS = ("depth", "method", "called by", "samples", "share of samples (%)")


@dataclass(frozen=True, slots=True)
class _Placed:
    """A method in the tree: its depth from the root, and the number of samples to the left of it."""

    frame: FrameOut
    depth: int
    start: int


def flame_graph(graph: FlameGraphOut, *, theme: Theme) -> Chart:
    """Draw the flame graph, with callers above the methods that they call."""
    if graph.is_sampling:
        return empty(theme, "The engine is sampling the subtask. This takes some seconds.")
    if not graph.sample_count:
        return empty(theme, f"No sample of this subtask counts as {WORDS[graph.type]!r}.")
    placed = _placed(graph.frames)
    stem = _stem(graph.frames)
    shown = [
        p
        for p in placed
        if stem <= p.depth < stem + _ROWS_MAX and p.frame.sample_count >= _SHARE_MIN * graph.sample_count
    ]
    rows = max(p.depth for p in shown) - stem + 1
    height_px = max(200, rows * _ROW_PX + _FRAME_PX)
    traces = [
        _bars(owner, [p for p in shown if owner_of(p.frame.name) is owner], graph, stem, theme) for owner in Owner
    ]
    figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=height_px,
            revision=f"flame{graph.vertex}{graph.subtask}{graph.type}",
            margin={"l": 8, "r": 8, "t": 34, "b": 44},
            showlegend=True,
            barmode="overlay",
            bargap=0.08,
            hovermode="closest",
            uniformtext={"mode": "hide", "minsize": 10},
            xaxis=axis(theme, "share of samples", range=[0, 100], tickvals=[0, 25, 50, 75, 100], ticksuffix=" %"),
            yaxis={"visible": False, "range": [rows - 0.5, -0.5], "fixedrange": True},
        ),
    }
    return Chart(figure, _table(placed, graph), summary(graph), height_px, hints=_hints(graph, placed, stem))


def summary(graph: FlameGraphOut) -> str:
    """Return the flame graph in one sentence: where most samples are."""
    own = hottest(graph.frames)
    if own is None:
        return f"{graph.sample_count} samples; no method of the job's own code is in half of them"
    return f"{_share(own, graph)} of {graph.sample_count} samples are in {own.name}"


def _hints(graph: FlameGraphOut, placed: Sequence[_Placed], stem: int) -> tuple[str, ...]:
    hints = []
    if stem:
        hints.append(f"the {stem} outermost methods are left out, because all samples share them")
    deeper = sum(p.depth >= stem + _ROWS_MAX for p in placed) + graph.left_out_count
    if deeper:
        hints.append(f"{text.count(deeper)} methods are too deep for the chart")
    return tuple(hints)


def _placed(frames: Sequence[FrameOut]) -> list[_Placed]:
    """Place each method below its caller. Of the methods that one method calls, the one with most samples is left."""
    children: dict[int | None, list[int]] = {}
    for number, frame in enumerate(frames):
        children.setdefault(frame.parent, []).append(number)
    places: dict[int, tuple[int, int]] = {}
    for caller, called in children.items():
        # A caller comes before the methods that it calls, so its place is known here.
        depth, start = (-1, 0) if caller is None else places[caller]
        for number in sorted(called, key=lambda n: (-frames[n].sample_count, frames[n].name)):
            places[number] = (depth + 1, start)
            start += frames[number].sample_count
    return [_Placed(frame, *places[number]) for number, frame in enumerate(frames)]


def _stem(frames: Sequence[FrameOut]) -> int:
    """Return the number of outermost methods that all samples share and that are not the job's code."""
    called: dict[int, list[int]] = {}
    for number, frame in enumerate(frames):
        if frame.parent is not None:
            called.setdefault(frame.parent, []).append(number)
    at, depth = 0, 0
    while len(below := called.get(at, [])) == 1:
        following = frames[below[0]]
        if following.sample_count < frames[0].sample_count or owner_of(following.name) is Owner.JOB:
            break
        at, depth = below[0], depth + 1
    # The last of them stays, so that the chart begins with one bar over its whole width.
    return depth


def _bars(owner: Owner, placed: Sequence[_Placed], graph: FlameGraphOut, stem: int, theme: Theme) -> Trace:
    percent = 100 / graph.sample_count
    return {
        "type": "bar",
        "orientation": "h",
        "name": _OWNERS[owner],
        "y": [p.depth - stem for p in placed],
        "x": [p.frame.sample_count * percent for p in placed],
        "base": [p.start * percent for p in placed],
        "text": [text.plain(short(p.frame.name)) for p in placed],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textangle": 0,
        "insidetextfont": {"size": 11, "color": _TEXT[owner] or theme.text},
        "customdata": [
            [text.plain(p.frame.name), text.count(p.frame.sample_count), _share(p.frame, graph)] for p in placed
        ],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]} samples, %{customdata[2]}<extra></extra>",
        "marker": {"color": _color(owner, theme), "line": {"color": theme.surface, "width": 1}},
    }


# The job's bars have one colour in both themes, so their text has one too.
_TEXT: dict[Owner, str | None] = {Owner.JOB: "#1b2330", Owner.ENGINE: None, Owner.PLATFORM: None}


def _color(owner: Owner, theme: Theme) -> str:
    if owner is Owner.JOB:
        return PHASE_COLORS[Phase.ASYNC]
    return theme.unknown if owner is Owner.ENGINE else theme.idle


def _share(frame: FrameOut, graph: FlameGraphOut) -> str:
    return text.percent(frame.sample_count / graph.sample_count)


def _table(placed: Sequence[_Placed], graph: FlameGraphOut) -> Table:
    rows = [
        (
            p.depth,
            p.frame.name,
            None if p.frame.parent is None else graph.frames[p.frame.parent].name,
            p.frame.sample_count,
            round(100 * p.frame.sample_count / graph.sample_count, 1),
        )
        for p in placed
    ]
    return Table(_COLUMNS, tuple(rows))
