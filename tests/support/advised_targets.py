"""A target of the runtime that is given advice: it records what is sent to it, and reports what a test says."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from backend.domain.engines import RUNTIME
from backend.domain.job_request import CheckSettings
from backend.domain.observation import JobState
from tests.support.advised_jobs import EXACTLY_ONCE, persisting, readings, slow_run
from tests.support.handwritten_jobs import START, chain, quick
from tests.support.observations import job as observed_job
from tests.support.observations import observation

TIMED = replace(EXACTLY_ONCE, is_unaligned_enabled=True, aligned_timeout_ms=200)


class AdvisedTarget:
    """A target of the runtime that records the settings sent to it, and writes its checkpoints to the store."""

    def __init__(self, writer, target_id, clock):
        self.writer, self.id, self.clock = writer, target_id, clock
        self.engine = RUNTIME
        self.sent: list[tuple[str, str, dict[str, str]]] = []
        self.checked: list[dict[str, str]] = []
        """The settings that it was asked about."""
        self.refuses: Exception | None = None
        """If it is set, the target refuses each change with it."""

    async def change(self, url, run, settings, timeout_s, token, *, kind, reach):
        """Record the settings, or refuse them."""
        if self.refuses is not None:
            raise self.refuses
        if isinstance(settings, CheckSettings):
            self.checked.append(dict(settings.settings))
            return
        self.sent.append((url, run, dict(settings)))

    async def report(self, config, checkpoints=(), pressure=(), at=None, state=JobState.RUNNING):
        """Write the observation of one poll at time ``at``."""
        self.clock.at = at or self.clock.at
        seen = replace(
            observed_job(checkpoints),
            topology=chain(),
            placements=(),
            config=config,
            counts=None,
            pressure=tuple(pressure),
            started_at=START - timedelta(hours=1),
            state=state,
        )
        told = replace(observation(self.id, seen, at=self.clock.at), engine=self.engine, engine_version="0.1.0")
        await self.writer.write(told)

    async def report_slow(self):
        """Write one poll whose checkpoints wait for their barriers."""
        await self.report(EXACTLY_ONCE, slow_run(8), readings(), at=START + timedelta(seconds=62))

    async def report_timed(self, count, duration_ms=230, persisted=270_000):
        """Write one poll that reports the advised settings, and one poll with checkpoints under these settings."""
        await self.report(TIMED, at=START + timedelta(seconds=90))
        # The first checkpoint may have begun before the change, so the verification does not count it.
        run = [persisting(quick(n, duration_ms), persisted) for n in range(18, 19 + count)]
        await self.report(TIMED, run, at=START + timedelta(seconds=90 + 10 * count))
