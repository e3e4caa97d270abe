"""Starts jobs in the live runtime: from a job document, or from a checkpoint or savepoint of a job that has ended.

``POST /uploads`` takes a file of ``simulate --save-checkpoint``, from which a job can start too (``uploads``).
``POST /jobs`` has the fields of Flink's ``POST /jars/:id/run`` where Flink has them. The new job continues the virtual
time of the earlier one, and takes over its external system, so only one of the two may run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend.domain.errors import FieldProblem, InvalidInputError, PlanError, UnknownEntityError
from backend.live.body import read_object
from backend.live.driver import LiveJob, RuntimeDriver
from backend.live.engine import build_from_saved, build_live_engine, check_channels, job_run_id
from backend.live.uploads import LOCATION
from backend.runtime.coordinator.rescales import rescaled_graph
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.snapshot.saved import RestoreOptions

_FIELDS = ("allowNonRestoredState", "atOwnRisk", "claimMode", "job", "savepointPath")
_EXAMPLE = '{"savepointPath": "runtime:/<job id>/chk-7", "claimMode": "NO_CLAIM"}'
_CLAIM_MODES = ("CLAIM", "NO_CLAIM")
_LOCATION = re.compile(r"runtime:/([0-9a-f]{32})/(?:chk|savepoint)-(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Origin:
    """A checkpoint of a job of this runtime, or an uploaded one."""

    location: str
    job_id: str = ""
    """The job of this runtime; empty if the checkpoint was uploaded."""
    checkpoint_id: int = 0


@dataclass(frozen=True, slots=True)
class WantedStart:
    """A request to start a job. Without ``spec``, the job is the one whose checkpoint is restored."""

    spec: JobSpec | None
    origin: Origin | None
    """The checkpoint to begin from; None to begin without one."""
    options: RestoreOptions


def wanted_start(body: bytes) -> WantedStart:
    """Parse the body of ``POST /jobs``.

    Raises:
        InvalidInputError: the body is not a JSON object, or a field of it or of the job document is invalid.
        PlanError: the job cannot run, or has too many channels.
    """
    fields, problems = read_object(body, _FIELDS, _EXAMPLE)
    flags = [_flag(fields, name, problems) for name in ("allowNonRestoredState", "atOwnRisk")]
    mode = fields.get("claimMode")
    if mode is not None and mode not in _CLAIM_MODES:
        problems.append(FieldProblem("claimMode", "is not a claim mode", ", ".join(_CLAIM_MODES)))
    document = fields.get("job")
    if document is not None and not isinstance(document, dict):
        problems.append(FieldProblem("job", "is not an object", "a job document, with the tables of a job file"))
    path = fields.get("savepointPath")
    if document is None and path is None:
        problems.append(FieldProblem("job", "is missing", "a job document, or a savepointPath to continue from"))
    if document is None and isinstance(path, str) and LOCATION.fullmatch(path):
        problems.append(FieldProblem("job", "is missing", "a job document, because an uploaded checkpoint has none"))
    if problems:
        raise InvalidInputError(problems, what="body")
    spec = None
    if isinstance(document, dict):
        spec = load_job_document(document)
        graph = spec.graph
        check_channels(graph)
        for rescale in spec.rescales:
            graph = rescaled_graph(graph, rescale.parallelism)
            check_channels(graph)
    options = RestoreOptions(flags[0], flags[1], mode == "CLAIM")
    if path is None and spec is not None and spec.restore is not None:
        path, options = spec.restore.origin, spec.restore.options
    return WantedStart(spec, None if path is None else _located(path), options)


def _flag(fields: Mapping[str, Any], name: str, problems: list[FieldProblem]) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        problems.append(FieldProblem(name, "is neither true nor false", "true or false"))
    return value is True


def _located(path: object) -> Origin:
    if isinstance(path, str) and LOCATION.fullmatch(path):
        return Origin(path)
    match = _LOCATION.fullmatch(path) if isinstance(path, str) else None
    if match is None:
        allowed = "the external_path of a checkpoint, such as runtime:/<job id>/chk-7, or the location of an upload"
        problem = FieldProblem("savepointPath", "is not a location of this runtime", allowed)
        raise InvalidInputError([problem], what="body")
    return Origin(match[0], match[1], int(match[2]))


def start(driver: RuntimeDriver, wanted: WantedStart) -> LiveJob:
    """Start a job, and return it.

    Raises:
        UnknownEntityError: the runtime has no such job or checkpoint.
        PlanError: the checkpoint cannot be restored into the job, or not now. The error names the rule.
        InvalidInputError: another job of this name runs, or too many jobs run.
    """
    if wanted.origin is None:
        assert wanted.spec is not None
        driver.check_room(wanted.spec.name)
        now_s, now_ms = driver.now()
        job_id = _new_id(driver, wanted.spec.name)
        job = LiveJob(job_id, build_live_engine(wanted.spec), now_ms, now_s, first_id=job_id)
        driver.add(job)
        return job
    if not wanted.origin.job_id:
        return _begin_from_upload(driver, wanted, wanted.origin.location)
    return _continue(driver, wanted, wanted.origin)


def _begin_from_upload(driver: RuntimeDriver, wanted: WantedStart, location: str) -> LiveJob:
    """Start a job at the virtual time at which the run ended that saved the checkpoint. That time is now."""
    assert wanted.spec is not None
    saved = driver.uploads.get(location)
    driver.check_room(wanted.spec.name)
    engine = build_from_saved(wanted.spec, saved, wanted.options, location=location)
    now_s, now_ms = driver.now()
    job_id, at_us = _new_id(driver, wanted.spec.name), saved.handover.at_us
    job = LiveJob(job_id, engine, now_ms - at_us // 1000, now_s - at_us / 1e6, first_id=job_id)
    if wanted.options.is_claimed:
        driver.uploads.drop(location)
    driver.add(job)
    return job


def _continue(driver: RuntimeDriver, wanted: WantedStart, origin: Origin) -> LiveJob:
    before, checkpoint_id = driver.job(origin.job_id), origin.checkpoint_id
    owner = before.claimed.get(checkpoint_id)
    if owner is not None:
        raise PlanError(
            f"checkpoint {checkpoint_id} belongs to the job {owner}, which claimed it",
            rule="IN-16",
            vertex=None,
            fix="start from a checkpoint of that job",
        )
    running = driver.running_of(before.first_id)
    if running is not None and running is not before:
        raise PlanError(
            f"the job {running.id} continues it and still runs, and both would write to its external system",
            rule="SNK-3",
            vertex=None,
            fix="stop that job with a savepoint or cancel it first",
        )
    engine = before.engine.successor(checkpoint_id, wanted.spec, wanted.options, location=origin.location)
    driver.check_room(engine.name)
    job_id = _new_id(driver, engine.name)
    job = LiveJob(job_id, engine, before.origin_epoch_ms, before.origin_s, first_id=before.first_id)
    if wanted.options.is_claimed:
        before.claimed[checkpoint_id] = job.id
    driver.add(job)
    return job


def _new_id(driver: RuntimeDriver, name: str) -> str:
    """Return an id that no job of the runtime has, also if two jobs start in one millisecond."""
    at_ms = driver.now()[1]
    while True:
        new_id = job_run_id(name, at_ms)
        try:
            driver.job(new_id)
        except UnknownEntityError:
            return new_id
        at_ms += 1
