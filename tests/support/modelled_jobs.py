"""A job of the reference runtime in a real store, which the test lets run on, for tests of what-ifs."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.job_request import CheckSettings
from backend.domain.target import TargetOrigin
from backend.runtime.engine.jobfile import JobSpec
from backend.store.ingest import IngestWriter
from backend.store.targets.targets import NewTarget, TargetRepository
from collectors.flink.collector import FlinkCollector
from tests.support.observations import SteppingClock
from tests.support.simulated_target import SimulatedTarget

_POLL_S = 5.0


class StoredJob:
    """A job that runs in virtual time. Each poll of it is written to the store, and moves the store's clock."""

    def __init__(self, spec: JobSpec, engine: AsyncEngine, clock: SteppingClock) -> None:
        self._target = SimulatedTarget([spec])
        self._engine = engine
        self._writer = IngestWriter(engine, clock=clock)
        self._clock = clock
        self._collector: FlinkCollector | None = None
        self.sent: list[dict[str, str]] = []
        self.checked: list[dict[str, str]] = []

    async def __aenter__(self) -> StoredJob:
        self._clock.at = self._target.now()
        new = NewTarget(url=self._target.url, name="demo", origin=TargetOrigin.BUILT_IN, kind="runtime")
        added = await TargetRepository(self._engine).add(new, at=self._clock.at)
        self._collector = FlinkCollector(self._target, target_id=added.id, monotonic_s=self._target.monotonic_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._target.__aexit__(kind, error, trace)

    async def run(self, seconds: float) -> None:
        """Let the job run, and write what a collector reads every few seconds."""
        assert self._collector is not None
        for _ in range(round(seconds / _POLL_S)):
            await self._target.sleep(_POLL_S)
            self._clock.at = self._target.now()
            await self._writer.write(await self._collector.collect(self._target.now()))

    async def change(
        self, url: str, run: str, settings: Mapping[str, str] | CheckSettings, *_: object, **__: object
    ) -> None:
        """Change settings of the running job, or only check them, as a request to its target does."""
        if isinstance(settings, CheckSettings):
            self.checked.append(dict(settings.settings))
            return
        self.sent.append(dict(settings))
        self._target.change_settings(0, settings)
