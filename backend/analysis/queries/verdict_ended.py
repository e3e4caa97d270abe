"""The verdicts on a query that has ended with an error, ends again and again, or runs twice at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from backend.analysis.measures.evidence import OtherRun
from backend.analysis.queries import endings
from backend.analysis.queries.runs import Repeated
from backend.analysis.words import sentences as say
from backend.domain import known_messages
from backend.domain.checkpoint import Checkpoint
from backend.domain.verdict import Basis, Confidence, Evidence, Verdict, VerdictKind

_LINE_MAX = 160
_NAME_MAX = 80
_FULL_ERROR = "the error in full, among the job's events and in the driver's log"


def failure(
    failed: Checkpoint,
    exceptions: Sequence[tuple[datetime, str]],
    more: Sequence[Evidence],
    repeated: Repeated | None = None,
) -> Verdict:
    """Return the verdict on a batch that failed. ``more`` is the evidence from the batches before it."""
    message = failed.header.failure_message or "an error without a message"
    number = failed.header.checkpoint_id
    full = next((words for at, words in exceptions if at == failed.header.failed_at), "")
    text = f"{message}\n{full}"
    rows = [
        Evidence(f"Spark's error: {message}", "failure message"),
        Evidence(
            f"batch {number} follows the last completed one; Spark reports no number for a failed batch",
            "batch number",
            Basis.RECONSTRUCTED,
        ),
        Evidence(f"a restart of the query begins with batch {number} again", "batch number", Basis.RECONSTRUCTED),
    ]
    ended = f"The query ended in batch {number}"
    again = "" if repeated is None else f" {_again(repeated)}."
    known = endings.of_message(text, number)
    if known is None:
        return Verdict(
            kind=VerdictKind.UNDECIDED,
            sentence=f"{ended} with {short(message)}.{again}",
            confidence=Confidence.MEDIUM,
            evidence=(*rows, *_notes(text), *more),
            would_decide=(_FULL_ERROR,),
            headline=ended,
            detail=f"{short(message)}.{again}",
        )
    return Verdict(
        kind=VerdictKind.UNDECIDED,
        sentence=f"{ended}. {known.sentence}. Spark's error: {short(message)}.{again}",
        confidence=Confidence.HIGH,
        evidence=(*rows, *known.rows, *more),
        would_decide=known.would_decide,
        headline=known.headline,
        detail=f"{known.sentence}. {ended}.{again}",
    )


def restarting(repeated: Repeated, more: Sequence[Evidence]) -> Verdict:
    """Return the verdict on a query that runs, but ended with an error again and again until now."""
    error = short(repeated.error.strip().partition("\n")[0] or "an error without a message")
    known = endings.of_message(repeated.error, None) if repeated.is_same else None
    why = "" if known is None else f". {known.sentence}"
    return Verdict(
        kind=VerdictKind.RESTARTS,
        sentence=f"{_again(repeated)}{why}. The newest error: {error}.",
        confidence=Confidence.HIGH if known is not None else Confidence.MEDIUM,
        evidence=(
            Evidence(
                f"{len(repeated.ended_at)} runs of the query ended with an error, the newest at"
                f" {repeated.ended_at[-1]:%Y-%m-%d %H:%M:%S} UTC",
                "ends with an error",
                value=len(repeated.ended_at),
                unit="count",
            ),
            *(known.rows if known is not None else _notes(repeated.error)),
            *more,
        ),
        would_decide=known.would_decide if known is not None else (_FULL_ERROR,),
        headline=known.headline if known is not None else "The query ends again and again",
        detail=f"{_again(repeated)}{why}.",
    )


def beside(other: OtherRun, more: Sequence[Evidence]) -> Verdict:
    """Return the verdict on two runs that are active at the same time under one checkpoint folder."""
    at = f"{other.started_at:%Y-%m-%d %H:%M:%S} UTC"
    text = f"Two runs of the query are active at the same time and use the same checkpoint folder: one began at {at}"
    if other.query is not None:
        text = (
            f"The query and {other.query[:_NAME_MAX]} are active at the same time and use the same checkpoint folder:"
            " they have the same query id, which the folder keeps"
        )
    return Verdict(
        kind=VerdictKind.STORE,
        sentence=f"{text}. One of them will end with an error, and until then rows may be written twice or be missing.",
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(f"a run with the same query id that began at {at} has reported since this one began", "runs"),
            Evidence("what cures it: stopping one of them; a checkpoint folder of its own for each query", "cure"),
            Evidence("what does not help: a restart of either", "no cure"),
            *more,
        ),
        headline="Two runs use the same checkpoint folder",
        detail=f"{text}.",
    )


def short(message: str) -> str:
    """Return the message on one line, cut to a limit."""
    line = " ".join(message.split()).rstrip(".")
    return line if len(line) <= _LINE_MAX else f"{line[: _LINE_MAX - 1]}…"


def _again(repeated: Repeated) -> str:
    span = say.duration(repeated.span.total_seconds() * 1000)
    same = ", each time with the same error" if repeated.is_same else ""
    return f"The query ended with an error {len(repeated.ended_at)} times within {span}{same}"


def _notes(text: str) -> list[Evidence]:
    """Return what the table of known messages says of an error of which only the outside is known."""
    known = known_messages.explained(text)
    return [] if known is None else [Evidence(note, "known message") for note in known.notes]
