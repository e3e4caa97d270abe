"""Confirms a what-if on the reference runtime: simulates the model of the job as it is, and of the changed job.

A third run scores the runtime: it simulates a model that knows only the older checkpoints of the job, and is compared
with the later ones.

The document in the queue of simulations holds everything that the run depends on, so the id is a hash of it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any, Final

from pydantic import TypeAdapter

from backend.advisor.twin.asking.asking import Asked
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.model.hung_writes import explained
from backend.advisor.twin.model.model import Calibration, JobModel
from backend.advisor.twin.model.outcomes import Simulated
from backend.advisor.twin.tiers import runtime_tier, tiers
from backend.advisor.twin.tiers.calibration import Rehearsal
from backend.advisor.twin.tiers.predicting import with_guess
from backend.contracts.model import Model
from backend.contracts.simulations import SimulationRunOut
from backend.contracts.whatif import CalibrationOut, PredictionOut
from backend.domain.errors import DomainError, TooLargeError
from backend.services.presenting import API_ROOT
from backend.services.simulations.catalog import Limits, PlannedRun
from backend.services.simulations.simulating import (
    EVENTS_MAX,
    Progress,
    Recorded,
    Result,
    SimulationStoppedError,
    documented,
)
from backend.services.whatif.models import ModelledJob
from backend.services.whatif.presenting import calibration_of, prediction_of

KIND: Final = "what-if"
RUNS: Final = ("as it is", "changed")
_DOCUMENTED_MAX: Final = 16
"""So many checkpoints of a run are kept with their subtasks and barriers: the newest."""
_MODEL = TypeAdapter(JobModel)
_REHEARSAL = TypeAdapter(Rehearsal)
_WHAT_IF = TypeAdapter(WhatIf)


class ConfirmedOut(Model):
    """The result of a confirmation, as it is stored: of the job as it is, then of the changed job."""

    predictions: list[PredictionOut]
    runs: list[SimulationRunOut]
    typical_ids: list[int | None]
    calibration: CalibrationOut | None = None


def document_of(job: ModelledJob, asked: Asked) -> Mapping[str, Any]:
    """Return what the queue stores for the confirmation of a what-if."""
    rehearsal = job.tiered.rehearsal
    return document(job.record.id, job.record.run.id, job.model, asked.settings, asked.what_if, rehearsal)


def document(
    job_id: str,
    run_id: str,
    model: JobModel,
    settings: Mapping[str, str],
    what_if: WhatIf,
    rehearsal: Rehearsal | None = None,
) -> Mapping[str, Any]:
    """Return what the queue stores for the confirmation of ``what_if``, which was read from ``settings``.

    Without ``rehearsal`` the runtime is not scored.
    """
    return {
        "kind": KIND,
        "job_id": job_id,
        "run_id": run_id,
        "settings": dict(settings),
        "what_if": _WHAT_IF.dump_python(what_if, mode="json"),
        "model": _MODEL.dump_python(model, mode="json"),
        "rehearsal": None if rehearsal is None else _REHEARSAL.dump_python(rehearsal, mode="json"),
    }


def id_of(document: Mapping[str, Any]) -> str:
    """Return the id of a confirmation. Documents with the same content have the same id."""
    text = json.dumps(document, sort_keys=True)
    return "w" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def model_of(document: Mapping[str, Any]) -> JobModel:
    """Return the model of the job in a queued document. An earlier version may have queued it."""
    stored = document["model"]
    return _MODEL.validate_python({**stored, "vertices": [_with_callbacks(v) for v in stored["vertices"]]})


def _with_callbacks(vertex: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a stored vertex with the time of its long callback by subtask.

    Earlier versions stored one number for all subtasks, or null if the vertex had no callback.
    """
    lasts_ms = vertex.get("callback_ms", ())
    if lasts_ms is None:
        return {**vertex, "callback_ms": ()}
    if isinstance(lasts_ms, int | float):
        return {**vertex, "callback_ms": (lasts_ms,) * len(vertex["service_us"])}
    return vertex


def run(
    wanted: Mapping[str, Any],
    progress: Progress,
    limits: Limits,
    cpu_s: Callable[[], float] = time.thread_time,
) -> Result:
    """Simulate the job of a document as it is, and with its change, and score the runtime on later checkpoints.

    Raises:
        SimulationStoppedError: ``progress.is_stopped`` was set.
        TooLargeError: the job has too many subtasks, or the runs of the job used more CPU time than a limit allows.
    """
    began_s = cpu_s()
    # The models of a document have the calibration of another tier, which says nothing about these runs.
    model = replace(model_of(wanted), calibration=None)
    models = [model, changed(model, _WHAT_IF.validate_python(wanted["what_if"]))]
    rehearsal = None if wanted.get("rehearsal") is None else _REHEARSAL.validate_python(wanted["rehearsal"])
    count = len(models) + (rehearsal is not None)
    root = f"{API_ROOT}/jobs/{wanted['job_id']}/whatif/confirmations/{id_of(wanted)}/runs"
    confirmed = ConfirmedOut(predictions=[], runs=[], typical_ids=[])
    stored = []

    def note_from(before: int) -> Callable[[float], None]:
        def note(share: float) -> None:
            progress.ratio = (before + share) / count
            if progress.is_stopped:
                raise SimulationStoppedError
            if cpu_s() - began_s > limits.cpu_max_s:
                problem = f"it needs more than {limits.cpu_max_s:g} s of CPU time"
                raise TooLargeError("job", problem, field="confirm", fix="use the quick prediction")

        return note

    simulated = []
    for number, (name, one) in enumerate(zip(RUNS, models, strict=True)):
        finished = runtime_tier.run(with_guess(one), on_progress=note_from(number))
        recorded = Recorded(finished.engine, EVENTS_MAX // len(models))
        for record in finished.counted[-_DOCUMENTED_MAX:]:
            recorded.add(record)
        planned = PlannedRun(name, finished.engine.spec)
        out, checkpoints = documented(planned, recorded, number, root)
        confirmed.runs.append(out)
        stored += checkpoints
        simulated.append(finished.simulated)
        kept = {c.checkpoint_id for c in checkpoints}
        confirmed.typical_ids.append(typical_id(finished.simulated, kept))
    calibration = None if rehearsal is None else _calibration(rehearsal, note_from(len(models)))
    scored = replace(model, calibration=calibration)
    confirmed.calibration = calibration_of(scored)
    # Which expired checkpoints hung depends on what this tier explains of them.
    store = explained(model, simulated[:1]).store
    for one, settings, run_of in zip(models, ({}, wanted["settings"]), simulated, strict=True):
        new = replace(one, store=store, calibration=calibration)
        confirmed.predictions.append(prediction_of(new, settings, tiers.confirmed(model, new, [run_of])))
    return Result([confirmed], stored)


def _calibration(rehearsal: Rehearsal, on_progress: Callable[[float], None]) -> Calibration | None:
    """Return the error of the runtime; None if it could not be scored, since the runs of the job are done."""
    try:
        found = runtime_tier.run(with_guess(rehearsal.model), on_progress=on_progress)
    except DomainError:
        # Such as too much CPU time, or an older model that the runtime cannot simulate.
        return None
    return rehearsal.calibration_of([found.simulated])


def typical_id(simulated: Simulated, kept: set[int]) -> int | None:
    """Return that one of the ``kept`` checkpoints whose duration is nearest to the median of all; None without any."""
    if not simulated.checkpoints:
        return None
    middle = median(c.duration_ms for c in simulated.checkpoints)
    known = [(abs(c.duration_ms - middle), c.checkpoint_id) for c in simulated.checkpoints if c.checkpoint_id in kept]
    return min(known)[1] if known else None
