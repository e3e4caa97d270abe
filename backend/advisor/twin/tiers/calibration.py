"""Builds a model on the older checkpoints of a job, and scores it on the later ones, which it has not seen.

The model that is returned is built from all of the evidence. Its calibration says how far a model of the same job that
knew only the older part was from the later part. The simulation of the older model runs as long as the job had run
then, and its last checkpoints are compared, because queues and state keep growing in a young job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log, sqrt

import numpy as np

from backend.advisor.twin.model.building import build
from backend.advisor.twin.model.flows import flows_of
from backend.advisor.twin.model.hung_writes import explained
from backend.advisor.twin.model.model import Calibration, JobModel, MeasureError
from backend.advisor.twin.model.observed import CHECKPOINTS_MIN_COUNT, terminal_checkpoints
from backend.advisor.twin.model.outcomes import Simulated, SimulatedCheckpoint, Tier
from backend.advisor.twin.model.snapshots import duration_ms
from backend.advisor.twin.tiers.predicting import DURATION, EXPIRED, PERSISTED, RATE, SYNC, simulated
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.numbers.statistics import median
from backend.domain.checkpoint import Checkpoint, CheckpointStatus, largest
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import NotModelledError

Simulate = Callable[[JobModel], Sequence[Simulated] | None]
"""Runs a model. Returns None if it cannot."""

_FITTED_SHARE = 0.6
_SCORED_MIN_COUNT = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """What later checkpoints, or the whole job, measured."""

    measure: str
    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A model of the job that knows only its older checkpoints, and what the later ones measured.

    A tier that simulates the model is scored by the distance from them. The model is as old as the job was then.
    """

    model: JobModel
    fitted_ids: tuple[int, ...]
    scored_ids: tuple[int, ...]
    measured: tuple[Measured, ...]

    def calibration_of(self, runs: Sequence[Simulated]) -> Calibration | None:
        """Return how far these runs of the model are from what was measured.

        None if durations cannot be compared, as when no checkpoint ended in the simulated time.
        """
        count = len(self.scored_ids)
        checkpoints = [c for r in runs for c in r.checkpoints[-max(count, _SCORED_MIN_COUNT) :]]
        older = explained(self.model, runs)
        errors = []
        for of in self.measured:
            predicted = _predicted(of.measure, older, runs, checkpoints)
            middle, expected = median(of.values), median(predicted)
            if middle is None or expected is None:
                continue
            errors.append(
                MeasureError(
                    measure=of.measure,
                    unit=of.unit,
                    measured=middle,
                    predicted=expected,
                    sample_count=count if of.measure == EXPIRED else len(of.values),
                    unexplained_spread=_unexplained(of.values, predicted),
                )
            )
        if all(e.measure != DURATION for e in errors):
            return None
        return Calibration(fitted_ids=self.fitted_ids, scored_ids=self.scored_ids, errors=tuple(errors))


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
    model, rehearsal = rehearsed(evidence, engine=engine, version=version)
    return [scored(model, rehearsal, way) for way in ways]


def scored(model: JobModel, rehearsal: Rehearsal | None, way: Simulate) -> JobModel:
    """Return the model with its calibration: the error of ``way``, which simulates it, on later checkpoints of the job.

    The model stays without one if ``rehearsal`` is None, because the evidence was too short, or if ``way`` cannot
    simulate it.
    """
    runs = None if rehearsal is None else way(rehearsal.model)
    if rehearsal is None or runs is None:
        return model
    return replace(explained(model, runs), calibration=rehearsal.calibration_of(runs))


def rehearsed(
    evidence: JobEvidence, *, engine: EngineCapabilities, version: str | None
) -> tuple[JobModel, Rehearsal | None]:
    """Return the model of a job without a calibration, and how to calibrate it; None if the evidence is too short.

    Raises:
        NotModelledError: the job cannot be modelled from this evidence.
    """
    model = build(evidence, engine=engine, version=version)
    checkpoints = terminal_checkpoints(evidence)
    older = checkpoints[: max(CHECKPOINTS_MIN_COUNT, int(len(checkpoints) * _FITTED_SHARE))]
    later = checkpoints[len(older) :]
    if len(later) < _SCORED_MIN_COUNT:
        return model, None
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
        return model, None
    # The scored checkpoints come after those of the fit, so the job is older by then.
    elapsed_ms = (later[-1].header.triggered_at - until).total_seconds() * 1000
    fitted = replace(fitted, age_ms=(fitted.age_ms or 0.0) + elapsed_ms)
    return model, Rehearsal(
        model=fitted,
        fitted_ids=tuple(c.header.checkpoint_id for c in older),
        scored_ids=tuple(c.header.checkpoint_id for c in later),
        measured=tuple(_measured(evidence, later)),
    )


def records_per_s(evidence: JobEvidence) -> float | None:
    """Return what all sources emitted in a second between the readings; None if their counts are not known."""
    flows = flows_of(evidence.pressure)
    sources = [v.id for v in evidence.topology.vertices if not evidence.topology.upstream(v.id)]
    if any(s not in flows for s in sources):
        return None
    return sum(float(np.nansum(flows[s].records_out)) for s in sources)


def _measured(evidence: JobEvidence, later: Sequence[Checkpoint]) -> Iterator[Measured]:
    whole = [c for c in later if c.header.status is CheckpointStatus.COMPLETED]
    expired = [float(c.header.status is not CheckpointStatus.COMPLETED) for c in later]
    rows: list[tuple[str, str, list[float | None]]] = [
        (DURATION, "ms", [duration_ms(c) for c in later]),
        (PERSISTED, "bytes", [_number(c.header.persisted_bytes) for c in whole]),
        (SYNC, "ms", [_number(largest([v for d in c.details for v in d.sync_duration_ms])) for c in later]),
        (RATE, "records/s", [records_per_s(evidence)]),
        # Of the checkpoints that expired, the share counts, and not the median.
        (EXPIRED, "ratio", [sum(expired) / len(expired)]),
    ]
    for measure, unit, values in rows:
        known = tuple(v for v in values if v is not None)
        if known:
            yield Measured(measure, unit, known)


def _predicted(
    measure: str, model: JobModel, runs: Sequence[Simulated], checkpoints: Sequence[SimulatedCheckpoint]
) -> Sequence[float]:
    if measure == RATE:
        return [r.records_per_s for r in runs]
    if measure == PERSISTED:
        return [c.persisted_bytes for c in checkpoints if not c.is_expired]
    if measure == SYNC:
        return [c.sync_ms for c in checkpoints]
    hangs, when = model.store.hangs, model.settings.schedule
    durations = hangs.on([c.duration_ms for c in checkpoints], when)
    if measure == DURATION:
        return durations
    if not hangs.count:
        return [sum(c.is_expired for c in checkpoints) / len(checkpoints)] if checkpoints else []
    return [sum(ms >= when.timeout_ms for ms in durations) / len(durations)] if durations else []


def _number(value: int | None) -> float | None:
    return None if value is None else float(value)


def _unexplained(measured: Sequence[float], predicted: Sequence[float]) -> float:
    """Return the standard deviation of the measured values' logarithm beyond that of the predicted values."""
    real, own = (_variance([v for v in of if v > 0]) for of in (measured, predicted))
    return sqrt(max(0.0, real - own))


def _variance(values: Sequence[float]) -> float:
    return float(np.var([log(v) for v in values])) if len(values) > 1 else 0.0
