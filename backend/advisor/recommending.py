"""Applies the advisor's rules to a job, and collects the recommendations and the reasons for giving none.

An engine without unaligned checkpoints gets no advice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from backend.advisor import checkpoint_mode, in_flight
from backend.advisor.advice import Advice, NoAdvice, Recommendation
from backend.advisor.lints import lints_of
from backend.advisor.situation import Situation, situation
from backend.advisor.thresholds import CHECKPOINTS_MIN_COUNT
from backend.analysis import sentences as say
from backend.analysis.case import Case
from backend.analysis.evidence import JobEvidence
from backend.domain.advice import Metric, Topic
from backend.domain.engines import EngineCapabilities

_Rule = Callable[[Situation], Recommendation | NoAdvice]
# Both rules need an engine with unaligned checkpoints, because only these persist in-flight data.
_RULES: tuple[tuple[Topic, _Rule], ...] = (
    (Topic.MODE, checkpoint_mode.advise_mode),
    (Topic.IN_FLIGHT, in_flight.advise_in_flight),
)


def advise(
    evidence: JobEvidence,
    *,
    engine: EngineCapabilities,
    version: str | None,
    settings_since: datetime | None = None,
    case: Case | None = None,
) -> Advice:
    """Return the recommendations for a job, from the same evidence as its verdict.

    ``version`` is the version that the engine reports. ``settings_since`` is when the current settings took effect, if
    that is known. Earlier checkpoints are left out, because checkpoints under other settings predict nothing.
    ``case`` is the case of the job from the same evidence, if the caller has it already.
    """
    if not engine.has_unaligned_checkpoints:
        text = f"{engine.name} has no such setting"
        return Advice((), tuple(NoAdvice(topic, "-", text) for topic, _ in _RULES), 0)
    known = situation(evidence, engine=engine, version=version, settings_since=settings_since, case=case)
    answers = [_asked(known, topic, rule) for topic, rule in _RULES]
    return Advice(
        recommendations=tuple(a for a in answers if isinstance(a, Recommendation)),
        silences=tuple(a for a in answers if isinstance(a, NoAdvice)),
        considered_count=len(known.recorded),
        lints=lints_of(known),
    )


def _asked(known: Situation, topic: Topic, rule: _Rule) -> Recommendation | NoAdvice:
    if len(known.recorded) < CHECKPOINTS_MIN_COUNT:
        count = len(known.recorded)
        many = f"{say.checkpoints(count)} completed or failed under these settings"
        text = f"only {many}; advice needs {CHECKPOINTS_MIN_COUNT}"
        return NoAdvice(topic, "AD-3", text)
    answer = rule(known)
    return _with_recorded(known, answer) if isinstance(answer, Recommendation) else answer


def _with_recorded(known: Situation, advice: Recommendation) -> Recommendation:
    """Add to each prediction the values of the recorded checkpoints, with which the result is compared later."""
    values = {
        Metric.DURATION: tuple(r.duration_ms for r in known.recorded),
        Metric.PERSISTED: tuple(r.persisted_bytes for r in known.recorded),
    }
    return replace(advice, expected=tuple(replace(e, before_values=values.get(e.metric, ())) for e in advice.expected))
