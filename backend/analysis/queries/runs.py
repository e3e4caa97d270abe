"""Judges the runs of a query together: whether it ends with an error again and again, and whether two runs are active.

Each restart of a Spark query is a run of its own, and continues at the batch of the one before. A single run shows one
error only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from backend.analysis.measures.evidence import JobEvidence, OtherRun
from backend.analysis.numbers.statistics import median
from backend.analysis.queries import endings
from backend.analysis.words.thresholds import RESTARTS_MIN_COUNT
from backend.domain.checkpoint import CheckpointStatus

ENDS_WINDOW: Final = timedelta(hours=1)
"""A query ends again and again if it failed three times within this time."""
SAME_ENDS_WINDOW: Final = timedelta(days=1)
"""Two ends by the same known error within this time are a pattern as well."""
SAME_ENDS_MIN_COUNT: Final = 2
STILL_MIN: Final = timedelta(minutes=10)
STILL_TIMES: Final = 4
"""The pattern is over if the query has since run for ten minutes and for four times the usual time between two ends."""
SCHEDULED_MIN_COUNT: Final = 2
"""A query is started from time to time if this many other runs ended without an error within the day before."""
SCHEDULED_WINDOW: Final = timedelta(days=1)
SCHEDULED_MAX: Final = timedelta(hours=1)
"""Such runs are shorter than this in the median. A run that is longer was probably stopped, as for a deployment."""
SCHEDULED_TIMES: Final = 4
"""A run that takes more than this many times as long as they did does not end by itself as they did."""
BESIDE_MIN: Final = timedelta(seconds=60)
"""Two runs are active at the same time if each reported this long after the other began."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The ends of a query by an error, oldest first, if they are a pattern. ``error`` is the newest."""

    ended_at: tuple[datetime, ...]
    error: str
    is_same: bool
    """Whether all of them have the same known error."""

    @property
    def span(self) -> timedelta:
        """The time from the first to the last end."""
        return self.ended_at[-1] - self.ended_at[0]


def repeated_ends(evidence: JobEvidence) -> Repeated | None:
    """Return the newest ends by an error if they are a pattern that is not over; otherwise None."""
    own = [
        (c.header.failed_at, _full(evidence, c.header.failed_at) or c.header.failure_message or "")
        for c in evidence.checkpoints
        if c.header.status is CheckpointStatus.FAILED and c.header.failed_at is not None
    ]
    ends = sorted(
        [*own, *((r.ended_at, r.error) for r in evidence.other_runs if not r.query and r.ended_at and r.error)]
    )
    if not ends:
        return None
    newest_at, error = ends[-1]
    name = _name(error)
    same = [(at, text) for at, text in ends if newest_at - at <= SAME_ENDS_WINDOW and name and _name(text) == name]
    near = [(at, text) for at, text in ends if newest_at - at <= ENDS_WINDOW]
    if len(near) >= RESTARTS_MIN_COUNT and len(near) >= len(same):
        found = near
    elif len(same) >= SAME_ENDS_MIN_COUNT:
        found = same
    else:
        return None
    usual = (found[-1][0] - found[0][0]) / (len(found) - 1)
    if evidence.now - newest_at > max(STILL_MIN, STILL_TIMES * usual):
        return None
    is_same = name is not None and all(_name(text) == name for _, text in found)
    return Repeated(tuple(at for at, _ in found), error, is_same)


def _full(evidence: JobEvidence, at: datetime | None) -> str | None:
    return next((text for when, text in evidence.exceptions if when == at), None)


def _name(error: str) -> str | None:
    known = endings.of_message(error, None)
    return None if known is None else known.name


def is_scheduled(evidence: JobEvidence) -> bool:
    """Return whether the query ends by itself and is started again, as with the triggers AvailableNow and Once."""
    if not evidence.checkpoints:
        return False
    first, last = evidence.checkpoints[0].header, evidence.checkpoints[-1].header
    began_at = evidence.started_at or first.triggered_at
    own_s = (last.triggered_at - began_at).total_seconds() + (last.end_to_end_duration_ms or 0) / 1000
    took_s = [
        (r.ended_at - r.started_at).total_seconds()
        for r in evidence.other_runs
        if r.query is None and r.error is None and r.ended_at and began_at - r.ended_at <= SCHEDULED_WINDOW
    ]
    usual_s = median(took_s)
    if usual_s is None or len(took_s) < SCHEDULED_MIN_COUNT or usual_s >= SCHEDULED_MAX.total_seconds():
        return False
    return own_s <= SCHEDULED_TIMES * usual_s


def run_beside(evidence: JobEvidence) -> OtherRun | None:
    """Return another run on the same checkpoint folder that is active at the same time as this one, or None.

    A silent run does not count: a driver that was killed reports no end.
    """
    began_at = evidence.started_at
    newest = max((c.header.triggered_at for c in evidence.checkpoints), default=None)
    if began_at is None or newest is None:
        return None
    for run in evidence.other_runs:
        both = min(run.heard_at, newest) - max(run.started_at, began_at)
        if run.ended_at is None and not run.is_silent and both >= BESIDE_MIN:
            return run
    return None
