"""Tells for alerts and incidents whether what they show is current.

The state of an open alert is as old as its last evaluation, and its values are as old as the readings of its job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.contracts.freshness import FreshnessOut
from backend.domain.freshness import FRESHNESS_REASONS, Freshness
from backend.services.jobs.freshness import FINAL, freshness_of_jobs
from backend.store.alerts.lease import has_evaluator


@dataclass(frozen=True, slots=True)
class AlertFreshness:
    """What decides whether alerts are current: whether the rules are evaluated, and the freshness of their jobs."""

    is_evaluated: bool
    jobs: Mapping[str, FreshnessOut]

    @classmethod
    async def read(cls, connection: AsyncConnection, job_ids: Iterable[str | None], now: datetime) -> AlertFreshness:
        """Read what concerns the alerts of these jobs."""
        return cls(await has_evaluator(connection), await freshness_of_jobs(connection, job_ids, now))

    def of(self, job_id: str | None, *, is_open: bool, evaluated_at: datetime | None) -> FreshnessOut | None:
        """Return whether an alert or incident is current, or None if it is about no job and is evaluated.

        ``evaluated_at`` is the time of its last evaluation, if that is known.
        """
        if not is_open:
            return FINAL
        if not self.is_evaluated:
            state = Freshness.NO_EVALUATOR
            return FreshnessOut(
                state=state, is_stale=True, reason=FRESHNESS_REASONS[state], read_at=evaluated_at, stale_after_s=None
            )
        return self.jobs.get(job_id or "")
