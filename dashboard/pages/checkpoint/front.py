"""Draws the barrier front of a checkpoint at the time that the scrubber shows."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import timedelta
from functools import partial
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.api import CheckpointDetailOut, JobDetailOut
from backend.contracts.barriers import BarriersOut
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import text
from dashboard.callbacks import Changes, connect
from dashboard.checkpoint_address import heat_of
from dashboard.client import ApiClient
from dashboard.components import cards, scrubber
from dashboard.figures import front
from dashboard.figures.front import times
from dashboard.figures.front.heat import HINTS, SHADES, heat_map
from dashboard.figures.front.readings import AROUND, NO_READINGS, Readings
from dashboard.figures.front.view import FrontView
from dashboard.live import Look, look_of
from dashboard.pages.checkpoint.parts import front_basis
from dashboard.pages.checkpoint.selection import is_pending, key_of, opened_of

_SEARCHED_MIN = 8
"""A graph with fewer vertices is small enough to be read without a search."""
_KEPT_MAX = 4
# If only these components change, only the instant or the colours change, so the rest of the page need not be sent
# again.
_LIGHT = ("front-at", "front-heat", "front-find", "front-fold")


def register(app: Dash, client: ApiClient) -> None:
    """Register the callback that draws the front when the scrubber, the opened vertices or the checkpoint changes."""
    connect(
        app,
        partial(redraw, client, _Models()),
        output={
            "message": Output("cp-message", "children", allow_duplicate=True),
            # If the API does not answer, the next tick reads the checkpoint again, and with it the front. Otherwise,
            # the tick would find nothing new, remove the message, and the front would stay as it is.
            "digest": Output("cp-digest", "data", allow_duplicate=True),
            "front": cards.chart_outputs("front"),
            "position": Output("front-position", "children"),
            "basis": Output("front-basis", "children"),
            "scale": Output("front-heat-scale", "children"),
            "slider_max": Output("front-slider", "max"),
            "slider": Output("front-slider", "value", allow_duplicate=True),
            "opens": Output("front-opens", "data"),
            "steps": Output("front-steps", "data"),
            "map": Output("front-map-data", "data"),
            "finder": {
                "shown": Output("front-finder", "style"),
                "names": Output("front-find", "data"),
                "is_off": Output("front-fold", "disabled"),
            },
            "still": {
                "figure": Output("front-multiples", "figure"),
                "box": Output("front-multiples-box", "style"),
                "words": Output("front-multiples-words", "children"),
            },
        },
        inputs={
            "at_ms": Input("front-at", "data"),
            "look": Input("look", "data"),
            "chosen": Input("cp-opened", "data"),
            "loaded": Input("cp-digest", "data"),
            "heat": Input("front-heat", "value"),
            "found": Input("front-find", "value"),
            "fold": Input("front-fold", "aria-pressed"),
        },
        state={
            "route": State("cp-route", "data"),
            "slider_max": State("front-slider", "max"),
            "slider": State("front-slider", "value"),
            "centre": State("front-centre", "data"),
        },
        has_trigger=True,
        prevent_initial_call="initial_duplicate",
    )
    app.clientside_callback(
        ClientsideFunction("bs", "togglePressed"),
        Output("front-fold", "aria-pressed"),
        Input("front-fold", "n_clicks"),
        State("front-fold", "aria-pressed"),
        prevent_initial_call=True,
    )
    app.clientside_callback(ClientsideFunction("front", "drawMap"), Input("front-map-data", "data"))
    scrubber.register(app)


class _Models:
    """Keeps the times that were computed last. Those of a large job take a fifth of a second to compute."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], tuple[tuple[object, ...], times.Front]] = OrderedDict()

    def of(
        self, detail: CheckpointDetailOut, job: JobDetailOut, barriers: BarriersOut | None, elapsed_ms: int | None
    ) -> times.Front:
        """Return the times of a checkpoint. They are computed anew if one of the responses of the API is new."""
        read = (detail, job, barriers)
        key = (*(id(r) for r in read), elapsed_ms)
        if key not in self._kept:
            # The responses are kept too. Otherwise, a new response could get the ``id()`` of one that was freed.
            self._kept[key] = read, times.build(detail, job.vertices, job.edges, barriers, elapsed_ms=elapsed_ms)
            while len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
        return self._kept[key][1]


async def redraw(
    client: ApiClient,
    models: _Models,
    *,
    at_ms: float | None,
    look: object,
    chosen: list[str] | None,
    loaded: dict[str, Any] | None,
    heat: str | None,
    found: str | None,
    fold: str | None,
    route: dict[str, Any],
    slider_max: float | None,
    slider: float | None,
    centre: list[float] | None,
    trigger: object,
) -> Changes:
    """Return the barrier front at ``at_ms`` since the trigger.

    If ``at_ms`` is None, the front is that at the end of the checkpoint, or now if the checkpoint is in progress. After
    a failed checkpoint has ended, further barriers may arrive, to which the viewer can move the scrubber.
    """
    page = look_of(look)
    if not loaded:
        raise PreventUpdate
    key = key_of(route)
    checkpoint, job = await asyncio.gather(client.checkpoint(*key), client.graph(key[0]))
    if checkpoint.batch is not None:
        # A micro-batch has no barriers, so there is no front to draw.
        raise PreventUpdate
    is_open = is_pending(checkpoint)
    barriers, readings = await asyncio.gather(
        read_barriers(client, key, is_over=not is_open), _readings(client, checkpoint)
    )
    model = models.of(checkpoint, job, barriers, loaded["elapsed_ms"] if is_open else None)
    shown_ms = model.opens_ms if at_ms is None else min(float(at_ms), model.end_ms)
    view = FrontView(
        page.theme,
        opened_of(chosen, checkpoint),
        is_narrow=page.is_narrow,
        heat=heat_of(heat),
        readings=readings,
        found=found,
        is_folded=fold == "true" and found is not None,
        # A search or a fold moves the visible part of the graph.
        centre=None if trigger in ("front-find", "front-fold") or not centre else (centre[0], centre[1]),
    )
    is_light = trigger in _LIGHT
    has_table = not (is_light and front.is_large(model))
    chart = cards.chart_values("front", front.draw(model, shown_ms, view, has_table=has_table))
    if not has_table:
        del chart["table"]
    changes: Changes = {
        "message": None,
        "front": chart,
        "position": text.duration(round(shown_ms)),
        "basis": front_basis(model, barriers),
        "scale": _scale(model, view, shown_ms),
        "map": front.overview(model, shown_ms, view),
        "finder": {"is_off": found is None},
    }
    if not is_light:
        changes["steps"] = list(model.steps_ms)
        changes["finder"] |= _finder(model)
    if trigger != "front-at" and page.is_still:
        changes["still"] = _still(model, view)
    return changes | _slider(model, page, at_ms, slider_max, slider)


def _slider(
    model: times.Front, page: Look, at_ms: float | None, slider_max: float | None, slider: float | None
) -> Changes:
    end = round(model.end_ms + 0.5)
    # Of an ended checkpoint that nothing followed, the scrubber opens at its right end.
    opens = end if model.opens_ms >= model.end_ms else round(model.opens_ms)
    changes: Changes = {"opens": opens}
    if end != slider_max:
        changes["slider_max"] = end
    if at_ms is None and slider != opens:
        changes["slider"] = opens
    return changes


def _finder(model: times.Front) -> Changes:
    names = [{"value": v.vertex_id, "label": v.name} for v in model.vertices]
    return {"names": names, "shown": {} if len(names) >= _SEARCHED_MIN else {"display": "none"}}


def _still(model: times.Front, view: FrontView) -> Changes:
    chart = front.multiples(model, view)
    return {"figure": chart.figure, "box": {"height": f"{chart.height_px}px"}, "words": chart.summary}


def _scale(model: times.Front, view: FrontView, at_ms: float) -> list[Component | str]:
    """Build the legend of the heat: its meaning, and its colours with the values at their ends."""
    found = heat_map(model, view.heat, view.readings.at(at_ms))
    if found is None:
        return []
    if not found.by_vertex:
        return [f"fill: {HINTS[view.heat]} (not reported)"]
    colours = html.I(className="heat-scale", style={"background": f"linear-gradient(90deg, {', '.join(SHADES)})"})
    ends = html.Span(found.words(found.low)), html.Span(found.words(found.high))
    return [html.Span(f"fill: {HINTS[view.heat]}"), ends[0], colours, ends[1]]


async def _readings(client: ApiClient, checkpoint: CheckpointDetailOut) -> Readings:
    """Return the backpressure around a checkpoint. Without it, the queues and the pressure are missing."""
    since = checkpoint.triggered_at - AROUND
    length_ms = checkpoint.end_to_end_duration_ms or checkpoint.timeout_ms or 0
    until = None if is_pending(checkpoint) else checkpoint.triggered_at + timedelta(milliseconds=length_ms) + AROUND
    try:
        return Readings(await client.pressure_around(checkpoint.job_id, since, until), checkpoint.triggered_at)
    except (ApiRefusedError, ApiUnavailableError):
        return NO_READINGS


async def read_barriers(client: ApiClient, key: tuple[str, str, int], *, is_over: bool) -> BarriersOut | None:
    """Return the barrier events of a checkpoint, or None if none are stored."""
    try:
        return await client.barriers(*key, is_over=is_over)
    except ApiRefusedError:
        return None
