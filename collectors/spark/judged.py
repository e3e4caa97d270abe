"""Judges the runs of queries that were read of event logs or of a driver, as a page would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from backend.advisor import advise
from backend.analysis.assembling import EVIDENCE_COUNT, RunAt
from backend.analysis.measures.evidence import OtherRun
from backend.analysis.verdict.verdict import considered_count, diagnose
from backend.domain.engines import SPARK
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.observation import JobObservation, JobState
from backend.domain.topology import Topology
from backend.domain.urgency import urgency_key
from backend.domain.verdict import Confidence, Diagnosis, Evidence, Health, Verdict, VerdictKind
from collectors.diagnosis_print import JobAnswer

OTHER_RUNS_MAX: Final = 12
_NAMES_MAX: Final = 20

Heard = Callable[[JobObservation], datetime]
"""Returns the time of the newest event of a run."""


def chosen(runs: Sequence[JobObservation], job: str | None) -> list[JobObservation]:
    """Return the newest run of each query, or of the queries with the name or id ``job``.

    Raises:
        InvalidInputError: no query has this name or id; the message lists the names.
    """
    named = [r for r in runs if job is None or _is_called(r, job)]
    if job is not None and not named:
        names = ", ".join(sorted({r.name for r in runs})[:_NAMES_MAX]) or "there is no query at all"
        raise InvalidInputError([FieldProblem("--job", f"no query is called {job!r}", names)], what="option")
    newest: dict[str, JobObservation] = {}
    for run in sorted(named, key=lambda r: r.started_at):
        newest[_query(run)] = run
    return list(newest.values())


def _is_called(run: JobObservation, job: str) -> bool:
    return job in (run.name, run.engine_run_id, _query(run)) or run.name.endswith(f": {job}")


def _query(run: JobObservation) -> str:
    return run.engine_run_id.partition("/")[0]


def judged(
    runs: Sequence[JobObservation],
    wanted: Sequence[JobObservation],
    *,
    heard: Heard,
    version: str | None,
    read_at: datetime | None = None,
) -> tuple[JobAnswer, ...]:
    """Return the diagnoses of ``wanted``, the worst first. ``runs`` are all runs that are known.

    ``read_at`` is when a server was asked for them. It is None for files, which may be of any age.
    """
    answers = (_answer(run, runs, heard, version, read_at) for run in wanted)
    return tuple(sorted(answers, key=_worst_first))


def end_of(run: JobObservation) -> datetime:
    """Return the newest time that a run reports."""
    headers = [c.header for c in run.checkpoints]
    ends = [h.triggered_at + timedelta(milliseconds=h.end_to_end_duration_ms or 0) for h in headers]
    return max([run.started_at, *ends, *([] if run.ended_at is None else [run.ended_at])])


def _answer(
    run: JobObservation, runs: Sequence[JobObservation], heard: Heard, version: str | None, read_at: datetime | None
) -> JobAnswer:
    heard_at = heard(run)
    is_open = read_at is not None and run.state is JobState.RUNNING
    # A batch that runs grows older until now. What is known of any other run ends with its newest event.
    now = max(heard_at, read_at) if read_at is not None and is_open else heard_at
    known = RunAt(
        topology=Topology(()),
        config=run.config,
        exceptions=run.exceptions,
        other_runs=tuple(_other(other, heard) for other in _others(run, runs)),
        state=run.state,
        engine_state=run.engine_state,
        started_at=run.started_at,
        engine=SPARK,
        engine_version=version,
    )
    checkpoints = sorted(run.checkpoints, key=lambda c: c.header.checkpoint_id)
    evidence = known.evidence_on_job(now=now, checkpoints=checkpoints[-EVIDENCE_COUNT:])
    return JobAnswer(
        name=run.name,
        engine_state=run.engine_state,
        diagnosis=_unknown(run) if run.state is JobState.UNKNOWN else diagnose(evidence),
        is_heard=run.state is not JobState.UNKNOWN,
        newest_ago=None if read_at is None or not run.checkpoints else max(timedelta(), read_at - heard_at),
        considered_count=considered_count(evidence),
        as_of=now,
        advice=advise(evidence, engine=SPARK, version=version),
        has_ended=run.state is JobState.ENDED,
        is_micro_batched=True,
    )


def _unknown(run: JobObservation) -> Diagnosis:
    """Return the diagnosis of a run of which nothing was heard for long. What was read of it may be long over."""
    why = next(iter(run.problems), "nothing was heard of it for long")
    verdict = Verdict(
        kind=VerdictKind.UNDECIDED,
        sentence=f"It is not known whether the query runs: {why}.",
        confidence=Confidence.LOW,
        evidence=(Evidence(why, "state"),),
        would_decide=("whether the driver of the query still runs",),
        headline="It is not known whether the query runs",
        detail=f"What was read of it may be long over: {why}.",
    )
    return Diagnosis(Health.TOO_FEW, verdict)


def _others(run: JobObservation, runs: Sequence[JobObservation]) -> list[JobObservation]:
    """Return the newest other runs of the query, newest first."""
    others = [o for o in runs if _query(o) == _query(run) and o.engine_run_id != run.engine_run_id]
    return sorted(others, key=lambda o: o.started_at, reverse=True)[:OTHER_RUNS_MAX]


def _other(run: JobObservation, heard: Heard) -> OtherRun:
    error = max(run.exceptions)[1] if run.exceptions else None
    is_silent = run.state is JobState.UNKNOWN
    return OtherRun(run.started_at, heard(run), run.ended_at, error, is_silent=is_silent)


def _worst_first(job: JobAnswer) -> tuple[int, str]:
    """Return the sort key of a job: the order of the fleet."""
    found = job.diagnosis
    return urgency_key(found.health, found.verdict.kind, debt_ms=None, has_ended=job.has_ended), job.name
