"""The verdict: one sentence that names vertex, subtasks, phase and reason, with its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component

from backend.contracts.api import CriticalPathOut, EvidenceOut, VerdictOut
from backend.contracts.engines import CapabilitiesOut
from backend.domain.verdict import Health
from dashboard import text
from dashboard.components import status
from dashboard.components.attributes import attrs


def verdict_card(
    verdict: VerdictOut,
    *,
    engine: CapabilitiesOut | None = None,
    tone_of: Health | None = None,
    beside: Sequence[Component] = (),
    has_evidence: bool = False,
) -> html.Section:
    """The card of a verdict. ``beside`` holds what a page adds, such as effects and links."""
    tone = status.verdict_tone(verdict, tone_of)
    chips: list[Component] = [status.kind(verdict, tone, engine)]
    if verdict.vertex:
        chips.append(html.Span(["vertex ", html.B(verdict.vertex)], className="chip chip-name", title=verdict.vertex))
    if verdict.subtasks:
        word = "subtask" if len(verdict.subtasks) == 1 else "subtasks"
        chips.append(html.Span([f"{word} ", html.B(text.subtasks(verdict.subtasks))], className="chip"))
    if verdict.hosts:
        chips.append(html.Span(["host ", html.B(", ".join(verdict.hosts[:3]))], className="chip chip-name"))
    if verdict.phase is not None:
        chips.append(status.phase(verdict.phase))
    chips.append(status.confidence(verdict.confidence))
    parts: list[Component] = [
        html.P(verdict.sentence, className="verdict-sentence"),
        html.Div(chips, className="chips"),
    ]
    if verdict.would_decide:
        parts.append(
            html.Div([html.Span("Needed to decide: "), "; ".join(verdict.would_decide)], className="would-decide")
        )
    if beside:
        parts.append(html.Div(list(beside), className="effects"))
    if has_evidence and verdict.evidence:
        summary = html.Summary(f"Evidence ({len(verdict.evidence)})")
        parts.append(html.Details([summary, evidence_table(verdict)], className="evidence-fold"))
    return html.Section(
        parts, className=f"card verdict edge-{tone}", **attrs({"aria-label": "Verdict", "aria-live": "polite"})
    )


def evidence_table(verdict: VerdictOut) -> Component:
    """The evidence of a verdict: statements, numbers and their basis."""
    if not verdict.evidence:
        return html.P("There is no evidence.", className="hint")
    head = html.Thead(html.Tr([html.Th("Evidence"), html.Th("Value", className="right"), html.Th("Basis")]))
    rows = [
        html.Tr(
            [
                html.Td(e.statement),
                html.Td(_value(e), className="right number", title=e.metric),
                html.Td(status.basis(e.basis)),
            ]
        )
        for e in verdict.evidence
    ]
    return html.Table([head, html.Tbody(rows)], className="plain-table evidence")


def _value(evidence: EvidenceOut) -> str:
    # Some statements contain their number ("last in 11 of 11").
    has_own_number = evidence.value is None and evidence.unit is None
    return "" if has_own_number else text.evidence_value(evidence.value, evidence.unit)


def effects(path: CriticalPathOut | None, duration_ms: int | None) -> list[Component]:
    """The effect of the last subtask, and how often the same one was last."""
    if path is None:
        return []
    found: list[Component] = []
    if path.without_last_ms is not None and duration_ms is not None and path.last_vertex is not None:
        last = f"{text.short(path.last_vertex, 40)} subtask {path.last_subtask}"
        without, took = text.duration(path.without_last_ms), text.duration(duration_ms)
        effect: list[Component | str] = [html.B(without), f" instead of {took} (reconstructed)"]
        if without == took:
            effect = [f"still {took} (reconstructed)"]
        found.append(html.Span([f"Without {last}: ", *effect]))
    if path.last_in:
        found.append(html.Span(["The same subtask was ", html.B(path.last_in)]))
    return found
