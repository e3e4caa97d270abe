"""The live runtime as a target, without sockets or waiting.

Its REST API runs over ASGI, and its jobs in virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType

import httpx

from backend.analysis.measures.evidence import JobEvidence
from backend.domain.clock import from_epoch_ms
from backend.domain.errors import TargetProtocolError
from backend.domain.ids import target_id
from backend.live.driver import LiveJob, RuntimeDriver
from backend.live.engine import build_live_engine, job_run_id
from backend.live.rest import PREFIX, create_runtime_app
from backend.runtime.engine.jobfile import JobSpec
from collectors.diagnose import answer_of
from collectors.diagnosis_print import Answer
from collectors.flink.collector import FlinkCollector
from collectors.readings import Gathered, Readings

ORIGIN_EPOCH_MS = 1_795_600_000_000


class SimulatedTarget:
    """The live runtime as a target, for code that reads it through ``FlinkTransport``, ``Clock`` and ``Sleep``.

    Each sleep of the reader advances all jobs. ``ahead_s`` is the number of seconds by which the reader's clock is
    ahead of the target's clock.
    """

    def __init__(self, specs: Sequence[JobSpec], *, ahead_s: float = 0.0) -> None:
        self._now_us = 0
        self._ahead = timedelta(seconds=ahead_s)
        self._jobs = [
            LiveJob(job_run_id(spec.name, ORIGIN_EPOCH_MS), build_live_engine(spec), ORIGIN_EPOCH_MS, 0.0)
            for spec in specs
        ]
        self.driver = RuntimeDriver(self._jobs, self.monotonic_s)
        app = create_runtime_app(self.driver, version="0.0.0")
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://127.0.0.1{PREFIX}")
        self.asked: list[str] = []

    async def __aenter__(self) -> SimulatedTarget:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    @property
    def url(self) -> str:
        """The URL of the target, as a transport shows it."""
        return "http://127.0.0.1/runtime/v1"

    async def get(self, path: str) -> bytes:
        """Return the body of the response. A status other than 200 raises a ``TargetProtocolError``."""
        self.asked.append(path)
        # Concatenate the URL, because a client would merge the query.
        answer = await self._client.get(f"{self.url}{path}")
        if answer.status_code != 200:
            raise TargetProtocolError(url=self.url, reason=answer.text[:200], status=answer.status_code)
        return answer.content

    def now(self) -> datetime:
        """Return the virtual time, as the reader's clock shows it."""
        return from_epoch_ms(ORIGIN_EPOCH_MS) + timedelta(microseconds=self._now_us) + self._ahead

    def monotonic_s(self) -> float:
        """Return the virtual time in seconds."""
        return self._now_us / 1e6

    async def sleep(self, seconds: float) -> None:
        """Let all jobs run for this many seconds of virtual time, also those that were started since."""
        self._now_us += round(seconds * 1e6)
        for job in self.driver._jobs.values():
            job.engine.run_until(self._now_us)

    def change_settings(self, job: int, changes: Mapping[str, str]) -> None:
        """Change settings of a running job."""
        self._jobs[job].engine.change_settings(changes)

    async def diagnosed(self) -> Answer:
        """Return what ``barrierscope diagnose`` reports now."""
        return await answer_of(self, job=None, show_step=lambda _: None, clock=self, sleep=self.sleep)

    async def evidence(self) -> list[JobEvidence]:
        """Return the evidence on which ``barrierscope diagnose`` bases its report, job by job."""
        readings = Readings(self, clock=self, sleep=self.sleep, show_step=lambda _: None)
        await readings.take(has_running=True)
        return [gathered.evidence() for gathered in readings.jobs.values()]

    async def watched(self, *, polls: int, every_s: float) -> Gathered:
        """Poll the target several times, and return what a collector gathers from its only job."""
        collector = FlinkCollector(self, target_id=target_id(url=self.url), monotonic_s=self.monotonic_s)
        gathered: Gathered | None = None
        for _ in range(polls):
            observation = await collector.collect(self.now())
            (job,) = observation.jobs
            gathered = gathered or Gathered(job)
            gathered.add(job, observation.observed_at, timedelta(0))
            await self.sleep(every_s)
        assert gathered is not None
        return gathered

    def records_in(self, job: int, vertex: str) -> list[int]:
        """Return the number of records that each subtask of a vertex received, as the engine counts them."""
        view = self._jobs[job].engine.view(job_id="", origin_epoch_ms=0, lag_ms=0)
        return [s.records_in for v in view.vertices if v.name == vertex for s in v.subtasks]
