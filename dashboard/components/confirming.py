"""Builds the dialog in which the viewer confirms a change, and registers its callbacks.

The dialog is a part of the page, so it can name what changes and show the change itself, and it has the page's colours.
The callback that opens a dialog returns ``opened(...)``. The callback that makes the change has ``confirmed(name)`` as
its input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from dashboard.components import status, viewer_name
from dashboard.components.attributes import attrs


def dialog(
    name: str,
    title: str,
    word: str,
    *,
    icon: str,
    is_dangerous: bool = False,
    has_guard: bool = False,
    has_name: bool = False,
) -> Component:
    """Build a closed dialog. ``word`` is the text of the button that confirms, and ``icon`` its icon.

    If ``has_guard``, the viewer can ask that the change is rolled back by itself. ``guard`` is the answer.
    If ``has_name``, the dialog has the field for the viewer's name (``viewer_name.typed(name)``).
    """
    tone = "danger" if is_dangerous else "primary"
    buttons = [
        html.Button("Cancel", id=f"{name}-cancel", type="button", className="button"),
        html.Button(
            [status.icon(icon), html.Span(word)], id=f"{name}-confirm", type="button", className=f"button {tone}"
        ),
    ]
    modal = dmc.Modal(
        [
            html.Div(id=f"{name}-question"),
            *(_guard(name) if has_guard else []),
            *([viewer_name.field(name)] if has_name else []),
            html.Div(buttons, className="dialog-buttons"),
        ],
        id=f"{name}-dialog",
        title=title,
        opened=False,
        centered=True,
        size="lg",
        transitionProps={"duration": 0},
        closeButtonProps={"aria-label": "Close"},
    )
    busy = html.Div(id=f"{name}-busy", className="busy", role="status", **attrs({"aria-live": "polite"}))
    return html.Div([modal, busy, dcc.Store(id=f"{name}-subject")])


def _guard(name: str) -> list[Component]:
    label = "Roll it back by itself if the checkpoints are worse after it"
    worse = (
        "Worse: they take clearly longer than before, by more than 10 %, and longer than predicted, or clearly more of "
        "them expire. Durations are judged when 10 and 20 checkpoints have ended, expired ones after 5 already."
    )
    return [
        dmc.Checkbox(id=f"{name}-guard", label=label, checked=False, size="md", className="dialog-guard"),
        html.P(worse, className="hint"),
    ]


def guard(name: str) -> State:
    """Return the state that is true if the viewer asked for a guard."""
    return State(f"{name}-guard", "checked")


def busy(name: str, words: str) -> tuple[Output, str, str]:
    """Return an entry of ``running`` that shows ``words`` from the press of a button until its answer is there."""
    return Output(f"{name}-busy", "children"), words, ""


def outputs(name: str) -> dict[str, Output]:
    """Return the outputs of the callback that opens the dialog, for which ``opened`` returns the values."""
    return {
        "is_open": Output(f"{name}-dialog", "opened", allow_duplicate=True),
        "question": Output(f"{name}-question", "children"),
        "subject": Output(f"{name}-subject", "data"),
    }


def opened(subject: str | Mapping[str, Any], question: Sequence[Component]) -> dict[str, Any]:
    """Return the values that open the dialog with ``question``. ``subject`` identifies what would change."""
    return {"is_open": True, "question": list(question), "subject": subject}


def confirmed(name: str) -> Input:
    """Return the input that counts how often the viewer confirmed."""
    return Input(f"{name}-confirm", "n_clicks")


def register(app: Dash, name: str) -> None:
    """Register the callback that closes the dialog when one of its buttons is pressed."""
    app.clientside_callback(
        ClientsideFunction("bs", "closeDialog"),
        Output(f"{name}-dialog", "opened", allow_duplicate=True),
        Input(f"{name}-cancel", "n_clicks"),
        Input(f"{name}-confirm", "n_clicks"),
        prevent_initial_call=True,
    )
