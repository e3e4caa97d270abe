"""The controls of the Lab page: job shape, protocols, sliders, seed, and the buttons that run and cancel.

The store ``lab-wanted`` holds the request. Each control changes one value of it. If a slider is at
the value of the shape, the request does not contain its setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any, Final

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.simulations import (
    SEED_MAX,
    ProtocolGroup,
    SimulationCatalogOut,
    SimulationSettingOut,
)
from dashboard import text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import status
from dashboard.components.attributes import attrs
from dashboard.pages.lab import more

NO_SECOND: Final = "none"
FILL_RETRY: Final = "lab-fill-retry"
_GROUP_WORDS: Final = {
    ProtocolGroup.BARRIERS: "Barriers and markers",
    ProtocolGroup.STATE: "State backends, aligned",
    ProtocolGroup.END: "End of input, aligned",
}
_SCALES: Final = {"": 1, "us": 0.001, "ms": 1, "s": 1_000, "min": 60_000, "b": 1, "kb": 1 << 10, "mb": 1 << 20}
_DURATION_LEAST_S = 10
_STEPS: Final = {"ms": 100, "bytes": 1_000}


@dataclass(frozen=True, slots=True)
class Slider:
    """A slider: its range, and the value that the job has unless the request sets another one."""

    key: str
    title: str
    unit: str
    least: float
    most: float
    own: float
    """The value that applies unless the request sets one."""
    protocols: tuple[str, ...] = ()
    """The protocols that use it. Empty if all do."""

    def words(self, value: float) -> str:
        """Return a value with its unit."""
        match self.unit:
            case "ms":
                return text.duration(value)
            case "bytes":
                return text.size(value)
            case "s":
                return text.duration(1_000 * value)
            case _:
                return text.count(value)

    def is_used_by(self, wanted: Mapping[str, Any]) -> bool:
        """Return whether a protocol of the request uses the setting."""
        return not self.protocols or bool({wanted["protocol"], wanted["second_protocol"]} & set(self.protocols))


def sliders_of(catalog: SimulationCatalogOut, shape: str) -> list[Slider]:
    """Return the sliders for a shape, in their order on the page. An unknown shape has those of the first one."""
    chosen = next((s for s in catalog.shapes if s.name == shape), catalog.shapes[0])
    most = max(1, catalog.limits.subtasks_max // chosen.vertex_count)
    return [
        Slider("parallelism", "Parallelism", "", 1, most, chosen.parallelism),
        Slider("duration_s", "Virtual time", "s", _DURATION_LEAST_S, catalog.limits.virtual_max_s, 60),
        *(
            _of_setting(setting, setting.least, setting.most, more.own_of(catalog, chosen, setting))
            for setting in catalog.settings
            if setting.least is not None and setting.most is not None
        ),
    ]


def _of_setting(setting: SimulationSettingOut, least: float, most: float, own: str) -> Slider:
    value = number_of(own)
    used_by = tuple(setting.protocols or ())
    return Slider(setting.key, setting.title, setting.unit, least, most, least if value is None else value, used_by)


def number_of(value: object) -> float | None:
    """Return a value of a setting in milliseconds, bytes or as a count, or None if it is not a number with a unit."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", str(value).strip().lower())
    if match is None or match[2] not in _SCALES:
        return None
    number = float(match[1]) * _SCALES[match[2]]
    return number if isfinite(number) else None


def value_of(slider: Slider, wanted: Mapping[str, Any]) -> float:
    """Return the position of a slider."""
    asked = wanted[slider.key] if slider.key in wanted else wanted["settings"].get(slider.key)
    number = None if asked is None else number_of(asked)
    return slider.own if number is None else number


def controls(wanted: Mapping[str, Any]) -> list[Component]:
    """Build the controls before the catalog is read. They already have their final size."""
    second = wanted["second_protocol"] or NO_SECOND
    return [
        html.Div(
            [
                _select("lab-shape", "Job", wanted["shape"]),
                _select("lab-protocol", "Protocol A", wanted["protocol"]),
                _select("lab-second", "Protocol B, optional", second),
                html.Label(
                    [
                        html.Span("Seed", className="hint"),
                        dmc.NumberInput(
                            id="lab-seed",
                            value=wanted["seed"] if isinstance(wanted["seed"], int) else None,
                            min=0,
                            max=SEED_MAX,
                            allowDecimal=False,
                            allowNegative=False,
                            hideControls=True,
                            debounce=400,
                            size="sm",
                            **attrs({"aria-label": "Seed"}),
                        ),
                    ],
                    className="lab-field lab-seed",
                ),
                html.Div(
                    [
                        html.Button(
                            [status.icon("play"), html.Span("Run")],
                            id="lab-run",
                            className="button primary",
                            title="run this simulation, or show its result if it is kept",
                        ),
                        html.Button(
                            [status.icon("cross"), html.Span("Cancel")],
                            id="lab-cancel",
                            className="button",
                            title="cancel the simulation that is queued or running",
                            disabled=True,
                        ),
                    ],
                    className="lab-buttons",
                ),
            ],
            className="lab-choices",
        ),
        html.Div(id="lab-said", className="lab-said hint"),
        html.Div(id="lab-sliders", className="lab-sliders"),
        more.block(),
        html.P(id="lab-limits", className="hint lab-limits"),
    ]


def _select(id_: str, word: str, value: object) -> Component:
    return html.Div(
        [
            html.Span(word, className="hint", **attrs({"aria-hidden": "true"})),
            dmc.Select(
                id=id_,
                data=[{"value": str(value), "label": str(value)}],
                value=str(value),
                allowDeselect=False,
                size="sm",
                maxDropdownHeight=420,
                **attrs({"aria-label": word}),
            ),
        ],
        className="lab-field",
    )


def _slider(slider: Slider, wanted: Mapping[str, Any]) -> Component:
    value = min(max(value_of(slider, wanted), slider.least), slider.most)
    unit = {"ms": "milliseconds", "s": "seconds"}.get(slider.unit, slider.unit)
    named = f"{slider.title} in {unit}" if unit else slider.title
    return html.Div(
        [
            html.Div(
                [
                    html.Span(slider.title),
                    html.Strong(slider.words(value_of(slider, wanted)), id={"type": "lab-words", "key": slider.key}),
                ],
                className="lab-slider-head",
                title=slider.key if "." in slider.key else None,
            ),
            dmc.Slider(
                id={"type": "lab-slider", "key": slider.key},
                min=slider.least,
                max=slider.most,
                step=_step(slider),
                value=value,
                # The range is marked below the slider instead, because this label would cover the title.
                label=None,
                thumbLabel=named,
                updatemode="mouseup",
                disabled=not slider.is_used_by(wanted),
                size="sm",
                color="blue",
                thumbSize=24,
            ),
            more.problem_slot(slider.key),
        ],
        className="lab-slider",
    )


def _step(slider: Slider) -> float:
    return 10 if slider.key == "duration_s" else _STEPS.get(slider.unit, 1)


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks that fill the controls and change the request."""
    connect(
        app,
        partial(fill, client),
        output={
            "message": Output("lab-message", "children"),
            "shapes": Output("lab-shape", "data"),
            "protocols": Output("lab-protocol", "data"),
            "seconds": Output("lab-second", "data"),
            "said": Output("lab-said", "children"),
            "sliders": Output("lab-sliders", "children"),
            "limits": Output("lab-limits", "children"),
        },
        inputs={
            "shape": Input("lab-shape", "value"),
            "protocol": Input("lab-protocol", "value"),
            "second": Input("lab-second", "value"),
        },
        state={"wanted": State("lab-wanted", "data")},
        retry=FILL_RETRY,
    )
    connect(
        app,
        partial(choose, client),
        output={
            "wanted": Output("lab-wanted", "data"),
            "words": Output({"type": "lab-words", "key": ALL}, "children"),
        },
        inputs={
            "shape": Input("lab-shape", "value"),
            "protocol": Input("lab-protocol", "value"),
            "second": Input("lab-second", "value"),
            "seed": Input("lab-seed", "value"),
            "positions": Input({"type": "lab-slider", "key": ALL}, "value"),
        },
        state={"before": State("lab-wanted", "data")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    more.register(app, client)


async def fill(client: ApiClient, *, shape: str, protocol: str, second: str, wanted: dict[str, Any]) -> Changes:
    """Return the lists, the sentences about what is chosen, and the sliders with the values of the shape."""
    catalog = await client.simulation_catalog()
    chosen = wanted | {"shape": shape, "protocol": protocol, "second_protocol": second}
    grouped = [
        {
            "group": words,
            "items": [{"value": p.name, "label": p.title} for p in catalog.protocols if p.group is group],
        }
        for group, words in _GROUP_WORDS.items()
    ]
    return {
        "message": None,
        "shapes": [{"value": s.name, "label": s.title} for s in catalog.shapes],
        "protocols": grouped,
        "seconds": [{"value": NO_SECOND, "label": "None"}, *grouped],
        "said": said(catalog, chosen),
        "sliders": [_slider(s, chosen) for s in sliders_of(catalog, shape)],
        "limits": limits_words(catalog),
    }


def said(catalog: SimulationCatalogOut, wanted: Mapping[str, Any]) -> list[Component]:
    """Return a sentence about the shape and about each protocol."""
    shapes = {s.name: s for s in catalog.shapes}
    protocols = {p.name: p for p in catalog.protocols}
    shape, first = shapes.get(wanted["shape"]), protocols.get(wanted["protocol"])
    lines = [
        _sentence("Job", None if shape is None else (shape.title, shape.sentence), wanted["shape"]),
        _sentence("A", None if first is None else (first.title, first.sentence), wanted["protocol"]),
    ]
    if wanted["second_protocol"] not in (None, NO_SECOND):
        second = protocols.get(wanted["second_protocol"])
        pair = None if second is None else (second.title, second.sentence)
        lines.append(_sentence("B", pair, wanted["second_protocol"]))
    return lines


def _sentence(what: str, found: tuple[str, str] | None, word: object) -> Component:
    if found is None:
        return html.P(f"{what}: this version does not have {word!r}. Choose another one.", className="tone-text-warn")
    return html.P([html.Strong(f"{what}: {found[0]}. "), found[1]])


def limits_words(catalog: SimulationCatalogOut) -> str:
    """Return the sentence with the limits of a simulation."""
    limits = catalog.limits
    return (
        f"Limits: {text.duration(1_000 * limits.virtual_max_s)} of virtual time, {limits.subtasks_max} subtasks,"
        f" {limits.checkpoints_max} checkpoints a run, about {text.count(limits.record_steps_max)} processed records."
        f" Results are kept for {text.duration(1_000 * limits.kept_max_s)}, the newest {limits.kept_max} of them."
    )


async def choose(
    client: ApiClient,
    *,
    shape: str,
    protocol: str,
    second: str,
    seed: object,
    positions: list[float],
    before: dict[str, Any],
    trigger: object,
) -> Changes:
    """Return the request after the viewer changed one control."""
    catalog = await client.simulation_catalog()
    sliders = sliders_of(catalog, shape)
    wanted = before | {"settings": dict(before["settings"])}
    match trigger:
        case "lab-shape":
            wanted["shape"] = shape
        case "lab-protocol" | "lab-second":
            wanted |= {"protocol": protocol, "second_protocol": None if second == NO_SECOND else second}
            # The API refuses a setting that no protocol uses.
            unused = {s.key for s in catalog.settings if not more.is_used_by(s, wanted)}
            wanted["settings"] = {k: v for k, v in wanted["settings"].items() if k not in unused}
        case "lab-seed":
            wanted["seed"] = seed if isinstance(seed, int) else before["seed"]
        case {"key": key} if len(positions) == len(sliders):
            _move(wanted, sliders, key, positions)
        case _:
            raise PreventUpdate
    if wanted == before:
        raise PreventUpdate
    changes: Changes = {"wanted": wanted}
    if len(positions) == len(sliders):
        changes["words"] = [s.words(value_of(s, wanted)) for s in sliders]
    return changes


def _move(wanted: dict[str, Any], sliders: list[Slider], key: str, positions: list[float]) -> None:
    index = next((i for i, s in enumerate(sliders) if s.key == key), None)
    if index is None:
        raise PreventUpdate
    slider, value = sliders[index], positions[index]
    # A new slider has a position inside its range, even if the value in the address is outside.
    shown = min(max(value_of(slider, wanted), slider.least), slider.most)
    if value == shown:
        raise PreventUpdate
    is_own = value == slider.own
    if key == "parallelism":
        wanted[key] = None if is_own else int(value)
    elif key == "duration_s":
        wanted[key] = value
    elif is_own:
        wanted["settings"].pop(key, None)
    else:
        wanted["settings"][key] = f"{round(value)} ms" if slider.unit == "ms" else str(round(value))
