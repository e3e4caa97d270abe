"""The tiers that answer what-ifs: quick ones for the sliders, and the reference runtime for their confirmation.

The fast tier gives the quick answers once it is compiled. Until then, and for jobs that are too large for it, closed
formulas answer. All predictions of one answer come from one tier, because a comparison of two tiers would show their
difference too, and each tier has its own calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.fast import fast
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.outcomes import Outcome, Simulated, Tier
from backend.advisor.twin.tiers import predicting
from backend.advisor.twin.tiers.calibration import Rehearsal, rehearsed, scored
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import DomainError, TooLargeError

_NOT_SCORED: Final = "this tier was not scored on later checkpoints, so its intervals are wide"
_IN_ITS_PLACE: Final = "so closed formulas answer, which are less exact"
_AS_IS: Final = WhatIf()
_NOT_ASKED: Final = "this process does not compile the fast simulation"


@dataclass(frozen=True, slots=True)
class TieredModel:
    """A job's model once for each quick tier, with the calibration of this tier.

    ``why_not`` is why the model has no fast tier; None if it has one. ``rehearsal`` scores further tiers; None if the
    job has too few checkpoints.
    """

    by_tier: Mapping[Tier, JobModel]
    why_not: str | None = None
    rehearsal: Rehearsal | None = None

    @property
    def best(self) -> JobModel:
        """The model with the calibration of the tier that usually answers."""
        return self.by_tier.get(Tier.FAST) or self.by_tier[Tier.FORMULAS]


@dataclass(frozen=True, slots=True)
class Answered:
    """What the job does as it is, and changed. ``why_not`` is why the fast tier did not answer; None if it did."""

    now: Outcome
    then: Outcome
    why_not: str | None


class QuickTiers:
    """The quick tiers of this process, and whether the fast one can be used."""

    def __init__(self, *, is_ready: bool = False) -> None:
        self._why_not = None if is_ready else _NOT_ASKED
        self._is_coming = False
        self._has_failed = False

    @property
    def tier(self) -> Tier:
        """The tier that answers for a job that is not too large."""
        return Tier.FORMULAS if self._why_not else Tier.FAST

    @property
    def why_not(self) -> str | None:
        """Why the fast tier cannot be used; None if it can be."""
        return self._why_not

    @property
    def is_coming(self) -> bool:
        """Whether the fast tier is being compiled."""
        return self._is_coming

    @property
    def has_failed(self) -> bool:
        """Whether the fast tier could not be compiled, so that this process will not have it."""
        return self._has_failed

    def begin(self) -> None:
        """Note that the fast tier is being compiled."""
        self._why_not = "the fast simulation is still being compiled"
        self._is_coming, self._has_failed = True, False

    def finish(self, problem: str | None = None) -> None:
        """Note that the fast tier can be used, or why it cannot be."""
        self._is_coming, self._has_failed = False, problem is not None
        self._why_not = None if problem is None else f"the fast simulation could not be compiled ({problem})"

    def build(self, evidence: JobEvidence, engine: EngineCapabilities, version: str | None) -> TieredModel:
        """Return the model of a job, calibrated in each quick tier that can be used.

        Raises:
            NotModelledError: the job cannot be modelled from this evidence.
        """
        why_not = self._why_not
        tiers = (Tier.FORMULAS,) if why_not else (Tier.FORMULAS, Tier.FAST)
        ways = [_in_formulas, _in_fast][: len(tiers)]
        model, rehearsal = rehearsed(evidence, engine=engine, version=version)
        models = [scored(model, rehearsal, way) for way in ways]
        return TieredModel(dict(zip(tiers, models, strict=True)), why_not, rehearsal)


def choose(job: TieredModel, what_ifs: Sequence[WhatIf]) -> tuple[Tier, str | None]:
    """Return the tier that answers all of these what-ifs, and a sentence if it is not the fast one."""
    problem = job.why_not
    for what_if in what_ifs:
        if problem is not None:
            break
        try:
            problem = fast.size_problem(changed(job.best, what_if))
        except DomainError:
            # The prediction says what is wrong with it.
            continue
    return (Tier.FAST, None) if problem is None else (Tier.FORMULAS, fallback(problem))


def fallback(problem: str) -> str:
    """Return the sentence that says why closed formulas answer."""
    return f"{problem}, {_IN_ITS_PLACE}"


def predict(job: TieredModel, what_if: WhatIf, tier: Tier) -> Outcome:
    """Predict one what-if with a quick tier.

    Raises:
        InvalidInputError: a change does not apply to this job.
        TooLargeError: the job is too large for the tier.
    """
    model = job.by_tier[tier]
    seeds = fast.seeds_within(changed(model, what_if)) if tier is Tier.FAST else ()
    return predicting.predict(model, what_if, tier, seeds=seeds if len(seeds) > 1 else None)


def answer(
    job: TieredModel, what_if: WhatIf, evidence: JobEvidence, ask: Callable[[WhatIf, Tier], Outcome] | None = None
) -> Answered:
    """Predict the job as it is and under one what-if, both in the same tier.

    ``evidence`` is what the model was built from. ``ask`` predicts one of the two, by default ``predict``.

    Raises:
        InvalidInputError: the change does not apply to this job.
        TooLargeError: the job is too large for every tier.
    """
    ask = ask or partial(predict, job)
    tier, why_not = choose(job, [_AS_IS, what_if])
    try:
        outcomes = [ask(one, tier) for one in (_AS_IS, what_if)]
    except TooLargeError as error:
        if tier is Tier.FORMULAS:
            raise
        why_not = fallback(error.problem)
        outcomes = [ask(one, Tier.FORMULAS) for one in (_AS_IS, what_if)]
    now, then = (predicting.believed(one, outcomes[0], evidence) for one in outcomes)
    return Answered(now, then, why_not)


def confirmed(model: JobModel, new: JobModel, runs: Sequence[Simulated]) -> Outcome:
    """Return what runs of the changed model ``new`` on the reference runtime predict.

    ``new`` has the calibration of the runtime. It has none if the runtime was not scored, and the intervals are wide.
    """
    outcome = predicting.outcome_of(new, runs, calibrated_mode=model.settings.mode)
    own = tuple(note for run in runs for note in run.notes)
    return replace(outcome, notes=(*dict.fromkeys(own), *(() if new.calibration is not None else (_NOT_SCORED,))))


def _in_formulas(model: JobModel) -> Sequence[Simulated]:
    return predicting.simulated(model, Tier.FORMULAS)


def _in_fast(model: JobModel) -> Sequence[Simulated] | None:
    if fast.size_problem(model) is not None:
        return None
    try:
        return predicting.simulated(model, Tier.FAST, seeds=(1,))
    except TooLargeError:
        return None
