"""Builds the card of a recommendation: the change, its predicted and measured effect, its cost, and its evidence.

Predictions are labelled and shown with an interval. After the change was applied, the card also shows the measured
values.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.advice import (
    AdviceEvidenceOut,
    CardOut,
    ChangeOut,
    EffectOut,
    ExpectedOut,
    IntervalOut,
    JobAdviceOut,
    LifeEventOut,
    LintOut,
    MeasuredOut,
    RecommendationOut,
    SilenceOut,
)
from backend.contracts.comparing_windows import DirectionOut
from backend.domain.advice import OUTCOME_WORDS, AdviceState, AdviceStep, LintLevel, Metric, author_words
from backend.domain.text import capitalised
from dashboard import routes, text
from dashboard.components import cards, exports, status
from dashboard.components.attributes import attrs
from dashboard.palette import Tone

# With fewer values, a small chart would only repeat the number next to it.
_BARS_MIN = 2
# If too few checkpoints were known before a change, those after it are judged only once, after so many.
_VERIFY_COUNT = 5
_BARS_MAX = 24
# The numbers of a new recommendation are computed again every minute. A second minute is allowed, because a poll may
# come late.
_FRESH = timedelta(minutes=2)
_METRICS = {
    Metric.DURATION: "End-to-end duration, median",
    Metric.PERSISTED: "Persisted in-flight data, median",
    Metric.EXPIRED: "Checkpoints that expire",
    Metric.RESTORE: "Longer restore",
    Metric.WRITTEN: "Written by a checkpoint, median",
    Metric.OPEN_RATIO: "Time with a checkpoint running",
    Metric.REPLAYED: "Input to replay after a failure",
    Metric.RECOVERY: "Recovery from a failure",
    Metric.LOST: "Time lost to checkpoints and failures",
    Metric.FAILOVERS: "Restarts by failed checkpoints",
    Metric.STORED: "Size of the retained checkpoints",
    Metric.THROUGHPUT: "Throughput",
}
_STATES = {
    AdviceState.NEW: ("new", "bolt", Tone.INFO),
    AdviceState.ACCEPTED: ("accepted", "hourglass", Tone.INFO),
    AdviceState.DISMISSED: ("dismissed", "cross", Tone.QUIET),
    AdviceState.APPLIED: ("applied, being measured", "progress", Tone.INFO),
    AdviceState.VERIFIED: (AdviceState.VERIFIED.word(), "check", Tone.QUIET),
    AdviceState.REGRESSED: ("worse than before", "warning", Tone.BAD),
    AdviceState.ROLLED_BACK: ("rolled back", "sync", Tone.QUIET),
    AdviceState.EXPIRED: ("expired", "clock", Tone.QUIET),
}
_LINTS = {
    LintLevel.DANGER: ("warning", Tone.BAD),
    LintLevel.WARNING: ("warning", Tone.WARN),
    LintLevel.NOTE: ("question", Tone.QUIET),
}
_STEPS = {
    AdviceStep.APPLY: "sent to the target",
    AdviceStep.GUARDED_APPLY: "sent with a guard",
    AdviceStep.ROLL_BACK: "roll back sent",
    AdviceStep.AUTO_ROLL_BACK: "automatic roll back sent",
}
_SILENCES_OPEN_MAX = 3
"""So many topics without a recommendation are shown with their reasons. If there are more, the reasons are folded."""
_ROLLING_BACK = ("roll back sent", "hourglass", Tone.INFO)
_APPLYING = ("change sent", "hourglass", Tone.INFO)
_GUARDED = frozenset({AdviceState.ACCEPTED, AdviceState.APPLIED, AdviceState.VERIFIED})


def all_of(advice: JobAdviceOut, where: tzinfo) -> list[Component]:
    """Return the cards of a job's recommendations."""
    return [card(c, where, advice.as_of) for c in advice.cards]


def silences(rows: Sequence[SilenceOut]) -> Component | None:
    """Build the card of the topics without a recommendation, each with the reason; return None if there are none."""
    if not rows:
        return None
    if len(rows) <= _SILENCES_OPEN_MAX:
        return cards.card("No recommendation on", html.Div([_silence(s) for s in rows]), hint="and the reason")
    # A long list of what is not recommended must not be more visible than what is.
    topics = ", ".join(s.topic.value.replace("-", " ") for s in rows)
    folded = html.Details(
        [html.Summary(f"the reasons for {len(rows)} topics"), html.Div([_silence(s) for s in rows])],
        className="silences",
    )
    return cards.card("No recommendation on", [html.P(topics), folded])


def _silence(silence: SilenceOut) -> Component:
    return html.P(
        [
            html.B(silence.topic.value.replace("-", " ")),
            f": {silence.reason}",
        ],
        title=f"rule {silence.rule}",
    )


def lints(rows: Sequence[LintOut]) -> Component | None:
    """Build the card of the settings and errors of the version to check; return None if there are none."""
    if not rows:
        return None
    return cards.card("Settings to check", html.Div([_lint(row) for row in rows]), hint="known to cause trouble")


def _lint(lint: LintOut) -> Component:
    icon, tone = _LINTS[lint.level]
    source = html.A(lint.code, href=lint.source, rel="noopener noreferrer", target="_blank", title="in a new tab")
    return html.Div(
        [
            html.H3([status.badge(lint.level.value, icon, tone), " ", lint.headline]),
            html.P([lint.detail, " ", html.B(lint.cure)]),
            html.P(source, className="lint-source"),
        ],
        className="lint",
    )


def is_behind(card: CardOut, now: datetime) -> bool:
    """Return whether the numbers of a new recommendation are old, because the rules no longer give it."""
    is_old = card.computed_at is not None and now - card.computed_at > _FRESH
    return card.state is AdviceState.NEW and is_old


def _age_of_numbers(card: CardOut, where: tzinfo, now: datetime) -> Component | None:
    """Build the line with the time of the numbers; return None if they are computed again every minute."""
    if card.computed_at is None or not (card.state is not AdviceState.NEW or is_behind(card, now)):
        return None
    at = text.instant(card.computed_at, where)
    why = "the rules have not given it since" if card.state is AdviceState.NEW else "they stay as they were then"
    return html.P(f"Numbers computed {at}; {why}.", className="hint", title=text.instant_utc(card.computed_at))


def card(card: CardOut, where: tzinfo, now: datetime) -> Component:
    """Build the card of one recommendation, with its evidence and its history."""
    advice = card.recommendation
    tools = [state_badge(card), status.confidence(advice.confidence)]
    body: list[Component] = [html.P(advice.reason), html.P(card.state_reason, className="hint")]
    if card.is_guarded and card.state in _GUARDED and not (card.watch is not None and card.watch.is_over):
        body.append(
            html.P(f"It is rolled back by itself if the checkpoints are worse: {_looks(card)}.", className="hint")
        )
    if (watched := watch_words(card)) is not None:
        body.append(html.P(watched, className="hint"))
    if (age := _age_of_numbers(card, where, now)) is not None:
        body.append(age)
    if card.measured:
        body.append(_measured(card.measured, card))
    rest: list[Component | None] = [
        html.Div([_change(card), _effect(advice)], className="columns advice-columns"),
        _actions(card) if card.state.is_open else None,
        _undoing(card) if card.can_roll_back else None,
        html.Div(
            [
                _list("Needs", [_precondition(p.text, p.is_met) for p in advice.preconditions]),
                _list("Risks", list(advice.risks)),
                _list("Will not fix", list(advice.will_not_cure)),
                _list("Withdrawn if", list(advice.withdrawn_if)),
            ],
            className="advice-lists",
        ),
        _evidence(card, where),
        _method(advice),
        _life(card, where),
    ]
    body += [part for part in rest if part is not None]
    return cards.card(advice.headline, body, tools=tools)


def _looks(card: CardOut) -> str:
    """Return when the checkpoints after a change are judged."""
    is_once = card.watch is not None and card.watch.of_count <= _VERIFY_COUNT
    return f"judged after {_VERIFY_COUNT} of them" if is_once else "judged after 5, 10 and 20 of them"


def watch_words(card: CardOut) -> str | None:
    """Return how far the change was watched, as a sentence; None if it is not in force."""
    watch = card.watch
    if watch is None:
        return None
    counted = f"{watch.checkpoint_count} of {watch.of_count} checkpoints watched since the change"
    return f"{counted}; the last judgement is made." if watch.is_over else f"{counted}."


def diff(advice: RecommendationOut, *, is_undone: bool = False) -> Component:
    """Build the changed settings of a recommendation; if ``is_undone``, the settings that undo the change."""
    return changes_diff(advice.changes, is_undone=is_undone)


def changes_diff(changes: Sequence[ChangeOut], *, is_undone: bool = False) -> Component:
    """Build changed settings, each with its current and its proposed value; if ``is_undone``, with both swapped.

    A setting that is sent with the value that it has already is one line without a sign.
    """
    lines: list[Component] = []
    for change in changes:
        old, new = (change.proposed, change.current) if is_undone else (change.current, change.proposed)
        if old == new:
            lines.append(html.Div(f"  {change.key}: {new}"))
            continue
        if old is not None:
            lines.append(html.Div(f"- {change.key}: {old}", className="diff-old"))
        if new is not None:
            lines.append(html.Div(f"+ {change.key}: {new}", className="diff-new"))
    return html.Pre(lines, className="diff", role="group", **attrs({"aria-label": "configuration diff"}))


def when(advice: RecommendationOut) -> str:
    """Return when a change of these settings takes effect."""
    return "needs a restart" if advice.how_to.needs_restart else "takes effect while the job runs"


def _change(card: CardOut) -> Component:
    advice = card.recommendation
    return html.Div(
        [
            html.H3("Change"),
            *_lines(card),
            *([html.Ul([html.Li(step) for step in advice.how_to.steps])] if advice.how_to.steps else []),
        ]
    )


def _lines(card: CardOut) -> list[Component]:
    """Build the changed lines, their file, and how to undo them; nothing if no setting makes the change."""
    advice = card.recommendation
    if not advice.changes:
        return []
    return [
        diff(advice),
        cards.copy_button("Copy the new settings", "\n".join(advice.how_to.lines)),
        html.P(f"{advice.how_to.file}; {when(advice)}.", className="hint"),
        *exports.details(card.exports),
        html.Details(
            [
                html.Summary("How to undo it"),
                html.Pre("\n".join(advice.how_to.rollback_lines), className="diff"),
            ]
        ),
    ]


def _effect(advice: RecommendationOut) -> Component:
    """Build the table of predictions, and below it what is not predicted."""
    notes: list[Component] = [html.P(f"{capitalised(words)}.", className="hint") for words in advice.unpredicted]
    if not advice.expected:
        return html.Div([html.H3("Expected"), *notes])
    return html.Div([_expected(advice.expected), *notes])


def _expected(rows: Sequence[ExpectedOut]) -> Component:
    body = [
        html.Tr(
            [
                html.Th(_METRICS[e.metric], **attrs({"scope": "row"})),
                html.Td(_before(e), className="right number"),
                html.Td(html.B(text.evidence_value(e.predicted.value, e.unit, e.metric)), className="right number"),
                html.Td(_span(e.predicted, e.unit, e.metric), className="right number"),
            ]
        )
        for e in rows
    ]
    head = html.Thead(
        html.Tr(
            [
                cards.unseen_head("Measure"),
                html.Th("Now", className="right"),
                html.Th(["After ", html.Span("predicted", className="chip")], className="right"),
                html.Th("Interval", className="right"),
            ]
        )
    )
    table = html.Table([head, html.Tbody(body)], className="plain-table")
    return html.Div([html.H3("Expected"), html.Div(table, className="table-scroll")])


def _before(e: ExpectedOut) -> str:
    if e.before is None:
        return text.MISSING
    return f"{'at least ' if e.is_before_at_least else ''}{text.evidence_value(e.before, e.unit, e.metric)}"


def _span(interval: IntervalOut, unit: str, metric: Metric) -> str:
    low, high = (text.evidence_value(end, unit, metric) for end in (interval.low, interval.high))
    return f"{low} to {high}"


def state_badge(card: CardOut) -> Component:
    """Build the badge of a card's state."""
    word, icon, tone = _state_of(card)
    if card.is_rolling_back or card.is_applying:
        word, icon, tone = _ROLLING_BACK if card.is_rolling_back else _APPLYING
    return status.badge(word, icon, tone, hint=card.state_reason)


def _state_of(card: CardOut) -> tuple[str, str, Tone]:
    """Return word, icon and tone of a card's state. They agree with the table of what was measured."""
    held = [m.is_inside for m in card.measured]
    if card.state is not AdviceState.VERIFIED or not held:
        return _STATES[card.state]
    icon, tone = ("check", Tone.GOOD) if all(held) else ("warning", Tone.WARN)
    return card.state.word(held), icon, tone


def expected(card: CardOut) -> Component:
    """Build the table of the predictions of a card."""
    return _expected(card.recommendation.expected)


def result(card: CardOut) -> Component:
    """Build the table of the predictions of a card beside what was measured after its change."""
    return _measured(card.measured, card)


def _measured(rows: Sequence[MeasuredOut], card: CardOut) -> Component:
    body = [
        html.Tr(
            [
                html.Th(_METRICS[m.metric], **attrs({"scope": "row"})),
                html.Td(
                    f"{text.evidence_value(m.predicted.value, m.unit, m.metric)} "
                    f"({_span(m.predicted, m.unit, m.metric)})"
                ),
                html.Td(html.B(text.evidence_value(m.measured, m.unit, m.metric)), className="number"),
                html.Td(
                    status.badge("inside the interval", "check", Tone.GOOD)
                    if m.is_inside
                    else status.badge("outside the interval", "warning", Tone.WARN)
                ),
            ]
        )
        for m in rows
    ]
    heads = (cards.unseen_head("Measure"), html.Th("Predicted"), html.Th("Measured"), cards.unseen_head("Judged"))
    head = html.Thead(html.Tr(list(heads)))
    return html.Div(
        [
            html.H3("Result"),
            html.Table([head, html.Tbody(body)], className="plain-table"),
            *_moved(card.effect),
            html.P(
                ["Measured over ", *_links(card, card.measured_ids, card.measured_run_id), *_before_and_after(card)],
                className="hint measured-over",
            ),
        ]
    )


_EFFECTS = {
    DirectionOut.HIGHER: ("longer than before", "warning", Tone.BAD),
    DirectionOut.LOWER: ("shorter than before", "check", Tone.GOOD),
    DirectionOut.UNCLEAR: ("no clear effect", "question", Tone.QUIET),
}


def _moved(effect: EffectOut | None) -> list[Component]:
    """Build the effect of the change on the duration, with the interval of the difference."""
    if effect is None:
        return []
    words = (
        f"{text.duration(effect.before)} before, {text.duration(effect.after)} after: "
        f"{_signed(effect.difference)}, 95 % interval {_signed(effect.low)} to {_signed(effect.high)}, "
        f"from {effect.before_count} and {effect.after_count} checkpoints."
    )
    hint = f"the autocorrelation of neighbours, {effect.autocorrelation:.2f}, widens the interval"
    return [
        html.P([html.B("Effect on the duration "), status.badge(*_EFFECTS[effect.direction]), " ", words], title=hint)
    ]


def _signed(ms: float) -> str:
    sign = "+" if ms > 0 else "\N{MINUS SIGN}" if ms < 0 else ""
    return f"{sign}{text.duration(abs(ms))}"


def _before_and_after(card: CardOut) -> list[Component]:
    if card.applied_at is None:
        return []
    return [dcc.Link("Compare before and after", href=routes.windows_around(card.job_id, card.applied_at))]


def _actions(card: CardOut) -> Component:
    label = {"aria-label": f"Reason to dismiss {card.recommendation.headline}"}
    parts: list[Component] = [
        html.Label(
            [
                "Reason to dismiss",
                dcc.Input(
                    id={"type": "advice-reason", "card": card.id},
                    type="text",
                    maxLength=500,
                    autoComplete="off",
                ),
            ],
            className="field",
            **attrs(label),
        ),
        html.Button(
            [status.icon("cross"), html.Span("Dismiss")],
            id={"type": "advice-dismiss", "card": card.id},
            className="button",
        ),
    ]
    first = _apply_button(card) if card.can_apply else _own_change_button(card)
    return html.Div([*([] if first is None else [first]), *parts], className="advice-actions")


def _apply_button(card: CardOut) -> Component:
    return html.Button(
        [status.icon("bolt"), html.Span("Apply now")],
        id={"type": "advice-apply", "card": card.id},
        className="button primary",
    )


def _own_change_button(card: CardOut) -> Component | None:
    """Build the button with which the viewer says that they make the change; None once they or a request did."""
    if card.state is not AdviceState.NEW:
        return None
    return html.Button(
        [status.icon("check"), html.Span("I make this change")],
        id={"type": "advice-accept", "card": card.id},
        className="button",
        title="keep this prediction, and compare it with what happens once the engine reports the new settings",
    )


def _undoing(card: CardOut) -> Component:
    button = html.Button(
        [status.icon("sync"), html.Span("Roll back")],
        id={"type": "advice-undo", "card": card.id},
        className="button",
    )
    words = html.Span("Sets the values from before the change again, while the job runs.", className="hint")
    return html.Div([button, words], className="advice-actions advice-undoing")


def _list(title: str, items: Sequence[Component | str]) -> Component:
    return html.Div([html.H3(title), html.Ul([html.Li(i) for i in items])])


def _precondition(words: str, is_met: bool | None) -> Component:
    if is_met is None:
        return html.Span(
            [f"{words} ", status.badge("check it", "question", Tone.QUIET, hint="Barrierscope cannot check this")]
        )
    badge = status.badge("met", "check", Tone.GOOD) if is_met else status.badge("not met", "warning", Tone.BAD)
    return html.Span([f"{words} ", badge])


def _evidence(card: CardOut, where: tzinfo) -> Component:
    rows = [_evidence_row(card, row, where) for row in card.recommendation.evidence]
    heads = ("Evidence", "Values", "Value", "Where", "Checkpoints", "Read")
    head = html.Thead(html.Tr([html.Th(h, className="right" if h == "Value" else "") for h in heads]))
    table = html.Table([head, html.Tbody(rows)], className="plain-table")
    return html.Div([html.H3("Evidence"), html.Div(table, className="table-scroll")])


def _evidence_row(card: CardOut, row: AdviceEvidenceOut, where: tzinfo) -> html.Tr:
    place = text.MISSING
    if row.vertex is not None:
        place = (
            f"{text.short(row.vertex, 40)}, subtasks {text.subtasks(row.subtasks)}"
            if row.subtasks
            else text.short(row.vertex, 80)
        )
    read = text.MISSING
    if row.since is not None and row.until is not None:
        read = f"{text.instant(row.since, where)} to {text.instant(row.until, where)}"
    shown = text.evidence_value(row.value, row.unit, row.metric)
    return html.Tr(
        [
            html.Td(row.statement, title=row.metric),
            html.Td(thumbnail(row.values, row.unit, row.metric)),
            html.Td([shown, " ", status.basis(row.basis)], className="right number"),
            html.Td(place, title=row.vertex),
            html.Td(_links(card, row.checkpoint_ids)),
            html.Td(read),
        ]
    )


def thumbnail(values: Sequence[float | None], unit: str | None, metric: str | None = None) -> Component | str:
    """Build a small chart of the newest values, one bar for each. A missing value has a mark instead of a bar."""
    shown = values[-_BARS_MAX:]
    known = [v for v in shown if v is not None]
    if len(known) < _BARS_MIN:
        return text.MISSING
    # Bars of a ratio are scaled to 1 and not to the largest value, so that 95 % does not fill the height.
    most = 1.0 if unit == "ratio" and max(known) <= 1 else max(known)
    low, high = (text.evidence_value(end, unit, metric) for end in (min(known), max(known)))
    words = f"{len(known)} values, {low} to {high}" if low != high else f"{len(known)} values, all {low}"
    bars = [html.Span(className="is-missing") if v is None else _bar(v / most if most > 0 else 0.0) for v in shown]
    return html.Span(bars, className="thumbnail", title=words, role="img", **attrs({"aria-label": words}))


def _bar(share: float) -> Component:
    return html.Span(style={"height": f"{max(4, round(100 * share))}%"})


def _links(card: CardOut, ids: Sequence[int], run_id: str | None = None) -> list[Component | str]:
    """Build links to checkpoints of a run; without ``run_id``, of the run for which the card was made."""
    if not ids:
        return [text.MISSING]
    parts: list[Component | str] = []
    for number in ids:
        parts += [dcc.Link(str(number), href=routes.checkpoint(card.job_id, run_id or card.run_id, number)), " "]
    return parts


def _method(advice: RecommendationOut) -> Component:
    rows = [html.Li([html.B(_METRICS[e.metric]), f": {e.method}."]) for e in advice.expected]
    confidence = html.P(f"Confidence {advice.confidence.value}: {advice.confidence_reason}.", className="hint")
    word = "Rule" if len(advice.rules) == 1 else "Rules"
    rules = html.P(f"{word} {', '.join(advice.rules)} of the documentation.", className="hint")
    return html.Details([html.Summary("How the numbers were computed"), html.Ul(rows), confidence, rules])


def _life(card: CardOut, where: tzinfo) -> Component:
    rows = [
        html.Tr(
            [
                html.Td(text.instant(e.at, where), title=text.instant_utc(e.at), className="number"),
                html.Td(_step_words(e)),
                html.Td(author_words(e.author)),
                html.Td(e.reason),
            ]
        )
        for e in card.history
    ]
    return html.Details([html.Summary("History"), html.Table(html.Tbody(rows), className="plain-table")])


def _step_words(event: LifeEventOut) -> str:
    if event.kind is AdviceStep.STATE and event.outcome is not None:
        return OUTCOME_WORDS[event.outcome]
    return _STEPS.get(event.kind) or _STATES[event.state][0]


def history(past: Sequence[CardOut], where: tzinfo) -> Component | None:
    """Build the card of earlier recommendations; return None if there are none."""
    if not past:
        return None
    rows = [
        html.Tr(
            [
                html.Td(text.instant(c.created_at, where), title=text.instant_utc(c.created_at), className="number"),
                html.Td(c.recommendation.headline),
                html.Td(status.badge(*_state_of(c))),
                html.Td(c.state_reason),
            ]
        )
        for c in past
    ]
    return cards.card("Earlier recommendations", html.Table(html.Tbody(rows), className="plain-table"))
