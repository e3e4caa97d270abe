"""Builds the forms in which changed settings can be copied into what deploys a job."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component

from backend.contracts.advice import ExportOut
from dashboard.components import cards
from dashboard.components.attributes import attrs


def details(exports: Sequence[ExportOut]) -> list[Component]:
    """Build the forms in which changed settings can be copied: closed until the viewer opens them."""
    if not exports:
        return []
    forms = [
        html.Div(
            [
                html.Div(
                    [
                        html.B(export.title),
                        cards.copy_button("Copy", export.text, label=f"Copy the settings as {export.title}"),
                    ],
                    className="export-head",
                ),
                html.Pre(export.text, className="diff", role="group", **attrs({"aria-label": export.title})),
                html.P(export.where, className="hint"),
            ],
            className="export",
        )
        for export in exports
    ]
    words = ", ".join(export.title for export in exports)
    return [html.Details([html.Summary(f"As {words}"), *forms], className="exports")]
