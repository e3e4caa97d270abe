"""One job of the live runtime and its REST API, on a clock that the test moves."""

from __future__ import annotations

from copy import copy
from typing import Any

import httpx

from backend.live.driver import LiveJob, RuntimeDriver
from backend.live.engine import build_live_engine, job_run_id
from backend.live.rest import PREFIX, create_runtime_app
from backend.runtime.engine.jobfile import JobSpec
from tests.support.waiting import PATIENCE_S

ORIGIN_MS = 1_760_000_000_000


class LiveRuntime:
    """One live job. ``get`` and ``client`` send requests to its REST API; only ``advance_to`` lets time pass."""

    def __init__(self, spec: JobSpec) -> None:
        self._now_s = [0.0]
        self.job = LiveJob(job_run_id(spec.name, ORIGIN_MS), build_live_engine(spec), ORIGIN_MS, 0.0)
        self._driver = RuntimeDriver([self.job], lambda: self._now_s[0])
        app = create_runtime_app(self._driver, version="0.1.0")
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url=f"http://127.0.0.1:8081{PREFIX}", timeout=PATIENCE_S
        )
        self.root = f"/jobs/{self.job.id}"

    @property
    def now_s(self) -> float:
        """The time on the clock of the runtime, in seconds."""
        return self._now_s[0]

    def advance_to(self, at_s: float) -> None:
        """Let the job run until ``at_s`` seconds after its start."""
        self._now_s[0] = at_s
        while self._driver.advance(self.job):
            pass
        self.job.view = None

    async def start(self, **body: object) -> LiveRuntime:
        """Start another job, and return an object for it on the same runtime and clock."""
        answer = await self.client.post("/jobs", json=body)
        assert answer.status_code == 200, answer.text
        other = copy(self)
        other.job = self._driver.job(answer.json()["jobid"])
        other.root = f"/jobs/{other.job.id}"
        return other

    async def get(self, path: str) -> Any:
        """Return the JSON response at ``path``, which is relative to the job.

        Fail the test if the status is not 200.
        """
        answer = await self.client.get(self.root + path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def trigger(self, path: str, **body: object) -> str:
        """Start an asynchronous operation, and return the id with which its result can be queried."""
        answer = await self.client.post(self.root + path, json=body)
        assert answer.status_code == 202, answer.text
        assert list(answer.json()) == ["request-id"]
        return str(answer.json()["request-id"])
