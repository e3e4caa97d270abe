"""Builds the common parts of pages: cards with a head, facts, messages, and charts with their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import dash_mantine_components as dmc
from dash import Output, dcc, html
from dash.development.base_component import Component

from backend.domain.errors import ApiNotFoundError, ApiRefusedError
from backend.domain.text import capitalised
from backend.domain.verdict import Basis
from dashboard import routes, text
from dashboard.components import status
from dashboard.components.attributes import attrs
from dashboard.components.markup import ChartData
from dashboard.figures.base import Chart, Table
from dashboard.palette import Tone

Children = Sequence[Component | str | None] | Component | str | None

GRID_THEME = {"function": "themeQuartz.withPart(colorSchemeVariable)"}


def card(
    title: str, children: Children, *, tools: Sequence[Component] = (), hint: str | Component | None = None
) -> html.Section:
    """Build a section with a head. ``hint`` is the small text after the title."""
    # The value is compared with None, because a component without children counts as false.
    aside = html.Span(hint, className="hint") if hint is not None else None
    head = html.Div(
        [
            html.Div([html.H2(title), aside], className="card-title"),
            html.Div(list(tools), className="card-tools"),
        ],
        className="card-head",
    )
    return html.Section(
        [head, html.Div(children, className="card-body")], className="card", **attrs({"aria-label": title})
    )


def unseen_head(word: str) -> html.Th:
    """Build a column head that is visible to screen readers only."""
    return html.Th(html.Span(word, className="visually-hidden"))


def table(heads: Sequence[str], rows: Sequence[html.Tr], *, numbers: Sequence[str] = ()) -> Component:
    """Build a plain table. A column without a head contains buttons. ``numbers`` are the heads over numbers."""
    made = [html.Th(h, className="right" if h in numbers else None) if h else unseen_head("Actions") for h in heads]
    head = html.Thead(html.Tr(made))
    return html.Table([head, html.Tbody(list(rows))], className="plain-table")


def fact(label: str, value: str, *, basis: Basis | None = Basis.MEASURED, hint: str | None = None) -> html.Div:
    """Build one value with its label. ``hint`` explains the value; if the value is missing, it states the reason."""
    is_missing = value == text.MISSING
    why = hint or ("not reported" if is_missing else None)
    more: dict[str, Any] = {"title": why} if why else {}
    parts: list[Component] = [html.Span(value, className="fact-value missing" if is_missing else "fact-value")]
    if basis is not None and not is_missing:
        parts.append(status.basis(basis))
    return html.Div([html.Dt(label), html.Dd(parts)], className="fact", **more)


def fact_of(label: str, parts: Sequence[Component], *, hint: str) -> html.Div:
    """Build one value that consists of several parts, with its label."""
    return html.Div([html.Dt(label), html.Dd(list(parts))], className="fact", title=hint)


def facts(items: Sequence[html.Div]) -> html.Dl:
    """Build a row of values, each made by ``fact``."""
    return html.Dl(list(items), className="facts")


RETRY_MS = 3_000
"""A page whose first request got no answer asks again this often."""


def retry(id_: str) -> dcc.Interval:
    """Build the interval that asks again while the API does not answer. See ``callbacks.connect``."""
    return dcc.Interval(id=id_, interval=RETRY_MS, disabled=True)


def message(problem: Exception, *, is_asked_again: bool = True, has_button: bool = True) -> html.Div:
    """Build the message that shows an error of the API to the viewer.

    If what the page shows does not exist, the message replaces all other parts of the page. ``is_asked_again`` is
    whether the page repeats the request by itself, and ``has_button`` whether the viewer repeats it with a button.
    """
    if isinstance(problem, ApiNotFoundError):
        return _not_found(problem)
    is_refusal = isinstance(problem, ApiRefusedError)
    title = "Request refused" if is_refusal else "No fresh data" if is_asked_again else "No answer"
    later = (
        "The page shows the data that was read last. It refreshes automatically."
        if is_asked_again
        else "The page does not repeat this request. When the service answers again, "
        + ("press the button again." if has_button else "reload the page.")
    )
    tail = None if is_refusal else html.P(later)
    said: list[Component] = [html.P(str(problem))]
    if isinstance(problem, ApiRefusedError) and problem.parts:
        said = [html.P(f"{problem.parts[0]}:"), html.Ul([html.Li(part) for part in problem.parts[1:]])]
    return html.Div(
        [status.icon("warning"), html.Div([html.Strong(title), *said, tail])],
        className="message tone-bad refused" if is_refusal else "message tone-bad",
        role="alert",
        # The page's word *live* then changes.
        **attrs({} if is_refusal or not is_asked_again else {"data-api": "silent"}),
    )


def _not_found(problem: ApiNotFoundError) -> html.Div:
    why = "The address may be wrong, or the history of this service no longer contains it."
    said = str(problem)
    return html.Div(
        [
            html.H1("Nothing at this address"),
            html.P(f"{capitalised(said)}. {why}"),
            html.P(dcc.Link("Go to the fleet", href=routes.fleet(), className="button")),
        ],
        className="empty-state not-found",
        role="alert",
    )


def answer(is_ok: bool, said: str, *, link: Component | None = None) -> html.Div:
    """Build the message that shows the result of an action of the viewer. ``link`` leads to more."""
    tone, name = (Tone.GOOD, "check") if is_ok else (Tone.BAD, "cross")
    words = html.P(said if link is None else [said, " ", link])
    return html.Div([status.icon(name), words], className=f"answer tone-{tone}", role="status")


def unexpected(error: Exception) -> html.Div:
    """Build the message that shows an error of the dashboard itself. The log contains its traceback."""
    words = f"This part of the page could not be drawn ({type(error).__name__}). See the log of the api role."
    return html.Div([status.icon("warning"), html.P(words)], className="message tone-bad", role="alert")


def source_line(parts: Sequence[Component | str]) -> html.P:
    """Build the line at the bottom of a page that states the source and the age of its data."""
    joined: list[Component | str] = []
    for part in parts:
        joined += [part] if not joined else [" · ", part]
    return html.P(joined, className="source-line")


def age(label: str, at: datetime | None, *, is_alarming: bool = True) -> html.Span:
    """Build a text of ``label`` and the age of ``at``.

    The browser keeps the age current, even if the API stops responding. If ``is_alarming``, an age of more than a
    minute is highlighted.
    """
    if at is None:
        return html.Span([label, " ", html.Span(text.MISSING, title="nothing read yet")])
    return html.Span(
        [
            label,
            " ",
            html.Span(
                className="age is-due" if is_alarming else "age",
                title=text.instant_utc(at),
                **attrs({"data-instant": at.isoformat()}),
            ),
        ]
    )


def link_button(
    word: str,
    href: str | None,
    icon_name: str,
    *,
    hint: str,
    is_icon_last: bool = False,
    steps: str | None = None,
) -> Component:
    """Build a link that looks like a button. Without an address it is disabled.

    ``steps`` is the key that follows the link, ``<`` or ``>``. A link with such a key keeps what the
    viewer has opened and picked.
    """
    parts: list[Component] = [status.icon(icon_name), html.Span(word)]
    if is_icon_last:
        parts.reverse()
    if href is None:
        return html.Span(parts, className="button is-off", title=hint, **attrs({"aria-disabled": "true"}))
    if steps is not None:
        hint = f"{hint} (key {steps})"
    link = dcc.Link(parts, href=href, className="button", title=hint)
    return link if steps is None else html.Span(link, className="step", **attrs({"data-step": steps}))


def page_links(
    cursor: str, following: str | None, address_of: Callable[[str], str], *, first_hint: str, following_hint: str
) -> list[Component]:
    """Build the links to the first page of a list and to the one that follows ``cursor``, as far as there are any.

    ``address_of`` returns the address of the page at a cursor. The hints say what is there.
    """
    links: list[Component] = []
    if cursor:
        links.append(link_button("First page", address_of(""), "left", hint=first_hint))
    if following is not None:
        links.append(link_button("Next page", address_of(following), "right", hint=following_hint, is_icon_last=True))
    return links


def copy_button(word: str, value: str, *, label: str | None = None) -> html.Button:
    """Build a button that copies ``value``. ``label`` is its name for screen readers, if ``word`` is not enough."""
    more = {"aria-label": label} if label else {}
    return html.Button(
        [status.icon("copy"), html.Span(word)], type="button", className="button", **attrs({"data-copy": value} | more)
    )


def choice(word: str, id_: str, words: Mapping[str, str], value: str, *, width_px: int) -> Component:
    """Build a labelled drop-down list. ``words`` maps each value to its text."""
    return html.Div(
        [
            html.Span(word, className="hint", **attrs({"aria-hidden": "true"})),
            dmc.Select(
                id=id_,
                data=[{"value": k, "label": v} for k, v in words.items()],
                value=value,
                allowDeselect=False,
                size="xs",
                w=width_px,
                **attrs({"aria-label": word}),
            ),
        ],
        className="inline-field",
    )


# --- charts -------------------------------------------------------------------------------------------------------

_GRAPH_CONFIG: Any = {
    "displaylogo": False,
    "responsive": True,
    "displayModeBar": "hover",
    # ``sendChartToCloud`` is removed, because it would upload the figure to another server.
    "modeBarButtonsToRemove": ["lasso2d", "autoScale2d", "sendChartToCloud"],
    "showLink": False,
    "plotlyServerURL": "",
}


def chart(
    name: str,
    title: str,
    *,
    hint: str | Component | None = None,
    tools: Sequence[Component] = (),
    before: Component | None = None,
    after: Component | None = None,
    height_px: int = 300,
    is_scrolled: bool = False,
) -> html.Section:
    """Build a card with a figure, its summary for screen readers, its table and its CSV download.

    ``is_scrolled`` makes a figure that may be higher than its box a stop of the Tab key, so that arrow keys scroll it.
    """
    scrolled: dict[str, Any] = {"tabIndex": 0, **attrs({"aria-label": title})} if is_scrolled else {}
    figure = html.Figure(
        [
            # Even before Plotly draws the figure, its box has the final height, so that the content after it does not
            # move.
            html.Div(
                dcc.Graph(
                    id=f"{name}-graph", figure=_awaited(height_px), config=_GRAPH_CONFIG, style={"height": "100%"}
                ),
                id=f"{name}-box",
                style={"height": f"{height_px}px"},
                **attrs({"aria-hidden": "true"}),
            ),
            html.Figcaption(id=f"{name}-summary", className="visually-hidden"),
        ],
        id=f"{name}-figure",
        className="figure",
        **scrolled,
    )
    # The script creates the table when the viewer opens it. Even a hidden table takes time to draw.
    grid = html.Div(id=f"{name}-wrap", style={"display": "none"})
    data = ChartData(f"{name}-data")
    return card(title, [before, figure, grid, data, after], tools=[*tools, *_chart_tools(name, title)], hint=hint)


def _chart_tools(name: str, title: str) -> list[Component]:
    return [
        html.Button(
            [status.icon("table"), html.Span("Table")],
            id=f"{name}-toggle",
            className="button",
            title="view as table",
            disable_n_clicks=True,
            **attrs({"data-chart": name, "aria-pressed": "false", "aria-label": f"{title}: view as table"}),
        ),
        html.Button(
            [status.icon("download"), html.Span("CSV")],
            id=f"{name}-csv",
            className="button",
            title="download as CSV",
            disable_n_clicks=True,
            **attrs({"data-chart": name, "aria-label": f"{title}: download as CSV"}),
        ),
        html.Span(id=f"{name}-saved", className="visually-hidden", role="status", disable_n_clicks=True),
    ]


def _awaited(height_px: int) -> dict[str, object]:
    """Return the figure that a chart has before its data. The script ``charts.js`` does not draw it."""
    return {"data": [], "layout": {"height": height_px, "meta": "awaited"}}


def table_data(name: str, table: Table) -> dict[str, object]:
    """Convert a chart's table to the data that the browser reads."""
    return {"name": name, "columns": list(table.columns), "rows": [list(r) for r in table.rows]}


def chart_outputs(name: str) -> dict[str, Output]:
    """Return the Dash outputs of a chart, for which ``chart_values`` returns the values."""
    return {
        "figure": Output(f"{name}-graph", "figure"),
        "summary": Output(f"{name}-summary", "children"),
        "table": Output(f"{name}-data", "data"),
    }


def chart_values(name: str, value: Chart) -> dict[str, object]:
    """Return the values of the outputs that ``chart_outputs`` lists."""
    return {"figure": value.figure, "summary": value.summary, "table": table_data(name, value.table)}
