"""Puts what a log tells into sentences: what it proves, what cures it, and what is missing to decide.

A log has no back-pressure and no times of subtasks. So it proves that checkpoints fail and with which exception, and
who was late, but seldom why a subtask was late: *late is not guilty*. The sentences say no more than the lines do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from backend.analysis.health.failures import reasons_without_fault
from backend.analysis.numbers.statistics import median
from backend.analysis.words import sentences as say
from backend.domain import known_messages
from backend.domain.failure import FailureReason
from backend.domain.known_messages import KnownMessage, MessageCause
from collectors.logs.events import task_of
from collectors.logs.lines import NO_DATE
from collectors.logs.story import RECOVERY_S, Failure, LoggedCheckpoint, LoggedJob, Story, Told

_NUMBERS_SHOWN: Final = 8
_TASKS_SHOWN: Final = 4
_TEXT_SHOWN: Final = 160
_REASON_SHOWN: Final = 200
_LINE_MAX: Final = 4_000
_KINDS_SHOWN: Final = 6
# A pause between two triggers of this many usual ones is told.
_GAP_TIMES: Final = 4
# The job is known. Without its id, there is room for the reason.
_OF_JOB: Final = re.compile(r" of job [0-9a-f]{32}\b")
_FINISHED: Final = "checkpointing with finished tasks is not enabled"
_ABORTED: Final = reasons_without_fault(has_restarts=False)
_NOT_RUNNING: Final = (
    "is not being executed at the moment",
    "is not in state",
    "Not all required tasks are currently running",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the log proves. ``details`` are further lines; the cure is empty if the log does not tell it."""

    text: str
    details: tuple[str, ...] = ()
    cure: str = ""
    vain: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class JobFindings:
    """What the log proves of one job, strongest first, and what would decide the rest."""

    job_id: str
    name: str
    summary: str
    findings: tuple[Finding, ...]
    missing: tuple[str, ...]


def jobs_of(story: Story, wanted: str | None = None) -> tuple[JobFindings, ...]:
    """Return the findings of each job, or only of the jobs with this name or id."""
    chosen = [job for job in story.jobs.values() if wanted is None or wanted in (job.name, job.job_id)]
    return tuple(_of_job(story, job) for job in chosen)


def _of_job(story: Story, job: LoggedJob) -> JobFindings:
    checkpoints = [c for _, c in sorted(job.checkpoints.items())]
    findings = [
        *_restarts(story, job),
        *_expired(story, checkpoints),
        *_failed(story, checkpoints),
        *_refused(job),
        *_gaps(job, checkpoints),
    ]
    return JobFindings(
        job_id=job.job_id,
        name=job.name or job.job_id,
        summary=_summary(job, checkpoints),
        findings=tuple(findings),
        missing=tuple(_missing(story, job, checkpoints)),
    )


def _summary(job: LoggedJob, checkpoints: Sequence[LoggedCheckpoint]) -> str:
    own = [c for c in checkpoints if not c.is_savepoint]
    outcomes = Counter(c.outcome for c in own)
    triggered = [c for c in own if c.triggered_at is not None]
    parts = [f"{outcomes['completed']} completed{_usual(own)}"]
    parts += [f"{outcomes[o]} {o}" for o in ("expired", "declined", "failed") if outcomes[o]]
    if outcomes[None]:
        parts.append(f"{outcomes[None]} without an end in the log")
    every = _interval_ms(own)
    text = f"{say.checkpoints(len(triggered))} triggered"
    text += "" if every is None else f", every {say.duration(every)}"
    if job.forgotten_count:
        text += f" (the newest; {job.forgotten_count} older ones are left out)"
    savepoints = len(checkpoints) - len(own)
    more = f"; {say.count(savepoints)} savepoint{'' if savepoints == 1 else 's'}" if savepoints else ""
    restarts = f"; {say.count(job.restart_count)} restart{'' if job.restart_count == 1 else 's'}"
    return f"{text}: {', '.join(parts)}{more}{restarts if job.restart_count else ''}"


def _usual(checkpoints: Sequence[LoggedCheckpoint]) -> str:
    took = [c.duration_ms for c in checkpoints if c.duration_ms is not None]
    sizes = [c.bytes for c in checkpoints if c.bytes is not None]
    middle, size = median(took), median(sizes)
    if middle is None or size is None:
        return ""
    return f" (median {say.duration(middle)}, longest {say.duration(max(took))}; median {say.size(size)})"


def _interval_ms(checkpoints: Sequence[LoggedCheckpoint]) -> float | None:
    at = sorted(c.trigger_ms for c in checkpoints if c.trigger_ms is not None and not c.is_savepoint)
    return median(float(b - a) for a, b in pairwise(at))


# --- restarts -------------------------------------------------------------------------------------------------------


def _restarts(story: Story, job: LoggedJob) -> list[Finding]:
    """Return a finding for each message of the restarts, those of most restarts first."""
    groups: dict[str, list[Failure]] = {}
    for failure in job.restarts:
        groups.setdefault(_kind_of(failure.text), []).append(failure)
    ordered = sorted(groups.values(), key=len, reverse=True)
    return [_of_restarts(story, job, failures) for failures in ordered[:_KINDS_SHOWN]]


def _kind_of(text: str) -> str:
    message = known_messages.explained(text)
    return message.id if message is not None else _cause_line(text)


def _of_restarts(story: Story, job: LoggedJob, failures: Sequence[Failure]) -> Finding:
    count = len(failures)
    head = f"{count} of {job.restart_count} restarts" if job.restart_count > 1 else "the restart"
    times = _times([f.at for f in failures])
    text = next((f.text for f in reversed(failures) if f.text), "")
    message = known_messages.explained(text)
    who = _tasks_of(story, failures)
    where = (f"first task that failed: {say.listed(who)}",) if who else ()
    if message is None:
        said = f' by "{_cause_line(text)}"' if text else ", and their lines have no exception"
        return Finding(f"{head}{said}", (times, *where))
    quote = f'"{_matching(message, text)}"'
    more = _transactions(job, failures) if message.cause is MessageCause.TRANSACTION else ()
    return Finding(
        f"{head}: {message.means}", (quote, times, *where, *more), cure=message.cure, vain=message.vain,
        source=f"{message.source} ({message.versions})",
    )  # fmt: skip


def _transactions(job: LoggedJob, failures: Sequence[Failure]) -> tuple[str, ...]:
    own = [c for c in job.checkpoints.values() if not c.is_savepoint]
    every, took = _interval_ms(own), median(float(c.duration_ms) for c in own if c.duration_ms is not None)
    if every is None or took is None:
        return ()
    age_ms = every + took
    text = f"a transaction stays open for interval + duration of a checkpoint, about {say.duration(age_ms)}"
    timeout_ms = next((t for f in failures if (t := known_messages.transaction_timeout_ms(f.text)) is not None), None)
    if timeout_ms is None:
        return (f"{text}; compare it, and the time that the job was down, with transaction.timeout.ms of the sink",)
    than = "longer" if age_ms >= timeout_ms else "shorter"
    return (f"{text}, which is {than} than its timeout of {say.duration(float(timeout_ms))}",)


def _tasks_of(story: Story, failures: Sequence[Failure]) -> list[str]:
    """Return the tasks that failed first before each restart, the most frequent first.

    Where the log does not say it, these are the ones in the ten seconds before, if they can be of no other job.
    """
    seen: Counter[str] = Counter()
    for failure in failures:
        if failure.who or len(story.jobs) > 1:
            seen.update([failure.who] if failure.who else [])
            continue
        near = [t for t in story.task_failures if 0 <= _seconds(t.at, failure.at) <= RECOVERY_S]
        if near:
            seen[min(near, key=lambda t: t.at.replace(tzinfo=None)).who] += 1
    return [f"{who} ({n} times)" if n > 1 else who for who, n in seen.most_common(_TASKS_SHOWN)]


# --- checkpoints ----------------------------------------------------------------------------------------------------


def _expired(story: Story, checkpoints: Sequence[LoggedCheckpoint]) -> list[Finding]:
    expired = [c for c in checkpoints if c.outcome == "expired"]
    if not expired:
        return []
    took_s = [_seconds(c.triggered_at, c.ended_at) for c in expired if c.triggered_at and c.ended_at]
    # If the clock of the log was set back, or two hosts wrote it, an end may stand before its trigger.
    after_s = median(s for s in took_s if s > 0)
    told = "" if after_s is None else f" after {say.duration(1000 * after_s)}, which is the timeout"
    late: Counter[str] = Counter(task_of(story, a) for c in expired for a in c.late)
    named = [f"{who} ({n} of {len(expired)})" for who, n in late.most_common(_TASKS_SHOWN)]
    details = [_numbers(expired), _times([c.ended_at for c in expired if c.ended_at])]
    if named:
        more = len(late) - len(named)
        others = f" and {more} more" if more > 0 else ""
        details.append(f"acknowledged after the end: {say.listed(named)}{others}; late is not yet the cause")
    return [Finding(f"{say.checkpoints(len(expired))} expired{told}", tuple(details))]


def _failed(story: Story, checkpoints: Sequence[LoggedCheckpoint]) -> list[Finding]:
    """Return a finding for each kind of failure other than expiry."""
    groups: dict[tuple[str, str], list[LoggedCheckpoint]] = {}
    for c in checkpoints:
        if c.outcome in ("declined", "failed"):
            kind = _kind_of(c.text) if c.text else (c.reason or FailureReason.UNKNOWN).value
            groups.setdefault((c.outcome, kind), []).append(c)
    findings = []
    for (outcome, _), failed in sorted(groups.items(), key=lambda g: len(g[1]), reverse=True)[:_KINDS_SHOWN]:
        text = next((c.text for c in reversed(failed) if c.text), "")
        message = known_messages.explained(text)
        by = Counter(task_of(story, c.declined_by) for c in failed if c.declined_by is not None)
        who = say.listed([f"{task} ({n})" for task, n in by.most_common(_TASKS_SHOWN)])
        where = f" by {who}" if who else ""
        if all(c.reason in _ABORTED for c in failed):
            where = " because the job ended or restarted, or a newer one completed"
        why = f": {message.means}" if message else ""
        quote = f'"{_matching(message, text) if message else _cause_line(text)}"'
        findings.append(
            Finding(
                f"{say.checkpoints(len(failed))} {outcome}{where}{why}",
                (*((quote,) if text else ()), _numbers(failed)),
                cure=message.cure if message else "",
                vain=message.vain if message else "",
                source=f"{message.source} ({message.versions})" if message else "",
            )
        )
    return findings


def _refused(job: LoggedJob) -> list[Finding]:
    """Return a finding for each reason for which checkpoints were not begun."""
    findings = []
    for told in sorted(job.refused.values(), key=lambda t: t.count, reverse=True)[:_KINDS_SHOWN]:
        cure, why = "", ""
        if _FINISHED in told.sample:
            why = ": some tasks have finished, and the job takes no checkpoint after that"
            cure = "set execution.checkpointing.checkpoints-after-tasks-finish (.enabled before 1.20) to true"
        elif any(text in told.sample for text in _NOT_RUNNING):
            why = ": a task that must take part did not run, as while a job starts"
        findings.append(
            Finding(
                f"{told.count} {'time' if told.count == 1 else 'times'}, a checkpoint was refused before it began{why}",
                (f'"{_OF_JOB.sub("", told.sample)[:_REASON_SHOWN]}"', _span(told)),
                cure=cure,
            )
        )
    return findings


def _gaps(job: LoggedJob, checkpoints: Sequence[LoggedCheckpoint]) -> list[Finding]:
    """Return a finding on the longest time without a trigger, if it is unusual and no restart lies in it."""
    own = [c for c in checkpoints if c.triggered_at is not None and not c.is_savepoint]
    every = _interval_ms(own)
    if every is None or len(own) < _GAP_TIMES:
        return []
    pairs = [(a, b) for a, b in pairwise(own) if not _between(job, a, b)]
    lengths = [(_seconds(a.ended_at or a.triggered_at, b.triggered_at), a, b) for a, b in pairs]
    longest = max(lengths, key=lambda g: g[0], default=None)
    if longest is None or 1000 * longest[0] < _GAP_TIMES * every:
        return []
    seconds, a, b = longest
    text = f"no checkpoint was triggered for {say.duration(1000 * seconds)} after the end of checkpoint {a.number}"
    return [
        Finding(
            f"{text}, although one is every {say.duration(every)}",
            (_times([b.triggered_at] if b.triggered_at else []),),
        )
    ]


def _between(job: LoggedJob, a: LoggedCheckpoint, b: LoggedCheckpoint) -> bool:
    return any(_seconds(a.triggered_at, r.at) >= 0 and _seconds(r.at, b.triggered_at) >= 0 for r in job.restarts)


def store_errors(story: Story) -> tuple[Finding, ...]:
    """Return the known messages about stores, disks and credentials in warnings, errors and stack traces."""
    return tuple(_of_known(m, t) for m, t in _known(story) if m.cause.is_of_store or m.cause is MessageCause.ACCESS)


def other_messages(story: Story) -> tuple[Finding, ...]:
    """Return the other known messages in warnings, errors and stack traces."""
    others = [(m, t) for m, t in _known(story) if not (m.cause.is_of_store or m.cause is MessageCause.ACCESS)]
    return tuple(_of_known(m, t) for m, t in others)


def _known(story: Story) -> list[tuple[KnownMessage, Told]]:
    return [(m, story.known[m.id]) for m in known_messages.messages() if m.id in story.known]


def _of_known(message: KnownMessage, told: Told) -> Finding:
    times = "once" if told.count == 1 else f"{told.count} times"
    return Finding(
        f"{times}: {message.means}", (f'"{told.sample[:_TEXT_SHOWN]}"', _span(told)), cure=message.cure,
        vain=message.vain, source=f"{message.source} ({message.versions})",
    )  # fmt: skip


# --- what is missing ------------------------------------------------------------------------------------------------


def _missing(story: Story, job: LoggedJob, checkpoints: Sequence[LoggedCheckpoint]) -> Iterable[str]:
    expired = [c for c in checkpoints if c.outcome == "expired"]
    if not story.coordinator_count:
        yield "the JobManager's log: no line of its checkpoint coordinator is here"
    if expired and not any(c.late for c in expired):
        yield "which subtasks were late: Flink's REST, read while a checkpoint is open (diagnose URL)"
    if expired:
        yield "why they were late: back-pressure and the times of the subtasks, from Flink's REST (diagnose URL)"
    without = [c for c in checkpoints if c.outcome == "declined" and not c.text and c.declined_by is not None]
    if without:
        task = task_of(story, without[-1].declined_by or "")
        yield f"why the checkpoint was declined: the log of the TaskManager that runs {task}"
    if any(not f.text for f in job.restarts) or (job.restarts and not story.task_manager_count):
        yield "what happened before the restarts: the logs of the TaskManagers at that time"
    completed = sum(c.outcome == "completed" for c in checkpoints)
    if completed and not expired and not job.restarts:
        yield "where the time of the checkpoints goes: the times of the subtasks, from Flink's REST (diagnose URL)"


# --- words ----------------------------------------------------------------------------------------------------------


def _cause_line(text: str) -> str:
    """Return the line of a stack trace that names the cause: the last one that begins with *Caused by*."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    caused = [line for line in lines if line.startswith("Caused by: ")]
    return (caused[-1].removeprefix("Caused by: ") if caused else lines[0] if lines else "")[:_TEXT_SHOWN]


def _matching(message: KnownMessage, text: str) -> str:
    # A hostile line may be long, and an expression may need more than linear time for it.
    lines = (line[:_LINE_MAX] for line in text.splitlines())
    line = next((line for line in lines if message.pattern.search(line)), "")
    return line.strip().removeprefix("Caused by: ")[:_TEXT_SHOWN]


def _numbers(checkpoints: Sequence[LoggedCheckpoint]) -> str:
    numbers = [str(c.number) for c in checkpoints]
    more = len(numbers) - _NUMBERS_SHOWN
    shown = [*numbers[:_NUMBERS_SHOWN], f"{more} more"] if more > 0 else numbers
    return f"checkpoint{'' if len(numbers) == 1 else 's'} {say.listed(shown)}"


def _times(at: Sequence[datetime]) -> str:
    if not at:
        return "at an unknown time"
    first, last = min(at, key=_plain), max(at, key=_plain)
    return f"at {clock(first)}" if len(at) == 1 else f"from {clock(first)} to {clock(last)}"


def _span(told: Told) -> str:
    return f"at {clock(told.first_at)}" if told.count == 1 else f"from {clock(told.first_at)} to {clock(told.last_at)}"


def clock(at: datetime) -> str:
    """Return the time as the log writes it, without fractions of a second."""
    if at.year == NO_DATE.year:
        return f"{at:%H:%M:%S}"
    return f"{at:%Y-%m-%d %H:%M:%S}{' UTC' if at.tzinfo is not None else ''}"


def _plain(at: datetime) -> datetime:
    return at.replace(tzinfo=None)


def _seconds(a: datetime | None, b: datetime | None) -> float:
    """Return the seconds from ``a`` to ``b``; a negative number if one is not known."""
    return -1.0 if a is None or b is None else (_plain(b) - _plain(a)).total_seconds()
