"""Builds a model on the older checkpoints of a job, and scores it on the later ones, which it has not seen.

The model that is returned is built from all of the evidence. Its calibration says how far a model of the same job that
knew only the older part was from the later part. The simulation of the older model runs as long as the job had run
then, and its last checkpoints are compared, because queues and state keep growing in a young job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import log, sqrt

import numpy as np

from backend.advisor.twin.building import CHECKPOINTS_MIN_COUNT, build, terminal_checkpoints
from backend.advisor.twin.flows import flows_of
from backend.advisor.twin.model import Calibration, JobModel, MeasureError
from backend.advisor.twin.outcomes import Simulated, Tier
from backend.advisor.twin.predicting import DURATION, EXPIRED, PERSISTED, RATE, SYNC, simulated
from backend.analysis.evidence import JobEvidence
from backend.analysis.statistics import median
from backend.domain.checkpoint import Checkpoint, CheckpointStatus, largest
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import NotModelledError

Simulate = Callable[[JobModel], Sequence[Simulated] | None]
"""Runs a model. Returns None if it cannot."""

_FITTED_SHARE = 0.6
_SCORED_MIN_COUNT = 2


def calibrated(
    evidence: JobEvidence,
    *,
    engine: EngineCapabilities,
    version: str | None,
    tier: Tier = Tier.RUNTIME,
    simulate: Simulate | None = None,
) -> JobModel:
    """Return the model of a job with its calibration; without one if the evidence is too short to divide.

    ``simulate`` runs a model, by default with one seed of ``tier``.

    Raises:
        NotModelledError: the job cannot be modelled from this evidence.
    """
    way = simulate or partial(simulated, tier=tier, seeds=(1,))
    return calibrated_in_each(evidence, engine=engine, version=version, ways=[way])[0]


def calibrated_in_each(
    evidence: JobEvidence, *, engine: EngineCapabilities, version: str | None, ways: Sequence[Simulate]
) -> list[JobModel]:
    """Return the model of a job once for each way to simulate it, with the error that this way makes.

    A model has no calibration if the evidence is too short to divide, or if its way cannot simulate it.

    Raises:
        NotModelledError: the job cannot be modelled from this evidence.
    """
    model = build(evidence, engine=engine, version=version)
    uncalibrated = [model] * len(ways)
    found = terminal_checkpoints(evidence)
    older = found[: max(CHECKPOINTS_MIN_COUNT, int(len(found) * _FITTED_SHARE))]
    later = found[len(older) :]
    if len(later) < _SCORED_MIN_COUNT:
        return uncalibrated
    until = later[0].header.triggered_at
    past = replace(
        evidence,
        checkpoints=older,
        pressure=tuple(r for r in evidence.pressure if r.observed_at <= until),
        now=until,
    )
    try:
        fitted = build(past, engine=engine, version=version)
    except NotModelledError:
        return uncalibrated
    # The scored checkpoints come after those of the fit, so the job is older by then.
    elapsed_ms = (later[-1].header.triggered_at - until).total_seconds() * 1000
    fitted = replace(fitted, age_ms=(fitted.age_ms or 0.0) + elapsed_ms)
    runs = [way(fitted) for way in ways]
    return [model if r is None else _scored(model, evidence, older, later, r) for r in runs]


def _scored(
    model: JobModel,
    evidence: JobEvidence,
    older: Sequence[Checkpoint],
    later: Sequence[Checkpoint],
    runs: Sequence[Simulated],
) -> JobModel:
    return replace(
        model,
        calibration=Calibration(
            fitted_ids=tuple(c.header.checkpoint_id for c in older),
            scored_ids=tuple(c.header.checkpoint_id for c in later),
            errors=tuple(_errors(evidence, later, runs)),
        ),
    )


def duration_ms(checkpoint: Checkpoint) -> float | None:
    """Return the duration of an ended checkpoint; of an expired one, the time until it expired."""
    header = checkpoint.header
    if header.end_to_end_duration_ms is not None:
        return float(header.end_to_end_duration_ms)
    if header.failed_at is None:
        return None
    return (header.failed_at - header.triggered_at).total_seconds() * 1000


def records_per_s(evidence: JobEvidence) -> float | None:
    """Return what all sources emitted in a second between the readings; None if their counts are not known."""
    found = flows_of(evidence.pressure)
    sources = [v.id for v in evidence.topology.vertices if not evidence.topology.upstream(v.id)]
    if any(s not in found for s in sources):
        return None
    return sum(float(np.nansum(found[s].records_out)) for s in sources)


def _errors(evidence: JobEvidence, later: Sequence[Checkpoint], runs: Sequence[Simulated]) -> list[MeasureError]:
    count = len(later)
    checkpoints = [c for r in runs for c in r.checkpoints[-max(count, _SCORED_MIN_COUNT) :]]
    whole = [c for c in later if c.header.status is CheckpointStatus.COMPLETED]
    rows: list[tuple[str, str, list[float | None], list[float]]] = [
        (DURATION, "ms", [duration_ms(c) for c in later], [c.duration_ms for c in checkpoints]),
        (
            PERSISTED,
            "bytes",
            [_number(c.header.persisted_bytes) for c in whole],
            [c.persisted_bytes for c in checkpoints if not c.is_expired],
        ),
        (
            SYNC,
            "ms",
            [_number(largest([v for d in c.details for v in d.sync_duration_ms])) for c in later],
            [c.sync_ms for c in checkpoints],
        ),
        (RATE, "records/s", [records_per_s(evidence)], [r.records_per_s for r in runs]),
    ]
    # Of the checkpoints that expired, the share counts, and not the median.
    expired = [float(c.header.status is not CheckpointStatus.COMPLETED) for c in later]
    shares: list[float | None] = [sum(expired) / count] if count else []
    own = [sum(c.is_expired for c in checkpoints) / len(checkpoints)] if checkpoints else []
    rows.append((EXPIRED, "ratio", shares, own))
    found = []
    for measure, unit, measured, predicted in rows:
        values = [v for v in measured if v is not None]
        middle, expected = median(values), median(predicted)
        if middle is None or expected is None:
            continue
        found.append(
            MeasureError(
                measure=measure,
                unit=unit,
                measured=middle,
                predicted=expected,
                sample_count=count if measure == EXPIRED else len(values),
                unexplained_spread=_unexplained(values, predicted),
            )
        )
    return found


def _number(value: int | None) -> float | None:
    return None if value is None else float(value)


def _unexplained(measured: Sequence[float], predicted: Sequence[float]) -> float:
    """Return the standard deviation of the measured values' logarithm beyond that of the predicted values."""
    real, own = (_variance([v for v in of if v > 0]) for of in (measured, predicted))
    return sqrt(max(0.0, real - own))


def _variance(values: Sequence[float]) -> float:
    return float(np.var([log(v) for v in values])) if len(values) > 1 else 0.0
