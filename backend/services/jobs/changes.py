"""Finds the changes of a job's checkpoint durations, and describes each change in a sentence.

A completed checkpoint counts with its duration. An expired one counts with the time until it expired, which is a lower
bound of the time that it needed. Savepoints and checkpoints that failed for other reasons are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.analysis.numbers.change_points import ChangePoint, change_points
from backend.analysis.words import sentences as say
from backend.contracts.api import Page
from backend.contracts.changes import ChangePointOut
from backend.domain.checkpoint import CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.clock import Clock
from backend.domain.failure import FailureReason
from backend.store.checkpoints.reader import CheckpointFilter, CheckpointRecord, list_checkpoints
from backend.store.jobs.reader import get_job
from backend.store.postgres.connections import reading

CHECKPOINTS_MAX: Final = 500
"""The number of newest checkpoints that are examined, over all runs."""


class ChangeService:
    """Handles requests for changes of checkpoint durations."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def page(self, job_id: str) -> Page[ChangePointOut]:
        """Return the changes in a job's newest checkpoints on one page, newest first.

        Raises:
            UnknownEntityError: there is no such job.
        """
        async with reading(self._engine) as connection:
            await get_job(connection, job_id)
            records = await list_checkpoints(connection, job_id, CheckpointFilter(), before=None, limit=CHECKPOINTS_MAX)
        changes = await anyio.to_thread.run_sync(changes_out, records[::-1])
        return Page[ChangePointOut](items=changes[::-1], as_of=self._clock.now())


def changes_out(records: Sequence[CheckpointRecord]) -> list[ChangePointOut]:
    """Return the changes among ``records``, oldest first. ``records`` are oldest first too."""
    judged = [(r, ms) for r in records if (ms := _duration_ms(r.header)) is not None]
    return [_change(judged, one) for one in change_points([ms for _, ms in judged])]


def _duration_ms(header: CheckpointHeader) -> int | None:
    if header.kind is not CheckpointKind.CHECKPOINT or not header.status.is_terminal:
        return None
    is_known = header.status is CheckpointStatus.COMPLETED or header.failure_reason is FailureReason.EXPIRED
    return header.end_to_end_duration_ms if is_known else None


def _change(judged: Sequence[tuple[CheckpointRecord, int]], change: ChangePoint) -> ChangePointOut:
    before, after = judged[change.begin : change.index], judged[change.index : change.end]
    first = after[0][0]
    least = _is_at_least(before), _is_at_least(after)
    medians = round(change.before_median_ms), round(change.after_median_ms)
    words = [f"{'at least ' if is_least else ''}{say.duration(m)}" for is_least, m in zip(least, medians, strict=True)]
    return ChangePointOut(
        at=first.header.triggered_at,
        run_id=first.run_id,
        checkpoint_id=first.header.checkpoint_id,
        before_since=before[0][0].header.triggered_at,
        after_until=after[-1][0].header.triggered_at,
        before_median_ms=medians[0],
        after_median_ms=medians[1],
        is_before_at_least=least[0],
        is_after_at_least=least[1],
        before_count=len(before),
        after_count=len(after),
        sentence=(
            f"From checkpoint {first.header.checkpoint_id} on, the median duration is {words[1]} (of {len(after)} "
            f"checkpoints); before, it was {words[0]} (of {len(before)})."
        ),
    )


def _is_at_least(segment: Sequence[tuple[CheckpointRecord, int]]) -> bool:
    middle = median(ms for _, ms in segment)
    expired = [ms for r, ms in segment if r.header.status is CheckpointStatus.FAILED]
    return any(ms <= middle for ms in expired)
