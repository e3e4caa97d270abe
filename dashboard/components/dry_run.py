"""Builds what a dry run found: where a change would be sent, and whether it would be refused."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from backend.contracts.advice import DryRunOut
from dashboard.components import cards


def tried(found: DryRunOut) -> Component:
    """Build the result of a dry run in a sentence."""
    where = f"It would be sent to {found.target} ({found.url})."
    if found.is_accepted:
        return html.P(f"{where} The target was asked and accepts it.", className="hint")
    if not found.is_checked:
        where = f"It would not be sent to {found.target} ({found.url})."
    verb = "The target was asked and refuses it" if found.is_checked else "It would be refused"
    return cards.answer(False, f"{where} {verb}: {'; '.join(found.refusals)}.")
