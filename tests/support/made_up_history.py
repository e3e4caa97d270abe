"""The history and the annotations that the fake API serves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from backend.contracts import api
from backend.contracts.annotations import AnnotationIn, AnnotationOut
from backend.contracts.history import HistoryOut, HistoryPointOut, UsualOut, UsualRangeOut

_LONG = timedelta(days=2)
_HOUR = timedelta(hours=1)
_ROLLED_UP_BEFORE = timedelta(hours=3)


def history_of(
    checkpoints: Sequence[api.CheckpointOut], since: datetime | None, until: datetime | None, now: datetime
) -> HistoryOut:
    """Return the checkpoints in a range or, if it is longer than two days, invented values for each hour.

    ``checkpoints`` are newest first. Both limits may be None.
    """
    end = until or now
    first = min((c.triggered_at for c in checkpoints), default=None)
    is_long = since is not None and end - since > _LONG
    begin = max(since, end - timedelta(days=30)) if is_long and since is not None else since or first
    chosen = [c for c in checkpoints if (since is None or c.triggered_at >= since) and c.triggered_at < end]
    return HistoryOut(
        resolution="steps" if is_long else "checkpoints",
        since=begin,
        until=end,
        checkpoints=[] if is_long else chosen,
        points=_points(begin, end) if is_long and begin is not None else [],
        step_s=3600 if is_long else None,
        rolled_up_until=_hour_of(end - _ROLLED_UP_BEFORE) if is_long else None,
        left_out_before=None,
        as_of=now,
    )


def _points(since: datetime, until: datetime) -> list[HistoryPointOut]:
    first = _hour_of(since)
    hours = [first + n * _HOUR for n in range(math.ceil((until - first) / _HOUR))]
    # A few hours have no checkpoints.
    return [_point(n, at, until) for n, at in enumerate(hours) if n % 50 not in (20, 21, 22)][::-1]


def _point(n: int, at: datetime, until: datetime) -> HistoryPointOut:
    base_ms = 1800 + 700 * math.sin(n / 4) + (2500 if n % 170 > 140 else 0)
    return HistoryPointOut(
        at=at,
        source="rollup" if at < _hour_of(until - _ROLLED_UP_BEFORE) else "checkpoints",
        completed_count=350 - n % 7,
        failed_count=n % 7 if n % 170 > 140 else 0,
        duration_p50_ms=base_ms,
        duration_p95_ms=1.6 * base_ms,
        duration_max_ms=round(2.4 * base_ms),
    )


def usual_of(checkpoints: Sequence[api.CheckpointOut], now: datetime) -> UsualOut:
    """Return a usual range if the job has a completed checkpoint: around the median of the completed ones."""
    known = sorted(c.end_to_end_duration_ms for c in checkpoints if c.end_to_end_duration_ms and not c.failure_reason)
    if not known:
        return UsualOut(usual=None, as_of=now)
    middle = known[len(known) // 2]
    usual = UsualRangeOut(
        p10_ms=0.8 * middle,
        p50_ms=middle,
        p90_ms=1.25 * middle,
        checkpoint_count=9_000,
        since=now - timedelta(days=7),
        until=now,
    )
    return UsualOut(usual=usual, as_of=now)


class MadeUpAnnotations:
    """The annotations that were posted to the jobs of the fake API, newest first."""

    def __init__(self) -> None:
        self._of_job: dict[str, list[AnnotationOut]] = {}

    def add(self, job: str, wanted: AnnotationIn, now: datetime) -> AnnotationOut:
        """Store an annotation, and return it."""
        at = wanted.at or now
        found = self._of_job.setdefault(job, [])
        made = AnnotationOut(
            id=f"n{len(found)}",
            job_id=job,
            at_engine=at,
            until_engine=wanted.until,
            added_at=now,
            **wanted.model_dump(exclude={"at"}),
            at=at,
        )
        found.append(made)
        found.sort(key=lambda a: a.at_engine, reverse=True)
        return made

    def within(self, job: str, asked: Mapping[str, str], now: datetime) -> api.Page[AnnotationOut]:
        """Return the annotations of a job that begin in the range of a request."""
        since = datetime.fromisoformat(asked["from"]) if "from" in asked else None
        found = [a for a in self._of_job.get(job, []) if since is None or a.at_engine >= since]
        return api.Page[AnnotationOut](items=found, as_of=now)


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
