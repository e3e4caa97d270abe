"""Shows what a checkpoint can be restored into: one sentence, a table of uses, and the vertices with in-flight data."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from backend.contracts.restoring import RestoreUseOut, RestoringOut
from dashboard import text
from dashboard.components import cards, status
from dashboard.palette import Tone

_ANSWERS = {
    "yes": ("yes", "check", Tone.GOOD),
    "no": ("no", "cross", Tone.BAD),
    "at own risk": ("at own risk", "warning", Tone.WARN),
    None: ("not known", "question", Tone.QUIET),
}

_QUERIES = {
    True: "Queries that read the state of several operators from it are consistent.",
    False: "It cannot serve consistent queries: some records are in no operator's state, or only in that of some.",
}


def card(restoring: RestoringOut | None) -> Component | None:
    """Build the card that shows what a checkpoint can be restored into.

    Return None if the engine cannot restore a checkpoint that the user chooses.
    """
    if restoring is None:
        return None
    parts: list[Component] = [html.P(restoring.sentence)]
    if restoring.uses:
        head = html.Thead(html.Tr([html.Th("Use"), html.Th("Possible"), html.Th("Notes")]))
        table = html.Table([head, html.Tbody([_row(u) for u in restoring.uses])], className="plain-table")
        parts.append(html.Div(table, className="table-scroll"))
    if restoring.in_flight:
        held = ", ".join(f"{f.vertex} ({text.size(f.persisted_bytes)})" for f in restoring.in_flight)
        parts.append(
            html.P(
                f"The edges of these vertices must stay as they are, because of in-flight data: {held}.",
                className="hint",
            )
        )
    if restoring.is_consistent_for_queries is not None:
        parts.append(html.P(_QUERIES[restoring.is_consistent_for_queries], className="hint"))
    if restoring.location:
        parts.append(html.P(["Location: ", html.Code(restoring.location)], className="hint"))
    parts.append(html.P(f"Source: {restoring.source}.", className="hint"))
    return cards.card("What it can be restored into", parts)


def _row(use: RestoreUseOut) -> Component:
    word, icon, tone = _ANSWERS[use.support]
    return html.Tr([html.Td(use.use), html.Td(status.badge(word, icon, tone)), html.Td(use.note or "")])
