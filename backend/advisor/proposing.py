"""Builds recommendations that change a few plain settings, and checks that these keep within hard bounds.

Advice on the checkpoint mode and on in-flight data is built in its own modules, because it replays candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

from backend.advisor.advice import (
    UNITS,
    Change,
    EvidenceRow,
    Expected,
    Interval,
    NoAdvice,
    Precondition,
    Recommendation,
    Setting,
)
from backend.advisor.engine_settings import changes_of, how_to
from backend.advisor.thresholds import INTERVAL_RATIO, TIMEOUT_MARGIN, WILSON_Z
from backend.analysis.numbers.statistics import quantile
from backend.analysis.words import sentences as say
from backend.domain.advice import Metric, Topic
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.engines import EngineCapabilities
from backend.domain.topology import Topology
from backend.domain.verdict import Confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The parts of a recommendation that a rule decides on. The rest follows from the engine and its settings."""

    topic: Topic
    rules: tuple[str, ...]
    direction: str
    headline: str
    reason: str
    current: Setting
    proposed: Setting
    evidence: tuple[EvidenceRow, ...]
    expected: tuple[Expected, ...] = ()
    unpredicted: tuple[str, ...] = ()
    confidence: Confidence = Confidence.MEDIUM
    confidence_reason: str
    preconditions: tuple[Precondition, ...] = ()
    risks: tuple[str, ...]
    will_not_cure: tuple[str, ...]
    withdrawn_if: tuple[str, ...]
    changes: tuple[Change, ...] | None = None
    """The changed settings; None if they follow from ``current`` and ``proposed``."""
    steps: tuple[str, ...] = ()


def proposal(engine: EngineCapabilities, made: Proposal, ids: Sequence[int]) -> Recommendation:
    """Return the recommendation with its changes for ``engine``. ``ids`` are the checkpoints that it rests on.

    A proposal without a prediction must say why it has none.
    """
    assert made.expected or made.unpredicted
    changes = changes_of(engine, made.current, made.proposed) if made.changes is None else made.changes
    return Recommendation(
        topic=made.topic,
        rules=made.rules,
        headline=made.headline,
        reason=made.reason,
        current=made.current,
        proposed=made.proposed,
        changes=changes,
        expected=made.expected,
        candidates=(),
        evidence=made.evidence,
        confidence=made.confidence,
        confidence_reason=made.confidence_reason,
        preconditions=made.preconditions,
        risks=made.risks,
        will_not_cure=made.will_not_cure,
        withdrawn_if=made.withdrawn_if,
        how_to=how_to(engine, changes, made.steps),
        checkpoint_ids=tuple(ids),
        unpredicted=made.unpredicted,
        direction=made.direction,
    )


def expect(metric: Metric, before: float | None, predicted: Interval, method: str) -> Expected:
    """Return the prediction of one metric. ``before`` is the value of the recorded checkpoints."""
    return Expected(metric, UNITS[metric], before, predicted, method)


def middle_of(values: Sequence[float | None]) -> Interval | None:
    """Return the median of the known values with the interval that holds the middle 90 % of them; None without any."""
    low, value, high = (quantile(values, q) for q in (0.05, 0.5, 0.95))
    return None if low is None or value is None or high is None else Interval(value, low, high)


def share_interval(count: int, total: int) -> Interval:
    """Return a share with its Wilson interval at 90 %. ``total`` must be positive."""
    share = count / total
    spread = WILSON_Z**2 / total
    middle = (share + spread / 2) / (1 + spread)
    half = WILSON_Z / (1 + spread) * sqrt(share * (1 - share) / total + spread / (4 * total))
    low = 0.0 if count == 0 else max(0.0, middle - half)
    high = 1.0 if count == total else min(1.0, middle + half)
    return Interval(share, min(low, share), max(high, share))


# --- hard bounds ----------------------------------------------------------------------------------------------------


def broken_bound(config: CheckpointConfig | None, topology: Topology, proposed: Setting) -> str | None:
    """Return which hard bound the settings would break after the change, as a sentence; None if they break none.

    Only bounds that concern a proposed setting are checked.
    """
    after = merged(config or CheckpointConfig(), proposed)
    is_timed = proposed.interval_ms is not None or proposed.timeout_ms is not None or proposed.mode is not None
    if is_timed and after.interval_ms and after.aligned_timeout_ms:
        limit = INTERVAL_RATIO * after.interval_ms
        if after.aligned_timeout_ms > limit:
            return f"the aligned timeout of {say.duration(after.aligned_timeout_ms)} would exceed half of the interval"
    is_span = proposed.interval_ms is not None or proposed.timeout_ms is not None
    if is_span and after.interval_ms and after.timeout_ms and after.timeout_ms < after.interval_ms:
        return f"the checkpoint timeout of {say.duration(after.timeout_ms)} would be shorter than the interval"
    aligned_ms = after.aligned_timeout_ms or 0
    if proposed.timeout_ms is not None and proposed.timeout_ms < TIMEOUT_MARGIN * aligned_ms:
        return "the checkpoint timeout would be shorter than twice the aligned timeout"
    if proposed.min_pause_ms and (after.max_concurrent or 1) > 1:
        return f"with a minimum pause, only one checkpoint may run at a time; {after.max_concurrent} may now"
    vertex = next((v for v in topology.vertices if v.id == proposed.vertex_id), None)
    if vertex is not None and proposed.parallelism is not None:
        most = vertex.max_parallelism
        if most is not None and proposed.parallelism > most:
            return f"{proposed.parallelism} exceeds the max parallelism of {most}"
    return None


def merged(config: CheckpointConfig, proposed: Setting) -> CheckpointConfig:
    """Return the settings after the change, as far as the engine reports them."""
    names = ("interval_ms", "min_pause_ms", "timeout_ms", "tolerable_failed_count")
    values = {n: v for n in names if (v := getattr(proposed, n)) is not None}
    if proposed.mode is not None:
        values["aligned_timeout_ms"] = proposed.aligned_timeout_ms
    return replace(config, **values)


def kept_within(
    config: CheckpointConfig | None, topology: Topology, answer: Recommendation | NoAdvice
) -> Recommendation | NoAdvice:
    """Return a recommendation, or in its place the reason against it if its settings would break a hard bound."""
    if isinstance(answer, NoAdvice):
        return answer
    broken = broken_bound(config, topology, answer.proposed)
    if broken is None:
        return answer
    words = f"{answer.headline[0].lower()}{answer.headline[1:]}"
    return NoAdvice(answer.topic, answer.rules[0], f"not advised to {words}: {broken}")
