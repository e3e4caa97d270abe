"""Says on every page that a file or a discovery of targets is wrong, and that its last good list is used instead."""

from __future__ import annotations

from collections.abc import Sequence

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.status import UnreadSourceOut
from dashboard import routes, text
from dashboard.components import cards, status
from dashboard.components.attributes import attrs

_SOURCES_MAX = 3
_PROBLEM_MAX = 500
# What the error of a file begins with; the head of the message says it already.
_PREFIX = "invalid targets file: "


def banner(sources: Sequence[UnreadSourceOut]) -> list[Component]:
    """Build a message for each of the first sources, and count the others."""
    shown = [_message(source) for source in sources[:_SOURCES_MAX]]
    if len(sources) > _SOURCES_MAX:
        shown.append(html.P(f"{len(sources) - _SOURCES_MAX} more sources of targets are wrong.", className="hint"))
    return shown


def _message(source: UnreadSourceOut) -> Component:
    problem = source.problem.removeprefix(_PREFIX).rstrip(".")
    return html.Div(
        [
            status.icon("warning"),
            html.Div(
                [
                    html.Strong(f"The newest targets of {text.short(source.place, 120)} are not all read"),
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
        return ["No target of it is read yet. Correct it there: it is read within seconds, without a restart."]
    count = text.counted(source.target_count or 0, "target")
    return [
        cards.age(f"The {count} of its last good reading,", source.read_at, is_alarming=False),
        f", {'is' if source.target_count == 1 else 'are'} kept. Correct it there: it is read within seconds.",
    ]
