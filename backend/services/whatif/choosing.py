"""Lets the fast simulation choose settings for the watched jobs, one job at a time, and stores what it chose.

A choice takes from tenths of a second to a few seconds of processor time, so it is not made on a request. This task
makes it in a thread, at most once in ``tier_choice.RENEWED_AFTER`` for each job and its settings, and rests
``_REST_RATIO`` times as long as it worked. Jobs without a choice come first. The next finding of the job reads the
stored choice, in whatever process it is computed. Until then, and if the simulation cannot choose, the rules advise
from replayed checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import anyio
import anyio.to_thread
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.advisor.choosing import choose
from backend.advisor.situation import Situation, situation
from backend.advisor.tier_choice import TierChoice
from backend.backtest.moments import EVIDENCE_COUNT
from backend.domain.clock import Clock
from backend.domain.errors import StoreUnavailableError
from backend.domain.ids import JobId
from backend.domain.observation import JobState
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.evidence import EvidenceReader
from backend.services.jobs.findings import choice_from, document_of_choice
from backend.services.whatif.tiers import QuickTiers
from backend.store.advice.choices import choices_of, keep_choice
from backend.store.jobs.reader import JobRecord
from backend.store.postgres.connections import reading, writing

_EVERY_S: Final = 5.0
_REST_RATIO: Final = 9.0
_CHECKPOINTS_COUNT: Final = EVIDENCE_COUNT
_PRESSURE_WINDOW: Final = timedelta(minutes=30)
# A job is not tried again before its next finding has read the choice.
_AGAIN_S: Final = 60.0

_log = structlog.get_logger(__name__)


class SettingChooser:
    """Makes and stores the choices of the fast simulation. Each process that simulates has one instance."""

    def __init__(
        self,
        engine: AsyncEngine,
        clock: Clock,
        evidence: EvidenceReader,
        jobs: AnalysedJobs,
        tiers: QuickTiers,
        choose_for: Callable[[Situation], TierChoice] = choose,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._evidence = evidence
        self._jobs = jobs
        self._tiers = tiers
        self._choose_for = choose_for
        self._tried_s: dict[JobId, float] = {}

    async def run(self) -> None:
        """Make choices until cancelled."""
        while True:
            took_s = 0.0
            try:
                took_s = await self.choose_next()
            except StoreUnavailableError as error:
                _log.warning("choices of settings are waiting for the store", reason=error.reason)
            except Exception:  # noqa: BLE001  the top of a task: an unexpected error must not end the choices
                _log.exception("a choice of settings failed")
            await anyio.sleep(max(_REST_RATIO * took_s, 0.0 if took_s else _EVERY_S))

    async def choose_next(self) -> float:
        """Make the choice for the job that waits longest, and return the seconds that it took; 0 if none waits."""
        if self._tiers.why_not is not None:
            return 0.0
        async with reading(self._engine) as connection:
            record = await self._next(connection)
            if record is None:
                return 0.0
            began_s = self._clock.monotonic_s()
            self._tried_s[record.id] = began_s
            evidence = await self._evidence.under_current_settings(
                connection, record, limit=_CHECKPOINTS_COUNT, window=_PRESSURE_WINDOW
            )
            kept = choice_from((await choices_of(connection, [record.run.id])).get(record.run.id))
        ended = [c.header.checkpoint_id for c in evidence.checkpoints if c.header.status.is_terminal]
        # Another process may have made it meanwhile.
        if kept is None or kept.is_due(evidence.config, evidence.now, ended):
            known = situation(evidence, engine=record.run.engine, version=record.engine_version)
            choice = await anyio.to_thread.run_sync(self._choose_for, known)
            async with writing(self._engine) as connection:
                await keep_choice(connection, record.run.id, choice.made_at, document_of_choice(choice))
        return max(0.001, self._clock.monotonic_s() - began_s)

    async def _next(self, connection: AsyncConnection) -> JobRecord | None:
        """Return the job that waits longest for its choice; jobs that have none come first."""
        jobs, _ = await self._jobs.refresh(connection)
        now_s = self._clock.monotonic_s()
        self._tried_s = {job_id: at_s for job_id, at_s in self._tried_s.items() if now_s - at_s < _AGAIN_S}
        waiting = []
        for watched in jobs:
            record, finding = watched.job.record, watched.job.finding
            if finding is None or not finding.advice.is_choice_due or record.id in self._tried_s:
                continue
            if record.run.state is not JobState.ENDED:
                chosen_by = finding.advice.chosen_by
                has_choice = chosen_by is not None and chosen_by.tier is not None
                waiting.append((has_choice, record.run.observed_at, record.id, record))
        return min(waiting, key=lambda w: w[:3])[3] if waiting else None
