"""The dialog on the page of the targets in which a viewer edits the links that are offered for a target's jobs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.api import TargetPatch
from backend.contracts.links import LINKS_MAX
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from backend.domain.links import PLACEHOLDERS, TEMPLATE_MAX
from backend.domain.text import capitalised
from dashboard.callbacks import Changes, connect, pressed_id
from dashboard.client import ApiClient
from dashboard.components import cards, presses, status
from dashboard.components.attributes import attrs

_BUTTON = "target-links"
_ABOUT = (
    "Each link is offered next to the subtask that a verdict names, on the page of the job, and on that of an incident."
    " A link whose placeholder has no value is left out."
)
_EXAMPLE = "https://grafana.example/d/tm?var-tm={taskmanager}&from={from}&to={to}"


def dialog() -> Component:
    """Build the closed dialog."""
    body = [
        html.P(_ABOUT, className="hint"),
        html.Label(
            [
                "Address of the engine's web UI in a browser (optional)",
                dcc.Input(id="links-ui", type="text", value="", maxLength=TEMPLATE_MAX, autoComplete="off"),
            ],
            className="field",
        ),
        html.Div(id="links-rows", children=[]),
        html.Button([status.icon("plus"), html.Span("Add a link")], id="links-more", type="button", className="button"),
        _help(),
        html.Div(id="links-answer", **attrs({"aria-live": "polite"})),
        html.Div(
            [
                html.Button("Cancel", id="links-cancel", type="button", className="button"),
                html.Button(
                    [status.icon("check"), html.Span("Save")],
                    id="links-save",
                    type="button",
                    className="button primary",
                ),
            ],
            className="dialog-buttons",
        ),
    ]
    modal = dmc.Modal(
        body,
        id="links-dialog",
        title="Links out",
        opened=False,
        centered=True,
        size="xl",
        transitionProps={"duration": 0},
        closeButtonProps={"aria-label": "Close"},
    )
    return html.Div([modal, dcc.Store(id="links-subject"), dcc.Store(id="links-version"), presses.receiver(_BUTTON)])


def _help() -> Component:
    known = [(f"{{{name}}}", meaning) for name, meaning in PLACEHOLDERS.items()]
    known.append(("{label:KEY}", "the target's label KEY"))
    rows = [html.Tr([html.Td(html.Code(name)), html.Td(meaning)]) for name, meaning in known]
    return html.Details(
        [html.Summary("Placeholders"), html.Table(html.Tbody(rows), className="plain-table placeholders")],
        className="links-help",
    )


def button(target: str, name: str, count: int) -> Component:
    """Build the button that opens the dialog for a target. ``count`` is the number of its links."""
    return html.Button(
        [status.icon("link"), html.Span(f"Links ({count})" if count else "Links")],
        className="button",
        **presses.marks(_BUTTON, target, label=f"Links of {name}"),
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the dialog."""
    names = State({"type": "link-name", "row": ALL}, "value")
    urls = State({"type": "link-url", "row": ALL}, "value")
    connect(
        app,
        partial(open_dialog, client),
        output={
            "is_open": Output("links-dialog", "opened"),
            "title": Output("links-dialog", "title"),
            "subject": Output("links-subject", "data"),
            "version": Output("links-version", "data"),
            "rows": Output("links-rows", "children"),
            "ui": Output("links-ui", "value"),
            "answer": Output("links-answer", "children"),
            "message": Output("targets-message", "children", allow_duplicate=True),
        },
        inputs=presses.inputs(_BUTTON),
        state=presses.state(_BUTTON),
        prevent_initial_call=True,
    )
    connect(
        app,
        edit,
        output={"rows": Output("links-rows", "children", allow_duplicate=True)},
        inputs={
            "more": Input("links-more", "n_clicks"),
            "drops": Input({"type": "link-drop", "row": ALL}, "n_clicks"),
        },
        state={"names": names, "urls": urls},
        has_trigger=True,
        prevent_initial_call=True,
    )
    connect(
        app,
        close,
        output={"is_open": Output("links-dialog", "opened", allow_duplicate=True)},
        inputs={"cancel": Input("links-cancel", "n_clicks")},
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(save, client),
        output={
            "is_open": Output("links-dialog", "opened", allow_duplicate=True),
            "answer": Output("links-answer", "children", allow_duplicate=True),
            "changed": Output("targets-changed", "data", allow_duplicate=True),
        },
        inputs={"saves": Input("links-save", "n_clicks")},
        state={
            "subject": State("links-subject", "data"),
            "version": State("links-version", "data"),
            "names": names,
            "urls": urls,
            "ui": State("links-ui", "value"),
        },
        running=[(Output("links-save", "disabled"), True, False)],
        prevent_initial_call=True,
    )


async def open_dialog(client: ApiClient, *, clicks: int | None, pressed: dict[str, str] | None) -> Changes:
    """Open the dialog with the stored links of the target whose button was pressed."""
    if not clicks or pressed is None:
        raise PreventUpdate
    target = await client.target(pressed["of"])
    if target is None:
        return {"message": cards.answer(False, "This target is not there any more.")}
    pairs = [(link.name, link.url) for link in target.links] or [("", "")]
    return {
        "is_open": True,
        "title": f"Links of {target.name}",
        "subject": target.id,
        "version": target.links_version,
        "rows": _rows(pairs),
        "ui": target.ui_url or "",
        "answer": None,
        "message": None,
    }


def edit(
    *,
    more: int | None,
    drops: list[int | None],
    names: list[str | None],
    urls: list[str | None],
    trigger: object,
) -> Changes:
    """Add an empty row, or remove the row whose button was pressed. What was typed stays."""
    pairs = [(name or "", url or "") for name, url in zip(names, urls, strict=True)]
    if trigger == "links-more":
        if not more or len(pairs) >= LINKS_MAX:
            raise PreventUpdate
        return {"rows": _rows([*pairs, ("", "")])}
    pressed = pressed_id(drops, trigger)
    if pressed is None:
        raise PreventUpdate
    return {"rows": _rows([pair for i, pair in enumerate(pairs) if i != pressed["row"]])}


def close(*, cancel: int | None) -> Changes:
    """Close the dialog. Nothing is stored."""
    if not cancel:
        raise PreventUpdate
    return {"is_open": False}


async def save(
    client: ApiClient,
    *,
    saves: int | None,
    subject: str | None,
    version: str | None,
    names: list[str | None],
    urls: list[str | None],
    ui: str | None,
) -> Changes:
    """Store the links. Rows that are empty are left out. A refusal is shown in the dialog, which stays open.

    ``version`` is that of the links when the dialog was opened. Links that someone else changed since are not
    overwritten.
    """
    if not saves or not subject:
        raise PreventUpdate
    pairs = [((name or "").strip(), (url or "").strip()) for name, url in zip(names, urls, strict=True)]
    given = [pair for pair in pairs if any(pair)]
    try:
        patch = TargetPatch.model_validate(
            {
                "ui_url": (ui or "").strip(),
                "links": [{"name": name, "url": url} for name, url in given],
                "links_version": version,
            }
        )
        await client.change_target(subject, patch)
    except ValidationError as error:
        return {"answer": cards.answer(False, _first(error, given))}
    except (ApiRefusedError, ApiUnavailableError) as problem:
        return {"answer": cards.answer(False, str(problem))}
    # The number on the button of the target shows the result.
    return {"is_open": False, "answer": None, "changed": ["links", subject, saves]}


def _first(error: ValidationError, given: Sequence[tuple[str, str]]) -> str:
    """Return the first problem, with the name of the link that it concerns."""
    problem = error.errors(include_url=False)[0]
    place = problem["loc"]
    row = next((part for part in place if isinstance(part, int)), None)
    said = "the name is missing" if problem["type"] == "string_too_short" and place[-1] == "name" else problem["msg"]
    said = "the address is missing" if problem["type"] == "string_too_short" and place[-1] == "url" else said
    if row is None:
        return f"{capitalised(said)}."
    return f"{given[row][0] or f'Link {row + 1}'}: {said}."


def _rows(pairs: Sequence[tuple[str, str]]) -> list[Component]:
    return [_row(number, name, url) for number, (name, url) in enumerate(pairs)]


def _row(number: int, name: str, url: str) -> Component:
    fields: list[tuple[str, str, str, str, int]] = [
        ("Name", "link-name", name, "Grafana", 60),
        ("Address with placeholders", "link-url", url, _EXAMPLE, TEMPLATE_MAX),
    ]
    labels: list[Component] = [
        html.Label(
            [
                word,
                dcc.Input(
                    id={"type": kind, "row": number},
                    type="text",
                    value=value,
                    placeholder=example,
                    maxLength=most,
                    autoComplete="off",
                ),
            ],
            className="field",
        )
        for word, kind, value, example, most in fields
    ]
    drop: dict[str, Any] = {"aria-label": f"Remove the link {name or number + 1}"}
    return html.Div(
        [
            *labels,
            html.Button(
                status.icon("trash"), id={"type": "link-drop", "row": number}, type="button", className="button",
                title="remove this link", **attrs(drop),
            ),
        ],
        className="link-row",
    )  # fmt: skip
