"""What the page shows for the position of the sliders: the prediction, its charts, and how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.whatif import Tier, WhatIfIn, WhatIfOut
from backend.domain.advice import Mode
from backend.domain.errors import ApiNotFoundError, ApiRefusedError, ApiUnavailableError
from dashboard import routes
from dashboard.callbacks import Changes, connect
from dashboard.client import ApiClient
from dashboard.components import advice_cards, cards, exports, freshness, status, whatif
from dashboard.components.attributes import attrs
from dashboard.figures import whatif as figures
from dashboard.live import digest, look_of
from dashboard.pages.whatif import controls

ANSWER_RETRY, FILL_RETRY = "whatif-answer-retry", "whatif-fill-retry"
_TIMEOUTS = ("500 ms", "1000 ms", "2000 ms", "5000 ms", "10000 ms")
"""The aligned timeouts that the chart of candidates compares."""


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the sliders and of what is predicted."""
    _register_sliders(app, client)
    connect(
        app,
        partial(answer, client),
        output={
            "message": Output("whatif-message", "children"),
            "head": Output("whatif-head", "children"),
            "stale": Output("whatif-job-stale", "children"),
            "said": Output("whatif-said", "children"),
            "table": Output("whatif-table", "children"),
            "durations": cards.chart_outputs("whatif-durations"),
            "trust": Output("whatif-trust", "children"),
            "change": Output("whatif-change", "children"),
            "class": Output("whatif-results", "className"),
            "proposed": Output("whatif-proposed", "data"),
            "propose": Output("whatif-propose", "disabled"),
            "title": Output("whatif-title", "data"),
            "answered": Output("whatif-answered", "data"),
            "failures": Output("whatif-failures", "children"),
            "waits": Output("whatif-better", "disabled"),
            "digest": Output("whatif-digest", "data"),
        },
        inputs={
            "wanted": Input("whatif-wanted", "data"),
            "look": Input("look", "data"),
            "ready": Input("whatif-ready", "data"),
            "settled": Input("whatif-settled", "data"),
            "again": Input("whatif-again", "data"),
        },
        state={"route": State("whatif-route", "data"), "answered": State("whatif-answered", "data")},
        running=[(Output("whatif-results", "className"), "whatif-results is-waiting", "whatif-results")],
        retry=ANSWER_RETRY,
    )
    connect(
        app,
        partial(await_better, client),
        output={
            "ready": Output("whatif-ready", "data"),
            "waits": Output("whatif-better", "disabled", allow_duplicate=True),
        },
        inputs={"tick": Input("whatif-better", "n_intervals")},
        state={"answered": State("whatif-answered", "data"), "route": State("whatif-route", "data")},
        prevent_initial_call=True,
    )
    connect(
        app,
        partial(compare, client),
        output={"pareto": cards.chart_outputs("whatif-pareto")},
        inputs={"answered": Input("whatif-answered", "data"), "look": Input("look", "data")},
        state={"route": State("whatif-route", "data"), "proposed": State("whatif-proposed", "data")},
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("whatif", "place"),
        Input("whatif-wanted", "data"),
        Input("whatif-confirmation", "data"),
        prevent_initial_call=True,
    )


def _register_sliders(app: Dash, client: ApiClient) -> None:
    connect(
        app,
        partial(fill, client),
        # ``answer`` sends the same request, and shows why it failed.
        output={
            "sliders": Output("whatif-sliders", "children"),
            "ranges": Output("whatif-ranges", "data"),
        },
        inputs={"refill": Input("whatif-refill", "data"), "settled": Input("whatif-settled", "data")},
        state={"wanted": State("whatif-wanted", "data"), "route": State("whatif-route", "data")},
        retry=FILL_RETRY,
    )
    connect(
        app,
        press,
        output={
            "wanted": Output("whatif-wanted", "data", allow_duplicate=True),
            "refill": Output("whatif-refill", "data", allow_duplicate=True),
        },
        inputs={"reset": Input("whatif-reset", "n_clicks"), "propose": Input("whatif-propose", "n_clicks")},
        state={"proposed": State("whatif-proposed", "data"), "refill": State("whatif-refill", "data")},
        has_trigger=True,
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("whatif", "move"),
        Input({"type": "whatif-slider", "key": ALL}, "value"),
        Input({"type": "whatif-choice", "key": ALL}, "value"),
        Input({"type": "whatif-flag", "key": ALL}, "checked"),
        State({"type": "whatif-slider", "key": ALL}, "id"),
        State({"type": "whatif-choice", "key": ALL}, "id"),
        State({"type": "whatif-flag", "key": ALL}, "id"),
        State("whatif-ranges", "data"),
        State("whatif-wanted", "data"),
        prevent_initial_call=True,
    )


async def fill(
    client: ApiClient, *, refill: int, settled: str | None, wanted: dict[str, Any], route: dict[str, str]
) -> Changes:
    """Build the sliders at the positions of the wanted settings. If these are invalid, at the job's own values."""
    settings = wanted["settings"]
    try:
        what_if = await client.what_if(route["job"], WhatIfIn(settings=settings))
        settings = what_if.asked.settings
    except ApiNotFoundError:
        raise
    except ApiRefusedError:
        if not settings:
            raise
        # The answer to the wanted settings says what is wrong with them.
        what_if = await client.what_if(route["job"], WhatIfIn())
        settings = {}
    return {"sliders": controls.sliders(what_if, settings), "ranges": controls.ranges_of(what_if, settings)}


def press(
    *,
    reset: int | None,
    propose: int | None,
    proposed: dict[str, str] | None,
    refill: int,
    trigger: object,
) -> Changes:
    """Set the sliders to the job's own values, or to what the open advice proposes."""
    is_proposal = trigger == "whatif-propose"
    if not (propose if is_proposal else reset):
        raise PreventUpdate
    settings = dict(proposed or {}) if is_proposal else {}
    return {"wanted": {"settings": settings}, "refill": refill + 1}


async def answer(
    client: ApiClient,
    *,
    wanted: dict[str, Any],
    look: object,
    ready: int | None,
    settled: str | None,
    again: int | None,
    route: dict[str, str],
    answered: dict[str, Any] | None,
) -> Changes:
    """Return what is predicted for the wanted settings.

    ``ready`` changes when a better tier can answer, ``settled`` when the effect of a change was measured, and ``again``
    when the viewer asks again, because the shown prediction is no longer kept.
    """
    view = look_of(look)
    what_if = await client.what_if(route["job"], WhatIfIn(settings=wanted["settings"]))
    job = await client.graph(route["job"])
    before = Tier(answered["tier"]) if answered and settings_in(answered) == dict(what_if.asked.settings) else None
    changed = controls.changed_words(what_if, what_if.asked.settings)
    chart = figures.durations(what_if, theme=view.theme, is_narrow=view.is_narrow)
    return {
        "message": None,
        "head": _head(what_if),
        # The prediction is of the time of this answer, so it is not live, even if the job is.
        "stale": freshness.note(job.freshness, "This job") or freshness.undated(),
        "said": [
            html.P(whatif.headline(what_if, changed), className="verdict-sentence"),
            whatif.tier_note(what_if, before=before),
        ],
        "table": whatif.predictions(what_if),
        "durations": cards.chart_values("whatif-durations", chart),
        "trust": whatif.trust(what_if),
        "change": change(what_if),
        "proposed": what_if.proposed,
        "propose": what_if.proposed is None,
        "title": f"What if: {what_if.job}",
        "answered": {
            "settings": dict(what_if.asked.settings),
            "digest": digest(what_if),
            "tier": what_if.asked.tier.value,
            "model_id": what_if.model_id,
            "first_id": what_if.checkpoint_ids[0] if what_if.checkpoint_ids else None,
        },
        "failures": whatif.failures(what_if),
        "waits": not what_if.is_better_tier_coming,
        "digest": digest(what_if),
    }


async def await_better(
    client: ApiClient, *, tick: int | None, answered: dict[str, Any] | None, route: dict[str, str]
) -> Changes:
    """Note that a better tier can answer what the page shows, or that it will not come."""
    if not tick or not answered:
        raise PreventUpdate
    try:
        what_if = await client.what_if(route["job"], WhatIfIn(settings=settings_in(answered)))
    except ApiUnavailableError:
        raise PreventUpdate from None  # The next tick asks again.
    except ApiRefusedError:
        # The page asks again for what it shows, and says why that is refused.
        return {"ready": tick, "waits": True}
    if what_if.is_better_tier_coming:
        raise PreventUpdate
    return {"ready": tick}


async def compare(
    client: ApiClient,
    *,
    answered: dict[str, Any] | None,
    look: object,
    route: dict[str, str],
    proposed: dict[str, str] | None,
) -> Changes:
    """Compare the wanted settings with other modes and aligned timeouts."""
    view = look_of(look)
    if not answered:
        raise PreventUpdate
    candidates: list[dict[str, str]] = [{"mode": Mode.ALIGNED.value}, {"mode": Mode.UNALIGNED.value}]
    candidates += [{"mode": Mode.ALIGNED_WITH_TIMEOUT.value, "aligned-timeout": t} for t in _TIMEOUTS]
    base = {k: v for k, v in answered["settings"].items() if k not in ("mode", "aligned-timeout", "in-flight-cap")}
    others = [base | c for c in candidates]
    if proposed and proposed not in others:
        others.append(proposed)
    asked = answered["settings"]
    try:
        what_if = await client.what_if(
            route["job"], WhatIfIn(settings=asked, candidates=[o for o in others if o != asked])
        )
    except ApiRefusedError:
        # A job that cannot change its mode has no candidates.
        what_if = await client.what_if(route["job"], WhatIfIn(settings=asked))
    return {"pareto": cards.chart_values("whatif-pareto", figures.pareto(what_if, theme=view.theme, proposed=proposed))}


def change(what_if: WhatIfOut) -> list[Component]:
    """Build the change in the engine's own keys, with the buttons that make it."""
    if not what_if.is_changed:
        return [html.P("Nothing is changed yet.", className="hint")]
    parts: list[Component] = []
    if what_if.changes:
        parts += [
            advice_cards.changes_diff(what_if.changes),
            cards.copy_button("Copy the new settings", "\n".join(what_if.how_to.lines)),
            html.P(what_if.how_to.file, className="hint"),
            *exports.details(what_if.exports),
        ]
    parts += [html.P(words) for words in what_if.by_hand]
    buttons: list[Component] = []
    if what_if.changes:
        words = "say where the change would be sent, and what would refuse it; nothing changes"
        buttons.append(
            html.Button(
                [status.icon("question"), html.Span("Dry run")], id="whatif-try", className="button", title=words
            )
        )
    if what_if.can_apply:
        buttons.append(
            html.Button([status.icon("bolt"), html.Span("Apply now")], id="whatif-apply", className="button primary")
        )
    elif what_if.changes and not what_if.by_hand:
        buttons.append(
            html.Button(
                [status.icon("check"), html.Span("I make this change")],
                id="whatif-accept",
                className="button",
                title="keep the prediction, and compare it with what happens after the restart",
            )
        )
    if what_if.why_not_apply is not None and not what_if.can_apply:
        parts.append(html.P(f"It cannot be applied from here: {what_if.why_not_apply}.", className="hint"))
    if not buttons:
        return parts
    answered = html.Div(id="whatif-tried", **attrs({"aria-live": "polite"}))
    return [*parts, html.Div(buttons, className="whatif-buttons"), answered]


def _head(what_if: WhatIfOut) -> Component:
    crumbs: list[Component | str] = [
        dcc.Link("Fleet", href=routes.fleet()),
        " / ",
        dcc.Link(what_if.job, href=routes.job(what_if.job_id)),
    ]
    about = "What the next checkpoints would be under other settings, predicted by a model of this job."
    return html.Div([html.Div(crumbs, className="crumbs"), html.H1("What if"), html.P(about, className="hint")])


def settings_in(answered: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the settings of the shown answer."""
    return dict(answered["settings"]) if answered else {}
