"""Turns the parts of pages that no callback addresses into plain HTML elements.

Dash's script keeps a subscription to its state for each component. Every change of any property calls all of them. A
page has hundreds of components without an id, and for these the subscriptions are of no use. ``lean`` replaces each
such part by one component ``Markup``, whose elements the script ``markup.js`` creates.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

Node = list[object] | str | int | float
"""An element as ``[tag, attributes, child, ...]``, or a text. The tag ``link`` is a link inside the application."""

# The JavaScript object that has the functions of the components.
_NAMESPACE = "barrierscope_components"
# Elements that load or submit something are missing: Dash checks their addresses.
_TAGS = (
    html.Article, html.B, html.Br, html.Button, html.Code, html.Dd, html.Details, html.Div, html.Dl, html.Dt, html.Em,
    html.Figcaption, html.Figure, html.Footer, html.H1, html.H2, html.H3, html.Header, html.I, html.Li, html.Nav,
    html.Ol, html.P, html.Pre, html.Section, html.Small, html.Span, html.Strong, html.Summary, html.Table, html.Tbody,
    html.Td, html.Th, html.Thead, html.Tr, html.Ul,
)  # fmt: skip
# The script checks the addresses of these.
_LINKS: dict[type, str] = {html.A: "a", dcc.Link: "link"}
_NAMES: dict[type, str] = {kind: kind.__name__.lower() for kind in _TAGS}
_NAMES.update(_LINKS)
# Their children are Dash components as before, and the children of these may be plain.
_CONTAINERS = (html.Form, html.Fieldset, html.Label, html.Main, dmc.MantineProvider)


class _Own(Component):
    """A component whose script is part of the dashboard."""

    _namespace = _NAMESPACE
    _type = ""

    def __init__(self, **properties: object) -> None:
        self._prop_names = list(properties)
        self._valid_wildcard_attributes: list[str] = []
        self.available_properties = list(properties)
        self.available_wildcard_properties: list[str] = []
        super().__init__(**properties)


class Markup(_Own):
    """HTML elements to which no callback belongs. ``nodes`` are their ``Node`` values.

    A callback may replace the ``nodes`` of a Markup with an ``id``. The browser then changes only the elements that
    differ, and an element of a list is found again by its ``key``.
    """

    _children_props: list[str] = []  # noqa: RUF012 - Dash declares it without ClassVar
    _namespace = _NAMESPACE
    _type = "Markup"

    def __init__(self, nodes: Sequence[Node], **identity: str) -> None:
        super().__init__(nodes=list(nodes), **identity)


class ChartData(_Own):
    """The data of a chart's table, in the property ``data``. The script ``charts.js`` shows it and saves it as CSV."""

    _children_props: list[str] = []  # noqa: RUF012 - Dash declares it without ClassVar
    _namespace = _NAMESPACE
    _type = "ChartData"

    def __init__(self, id: str) -> None:
        super().__init__(id=id, data=None)


def lean(value: object) -> object:
    """Return the children of a component, with each part that no callback addresses as one ``Markup``.

    ``value`` and the components in it stay as they are. Any other value is returned unchanged.
    """
    if isinstance(value, Component):
        node = _node(value)
        return _with_lean_children(value) if node is None else Markup([node])
    if isinstance(value, list | tuple):
        return _runs(value)
    return value


def nodes_of(*parts: Component) -> list[Node]:
    """Return components as the ``nodes`` of a ``Markup``.

    Raises:
        ValueError: a part has an id, or is of a kind that needs Dash.
    """
    nodes = [_node(part) for part in parts]
    whole = [node for node in nodes if node is not None]
    if len(whole) != len(nodes):
        raise ValueError(f"not plain HTML elements without ids: {parts}")
    return whole


def _runs(children: Sequence[object]) -> object:
    """Return children in which each run of plain elements and texts is one ``Markup``."""
    runs: list[object] = []
    run: list[Node] = []
    for child in children:
        if child is None or child is False or child is True:
            continue
        node = _node(child)
        if node is not None:
            run.append(node)
            continue
        if run:
            runs.append(Markup(run))
            run = []
        runs.append(_with_lean_children(child) if isinstance(child, Component) else child)
    if run:
        runs.append(Markup(run))
    return runs


def _node(value: object) -> Node | None:
    """Return a child as a plain element or text, or None if it is or has anything that a callback may address."""
    if isinstance(value, str | int | float):
        return value
    name = _NAMES.get(type(value))
    if name is None or not isinstance(value, Component):
        return None
    attributes = value.to_plotly_json()["props"]
    children = attributes.pop("children", None)
    # An element that takes no clicks for Dash has its id for scripts and labels only.
    is_silent = attributes.pop("disable_n_clicks", False)
    if "id" in attributes and not is_silent:
        return None
    node: list[object] = [name, attributes]
    for child in children if isinstance(children, list | tuple) else [children]:
        if child is None or isinstance(child, bool):
            continue
        inner = _node(child)
        if inner is None:
            return None
        node.append(inner)
    return node


def _with_lean_children(component: Component) -> Component:
    if not isinstance(component, (*_NAMES, *_CONTAINERS)):
        return component
    children = getattr(component, "children", None)
    if not isinstance(children, Component | list | tuple):
        return component
    changed = copy.copy(component)
    changed.children = lean(children)
    return changed
