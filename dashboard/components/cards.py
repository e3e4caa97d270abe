"""Cards: a section with a head, facts, a chart with its table, messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import Output, dcc, html
from dash.development.base_component import Component

from backend.domain.errors import ApiRefusedError
from backend.domain.verdict import Basis
from dashboard import text
from dashboard.components import status
from dashboard.components.attributes import attrs
from dashboard.figures.base import Chart, Table
from dashboard.palette import Tone

Children = Sequence[Component | str | None] | Component | str | None

CHARTS = (
    "timeline", "trend", "job-acks", "pressure", "job-batches", "gantt", "front", "cp-acks", "cp-batch", "alert-strip",
)  # fmt: skip
"""The names of all charts; each belongs to one page."""

GRID_THEME = {"function": "themeQuartz.withPart(colorSchemeVariable)"}


def card(
    title: str, children: Children, *, tools: Sequence[Component] = (), hint: str | Component | None = None
) -> html.Section:
    """A section with a head; ``hint`` is the small text after the title."""
    head = html.Div(
        [
            html.Div([html.H2(title), html.Span(hint, className="hint") if hint else None], className="card-title"),
            html.Div(list(tools), className="card-tools"),
        ],
        className="card-head",
    )
    return html.Section(
        [head, html.Div(children, className="card-body")], className="card", **attrs({"aria-label": title})
    )


def unseen_head(word: str) -> html.Th:
    """A column head for screen readers only."""
    return html.Th(html.Span(word, className="visually-hidden"))


def table(heads: Sequence[str], rows: Sequence[html.Tr]) -> Component:
    """A plain table. An empty head stands over a column of buttons."""
    head = html.Thead(html.Tr([html.Th(h) if h else unseen_head("Actions") for h in heads]))
    return html.Table([head, html.Tbody(list(rows))], className="plain-table")


def fact(label: str, value: str, *, basis: Basis | None = Basis.MEASURED, hint: str | None = None) -> html.Div:
    """One number with its label. If it is missing, the hint gives the reason."""
    is_missing = value == text.MISSING
    why = hint or ("not reported" if is_missing else None)
    more: dict[str, Any] = {"title": why} if why else {}
    parts: list[Component] = [html.Span(value, className="fact-value missing" if is_missing else "fact-value")]
    if basis is not None and not is_missing:
        parts.append(status.basis(basis))
    return html.Div([html.Dt(label), html.Dd(parts)], className="fact", **more)


def facts(items: Sequence[html.Div]) -> html.Dl:
    """A strip of facts."""
    return html.Dl(list(items), className="facts")


def message(problem: Exception) -> html.Div:
    """An error of the API, for the viewer."""
    is_refusal = isinstance(problem, ApiRefusedError)
    title = "Request refused" if is_refusal else "No fresh data"
    tail = None if is_refusal else html.P("The page shows the data that was read last. It refreshes automatically.")
    return html.Div(
        [status.icon("warning"), html.Div([html.Strong(title), html.P(str(problem)), tail])],
        className="message tone-bad",
        role="alert",
    )


def answer(is_ok: bool, said: str) -> html.Div:
    """The result of an action of the viewer."""
    tone, name = (Tone.GOOD, "check") if is_ok else (Tone.BAD, "cross")
    return html.Div([status.icon(name), html.P(said)], className=f"answer tone-{tone}", role="status")


def unexpected(error: Exception) -> html.Div:
    """An error of the dashboard itself. The log has its traceback."""
    words = f"This part of the page could not be drawn ({type(error).__name__}). See the log of the api role."
    return html.Div([status.icon("warning"), html.P(words)], className="message tone-bad", role="alert")


def source_line(parts: Sequence[Component | str]) -> html.P:
    """The line under a page with the source and the age of its data."""
    joined: list[Component | str] = []
    for part in parts:
        joined += [part] if not joined else [" · ", part]
    return html.P(joined, className="source-line")


def age(label: str, at: datetime | None, *, is_alarming: bool = True) -> html.Span:
    """``label`` and the age of ``at``. The browser keeps the age up to date, even if the API stops answering.

    If ``is_alarming``, an age of more than a minute stands out.
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


def link_button(word: str, href: str | None, icon_name: str, *, hint: str, is_icon_last: bool = False) -> Component:
    """A link that looks like a button. Without an address it is disabled."""
    parts: list[Component] = [status.icon(icon_name), html.Span(word)]
    if is_icon_last:
        parts.reverse()
    if href is None:
        return html.Span(parts, className="button is-off", title=hint, **attrs({"aria-disabled": "true"}))
    return dcc.Link(parts, href=href, className="button", title=hint)


def choice(word: str, id_: str, words: Mapping[str, str], value: str, *, width_px: int) -> Component:
    """A labelled drop-down list. ``words`` maps each value to its text."""
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
    # ``sendChartToCloud`` would upload the figure to another server.
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
) -> html.Section:
    """A card with a figure, its summary for screen readers, its table and its CSV."""
    figure = html.Figure(
        [
            html.Div(
                dcc.Graph(id=f"{name}-graph", figure=_blank(height_px), config=_GRAPH_CONFIG),
                **attrs({"aria-hidden": "true"}),
            ),
            html.Figcaption(id=f"{name}-summary", className="visually-hidden"),
        ],
        id=f"{name}-figure",
        className="figure",
    )
    grid = html.Div(_grid(name), id=f"{name}-wrap", style={"display": "none"})
    store = dcc.Store(id=f"{name}-data")
    return card(title, [before, figure, grid, store, after], tools=[*tools, *_chart_tools(name, title)], hint=hint)


def _chart_tools(name: str, title: str) -> list[Component]:
    return [
        html.Button(
            [status.icon("table"), html.Span("Table")],
            id=f"{name}-toggle",
            className="button",
            title="view as table",
            **attrs({"aria-pressed": "false", "aria-label": f"{title}: view as table"}),
        ),
        html.Button(
            [status.icon("download"), html.Span("CSV")],
            id=f"{name}-csv",
            className="button",
            title="download as CSV",
            **attrs({"aria-label": f"{title}: download as CSV"}),
        ),
        html.Span(id=f"{name}-saved", className="visually-hidden", role="status"),
    ]


def _grid(name: str) -> dag.AgGrid:
    return dag.AgGrid(
        id=f"{name}-grid",
        columnDefs=[],
        rowData=[],
        defaultColDef={"sortable": True, "resizable": True, "filter": True, "minWidth": 90},
        columnSize="autoSize",
        dashGridOptions={
            "theme": GRID_THEME,
            "rowHeight": 30,
            "headerHeight": 34,
            # Screen readers need every column, in order.
            "ensureDomOrder": True,
            "suppressColumnVirtualisation": True,
        },
        style={"height": "320px"},
    )


def _blank(height_px: int) -> dict[str, object]:
    """An empty figure, shown until the first answer."""
    hidden = {"visible": False}
    clear = "rgba(0,0,0,0)"
    layout = {"height": height_px, "xaxis": hidden, "yaxis": hidden, "paper_bgcolor": clear, "plot_bgcolor": clear}
    return {"data": [], "layout": layout}


def table_data(name: str, table: Table) -> dict[str, object]:
    """A chart's table for the browser."""
    return {"name": name, "columns": list(table.columns), "rows": [list(r) for r in table.rows]}


def chart_outputs(name: str) -> dict[str, Output]:
    """The outputs of a chart, which ``chart_values`` fills."""
    return {
        "figure": Output(f"{name}-graph", "figure"),
        "summary": Output(f"{name}-summary", "children"),
        "table": Output(f"{name}-data", "data"),
    }


def chart_values(name: str, value: Chart) -> dict[str, object]:
    """The values of a chart's outputs."""
    return {"figure": value.figure, "summary": value.summary, "table": table_data(name, value.table)}
