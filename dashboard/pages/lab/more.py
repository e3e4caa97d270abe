"""The settings of the Lab page that have no slider, by group, and the sentences on values that cannot be used.

The list has the settings that a chosen protocol uses. It is built when the viewer opens it, or if the address sets one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.simulations import ShapeOut, SimulationCatalogOut, SimulationSettingOut
from backend.domain.text import capitalised
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import cards
from dashboard.components.attributes import attrs

RETRY: Final = "lab-more-retry"
_DETAILS, _SUMMARY = "lab-more", "lab-more-summary"


def block() -> Component:
    """Build the closed list."""
    return html.Details(
        [
            html.Summary(
                [html.Strong("More settings"), html.Span(id="lab-more-count", className="hint")],
                id=_SUMMARY,
                n_clicks=0,
            ),
            html.Div(id="lab-more-list"),
            cards.retry(RETRY),
        ],
        id=_DETAILS,
        className="lab-more",
    )


def problem_slot(key: str) -> Component:
    """Build the place of the sentence that says why a value cannot be used."""
    return html.P(id={"type": "lab-problem", "key": key}, className="lab-problem", role="alert")


def own_of(catalog: SimulationCatalogOut, shape: ShapeOut, setting: SimulationSettingOut) -> str:
    """Return the value of a setting unless the request sets one: that of the shape, a protocol, or the default."""
    of_protocols = (p.settings[setting.key] for p in catalog.protocols if setting.key in p.settings)
    return shape.settings.get(setting.key) or next(of_protocols, setting.default)


def is_used_by(setting: SimulationSettingOut, wanted: Mapping[str, Any]) -> bool:
    """Return whether a protocol of the request uses the setting."""
    return setting.protocols is None or bool({wanted["protocol"], wanted["second_protocol"]} & set(setting.protocols))


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks that build the list, change the request, and show what is wrong with values."""
    connect(
        app,
        partial(fill, client),
        output={
            "list": Output("lab-more-list", "children"),
            "count": Output("lab-more-count", "children"),
            "is_open": Output(_DETAILS, "open"),
        },
        inputs={
            "clicks": Input(_SUMMARY, "n_clicks"),
            "shape": Input("lab-shape", "value"),
            "protocol": Input("lab-protocol", "value"),
            "second": Input("lab-second", "value"),
        },
        state={"wanted": State("lab-wanted", "data")},
        has_trigger=True,
        retry=RETRY,
    )
    connect(
        app,
        partial(choose, client),
        output={"wanted": Output("lab-wanted", "data", allow_duplicate=True)},
        inputs={"values": Input({"type": "lab-setting", "key": ALL}, "value")},
        state={"ids": State({"type": "lab-setting", "key": ALL}, "id"), "before": State("lab-wanted", "data")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    connect(
        app,
        say,
        output={"said": Output({"type": "lab-problem", "key": ALL}, "children")},
        inputs={"problems": Input("lab-problems", "data"), "ids": Input({"type": "lab-problem", "key": ALL}, "id")},
    )


async def fill(
    client: ApiClient, *, clicks: int, shape: str, protocol: str, second: str, wanted: dict[str, Any], trigger: object
) -> Changes:
    """Build the list for a shape and its protocols, if it is open or the request sets one of its settings."""
    if trigger == _SUMMARY and clicks > 1:
        # The browser opens and closes the list by itself.
        raise PreventUpdate
    catalog = await client.simulation_catalog()
    chosen = wanted | {"shape": shape, "protocol": protocol, "second_protocol": second}
    found = next((s for s in catalog.shapes if s.name == shape), catalog.shapes[0])
    offered = [s for s in catalog.settings if s.least is None and is_used_by(s, chosen)]
    is_set = sum(s.key in wanted["settings"] for s in offered)
    count = f"{text.counted(len(offered), 'setting')} of the runtime that the chosen protocols use"
    changes: Changes = {"count": count + (f", {is_set} changed" if is_set else "")}
    if clicks or is_set:
        values = {s.key: wanted["settings"].get(s.key, own_of(catalog, found, s)) for s in offered}
        changes["list"] = listed(offered, values)
    if is_set and not clicks:
        changes["is_open"] = True
    return changes


def listed(offered: Sequence[SimulationSettingOut], values: Mapping[str, str]) -> list[Component]:
    """Build a section for each group of settings, with their values."""
    return [
        html.Section(
            [html.H3(group), html.Div([_field(s, values[s.key]) for s in settings], className="lab-settings")],
            **attrs({"aria-label": group}),
        )
        for group, settings in groupby(offered, key=lambda s: s.group)
    ]


def _field(setting: SimulationSettingOut, value: str) -> Component:
    named: dict[str, Any] = {
        "id": {"type": "lab-setting", "key": setting.key},
        "value": value,
        "size": "sm",
    } | attrs({"aria-label": setting.title})
    if setting.words:
        # A wrong word of an address is shown too, so that the viewer sees what is wrong.
        control = dmc.Select(data=list(dict.fromkeys([*setting.words, value])), allowDeselect=False, **named)
    else:
        control = dmc.TextInput(debounce=600, **named)
    return html.Div(
        [
            html.Strong(setting.title, **attrs({"aria-hidden": "true"})),
            control,
            problem_slot(setting.key),
            html.P(setting.sentence, className="hint"),
            html.A(
                html.Code(setting.key),
                href=routes.lab_guide(setting.key),
                target="_blank",
                title=f"the documentation of {setting.key}",
            ),
        ],
        className="lab-setting",
    )


async def choose(
    client: ApiClient, *, values: list[str | None], ids: list[dict[str, str]], before: dict[str, Any], trigger: object
) -> Changes:
    """Return the request after the viewer changed one setting of the list. An empty value means that of the job."""
    key = trigger["key"] if isinstance(trigger, dict) else None
    given = {id_["key"]: (value or "").strip() for id_, value in zip(ids, values, strict=True)}
    catalog = await client.simulation_catalog()
    setting = next((s for s in catalog.settings if s.key == key), None)
    if setting is None or setting.key not in given:
        raise PreventUpdate
    chosen = next((s for s in catalog.shapes if s.name == before["shape"]), catalog.shapes[0])
    own, value = own_of(catalog, chosen, setting), given[setting.key]
    settings = {k: v for k, v in before["settings"].items() if k != setting.key}
    if value not in ("", own):
        settings[setting.key] = value
    # Dash reports a new field as a change.
    if settings == before["settings"]:
        raise PreventUpdate
    return {"wanted": before | {"settings": settings}}


def say(*, problems: dict[str, str] | None, ids: list[dict[str, str]]) -> Changes:
    """Return the sentence of each field, empty if its value can be used."""
    return {"said": [_sentence((problems or {}).get(id_["key"], "")) for id_ in ids]}


def _sentence(problem: str) -> str:
    return f"{capitalised(problem.rstrip('.'))}." if problem else ""
