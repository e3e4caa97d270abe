"""Applies the rules to a job if its engine has the settings, and collects recommendations and reasons for none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from backend.advisor import checkpoint_mode, in_flight
from backend.advisor.advice import Advice, NoAdvice, Recommendation
from backend.advisor.situation import Situation, situation
from backend.advisor.thresholds import CHECKPOINTS_MIN_COUNT
from backend.analysis import sentences as say
from backend.analysis.evidence import JobEvidence
from backend.domain.advice import Topic
from backend.domain.engines import EngineCapabilities

_Rule = Callable[[Situation], Recommendation | NoAdvice]
# Both need unaligned checkpoints: only these persist in-flight data.
_RULES: tuple[tuple[Topic, _Rule], ...] = (
    (Topic.MODE, checkpoint_mode.advise_mode),
    (Topic.IN_FLIGHT, in_flight.advise_in_flight),
)


def advise(
    evidence: JobEvidence, *, engine: EngineCapabilities, version: str | None, settings_since: datetime | None = None
) -> Advice:
    """Recommendations for a job, from the evidence that its verdict is based on.

    ``version`` is as the engine reports it. ``settings_since`` is when the current settings took effect, if known:
    earlier checkpoints are left out, because other settings predict nothing.
    """
    if not engine.has_unaligned_checkpoints:
        text = f"{engine.name} has no such setting"
        return Advice((), tuple(NoAdvice(topic, "-", text) for topic, _ in _RULES), 0)
    known = situation(evidence, engine=engine, version=version, settings_since=settings_since)
    answers = [_asked(known, topic, rule) for topic, rule in _RULES]
    return Advice(
        recommendations=tuple(a for a in answers if isinstance(a, Recommendation)),
        silences=tuple(a for a in answers if isinstance(a, NoAdvice)),
        considered_count=len(known.recorded),
    )


def _asked(known: Situation, topic: Topic, rule: _Rule) -> Recommendation | NoAdvice:
    if len(known.recorded) < CHECKPOINTS_MIN_COUNT:
        count = len(known.recorded)
        many = f"{say.checkpoints(count)} completed or failed under these settings"
        text = f"only {many}; advice needs {CHECKPOINTS_MIN_COUNT}"
        return NoAdvice(topic, "AD-3", text)
    return rule(known)
