"""Applies the advisor's rules to a job, and collects the recommendations and the reasons for giving none.

The rules are ranked: what cures a cause comes before what makes room for it. A recommendation whose numbers would
change with a higher one waits for it, so that two changes are never judged at once. None may break a hard bound.

An engine that has no setting of a topic gets no answer on it. An engine without any gets one reason on the mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from backend.advisor.advice import Advice, NoAdvice, Recommendation
from backend.advisor.choice import by_simulation
from backend.advisor.predictor import Predictor
from backend.advisor.proposing import kept_within
from backend.advisor.rules import buffers, capacity, checkpoint_mode, failing, in_flight, intervals, query_rules, state
from backend.advisor.rules.lints import lints_of
from backend.advisor.rules.query_rules import Query
from backend.advisor.situation import Situation, situation
from backend.advisor.thresholds import CHECKPOINTS_MIN_COUNT
from backend.advisor.tier_choice import TierChoice
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.queries import micro_batches
from backend.analysis.queries.causes import found_causes, leading
from backend.analysis.queries.facts import facts_of
from backend.analysis.verdict.case import Case
from backend.domain.advice import Metric, Topic
from backend.domain.engines import EngineCapabilities
from backend.domain.verdict import Diagnosis, Health, VerdictKind

_Answer = Recommendation | NoAdvice
_RULES: tuple[tuple[Topic, Callable[[Situation], _Answer]], ...] = (
    (Topic.MODE, checkpoint_mode.advise_mode),
    (Topic.IN_FLIGHT, in_flight.advise_in_flight),
    (Topic.PARALLELISM, capacity.advise_parallelism),
    (Topic.STATE, state.advise_state),
    (Topic.BUFFERS, buffers.advise_buffers),
    (Topic.TOLERANCE, failing.advise_tolerance),
    (Topic.INTERVAL, intervals.advise_interval),
    (Topic.MIN_PAUSE, intervals.advise_pause),
    (Topic.TIMEOUT, failing.advise_timeout),
    (Topic.RETENTION, failing.advise_retention),
)
_QUERY_RULES: tuple[tuple[Topic, Callable[[Query], _Answer]], ...] = (
    (Topic.PARALLELISM, query_rules.advise_partitions),
    (Topic.STATE, query_rules.advise_store),
    (Topic.BATCH_SIZE, query_rules.advise_batch_size),
    (Topic.INTERVAL, query_rules.advise_trigger),
)
# Settings of which an engine must have at least one for the topic.
_SETTINGS: Mapping[Topic, tuple[str, ...]] = {
    Topic.MODE: ("unaligned",),
    # Only unaligned checkpoints persist in-flight data.
    Topic.IN_FLIGHT: ("unaligned",),
    Topic.PARALLELISM: ("parallelism",),
    Topic.STATE: ("incremental", "state_backend", "changelog"),
    Topic.BUFFERS: ("debloat_target", "floating_buffers"),
    Topic.BATCH_SIZE: ("batch_offsets", "batch_files"),
    Topic.TOLERANCE: ("tolerable_failures",),
    Topic.INTERVAL: ("interval",),
    Topic.MIN_PAUSE: ("min_pause",),
    Topic.TIMEOUT: ("timeout",),
    Topic.RETENTION: ("retained",),
}
# These change how long checkpoints take, on which the advice on the topics below them rests.
_CHANGES_DURATIONS = (Topic.MODE, Topic.IN_FLIGHT, Topic.PARALLELISM, Topic.STATE, Topic.BUFFERS)
_WAITS_FOR: Mapping[Topic, tuple[Topic, ...]] = {
    Topic.BUFFERS: (Topic.MODE, Topic.IN_FLIGHT),
    Topic.BATCH_SIZE: (Topic.PARALLELISM, Topic.STATE),
    Topic.INTERVAL: (*_CHANGES_DURATIONS, Topic.BATCH_SIZE),
    Topic.MIN_PAUSE: (*_CHANGES_DURATIONS, Topic.INTERVAL),
    Topic.TIMEOUT: (*_CHANGES_DURATIONS, Topic.INTERVAL, Topic.MIN_PAUSE),
}


def topics_of(engine: EngineCapabilities) -> tuple[Topic, ...]:
    """Return the topics on which an engine gets an answer, in the order of their rank."""
    rules = _QUERY_RULES if engine.is_micro_batched else _RULES
    topics = tuple(t for t, _ in rules if _has_topic(engine, t))
    return topics or (Topic.MODE,)


def _has_topic(engine: EngineCapabilities, topic: Topic) -> bool:
    # The parallelism of a vertex can be changed in other ways than by a setting.
    is_rescaled = topic is Topic.PARALLELISM and engine.rescaling is not None
    return is_rescaled or any(getattr(engine.settings, name) for name in _SETTINGS[topic])


def advise(
    evidence: JobEvidence,
    *,
    engine: EngineCapabilities,
    version: str | None,
    settings_since: datetime | None = None,
    case: Case | None = None,
    choice: TierChoice | None = None,
    is_simulated: bool = False,
    diagnosis: Diagnosis | None = None,
) -> Advice:
    """Return the recommendations for a job, from the same evidence as its verdict.

    ``version`` is the version that the engine reports. ``settings_since`` is when the current settings took effect, if
    that is known. Earlier checkpoints are left out, because checkpoints under other settings predict nothing.
    ``case`` is the case of the job from the same evidence, and ``diagnosis`` what ``diagnose`` says of it, if the
    caller has them already. ``choice`` is what the fast simulation chose for this job (``choosing``), if it was asked.
    ``is_simulated`` is whether the caller asks it when a choice is due. Until then, the rules do not decide in its
    place with which settings the job loses least.
    """
    topics = topics_of(engine)
    if not _has_topic(engine, topics[0]):
        return Advice((), tuple(NoAdvice(t, "-", f"{engine.name} has no such setting") for t in topics), 0)
    if engine.is_micro_batched:
        return _of_query(evidence, engine, settings_since)
    known = situation(
        evidence, engine=engine, version=version, settings_since=settings_since, case=case, diagnosis=diagnosis
    )
    answers = choice.answers if choice is not None and choice.holds(known.evidence.config, known.evidence.now) else ()
    return advice_on(replace(known, predictor=Predictor(answers)), choice, is_simulated=is_simulated)


def advice_on(situation: Situation, choice: TierChoice | None, *, is_simulated: bool) -> Advice:
    """Return the advice on a job whose facts are known, with the predictions of ``known.predictor``. See ``advise``."""
    topics = topics_of(situation.engine)
    is_asked = _is_enough(situation) and _without_checkpoints(situation) is None and by_simulation.is_wanted(situation)
    simulated, why_unused = by_simulation.answers(situation, choice) if is_asked else ({}, None)
    is_decider = is_asked and by_simulation.is_decider(choice, is_simulated=is_simulated)
    situation = replace(situation, undecided=why_unused if is_decider else None)
    answers = [_asked(situation, topic, rule, simulated.get(topic)) for topic, rule in _RULES if topic in topics]
    advice = _advice(situation.evidence, answers, len(situation.recorded), situation)
    is_lacking = situation.predictor.has_missed or (is_asked and choice is not None and choice.why_not is not None)
    is_due = choice is None or choice.is_due(
        situation.evidence.config, situation.evidence.now, situation.ids, is_lacking=is_lacking
    )
    return replace(
        advice,
        chosen_by=by_simulation.chosen_by(choice, why_unused, is_decider=is_decider) if is_asked else None,
        is_choice_due=is_due and is_asked,
        is_answer_due=is_due and situation.predictor.was_asked,
    )


def _of_query(evidence: JobEvidence, engine: EngineCapabilities, settings_since: datetime | None) -> Advice:
    if settings_since is not None:
        kept = tuple(c for c in evidence.checkpoints if c.header.triggered_at >= settings_since)
        evidence = replace(evidence, checkpoints=kept)
    report = micro_batches.report(evidence.checkpoints, evidence.config)
    cause = leading(report, found_causes(facts_of(evidence.checkpoints, report)))
    query = Query(evidence, engine, report, cause)
    count = len(query.report.judged)
    answers: list[_Answer] = []
    for topic, rule in _QUERY_RULES:
        if count < CHECKPOINTS_MIN_COUNT:
            many = {0: "no micro-batch has", 1: "only 1 micro-batch has"}.get(count, f"only {count} micro-batches have")
            answers.append(NoAdvice(topic, "AD-3", f"{many} completed; advice needs {CHECKPOINTS_MIN_COUNT}"))
        else:
            answers.append(query_rules.untouched(query, topic) or rule(query))
    return _advice(evidence, answers, count, None)


def _advice(evidence: JobEvidence, answers: Sequence[_Answer], count: int, situation: Situation | None) -> Advice:
    kept = _reconciled([kept_within(evidence.config, evidence.topology, a) for a in answers])
    given = tuple(a for a in kept if isinstance(a, Recommendation))
    said = {failing.LINT_OF[a.topic] for a in given if a.topic in failing.LINT_OF}
    return Advice(
        recommendations=given,
        silences=tuple(a for a in kept if isinstance(a, NoAdvice)),
        considered_count=count,
        lints=() if situation is None else tuple(lint for lint in lints_of(situation) if lint.code not in said),
    )


def _reconciled(answers: Sequence[_Answer]) -> list[_Answer]:
    """Return the answers. A recommendation that must wait for a higher one becomes no advice, with that reason."""
    given: dict[Topic, Recommendation] = {}
    reconciled: list[_Answer] = []
    for answer in answers:
        first = next((given[t] for t in _WAITS_FOR.get(answer.topic, ()) if t in given), None)
        if isinstance(answer, Recommendation):
            if first is not None:
                text = f"first follow the advice on {_words(first.topic)}, because it changes how long checkpoints take"
                reconciled.append(NoAdvice(answer.topic, answer.rules[0], f"{text}: {first.headline}"))
                continue
            given[answer.topic] = answer
        reconciled.append(answer)
    return reconciled


def _words(topic: Topic) -> str:
    return {Topic.IN_FLIGHT: "in-flight data", Topic.BUFFERS: "buffers"}.get(
        topic, f"the {topic.value.replace('-', ' ')}"
    )


def _is_enough(situation: Situation) -> bool:
    return len(situation.recorded) >= CHECKPOINTS_MIN_COUNT


def _asked(
    situation: Situation, topic: Topic, rule: Callable[[Situation], _Answer], simulated: _Answer | None
) -> _Answer:
    if (why := _without_checkpoints(situation)) is not None:
        return NoAdvice(topic, "AD-3", why)
    if not _is_enough(situation):
        count = len(situation.recorded)
        many = {0: "no checkpoint has", 1: "only 1 checkpoint has"}.get(count, f"only {count} checkpoints have")
        text = f"{many} completed or failed under these settings; advice needs {CHECKPOINTS_MIN_COUNT}"
        return NoAdvice(topic, "AD-3", text)
    answer = rule(situation) if simulated is None else simulated
    return _as_shown(situation, answer) if isinstance(answer, Recommendation) else answer


def _without_checkpoints(situation: Situation) -> str | None:
    """Return why the job takes no checkpoints at present, or None. Advice from its earlier ones would mislead."""
    if situation.diagnosis.health is Health.OFF:
        return "checkpointing is off"
    if situation.diagnosis.verdict.kind is VerdictKind.REFUSED:
        return "no checkpoint begins at present: first remove what the verdict names"
    return None


def _as_shown(situation: Situation, advice: Recommendation) -> Recommendation:
    """Add who predicts, and to each prediction the recorded values, with which the result is compared later."""
    values = {
        Metric.DURATION: tuple(r.duration_ms for r in situation.recorded),
        Metric.PERSISTED: tuple(r.persisted_bytes for r in situation.recorded),
        Metric.WRITTEN: tuple(r.written_bytes for r in situation.recorded),
    }
    answer = situation.predictor.of(advice.proposed)
    return replace(
        advice,
        expected=tuple(replace(e, before_values=values.get(e.metric, ())) for e in advice.expected),
        predicted_by=None if answer is None else answer.tier.value,
    )
