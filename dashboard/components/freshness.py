"""Shows that a page or a row is stale: since when, and why. What it shows is then in the past tense and grey."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.freshness import FreshnessOut, StaleOut
from backend.domain.freshness import FRESHNESS_WORDS, Freshness
from backend.domain.verdict import Health
from dashboard import routes, text
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.palette import HEALTH_ICONS, HEALTH_WORDS, Tone

_RUNBOOKS = {
    Freshness.NO_COLLECTOR: "CollectorStale",
    Freshness.NOT_READ: "CollectorStale",
    Freshness.TARGET_UNREACHABLE: "TargetUnreachable",
    Freshness.TARGET_MALFORMED: "TargetUnreachable",
    Freshness.JOB_UNREADABLE: "JobUnreadable",
}
_SHORT = {Health.TOO_FEW: "too few", Health.OFF: "checkpoints off"}
_HAD = (Health.TOO_FEW, Health.OFF)


def is_stale(value: FreshnessOut | None) -> bool:
    """Return whether a document shows what was true some time ago."""
    return value is not None and value.is_stale


def is_past(value: FreshnessOut | None) -> bool:
    """Return whether the verdict on a job was true at its last reading, and is not about what keeps newer ones away."""
    return value is not None and value.is_stale and not value.state.is_judged


def was(health: Health, *, is_short: bool = False) -> str:
    """Return the health of a job's checkpoints in the past tense. ``is_short`` is for a narrow column."""
    word = _SHORT.get(health, HEALTH_WORDS[health]) if is_short else HEALTH_WORDS[health]
    return f"{'had' if health in _HAD else 'was'} {word}"


def past_health(value: Health) -> html.Span:
    """Build the badge with the health of the checkpoints of a job that is stale."""
    return status.badge(was(value), HEALTH_ICONS[value], Tone.QUIET, hint="health at the last reading")


def note(value: FreshnessOut | None, subject: str, *, evaluated: str = "") -> html.Div | None:
    """Build the note at the top of a stale page, or None.

    ``subject`` begins its sentence, such as *This job*, and ``evaluated`` does so while no alert rules are evaluated.
    """
    if value is None or not value.is_stale:
        return None
    verb = "was last read"
    if value.state is Freshness.NO_EVALUATOR:
        subject, verb = evaluated or subject, "was last evaluated"
    said: list[Component | str] = [f"{subject} is stale: {value.reason}. The page shows what was read last."]
    if value.read_at is not None:
        last = cards.age(f"{subject} {verb}", value.read_at, is_alarming=False)
        said = [last, f": {value.reason}. The page shows what was true then."]
    words = html.P([*said, *_more(value.state)])
    return _note([words], is_page=True)


def final(value: FreshnessOut | None) -> html.Span | None:
    """Build the mark of a page that will not change any more, or None. The word beside the switches is then *final*."""
    return recorded(value is not None and value.state is Freshness.FINAL)


def recorded(is_final: bool) -> html.Span | None:
    """Build the mark of ``final`` if everything on the page is a record of what has ended; None otherwise."""
    return html.Span(hidden=True, **attrs({"data-stale": "final"})) if is_final else None


def undated() -> html.Span:
    """Build the mark of a page of which nothing follows a job, such as a simulation. It is neither live nor stale."""
    return html.Span(hidden=True, **attrs({"data-stale": "none"}))


def of_sides(sides: Sequence[tuple[str, FreshnessOut | None]]) -> list[Component]:
    """Build a note for each subject of which a document is stale; if all documents are final, the mark of that."""
    notes = {subject: found for subject, value in sides if (found := note(value, subject)) is not None}
    mark = recorded(all(value is not None and value.state is Freshness.FINAL for _, value in sides))
    return [*notes.values(), *([] if mark is None else [mark])]


def fleet_note(groups: Sequence[StaleOut], total: int) -> html.Div | None:
    """Build the note that counts the stale rows of the fleet by reason, or None if every row is current."""
    if not groups:
        return None
    count = sum(g.job_count for g in groups)
    head = f"{count} of {text.counted(total, 'job')} {'is' if count == 1 else 'are'} stale"
    lines = [html.Li(_group(g)) for g in groups]
    return _note([html.Strong(head), html.Ul(lines)], is_page=False, is_outage=any(g.state.is_outage for g in groups))


def incidents_note(found: Sequence[FreshnessOut | None]) -> html.Div | None:
    """Build the note above a list of incidents of which some are stale, or None."""
    reasons = Counter(value.reason for value in found if value is not None and value.is_stale)
    if not reasons:
        return None
    lines = [html.Li(f"{text.counted(count, 'incident')}: {reason}.") for reason, count in reasons.most_common()]
    head = "What is shown of these incidents was true some time ago"
    return _note([html.Strong(head), html.Ul(lines)], is_page=False)


def _group(group: StaleOut) -> list[Component | str]:
    named = ", ".join(group.target_names)
    rest = group.target_count - len(group.target_names)
    where = f"{named} and {rest} more" if rest > 0 else named
    said: list[Component | str] = [
        html.B(FRESHNESS_WORDS[group.state].capitalize()),
        f": {text.counted(group.job_count, 'job')} of {where}; {group.reason}",
    ]
    if group.read_at is not None:
        said += [", ", cards.age("last read", group.read_at, is_alarming=False)]
    return [*said, ".", *_more(group.state)]


def _more(state: Freshness) -> list[Component | str]:
    runbook = _RUNBOOKS.get(state)
    return [] if runbook is None else [" ", dcc.Link("What to do", href=routes.runbook(runbook))]


def _note(parts: Sequence[Component], *, is_page: bool, is_outage: bool = True) -> html.Div:
    """Build the note. While it is shown, the word beside the switches is *stale* if ``is_page`` or ``is_outage``.

    If ``is_page``, the whole page is grey.
    """
    scope = "page" if is_page else "rows" if is_outage else "expected"
    return html.Div(
        [status.icon("clock"), html.Div(list(parts))],
        className="message tone-quiet stale-note",
        role="status",
        **attrs({"data-stale": scope}),
    )
