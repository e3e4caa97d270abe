"""Says on every page that a file or a discovery of targets is wrong, and that its last good list is used instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.status import PartialSourceOut, UnreadSourceOut
from dashboard import routes, text
from dashboard.components import cards, status
from dashboard.components.attributes import attrs

_SOURCES_MAX = 3
_PROBLEM_MAX = 500
# The API says five sentences at most, and each of them is to be read whole.
_LEFT_OUT_MAX = 2_000
# What the error of a file begins with; the head of the message says it already.
_PREFIX = "invalid targets file: "

_AFTERWARDS = "Once the problem is solved, the new list is used within a minute, without a restart."


def banner(sources: Sequence[UnreadSourceOut]) -> list[Component]:
    """Build a message for each of the first sources, and count the others."""
    shown = [_message(source) for source in sources[:_SOURCES_MAX]]
    if len(sources) > _SOURCES_MAX:
        shown.append(html.P(f"{len(sources) - _SOURCES_MAX} more sources of targets are wrong.", className="hint"))
    return shown


def gaps(sources: Sequence[PartialSourceOut]) -> list[Component]:
    """Build a note for each source whose targets are current, but that left out entries or lacks the history."""
    return [
        html.Div(
            [
                status.icon("table"),
                html.Div([html.Strong(f"Targets of {text.short(source.place, 120)}"), *map(html.P, _gaps(source))]),
            ],
            className="message source-note",
            **attrs({"data-source": source.source}),
        )
        for source in sources
    ]


def _gaps(source: PartialSourceOut) -> Iterator[str]:
    if source.left_out is not None:
        yield f"Left out: {text.short(source.left_out, _LEFT_OUT_MAX).rstrip('.')}."
    if source.history_problem is not None:
        problem = text.short(source.history_problem, _PROBLEM_MAX).rstrip(".")
        yield f"The history of the jobs is not read: {problem}. The targets are current."


def _message(source: UnreadSourceOut) -> Component:
    problem = source.problem.removeprefix(_PREFIX).rstrip(".")
    return html.Div(
        [
            status.icon("warning"),
            html.Div(
                [
                    html.Strong(f"The newest list of targets of {text.short(source.place, 120)} is not used"),
                    html.P(f"{text.short(problem, _PROBLEM_MAX)}.", title=problem),
                    html.P([*_kept(source), " ", dcc.Link("What to do", href=routes.runbook("TargetsFileInvalid"))]),
                ]
            ),
        ],
        className="message tone-warn source-note",
        role="status",
        **attrs({"data-source": source.source}),
    )


def _kept(source: UnreadSourceOut) -> list[Component | str]:
    if source.read_at is None:
        return [f"No target of it is read yet. {_AFTERWARDS}"]
    count = text.counted(source.target_count or 0, "target")
    return [
        cards.age(
            f"Barrierscope still reads the {count} of the list that was good last,", source.read_at, is_alarming=False
        ),
        f". {_AFTERWARDS}",
    ]
