"""Builds the parts of the page that compares two windows: headline, both windows, changes, and what happened."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import JobEventOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.comparing_windows import (
    ChangeOut,
    DirectionOut,
    EstimateOut,
    WindowEventOut,
    WindowMeasureOut,
    WindowOut,
    WindowsComparisonOut,
)
from backend.domain.failure import FailureReason
from backend.domain.observation import JobEventKind
from backend.domain.rollup import Measure
from dashboard import routes, text
from dashboard.components import cards, compared_settings, comparing, status
from dashboard.components.attributes import attrs
from dashboard.figures.windows import WORDS
from dashboard.palette import Tone
from dashboard.span import epoch_ms

_DIRECTIONS = {
    DirectionOut.HIGHER: ("higher", "warning", Tone.WARN),
    DirectionOut.LOWER: ("lower", "check", Tone.GOOD),
    DirectionOut.UNCLEAR: ("no clear change", "question", Tone.QUIET),
    DirectionOut.TOO_FEW: ("too few to tell", "question", Tone.QUIET),
}


def headline(comparison: WindowsComparisonOut) -> Component:
    """Build the card with the sentence about the change."""
    duration = next((m.median.direction for m in comparison.measures), DirectionOut.TOO_FEW)
    tone = Tone.QUIET if comparison.is_too_few else _DIRECTIONS[duration][2]
    if comparison.failures is DirectionOut.HIGHER:
        tone = Tone.BAD
    parts: list[Component] = [html.P(comparison.headline, className="verdict-sentence"), _sample(comparison)]
    capped = [w.name for w in (comparison.before, comparison.after) if w.is_capped]
    if capped:
        number = text.count(max(comparison.before.considered_count, comparison.after.considered_count))
        words = f"Quantiles are those of the newest {number} checkpoints {' and '.join(capped)}. Counts include all."
        parts.append(html.P(words, className="hint"))
    return html.Section(
        parts, className=f"card verdict edge-{tone}", **attrs({"aria-label": "Difference", "aria-live": "polite"})
    )


def _sample(comparison: WindowsComparisonOut) -> Component:
    """Build the line with the number of checkpoints whose durations are compared."""
    duration = next((m for m in comparison.measures if m.measure is Measure.DURATION), None)
    said = []
    for window, one in (
        (comparison.before, duration and duration.before),
        (comparison.after, duration and duration.after),
    ):
        if not window.is_stored:
            said.append(f"not known {_in(comparison, window)}")
            continue
        expired = window.failed_by_reason.get(FailureReason.EXPIRED, 0)
        more = f" ({expired} expired: lower bounds)" if expired else ""
        source = ", of hourly rollups" if window.source == "rollups" else ""
        said.append(f"{text.counted(one.count if one else 0, 'duration')} {_in(comparison, window)}{more}{source}")
    return html.P(f"Sample: {'; '.join(said)}.", className="hint", id="windows-sample")


def _in(comparison: WindowsComparisonOut, window: WindowOut) -> str:
    return window.name if is_one_job(comparison) else f"in {window.name}"


def is_one_job(comparison: WindowsComparisonOut) -> bool:
    """Return whether both windows are of one job."""
    return comparison.before.job.id == comparison.after.job.id


def names(comparison: WindowsComparisonOut) -> tuple[str, str]:
    """Return how the page calls the two windows."""
    return comparison.before.name, comparison.after.name


def settings(comparison: WindowsComparisonOut) -> Component:
    """Build the card with what differs in the settings."""
    hint = "as they were at the end of each window"
    return compared_settings.card(
        comparison.settings, names(comparison), (comparison.before.job, comparison.after.job), hint=hint
    )


def side(window: WindowOut, name: str, where: tzinfo) -> list[Component]:
    """Build the range and the counts of one window."""
    title = html.Div([html.Span(name, className="strong-link"), _range(window, where)], className="title-row")
    if not window.is_stored:
        words = "Nothing is stored of this time, so the number of checkpoints is not known."
        return [title, html.P(words, className="hint")]
    reasons = [
        html.Span([html.B(text.count(number)), f" {reason.value.replace('-', ' ')}"], className="chip")
        for reason, number in window.failed_by_reason.items()
    ]
    facts = cards.facts(
        [
            cards.fact("Completed", text.count(window.completed_count)),
            cards.fact("Failed", text.count(window.failed_count)),
            cards.fact("Share failed", text.percent(window.failed_ratio)),
            cards.fact("Failures per hour", f"{window.failed_per_h:.3g}"),
        ]
    )
    return [title, facts, *([html.Div(reasons, className="chips windows-reasons")] if reasons else [])]


def _range(window: WindowOut, where: tzinfo) -> Component:
    words = f"{text.instant(window.since, where)} to {text.instant(window.until, where)}"
    return html.Span(
        words, className="hint", title=f"{text.instant_utc(window.since)} to {text.instant_utc(window.until)}"
    )


def changes(comparison: WindowsComparisonOut) -> Component | None:
    """Build the table of the changes of every measure. Return None if no window has a measure."""
    if not comparison.measures:
        return None
    first, second = names(comparison)
    quantiles = ("Median", "99th percentile")
    word = "Change" if is_one_job(comparison) else "Difference"
    heads = ["", *(head for q in quantiles for head in (f"{q}: {first}", second, word))]
    head = html.Thead(
        html.Tr([cards.unseen_head("Measure") if not h else html.Th(h, className="right") for h in heads])
    )
    rows = [_change_row(m) for m in comparison.measures]
    table = html.Table([head, html.Tbody(rows)], className="plain-table")
    hint = "largest value of the subtasks; intervals of 95 %; times include checkpoints that expired"
    return cards.card(f"{word} of each phase", html.Div(table, className="table-scroll"), hint=hint)


def _change_row(m: WindowMeasureOut) -> html.Tr:
    cells: list[Component] = [html.Td(WORDS[m.measure])]
    for name in ("median", "p99"):
        change: ChangeOut = getattr(m, name)
        sides: list[EstimateOut | None] = [None if d is None else getattr(d, name) for d in (m.before, m.after)]
        cells += [_estimate(one, m.unit) for one in sides]
        cells.append(_change(change, m.unit))
    return html.Tr(cells)


def _estimate(one: EstimateOut | None, unit: str) -> html.Td:
    if one is None:
        return html.Td(text.MISSING, className="right missing", title="no checkpoint reported it")
    low, high = (text.MISSING if end is None else _words(end, unit) for end in (one.low, one.high))
    title = f"interval of 97.5 %: {low} to {high}"
    least = "≥ " if one.is_at_least else ""
    return html.Td(f"{least}{_words(one.value, unit)}", className="right number", title=title)


def _change(change: ChangeOut, unit: str) -> html.Td:
    if change.difference is None and change.direction is DirectionOut.TOO_FEW:
        return html.Td(text.MISSING, className="right missing")
    word, icon, tone = _DIRECTIONS[change.direction]
    parts: list[Component | str] = []
    if change.difference is not None:
        bound = {"at-least": "≥ ", "at-most": "≤ ", None: ""}[change.bound]
        parts += [html.B(f"{bound}{text.signed(change.difference, lambda v: _words(v, unit))}"), " "]
    if change.low is not None or change.high is not None:
        parts += [html.Span(_interval(change, unit), className="hint"), " "]
    return html.Td([*parts, status.badge(word, icon, tone)], className="right number windows-change")


def _interval(change: ChangeOut, unit: str) -> str:
    low, high = (
        None if end is None else text.signed(end, lambda v: _words(v, unit)) for end in (change.low, change.high)
    )
    if low is None or high is None:
        return f"up to {high}" if low is None else f"from {low}"
    return f"{low} to {high}"


def _words(value: float, unit: str) -> str:
    return text.duration(round(value)) if unit == "ms" else text.size(value)


def load(comparison: WindowsComparisonOut) -> Component | None:
    """Build the card with the load of each vertex in both windows. Return None if there are no readings."""
    return comparing.load_card(comparison.loads, names(comparison), of="some readings of the last hour of each window")


def changed(comparison: WindowsComparisonOut, where: tzinfo) -> Component | None:
    """Build the card with what happened in and between the windows of one job. Return None for two jobs."""
    if not is_one_job(comparison):
        return None
    parts: list[Component] = []
    if comparison.events:
        rows = [_event(e, where) for e in comparison.events]
        parts.append(cards.table(("When", "Window", "What", "Text"), rows))
    if not parts:
        words = "No change of settings, restart, rescale, applied advice or annotation is known in this time."
        parts.append(html.P(words, className="hint"))
    return cards.card("What happened", parts)


def _event(e: WindowEventOut, where: tzinfo) -> html.Tr:
    words: Component | str = text.short(e.text, 300)
    if e.link is not None:
        words = html.A(words, href=e.link, rel="noopener noreferrer", target="_blank")
    return html.Tr(
        [
            html.Td(text.instant(e.at, where), title=text.instant_utc(e.at), className="number state"),
            html.Td(e.place),
            html.Td(e.kind.replace("-", " ")),
            html.Td(words),
        ]
    )


def instants(points: Sequence[ChangePointOut], events: Sequence[JobEventOut], where: tzinfo) -> list[dict[str, str]]:
    """Return the options of the list of instants: the changes of the duration, and the events."""
    found: dict[str, tuple[datetime, str]] = {}
    for e in events:
        found.setdefault(_value(e.at), (e.at, f"{e.kind.replace('-', ' ')}: {text.short(e.text, 40)}"))
    for p in points:
        medians = f"{text.duration(p.before_median_ms)} → {text.duration(p.after_median_ms)}"
        found[_value(p.at)] = (p.at, f"median {medians}")
    ordered = sorted(found.items(), key=lambda one: one[1][0], reverse=True)
    return [{"value": value, "label": f"{text.instant(at, where)}  {words}"} for value, (at, words) in ordered]


def _value(at: datetime) -> str:
    return str(epoch_ms(at))


def change_links(
    job: str, points: Sequence[ChangePointOut], events: Sequence[JobEventOut], where: tzinfo
) -> list[Component]:
    """Build the links from a job to comparisons: with yesterday, and around its last change of settings.

    A link for each change of its durations follows.
    """
    hint = "the newest hour against the same time one day earlier; another job can be chosen there"
    links: list[Component] = [dcc.Link("Compare with yesterday", href=routes.newest_hour(job), title=hint)]
    changed_at = max((e.at for e in events if e.kind == JobEventKind.CONFIGURATION_CHANGED.value), default=None)
    if changed_at is not None:
        words = f"Before and after the settings changed at {text.instant(changed_at, where, with_date=False)}"
        links.append(dcc.Link(words, href=routes.windows_around(job, changed_at)))
    for p in points[:4]:
        medians = f"{text.duration(p.before_median_ms)} → {text.duration(p.after_median_ms)}"
        at = text.instant(p.at, where, with_date=False)
        # The end of a window is excluded.
        href = routes.windows(job, (p.before_since, p.at), (p.at, p.after_until + timedelta(seconds=1)))
        links.append(dcc.Link(f"median {medians} at {at}: compare before and after", href=href, title=p.sentence))
    return links
