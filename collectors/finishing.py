"""Prints the answer of ``barrierscope diagnose``, and decides its exit code.

Without ``--fail-on`` the code tells only whether anything could be read. With it, the code is 3 if a job meets the
condition, and 1 if no job does but one of them is not known, so that 0 always means that all jobs were judged.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

from backend.domain.fail_on import FailOn, reason_to_fail
from backend.domain.text import printable
from collectors.diagnosis_print import Answer, DiagnosisFormat, printed

EXIT_OK: Final = 0
EXIT_UNREAD: Final = 1
EXIT_MET: Final = 3
_NAMES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for."""

    job: str | None
    output_format: DiagnosisFormat
    is_verbose: bool = False
    fail_on: FailOn | None = None


@dataclass(frozen=True, slots=True)
class Met:
    """A job that meets the condition of ``--fail-on``, and why. ``job`` is empty if it is not about one job."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What ``--fail-on`` found. ``unknown`` says which jobs could not be judged; None if all were."""

    condition: FailOn
    met: tuple[Met, ...]
    unknown: str | None = None

    @property
    def exit_code(self) -> int:
        if self.met:
            return EXIT_MET
        return EXIT_OK if self.unknown is None else EXIT_UNREAD

    def as_document(self) -> dict[str, Any]:
        """Return the value of ``fail_on`` in the JSON output."""
        return {
            "condition": self.condition,
            "exit_code": self.exit_code,
            "jobs": [asdict(one) for one in self.met],
            "unknown": self.unknown,
        }

    def complain(self) -> None:
        """Say on standard error why the exit code is not 0."""
        if self.met:
            shown = [f"{one.job}: {one.reason}" if one.job else one.reason for one in self.met[:_NAMES_MAX]]
            more = f" and {len(self.met) - _NAMES_MAX} more" if len(self.met) > _NAMES_MAX else ""
            print(printable(f"barrierscope: --fail-on {self.condition}: {', '.join(shown)}{more}"), file=sys.stderr)
        elif self.unknown is not None:
            print(f"barrierscope: --fail-on {self.condition}: not known, {self.unknown}", file=sys.stderr)


def outcome_of(answer: Answer, fail_on: FailOn) -> Outcome:
    """Judge the jobs of a target by the condition."""
    met = []
    for job in answer.jobs:
        has_advice = bool(job.advice.recommendations)
        reason = reason_to_fail(fail_on, job.diagnosis, is_batch=job.is_batch, has_advice=has_advice)
        if job.is_read and reason is not None:
            met.append(Met(job.name, reason))
    return Outcome(fail_on, tuple(met), _unknown(answer, fail_on))


def _unknown(answer: Answer, fail_on: FailOn) -> str | None:
    unread_count = answer.unread_count + sum(not job.is_read for job in answer.jobs)
    if unread_count:
        return f"because {_jobs(unread_count)} could not be read"
    unadvised_count = sum(not job.is_advised for job in answer.jobs)
    if fail_on is FailOn.ADVICE and unadvised_count:
        return f"because no advice was worked out in time for {_jobs(unadvised_count)} (--deadline gives more time)"
    return None


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def finish(
    answer: Answer, wanted: Wanted, *, documents: Mapping[str, Any] | None = None, texts: Sequence[str] = ()
) -> int:
    """Print the answer with its problems, and return the exit code.

    ``documents`` are further members of the JSON output, ``texts`` further parts of the others.
    """
    for line in answer.problems:
        print(f"barrierscope: {line}", file=sys.stderr)
    outcome = None if wanted.fail_on is None else outcome_of(answer, wanted.fail_on)
    text = printed(answer, wanted.output_format, is_terminal=sys.stdout.isatty(), is_verbose=wanted.is_verbose)
    if wanted.output_format is DiagnosisFormat.JSON:
        text = with_members(text, documents or {}, outcome)
    else:
        text = "\n".join((text, *texts))
    sys.stdout.write(text)
    sys.stdout.flush()
    if outcome is not None:
        outcome.complain()
    if answer.jobs and not any(job.is_read for job in answer.jobs):
        return EXIT_UNREAD
    return EXIT_OK if outcome is None else outcome.exit_code


def with_members(text: str, documents: Mapping[str, Any], outcome: Outcome | None) -> str:
    """Return the JSON document ``text`` with further members, and with ``fail_on`` if there is an outcome."""
    more = dict(documents) if outcome is None else {**documents, "fail_on": outcome.as_document()}
    if not more:
        return text
    return orjson.dumps({**orjson.loads(text), **more}, option=orjson.OPT_INDENT_2).decode() + "\n"
