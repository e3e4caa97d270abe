"""Reads a checkpoint and updates its page."""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import Dash, Input, Output, State
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointDetailOut
from dashboard.callbacks import Changes, connect
from dashboard.checkpoint_address import order_of
from dashboard.client import ApiClient
from dashboard.components import cards, freshness, links, micro_batch
from dashboard.figures import gantt
from dashboard.figures.front import times
from dashboard.live import digest, look_of
from dashboard.pages.checkpoint import parts
from dashboard.pages.checkpoint.front import read_barriers
from dashboard.pages.checkpoint.selection import is_pending, key_of, opened_of

_SETTLED_TICKS = 5
"""A checkpoint that has ended is read at every fifth tick only, because only late barriers can still change it."""


def register(app: Dash, client: ApiClient) -> None:
    """Register the callback that updates the page on every tick and when the viewer changes what it shows."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("cp-message", "children"),
            "stale": Output("cp-stale", "children"),
            "head": Output("cp-head", "children"),
            "verdict": Output("cp-verdict", "children"),
            "facts": Output("cp-facts", "children"),
            "progress_style": Output("cp-progress", "style"),
            "progress_target": Output("cp-progress-target", "data"),
            "gantt": cards.chart_outputs("gantt"),
            "vertices": Output("cp-vertices", "children"),
            "batch": micro_batch.outputs(),
            "evidence": Output("cp-evidence", "children"),
            "source": Output("cp-source", "children"),
            "title": Output("cp-title", "data"),
            "digest": Output("cp-digest", "data"),
        },
        inputs={
            "tick": Input("tick", "n_intervals"),
            "look": Input("look", "data"),
            "sort": Input("gantt-sort", "value"),
            "path": Input("gantt-path", "aria-pressed"),
            "chosen": Input("cp-opened", "data"),
        },
        state={"route": State("cp-route", "data"), "before": State("cp-digest", "data")},
        has_trigger=True,
        prevent_initial_call="initial_duplicate",
    )


async def refresh(
    client: ApiClient,
    *,
    tick: int | None,
    look: object,
    sort: str | None,
    path: str,
    chosen: list[str] | None,
    route: dict[str, Any],
    before: dict[str, Any] | None,
    trigger: object,
) -> Changes:
    """Return the contents of the page for the checkpoint in ``route``.

    ``before`` is the ``digest`` output of the previous call.
    """
    view = look_of(look)
    if trigger == "tick" and before and before["is_settled"] and (tick or 0) % _SETTLED_TICKS:
        raise PreventUpdate
    key = key_of(route)
    found = await _read(client, key)
    is_open = is_pending(found)
    opened = opened_of(chosen, found)
    drawn = digest(found, view, sort, path, opened)
    if before and drawn == before["drawn"] and not is_open:
        return {"message": None}
    vertex, subtask = parts.guilty(found)
    out = await links.read(
        client, found.job_id, run=found.run_id, vertex=vertex, subtask=subtask, checkpoint=found.checkpoint_id
    )
    elapsed_ms = (await client.progress(*key)).elapsed_ms if is_open else None
    chart = gantt.gantt(
        found,
        theme=view.theme,
        opened=opened,
        sort=order_of(sort),
        is_path_pinned=path == "true",
        elapsed_ms=elapsed_ms,
        is_narrow=view.is_narrow,
    )
    buttons = digest(opened, [(v.vertex_id, v.acknowledged_count, v.subtask_count) for v in found.vertices])
    changes: Changes = {
        "message": None,
        "stale": freshness.note(found.freshness, "This checkpoint") or freshness.final(found.freshness),
        "head": parts.head(found, view),
        "verdict": parts.verdict_part(found, out),
        "facts": parts.facts(found, view),
        "progress_style": {"display": "block"} if is_open else {"display": "none"},
        "progress_target": route if is_open else None,
        "gantt": cards.chart_values("gantt", chart),
        "batch": micro_batch.values(found, theme=view.theme),
        "evidence": parts.evidence(found),
        "source": parts.source(found),
        "title": f"{found.kind.value} {found.checkpoint_id} of {found.job}",
        # ``data`` changes only if the checkpoint changed.
        "digest": {
            "drawn": drawn,
            "is_settled": not is_open,
            "data": digest(found),
            "vertices": buttons,
            "elapsed_ms": elapsed_ms,
        },
    }
    if not before or before["vertices"] != buttons:
        changes["vertices"] = parts.vertex_buttons(found, opened)
    return changes


async def _read(client: ApiClient, key: tuple[str, str, int]) -> CheckpointDetailOut:
    """Return the checkpoint, with measured first barriers for the subtasks that have not acknowledged."""
    checkpoint = await client.checkpoint(*key)
    if not checkpoint.has_barriers or (checkpoint.acknowledged_count or 0) >= (checkpoint.subtask_count or 0):
        return checkpoint
    return times.with_measured_barriers(
        checkpoint, await read_barriers(client, key, is_over=not is_pending(checkpoint))
    )
