"""What the exceptions of restarts tell: they are compared with the table of known messages.

A known message is evidence of its own. A job may restart because of its checkpoints' settings although each checkpoint
completes: a transaction that is committed after a checkpoint may be older than its timeout by then.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case
from backend.analysis.words import sentences as say
from backend.domain import known_messages
from backend.domain.known_messages import KnownMessage, MessageCause
from backend.domain.verdict import Evidence, Verdict, VerdictKind

_LINE_MAX = 160
_TIMEOUT_UNKNOWN = (
    "transaction.timeout.ms of the sink, to compare with interval + duration of a checkpoint + the longest outage"
)


@dataclass(frozen=True, slots=True)
class Told:
    """What the exceptions of a job tell, to be put into a sentence.

    ``is_of_checkpoints`` is whether any of them has to do with checkpoints, their settings or their files.
    """

    message: KnownMessage
    text: str
    is_of_checkpoints: bool
    would_decide: tuple[str, ...] = ()


def told(case: Case) -> Told | None:
    """Return what the known messages among the exceptions tell; None if there is none.

    The message of most exceptions counts, and of equally many the newest. A transaction that was ended comes before
    others: the restart for another reason is what made it older.
    """
    newest_first = [text for _, text in sorted(case.evidence.exceptions, reverse=True)]
    known = [(m, text) for text in newest_first if (m := known_messages.explained(text)) is not None]
    if not known:
        return None
    counts = Counter(m.id for m, _ in known)
    message, text = max(known, key=lambda k: (k[0].cause is MessageCause.TRANSACTION, counts[k[0].id]))
    count, total = counts[message.id], len(newest_first)
    who = "its exception says" if total == 1 else f"{count} of its {total} exceptions say"
    timeout_ms = _timeout_ms(case)
    is_open = message.cause is MessageCause.TRANSACTION and timeout_ms is None
    return Told(
        message=message,
        text=f'{who} that {message.means} ("{_matching(message, text)}"){_compared(case, message)}',
        is_of_checkpoints=any(m.cause.is_of_checkpoints for m, _ in known),
        would_decide=(_TIMEOUT_UNKNOWN,) if is_open else (),
    )


def with_ended_transactions(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict with rows on restarts because a transaction had ended, if the exceptions are about that.

    Another cause may come first: checkpoints that take long for any reason let transactions become too old. A verdict
    on the restarts themselves has the rows already.
    """
    found = told(case)
    if found is None or found.message.cause is not MessageCause.TRANSACTION or verdict.kind is VerdictKind.RESTARTS:
        return verdict
    known = {row.statement for row in verdict.evidence}
    notes = [rows.note(text) for text in found.message.notes]
    added = [rows.note(found.text), *explaining(case, found), *notes]
    more = dict.fromkeys(row for row in added if row.statement not in known)
    return replace(verdict, evidence=(*verdict.evidence, *more))


def first_line(text: str) -> str:
    """Return the first line of an exception, cut to a limit."""
    return (text.splitlines() or [""])[0][:_LINE_MAX]


def _matching(message: KnownMessage, text: str) -> str:
    """Return the line of the exception that has the message, since the first one often names only the task."""
    found = next((line for line in text.splitlines() if message.pattern.search(line)), "")
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
    """Return rows on what the exceptions tell, besides those of ``evidence_rows.restarts`` on the newest one."""
    if found is None:
        return []
    newest = known_messages.explained(max(case.evidence.exceptions)[1])
    notes = () if newest is found.message else found.message.notes
    numbers: list[Evidence] = []
    if found.message.cause is MessageCause.TRANSACTION:
        age_ms, timeout_ms = open_ms(case), _timeout_ms(case)
        if age_ms is not None:
            text = "time that a transaction stays open while all goes well: interval and duration of a checkpoint"
            numbers.append(rows.reconstructed(text, "interval", age_ms, "ms"))
        if timeout_ms is not None:
            text = "timeout of a transaction, as the exception says"
            numbers.append(rows.number(text, "transaction.timeout.ms", timeout_ms, "ms"))
    return [*numbers, *(rows.note(text) for text in notes)]


def _timeout_ms(case: Case) -> int | None:
    texts = (text for _, text in sorted(case.evidence.exceptions, reverse=True))
    return next((ms for text in texts if (ms := known_messages.transaction_timeout_ms(text)) is not None), None)


def _compared(case: Case, message: KnownMessage) -> str:
    """Return how the age of a transaction compares with its timeout, to end a sentence; empty if it is not known."""
    age_ms, timeout_ms = open_ms(case), _timeout_ms(case)
    if message.cause is not MessageCause.TRANSACTION or age_ms is None:
        return ""
    age = f"; a transaction stays open for interval + duration of a checkpoint, {say.duration(age_ms)}"
    if timeout_ms is None:
        return age
    if age_ms >= timeout_ms:
        return f"{age}, which is longer than its timeout of {say.duration(timeout_ms)}"
    return f"{age}, and for as long as the job is down, but at most for its timeout of {say.duration(timeout_ms)}"
