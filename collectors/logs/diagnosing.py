"""Implements ``barrierscope diagnose --log``: what the logs prove, alone or joined with a target's REST.

The exceptions of restarts in the logs are evidence for the verdict on the job at the target: the engine's REST keeps
only the newest ones, and none from before a restart of the JobManager.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import orjson

from backend.analysis.assembling import EXCEPTIONS_COUNT
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.observation import JobObservation
from collectors.diagnosis_print import Answer, DiagnosisFormat, printed
from collectors.logs import printing
from collectors.logs.lines import NO_DATE
from collectors.logs.printing import LogAnswer
from collectors.logs.reading import OPTION, read_logs
from collectors.logs.story import Story
from collectors.spark.event_log import Observe, read_event_logs

# The REST and the log write the same exception within this time.
_SAME_S: Final = 5.0
_NAMES_MAX: Final = 20


Join = Callable[[JobObservation, JobEvidence], JobEvidence]
"""Adds to the evidence of a job at the target what another source proves of it."""


class Ask(Protocol):
    """Diagnoses the target."""

    def __call__(self, *, join: Join | None) -> Answer:
        """Return the diagnoses of the jobs at the target."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for."""

    job: str | None
    output_format: DiagnosisFormat
    is_verbose: bool = False


def diagnose_files(
    wanted: Wanted,
    logs: Sequence[str],
    event_logs: Sequence[str],
    *,
    ask: Ask | None = None,
    observe: Observe | None = None,
) -> int:
    """Print what the files prove. Return 0 if they prove anything about a job, else 1.

    If ``ask`` is given, the target is diagnosed too, with the exceptions of the logs as evidence.

    Raises:
        InvalidInputError: nothing to read is named, a file cannot be read, or no job has the wanted name or id.
    """
    if event_logs and not logs and ask is None:
        return _of_event_logs(wanted, event_logs, observe)
    if event_logs:
        problem = FieldProblem("--event-log", "event logs of Spark are read alone", "neither a URL nor --log with them")
        raise InvalidInputError([problem], what="option")
    if not logs:
        problem = FieldProblem("URL", "nothing to diagnose is named", f"a URL, or {OPTION} FILE")
        raise InvalidInputError([problem], what="option")
    story, file_count, byte_count = read_logs(logs)
    job = wanted.job
    if ask is None:
        _check_job(story, job)
    answer = LogAnswer.of(story, file_count=file_count, byte_count=byte_count, job=job)
    if ask is None:
        if not (answer.jobs or answer.stores or answer.others):
            print(f"barrierscope: {_nothing(answer)}", file=sys.stderr)
            return 1
        sys.stdout.write(_log_text(answer, wanted.output_format))
        return 0
    return _joined(wanted, answer, ask)


def _of_event_logs(wanted: Wanted, event_logs: Sequence[str], observe: Observe | None) -> int:
    """Print the diagnosis of the queries in event logs of Spark."""
    if observe is None:
        raise AssertionError("the command line gives the parser of Spark's events")
    answer = read_event_logs(event_logs, observe, job=wanted.job)
    for line in answer.problems:
        print(f"barrierscope: {line}", file=sys.stderr)
    if not answer.jobs:
        print("barrierscope: the event log has no event of a streaming query", file=sys.stderr)
        return 1
    text = printed(answer, wanted.output_format, is_terminal=sys.stdout.isatty(), is_verbose=wanted.is_verbose)
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _nothing(answer: LogAnswer) -> str:
    files = f"{answer.file_count} file{'' if answer.file_count == 1 else 's'}"
    return (
        f"no line of Flink about a checkpoint, a restart or a known message is in {files}; the log of the JobManager"
        " has them at level INFO"
    )


def _check_job(story: Story, job: str | None) -> None:
    if job is None or any(job in (known.name, known.job_id) for known in story.jobs.values()):
        return
    names = sorted({known.name or known.job_id for known in story.jobs.values()})
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    allowed = ", ".join(names[:_NAMES_MAX]) + more if names else "the logs name no job at all"
    raise InvalidInputError([FieldProblem("--job", f"no job is called {job!r}", allowed)], what="option")


def _log_text(answer: LogAnswer, output_format: DiagnosisFormat) -> str:
    match output_format:
        case DiagnosisFormat.JSON:
            return printing.as_json(answer)
        case DiagnosisFormat.MARKDOWN:
            return printing.as_markdown(answer)
        case DiagnosisFormat.TEXT:
            return printing.as_text(answer)


def _joined(wanted: Wanted, logged: LogAnswer, ask: Ask) -> int:
    """Diagnose the target too, with the exceptions of the logs as evidence, and print both."""

    def join(observed: JobObservation, evidence: JobEvidence) -> JobEvidence:
        return with_exceptions(observed, evidence, logged.story)

    answer = ask(join=join)
    for line in answer.problems:
        print(f"barrierscope: {line}", file=sys.stderr)
    text = printed(answer, wanted.output_format, is_terminal=sys.stdout.isatty(), is_verbose=wanted.is_verbose)
    if wanted.output_format is DiagnosisFormat.JSON:
        both = {**orjson.loads(text), "log": printing.as_document(logged)}
        sys.stdout.write(orjson.dumps(both, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        sys.stdout.write(f"{text}\n{_log_text(logged, wanted.output_format)}")
    sys.stdout.flush()
    return 0 if not answer.jobs or any(job.is_read for job in answer.jobs) else 1


def with_exceptions(observed: JobObservation, evidence: JobEvidence, story: Story) -> JobEvidence:
    """Return the evidence with the exceptions of this job's restarts in the logs, if their clock is known."""
    jobs = [job for job in story.jobs.values() if job.job_id == observed.engine_run_id]
    jobs = jobs or [job for job in story.jobs.values() if job.name == observed.name]
    since = evidence.started_at
    known = list(evidence.exceptions)
    for job in jobs:
        for failure in job.restarts:
            at = _in_utc(failure.at, story.offset)
            if at is None or not failure.text or at > evidence.now or (since is not None and at < since):
                continue
            if all(abs((at - other).total_seconds()) > _SAME_S for other, _ in known):
                known.append((at, failure.text))
    return replace(evidence, exceptions=tuple(sorted(known)[-EXCEPTIONS_COUNT:]))


def _in_utc(at: datetime, offset: timedelta | None) -> datetime | None:
    """Return a time of the log in UTC; None if the log's zone is not known."""
    if at.tzinfo is not None:
        return at
    if offset is None or at.year == NO_DATE.year:
        return None
    try:
        return (at - offset).replace(tzinfo=UTC)
    except OverflowError:
        return None
