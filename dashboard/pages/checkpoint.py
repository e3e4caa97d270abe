"""One checkpoint: the verdict first, then its phases (V3), the barrier on the job graph (V5), and the evidence.

The address holds what is opened, sorted, picked and where the scrubber stands.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointDetailOut
from backend.contracts.barriers import BarriersOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from backend.domain.observation import Engine
from backend.domain.verdict import Basis, Health, Phase, VerdictKind
from dashboard import routes, text
from dashboard.client import ApiClient
from dashboard.components import cards, micro_batch, picked_subtask, progress, restoring, scrubber, status, verdict
from dashboard.components.attributes import attrs
from dashboard.figures import front, front_times, gantt
from dashboard.live import Look, digest, guarded, look
from dashboard.palette import PHASE_WORDS

# More rows than a screen holds are opened only when asked for.
_OPENED_MAX = 32
_SORT_WORDS = {
    "topology": "index",
    "finish": "finish",
    "start-delay": "first barrier",
    "alignment": "alignment",
    "async": "async",
    "host": "host",
}


def layout(route: routes.Route) -> Component:
    """The page of one checkpoint before its first answer."""
    selection = route.selection
    return html.Div(
        [
            dcc.Store(id="cp-route", data={"job": route.job, "run": route.run, "checkpoint": route.checkpoint}),
            dcc.Store(id="cp-digest"),
            dcc.Store(id="cp-title"),
            dcc.Store(id="cp-opened", data=None if selection.opened is None else list(selection.opened)),
            dcc.Store(id="cp-picked", data=selection.picked),
            dcc.Store(id="front-at", data=selection.at_ms),
            dcc.Store(id="front-steps"),
            html.Div(id="cp-message"),
            html.Div(id="cp-head", className="page-head"),
            html.Div(id="cp-verdict"),
            html.Div(id="cp-facts"),
            html.Div(progress.panel("cp"), id="cp-progress", style={"display": "none"}),
            html.Div(micro_batch.card(), id="cp-batch-views", style=micro_batch.HIDDEN),
            html.Div(_barrier_views(selection), id="cp-barrier-views"),
            html.Div(id="cp-evidence"),
            html.Div(id="cp-source"),
        ]
    )


def _barrier_views(selection: routes.Selection) -> list[Component]:
    return [
        cards.chart(
            "gantt",
            "Phases",
            hint="times since the trigger; a closed vertex shows its slowest subtask",
            tools=_gantt_tools(selection.sort),
            before=html.Div([_gantt_legend(), html.Div(id="cp-vertices", className="vertices")]),
            after=html.Div(id="cp-picked-panel", className="picked", **attrs({"aria-live": "polite"})),
        ),
        cards.chart(
            "front",
            "Barrier front",
            hint="where the barrier was, at the time of the slider",
            before=_front_legend(),
            after=scrubber.scrubber(selection.at_ms),
        ),
    ]


def _gantt_tools(sort: str) -> list[Component]:
    return [
        cards.choice("Subtasks by", "gantt-sort", _SORT_WORDS, sort, width_px=124),
        html.Button(
            "Open all", id="gantt-open-all", className="button", title="show or hide the subtasks of all vertices"
        ),
        html.Button(
            "Critical path",
            id="gantt-path",
            className="button",
            title="pin the critical path",
            **attrs({"aria-pressed": "true"}),
        ),
    ]


def _gantt_legend() -> Component:
    phases = [html.Span([html.Span(className=f"swatch phase-{p.value}"), PHASE_WORDS[p]]) for p in Phase]
    return html.Div(
        [
            *phases,
            html.Span([html.Span(className="swatch state-pending"), "not acknowledged"]),
            html.Span("◀ first barrier by gauge"),
            html.Span("━◆ critical path"),
        ],
        className="legend",
    )


def _front_legend() -> Component:
    states = (
        ("state-not-reached", "not reached"), ("state-aligning", "aligning"), ("state-snapshotting", "snapshotting"),
        ("state-acked", "acknowledged"), ("state-transit", "barrier in transit"),
    )  # fmt: skip
    return html.Div(
        [
            *(html.Span([html.Span(className=f"swatch {c}"), word]) for c, word in states),
            html.Span(id="front-basis"),
        ],
        className="legend",
    )


# --- callbacks ----------------------------------------------------------------------------------------------------


def register(app: Dash, client: ApiClient) -> None:
    """Keep the page live."""
    _register_refresh(app, client)
    _register_front(app, client)
    _register_selection(app, client)


def _register_refresh(app: Dash, client: ApiClient) -> None:
    outputs = (
        Output("cp-message", "children"),
        Output("cp-head", "children"),
        Output("cp-verdict", "children"),
        Output("cp-facts", "children"),
        Output("cp-progress", "style"),
        Output("cp-progress-target", "data"),
        Output("gantt-graph", "figure"),
        Output("gantt-summary", "children"),
        Output("gantt-data", "data"),
        Output("cp-vertices", "children"),
        Output("cp-batch-views", "style"),
        Output("cp-barrier-views", "style"),
        *cards.chart_outputs("cp-batch"),
        Output("cp-batch-facts", "children"),
        Output("cp-evidence", "children"),
        Output("cp-source", "children"),
        Output("cp-title", "data"),
        Output("cp-digest", "data"),
    )

    @app.callback(
        *outputs,
        Input("tick", "n_intervals"),
        Input("look", "data"),
        Input("gantt-sort", "value"),
        Input("gantt-path", "aria-pressed"),
        Input("cp-opened", "data"),
        State("cp-route", "data"),
        State("cp-digest", "data"),
        prevent_initial_call="initial_duplicate",
    )
    @guarded(len(outputs))
    async def refresh(
        tick: int | None, look_data: object, sort: str, path: str, chosen: list[str] | None, route: Any, before: Any
    ) -> Any:
        view = look(look_data)
        is_tick = ctx.triggered_id == "tick"
        # What is over changes only by late barriers: looking now and then is enough.
        if is_tick and before and before["is_settled"] and (tick or 0) % 5:
            raise PreventUpdate
        found = await client.checkpoint(route["job"], route["run"], route["checkpoint"])
        is_open = _is_open(found)
        if found.has_barriers and (found.acknowledged_count or 0) < (found.subtask_count or 0):
            key = (route["job"], route["run"], route["checkpoint"])
            found = front_times.with_measured_barriers(found, await _barriers(client, key, is_over=not is_open))
        opened = opened_of(chosen, found)
        drawn = digest(found, view.theme.name, str(view.where), sort, path, opened)
        buttons = digest(opened, [(v.vertex_id, v.acknowledged_count, v.subtask_count) for v in found.vertices])
        if before and drawn == before["drawn"] and not is_open:
            raise PreventUpdate
        elapsed = None
        if is_open:
            elapsed = (await client.progress(route["job"], route["run"], route["checkpoint"])).elapsed_ms
        chart = gantt.gantt(
            found, theme=view.theme, opened=opened, sort=sort, is_path_pinned=path == "true", elapsed_ms=elapsed
        )
        return (
            None,
            _head(found, view),
            _verdict(found),
            _facts(found, view),
            {"display": "block"} if is_open else {"display": "none"},
            route if is_open else None,
            *cards.chart_values("gantt", chart),
            _vertices(found, opened) if not before or before["vertices"] != buttons else no_update,
            *micro_batch.values(found, theme=view.theme),
            _evidence(found),
            _source(found),
            f"{found.kind.value} {found.checkpoint_id} of {found.job}",
            # ``data`` differs only where the data does: it is what the barrier front waits for.
            {
                "drawn": drawn,
                "is_settled": not is_open,
                "data": digest(found),
                "vertices": buttons,
                "elapsed_ms": elapsed,
            },
        )


def _register_front(app: Dash, client: ApiClient) -> None:
    outputs = (
        Output("cp-message", "children", allow_duplicate=True),
        Output("front-graph", "figure"),
        Output("front-summary", "children"),
        Output("front-data", "data"),
        Output("front-position", "children"),
        Output("front-basis", "children"),
        Output("front-slider", "max"),
        Output("front-slider", "value", allow_duplicate=True),
        Output("front-steps", "data"),
    )

    @app.callback(
        *outputs,
        Input("front-at", "data"),
        Input("look", "data"),
        Input("cp-opened", "data"),
        Input("cp-digest", "data"),
        State("cp-route", "data"),
        State("front-slider", "max"),
        State("front-slider", "value"),
        prevent_initial_call="initial_duplicate",
    )
    @guarded(len(outputs))
    async def redraw(
        at_ms: float | None, look_data: object, chosen: Any, loaded: Any, route: Any, slider_max: Any, slider: Any
    ) -> Any:
        view = look(look_data)
        if not loaded:
            raise PreventUpdate
        key = (route["job"], route["run"], route["checkpoint"])
        found, job = await asyncio.gather(client.checkpoint(*key), client.graph(key[0]))
        if found.batch is not None:
            # No barriers, no front.
            raise PreventUpdate
        barriers = await _barriers(client, key, is_over=not _is_open(found))
        elapsed = loaded["elapsed_ms"] if _is_open(found) else None
        model = front_times.build(found, job.vertices, job.edges, barriers, elapsed_ms=elapsed)
        # Nobody has moved the scrubber: show how it ended, or how it stands.
        shown_ms = model.end_ms if at_ms is None else min(float(at_ms), model.end_ms)
        chart = front.draw(model, shown_ms, theme=view.theme, opened=opened_of(chosen, found))
        end = round(model.end_ms + 0.5)
        return (
            None,
            *cards.chart_values("front", chart),
            text.duration(round(shown_ms)),
            _front_basis(model, barriers),
            no_update if end == slider_max else end,
            end if at_ms is None and slider != end else no_update,
            list(model.steps_ms),
        )

    scrubber.register(app)


async def _barriers(client: ApiClient, key: tuple[str, str, int], *, is_over: bool) -> BarriersOut | None:
    try:
        return await client.barriers(*key, is_over=is_over)
    except ApiRefusedError:
        # No events were kept of this checkpoint; its phases still tell when each subtask was reached.
        return None


def _register_selection(app: Dash, client: ApiClient) -> None:
    @app.callback(
        Output("cp-opened", "data"),
        Output("cp-picked", "data"),
        Input("gantt-graph", "clickData"),
        Input("front-graph", "clickData"),
        Input("gantt-open-all", "n_clicks"),
        Input({"type": "vertex-toggle", "vertex": ALL}, "n_clicks"),
        State("cp-opened", "data"),
        State("cp-route", "data"),
        prevent_initial_call=True,
    )
    async def select(
        in_gantt: Any, in_front: Any, _all: Any, toggles: list[int | None], chosen: Any, route: Any
    ) -> Any:
        by = ctx.triggered_id
        if isinstance(by, dict) and not any(toggles):
            # The buttons were drawn anew; nobody pressed one.
            raise PreventUpdate
        try:
            found = await client.checkpoint(route["job"], route["run"], route["checkpoint"])
        except (ApiRefusedError, ApiUnavailableError):
            raise PreventUpdate from None
        opened = opened_of(chosen, found)
        if by == "gantt-open-all":
            every = [v.vertex_id for v in found.vertices]
            return ([] if len(opened) == len(every) else every), no_update
        if isinstance(by, dict):
            return _toggled(opened, by["vertex"]), no_update
        try:
            vertex, subtask = (in_gantt if by == "gantt-graph" else in_front)["points"][0]["customdata"]
        except (TypeError, KeyError, IndexError, ValueError):
            raise PreventUpdate from None
        picked = no_update if subtask is None else f"{vertex}:{subtask}"
        return (no_update if subtask is not None and vertex in opened else _toggled(opened, vertex)), picked

    @app.callback(
        Output("cp-picked-panel", "children"),
        Input("cp-picked", "data"),
        Input("cp-digest", "data"),
        State("cp-route", "data"),
    )
    async def show_picked(picked: str | None, loaded: Any, route: Any) -> Any:
        if not loaded:
            raise PreventUpdate
        key = (route["job"], route["run"], route["checkpoint"])
        try:
            found, job = await asyncio.gather(client.checkpoint(*key), client.graph(key[0]))
        except (ApiRefusedError, ApiUnavailableError):
            raise PreventUpdate from None
        return picked_subtask.panel(found, job, picked)

    @app.callback(Output("gantt-path", "aria-pressed"), Input("gantt-path", "n_clicks"), prevent_initial_call=True)
    def pin(clicks: int | None) -> str:
        return "false" if clicks and clicks % 2 else "true"

    app.clientside_callback(
        ClientsideFunction("bs", "permalink"),
        Input("cp-opened", "data"),
        Input("gantt-sort", "value"),
        Input("front-at", "data"),
        Input("cp-picked", "data"),
        prevent_initial_call=True,
    )


def opened_of(chosen: list[str] | None, found: CheckpointDetailOut) -> list[str]:
    """The opened vertices: what the viewer chose, or else the one that the verdict names."""
    if chosen is not None:
        return chosen
    named = found.verdict.vertex_id if found.verdict.kind is not VerdictKind.NONE else None
    return [v.vertex_id for v in found.vertices if v.vertex_id == named and len(v.subtasks) <= _OPENED_MAX]


def _is_open(found: CheckpointDetailOut) -> bool:
    return not found.status.is_terminal and not found.is_lost


def _toggled(opened: list[str], vertex: str) -> list[str]:
    rest = [v for v in opened if v != vertex]
    return rest if len(rest) < len(opened) else [*rest, vertex]


# --- parts --------------------------------------------------------------------------------------------------------


def _head(found: CheckpointDetailOut, view: Look) -> list[Component]:
    def link(number: int | None) -> str | None:
        return None if number is None else routes.checkpoint(found.job_id, found.run_id, number)

    return [
        html.Div(
            [
                html.Div(
                    [
                        dcc.Link("Fleet", href=routes.fleet()),
                        " / ",
                        dcc.Link(found.job, href=routes.job(found.job_id)),
                    ],
                    className="crumbs",
                ),
                html.Div(
                    [
                        html.H1(f"{_kind(found)} {found.checkpoint_id}"),
                        status.checkpoint(found),
                        status.failure(found),
                        *(() if found.batch is not None else (status.mode(found.mode),)),
                        html.Span(
                            text.instant(found.triggered_at, view.where),
                            className="hint",
                            title=text.instant_utc(found.triggered_at),
                        ),
                    ],
                    className="title-row",
                ),
            ]
        ),
        html.Div(
            [
                cards.link_button("Advice", routes.advice(found.job_id), "bolt", hint="what would cure its job"),
                cards.link_button("Previous", link(found.previous_id), "left", hint="checkpoint before"),
                cards.link_button("Next", link(found.next_id), "right", hint="next checkpoint", is_icon_last=True),
                cards.link_button(
                    "Last healthy",
                    routes.from_api_link(found.last_healthy_link),
                    "heart",
                    hint="the last healthy checkpoint" if found.last_healthy_link else "no healthy checkpoint is known",
                ),
            ],
            className="head-tools",
        ),
    ]


def _vertices(found: CheckpointDetailOut, opened: list[str]) -> list[Component]:
    """The keyboard's way to open a vertex."""
    return [
        html.Span("Subtasks of", className="hint"),
        *(
            html.Button(
                [html.Span(text.short(v.vertex, 24)), html.Span(f"{v.acknowledged_count}/{v.subtask_count}")],
                id={"type": "vertex-toggle", "vertex": v.vertex_id},
                className="button",
                title=f"{v.vertex}: {v.acknowledged_count} of {v.subtask_count} acknowledged; show or hide subtasks",
                **attrs({"aria-pressed": "true" if v.vertex_id in opened else "false"}),
            )
            for v in found.vertices
        ),
    ]


def _kind(found: CheckpointDetailOut) -> str:
    return "Batch" if found.batch is not None else found.kind.value.replace("-", " ").capitalize()


def _verdict(found: CheckpointDetailOut) -> Component:
    beside = verdict.effects(found.critical_path, found.end_to_end_duration_ms)
    healthy = routes.from_api_link(found.last_healthy_link)
    if healthy:
        beside.append(dcc.Link("Compare with the last healthy checkpoint", href=healthy))
    health = Health.FAILING if found.status is CheckpointStatus.FAILED else None
    return verdict.verdict_card(found.verdict, engine=found.engine, tone_of=health, beside=beside)


def _facts(found: CheckpointDetailOut, view: Look) -> Component:
    if found.batch is not None:
        return micro_batch.facts(found, found.batch)
    took = text.duration(found.end_to_end_duration_ms)
    why = "its end was not seen" if found.is_lost else "still in progress"
    return html.Section(
        cards.facts(
            [
                cards.fact("End-to-end duration", took, hint=why if took == text.MISSING else None),
                cards.fact("Acknowledged", f"{found.acknowledged_count} of {found.subtask_count}"),
                cards.fact("Start delay, max", text.duration(found.start_delay_max_ms)),
                cards.fact("Alignment, max", text.duration(found.alignment_max_ms)),
                cards.fact("Sync, max", text.duration(found.sync_max_ms)),
                cards.fact("Async, max", text.duration(found.async_max_ms)),
                cards.fact("Checkpointed size", text.size(found.checkpointed_size_bytes)),
                cards.fact("Full state size", text.size(found.full_state_size_bytes)),
                cards.fact("Persisted in-flight", text.size(found.persisted_bytes)),
                cards.fact("Timeout", text.duration(found.timeout_ms), basis=None, hint="configured"),
            ]
        ),
        className="card",
        **attrs({"aria-label": "Facts"}),
    )


def _evidence(found: CheckpointDetailOut) -> Component:
    parts: list[Component] = [verdict.evidence_table(found.verdict)]
    if found.failure_message:
        parts.insert(
            0, html.P(["The engine said: ", html.Code(text.short(found.failure_message, 600))], className="hint")
        )
    evidence = cards.card("Evidence", parts, hint="what the verdict rests on")
    return html.Div([c for c in (evidence, restoring.card(found.restoring)) if c is not None])


def _front_basis(model: front_times.Front, barriers: BarriersOut | None) -> list[Component | str]:
    if model.basis is Basis.MEASURED:
        return [status.basis(Basis.MEASURED), " per channel"]
    note = (
        barriers.note if barriers and barriers.note else "the engine does not report channels: dotted, with intervals"
    )
    return [status.basis(Basis.RECONSTRUCTED), f" {note}"]


_WHENCE = {
    Engine.FLINK: "Source: REST of the cluster",
    Engine.RUNTIME: "Source: reference runtime",
    Engine.SPARK: "Source: the listener in the query's driver",
}


def _source(found: CheckpointDetailOut) -> Component:
    return cards.source_line(
        [
            _WHENCE[found.engine],
            cards.age("read", found.observed_at, is_alarming=_is_open(found)),
            f"run {found.run_id}",
        ]
    )
