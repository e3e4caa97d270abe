"""Tests of plain elements: which parts of a page become markup, and which stay components of Dash."""

from __future__ import annotations

import dash_mantine_components as dmc
import pytest
from dash import dcc, html

from dashboard.components.markup import Markup, lean, nodes_of


def nodes(value):
    assert isinstance(value, Markup)
    return value.nodes


def test_elements_without_ids_become_one_markup():
    part = html.Div([html.H2("Jobs"), None, "3", html.Span(2, title="count")], className="card")

    assert nodes(lean(part)) == [
        ["div", {"className": "card"}, ["h2", {}, "Jobs"], "3", ["span", {"title": "count"}, 2]]
    ]


def test_an_element_that_a_callback_may_address_stays_a_component():
    button = html.Button("Pause", id="pause")
    part = html.Div([html.B("a"), "b", button, html.I("c")])

    changed = lean(part)

    assert isinstance(changed, html.Div)
    before, same, after = changed.children
    assert nodes(before) == [["b", {}, "a"], "b"]
    assert nodes(after) == [["i", {}, "c"]]
    assert isinstance(same, html.Button)
    assert same.children == "Pause"
    # The component that was passed is unchanged, because a page may use it again.
    assert part.children[2] is button
    assert len(part.children) == 4


def test_an_id_for_scripts_is_an_attribute():
    part = html.Button("CSV", id="timeline-csv", disable_n_clicks=True, **{"data-chart": "timeline"})

    assert nodes(lean(part)) == [["button", {"id": "timeline-csv", "data-chart": "timeline"}, "CSV"]]


def test_a_link_inside_the_application_differs_from_one_that_leaves_it():
    inside, outside = lean(dcc.Link("Fleet", href="/ui/")), lean(html.A("Flink", href="http://flink", target="_blank"))

    assert nodes(inside) == [["link", {"href": "/ui/"}, "Fleet"]]
    assert nodes(outside) == [["a", {"href": "http://flink", "target": "_blank"}, "Flink"]]


def test_other_components_stay_as_they_are():
    select = dmc.Select(data=[])
    form = html.Form(html.Button("Log out"), action="/logout")
    graph = dcc.Graph(figure={})

    around, submit, drawn = lean([html.P(["a", select]), form, graph])

    assert isinstance(around, html.P)
    assert around.children[1] is select
    # Dash checks the address of a form. The button in it needs no callback.
    assert isinstance(submit, html.Form)
    assert nodes(submit.children) == [["button", {}, "Log out"]]
    assert drawn is graph


def test_values_that_are_no_components_stay():
    assert lean(None) is None
    assert lean("text") == "text"
    assert lean([]) == []


def test_the_nodes_of_plain_elements_keep_the_keys_by_which_they_are_found_again():
    row = html.Tr(html.Td("one"), key="t1")

    assert nodes_of(html.Tbody([row])) == [["tbody", {}, ["tr", {"key": "t1"}, ["td", {}, "one"]]]]


def test_what_a_callback_may_address_has_no_nodes():
    with pytest.raises(ValueError, match="not plain HTML elements"):
        nodes_of(html.P("plain"), html.Div(html.Button("press", id="one")))
