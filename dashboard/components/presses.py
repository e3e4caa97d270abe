"""Buttons in the rows of a long list.

Dash compares each component whose id is a pattern with every other one of its kind, whenever the list changes. With two
hundred rows, that takes the browser half a minute. These buttons have no id. The script ``clicks.js`` counts their
presses at one hidden element for each kind of button, and notes there which one was pressed.
"""

from __future__ import annotations

from typing import Any

from dash import Input, State, dcc, html
from dash.development.base_component import Component

from dashboard.components.attributes import attrs


def receiver(kind: str) -> Component:
    """Build what a callback listens to for all buttons of a kind. A page has it once."""
    return html.Div([html.Div(id=kind), dcc.Store(id=f"{kind}-pressed")], hidden=True)


def marks(kind: str, of: str, *, label: str, **more: str) -> dict[str, Any]:
    """Return the attributes of a button of a kind that belongs to the row ``of``.

    ``label`` is its name for screen readers. ``more`` are words that the callback gets too.
    """
    return attrs({"aria-label": label, "data-press": kind, "data-of": of} | {f"data-{k}": v for k, v in more.items()})


def inputs(kind: str) -> dict[str, Input]:
    """Return the input ``clicks``: how many times buttons of the kind were pressed."""
    return {"clicks": Input(kind, "n_clicks")}


def state(kind: str) -> dict[str, State]:
    """Return the state ``pressed``: the ``of`` and the further words of the button that was pressed last."""
    return {"pressed": State(f"{kind}-pressed", "data")}
