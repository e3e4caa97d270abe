"""The parts of a Flink cluster's REST API that start and stop jobs, for the scripts that record a real Flink."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from tests.simulators.fidelity_recordings import cluster_settings

_HTTP_ERRORS = 300
_CANCEL_TRIES = 60


class Cluster:
    """One cluster. A refused request ends the script with the answer."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def json(self, method: str, path: str, **given: Any) -> Any:
        """Send a request, and return the JSON of the answer."""
        async with self._session.request(method, self._url + path, **given) as answer:
            if answer.status >= _HTTP_ERRORS:
                raise SystemExit(f"{method} {path}: {answer.status} {(await answer.text())[:2000]}")
            return await answer.json()

    async def upload(self, name: str, jar: bytes) -> str:
        """Upload a job, and return the id of the upload."""
        form = aiohttp.FormData()
        form.add_field("jarfile", jar, filename=name, content_type="application/x-java-archive")
        answer = await self.json("POST", "/jars/upload", data=form)
        return str(answer["filename"]).rpartition("/")[2]

    async def submit(self, jar_id: str, arguments: dict[str, str]) -> str:
        """Start ``FidelityJob`` with these arguments, and return the job's id."""
        listed = [word for name, value in arguments.items() for word in (f"--{name}", value)]
        body = {"entryClass": "fidelity.FidelityJob", "programArgsList": listed}
        answer = await self.json("POST", f"/jars/{jar_id}/run", json=body)
        return str(answer["jobid"])

    async def cancel(self, job_id: str) -> None:
        """Cancel a job, and wait until it has ended."""
        async with self._session.patch(f"{self._url}/jobs/{job_id}?mode=cancel"):
            pass
        for _ in range(_CANCEL_TRIES):
            if (await self.json("GET", f"/jobs/{job_id}"))["state"] == "CANCELED":
                return
            await asyncio.sleep(0.5)

    async def version(self) -> str:
        """Return the version of Flink."""
        return str((await self.json("GET", "/config"))["flink-version"])

    async def settings(self) -> dict[str, str]:
        """Return the settings that influence checkpoints, with the number of TaskManagers."""
        rows = await self.json("GET", "/jobmanager/config")
        count = len((await self.json("GET", "/taskmanagers"))["taskmanagers"])
        return cluster_settings({row["key"]: row["value"] for row in rows} | {"lab.taskmanagers": count})
