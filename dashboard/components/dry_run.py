"""Builds what a dry run found: where a change would be sent, and whether it would be refused."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from backend.contracts.advice import DryRunOut
from dashboard.components import cards


def tried(dry_run: DryRunOut) -> Component:
    """Build the result of a dry run in a sentence."""
    where = f"It would be sent to {dry_run.target} ({dry_run.url})."
    if dry_run.is_accepted:
        return html.P(f"{where} The target was asked and accepts it.", className="hint")
    if not dry_run.is_checked:
        where = f"It would not be sent to {dry_run.target} ({dry_run.url})."
    verb = "The target was asked and refuses it" if dry_run.is_checked else "It would be refused"
    return cards.answer(False, f"{where} {verb}: {'; '.join(dry_run.refusals)}.")
