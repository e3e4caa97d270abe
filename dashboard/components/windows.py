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
from dashboard import routes, text
from dashboard.components import cards, comparing, status
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


def headline(found: WindowsComparisonOut) -> Component:
    """Build the card with the sentence about the change."""
    duration = next((m.median.direction for m in found.measures), DirectionOut.TOO_FEW)
    tone = Tone.QUIET if found.is_too_few else _DIRECTIONS[duration][2]
    if found.failures is DirectionOut.HIGHER:
        tone = Tone.BAD
    parts: list[Component] = [html.P(found.headline, className="verdict-sentence")]
    capped = [name for name, w in (("before", found.before), ("after", found.after)) if w.is_capped]
    if capped:
        number = text.count(max(found.before.considered_count, found.after.considered_count))
        words = f"Quantiles are those of the newest {number} checkpoints {' and '.join(capped)}. Counts include all."
        parts.append(html.P(words, className="hint"))
    return html.Section(
        parts, className=f"card verdict edge-{tone}", **attrs({"aria-label": "Difference", "aria-live": "polite"})
    )


def side(window: WindowOut, name: str, where: tzinfo) -> list[Component]:
    """Build the range and the counts of one window."""
    title = html.Div([html.Span(name, className="strong-link"), _range(window, where)], className="title-row")
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


def changes(found: WindowsComparisonOut) -> Component | None:
    """Build the table of the changes of every measure. Return None if no window has a measure."""
    if not found.measures:
        return None
    heads = ("", "Median before", "after", "Change", "95th percentile before", "after", "Change")
    head = html.Thead(
        html.Tr([cards.unseen_head("Measure") if not h else html.Th(h, className="right") for h in heads])
    )
    rows = [_change_row(m) for m in found.measures]
    table = html.Table([head, html.Tbody(rows)], className="plain-table")
    hint = "largest value of the subtasks; intervals of 95 %; duration includes checkpoints that expired"
    return cards.card("Change of each phase", html.Div(table, className="table-scroll"), hint=hint)


def _change_row(m: WindowMeasureOut) -> html.Tr:
    cells: list[Component] = [html.Td(WORDS[m.measure])]
    for name in ("median", "p95"):
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
    if change.difference is None:
        return html.Td(text.MISSING, className="right missing")
    word, icon, tone = _DIRECTIONS[change.direction]
    ends = [
        text.MISSING if end is None else text.signed(end, lambda v: _words(v, unit))
        for end in (change.low, change.high)
    ]
    interval = html.Span(f"{ends[0]} to {ends[1]}", className="hint")
    parts: list[Component | str] = [html.B(text.signed(change.difference, lambda v: _words(v, unit))), " "]
    if change.direction is not DirectionOut.TOO_FEW:
        parts += [interval, " "]
    return html.Td([*parts, status.badge(word, icon, tone)], className="right number windows-change")


def _words(value: float, unit: str) -> str:
    return text.duration(round(value)) if unit == "ms" else text.size(value)


def changed(found: WindowsComparisonOut, where: tzinfo) -> Component | None:
    """Build the card with what changed: settings, and events. Return None if nothing is known to have changed."""
    differing = [s for s in found.settings if s.is_different]
    parts: list[Component] = []
    if differing:
        parts.append(cards.table(("Setting", "Before", "After"), [comparing.setting(s) for s in differing]))
    if found.events:
        rows = [_event(e, where) for e in found.events]
        parts.append(cards.table(("When", "Window", "What", "Text"), rows))
    if not parts:
        words = "No change of settings, restart, rescale, applied advice or annotation is known in this time."
        parts.append(html.P(words, className="hint"))
    return cards.card("What changed", parts)


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


def change_links(job: str, points: Sequence[ChangePointOut], where: tzinfo) -> list[Component]:
    """Build a link for each change of a job's durations.

    It opens the comparison of the times before and after the change.
    """
    found: list[Component] = []
    for p in points[:4]:
        medians = f"{text.duration(p.before_median_ms)} → {text.duration(p.after_median_ms)}"
        at = text.instant(p.at, where, with_date=False)
        # The end of a window is excluded.
        href = routes.windows(job, (p.before_since, p.at), (p.at, p.after_until + timedelta(seconds=1)))
        found.append(dcc.Link(f"median {medians} at {at}: compare before and after", href=href, title=p.sentence))
    return found
