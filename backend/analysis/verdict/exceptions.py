"""What the exceptions of restarts tell: they are compared with the table of known messages.

A known message is evidence of its own. A job may restart because of its checkpoints' settings although each checkpoint
completes: a transaction that is committed after a checkpoint may be older than its timeout by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import RESTARTS_OF_TRANSACTIONS_MIN_COUNT, RESTARTS_OF_TRANSACTIONS_WINDOW_S
from backend.domain import known_messages
from backend.domain.known_messages import KnownMessage, MessageCause
from backend.domain.verdict import Evidence, Verdict, VerdictKind

_LINE_MAX = 160
_SEARCHED_MAX = 4_000
_TIMEOUT_UNKNOWN = (
    "transaction.timeout.ms of the sink, to compare with interval + duration of a checkpoint + the longest outage"
)


_Exceptions = Sequence[tuple[datetime, str]]


@dataclass(frozen=True, slots=True)
class Told:
    """What the exceptions of a job tell, to be put into a sentence.

    ``is_of_checkpoints`` is whether any of them has to do with checkpoints, their settings or their files. ``at`` is
    the time of the newest exception with this message. ``unknown`` are those of the ``count`` exceptions that no known
    message explains, newest first. ``is_few`` is whether the message explains no more
    exceptions than are unknown, and is no pattern of its own.
    """

    message: KnownMessage
    text: str
    is_of_checkpoints: bool
    at: datetime
    count: int
    unknown: tuple[str, ...]
    is_few: bool
    would_decide: tuple[str, ...] = ()


def told(case: Case) -> Told | None:
    """Return what the known messages among the exceptions of a restart loop tell; None if there is none.

    The message of most exceptions counts and, if several messages have as many, the newest of them. Transactions that
    were ended count before another message of as many exceptions, because a restart for that reason may have made them
    too old.
    """
    found = recent(case)
    known = _known(found)
    counts = Counter(m.id for _, m, _ in known)
    ended_count = sum(counts[i] for i in {m.id for _, m, _ in known if _is_ended(m)})
    other_count = max((counts[m.id] for _, m, _ in known if not _is_ended(m)), default=0)
    is_by_transaction = 0 < ended_count >= other_count
    return _told(case, found, [k for k in known if _is_ended(k[1]) == is_by_transaction])


def recent(case: Case) -> _Exceptions:
    """Return the exceptions that may explain what the job does now, newest first.

    Those of a restart loop begin with its first restart. An older one tells of another trouble.
    """
    since = min(case.report.restarts, default=_day_ago(case))
    return sorted((e for e in case.evidence.exceptions if e[0] >= since), reverse=True)


def _day_ago(case: Case) -> datetime:
    return case.evidence.now - timedelta(seconds=RESTARTS_OF_TRANSACTIONS_WINDOW_S)


def _is_ended(message: KnownMessage) -> bool:
    return message.cause is MessageCause.TRANSACTION


def _known(exceptions: _Exceptions) -> list[tuple[datetime, KnownMessage, str]]:
    return [(at, m, text) for at, text in exceptions if (m := known_messages.explained(text)) is not None]


def _told(case: Case, exceptions: _Exceptions, chosen: Sequence[tuple[datetime, KnownMessage, str]]) -> Told | None:
    """Return what is told by the most frequent message of ``chosen``, which are some of the exceptions ``found``."""
    if not chosen:
        return None
    counts = Counter(m.id for _, m, _ in chosen)
    at, message, text = max(chosen, key=lambda k: counts[k[1].id])
    count, total = counts[message.id], len(exceptions)
    newest = "newest " if total < len(case.evidence.exceptions) else ""
    says = "says" if count == 1 else "say"
    who = f"its {newest}exception says" if total == 1 else f"{count} of its {total} {newest}exceptions {says}"
    is_open = _is_ended(message) and _timeout_ms(exceptions) is None
    is_pattern = _is_ended(message) and count >= RESTARTS_OF_TRANSACTIONS_MIN_COUNT
    unknown = tuple(text for _, text in exceptions if known_messages.explained(text) is None)
    return Told(
        message=message,
        text=f'{who} that {message.means} ("{_matching(message, text)}"){_compared(case, message, exceptions)}',
        is_of_checkpoints=any(m.cause.is_of_checkpoints for _, m, _ in _known(exceptions)),
        at=at,
        count=total,
        unknown=unknown,
        is_few=not is_pattern and count <= len(unknown),
        would_decide=(_TIMEOUT_UNKNOWN,) if is_open else (),
    )


def with_ended_transactions(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict with rows on restarts because a transaction had ended, if an exception of a day says it.

    Another cause may come first: checkpoints that take long for any reason let transactions become too old. A verdict
    on the restarts themselves has the rows already.
    """
    day = sorted((e for e in case.evidence.exceptions if e[0] >= _day_ago(case)), reverse=True)
    found = _told(case, day, [k for k in _known(day) if _is_ended(k[1])])
    if found is None or verdict.kind is VerdictKind.RESTARTS:
        return verdict
    known = {row.statement for row in verdict.evidence}
    notes = [rows.note(text) for text in found.message.notes]
    said = rows.note(f"{found.text} (newest: {say.utc_minute(found.at)})")
    added = [said, *_explaining(case, found, day), *notes]
    more = dict.fromkeys(row for row in added if row.statement not in known)
    return replace(verdict, evidence=(*verdict.evidence, *more))


def first_line(text: str) -> str:
    """Return the first line of an exception, cut to a limit."""
    return (text.splitlines() or [""])[0][:_LINE_MAX]


def _matching(message: KnownMessage, text: str) -> str:
    """Return the line of the exception that has the message, since the first one often names only the task."""
    # A hostile line may be long, and an expression may need more than linear time for it.
    lines = (line[:_SEARCHED_MAX] for line in text.splitlines())
    found = next((line for line in lines if message.pattern.search(line)), "")
    return found.strip().removeprefix("Caused by: ")[:_LINE_MAX]


def open_ms(case: Case) -> float | None:
    """Return for how long a transaction stays open: from one checkpoint to the end of the next.

    None if the interval or the duration is not known.
    """
    config, took_ms = case.evidence.config, case.report.duration_median_ms
    if config is None or config.interval_ms is None or took_ms is None:
        return None
    return max(float(config.interval_ms), (config.min_pause_ms or 0) + took_ms) + took_ms


def explaining(case: Case, found: Told | None) -> list[Evidence]:
    """Return rows on what the exceptions tell, besides those of ``evidence_rows.restarts`` on the newest one.

    What cures a few of them is no row, because it would read as the cure of all.
    """
    return [] if found is None or found.is_few else _explaining(case, found, recent(case))


def _explaining(case: Case, told_by: Told, exceptions: _Exceptions) -> list[Evidence]:
    newest = known_messages.explained(max(case.evidence.exceptions)[1])
    notes = () if newest is told_by.message else told_by.message.notes
    numbers = ages(open_ms(case), _timeout_ms(exceptions)) if _is_ended(told_by.message) else []
    return [*numbers, *(rows.note(text) for text in notes)]


def ages(age_ms: float | None, timeout_ms: int | None) -> list[Evidence]:
    """Return rows on how long a transaction stays open and how old it may become, as far as they are known."""
    numbers: list[Evidence] = []
    if age_ms is not None:
        text = "time that a transaction stays open while all goes well: interval and duration of a checkpoint"
        numbers.append(rows.reconstructed(text, "interval", age_ms, "ms"))
    if timeout_ms is not None:
        text = "timeout of a transaction, as the exception says"
        numbers.append(rows.number(text, "transaction.timeout.ms", timeout_ms, "ms"))
    return numbers


def _timeout_ms(exceptions: _Exceptions) -> int | None:
    timeouts = (known_messages.transaction_timeout_ms(text) for _, text in exceptions)
    return next((ms for ms in timeouts if ms is not None), None)


def _compared(case: Case, message: KnownMessage, exceptions: _Exceptions) -> str:
    return compared(open_ms(case), _timeout_ms(exceptions)) if _is_ended(message) else ""


def compared(age_ms: float | None, timeout_ms: int | None) -> str:
    """Return how the age of a transaction compares with its timeout, to end a sentence; empty if it is not known."""
    if age_ms is None:
        return ""
    age = f"; a transaction stays open for interval + duration of a checkpoint, {say.duration(age_ms)}"
    if timeout_ms is None:
        return age
    if age_ms >= timeout_ms:
        return f"{age}, which is longer than its timeout of {say.duration(timeout_ms)}"
    return f"{age}, and for as long as the job is down, but at most for its timeout of {say.duration(timeout_ms)}"
