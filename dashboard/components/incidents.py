"""Shows incidents: the tabs of the alert pages, cards of a list, and badges of who has seen or taken an incident."""

from __future__ import annotations

from datetime import tzinfo

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.incidents import IncidentOut, NotifiedOut
from backend.domain.freshness import Freshness
from backend.domain.verdict import VerdictKind
from dashboard import routes, text
from dashboard.components import alerts as words
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.palette import Tone

_TABS = (
    ("Incidents", routes.alerts()),
    ("Rules", routes.alert_rules()),
    ("Receivers", routes.alert_receivers()),
    ("Silences", routes.alert_silences()),
)
_SENT = {"due": ("waiting", "hourglass", Tone.WARN), "delivered": ("notified", "check", Tone.GOOD)}
_ABANDONED = ("not notified", "cross", Tone.BAD)
_RULES_NAMED = 3
_NAME_MAX, _PLACE_MAX = 32, 80
_WHOLE = 10_000


def tabs(current: str) -> html.Nav:
    """Build the tabs of the alert pages. ``current`` is the name of the page that is shown."""
    links = [
        dcc.Link(
            [word, chosen_mark() if word == current else None],
            href=href,
            className="alert-tab is-here" if word == current else "alert-tab",
        )
        for word, href in _TABS
    ]
    return html.Nav(links, className="alert-tabs", **attrs({"aria-label": "Alerts"}))


def chosen_mark() -> html.Span:
    """Build the mark, for screen readers, of the link to the page that is shown now."""
    return html.Span(" (shown)", className="visually-hidden")


def cause_word(cause: str | None) -> str:
    """Return the words for the cause of an incident."""
    known = {kind.value: word for kind, word in status.KIND_WORDS.items()}
    return known.get(cause or "", "cause not known")


def cause_badge(cause: str | None) -> html.Span | None:
    """Build a chip with the cause, or None if it is not known."""
    kind = next((k for k in VerdictKind if k.value == cause), None)
    if kind is None:
        return None
    return html.Span([status.icon(status.KIND_ICONS[kind]), status.KIND_WORDS[kind]], className="chip")


def who(incident: IncidentOut, *, most: int = _PLACE_MAX) -> str:
    """Return which vertex, subtasks and hosts an incident is about, and what a failure replays; empty if not known.

    Names of more than ``most`` characters are shortened.
    """
    known = (
        *(("", incident.vertex), ("subtasks ", incident.subtasks), ("on ", incident.hosts)),
        ("a failure replays ", incident.replay_debt),
    )
    return ", ".join(f"{word}{text.short(value, most)}" for word, value in known if value)


def is_quiet(incident: IncidentOut) -> bool:
    """Return whether an incident calls for nobody: somebody acknowledged or took it, or silences hide all of it."""
    is_silenced = incident.open_count > 0 and incident.silenced_count == incident.open_count
    return is_silenced or incident.acknowledged_by is not None or incident.claimed_by is not None


def counts(incident: IncidentOut) -> str:
    """Return how many alerts of an incident are open, and how many episodes it has had: ``2 open, 6 alerts so far``."""
    so_far = text.counted(incident.alert_count, "alert")
    if incident.ended_at is not None:
        return so_far
    return f"{incident.open_count} open" + ("" if incident.open_count == incident.alert_count else f", {so_far} so far")


def marks(incident: IncidentOut) -> list[Component]:
    """Return the badges of what people did with the incident."""
    children: list[Component] = []
    if incident.claimed_by is not None:
        taken = f"taken by {text.short(incident.claimed_by, _NAME_MAX)}"
        children.append(status.badge(taken, "progress", Tone.INFO, hint=f"{incident.claimed_by} works on it"))
    if incident.acknowledged_by is not None:
        hint = f"{incident.acknowledged_by} has seen it, {text.instant_utc(incident.acknowledged_at)}"
        seen = f"acknowledged by {text.short(incident.acknowledged_by, _NAME_MAX)}"
        children.append(status.badge(seen, "check", Tone.QUIET, hint=hint))
    if incident.silenced_count:
        of = "" if incident.silenced_count == incident.open_count else f" {incident.silenced_count}"
        children.append(
            status.badge(f"silenced{of}", "pause", Tone.QUIET, hint="evaluated and shown, but not delivered")
        )
    if incident.comment_count:
        children.append(html.Span(text.counted(incident.comment_count, "comment"), className="chip"))
    return children


def notified(message: NotifiedOut, where: tzinfo) -> html.Span:
    """Build a badge with the result of the newest message to one receiver."""
    word, icon, tone = _SENT.get(message.state, _ABANDONED)
    at = text.instant(message.at, where)
    hint = f"{message.receiver}, {message.kind}, {at}: {message.result or 'not attempted yet'}"
    return status.badge(f"{text.short(message.receiver, _NAME_MAX)} {word}", icon, tone, hint=hint)


def times(incident: IncidentOut, where: tzinfo) -> Component:
    """Build the line with the beginning of an incident and its age or duration."""
    if incident.ended_at is None:
        return cards.age(f"since {text.instant(incident.began_at, where)},", incident.began_at, is_alarming=False)
    lasted = text.duration((incident.ended_at - incident.began_at).total_seconds() * 1000)
    return html.Span(f"{text.instant(incident.began_at, where)}, lasted {lasted}")


def _past(incident: IncidentOut) -> html.Span | None:
    """Build the words that tell since when and why the incident is stale."""
    value = incident.freshness
    if value is None:
        return None
    verb = "evaluated" if value.state is Freshness.NO_EVALUATOR else "read"
    said = cards.age(f"stale, last {verb}", value.read_at, is_alarming=False) if value.read_at is not None else "stale"
    return html.Span([said, f": {value.reason}"])


def card(incident: IncidentOut, where: tzinfo) -> html.Article:
    """Build the card of one incident in a list."""
    named = ", ".join(text.short(rule, _NAME_MAX) for rule in incident.rules[:_RULES_NAMED])
    more = len(incident.rules) - _RULES_NAMED
    rules = f"{named} and {text.counted(more, 'more rule')}" if more > 0 else named
    place = None
    if said := who(incident):
        place = html.Span(said, title=who(incident, most=_WHOLE), className="incident-place")
    is_past = incident.freshness is not None and incident.freshness.is_stale
    edge = (
        "quiet"
        if is_past or incident.ended_at is not None or is_quiet(incident)
        else {"critical": "bad", "warning": "warn"}[incident.severity]
    )
    sent = [notified(m, where) for m in incident.notified] or [
        html.Span("no message sent", className="hint", title="there is no receiver, or a silence hides the alerts")
    ]
    return html.Article(
        [
            html.Div(
                [
                    words.state(incident.state, is_quiet=is_quiet(incident) and incident.ended_at is None),
                    words.severity(incident.severity, is_quiet=is_quiet(incident)),
                    dcc.Link(incident.headline, href=routes.incident(incident.id), className="strong-link"),
                ],
                className="chips",
            ),
            html.Div([cause_badge(incident.cause), place], className="chips") if place or incident.cause else None,
            html.Div(
                [
                    html.Span(times(incident, where)),
                    _past(incident) if is_past else None,
                    html.Span(f"{counts(incident)}: {rules}"),
                ],
                className="incident-facts hint",
            ),
            html.Div([*sent, *marks(incident)], className="chips"),
        ],
        className=f"card incident edge-{edge}{' is-stale' if is_past else ''}",
        **attrs({"aria-label": incident.headline}),
    )
