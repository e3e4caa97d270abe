"""Replays the advice: which cards the rules would have opened, when, and what came of them.

A card goes through the same states as a stored one (``advisor.lifecycle``), at the end of each checkpoint. In a replay
no card is accepted, dismissed or sent. A card is applied if the engine reported the proposed settings while
it was open; then the effect was measured, and is compared with the predicted interval. Of other cards only the
prediction is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from backend.advisor import lifecycle
from backend.advisor.advice import Advice, Interval, Recommendation
from backend.advisor.lifecycle import Card, Observed, Step
from backend.advisor.recommending import advise
from backend.advisor.situation import Situation, situation
from backend.advisor.tier_choice import TierChoice
from backend.analysis.measures.windows import Tally
from backend.analysis.verdict.case import Case
from backend.backtest.moments import Moment
from backend.backtest.scores import Counts
from backend.domain.advice import AdviceState, Metric
from backend.domain.verdict import Diagnosis

ChooseFor = Callable[[Situation], TierChoice]

CARDS_KEPT: Final = 100
_REMEMBERED: Final = 50
"""So many of the newest cards of a job decide whether another one is opened, as many as the service reads."""


@dataclass(slots=True)
class Prediction:
    """A predicted metric, with its interval and, if the change was made, the measured value.

    ``before`` was measured before the change. ``basis`` is that of ``value``: always ``predicted``. ``measured`` is the
    value over the ``measured_count`` checkpoints after the change; it is None if the change was not made, or if
    checkpoints do not show the metric.
    """

    metric: str
    unit: str
    before: float | None
    value: float
    low: float
    high: float
    method: str
    basis: str
    measured: float | None = None
    measured_count: int = 0

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured value is inside the predicted interval; None if nothing was measured."""
        return None if self.measured is None else self.low <= self.measured <= self.high


@dataclass(slots=True)
class ReplayedCard:
    """A card that the rules would have opened at ``opened_at``, at the end of checkpoint ``opened_checkpoint_id``.

    The rules gave it at ``given_count`` checkpoints, last at ``last_given_at``. Its content is that of the last time.
    ``state`` is the last state, entered at ``state_at`` for ``state_reason``. ``effect`` is that of the change on the
    durations, with an interval of 95 %, if it was measured over enough checkpoints.
    """

    run_id: str
    topic: str
    kind: str
    rules: list[str]
    headline: str
    confidence: str
    changes: list[tuple[str, str | None, str]]
    predictions: list[Prediction]
    opened_at: str
    opened_checkpoint_id: int
    last_given_at: str
    given_count: int = 1
    state: str = AdviceState.NEW.value
    state_at: str = ""
    state_reason: str = "given by the rules"
    applied_at: str | None = None
    effect: dict[str, Any] | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ReplayedCard:
        """Return the card from its document."""
        changes = [(key, current, proposed) for key, current, proposed in document["changes"]]
        predictions = [Prediction(**p) for p in document["predictions"]]
        return cls(**{**document, "changes": changes, "predictions": predictions})


@dataclass(slots=True)
class AdviceScore(Counts):
    """How the cards of some jobs fared: how many were opened, by topic, and how many reached each state.

    ``predicted_count`` predictions were compared with a measured value, and ``held_count`` of these values were inside
    the predicted interval.
    """

    checkpoint_count: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    opened_count: int = 0
    withdrawn_count: int = 0
    applied_count: int = 0
    regressed_count: int = 0
    rolled_back_count: int = 0
    predicted_count: int = 0
    held_count: int = 0

    @property
    def held_ratio(self) -> float | None:
        """The share of the measured values that were inside their predicted interval; None if none was measured."""
        return self.held_count / self.predicted_count if self.predicted_count else None


@dataclass(slots=True)
class AdviceReplay:
    """The result of one job. ``cards`` has the newest ``CARDS_KEPT``, oldest first."""

    score: AdviceScore = field(default_factory=AdviceScore)
    cards: list[ReplayedCard] = field(default_factory=list)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> AdviceReplay:
        """Return the result from its document."""
        return cls(AdviceScore(**document["score"]), [ReplayedCard.of(c) for c in document["cards"]])


@dataclass(slots=True)
class _Held:
    """A card with the values that decide its next state."""

    shown: ReplayedCard
    advice: Recommendation
    created_at: datetime
    last_given_at: datetime
    changed_at: datetime
    state: AdviceState = AdviceState.NEW
    applied_at: datetime | None = None
    measured_count: int = 0


class AdviceReplayer:
    """Replays the advice on one job. ``add`` takes its moments in their order, and ``result`` returns the result."""

    def __init__(self, choose_for: ChooseFor | None = None) -> None:
        """``choose_for`` lets the fast simulation choose settings. Without it, rules and replayed checkpoints do."""
        self._choose_for = choose_for
        self._choice: tuple[str, TierChoice] | None = None
        self._score = AdviceScore()
        self._cards: deque[ReplayedCard] = deque(maxlen=CARDS_KEPT)
        self._held: deque[_Held] = deque()

    def add(self, moment: Moment, case: Case | None, said: Diagnosis | None = None) -> Advice:
        """Apply the rules to a moment, and return the advice.

        ``case`` is that of its evidence, and ``said`` is what the verdict says of it, if the caller knows it.
        """
        self._score.checkpoint_count += 1
        advice = advise(
            moment.evidence,
            engine=moment.run.engine,
            version=moment.run.engine_version,
            settings_since=moment.first_trigger_at,
            case=case,
            diagnosis=said,
            choice=None if self._choice is None or self._choice[0] != moment.run.id else self._choice[1],
            is_simulated=self._choose_for is not None,
        )
        if advice.is_choice_due and self._choose_for is not None:
            # As in the service, the next advice uses it.
            known = situation(
                moment.evidence,
                engine=moment.run.engine,
                version=moment.run.engine_version,
                settings_since=moment.first_trigger_at,
                case=case,
            )
            earlier = None if self._choice is None else self._choice[1]
            series = None if earlier is None else earlier.series_at(moment.evidence.config, moment.evidence.now)
            chosen = self._choose_for(replace(known, modelled=moment.modelled(), series=series))
            self._choice = moment.run.id, chosen
        for held in self._held:
            self._follow(held, moment, advice)
        for recommendation in advice.recommendations:
            self._give(recommendation, moment)
        return advice

    def result(self) -> AdviceReplay:
        """Return the result. Call it once, after the last moment."""
        for held in self._held:
            self._settle(held)
        self._score.topics = dict(sorted(self._score.topics.items()))
        return AdviceReplay(self._score, list(self._cards))

    def _follow(self, held: _Held, moment: Moment, advice: Advice) -> None:
        topic = held.advice.topic
        silence = next((s.reason for s in advice.silences if s.topic is topic), "the rules advise another change")
        seen = Observed(
            now=moment.at,
            config=moment.evidence.config,
            settings_since=moment.settings_since,
            checkpoints=moment.under_settings,
            is_given=any(r.kind == held.advice.kind for r in advice.recommendations),
            why_not=f"the rules no longer give it: {silence}",
            parallelism={v.id: v.parallelism for v in moment.evidence.topology.vertices},
        )
        step = lifecycle.next_step(_values_of(held), seen)
        if step is not None:
            _move(held, step)

    def _give(self, advice: Recommendation, moment: Moment) -> None:
        there = next((h for h in self._held if h.advice.topic is advice.topic and h.state.is_open), None)
        if there is not None:
            if there.advice.kind == advice.kind:
                there.advice, there.last_given_at = advice, moment.at
                there.shown.given_count += 1
                _describe(there.shown, advice, moment.at)
            return
        if any(_keeps_out(held, advice, moment.at) for held in self._held):
            return
        at = moment.at.isoformat()
        shown = ReplayedCard(
            run_id=moment.run.id,
            topic=advice.topic.value,
            kind=advice.kind,
            rules=[],
            headline="",
            confidence="",
            changes=[],
            predictions=[],
            opened_at=at,
            opened_checkpoint_id=moment.stored.header.checkpoint_id,
            last_given_at=at,
            state_at=at,
        )
        _describe(shown, advice, moment.at)
        self._cards.append(shown)
        self._held.append(_Held(shown, advice, moment.at, moment.at, moment.at))
        self._score.topics[shown.topic] = self._score.topics.get(shown.topic, 0) + 1
        if len(self._held) > _REMEMBERED:
            self._settle(self._held.popleft())

    def _settle(self, held: _Held) -> None:
        """Count a card that is not followed any more."""
        score, state = self._score, held.state
        score.opened_count += 1
        score.withdrawn_count += state is AdviceState.EXPIRED
        score.applied_count += held.applied_at is not None
        score.regressed_count += state is AdviceState.REGRESSED
        score.rolled_back_count += state is AdviceState.ROLLED_BACK
        for prediction in held.shown.predictions:
            score.predicted_count += prediction.measured is not None
            score.held_count += bool(prediction.is_inside)


def _describe(card: ReplayedCard, advice: Recommendation, at: datetime) -> None:
    card.rules, card.headline, card.confidence = list(advice.rules), advice.headline, advice.confidence.value
    card.changes = [(c.key, c.current, c.proposed) for c in advice.changes]
    card.predictions = [
        Prediction(
            e.metric.value,
            e.unit,
            e.before,
            e.predicted.value,
            e.predicted.low,
            e.predicted.high,
            e.method,
            e.basis.value,
        )
        for e in advice.expected
    ]
    card.last_given_at = at.isoformat()


def _move(held: _Held, step: Step) -> None:
    held.state, held.changed_at = step.state, step.at
    if step.state is AdviceState.APPLIED:
        held.applied_at = step.at
        held.shown.applied_at = step.at.isoformat()
    card = held.shown
    card.state, card.state_at, card.state_reason = step.state.value, step.at.isoformat(), step.reason
    if not step.checkpoint_ids:
        return
    held.measured_count = len(step.checkpoint_ids)
    found = {m.metric.value: m for m in step.measured}
    for prediction in card.predictions:
        if prediction.metric in found:
            measured = found[prediction.metric]
            prediction.measured, prediction.measured_count = measured.measured, measured.checkpoint_count
    moved = step.effect
    card.effect = None
    if moved is not None:
        names = ("before", "after", "difference", "low", "high")
        card.effect = {name: getattr(moved, name) for name in names} | {"direction": moved.direction.value}


def _values_of(held: _Held) -> Card:
    expected = held.advice.expected
    expired = next((e.before for e in expected if e.metric is Metric.EXPIRED), None)
    before_ms = tuple(ms for e in expected if e.metric is Metric.DURATION for ms in e.before_values if ms is not None)
    failed_count = None if expired is None else round(expired * len(before_ms))
    return Card(
        state=held.state,
        created_at=held.created_at,
        last_given_at=held.last_given_at,
        applied_at=held.applied_at,
        current=held.advice.current,
        proposed=held.advice.proposed,
        expected=tuple((e.metric, Interval(e.predicted.value, e.predicted.low, e.predicted.high)) for e in expected),
        before_ms=before_ms,
        before=None if failed_count is None else Tally(len(before_ms) - failed_count, failed_count),
        measured_count=held.measured_count,
    )


def _keeps_out(held: _Held, advice: Recommendation, now: datetime) -> bool:
    # Until an applied change is measured, the advisor makes no other recommendation on its topic.
    if held.advice.topic is advice.topic and held.state is AdviceState.APPLIED:
        return True
    if held.advice.kind != advice.kind:
        return False
    return lifecycle.is_suppressed(held.state, held.changed_at, held.advice.current, advice.current, now)
