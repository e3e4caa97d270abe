"""Alerts as text, icons and colours: state, severity, one-line summary, matchers."""

from __future__ import annotations

from collections.abc import Sequence

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.alerts import AlertOut, MatcherOut
from dashboard import routes
from dashboard.components import cards, status
from dashboard.palette import Tone

_STATES = {
    "firing": ("firing", "bolt", Tone.BAD),
    "pending": ("pending", "hourglass", Tone.WARN),
    "resolved": ("resolved", "check", Tone.GOOD),
    "inactive": ("never fired", "question", Tone.QUIET),
}
_SEVERITIES = {"critical": ("warning", Tone.BAD), "warning": ("warning", Tone.WARN), "none": ("heart", Tone.QUIET)}


def state(value: str) -> html.Span:
    """The state of an alert."""
    word, icon, tone = _STATES[value]
    return status.badge(word, icon, tone, hint="state of the alert")


def severity(value: str) -> html.Span:
    """The severity of an alert."""
    icon, tone = _SEVERITIES[value]
    return status.badge("always fires" if value == "none" else value, icon, tone, hint="severity")


def marks(alert: AlertOut) -> list[Component]:
    """Badges for a silenced alert and for an unknown state."""
    found: list[Component] = []
    if alert.silenced_by:
        found.append(status.badge("silenced", "pause", Tone.QUIET, hint="evaluated and shown, but not delivered"))
    if alert.is_unknown:
        found.append(status.badge("state unknown", "question", Tone.WARN, hint=alert.reason))
    return found


def since(alert: AlertOut) -> Component:
    """When the alert began to fire, or when it ended."""
    if alert.ended_at is not None:
        return cards.age("ended", alert.ended_at, is_alarming=False)
    word = "fired" if alert.fired_at is not None else "became pending"
    return cards.age(word, alert.fired_at or alert.began_at, is_alarming=False)


def line(alert: AlertOut) -> Component:
    """One alert as a line of a list."""
    return html.Li(
        [
            state(alert.state),
            dcc.Link(alert.summary, href=routes.alert(alert.id)),
            html.Span(alert.rule, className="chip"),
            *marks(alert),
            since(alert),
        ],
        className="alert-line",
    )


def matchers_text(matchers: Sequence[MatcherOut]) -> str:
    """Matchers as they are typed: ``job=orders, severity!=warning``."""
    return ", ".join(f"{m.name}{'=' if m.is_equal else '!='}{m.value}" for m in matchers)


def matchers_of(typed: str) -> list[MatcherOut]:
    """Parse typed matchers. A part without ``=`` gets an empty name, which the API refuses."""
    found = []
    for part in (p.strip() for p in typed.split(",")):
        if not part:
            continue
        name, sign, value = part.partition("=")
        is_equal = not name.endswith("!")
        found.append(
            MatcherOut(
                name=(name if is_equal else name[:-1]).strip() if sign else "", value=value.strip(), is_equal=is_equal
            )
        )
    return found
