"""Plans the tour of a first-time viewer: the addresses of the troubled demo job, of a checkpoint of it, and its advice.

The browser runs the tour: ``assets/tour.js``, and ``assets/lazy/tour-steps.js``, which is loaded when a tour starts.
The browser requests the plan when the fleet is shown to a viewer who has not decided on the tour yet, when the viewer
presses *Tour*, and while a step waits for a checkpoint. Without the demo jobs of ``barrierscope up`` there is no tour,
and the plan says so.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from backend.domain.verdict import Health
from dashboard import routes, text
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient, BoardQuery
from dashboard.targets_address import TargetList

TROUBLED = "orders-aligned"
"""The name of the demo job that the tour shows: ``backpressured.toml`` of the demo jobs."""
_ABSENT = (
    "The tour needs the demo jobs of `barrierscope up`, and none of the targets runs them. Start another instance"
    " without --no-demo to take the tour."
)
_NOT_READ = "The demo jobs have not been read yet. Try again in some seconds."
# The number of rows that are read: enough to find the troubled job among those whose names contain its name.
_FOUND_MAX = 20
# If none of this many checkpoints failed, the tour does not wait for a failure.
_ENOUGH = 12


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the tour."""
    connect(
        app,
        partial(plan, client),
        output={"plan": Output("tour-plan", "data")},
        inputs={"asked": Input("tour-ask", "data")},
        prevent_initial_call=True,
    )
    in_browser = partial(ClientsideFunction, "tour")
    app.clientside_callback(
        in_browser("ask"), Output("tour-ask", "data"), Input("tour-start", "n_clicks"), Input("url", "pathname")
    )
    app.clientside_callback(in_browser("receive"), Input("tour-plan", "data"), prevent_initial_call=True)


async def plan(client: ApiClient, *, asked: object) -> Changes:
    """Return the plan of the tour, or the reason why there is none. ``asked`` is returned in the plan."""
    if not isinstance(asked, dict):
        raise PreventUpdate
    try:
        steps = await _plan(client)
    except (ApiRefusedError, ApiUnavailableError) as problem:
        steps = {"reason": str(problem)}
    return {"plan": steps | {"asked": asked}}


async def _plan(client: ApiClient) -> dict[str, Any]:
    targets = (await client.targets(TargetList(), origin="built-in")).items
    built_in = {t.id for t in targets if t.is_enabled}
    if not built_in:
        return {"reason": _ABSENT, "is_absent": True}
    board = await client.board(BoardQuery(0, _FOUND_MAX, search=TROUBLED, has_ended=False))
    job = next((j for j in board.rows if j.name == TROUBLED and j.target_id in built_in), None)
    if job is None:
        return {"reason": _NOT_READ}
    shown = _telling((await client.checkpoints(job.id)).items)
    return {
        "job": {"id": job.id, "name": text.short(job.name, 60)},
        "fleet": routes.fleet(),
        "page": routes.job(job.id),
        "advice": routes.advice(job.id),
        "checkpoint": None if shown is None else routes.checkpoint(job.id, shown.run_id, shown.checkpoint_id),
        "number": None if shown is None else shown.checkpoint_id,
        "is_healthy": job.health is Health.HEALTHY,
        "is_failed": shown is not None and shown.status is CheckpointStatus.FAILED,
    }


def _telling(checkpoints: list[CheckpointOut]) -> CheckpointOut | None:
    """Return the newest failed checkpoint. If none failed, return the slowest one, or None if there are only a few."""
    failed = next((c for c in checkpoints if c.status is CheckpointStatus.FAILED), None)
    if failed is not None:
        return failed
    ended = [c for c in checkpoints if c.end_to_end_duration_ms is not None]
    slowest = max(ended, key=lambda c: c.end_to_end_duration_ms or 0, default=None)
    return slowest if len(ended) >= _ENOUGH else None
