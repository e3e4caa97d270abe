"""Loads the list of time zones for the search in the head of every page."""

from __future__ import annotations

from datetime import datetime
from functools import cache, partial
from zoneinfo import ZoneInfo, available_timezones

from dash import ClientsideFunction, Dash, Input, Output, State
from dash.exceptions import PreventUpdate

from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient

# Other areas have no places: they are offsets with reversed signs, old abbreviations, and copies of the whole list.
_AREAS = ("Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific")


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks that load the list, and that tell screen readers whether the search is open."""
    connect(
        app,
        partial(load, client),
        output={"names": Output("zone-find", "data")},
        inputs={"opened": Input("zone-open", "n_clicks")},
        state={"known": State("zone-find", "data")},
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("bs", "expanded"),
        Output("zone-open", "aria-expanded"),
        Input("zone-popover", "opened"),
        prevent_initial_call=True,
    )


async def load(client: ApiClient, *, opened: int | None, known: list[object] | None) -> Changes:
    """Return the list of time zones, with their present offsets, when the search is opened for the first time."""
    if not opened or known:
        raise PreventUpdate
    now = (await client.status()).as_of
    return {"names": [{"value": name, "label": f"{name.replace('_', ' ')} ({_offset(name, now)})"} for name in names()]}


@cache
def names() -> tuple[str, ...]:
    """Return the names of the time zones of places, and UTC, which comes first."""
    places = (name for name in available_timezones() if name.partition("/")[0] in _AREAS and "/" in name)
    return ("UTC", *sorted(places))


def _offset(name: str, now: datetime) -> str:
    shown = now.astimezone(ZoneInfo(name)).strftime("%z")
    return f"{shown[:3]}:{shown[3:5]}"
