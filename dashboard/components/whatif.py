"""Builds the tables of the page of what-ifs: predictions beside measurements, and the model's error."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component

from backend.contracts.advice import IntervalOut
from backend.contracts.simulations import SimulationState
from backend.contracts.whatif import (
    FEW_COUNT,
    CalibrationOut,
    ConfirmationOut,
    EstimateOut,
    FailureCostOut,
    FailureKind,
    Measure,
    MeasuredNowOut,
    PredictionOut,
    Tier,
    WhatIfOut,
)
from backend.contracts.whatif_scores import AFTER_A_FAILURE, SCORED_AS, error_of, error_words, why_not_scored
from backend.domain.replay_debt import ReplayBound, debt_sentence
from backend.domain.text import capitalised
from backend.domain.verdict import Basis
from dashboard import text
from dashboard.components import cards, simulations, status
from dashboard.components.attributes import attrs
from dashboard.palette import Tone

MEASURES = {
    Measure.DURATION: "End-to-end duration, median",
    Measure.EXPIRED: "Checkpoints that expire",
    Measure.PERSISTED: "Persisted in-flight data, median",
    Measure.THROUGHPUT: "Records read by the sources",
    Measure.SYNC: "Pause of a subtask (sync part)",
    Measure.RESTORE: "Restore after a failure",
    Measure.REPLAY: "Input read again after a failure",
    Measure.CATCH_UP: "Catch-up after a failure",
}
FAILURES = {FailureKind.TASK: "A task fails", FailureKind.WORKER: "A worker (TaskManager) is lost"}
_COSTS = {
    "outage_ms": "Outage, until records flow again",
    "replay_ms": "Input read again",
    "catch_up_ms": "Catch-up, until the backlog is gone",
    "recovery_ms": "In all, from the failure",
}
TIERS = {Tier.FORMULAS: "closed formulas", Tier.FAST: "fast simulation", Tier.RUNTIME: "reference runtime"}


def value(number: float | None, unit: str) -> str:
    """Return a number with its unit."""
    return text.evidence_value(number, unit)


def predictions(what_if: WhatIfOut) -> Component:
    """Build the table of every measure: measured, predicted for the job as it is, and predicted with the change.

    If nothing is changed, there is no column for the change.
    """
    is_changed = what_if.is_changed
    measured = {m.measure: m for m in what_if.measured}
    current, asked = _by_measure(what_if.current), _by_measure(what_if.asked)
    rows = []
    for measure, words in MEASURES.items():
        if measure in AFTER_A_FAILURE and what_if.asked.failures:
            continue
        now, as_is, then = measured.get(measure), current.get(measure), asked.get(measure)
        if then is None and as_is is None and now is None:
            continue
        cells: list[Component] = [html.Th(words, **attrs({"scope": "row"}))]
        cells.append(_measured(now, len(what_if.checkpoint_ids)))
        cells += [_predicted(as_is), *([_predicted(then)] if is_changed else []), _error(then, what_if.calibration)]
        rows.append(html.Tr(cells))
    heads = html.Tr(
        [
            cards.unseen_head("Measure"),
            # A narrow page takes the text of the head as a label before each value, without the line break.
            html.Th(["Measured ", *_measured_on(what_if.checkpoint_ids)], className="right"),
            html.Th(["As it is ", status.basis(Basis.PREDICTED)], className="right"),
            *([html.Th(["Changed ", status.basis(Basis.PREDICTED)], className="right")] if is_changed else []),
            html.Th("Error of the model", className="right"),
        ]
    )
    table = html.Table([html.Thead(heads), html.Tbody(rows)], className="plain-table whatif-table")
    return html.Div([html.Div(table, className="table-scroll"), *_unscored(what_if)])


def _measured_on(ids: Sequence[int]) -> list[Component]:
    """Name the checkpoints of the measured values, which stay what they are while the page is open."""
    if not ids:
        return []
    words = f"checkpoint {ids[0]}" if len(ids) == 1 else f"checkpoints {ids[0]} to {ids[-1]}"
    return [html.Br(), html.Span(words, className="hint")]


def _measured(now: MeasuredNowOut | None, count: int) -> html.Td:
    """Build a measured value with its interval. A share says of how many checkpoints it is.

    A share of few checkpoints is their count, because it says little about the next ones.
    """
    if now is None or now.value is None:
        return html.Td(text.MISSING, className="right number")
    is_span = now.low is not None and now.high is not None
    span = f"{value(now.low, now.unit)} to {value(now.high, now.unit)}" if is_span else "no interval is known"
    words = text.bounded(value(now.value, now.unit), is_lower_bound=now.is_lower_bound)
    about = "the middle 90 % of these checkpoints"
    if now.measure is Measure.THROUGHPUT:
        about = "the middle 90 % of the rates of the readings"
    elif now.measure is Measure.EXPIRED and count:
        counted, about = f"{round(now.value * count)} of {count}", f"Wilson interval at 90 %, of {count} checkpoints"
        span = f"share: {span}" if count < FEW_COUNT else f"{counted}, {span}"
        words = counted if count < FEW_COUNT else words
    parts: list[Component | str] = [words, " ", status.basis(now.basis), html.Br(), html.Span(span, className="hint")]
    return html.Td(parts, className="right number", title=about if is_span else None)


def failures(what_if: WhatIfOut) -> list[Component]:
    """Build the table of what each kind of failure would cost, as the job is and with the change."""
    as_is = {f.failure: f for f in what_if.current.failures}
    if not what_if.asked.failures:
        return [html.P(f"Nothing is predicted: {_why_no_cost(what_if.asked)}.", className="hint")]
    names = ("As it is", "Changed") if what_if.is_changed else ("As it is",)
    parts: list[Component] = _debt_now(what_if)
    for cost in what_if.asked.failures:
        before = as_is.get(cost.failure)
        heads = html.Tr(
            [
                cards.unseen_head("After a failure"),
                *(html.Th([f"{n} ", status.basis(Basis.PREDICTED)], className="right") for n in names),
            ]
        )
        rows = [
            html.Tr(
                [
                    html.Th(words, **attrs({"scope": "row"})),
                    _missing(_why_no_cost(what_if.current)) if before is None else _cost(before, name, what_if),
                    *([_cost(cost, name)] if what_if.is_changed else []),
                ]
            )
            for name, words in _COSTS.items()
        ]
        table = html.Table([html.Thead(heads), html.Tbody(rows)], className="plain-table whatif-table")
        parts += [
            html.H3([FAILURES[cost.failure], " ", status.basis(cost.outage_basis)]),
            html.P(f"{capitalised(cost.how)}.", className="hint"),
            html.Div(table, className="table-scroll"),
        ]
    words = (
        "At a random later time, counted from the newest completed checkpoint. An interval holds 90 % of such failures."
        " No recovery of this job was compared with these predictions, so no error of the model is known for them."
    )
    if any(f.catch_up_ms is None and f.replay_bound is not ReplayBound.ENDLESS for f in what_if.asked.failures):
        words += (
            " No catch-up is predicted, because the rate of the input is not known, or no capacity is left to catch up."
        )
    return [*parts, html.P(words, className="hint")]


def _why_no_cost(prediction: PredictionOut) -> str:
    """Return why a prediction has no costs of failures. They follow from the simulated checkpoints."""
    return prediction.problem or "no checkpoint ended in the simulated time"


def _missing(why: str) -> html.Td:
    return html.Td(text.MISSING, className="right missing", title=why)


def _debt_now(what_if: WhatIfOut) -> list[Component]:
    if what_if.replay_debt is None or what_if.replay_debt_ms is None:
        return []
    words = debt_sentence(what_if.replay_debt_ms, is_at_least=what_if.replay_debt.is_at_least)
    return [html.P([f"{capitalised(words)} ", status.basis(Basis.MEASURED)])]


def _cost(cost: FailureCostOut, name: str, as_is: WhatIfOut | None = None) -> html.Td:
    """Build one part of what a failure costs. ``as_is`` is the answer if the cost is that of the job as it is."""
    bound = ReplayBound.BOUNDED if name == "outage_ms" else cost.replay_bound
    interval: IntervalOut | None = getattr(cost, name)
    if bound is ReplayBound.ENDLESS:
        debt_ms = None if as_is is None or name != "replay_ms" else as_is.replay_debt_ms
        words = "no limit" if debt_ms is None else text.duration(debt_ms)
        hint = "no checkpoint completes" if debt_ms is None else "and a second more each second"
        return html.Td([html.B(words), html.Br(), html.Span(hint, className="hint")], className="right number")
    return _span(interval, is_open=bound is ReplayBound.OPEN)


def _ends(low: str, high: str, *, is_open: bool) -> str:
    return f"{low} or more" if is_open else f"{low} to {high}"


def _span(interval: IntervalOut | None, *, is_open: bool = False) -> html.Td:
    if interval is None:
        return _missing("the job never catches up, or what this follows from is not known")
    span = _ends(text.duration(interval.low), text.duration(interval.high), is_open=is_open)
    return html.Td(
        [html.B(text.duration(interval.value)), html.Br(), html.Span(span, className="hint")], className="right number"
    )


def confirmed(confirmation: ConfirmationOut) -> Component:
    """Build the table of the measures that the runtime predicts for the job as it is and as changed, and its error."""
    columns = [_by_measure(p) for p in confirmation.predictions]
    changed = columns[-1] if columns else {}
    rows = [
        html.Tr(
            [
                html.Th(words, **attrs({"scope": "row"})),
                *(_predicted(c.get(measure)) for c in columns),
                _error(changed.get(measure), confirmation.calibration),
            ]
        )
        for measure, words in MEASURES.items()
        if any((e := c.get(measure)) is not None and e.predicted is not None for c in columns)
    ]
    names = ("As it is", "Changed")
    heads = [
        cards.unseen_head("Measure"),
        *(html.Th([f"{n} ", status.basis(Basis.PREDICTED)], className="right") for n in names),
        html.Th("Error of the runtime", className="right"),
    ]
    table = html.Table([html.Thead(html.Tr(heads)), html.Tbody(rows)], className="plain-table whatif-table")
    return html.Div(table, className="table-scroll")


def _by_measure(prediction: PredictionOut) -> dict[Measure, EstimateOut]:
    return {e.measure: e for e in prediction.estimates}


def _predicted(estimate: EstimateOut | None) -> html.Td:
    if estimate is not None and estimate.bound is ReplayBound.ENDLESS:
        return html.Td("no limit", className="right", title="no checkpoint completes, so it grows without end")
    if estimate is None or estimate.predicted is None:
        return html.Td(text.MISSING, className="right missing", title="the tier that answered does not predict this")
    found, is_open = estimate.predicted, estimate.bound is ReplayBound.OPEN
    span = _ends(value(found.low, estimate.unit), value(found.high, estimate.unit), is_open=is_open)
    return html.Td(
        [html.B(value(found.value, estimate.unit)), html.Br(), html.Span(span, className="hint")],
        className="right number",
        title=f"{TIERS[estimate.tier]}; 90 % of the next checkpoints",
    )


def _error(estimate: EstimateOut | None, scored: CalibrationOut | None) -> html.Td:
    if estimate is None or estimate.predicted is None:
        return html.Td(text.MISSING, className="right missing", title="nothing is predicted")
    words = error_of(estimate.measure, scored)
    if words is None:
        return html.Td("not scored", className="right missing", title=why_not_scored(estimate.measure, scored))
    return html.Td(words, className="right number")


def _unscored(what_if: WhatIfOut) -> list[Component]:
    """Build a sentence for each reason why predicted measures have no error of the model."""
    by_reason: dict[str, list[str]] = {}
    scored = what_if.calibration
    for estimate in what_if.asked.estimates:
        measure = estimate.measure
        # The costs of a failure have a card of their own, which says the same.
        is_shown = estimate.predicted is not None and not (measure in AFTER_A_FAILURE and what_if.asked.failures)
        if is_shown and error_of(measure, scored) is None:
            by_reason.setdefault(why_not_scored(measure, scored), []).append(MEASURES[measure])
    return [html.P(f"Not scored ({'; '.join(names)}): {why}.", className="hint") for why, names in by_reason.items()]


def headline(what_if: WhatIfOut, changed: Sequence[str]) -> str:
    """Return the answer as a sentence."""
    if what_if.asked.problem is not None:
        return f"No prediction: {what_if.asked.problem}."
    if not changed or not what_if.is_changed:
        return "Move a slider to see what would happen."
    before, after = _by_measure(what_if.current), _by_measure(what_if.asked)
    one = before.get(Measure.DURATION)
    two = after.get(Measure.DURATION)
    words = ", ".join(changed)
    if one is None or two is None or one.predicted is None or two.predicted is None:
        return f"With {words}: no duration is predicted."
    took, would = text.duration(one.predicted.value), text.duration(two.predicted.value)
    expired = after.get(Measure.EXPIRED)
    tail = ""
    if expired is not None and expired.predicted is not None and expired.predicted.value > 0:
        tail = f", and {text.percent(expired.predicted.value)} of the checkpoints would expire"
    return f"With {words}, checkpoints would take {would} instead of {took}{tail}."


def tier_note(what_if: WhatIfOut, *, before: Tier | None = None) -> Component:
    """Build the line that names the tier, and what the answer's simulation left out.

    ``before`` is the tier of an earlier answer to the same question that this answer replaces.
    """
    tier = what_if.asked.tier
    notes = [f"Predicted by the {TIERS[tier]}; intervals hold 90 % of the next checkpoints.", *what_if.asked.notes]
    if before is not None and before is not tier:
        notes.insert(0, f"The {TIERS[tier]} is ready now, and its answer replaced that of the {TIERS[before]}.")
    if what_if.is_better_tier_coming:
        notes.append("This page takes the better answer as soon as it is ready.")
    return html.P(" ".join(f"{capitalised(n).removesuffix('.')}." for n in notes), className="hint")


def trust(what_if: WhatIfOut) -> list[Component]:
    """Build what the model was fitted on, how far it was from later checkpoints, and what it assumes."""
    parts: list[Component] = []
    scored = what_if.calibration
    if scored is None or not scored.errors:
        parts.append(html.P("The model could not be scored yet: it needs later checkpoints that it was not fitted on."))
    else:
        fitted, later = len(scored.fitted_ids), len(scored.scored_ids)
        parts.append(
            html.P(
                f"Fitted on {text.counted(fitted, 'checkpoint')}, then compared with"
                f" {text.counted(later, 'later checkpoint')} that it had not seen."
            )
        )
        numbers = ("Measured", "Predicted", "Error")
        rows = [
            html.Tr(
                [
                    html.Th(_scored_words(e.measure), **attrs({"scope": "row"})),
                    html.Td(value(e.measured, e.unit), className="right number"),
                    html.Td([value(e.predicted, e.unit), " ", status.basis(Basis.PREDICTED)], className="right number"),
                    html.Td(error_words(e) or text.MISSING, className="right number"),
                ]
            )
            for e in scored.errors
        ]
        parts.append(html.Div(cards.table(["Measure", *numbers], rows, numbers=numbers), className="table-scroll"))
    if what_if.assumptions:
        assumed = [html.Tr([html.Td(a.subject), html.Td(a.taken), html.Td(a.reason)]) for a in what_if.assumptions]
        parts += [
            html.H3("Assumed"),
            html.Div(
                cards.table(["Not observed", "Taken", "Why"], assumed), className="table-scroll whatif-assumptions"
            ),
        ]
    return parts


def _scored_words(measure: str) -> str:
    known = {name: of for of, name in SCORED_AS.items()}
    return MEASURES[known[measure]] if measure in known else measure.replace("_", " ")


def state_of(confirmation: ConfirmationOut) -> list[Component]:
    """Build the state of a confirmation."""
    match confirmation.state:
        case SimulationState.QUEUED:
            return simulations.queued(confirmation)
        case SimulationState.RUNNING:
            steps = "the job as it is, the changed job, and, to score the runtime, what it knew earlier"
            words = f"{text.percent(confirmation.progress_ratio)} is simulated: {steps}."
            return simulations.running(confirmation, words)
        case SimulationState.FAILED:
            return simulations.state(
                "failed", "cross", Tone.BAD, f"It failed: {confirmation.reason or 'no reason is known'}."
            )
        case SimulationState.CANCELLED:
            return simulations.state("cancelled", "cross", Tone.QUIET, "It was cancelled. Confirm again for a result.")
        case SimulationState.COMPLETED:
            return simulations.state("completed", "check", Tone.GOOD, "Simulated on the reference runtime.")


def not_confirmed() -> list[Component]:
    """Build the state before anything was confirmed."""
    words = "The reference runtime simulates the job as it is and with the change, and shows where its barriers wait."
    return simulations.state("not confirmed yet", "play", Tone.QUIET, words)


def confirmed_words(confirmation: ConfirmationOut, change: str) -> Component:
    """Build the sentence over the result of a confirmation."""
    numbers = [str(i) if i is not None else "none" for i in confirmation.typical_ids]
    words = (
        f"Reference runtime, the job as it is and with {change}. The diagrams show a typical checkpoint of each:"
        f" {numbers[0]} and {numbers[1]}. They leave out the time to write, which the durations in the table contain."
    )
    if confirmation.calibration is not None:
        later = text.counted(len(confirmation.calibration.scored_ids), "later checkpoint")
        words += f" The error is that of the runtime for {later}, simulated from what was known before them."
    notes = [n for p in confirmation.predictions for n in p.notes]
    tail = " ".join(f"{capitalised(n)}." for n in dict.fromkeys(notes))
    return html.P(f"{words} {tail}".strip(), className="hint")
