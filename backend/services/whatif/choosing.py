"""Lets the fast simulation choose settings for the watched jobs, one job at a time, and stores what it chose.

A choice takes from tenths of a second to a few seconds of processor time, so it is not made on a request. This task
makes it in a thread, at most once in ``tier_choice.RENEWED_AFTER`` for each job and its settings, and rests
``REST_RATIO`` times as long as it worked. Jobs for which it never tried come first, then those whose last attempt is
the oldest. Of several processes, only one chooses for a job at a time: it claims the job's run first. The claim is a
row and not an open transaction, so no connection is held while the simulation runs. The next finding of the job reads
the stored choice, in whatever process it is computed. With it are the answers to what the job's cards ask, also for a
job that waits only for these. Until then, the rules advise from replayed checkpoints, but not by what settings lose.
They do that too if the simulation cannot choose. So a process that could not compile it stores a refusal for each job
for which none tried. Another process that could compile it chooses when the refusal has expired.

The verdict and the queues are those of the job's finding: the readings of backpressure of the last minutes. So the
choice and the advice that follows from it never rest on two verdicts. The model is built from the readings of
``MODEL_WINDOW``, because rates and service times need a longer time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

import anyio
import anyio.to_thread
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.advisor.choice.choosing import refused
from backend.advisor.simulating import simulate
from backend.advisor.situation import situation
from backend.advisor.tier_choice import TierChoice
from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.backtest.cards import ChooseFor
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.clock import Clock
from backend.domain.errors import StoreUnavailableError
from backend.domain.ids import JobId, RunId
from backend.domain.observation import JobState
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.evidence import EvidenceReader
from backend.services.jobs.findings import choice_from, document_of_choice
from backend.services.whatif.preparing import choose_or_refuse
from backend.store.advice.choices import (
    choice_before,
    choice_times_of,
    choices_of,
    claim_choice,
    keep_choice,
    release_choice,
)
from backend.store.jobs.reader import JobRecord
from backend.store.postgres.connections import reading, writing

_EVERY_S: Final = 5.0
REST_RATIO: Final = 9.0
# A job whose settings stay is not tried again before its next finding has read the choice. A finding is kept for at
# most five minutes.
_AGAIN_S: Final = 360.0
# A choice takes seconds. A process that ended without a word holds a run for this time.
_CLAIMED_S: Final = 300.0
_RELEASE_WITHIN_S: Final = 2.0
_NEVER: Final = datetime.min.replace(tzinfo=UTC)

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
        choose_for: ChooseFor = simulate,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._evidence = evidence
        self._jobs = jobs
        self._tiers = tiers
        self._choose_for = choose_for
        # The name under which this process claims runs.
        self._name = uuid4().hex
        self._tried: dict[JobId, tuple[float, CheckpointConfig | None]] = {}

    async def run(self) -> None:
        """Make choices until cancelled."""
        while True:
            took_s, began_s = 0.0, self._clock.monotonic_s()
            try:
                took_s = await self.choose_next()
            except StoreUnavailableError as error:
                _log.warning("choices of settings are waiting for the store", reason=error.reason)
            except Exception:  # noqa: BLE001  the top of a task: an unexpected error must not end the choices
                _log.exception("a choice of settings failed")
                took_s = max(_EVERY_S / REST_RATIO, self._clock.monotonic_s() - began_s)
            await anyio.sleep(max(REST_RATIO * took_s, 0.0 if took_s else _EVERY_S))

    async def choose_next(self) -> float:
        """Make the choice for the job that waits longest, and return the seconds that it took; 0 if none waits."""
        if self._tiers.why_not is not None and not self._tiers.has_failed:
            return 0.0
        began_s = self._clock.monotonic_s()
        async with reading(self._engine) as connection:
            waiting = await self._waiting(connection)
        if not waiting:
            return 0.0
        for record, config in waiting:
            if await self._claims(record.run.id):
                self._tried[record.id] = began_s, config
                try:
                    await self._choose(record)
                except BaseException:
                    # Another process may choose at once, also if this one stops.
                    with anyio.move_on_after(_RELEASE_WITHIN_S, shield=True):
                        await self._release(record.run.id)
                    raise
                return max(0.001, self._clock.monotonic_s() - began_s)
        return 0.0

    async def _claims(self, run_id: RunId) -> bool:
        async with writing(self._engine) as connection:
            return await claim_choice(connection, run_id, self._name, claimed_s=_CLAIMED_S)

    async def _release(self, run_id: RunId) -> None:
        with contextlib.suppress(StoreUnavailableError):
            async with writing(self._engine) as connection:
                await release_choice(connection, run_id, self._name)

    async def _choose(self, record: JobRecord) -> None:
        """Read the job, let the simulation choose, and store the choice. No connection is held meanwhile."""
        run = record.run
        async with reading(self._engine) as connection:
            kept = choice_from((await choices_of(connection, [run.id])).get(run.id))
            # A job may have to start again to get its new settings.
            earlier = kept or choice_from(await choice_before(connection, run.id))
            judged, settings = await self._evidence.of_finding(connection, record)
            modelled = await self._evidence.under_current_settings(connection, record)
        ended = [c.header.checkpoint_id for c in modelled.checkpoints if c.header.status.is_terminal]
        # Another process may have made it meanwhile, and one that can simulate makes it again.
        is_refusal = self._tiers.has_failed
        is_due = kept is None or kept.is_due(modelled.config, modelled.now, ended, is_lacking=True)
        if kept is not None and (is_refusal or not is_due):
            await self._release(run.id)
            return

        def chosen() -> TierChoice:
            # The verdict is that of the finding, so that the advice which follows from the choice agrees with it.
            known = situation(
                judged,
                engine=run.engine,
                version=record.engine_version,
                settings_since=None if settings is None else settings.first_trigger_at,
            )
            series = None if earlier is None else earlier.series_at(modelled.config, modelled.now)
            known = replace(known, modelled=modelled, series=series)
            return refused(known, self._tiers.why_not) if is_refusal else choose_or_refuse(self._choose_for, known)

        # The analysis and the simulation run outside the event loop. A stop of the process does not wait for them.
        choice = await anyio.to_thread.run_sync(chosen, abandon_on_cancel=True)
        async with writing(self._engine) as connection:
            # If this took so long that another process claimed the run, that one stores its choice.
            if await release_choice(connection, run.id, self._name):
                await keep_choice(connection, run.id, self._clock.now(), document_of_choice(choice))

    async def _waiting(self, connection: AsyncConnection) -> Sequence[tuple[JobRecord, CheckpointConfig | None]]:
        """Return the jobs that wait for a choice, with their settings; the one that waits longest comes first."""
        jobs, _ = await self._jobs.refresh(connection)
        now_s = self._clock.monotonic_s()
        self._tried = {job_id: tried for job_id, tried in self._tried.items() if now_s - tried[0] < _AGAIN_S}
        waiting = []
        for job in (watched.job for watched in jobs):
            advice = None if job.finding is None else job.finding.advice
            is_due = advice is not None and (advice.is_choice_due or advice.is_answer_due)
            if not is_due or job.record.run.state is JobState.ENDED:
                continue
            tried = self._tried.get(job.record.id)
            if tried is None or tried[1] != job.shape.config:
                waiting.append((job.record, job.shape.config))
        made = await choice_times_of(connection, [record.run.id for record, _ in waiting]) if waiting else {}
        return sorted(waiting, key=lambda w: (made.get(w[0].run.id, _NEVER), w[0].id))
