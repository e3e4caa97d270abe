"""The page with the alert rules. The viewer can edit thresholds and times, and switch rules on and off."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from dash import ALL, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from backend.contracts.alerts import AlertRuleOut, AlertRulePatch
from backend.domain.errors import ApiRefusedError, ApiUnavailableError
from dashboard import routes
from dashboard.callbacks import Changes, connect, pressed_id
from dashboard.client import ApiClient
from dashboard.components import alerts as words
from dashboard.components import cards, incidents, status
from dashboard.components.attributes import attrs
from dashboard.live import digest, look_of
from dashboard.palette import Tone

_TIMES = (("for_s", "Fires after (s)"), ("keep_firing_for_s", "Resolves after (s)"))
_THRESHOLDS = {
    "completed_min_count": "Completed to resolve",
    "confidence_min_ratio": "Probability, at least",
    "debt_min_s": "Debt above (s)",
    "expired_min_count": "Expired, at least",
    "failures_min_count": "Failures in a row",
    "growth_min_ratio": "Times as large",
    "held_min_ratio": "Share of days kept",
    "lost_min_count": "Rows lost, at least",
    "past_min_count": "Past checkpoints",
    "refused_min_count": "Refused in a row",
    "restarts_min_count": "Restarts in a row",
    "silence_min_s": "Silent for (s)",
    "stale_after_s": "Not read for (s)",
    "timeout_within_s": "Timeout within (s)",
    "window_s": "Within (s)",
    "window_count": "Among the newest",
    "window_ratio": "Window multiplied by",
}
"""A short label for each threshold. Its full meaning appears when the pointer is over the field."""


def layout() -> Component:
    """Build the page without data, which the first refresh adds."""
    return html.Div(
        [
            html.Div(html.H1("Alerts"), className="page-head"),
            incidents.tabs("Rules"),
            dcc.Store(id="rules-title", data="Alert rules"),
            html.Div(id="rules-message"),
            cards.card(
                "Rules",
                html.Div(id="rules-list"),
                hint="current thresholds; a change takes effect at the next evaluation",
            ),
            html.Div(id="rules-answer", **attrs({"aria-live": "polite"})),
            dcc.Store(id="rules-digest"),
            dcc.Store(id="rules-changed"),
        ]
    )


def register(app: Dash, client: ApiClient) -> None:
    """Register the callbacks of the page."""
    connect(
        app,
        partial(refresh, client),
        output={
            "message": Output("rules-message", "children"),
            "rules": Output("rules-list", "children"),
            "digest": Output("rules-digest", "data"),
        },
        inputs={
            "tick": Input("status-tick", "n_intervals"),
            "look": Input("look", "data"),
            "changed": Input("rules-changed", "data"),
        },
        state={"before": State("rules-digest", "data")},
    )
    connect(
        app,
        partial(save, client),
        output={"answer": Output("rules-answer", "children"), "changed": Output("rules-changed", "data")},
        inputs={
            "saves": Input({"type": "rule-save", "rule": ALL, "version": ALL}, "n_clicks"),
            "switches": Input({"type": "rule-switch", "rule": ALL, "version": ALL, "to": ALL}, "n_clicks"),
        },
        state={
            "values": State({"type": "rule-value", "rule": ALL, "field": ALL}, "value"),
            "ids": State({"type": "rule-value", "rule": ALL, "field": ALL}, "id"),
        },
        has_trigger=True,
        prevent_initial_call=True,
    )


async def refresh(client: ApiClient, *, tick: int | None, look: object, changed: Any, before: str | None) -> Changes:
    """Return the rules.

    The page is updated only if the version of a rule has changed, so that a half-typed value is not lost.
    """
    look_of(look)
    rules = (await client.alert_rules()).items
    now = digest([(r.name, r.version) for r in rules])
    if now == before:
        raise PreventUpdate
    return {"message": None, "rules": [_rule(r) for r in rules], "digest": now}


async def save(
    client: ApiClient,
    *,
    saves: list[int | None],
    switches: list[int | None],
    values: list[Any],
    ids: list[dict[str, str]],
    trigger: object,
) -> Changes:
    """Save the values of the rule whose button was pressed, or switch the rule on or off."""
    pressed = pressed_id([*saves, *switches], trigger)
    if pressed is None:
        raise PreventUpdate
    rule = pressed["rule"]
    if pressed["type"] == "rule-switch":
        patch = AlertRulePatch(is_enabled=pressed["to"] == "on")
    else:
        typed = {i["field"]: v for i, v in zip(ids, values, strict=True) if i["rule"] == rule}
        wrong = next((field for field, value in typed.items() if not isinstance(value, int | float)), None)
        if wrong is not None:
            label = dict(_TIMES).get(wrong) or threshold_label(wrong)
            return {"answer": cards.answer(False, f"{rule}: {label} must be a number.")}
        times = {name: typed.pop(name) for name, _ in _TIMES}
        patch = AlertRulePatch(**times, thresholds=typed)
    try:
        saved = await client.change_alert_rule(rule, patch, version=pressed["version"])
    except (ApiRefusedError, ApiUnavailableError) as problem:
        return {"answer": cards.answer(False, f"{rule}: {_with_labels(str(problem))}")}
    answer = cards.answer(True, f"{rule} was saved as version {saved.version}.")
    return {"answer": answer, "changed": [rule, saved.version]}


def _rule(rule: AlertRuleOut) -> Component:
    fields = [_number(rule, name, label, getattr(rule, name), "seconds, 0 to 86400") for name, label in _TIMES]
    for t in rule.thresholds:
        hint = f"{t.name}: {t.meaning}; {t.least:g} to {t.most:g}, default {t.default:g}"
        bounds = f"{t.least:g} to {t.most:g}"
        fields.append(_number(rule, t.name, threshold_label(t.name), t.value, hint, bounds))
    to, icon, word = ("off", "pause", "Switch off") if rule.is_enabled else ("on", "play", "Switch on")
    buttons: list[Component] = [
        html.Button(
            [status.icon("check"), html.Span("Save")],
            id={"type": "rule-save", "rule": rule.name, "version": rule.version},
            className="button",
            **attrs({"aria-label": f"Save {rule.name}"}),
        )
    ]
    if rule.severity != "none":
        buttons.append(
            html.Button(
                [status.icon(icon), html.Span(word)],
                id={"type": "rule-switch", "rule": rule.name, "version": rule.version, "to": to},
                className="button",
                **attrs({"aria-label": f"{word} {rule.name}"}),
            )
        )
    head: list[Component | None] = [
        html.B(dcc.Link(rule.name, href=routes.runbook(rule.name), title="its runbook")),
        words.severity(rule.severity),
        None if rule.is_enabled else status.badge("switched off", "pause", Tone.QUIET),
        html.Span(f"version {rule.version}", className="hint") if rule.version else None,
    ]
    return html.Div(
        [
            html.Div(
                [html.Div(head, className="chips"), html.P(rule.meaning, className="hint")], className="rule-words"
            ),
            html.Div(fields, className="rule-fields")
            if rule.severity != "none"
            else html.Div("nothing to set", className="hint"),
            html.Div(buttons if rule.severity != "none" else [], className="actions"),
        ],
        className="rule-row",
    )


def _with_labels(said: str) -> str:
    """Return what the API said with the labels of the fields instead of their names."""
    for name, label in _TIMES:
        said = re.sub(rf"(?<![\w.]){name}:", f"{label}:", said)
    for name, label in _THRESHOLDS.items():
        said = said.replace(f"thresholds.{name}:", f"{label}:")
    return said


def threshold_label(name: str) -> str:
    """Return the label of a threshold. A newer service may have thresholds that this page does not know."""
    return _THRESHOLDS.get(name, name.replace("_", " "))


def _number(rule: AlertRuleOut, name: str, label: str, value: float, hint: str, bounds: str = "") -> Component:
    number = int(value) if value == int(value) else value
    control = dcc.Input(
        id={"type": "rule-value", "rule": rule.name, "field": name}, type="number", value=number, step="any"
    )
    within = html.Span(f" {bounds}", className="bounds") if bounds else None
    return html.Label([html.Span([label, within]), control], className="field", title=hint)
