"""Builds the search for a time zone in the head of every page. The address of the page keeps the zone as ``tz``."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import html

from dashboard.components import status
from dashboard.components.attributes import attrs

_SHOWN_MAX = 80


def picker() -> dmc.Popover:
    """Build the button that opens the search. The list is loaded when it is opened for the first time."""
    opener = html.Button(
        status.icon("down"),
        id="zone-open",
        className="button quiet zone-open",
        title="find a time zone",
        **attrs({"aria-label": "Find a time zone", "aria-haspopup": "dialog", "aria-expanded": "false"}),
    )
    search = dmc.Select(
        id="zone-find",
        label="Time zone of all times",
        placeholder="Part of a name, such as new york or +05:30",
        data=[],
        searchable=True,
        limit=_SHOWN_MAX,
        nothingFoundMessage="No time zone has this name",
        w=280,
        # The list must be inside the panel. A click on an option outside would close the panel before it is chosen.
        comboboxProps={"withinPortal": False},
    )
    panel = html.Div(search, role="dialog", **attrs({"aria-label": "Time zone"}))
    return dmc.Popover(
        [dmc.PopoverTarget(opener, boxWrapperProps={"className": "zone-target"}), dmc.PopoverDropdown(panel)],
        id="zone-popover",
        position="bottom-end",
        # Mantine would put the roles on the box around the button, where screen readers do not expect them.
        withRoles=False,
        trapFocus=True,
        returnFocus=True,
        withArrow=True,
        shadow="md",
    )
