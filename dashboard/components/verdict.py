"""Shows a verdict: a headline, one line below it, the vertex, subtasks and phase that it names, and its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import EvidenceOut, VerdictOut
from backend.contracts.causes import CriticalPathOut
from backend.contracts.engines import CapabilitiesOut
from backend.domain.verdict import Health, VerdictKind
from dashboard import routes, text
from dashboard.components import status
from dashboard.components.attributes import attrs
from dashboard.palette import Tone

_OF_QUERIES = (VerdictKind.GROWTH, VerdictKind.SKEW)
"""The verdicts whose pages are about queries of Spark as well."""


def verdict_card(
    verdict: VerdictOut,
    *,
    engine: CapabilitiesOut | None = None,
    tone_of: Health | None = None,
    is_past: bool = False,
    beside: Sequence[Component] = (),
    below: Sequence[Component] = (),
    has_evidence: bool = False,
) -> html.Section:
    """Build the card of a verdict. ``beside`` contains what the page adds to the card, such as effects and links.

    ``is_past`` is whether the job is stale: the verdict was true at its last reading.
    ``below`` contains what leads to the subtask that the verdict names: links out, and buttons.
    """
    tone = Tone.QUIET if is_past else status.verdict_tone(verdict, tone_of)
    chips: list[Component] = [status.kind(verdict, tone, engine)]
    if verdict.vertex:
        chips.append(html.Span(["vertex ", html.B(verdict.vertex)], className="chip chip-name", title=verdict.vertex))
    if verdict.subtasks:
        word = "subtask" if len(verdict.subtasks) == 1 else "subtasks"
        chips.append(html.Span([f"{word} ", html.B(text.subtasks(verdict.subtasks))], className="chip"))
    if verdict.last is not None:
        hint = (
            f"the barrier reached it last in {verdict.last.last_count} of {verdict.last.checkpoint_count} checkpoints"
        )
        chips.append(html.Span(["last ", html.B(str(verdict.last.subtask))], className="chip", title=hint))
    if verdict.hosts:
        hosts = ", ".join(verdict.hosts[:3])
        chips.append(html.Span(["host ", html.B(hosts)], className="chip chip-name", title=hosts))
    if verdict.phase is not None:
        chips.append(status.phase(verdict.phase))
    chips += _more_chips(verdict, engine)
    chips.append(status.confidence(verdict.confidence))
    if engine is None or engine.has_barriers or verdict.kind in _OF_QUERIES:
        # The other pages of causes are about barriers.
        chips.append(dcc.Link("About this verdict", href=routes.cause(verdict.kind), className="hint"))
    then = html.P("At the last reading:", className="hint") if is_past else None
    parts: list[Component | None] = [
        then,
        html.P(verdict.headline or verdict.sentence, className="verdict-sentence"),
        *([] if verdict.detail is None else [html.P(verdict.detail)]),
        html.Div(chips, className="chips"),
    ]
    if verdict.would_decide:
        parts.append(
            html.Div([html.Span("Needed to decide: "), "; ".join(verdict.would_decide)], className="would-decide")
        )
    if beside:
        parts.append(html.Div(list(beside), className="effects"))
    if below:
        parts.append(html.Div(list(below), className="verdict-tools"))
    if has_evidence and verdict.evidence:
        summary = html.Summary(f"Evidence ({len(verdict.evidence)})")
        parts.append(html.Details([summary, evidence_table(verdict)], className="evidence-fold"))
    return html.Section(
        parts, className=f"card verdict edge-{tone}", **attrs({"aria-label": "Verdict", "aria-live": "polite"})
    )


def _more_chips(verdict: VerdictOut, engine: CapabilitiesOut | None) -> list[Component]:
    """Return chips with the share that the cause explains, how often it strikes, and the second cause."""
    more_chips: list[Component] = []
    if verdict.share_ratio is not None:
        hint = "share of the duration that the cause takes by itself (reconstructed)"
        more_chips.append(
            html.Span(["share ", html.B(text.percent(verdict.share_ratio))], className="chip", title=hint)
        )
    often = verdict.intermittence
    if often is not None:
        hint = f"checkpoints that the cause struck, since {text.instant_utc(often.since)}"
        words = f"{often.struck_count} of {often.checkpoint_count}"
        more_chips.append(html.Span(["strikes ", html.B(words)], className="chip", title=hint))
    if verdict.second is not None:
        word = status.kind_word(verdict.second.kind, engine)
        more_chips.append(
            html.Span(["second ", html.B(word)], className="chip chip-name", title=verdict.second.sentence)
        )
    return more_chips


def evidence_table(verdict: VerdictOut) -> Component:
    """Build the table of a verdict's evidence: statements, numbers and their basis."""
    if not verdict.evidence:
        return html.P("There is no evidence.", className="hint")
    head = html.Thead(html.Tr([html.Th("Evidence"), html.Th("Value", className="right")]))
    rows = [
        html.Tr(
            [
                html.Td(e.statement),
                html.Td([_value(e), " ", status.basis(e.basis)], className="right number", title=e.metric),
            ]
        )
        for e in verdict.evidence
    ]
    return html.Table([head, html.Tbody(rows)], className="plain-table evidence")


def _value(evidence: EvidenceOut) -> str:
    # Some statements contain their own number ("last in 11 of 11"), so the column stays empty.
    has_own_number = evidence.value is None and evidence.unit is None
    words = "" if has_own_number else text.evidence_value(evidence.value, evidence.unit, evidence.metric)
    return text.bounded(words, is_lower_bound=evidence.is_lower_bound)


def effects(path: CriticalPathOut | None, duration_ms: int | None, verdict: VerdictOut) -> list[Component]:
    """Return how long the checkpoint would have taken without the delay, and how often its last subtask was last.

    The delay is that of the subtasks that the verdict names. If the verdict names no vertex, the delay is that of the
    last subtask. The delay of any other subtask proves nothing, because that subtask may only have waited.
    """
    if path is None:
        return []
    children: list[Component] = []
    last = f"{text.short(path.last_vertex or text.MISSING, 40)} subtask {path.last_subtask}"
    instead_ms, words = path.without_last_ms, f"Without {last}: "
    if verdict.vertex is not None:
        who = "subtask" if len(verdict.subtasks) == 1 else "subtasks"
        named = f"{text.short(verdict.vertex, 40)} {who} {text.subtasks(verdict.subtasks)}"
        instead_ms, words = path.kept_pace_ms, f"If {named} had kept pace with the others: "
    if instead_ms is not None and duration_ms is not None and path.last_vertex is not None:
        # A verdict that was stored earlier may have a time without the delay that is longer than the duration.
        instead, took = text.duration(min(instead_ms, duration_ms)), text.duration(duration_ms)
        effect: list[Component | str] = [html.B(instead), f" instead of {took} (reconstructed)"]
        if instead == took:
            effect = [f"still {took} (reconstructed)"]
        children.append(html.Span([words, *effect], title=verdict.vertex or path.last_vertex))
    if path.last_in and path.last_vertex is not None:
        children.append(html.Span([f"{last} was ", html.B(path.last_in)], title=path.last_vertex))
    return children
