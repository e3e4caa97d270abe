"""One job of a fleet as it is and under other settings, in the few numbers that a table over all jobs has.

The numbers are those of the what-if on this job alone: the same model, the same tiers, the same intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from backend.advisor.advice import Interval
from backend.advisor.proposing import middle_of
from backend.advisor.twin.asking.asking import asked_of, names_of
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.model.observed import terminal_checkpoints
from backend.advisor.twin.model.outcomes import Outcome, Tier
from backend.advisor.twin.model.snapshots import duration_ms
from backend.advisor.twin.tiers import tiers
from backend.advisor.twin.tiers.predicting import DURATION
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import DomainError, InvalidInputError


class Effect(StrEnum):
    """What a change does to the checkpoints of a job, as far as the intervals of the two predictions say."""

    CURES = "cures"
    """Checkpoints expire now, and none would."""
    QUICKER = "quicker"
    SLOWER = "slower"
    FAILS = "fails"
    """Clearly more checkpoints would expire than now."""
    UNCLEAR = "unclear"
    """The intervals overlap."""
    NOTHING = "nothing"
    """The job has these settings already."""
    UNKNOWN = "unknown"
    """There is no prediction; ``problem`` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One prediction. Each interval holds 90 % of what the next checkpoints may show; None if there is none."""

    duration_ms: Interval | None
    expired_ratio: Interval | None
    persisted_bytes: Interval | None
    records_per_s: Interval | None

    @classmethod
    def of_outcome(cls, outcome: Outcome) -> Self:
        """Return the figures of a prediction."""
        return cls(
            duration_ms=outcome.duration_ms,
            expired_ratio=outcome.expired_ratio,
            persisted_bytes=outcome.persisted_bytes,
            records_per_s=outcome.records_per_s,
        )

    @classmethod
    def of_document(cls, document: Mapping[str, Any] | None) -> Self | None:
        """Return the figures of a document."""
        if document is None:
            return None
        return cls(**{name: None if v is None else Interval(**v) for name, v in document.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer:
    """What one job would do. ``settings`` are the changed ones, as they apply to this job.

    ``measured_ms`` is the median duration of the ``checkpoint_count`` checkpoints that the model was built from, with
    the middle 90 % of them, and ``measured_expired_ratio`` the share of them that expired. ``as_of`` is the end of the
    newest one, in ISO form: the answer knows no later settings and readings. ``error_ratio`` is the error of the
    model's durations, as a share, on checkpoints that it was not fitted on; None if it could not be scored.
    """

    settings: Mapping[str, str]
    tier: Tier | None = None
    checkpoint_count: int = 0
    as_of: str | None = None
    measured_ms: Interval | None = None
    measured_expired_ratio: float | None = None
    as_is: Figures | None = None
    changed: Figures | None = None
    error_ratio: float | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def effect(self) -> Effect:
        """What the change does."""
        before, after = self.as_is, self.changed
        if before is None or after is None or before.duration_ms is None or after.duration_ms is None:
            return Effect.UNKNOWN
        if not self.settings:
            return Effect.NOTHING
        now, then = before.expired_ratio, after.expired_ratio
        if now is not None and then is not None:
            if then.low > now.high:
                return Effect.FAILS
            if now.low > 0 and then.high == 0:
                return Effect.CURES
        if after.duration_ms.high < before.duration_ms.low:
            return Effect.QUICKER
        return Effect.SLOWER if after.duration_ms.low > before.duration_ms.high else Effect.UNCLEAR

    @property
    def saved_ms(self) -> float:
        """By how much the predicted duration of a checkpoint becomes shorter; 0 without a prediction."""
        if self.as_is is None or self.changed is None:
            return 0.0
        before, after = self.as_is.duration_ms, self.changed.duration_ms
        return 0.0 if before is None or after is None else before.value - after.value

    def document(self) -> dict[str, Any]:
        """Return the answer as a JSON document, with its effect."""
        return {**asdict(self), "effect": self.effect.value}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return the answer of a document."""
        values = {name: value for name, value in document.items() if name != "effect"}
        values["tier"] = None if values["tier"] is None else Tier(values["tier"])
        values["measured_ms"] = None if values["measured_ms"] is None else Interval(**values["measured_ms"])
        values["as_is"], values["changed"] = (Figures.of_document(values[name]) for name in ("as_is", "changed"))
        return cls(**{**values, "notes": tuple(values["notes"])})


def answer_of(
    evidence: JobEvidence,
    settings: Mapping[str, str],
    *,
    engine: EngineCapabilities,
    version: str | None,
    quick: tiers.QuickTiers,
) -> JobAnswer:
    """Predict a job as it is and under ``settings``. Why there is no prediction is a part of the answer.

    ``quick`` says which tiers this process can use.
    """
    ended = terminal_checkpoints(evidence)
    expired = sum(c.header.status is CheckpointStatus.FAILED for c in ended)
    known: dict[str, Any] = {
        "checkpoint_count": len(ended),
        "as_of": evidence.now.isoformat(),
        "measured_ms": middle_of([duration_ms(c) for c in ended]),
        "measured_expired_ratio": expired / len(ended) if ended else None,
    }
    try:
        model = quick.build(evidence, engine, version)
        asked = asked_of(model.best, settings)
        is_other = changed(model.best, asked.what_if) != model.best
        answered = tiers.answer(model, asked.what_if, evidence)
    except InvalidInputError as error:
        return JobAnswer(settings={}, problem="; ".join(map(str, names_of(error.problems, settings))), **known)
    except DomainError as error:
        return JobAnswer(settings={}, problem=str(error), **known)
    tier = answered.then.tier
    notes = [*answered.then.notes, *([answered.why_not] if answered.why_not else ())]
    calibration = model.by_tier[tier].calibration
    errors = {e.measure: e.error_ratio for e in calibration.errors} if calibration is not None else {}
    return JobAnswer(
        settings=dict(asked.settings) if is_other else {},
        tier=tier,
        as_is=Figures.of_outcome(answered.now),
        changed=Figures.of_outcome(answered.then),
        error_ratio=errors.get(DURATION),
        notes=tuple(dict.fromkeys(notes)),
        **known,
    )
