"""Implements ``barrierscope diagnose --log``: what the logs prove, alone or joined with a target's REST.

The exceptions of restarts in the logs are evidence for the verdict on the job at the target: the engine's REST keeps
only the newest ones, and none from before a restart of the JobManager.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from backend.analysis.assembling import EXCEPTIONS_COUNT
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.connection import ANYWHERE, Reach
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.fail_on import FailOn
from backend.domain.observation import JobObservation
from collectors.diagnosis_print import Answer, DiagnosisFormat
from collectors.finishing import EXIT_OK, EXIT_UNREAD, Met, Outcome, Wanted, finish, with_members
from collectors.logs import printing
from collectors.logs.lines import NO_DATE
from collectors.logs.printing import LogAnswer
from collectors.logs.reading import OPTION, read_logs
from collectors.logs.story import LoggedJob, Story
from collectors.spark.event_log import Observe, read_event_logs

# The REST and the log write the same exception within this time.
_SAME_S: Final = 5.0
_NAMES_MAX: Final = 20
# When a log shows a failing job: at least this share of at least so many checkpoints, or so many restarts.
_BAD_SHARE: Final = 0.2
_LEAST: Final = 3
_RESTARTS: Final = 2


Join = Callable[[JobObservation, JobEvidence], JobEvidence]
"""Adds to the evidence of a job at the target what another source proves of it."""


class Ask(Protocol):
    """Diagnoses the target."""

    def __call__(self, *, join: Join | None) -> Answer:
        """Return the diagnoses of the jobs at the target."""


def diagnose_files(
    wanted: Wanted,
    logs: Sequence[str],
    event_logs: Sequence[str],
    *,
    ask: Ask | None = None,
    observe: Observe | None = None,
    reach: Reach = ANYWHERE,
) -> int:
    """Print what the files prove. Return 0 if they prove anything about a job, else 1, and the code of ``--fail-on``.

    If ``ask`` is given, the target is diagnosed too, with the exceptions of the logs as evidence.

    Raises:
        InvalidInputError: nothing to read is named, a file cannot be read, or no job has the wanted name or id.
    """
    if event_logs and not logs and ask is None:
        return _of_event_logs(wanted, event_logs, observe, reach)
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
            return EXIT_UNREAD
        return _of_logs(wanted, answer)
    return _joined(wanted, answer, ask)


def _of_event_logs(wanted: Wanted, event_logs: Sequence[str], observe: Observe | None, reach: Reach) -> int:
    """Print the diagnosis of the queries in event logs of Spark."""
    if observe is None:
        raise AssertionError("the command line gives the parser of Spark's events")
    answer = read_event_logs(event_logs, observe, job=wanted.job, reach=reach)
    if answer.jobs:
        return finish(answer, wanted)
    for line in (*answer.problems, "the event log has no event of a streaming query"):
        print(f"barrierscope: {line}", file=sys.stderr)
    return EXIT_UNREAD


def _of_logs(wanted: Wanted, answer: LogAnswer) -> int:
    """Print what the logs alone tell."""
    outcome = None if wanted.fail_on is None else outcome_of_logs(answer, wanted.fail_on)
    text = _log_text(answer, wanted.output_format)
    sys.stdout.write(with_members(text, {}, outcome) if wanted.output_format is DiagnosisFormat.JSON else text)
    if outcome is None:
        return EXIT_OK
    outcome.complain()
    return outcome.exit_code


def outcome_of_logs(answer: LogAnswer, fail_on: FailOn) -> Outcome:
    """Judge what the logs alone tell by the condition of ``--fail-on``. They have neither durations nor readings.

    ``failing``: checkpoints of a job fail or are refused, or it restarted twice. ``slow``: the log shows any other
    trouble of a job. ``advice``: it has any error of a store, or any known message.
    """
    logged = answer.story.jobs
    met = [Met(job.name, reason) for job in answer.jobs if (reason := _trouble(logged[job.job_id])) is not None]
    if fail_on is not FailOn.FAILING:
        named = {one.job for one in met}
        met += [Met(job.name, "a finding") for job in answer.jobs if job.findings and job.name not in named]
    if fail_on is FailOn.ADVICE and (answer.stores or answer.others):
        met.append(Met("", "a known message in other lines"))
    return Outcome(fail_on, tuple(met))


def _trouble(job: LoggedJob) -> str | None:
    """Return how a job fails, by the shares of the health."""
    ended = [c.outcome for _, c in sorted(job.checkpoints.items()) if c.outcome is not None and not c.is_savepoint]
    bad = [outcome != "completed" for outcome in ended]
    if (len(bad) >= _LEAST and sum(bad) >= _BAD_SHARE * len(bad)) or (len(bad) > 1 and all(bad[-2:])):
        return "failing"
    if job.refused:
        return "checkpoints refused"
    return "restarting" if job.restart_count >= _RESTARTS else None


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
    if wanted.output_format is DiagnosisFormat.JSON:
        return finish(answer, wanted, documents={"log": printing.as_document(logged)})
    return finish(answer, wanted, texts=(_log_text(logged, wanted.output_format),))


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
