"""Chooses the times whose readings show what was different in the checkpoints that a cause struck.

If a cause strikes only some checkpoints, the newest readings need not show it. So the readings around some struck and
some quick checkpoints are evidence too.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from backend.analysis.health import health
from backend.analysis.measures.evidence import JobEvidence

_STRUCK_COUNT: Final = 4
_QUICK_COUNT: Final = 3
READ_BEFORE: Final = timedelta(seconds=20)
READ_FOR: Final = timedelta(minutes=1)
READ_AFTER: Final = timedelta(seconds=10)
"""The readings from so long before a checkpoint, for at most so long of it, and to so long after it are around it."""


def struck_spans(evidence: JobEvidence) -> list[tuple[datetime, datetime]]:
    """Return the times (begin and end, oldest first, not overlapping) around some struck and some quick checkpoints.

    They end before the readings of the evidence begin. The list is empty if no cause strikes only some checkpoints.
    """
    has_restarts = bool(evidence.restart_count) or bool(evidence.exceptions)
    report = health.report(evidence.checkpoints, evidence.config, has_restarts=has_restarts)
    if not report.is_mixed:
        return []
    newest = min((r.observed_at for r in evidence.pressure), default=evidence.now)
    spans: list[tuple[datetime, datetime]] = []
    seen = datetime.min.replace(tzinfo=UTC)
    chosen = (*report.struck[-_STRUCK_COUNT:], *report.quick[-_QUICK_COUNT:])
    for checkpoint in sorted(chosen, key=lambda c: c.header.triggered_at):
        header = checkpoint.header
        took = min(timedelta(milliseconds=header.end_to_end_duration_ms or 0), READ_FOR)
        since = max(seen, header.triggered_at - READ_BEFORE)
        until = min(newest, header.triggered_at + took + READ_AFTER)
        if since < until:
            spans.append((since, until))
            seen = until
    return spans
