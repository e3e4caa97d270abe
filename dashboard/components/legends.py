"""Builds the legends of the charts of one checkpoint: phases, barrier front and space-time diagram."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from backend.domain.verdict import Phase
from dashboard.palette import PHASE_WORDS


def gantt() -> Component:
    """Build the legend of the phase chart."""
    return html.Div(
        [
            *(_swatch(f"phase-{p.value}", PHASE_WORDS[p]) for p in Phase),
            _swatch("state-pending", "not acknowledged"),
            html.Span("◀ first barrier, from a gauge"),
            html.Span("━◆ critical path"),
        ],
        className="legend",
    )


def front(*more: Component) -> Component:
    """Build the legend of the barrier front. ``more`` comes after it."""
    states = (
        ("state-not-reached", "not reached"), ("state-aligning", "aligning"), ("state-snapshotting", "snapshotting"),
        ("state-acked", "acknowledged"), ("state-transit", "barrier in transit"),
    )  # fmt: skip
    return html.Div(
        [
            *(_swatch(name, word) for name, word in states),
            html.Span("line width: queued bytes; thinnest: not reported"),
            *more,
        ],
        className="legend",
    )


def space_time(*more: Component) -> Component:
    """Build the legend of the space-time diagram. ``more`` comes after it."""
    swatches = (
        ("phase-alignment", "channels blocked"), ("st-recorded", "input recorded"), ("phase-sync", "sync"),
        ("phase-async", "async"), ("state-transit", "barrier not received"),
    )  # fmt: skip
    signs = ("→ barrier", "⇢ overtakes data", "▲ switched to unaligned", "◆━◆ cut", "■ acknowledged", "✕ given up")
    return html.Div(
        [*(_swatch(name, word) for name, word in swatches), *(html.Span(sign) for sign in signs), *more],
        className="legend",
    )


def _swatch(name: str, word: str) -> Component:
    return html.Span([html.Span(className=f"swatch {name}"), word])
