"""The tiers that answer what-ifs: a quick one for the sliders, and the reference runtime for their confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from backend.advisor.twin import predicting
from backend.advisor.twin.calibration import calibrated
from backend.advisor.twin.changes import WhatIf
from backend.advisor.twin.model import JobModel
from backend.advisor.twin.outcomes import Outcome, Simulated, Tier
from backend.analysis.evidence import JobEvidence
from backend.domain.engines import EngineCapabilities

QUICK: Final = Tier.FORMULAS
"""The tier that answers at once, and in which models are calibrated."""

_NOT_SCORED: Final = "this tier was not scored on later checkpoints, so its intervals are wide"


def build_model(evidence: JobEvidence, engine: EngineCapabilities, version: str | None) -> JobModel:
    """Return the model of a job, calibrated in the quick tier.

    Raises:
        NotModelledError: the job cannot be modelled from this evidence.
    """
    return calibrated(evidence, engine=engine, version=version, tier=QUICK)


def predict(model: JobModel, what_if: WhatIf) -> Outcome:
    """Predict one what-if with the quick tier.

    Raises:
        InvalidInputError: a change does not apply to this job.
        TooLargeError: the job is too large for the tier.
    """
    return predicting.predict(model, what_if, QUICK)


def confirmed(model: JobModel, new: JobModel, runs: Sequence[Simulated]) -> Outcome:
    """Return what runs of the changed model ``new`` on the reference runtime predict.

    The calibration of another tier says nothing about these runs, so it is left out and the intervals are wide.
    """
    found = predicting.outcome_of(replace(new, calibration=None), runs, calibrated_mode=model.settings.mode)
    own = tuple(note for run in runs for note in run.notes)
    return replace(found, notes=(*dict.fromkeys(own), _NOT_SCORED))
