"""Turns the choice of the fast simulation into answers on the mode, on in-flight data and on the interval (R-INT-1).

The three are one change, so that they are never judged against each other. If the mode must stay as it is, the choice
answers on the interval only, and the rules on the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from backend.advisor.advice import (
    UNITS,
    Candidate,
    ChosenBy,
    EvidenceRow,
    Expected,
    Interval,
    NoAdvice,
    Precondition,
    Recommendation,
    Setting,
)
from backend.advisor.engine_settings import changes_of, how_to
from backend.advisor.losses import BOUND_SLACK, Losses, is_worth_saving, loss_rows, lost_words
from backend.advisor.rules.checkpoint_mode import (
    refusal_of_modes,
    refusal_of_settings,
    risks_of_version,
)
from backend.advisor.rules.intervals import risks_of_longer, transactions
from backend.advisor.rules.mode_effects import longer_restore
from backend.advisor.rules.mode_evidence import mode_rows
from backend.advisor.rules.spiral import conditions
from backend.advisor.rules.unaligned_needs import forced_risk, with_needed
from backend.advisor.sentences import cause_words, ms_span, unaligned_preconditions, unaligned_risks, will_not_cure
from backend.advisor.situation import Situation
from backend.advisor.tier_choice import EXPIRED_ERROR_MAX, HOLDS, Chosen, Scored, TierChoice
from backend.advisor.twin.model.outcomes import Tier
from backend.analysis.numbers.statistics import median
from backend.analysis.words import sentences as say
from backend.domain.advice import Metric, Mode, Topic
from backend.domain.verdict import Basis, Confidence

_SURE_ERROR, _FAIR_ERROR = 0.2, 0.5
_COUNTED = {Metric.DURATION: "duration", Metric.PERSISTED: "persisted bytes"}
_COUNTED_MIN = 0.2
"""A difference from the card's prediction below this share is not shown."""
_WAITS = "They do not compare what settings lose to checkpoints and failures: only the simulation does."

Answer = Recommendation | NoAdvice


def is_wanted(situation: Situation) -> bool:
    """Return whether the fast simulation could choose settings for this job."""
    return refusal_of_settings(situation) is None and Losses.of_job(situation) is not None


def is_decider(choice: TierChoice | None, *, is_simulated: bool) -> bool:
    """Return whether the fast simulation, and not the rules, decides with which settings a job loses least.

    It decides if it has chosen for the job, even if the choice is too old to be used. It does not if it could not
    choose. Before its first choice, it decides if ``is_simulated``: the caller lets it choose.
    """
    return is_simulated if choice is None else choice.why_not is None


def chosen_by(choice: TierChoice | None, why_unused: str | None, *, is_decider: bool) -> ChosenBy:
    """Return what chose the settings: the fast simulation, or the rules and why it was them.

    ``why_unused`` is the reason if the answers do not follow from the choice, otherwise None. ``is_decider`` is whether
    the simulation decides with which settings the job loses least.
    """
    if why_unused is None and choice is not None:
        text = (
            f"The fast simulation compared {choice.setting_count} settings of mode, in-flight data and interval;"
            f" {choice.error_words}."
        )
        return ChosenBy(Tier.FAST.value, text)
    waits = f" {_WAITS}" if is_decider else ""
    return ChosenBy(None, f"Rules and replayed checkpoints chose, because {why_unused}.{waits}")


def answers(situation: Situation, choice: TierChoice | None) -> tuple[Mapping[Topic, Answer], str | None]:
    """Return the answers that follow from a choice; if there are none, the second value is the reason.

    The answers replace those of the rules. If the mode must now stay as it is, the only answer is on the interval: the
    best interval that the simulation found for the present mode.
    """
    why = _why_unused(situation, choice)
    losses = Losses.of_job(situation)
    if why is not None or choice is None or choice.now is None or losses is None:
        return {}, why or "the fast simulation cannot choose for this job"
    best = choice.best
    topics: tuple[Topic, ...] = (Topic.MODE, Topic.IN_FLIGHT, Topic.INTERVAL)
    refusal = refusal_of_modes(situation)
    if refusal is not None:
        best, topics = _in_present_mode(choice, choice.now), (Topic.INTERVAL,)
    if best is None:
        return {}, f"the fast simulation chose another mode, and by now the mode must stay as it is: {refusal}"
    if not _is_worth(choice.now, best):
        lost = lost_words(choice.now.lost_ratio)
        text = (
            f"the fast simulation compared {choice.setting_count} settings, and none loses clearly less to checkpoints"
            f" and failures than the present ones ({lost} of the time)"
        )
        return {topic: NoAdvice(topic, "R-INT-1", text) for topic in topics}, None
    made = _recommendation(situation, choice.now, best, choice, losses)
    text = f"the fast simulation chose mode, in-flight data and interval together: {made.headline}"
    return {topic: NoAdvice(topic, "R-INT-1", text) for topic in topics} | {made.topic: made}, None


def _why_unused(situation: Situation, choice: TierChoice | None) -> str | None:
    if choice is None:
        return "the fast simulation has not compared any settings for this job yet"
    if choice.why_not is not None:
        return f"the fast simulation cannot choose for this job: {choice.why_not}"
    if choice.config != situation.evidence.config:
        return "the settings were changed since the fast simulation compared them"
    if not choice.holds(situation.evidence.config, situation.evidence.now):
        hours = HOLDS.total_seconds() / 3600
        return f"the fast simulation compared settings more than {hours:g} hours ago, and the load may have changed"
    return None


def _in_present_mode(choice: TierChoice, now: Scored) -> Scored | None:
    """Return the best settings that differ from the present ones in the interval at most; None if none are known."""
    candidates = (s for s in (choice.best, *choice.by_mode) if s is not None)
    return next((s for s in candidates if _topic(now.chosen, s.chosen) is Topic.INTERVAL), None)


def _is_worth(now: Scored, best: Scored) -> bool:
    if best.chosen == now.chosen:
        return False
    is_bounded = (
        best.bound_ratio < now.bound_ratio - BOUND_SLACK or best.heavy_ratio < now.heavy_ratio - 2 * BOUND_SLACK
    )
    return is_bounded or is_worth_saving(now.lost_ratio, best.lost_ratio)


def _topic(now: Chosen, best: Chosen) -> Topic:
    if best.aligned_timeout_ms != now.aligned_timeout_ms:
        return Topic.MODE
    return Topic.INTERVAL if best.inflight_cap_bytes == now.inflight_cap_bytes else Topic.IN_FLIGHT


def _recommendation(
    situation: Situation, now: Scored, best: Scored, choice: TierChoice, losses: Losses
) -> Recommendation:
    topic = _topic(now.chosen, best.chosen)
    current, proposed = with_needed(situation, *_settings(now.chosen, best.chosen))
    changes = changes_of(situation.engine, current, proposed)
    expected = _expected(situation, proposed, now, best, choice, losses)
    predicted = {e.metric: e.predicted for e in expected}
    duration, persisted = predicted[Metric.DURATION], predicted[Metric.PERSISTED]
    lost = next(e for e in expected if e.metric is Metric.LOST)
    is_longer = best.chosen.interval_ms > now.chosen.interval_ms
    is_new_mode = topic is Topic.MODE
    overtakes = best.chosen.mode is not Mode.ALIGNED
    restore = predicted.get(Metric.RESTORE)
    risks: tuple[str, ...] = ()
    if is_new_mode and overtakes:
        risks += unaligned_risks(situation, persisted, restore, every_ms=best.chosen.interval_ms)
        risks += (*forced_risk(proposed), *risks_of_version(situation))
    risks += _risks_of_less(now.chosen, best.chosen)
    if best.chosen.interval_ms != now.chosen.interval_ms:
        risks += risks_of_longer() if is_longer else ("checkpoints load the store more often",)
    preconditions: tuple[Precondition, ...] = ()
    if is_new_mode and overtakes:
        preconditions += unaligned_preconditions(situation)
        preconditions += conditions(situation, duration, restore, best.chosen.interval_ms)
    if best.chosen.interval_ms != now.chosen.interval_ms:
        preconditions += transactions(situation, best.chosen.interval_ms, duration.high)
    confidence, why = _confidence(situation, choice, now)
    directions = {
        Topic.INTERVAL: "raise" if is_longer else "lower",
        Topic.IN_FLIGHT: "uncap" if proposed.is_uncapped else None,
    }
    return Recommendation(
        topic=topic,
        rules=("R-INT-1", "R-INT-2", *(("R-AT-2",) if best.chosen.aligned_timeout_ms else ())),
        headline=_headline(now.chosen, best.chosen, topic),
        reason=(
            f"The fast simulation compared {choice.setting_count} settings with a model of this job. Now, checkpoints"
            f" and failures take {lost_words(lost.before or 0.0)} of the time; with these settings, they would take"
            f" {lost_words(lost.predicted.value)}, and a checkpoint {ms_span(duration)}."
        ),
        current=current,
        proposed=proposed,
        changes=changes,
        expected=expected,
        candidates=_candidates(situation, proposed, now, best, choice) if is_new_mode else (),
        evidence=_evidence(situation, expected, now, best, choice, losses),
        confidence=confidence,
        confidence_reason=why,
        preconditions=preconditions,
        risks=risks,
        will_not_cure=will_not_cure(situation) if is_new_mode else (cause_words(situation), "the failures themselves"),
        withdrawn_if=("the load of the job or the time between failures changes",),
        how_to=how_to(situation.engine, changes),
        checkpoint_ids=situation.ids,
        direction=directions.get(topic),
        chosen_by=Tier.FAST.value,
    )


def _risks_of_less(now: Chosen, best: Chosen) -> tuple[str, ...]:
    """Return what the proposed mode and cap make worse, apart from the risks of unaligned checkpoints."""
    if best.mode is Mode.ALIGNED:
        is_new = now.mode is not Mode.ALIGNED
        return ("checkpoints wait for full queues, so they take longer under back-pressure",) if is_new else ()
    if best.inflight_cap_bytes == now.inflight_cap_bytes:
        return ()
    if best.inflight_cap_bytes is None:
        return ("nothing limits the in-flight data that a checkpoint writes and a restore reads",)
    return ("checkpoints that do not fit the cap wait for the queues to drain",)


def _settings(now: Chosen, best: Chosen) -> tuple[Setting, Setting]:
    current, proposed = Setting(), Setting()
    if best.aligned_timeout_ms != now.aligned_timeout_ms:
        current = replace(current, mode=now.mode, aligned_timeout_ms=now.aligned_timeout_ms)
        proposed = replace(proposed, mode=best.mode, aligned_timeout_ms=best.aligned_timeout_ms)
    if best.inflight_cap_bytes != now.inflight_cap_bytes:
        current = replace(current, inflight_cap_bytes=now.inflight_cap_bytes)
        cap = best.inflight_cap_bytes
        proposed = replace(proposed, inflight_cap_bytes=cap, is_uncapped=cap is None)
    if best.interval_ms != now.interval_ms:
        current = replace(current, interval_ms=now.interval_ms)
        proposed = replace(proposed, interval_ms=best.interval_ms)
    return current, proposed


def _headline(now: Chosen, best: Chosen, topic: Topic) -> str:
    cap = best.inflight_cap_bytes
    every = f", every {say.duration(best.interval_ms)}" if best.interval_ms != now.interval_ms else ""
    capped = (
        ""
        if cap == now.inflight_cap_bytes
        else ", without a cap"
        if cap is None
        else f", with a cap of {say.size(cap)} a subtask"
    )
    if topic is Topic.INTERVAL:
        verb = "Raise" if best.interval_ms > now.interval_ms else "Lower"
        return (
            f"{verb} the checkpoint interval from {say.duration(now.interval_ms)} to {say.duration(best.interval_ms)}"
        )
    if topic is Topic.IN_FLIGHT:
        return (
            "Remove the cap on in-flight data" if cap is None else f"Cap in-flight data at {say.size(cap)} a subtask"
        ) + every
    if best.mode is Mode.ALIGNED:
        return f"Return to aligned checkpoints{every}"
    if now.mode is not Mode.ALIGNED and best.aligned_timeout_ms:
        text = f"Change the aligned timeout from {now.aligned_timeout_ms} ms to {best.aligned_timeout_ms} ms"
        return f"{text}{capped}{every}"
    after = f" with an aligned timeout of {say.duration(best.aligned_timeout_ms)}" if best.aligned_timeout_ms else ""
    verb = (
        "Enable unaligned checkpoints"
        if now.mode is Mode.ALIGNED
        else "Let checkpoints be unaligned from the trigger on"
    )
    return f"{verb}{after}{capped}{every}"


def _expected(
    situation: Situation, proposed: Setting, now: Scored, best: Scored, choice: TierChoice, losses: Losses
) -> tuple[Expected, ...]:
    method = (
        f"fast simulation of the job's model; {choice.error_words}. The interval holds 90 % of the next checkpoints"
    )
    effects = [
        _one(Metric.DURATION, situation.duration_ms, best.duration_ms, method, is_at_least=situation.is_cut_off),
        _one(Metric.PERSISTED, median(r.persisted_bytes for r in situation.recorded), best.persisted_bytes, method),
    ]
    if situation.expired_ratio or best.expired_ratio.high > 0:
        effects.append(_one(Metric.EXPIRED, situation.expired_ratio, best.expired_ratio, method))
    expected = situation.predictor.expected(proposed, effects)
    persisted = next(e.predicted for e in expected if e.metric is Metric.PERSISTED)
    restore = longer_restore(situation, persisted) if best.chosen.mode is not Mode.ALIGNED else ()
    return (*expected, *restore, _lost(now, best, losses))


def _one(
    metric: Metric, before: float | None, predicted: Interval, method: str, *, is_at_least: bool = False
) -> Expected:
    return Expected(metric, UNITS[metric], before, predicted, method, is_at_least)


def _lost(now: Scored, best: Scored, losses: Losses) -> Expected:
    """Return what is lost, scaled by how far the simulation of the present settings is from what was recorded."""
    measured, between = losses.now.ratio.value, losses.between
    scale = measured / now.lost_ratio if now.lost_ratio > 0 else 1.0
    value = min(1.0, best.lost_ratio * scale)
    ends = [best.lost_ratio, value]
    low, high = min(ends) * between.value / between.high, max(ends) * between.value / between.low
    method = (
        "fast simulation: sync parts, 5 % of the time to write, and what a failure repeats divided by the time between"
        " failures; scaled by what the recorded checkpoints lost, compared with the simulated ones"
    )
    return _one(Metric.LOST, measured, Interval(value, min(low, value), min(1.0, max(high, value))), method)


def _candidates(
    situation: Situation, proposed: Setting, now: Scored, best: Scored, choice: TierChoice
) -> tuple[Candidate, ...]:
    shown: dict[int | None, Scored] = {now.chosen.aligned_timeout_ms: now, best.chosen.aligned_timeout_ms: best}
    for one in choice.by_mode:
        shown.setdefault(one.chosen.aligned_timeout_ms, one)
    order = sorted(
        shown.values(), key=lambda s: (s.chosen.aligned_timeout_ms is not None, s.chosen.aligned_timeout_ms or 0)
    )
    return situation.predictor.candidates(
        [
            (
                Candidate(
                    mode=s.chosen.mode,
                    aligned_timeout_ms=s.chosen.aligned_timeout_ms,
                    duration_ms=s.duration_ms,
                    persisted_bytes=s.persisted_bytes,
                    # What was measured counts more than what was simulated.
                    expired_ratio=situation.expired_ratio if s is now else s.expired_ratio.value,
                    is_current=s is now,
                    is_proposed=s is best,
                ),
                proposed if s is best else _settings(now.chosen, s.chosen)[1],
            )
            for s in order
        ]
    )


def _evidence(
    situation: Situation,
    expected: Sequence[Expected],
    now: Scored,
    best: Scored,
    choice: TierChoice,
    losses: Losses,
) -> tuple[EvidenceRow, ...]:
    rows: tuple[EvidenceRow, ...] = mode_rows(situation, *situation.held) if situation.held is not None else ()
    found = [
        EvidenceRow(
            f"least loss of {choice.setting_count} simulated settings",
            "simulation",
            Basis.PREDICTED,
            best.lost_ratio,
            "ratio",
        ),
        EvidenceRow(
            f"loss of the present settings in the simulation; {choice.error_words}",
            "simulation",
            Basis.PREDICTED,
            now.lost_ratio,
            "ratio",
        ),
    ]
    # The what-if has steady rates. For the choice, barriers that were later than simulated count all the same.
    counted = {Metric.DURATION: best.duration_ms.value, Metric.PERSISTED: best.persisted_bytes.value}
    found += [
        EvidenceRow(
            f"{_COUNTED[e.metric]} that the choice assumes: barriers and writes are as late as recorded",
            "simulation",
            Basis.PREDICTED,
            counted[e.metric],
            e.unit,
        )
        for e in expected
        if e.metric in counted and abs(counted[e.metric] - e.predicted.value) > _COUNTED_MIN * counted[e.metric]
    ]
    return (*rows, *loss_rows(situation, losses), *found)


def _confidence(situation: Situation, choice: TierChoice, now: Scored) -> tuple[Confidence, str]:
    measured, simulated = situation.expired_ratio or 0.0, now.expired_ratio.value
    if abs(simulated - measured) > EXPIRED_ERROR_MAX:
        text = (
            f"{choice.error_words}; in the simulation {say.percent(simulated)} of the checkpoints would expire now, and"
            f" {say.percent(measured)} did: queues may still be filling"
        )
        return Confidence.LOW, text
    worst = situation.diagnosis.verdict.confidence
    if worst is Confidence.LOW:
        return Confidence.LOW, f"{choice.error_words}; the verdict has low confidence"
    if choice.error_ratio is None or abs(choice.error_ratio) > _FAIR_ERROR:
        return Confidence.LOW, choice.error_words
    return (Confidence.MEDIUM if abs(choice.error_ratio) > _SURE_ERROR else worst), choice.error_words
