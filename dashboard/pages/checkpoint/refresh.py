"""Reads a checkpoint and draws its page anew."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, ctx, no_update
from dash.exceptions import PreventUpdate

from dashboard.client import ApiClient
from dashboard.components import cards, micro_batch
from dashboard.figures import gantt
from dashboard.figures.front import times
from dashboard.live import digest, guarded, look
from dashboard.pages.checkpoint import parts
from dashboard.pages.checkpoint.front import read_barriers
from dashboard.pages.checkpoint.selection import is_pending, opened_of


def register_refresh(app: Dash, client: ApiClient) -> None:
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
        is_open = is_pending(found)
        if found.has_barriers and (found.acknowledged_count or 0) < (found.subtask_count or 0):
            key = (route["job"], route["run"], route["checkpoint"])
            found = times.with_measured_barriers(found, await read_barriers(client, key, is_over=not is_open))
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
            parts.head(found, view),
            parts.verdict_part(found),
            parts.facts(found, view),
            {"display": "block"} if is_open else {"display": "none"},
            route if is_open else None,
            *cards.chart_values("gantt", chart),
            parts.vertex_buttons(found, opened) if not before or before["vertices"] != buttons else no_update,
            *micro_batch.values(found, theme=view.theme),
            parts.evidence(found),
            parts.source(found),
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
