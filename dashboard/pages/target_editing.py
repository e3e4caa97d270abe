"""The dialog on the page of the targets in which a viewer changes a target, or sees where it is declared.

The address and the kind of a target never change, because its jobs and their history belong to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.api import TargetIn, TargetOut, TargetPatch
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards, presses, status, target_tests
from dashboard.components.attributes import attrs
from dashboard.pages import target_options

_BUTTON = "target-edit"
EDITING: Final = "edited-option"
"""The form of this dialog, for ``target_options``."""
_NAME_MAX = 200
_ADDRESS = (
    "The address stays: its jobs and their history belong to it. For another address, add a target and remove this one."
)
_LABELS = (
    "The label deployment names the job to which the next run belongs. If you change it, the next run begins a new job,"
    " and the earlier runs stay with the old one."
)
_PUSHED = "Its jobs push their own events, so nothing is asked for and there is no connection to set."
_OPERATORS = (
    "The operator of Barrierscope chose this address and its connection, so the connection is not changed here."
)
_CHANGED = "Someone else changed this target meanwhile. Close the dialog, open it again, and repeat the change."
_GONE = "This target is not there any more."
_EDITED = ("name", "labels", "interval_s", "ui_url", "is_enabled", "connection")


def dialog() -> Component:
    """Build the closed dialog."""
    modal = dmc.Modal(
        [
            html.Div(id="edit-body"),
            html.Div(id="edit-answer", **attrs({"aria-live": "polite"})),
            html.Div(
                [
                    _button("edit-cancel", "Close", None),
                    _button("edit-test", "Test connection", "plug"),
                    _button("edit-save", "Save", "check", more="primary"),
                ],
                className="dialog-buttons",
            ),
        ],
        id="edit-dialog",
        title="Change a target",
        opened=False,
        centered=True,
        size="xl",
        transitionProps={"duration": 0},
        closeButtonProps={"aria-label": "Close"},
    )
    return html.Div([modal, dcc.Store(id="edit-subject"), dcc.Store(id="edit-before"), presses.receiver(_BUTTON)])


def _button(id_: str, word: str, icon: str | None, *, more: str = "") -> Component:
    shown: list[Component] = [*([] if icon is None else [status.icon(icon)]), html.Span(word)]
    return html.Button(shown, id=id_, type="button", className=f"button {more}".rstrip())


def button(target: TargetOut) -> Component:
    """Build the button that opens the dialog for a target."""
    icon, word = ("pencil", "Edit") if target.declared_at is None else ("table", "Settings")
    return html.Button(
        [status.icon(icon), html.Span(word)],
        className="button",
        **presses.marks(
            _BUTTON, target.id, label=f"{word} of {target.name}" if word == "Settings" else f"{word} {target.name}"
        ),
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the dialog."""
    form = {
        "subject": State("edit-subject", "data"),
        "name": State({"type": "edit-name", "of": ALL}, "value"),
        "enabled": State({"type": "edit-enabled", "of": ALL}, "checked"),
        **target_options.states(EDITING),
    }
    connect(
        app,
        partial(open_dialog, client),
        output={
            "is_open": Output("edit-dialog", "opened"),
            "title": Output("edit-dialog", "title"),
            "subject": Output("edit-subject", "data"),
            "before": Output("edit-before", "data"),
            "body": Output("edit-body", "children"),
            "answer": Output("edit-answer", "children"),
            "no_test": Output("edit-test", "hidden"),
            "no_save": Output("edit-save", "hidden"),
            "message": Output("targets-message", "children", allow_duplicate=True),
        },
        inputs=presses.inputs(_BUTTON),
        state=presses.state(_BUTTON),
        prevent_initial_call=True,
    )
    connect(
        app,
        close,
        output={"is_open": Output("edit-dialog", "opened", allow_duplicate=True)},
        inputs={"cancel": Input("edit-cancel", "n_clicks")},
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(test, client),
        output={"answer": Output("edit-answer", "children", allow_duplicate=True)},
        inputs={"tests": Input("edit-test", "n_clicks")},
        state=form,
        running=[(Output("edit-test", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(save, client),
        output={
            "is_open": Output("edit-dialog", "opened", allow_duplicate=True),
            "answer": Output("edit-answer", "children", allow_duplicate=True),
            "changed": Output("targets-changed", "data", allow_duplicate=True),
        },
        inputs={"saves": Input("edit-save", "n_clicks")},
        state={**form, "before": State("edit-before", "data")},
        running=[(Output("edit-save", "disabled"), True, False)],
        prevent_initial_call=True,
    )


async def open_dialog(client: ApiClient, *, clicks: int | None, pressed: dict[str, str] | None) -> Changes:
    """Open the dialog with what is stored of the target whose button was pressed."""
    if not clicks or pressed is None:
        raise PreventUpdate
    target = await client.target(pressed["of"])
    if target is None:
        return {"message": cards.answer(False, _GONE)}
    is_fixed = target.declared_at is not None
    return {
        "is_open": True,
        "title": f"{'Settings of' if is_fixed else 'Change'} {target.name}",
        "subject": target.id,
        "before": _edited(target),
        "body": _body(target, is_fixed=is_fixed),
        "answer": None,
        "no_test": is_fixed or not _has_own_connection(target),
        "no_save": is_fixed,
        "message": None,
    }


def _body(target: TargetOut, *, is_fixed: bool) -> list[Component]:
    groups = target_options.GROUPS if is_fixed or _has_own_connection(target) else ("Target",)
    without = ("kind", "interval_s") if target.origin == "push" else ("kind",)
    name = dcc.Input(
        id={"type": "edit-name", "of": target.id},
        type="text",
        value=target.name,
        maxLength=_NAME_MAX,
        autoComplete="off",
        disabled=is_fixed,
    )
    paused = dmc.Checkbox(
        id={"type": "edit-enabled", "of": target.id},
        label="Read this target",
        checked=target.is_enabled,
        disabled=is_fixed,
        size="md",
        className="dialog-guard",
    )
    values = target_options.values_of(target)
    hint = [] if is_fixed else [html.P(_LABELS, className="hint")]
    return [
        *_about(target),
        html.P([html.B(f"{target.kind.capitalize()}: "), html.Span(target.url, className="url")]),
        html.Label(["Name", name], className="field"),
        *target_options.groups(values, form=EDITING, shown=groups, without=without, is_fixed=is_fixed),
        *hint,
        *([] if target.origin == "push" else [paused]),
    ]


def _about(target: TargetOut) -> list[Component]:
    if target.declared_at is not None:
        what = "A discovery of" if target.origin == "discovery" else "The file of"
        sentence = f"{what} targets declares it ({target.declared_by}). Change it there; it is read within seconds: "
        return [html.P([sentence, html.Code(target.declared_at)], className="declared")]
    lines = {"api": target_options.HINT, "push": _PUSHED}
    return [html.P(f"{lines.get(target.origin, _OPERATORS)} {_ADDRESS}", className="hint")]


def close(*, cancel: int | None) -> Changes:
    """Close the dialog. Nothing is stored."""
    if not cancel:
        raise PreventUpdate
    return {"is_open": False}


async def test(client: ApiClient, *, tests: int | None, subject: str | None, **form: Any) -> Changes:
    """Test the connection to the target with what is written in the dialog. Nothing is stored."""
    if not tests or not subject:
        raise PreventUpdate
    target = await client.target(subject)
    if target is None:
        return {"answer": cards.answer(False, _GONE)}
    try:
        more = target_options.read(form["options"], form["names"], stored=target)
        wanted = TargetIn(url=target.url, kind=target.kind, connection=more.get("connection"))
        result = await client.test_target(wanted)
    except (ValidationError, target_options.WrongOptionError, ApiRefusedError, ApiUnavailableError) as problem:
        return {"answer": cards.answer(False, _said(problem))}
    return {"answer": target_tests.answer(result, on_other_root=_ADDRESS)}


async def save(
    client: ApiClient, *, saves: int | None, subject: str | None, before: dict[str, Any] | None, **form: Any
) -> Changes:
    """Store what was changed. A refusal is shown in the dialog, which stays open with what was typed.

    ``before`` is what was stored when the dialog was opened. What someone else changed since is not overwritten.
    """
    if not saves or not subject or before is None:
        raise PreventUpdate
    target = await client.target(subject)
    if target is None:
        return {"answer": cards.answer(False, _GONE)}
    if _edited(target) != before:
        return {"answer": cards.answer(False, _CHANGED)}
    try:
        if changes := _changes(target, before, **form):
            # Another change may come between the reading above and this one. Then the API refuses it.
            await client.change_target(subject, TargetPatch.model_validate(changes), version=target.version)
    except (ValidationError, target_options.WrongOptionError, ApiRefusedError, ApiUnavailableError) as problem:
        return {"answer": cards.answer(False, _said(problem))}
    return {"is_open": False, "answer": None, "changed": ["edited", subject, saves]}


def _changes(
    target: TargetOut,
    before: Mapping[str, Any],
    *,
    name: list[str | None],
    enabled: list[bool | None],
    options: list[str | None],
    names: list[dict[str, str]],
) -> dict[str, Any]:
    """Return the fields of ``TargetPatch`` that differ from what was stored."""
    wanted: dict[str, Any] = {"name": next(iter(name), None), "labels": {}, "ui_url": None}
    wanted |= {} if target.origin == "push" else {"interval_s": None}
    wanted |= {"connection": None} if _has_own_connection(target) else {}
    wanted |= target_options.read(options, names, stored=target)
    wanted["name"] = (wanted["name"] or "").strip()
    if not wanted["name"]:
        raise target_options.WrongOptionError("Name: write a name, such as that of the cluster.")
    if enabled:
        wanted["is_enabled"] = bool(enabled[0])
    changed = {key: value for key, value in wanted.items() if value != before[key]}
    # In a patch, null keeps the stored value. These values remove it.
    removing: dict[str, Any] = {"interval_s": 0, "ui_url": "", "connection": {}}
    changed = {key: removing[key] if value is None else value for key, value in changed.items()}
    return changed | ({"links_version": target.links_version} if "ui_url" in changed else {})


def _edited(target: TargetOut) -> dict[str, Any]:
    connection = target.connection
    written = None if connection is None else connection.model_dump(mode="json", exclude_none=True)
    return target.model_dump(mode="json", include=set(_EDITED)) | {"connection": written}


def _has_own_connection(target: TargetOut) -> bool:
    """Return whether the connection of a target may be changed through the API."""
    return target.origin == "api"


def _said(problem: Exception) -> str:
    if isinstance(problem, ApiRefusedError) and problem.kind == "version-conflict":
        return _CHANGED
    if not isinstance(problem, ValidationError):
        return str(problem)
    first = problem.errors(include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
