"""The text of a what-if on one job: what was measured and predicted, how far to trust it, and how to change it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from backend.cli import columns
from backend.domain import spelling
from backend.domain.replay_debt import ReplayBound, debt_sentence

if TYPE_CHECKING:
    from backend.contracts.advice import IntervalOut
    from backend.contracts.whatif import (
        CalibrationOut,
        ConfirmationOut,
        EstimateOut,
        FailureCostOut,
        MeasuredNowOut,
        PredictionOut,
        WhatIfOut,
    )


def lines_of(answer: WhatIfOut) -> list[str]:
    """Return the lines that are printed for an answer."""
    lines = [f"{answer.job} ({answer.job_id}), {len(answer.checkpoint_ids)} checkpoints under the current settings", ""]
    measured = {m.measure: m for m in answer.measured}
    as_is = {e.measure: e for e in answer.current.estimates}
    rows = [("", "measured", "as it is", "changed", "model error")]
    for estimate in answer.asked.estimates:
        now = _measured(measured.get(estimate.measure), len(answer.checkpoint_ids))
        error = _error(estimate, answer.calibration)
        rows.append((estimate.measure.value, now, _span(as_is.get(estimate.measure)), _span(estimate), error))
    lines += columns.lines_of(rows)
    lines += _debt(answer)
    lines += _failures(answer)
    if answer.asked.problem is not None:
        lines.append(f"no prediction: {answer.asked.problem}")
    lines += ["", f"predicted by the tier {answer.asked.tier.value}; an interval holds 90 % of the next checkpoints"]
    lines.append("measured: the interval of a share is Wilson's at 90 %; any other holds the middle 90 %")
    lines += [f"note: {note}" for note in (*answer.asked.notes, *_unscored(answer))]
    if answer.others:
        lines += ["", *_table([answer.current, answer.asked, *answer.others])]
    lines += ["", *_trust(answer), *_how(answer)]
    if answer.confirmation is not None:
        lines += ["", *_confirmed(answer.confirmation)]
    return lines


def _measured(now: MeasuredNowOut | None, count: int) -> str:
    """Return a measured value with its interval. A share says of how many checkpoints it is.

    A share of few checkpoints is their count, because it says little about the next.
    """
    from backend.contracts.whatif import FEW_COUNT, Measure

    if now is None or now.value is None:
        return "-"
    words = f"{'at least ' if now.is_lower_bound else ''}{_number(now.value, now.unit)}"
    if now.measure is Measure.EXPIRED and count:
        counted = f"{round(now.value * count)} of {count}"
        words = counted if count < FEW_COUNT else f"{words}, {counted}"
    if now.low is None or now.high is None:
        return words
    return f"{words} {_between(now.low, now.high, now.unit)}"


def _debt(answer: WhatIfOut) -> Iterator[str]:
    """Return the line on what a failure now would read again. It is measured, unlike the costs of a later failure."""
    if answer.replay_debt_ms is not None and answer.replay_debt is not None:
        yield ""
        yield f"{debt_sentence(answer.replay_debt_ms, is_at_least=answer.replay_debt.is_at_least)} (measured)"


def _failures(answer: WhatIfOut) -> Iterator[str]:
    as_is = {f.failure: f for f in answer.current.failures}
    for cost in answer.asked.failures:
        before = as_is.get(cost.failure)
        yield ""
        yield f"if a {cost.failure.value} fails ({cost.how}):"
        rows = [("", "as it is", "changed")]
        for words, name in (
            ("  outage", "outage_ms"),
            ("  input read again", "replay_ms"),
            ("  catch-up", "catch_up_ms"),
            ("  until caught up", "recovery_ms"),
        ):
            rows.append((words, _cost(before, name, answer.replay_debt_ms), _cost(cost, name, None)))
        yield from columns.lines_of(rows)


def _cost(cost: FailureCostOut | None, name: str, debt_ms: float | None) -> str:
    """Return one part of what a failure costs. ``debt_ms`` is what one now would read again, if the job is as it is."""
    if cost is None:
        return "-"
    return _bounded(getattr(cost, name), "ms", _bound_of(cost, name), debt_ms if name == "replay_ms" else None)


def _bound_of(cost: FailureCostOut, name: str) -> ReplayBound:
    return ReplayBound.BOUNDED if name == "outage_ms" else cost.replay_bound


def _bounded(interval: IntervalOut | None, unit: str, bound: ReplayBound, debt_ms: float | None = None) -> str:
    """Return a predicted value. Without a limit, it is said so, with the debt of the job now if it is known."""
    if bound is ReplayBound.ENDLESS:
        if debt_ms is None:
            return "no limit: no checkpoint completes"
        return f"{spelling.duration(debt_ms)}, and a second more each second"
    if interval is not None and bound is ReplayBound.OPEN:
        return f"{_number(interval.value, unit)} ({_number(interval.low, unit)} or more)"
    return _interval(interval, unit)


def _table(rows: Sequence[PredictionOut]) -> Iterator[str]:
    cells = [("what-if", "duration", "persisted", "expire", "front")]
    problems = []
    for row in rows:
        name = ", ".join(f"{k}={v}" for k, v in row.settings.items()) or "as it is"
        if row.problem is not None:
            problems.append(f"{name}: {row.problem}")
            continue
        by_name = {e.measure.value: e for e in row.estimates}
        share = _span(by_name["expired_ratio"])
        duration, persisted = _span(by_name["end_to_end_duration_ms"]), _span(by_name["persisted_bytes"])
        cells.append((name, duration, persisted, share, "*" if row.is_on_front else ""))
    yield from columns.lines_of(cells)
    yield from problems


def _trust(answer: WhatIfOut) -> Iterator[str]:
    from backend.contracts.whatif_scores import error_words

    scored = answer.calibration
    if scored is None:
        yield "the model could not be scored on checkpoints that it was not fitted on"
    else:
        yield f"fitted on {len(scored.fitted_ids)} checkpoints, scored on {len(scored.scored_ids)} later ones:"
        for e in scored.errors:
            error = error_words(e) or "-"
            predicted, measured = _number(e.predicted, e.unit), _number(e.measured, e.unit)
            yield f"  {e.measure}: {predicted} predicted, {measured} measured ({error})"
    for assumed in answer.assumptions:
        yield f"assumed: {assumed.subject}: {assumed.taken} ({assumed.reason})"


def _how(answer: WhatIfOut) -> Iterator[str]:
    if answer.changes:
        yield ""
        yield f"to make the change ({answer.how_to.file}):"
        yield from (f"  {line}" for line in answer.how_to.lines)
    yield from answer.by_hand


def _confirmed(confirmation: ConfirmationOut) -> Iterator[str]:
    if not confirmation.predictions:
        yield f"confirmation {confirmation.state.value}: {confirmation.reason or 'no result'}"
        return
    yield "confirmed on the reference runtime:"
    before, after = ({e.measure: e for e in p.estimates} for p in confirmation.predictions)
    rows = [("", "as it is", "changed", "model error")]
    for measure, estimate in after.items():
        error = _error(estimate, confirmation.calibration)
        rows.append((measure.value, _span(before.get(measure)), _span(estimate), error))
    yield from columns.lines_of(rows)
    scored = confirmation.calibration
    if scored is not None:
        yield f"The errors are those of the runtime, scored on {len(scored.scored_ids)} later checkpoints."


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else spelling.quantity(value, unit)


def _span(estimate: EstimateOut | None) -> str:
    return "-" if estimate is None else _bounded(estimate.predicted, estimate.unit, estimate.bound)


def _interval(interval: IntervalOut | None, unit: str) -> str:
    if interval is None:
        return "-"
    return f"{_number(interval.value, unit)} {_between(interval.low, interval.high, unit)}"


def _between(low: float, high: float, unit: str) -> str:
    """Return the ends of an interval in brackets. A unit that both have is written once."""
    first, last = _number(low, unit), _number(high, unit)
    number, _, own = first.partition(" ")
    # A duration of two units, such as "2 min 5 s", is written as a whole.
    is_same = " " not in own and own == last.partition(" ")[2]
    return f"({number if is_same else first} to {last})"


def _error(estimate: EstimateOut, scored: CalibrationOut | None) -> str:
    from backend.contracts.whatif_scores import error_of

    return "-" if estimate.predicted is None else error_of(estimate.measure, scored) or "not scored"


def _unscored(answer: WhatIfOut) -> Iterator[str]:
    """Return a sentence for each reason why predicted measures have no error of the model."""
    from backend.contracts.whatif_scores import error_of, why_not_scored

    by_reason: dict[str, list[str]] = {}
    for estimate in answer.asked.estimates:
        if estimate.predicted is not None and error_of(estimate.measure, answer.calibration) is None:
            why = why_not_scored(estimate.measure, answer.calibration)
            by_reason.setdefault(why, []).append(estimate.measure.value)
    for why, names in by_reason.items():
        yield f"not scored ({', '.join(names)}): {why}"
