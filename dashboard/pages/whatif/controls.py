"""The sliders of the page of what-ifs: each is at the job's own value until the viewer moves it.

A slider steps through the values that the API offers for its setting. The script ``whatif.js`` turns the positions into
the changed settings, after a short pause, so that the page answers while the viewer moves a slider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from backend.contracts.whatif import WhatIfOut, WhatIfSettingOut
from dashboard import text
from dashboard.components import status
from dashboard.components.attributes import attrs
from dashboard.pages.lab.controls import number_of

OFF: Final = "off"
MODE: Final = "mode"
_TIMEOUT: Final = "aligned-timeout"
_WITH_TIMEOUT: Final = "aligned-with-timeout"
_MODE_WORDS = {"aligned": "aligned", "aligned-with-timeout": "with timeout", "unaligned": "unaligned"}
_FIRST_TIMEOUT: Final = "1000 ms"


def words_of(unit: str, value: str) -> str:
    """Return the value of a setting as people read it."""
    if value == OFF:
        return OFF
    number = number_of(value)
    if number is None:
        return value
    match unit:
        case "ms":
            return text.duration(number)
        case "bytes":
            return text.size(number)
        case "factor":
            return text.percent(number)
    return value


def ranges_of(what_if: WhatIfOut, settings: Mapping[str, str]) -> dict[str, dict[str, object]]:
    """Return for each setting what the script needs: its values with their words, and the current one.

    A value of ``settings`` that is not among those that the API offers is added to them.
    """
    return {
        row.name: {
            "values": values,
            "words": [words_of(row.unit, v) for v in values],
            "current": row.current,
            "unit": row.unit,
        }
        for row in what_if.settings
        for values in [_with_wanted(row, settings.get(row.name))]
    }


def _with_wanted(row: WhatIfSettingOut, wanted: str | None) -> list[str]:
    if wanted is None or wanted in row.values or row.unit in ("mode", "flag"):
        return list(row.values)
    values = {*row.values, wanted}
    return sorted(values, key=lambda v: -1.0 if v == OFF else number_of(v) or 0.0)


def sliders(what_if: WhatIfOut, settings: Mapping[str, str]) -> list[Component]:
    """Build the controls of all settings."""
    rows = [r for r in what_if.settings if r.vertex_id is None]
    plain = [_control(r, what_if, settings) for r in rows if r.unit not in ("mode", "flag")]
    flags = [_flag(r, settings) for r in rows if r.unit == "flag"]
    mode = [_mode(r, settings) for r in rows if r.unit == "mode"]
    vertices = [r for r in what_if.settings if r.vertex_id is not None]
    is_open = any(r.name in settings for r in vertices)
    return [
        html.Div([*mode, *flags], className="whatif-choices"),
        html.Div(plain, className="lab-sliders whatif-sliders"),
        html.Details(
            [
                html.Summary("Parallelism of a vertex"),
                html.Div([_control(r, what_if, settings) for r in vertices], className="lab-sliders whatif-sliders"),
            ],
            open=is_open,
            className="whatif-parallelism",
        ),
    ]


def _mode(row: WhatIfSettingOut, settings: Mapping[str, str]) -> Component:
    return html.Div(
        [
            html.Span(row.title, className="hint", **attrs({"aria-hidden": "true"})),
            dmc.SegmentedControl(
                id={"type": "whatif-choice", "key": row.name},
                data=[{"value": v, "label": _MODE_WORDS.get(v, v)} for v in row.values],
                value=settings.get(row.name, row.current),
                disabled=row.why_not is not None,
                size="sm",
                **attrs({"aria-label": "Checkpoint mode"}),
            ),
            html.Span(row.why_not or "", className="hint"),
        ],
        className="lab-field",
    )


def _flag(row: WhatIfSettingOut, settings: Mapping[str, str]) -> Component:
    return html.Div(
        [
            dmc.Switch(
                id={"type": "whatif-flag", "key": row.name},
                label=row.title,
                checked=settings.get(row.name) == "true",
                disabled=row.why_not is not None,
                size="sm",
            ),
            html.Span(row.why_not or "", className="hint"),
        ],
        className="lab-field whatif-flag",
    )


def _control(row: WhatIfSettingOut, what_if: WhatIfOut, settings: Mapping[str, str]) -> Component:
    values = _with_wanted(row, settings.get(row.name))
    value = settings.get(row.name, row.current)
    if value is None or value not in values:
        value = _FIRST_TIMEOUT if _FIRST_TIMEOUT in values else values[0]
    why_not = row.why_not or _why_idle(row, what_if, settings)
    return html.Div(
        [
            html.Div(
                [
                    html.Span(row.title),
                    html.Strong(words_of(row.unit, value), id={"type": "whatif-words", "key": row.name}),
                ],
                className="lab-slider-head",
                title=row.engine_key,
            ),
            dmc.Slider(
                id={"type": "whatif-slider", "key": row.name},
                min=0,
                max=max(1, len(values) - 1),
                step=1,
                value=values.index(value),
                label=None,
                thumbLabel=row.title,
                updatemode="drag",
                disabled=row.why_not is not None or len(values) < 2,
                size="sm",
                color="blue",
                thumbSize=24,
            ),
            html.Span(why_not or "", className="hint"),
        ],
        className="lab-slider",
    )


def _why_idle(row: WhatIfSettingOut, what_if: WhatIfOut, settings: Mapping[str, str]) -> str | None:
    """Return why a slider has no effect under the chosen mode."""
    current = next((r.current for r in what_if.settings if r.name == MODE), None)
    mode = settings.get(MODE, current)
    if row.name == _TIMEOUT and mode != _WITH_TIMEOUT:
        return "used in the mode with timeout"
    if row.name == "in-flight-cap" and mode == "aligned":
        return "aligned checkpoints persist no data"
    return None


def buttons(*, has_proposal: bool) -> list[Component]:
    """Build the buttons that set all sliders at once."""
    return [
        html.Button(
            [status.icon("bolt"), html.Span("Take the proposal")],
            id="whatif-propose",
            className="button primary",
            title="set the sliders to what the open advice proposes",
            disabled=not has_proposal,
        ),
        html.Button(
            [status.icon("sync"), html.Span("As the job is")],
            id="whatif-reset",
            className="button",
            title="set every slider back to the job's own value",
        ),
    ]


def changed_words(what_if: WhatIfOut, settings: Mapping[str, str]) -> Sequence[str]:
    """Return the changed settings in words, such as ``interval 30 s``. The mode is first, with its timeout."""
    rows = {r.name: r for r in what_if.settings}
    parts = []
    for name, value in sorted(settings.items(), key=lambda one: one[0] != MODE):
        row = rows.get(name)
        if row is None:
            parts.append(f"{name} {value}")
        elif name == MODE and value == _WITH_TIMEOUT:
            timeout = settings.get(_TIMEOUT, rows[_TIMEOUT].current if _TIMEOUT in rows else None)
            parts.append(f"an aligned timeout of {words_of('ms', timeout)}" if timeout else "an aligned timeout")
        elif name == _TIMEOUT and settings.get(MODE) == _WITH_TIMEOUT:
            continue
        elif row.unit == "flag":
            parts.append(row.title.lower())
        else:
            parts.append(f"{row.title.lower()} {words_of(row.unit, value)}")
    return parts
