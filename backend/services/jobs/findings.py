"""Computes the finding on one job from its evidence: the diagnosis, the advice and what the fleet board shows.

A finding is stored with a fingerprint of what it depends on and of the rules, so that it is computed once for all
processes (``EvidenceReader``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from pydantic import TypeAdapter, ValidationError

from backend.advisor import advise
from backend.advisor.advice import Advice
from backend.advisor.tier_choice import TierChoice
from backend.analysis.measures.critical_path import critical_path
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.input_rates import input_per_s, use_ratio
from backend.analysis.measures.pressure import backpressured_max, vertex_loads
from backend.analysis.queries import micro_batches
from backend.analysis.verdict import case as cases
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.verdict import diagnose
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.verdict import Diagnosis, Phase
from backend.store.jobs.reader import JobRecord

# What a finding is computed by: the rules, what they import, and this folder, which combines them.
_RULES = ("backend.domain", "backend.runtime", "backend.analysis", "backend.advisor", "backend.services.jobs")
_COMPILED = "__pycache__"


@dataclass(frozen=True, slots=True)
class SettingsTaken:
    """When the current settings were first seen, and the first checkpoint trigger under these settings.

    The first time is on our clock, the second on the engine's clock.
    """

    seen_at: datetime
    first_trigger_at: datetime


@dataclass(frozen=True, slots=True)
class Finding:
    """The analysis of one job, the number of terminal checkpoints that it used, and the advice.

    ``settings`` states when the current settings were first seen. It is None if they did not change while the job ran.
    """

    diagnosis: Diagnosis
    dominant_phase: Phase | None
    backpressured_max_ratio: float | None
    checkpoint_count: int
    advice: Advice
    settings: SettingsTaken | None
    interval_ms: int | None = None
    """Spark only: the trigger interval, as the job reports it or inferred from its batches."""
    input_per_s: float | None = None
    """The records that all sources read in a second. None if this is not known."""
    use_ratio: float | None = None
    """How much of what the job could process it does process. None if not known, or if something holds it back."""


def finding_of(
    evidence: JobEvidence, record: JobRecord, settings: SettingsTaken | None, choice: TierChoice | None = None
) -> Finding:
    """Compute the finding on a job.

    ``settings`` states when the current settings were first seen, and ``choice`` is what the fast simulation chose.
    """
    case = None if evidence.is_micro_batched else cases.of_job(evidence)
    interval = (
        micro_batches.report(evidence.checkpoints, evidence.config).interval if evidence.is_micro_batched else None
    )
    most = backpressured_max(vertex_loads(evidence.pressure))
    diagnosis = diagnose(evidence, case)
    return Finding(
        diagnosis=diagnosis,
        dominant_phase=_dominant_phase(evidence, case),
        backpressured_max_ratio=most[1] if most is not None else None,
        checkpoint_count=sum(c.header.status.is_terminal for c in evidence.checkpoints),
        interval_ms=round(interval.ms) if interval is not None else None,
        advice=advise(
            evidence,
            engine=record.run.engine,
            version=record.engine_version,
            settings_since=None if settings is None else settings.first_trigger_at,
            case=case,
            diagnosis=diagnosis,
            choice=choice,
            is_simulated=True,
        ),
        settings=settings,
        input_per_s=input_per_s(evidence),
        use_ratio=use_ratio(evidence, None if most is None else most[1]),
    )


def _dominant_phase(evidence: JobEvidence, case: Case | None) -> Phase | None:
    """Return the phase that took most of the newest completed checkpoint, if its subtasks are known."""
    completed = [c for c in evidence.checkpoints if c.header.status is CheckpointStatus.COMPLETED and c.details]
    if not completed:
        return None
    last = completed[-1]
    walked = next((w for w in case.walked if w.checkpoint is last), None) if case is not None else None
    path = walked.path if walked is not None else None
    if walked is None:
        path = critical_path(last, evidence.topology, evidence.config, evidence.late(last.header.checkpoint_id))
    return path.dominant_phase if path is not None else None


_JSON = TypeAdapter(Finding)
_CHOICE = TypeAdapter(TierChoice)


def document_of(finding: Finding) -> Mapping[str, Any]:
    """Return the finding as JSON."""
    document: Mapping[str, Any] = _JSON.dump_python(finding, mode="json")
    return document


def finding_from(document: Mapping[str, Any]) -> Finding | None:
    """Return the finding that ``document_of`` turned into JSON, or None if another version wrote it in another form."""
    try:
        return _JSON.validate_python(document)
    except ValidationError:
        return None


def document_of_choice(choice: TierChoice) -> Mapping[str, Any]:
    """Return a choice of the fast simulation as JSON."""
    document: Mapping[str, Any] = _CHOICE.dump_python(choice, mode="json")
    return document


def choice_from(document: Mapping[str, Any] | None) -> TierChoice | None:
    """Return the choice that ``document_of_choice`` turned into JSON.

    Return None without a document, or if another version wrote it in another form.
    """
    try:
        return None if document is None else _CHOICE.validate_python(document)
    except ValidationError:
        return None


def fingerprint_of(*parts: object) -> str:
    """Return a text that identifies these values and the rules. It is the same in every process."""
    return hashlib.blake2b(repr((rules_version(), parts)).encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=1)
def rules_version() -> str:
    """Return a text that identifies the rules: a hash of their source. So every change of a rule changes the text."""
    return hash_of_source({package: files(package) for package in _RULES})


def hash_of_source(packages: Mapping[str, Traversable]) -> str:
    """Return a hash of the packages' files, in all subfolders: of where each file is, and of what it contains.

    Tables that a rule reads count too, and compiled files do not. The same source has the same hash in a checkout and
    in an installed wheel, in every process.
    """
    digest = hashlib.blake2b(digest_size=16)
    found = ((path, file) for package, folder in packages.items() for path, file in _sources(folder, package))
    for path, file in sorted(found, key=lambda x: x[0]):
        content = file.read_bytes()
        # The length keeps the end of one file and the begin of the next one apart.
        digest.update(f"{path}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        inner = f"{path}/{entry.name}"
        if not entry.is_dir():
            yield inner, entry
        elif entry.name != _COMPILED:
            yield from _sources(entry, inner)
