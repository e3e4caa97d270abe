"""Shows alerts as text, icons and colours: state, severity, one-line summary and matchers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.alerts import AlertOut, MatcherOut
from dashboard import routes, text
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.palette import Tone

_STATES = {
    "firing": ("firing", "bolt", Tone.BAD),
    "pending": ("pending", "hourglass", Tone.WARN),
    "resolved": ("resolved", "check", Tone.GOOD),
    "inactive": ("never fired", "question", Tone.QUIET),
}
_NAME_MAX = 40
_SEVERITIES = {"critical": ("warning", Tone.BAD), "warning": ("warning", Tone.WARN), "none": ("heart", Tone.QUIET)}


def tone_of(severity: str | None) -> Tone:
    """Return the tone of a number of firing alerts. None: somebody has silenced or seen each of them."""
    return Tone.QUIET if severity is None else Tone.BAD if severity == "critical" else Tone.WARN


def state(value: str, *, is_quiet: bool = False) -> html.Span:
    """Return a badge with the state of an alert. It ``is_quiet`` if somebody has silenced or acknowledged the alert."""
    word, icon, tone = _STATES[value]
    return status.badge(word, icon, Tone.QUIET if is_quiet else tone, hint="state of the alert")


def severity(value: str, *, is_quiet: bool = False) -> html.Span:
    """Return a badge with the severity of an alert."""
    icon, tone = _SEVERITIES[value]
    word = "always fires" if value == "none" else value
    return status.badge(word, icon, Tone.QUIET if is_quiet else tone, hint="severity")


def marks(alert: AlertOut) -> list[Component]:
    """Return badges for an alert that is silenced, and for one whose newest reading was not conclusive."""
    children: list[Component] = []
    if alert.silenced_by:
        children.append(status.badge("silenced", "pause", Tone.QUIET, hint="evaluated and shown, but not delivered"))
    if alert.is_unknown:
        children.append(status.badge("not confirmed now", "question", Tone.QUIET, hint=alert.reason))
    return children


def since(alert: AlertOut, where: tzinfo) -> Component:
    """Return when the alert ended, fired or became pending, whichever happened last, and how long ago that was."""
    at = alert.ended_at or alert.fired_at or alert.began_at
    word = "became pending" if alert.fired_at is None else "fires since"
    if alert.ended_at is not None:
        word = "ended"
    return cards.age(f"{word} {text.instant(at, where)},", at, is_alarming=False)


def line(alert: AlertOut, where: tzinfo) -> Component:
    """Return one alert as a line of a list."""
    return html.Li(
        [
            state(alert.state, is_quiet=bool(alert.silenced_by)),
            dcc.Link(alert.summary, href=routes.alert(alert.id), title=alert.summary),
            html.Span(text.short(alert.rule, _NAME_MAX), className="chip", title=alert.rule),
            *marks(alert),
            since(alert, where),
            # An alert also ends if nobody watches its job any more, which is no cure.
            *([html.Span(f"because {alert.ended_reason}", className="hint")] if alert.ended_reason else []),
        ],
        className="alert-line",
    )


def strip(opened: Sequence[AlertOut] | None, where: tzinfo) -> html.Section:
    """Return the open alerts in one line, which has the same height with and without alerts.

    The line shows the most urgent alert. The others open over the page. So nothing on the page moves when an alert
    fires or ends. None means that the alerts could not be read.
    """
    if not opened:
        line_parts: list[Component] = [
            html.P("No alert is open." if opened is not None else "The alerts could not be read.", className="hint")
        ]
    else:
        # A silenced alert does not stand before one that nobody has silenced.
        first, *others = sorted(
            opened, key=lambda a: (bool(a.silenced_by), a.state != "firing", a.severity != "critical")
        )
        line_parts = [html.Ul(line(first, where), className="alert-lines")]
        if others:
            more = html.Ul([line(a, where) for a in others], className="alert-lines card")
            line_parts.append(html.Details([html.Summary(f"{len(others)} more open"), more], className="more-alerts"))
    return html.Section(
        [html.H2("Alerts"), *line_parts], className="card alert-strip", **attrs({"aria-label": "Alerts"})
    )


def matchers_text(matchers: Sequence[MatcherOut]) -> str:
    """Return matchers in the form in which a viewer types them: ``job_name=orders, severity!=warning``."""
    return ", ".join(f"{m.name}{'=' if m.is_equal else '!='}{m.value}" for m in matchers)


def matchers_of(typed: str) -> list[MatcherOut]:
    """Parse matchers as a viewer typed them. A part without ``=`` gets an empty name, which the API refuses."""
    matchers = []
    for part in (p.strip() for p in typed.split(",")):
        if not part:
            continue
        name, sign, value = part.partition("=")
        is_equal = not name.endswith("!")
        matchers.append(
            MatcherOut(
                name=(name if is_equal else name[:-1]).strip() if sign else "", value=value.strip(), is_equal=is_equal
            )
        )
    return matchers
