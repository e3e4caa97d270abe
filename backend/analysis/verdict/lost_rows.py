"""Rules about output that is lost although checkpoints complete: its transactions were too old to be committed.

A transaction of a sink is committed after the checkpoint that follows it. If it is older than its timeout by then, the
external system has ended it, and what it held is gone. The next checkpoint loses output again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict import exceptions
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import draft
from backend.analysis.verdict.rule import JOB, WELL, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import LOST_ROWS_WINDOW_S
from backend.domain import losses
from backend.domain.losses import Loss
from backend.domain.verdict import Confidence, Evidence, Verdict, VerdictKind

_OPEN_TIMES = 3
_CURE = (
    "what cures it: set the timeout of the sink's transactions above interval + duration of a checkpoint + the longest"
    " outage, or shorten the interval"
)
_FIRST_LOOK = (
    "why they failed is not known here: look for Unable to commit transaction in the connector's log. If the producer"
    " is fenced, the transaction was older than its timeout, or another producer has its transactional id. If its"
    " state is invalid, the log of the broker says why it ended. Only if it was too old, a longer timeout of the"
    " sink's transactions helps"
)


def _find_losses(case: Case) -> Sequence[Loss] | None:
    """Return the losses that still count, newest first.

    If transactions stay open for long, the next loss may be due only after more than an hour.
    """
    window_s = max(float(LOST_ROWS_WINDOW_S), _OPEN_TIMES * (exceptions.open_ms(case) or 0.0) / 1000)
    since = case.evidence.now - timedelta(seconds=window_s)
    return sorted((x for x in case.evidence.losses if x.at >= since), key=lambda x: x.at, reverse=True) or None


def _tell_losses(case: Case, lost: Sequence[Loss]) -> Verdict:
    verdict = draft(
        case,
        VerdictKind.LOST_ROWS,
        _reason(case, lost),
        evidence=[*_evidence(case, lost), *rows.fare(case), *rows.settings(case)],
        confidence=Confidence.MEDIUM if lost[0].timeout_ms is None else Confidence.HIGH,
    )
    # That the checkpoints are well is not what a reader must see first.
    headline = "Output is most likely lost" if lost[0].timeout_ms is None else "Output is lost"
    return replace(verdict, headline=headline, detail=verdict.sentence)


def _reason(case: Case, lost: Sequence[Loss]) -> str:
    timeout_ms = lost[0].timeout_ms
    if timeout_ms is None:
        return (
            f"output is most likely lost: {losses.said(lost)} failed to commit since {say.utc_minute(lost[-1].at)} and"
            f" will not be tried again{exceptions.compared(exceptions.open_ms(case), None)}"
        )
    return (
        f"output is lost: {losses.said(lost)} since {say.utc_minute(lost[-1].at)}, which were older than their"
        f" timeout of {say.duration(timeout_ms)} when a checkpoint committed them"
        f"{exceptions.compared(exceptions.open_ms(case), timeout_ms)}"
    )


def _evidence(case: Case, lost: Sequence[Loss]) -> list[Evidence]:
    newest, row_count = lost[0], losses.row_count(lost)
    transactions = sum(loss.transaction_count for loss in lost)
    return [
        *([] if row_count is None else [rows.number("rows that were lost", "numRecordsLost", row_count, "count")]),
        rows.number("commits that failed and are not tried again", "failedCommittables", transactions, "count"),
        *exceptions.ages(exceptions.open_ms(case), newest.timeout_ms),
        rows.note(f"newest loss ({say.utc_minute(newest.at)}): {exceptions.first_line(newest.text)}"),
        rows.note(_FIRST_LOOK if newest.timeout_ms is None else _CURE),
    ]


# A job that loses output is told so whatever else limits it, unless its checkpoints have a problem of their own.
LOSING = Rule("output is lost", Explains.EVERYTHING, (JOB, WELL), _find_losses, _tell_losses)
LOSING_WITHOUT_CAUSE = Rule("output is lost, no other cause", Explains.THE_REST, (JOB,), _find_losses, _tell_losses)


def with_losses(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict with what the job loses, if another cause comes first.

    Checkpoints that take long or fail for any reason let transactions become too old.
    """
    lost = _find_losses(case)
    if lost is None or verdict.kind is VerdictKind.LOST_ROWS:
        return verdict
    known = {row.statement for row in verdict.evidence}
    more = f" In addition, {_reason(case, lost)}."
    return replace(
        verdict,
        sentence=verdict.sentence + more,
        detail=None if verdict.detail is None else verdict.detail + more,
        evidence=(*verdict.evidence, *(row for row in _evidence(case, lost) if row.statement not in known)),
    )
