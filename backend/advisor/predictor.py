"""Says what a card predicts: the answer of the what-if of its settings, or else what its rule computed.

A card and the what-if page have one predictor, so that both say the same number for the same settings. The answers are
stored with the choice of the fast simulation (``tier_choice``). Until the simulation has answered, and in ``diagnose``,
the prediction of a card is that of its rule: a replay of the recorded checkpoints, or a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from backend.advisor.advice import UNITS, Candidate, Expected, Interval, Setting
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.outcomes import Outcome, Tier
from backend.domain.advice import Metric
from backend.domain.ids import VertexId

_NOT_SIMULATED: Final[Mapping[str, str]] = {
    "max_concurrent": "the model lets one checkpoint run at a time",
    "debloat_period_ms": "the model adapts buffers at once",
    "floating_buffer_count": "the round trip of a buffer, of which more buffers hide a part, is not measured",
    "tolerable_failed_count": "it changes no checkpoint, only what a failed one means",
    "retained_count": "it changes no checkpoint, only how long one is kept",
    "state_backend": "how fast another backend is with the state of this job is not measured",
    "is_incremental": "how much of the state changes between two checkpoints is not reported",
    "has_changelog": "how much of the state changes between two checkpoints is not reported",
    "changelog_directory": "it is a part of the changelog",
    "batch_offset_count": "a micro-batch has no barriers",
    "batch_file_count": "a micro-batch has no barriers",
}
"""The settings of which no what-if exists, with the reason. Cards on them keep the prediction of their rule."""
_AN_ANSWER: Final = "what-if, {tier} tier; the interval holds 90 % of the next checkpoints"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a what-if predicts. ``outcome`` is None if it does not apply to the job."""

    what_if: WhatIf
    outcome: Outcome | None


class Predictor:
    """Has the answers to the what-ifs of cards. Missing ones are computed by ``predict``, if it is given."""

    def __init__(
        self, answers: Iterable[Answer] = (), predict: Callable[[WhatIf], Outcome | None] | None = None
    ) -> None:
        self._found = {a.what_if: a.outcome for a in answers}
        self._predict = predict
        self.was_asked = False
        self.has_missed = False
        """Whether an answer is missing, so that a card has the prediction of its rule."""

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All answers, in the order in which they were found."""
        return tuple(Answer(what_if=w, outcome=o) for w, o in self._found.items())

    def of(self, proposed: Setting) -> Outcome | None:
        """Return what is predicted under proposed settings; None if there is no answer (yet) or no such what-if."""
        what_if = what_if_of(proposed)
        return None if what_if is None else self.of_what_if(what_if)

    def of_what_if(self, what_if: WhatIf) -> Outcome | None:
        """Return the answer to a what-if; None if there is none."""
        self.was_asked = True
        if what_if not in self._found:
            if self._predict is None:
                self.has_missed = True
                return None
            self._found[what_if] = self._predict(what_if)
        return self._found[what_if]

    def expected(self, proposed: Setting, by_rule: Sequence[Expected]) -> tuple[Expected, ...]:
        """Return the predictions of a card: for each metric the answer, or that of the rule if there is none."""
        outcome = self.of(proposed)
        if outcome is None:
            return tuple(by_rule)
        effects = (one_of(outcome, e.metric) for e in by_rule)
        return tuple(
            e if value is None else replace(e, predicted=value, method=method_of(outcome.tier))
            for e, value in zip(by_rule, effects, strict=True)
        )

    def answered(self, proposed: Setting, metrics: Sequence[Metric]) -> tuple[Expected, ...]:
        """Return the answers on metrics that no checkpoint shows: before the change, those under the present settings.

        A metric is left out if one of the two answers says nothing of it.
        """
        now, then = self.of(Setting()), self.of(proposed)
        if now is None or then is None:
            return ()
        pairs = ((m, one_of(now, m), one_of(then, m)) for m in metrics)
        method = method_of(then.tier)
        return tuple(Expected(m, UNITS[m], a.value, b, method) for m, a, b in pairs if a is not None and b is not None)

    def candidates(self, by_rule: Sequence[tuple[Candidate, Setting]]) -> tuple[Candidate, ...]:
        """Return the modes that a card shows, with the answers; those of the rule if the proposed one has none.

        If it has one, modes without an answer are left out: two predictors are not compared.
        """
        answers = [self.of(setting) for _, setting in by_rule]
        is_answered = any(c.is_proposed and o is not None for (c, _), o in zip(by_rule, answers, strict=True))
        if not is_answered:
            return tuple(c for c, _ in by_rule)
        return tuple(_answered(c, o) for (c, _), o in zip(by_rule, answers, strict=True) if o is not None)


def what_if_of(proposed: Setting) -> WhatIf | None:
    """Return the what-if of proposed settings; None if no what-if has one of them (``_NOT_SIMULATED``)."""
    usual = Setting()
    values = {f.name: v for f in fields(Setting) if (v := getattr(proposed, f.name)) != getattr(usual, f.name)}
    # Whether unaligned checkpoints are forced at an exchange changes what the engine accepts, and no checkpoint.
    values.pop("is_unaligned_forced", None)
    vertex, parallelism = values.pop("vertex_id", None), values.pop("parallelism", None)
    if values.keys() & _NOT_SIMULATED.keys() or (parallelism is not None and vertex is None):
        return None
    rescaled = () if parallelism is None else ((VertexId(str(vertex)), int(parallelism)),)
    return WhatIf(**values, parallelism=rescaled)


def _answered(one: Candidate, outcome: Outcome) -> Candidate:
    # What was measured of the present mode counts more than what was simulated.
    share = None if outcome.expired_ratio is None else outcome.expired_ratio.value
    return replace(
        one,
        duration_ms=outcome.duration_ms,
        persisted_bytes=outcome.persisted_bytes,
        expired_ratio=one.expired_ratio if one.is_current else share,
    )


def method_of(tier: Tier) -> str:
    """Return the text that explains how a what-if was predicted."""
    return _AN_ANSWER.format(tier=tier.value)


def one_of(outcome: Outcome, metric: Metric) -> Interval | None:
    """Return what an answer says of a metric; None if it says nothing."""
    match metric:
        case Metric.DURATION:
            return outcome.duration_ms
        case Metric.PERSISTED:
            return outcome.persisted_bytes
        case Metric.EXPIRED:
            return outcome.expired_ratio
        case Metric.THROUGHPUT:
            return outcome.records_per_s
        case Metric.REPLAYED:
            return outcome.replay_ms
        case Metric.RECOVERY:
            outage, then = outcome.restore_ms, outcome.catch_up_ms
            return None if outage is None or then is None else _sum(outage, then)
        case _:
            return None


def _sum(a: Interval, b: Interval) -> Interval:
    return Interval(a.value + b.value, a.low + b.low, a.high + b.high)
