"""The field for the viewer's name, which each page sends with what it changes.

The browser keeps the name (``assets/viewer.js``), so the viewer types it once, and every field of every page contains
it. The name is not verified, because all users share one token.
"""

from __future__ import annotations

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

_TYPE = "viewer-name"
FOR_THE_HISTORY = "Your name for the history (optional, as typed)"


def field(of: str, label: str = FOR_THE_HISTORY) -> Component:
    """Build the field. ``of`` identifies it among the fields of all pages."""
    name = dcc.Input(id={"type": _TYPE, "of": of}, type="text", maxLength=200, autoComplete="username")
    return html.Label([label, name], className="field")


def typed(of: str) -> State:
    """Return Dash's ``State`` that passes the text of the field to a callback."""
    return State({"type": _TYPE, "of": of}, "value")


def given(text: str | None) -> str | None:
    """Return the name in the text of a field; None if there is none."""
    return (text or "").strip() or None


def register(app: Dash) -> None:
    """Register the callback that keeps the name and fills the other fields with it."""
    every = {"type": _TYPE, "of": ALL}
    app.clientside_callback(ClientsideFunction("bs", "viewerName"), Output(every, "value"), Input(every, "value"))
