"""Lets the fast simulation choose settings for a job, and answers with it what the job's cards ask.

Both need the job's model, which is built at most once. The answers are those of the what-ifs of the cards' settings:
the same model, tier and seeds (``predictor``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from backend.advisor.choice.choosing import choose
from backend.advisor.predictor import Predictor
from backend.advisor.recommending import advice_on
from backend.advisor.situation import Situation
from backend.advisor.tier_choice import TierChoice
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.outcomes import Outcome, Tier
from backend.advisor.twin.tiers import tiers
from backend.advisor.twin.tiers.tiers import QuickTiers, TieredModel
from backend.domain.errors import InvalidInputError, NotModelledError, TooLargeError


def simulate(situation: Situation) -> TierChoice:
    """Return what the fast simulation chooses for a job, and what it predicts for each of its cards.

    The caller sees to it that the simulation is compiled.
    """
    job = _Job(situation)
    choice = choose(situation, model_of=lambda _: job.tiered.best)
    return answered(situation, choice, job.answer)


def answered(situation: Situation, choice: TierChoice, predict: Callable[[WhatIf], Outcome | None]) -> TierChoice:
    """Return a choice with the answers to what the cards ask that follow from it. Without a model, it has none."""
    predictor = Predictor(predict=predict)
    try:
        advice_on(replace(situation, predictor=predictor), choice, is_simulated=True)
    except NotModelledError:
        return choice
    # What a card does not show is not stored.
    answers = (
        a if a.outcome is None else replace(a, outcome=replace(a.outcome, durations_ms=(), failures=(), notes=()))
        for a in predictor.answers
    )
    return replace(choice, answers=tuple(answers))


class _Job:
    """A job's model, once it is needed, and what was predicted with it."""

    def __init__(self, situation: Situation) -> None:
        self._known = situation
        self._evidence = situation.modelled or situation.evidence
        self._outcomes: dict[tuple[WhatIf, Tier], Outcome] = {}

    @cached_property
    def tiered(self) -> TieredModel:
        """The model in each tier."""
        return QuickTiers(is_ready=True).build(self._evidence, self._known.engine, self._known.version)

    def answer(self, what_if: WhatIf) -> Outcome | None:
        """Return what a what-if predicts; None if it does not apply to the job, or no tier can simulate it."""
        try:
            return tiers.answer(self.tiered, what_if, self._evidence, self._outcome).then
        except (InvalidInputError, TooLargeError):
            return None

    def _outcome(self, what_if: WhatIf, tier: Tier) -> Outcome:
        outcome = self._outcomes.get((what_if, tier))
        if outcome is None:
            self._outcomes[what_if, tier] = outcome = tiers.predict(self.tiered, what_if, tier)
        return outcome
