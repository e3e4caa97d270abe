"""Watch the jobs of a cluster with Barrierscope's own collector, and diagnose them as ``diagnose`` does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import orjson

from backend.advisor import advise
from backend.analysis.verdict.verdict import considered_count
from backend.analysis.verdict.verdict import diagnose as verdict_of
from backend.domain.connection import ANYWHERE
from backend.domain.errors import BarrierscopeError
from backend.domain.ids import target_id
from backend.domain.observation import JobObservation, Observation
from collectors import diagnose, readings
from collectors.diagnosis_print import Answer, JobAnswer, as_json
from collectors.flink.client import open_transport
from collectors.flink.collector import FlinkCollector
from collectors.pacing import PacedTransport
from tests.simulators.versions.comparison import Compared, compare
from tests.simulators.versions.recorder import RecordingTransport, Row

Diagnosis = dict[str, Any]

POLL_S = 2.0
_TIMEOUT_S = 10.0
# Twenty jobs at once share two cores with the cluster. Within its usual time, diagnose may read only some of them.
_DIAGNOSE_S = 240.0


@dataclass(slots=True)
class Watched:
    """What a collector found out about the jobs of a cluster, by job id."""

    gathered: dict[str, readings.Gathered] = field(default_factory=dict)
    compared: dict[str, Compared] = field(default_factory=dict)
    problems: dict[str, dict[str, None]] = field(default_factory=dict)
    engine: Any = None
    version: str | None = None
    rows: list[Row] = field(default_factory=list)

    def add(self, observation: Observation, rows: list[Row]) -> None:
        """Add one poll and the answers that it got."""
        self.engine, self.version = observation.engine, observation.engine_version
        self.rows += rows
        for job in observation.jobs:
            self._add_job(job, observation, rows)

    def _add_job(self, job: JobObservation, observation: Observation, rows: list[Row]) -> None:
        key = str(job.engine_run_id)
        offset = timedelta(milliseconds=observation.clock_offset_ms or 0)
        self.gathered.setdefault(key, readings.Gathered(job)).add(job, observation.observed_at, offset)
        compare(job, rows, self.compared.setdefault(key, Compared()))
        self.problems.setdefault(key, {}).update(dict.fromkeys(job.problems))

    def diagnoses(self) -> dict[str, Diagnosis]:
        """Return the diagnosis of each job whose graph was read, in the JSON of ``diagnose``."""
        return {key: self._diagnosis(one) for key, one in self.gathered.items() if one.is_readable}

    def _diagnosis(self, one: readings.Gathered) -> Diagnosis:
        evidence = one.evidence(version=self.version)
        found = JobAnswer(
            name=one.last.name,
            engine_state=one.last.engine_state,
            diagnosis=verdict_of(evidence),
            considered_count=considered_count(evidence),
            as_of=one.as_of,
            advice=advise(evidence, engine=self.engine, version=self.version),
        )
        return documents(Answer("", "", (found,), (), 0, 0.0, one.as_of))[0]


def documents(answer: Answer) -> list[Diagnosis]:
    """Return what ``diagnose --format json`` prints about each job."""
    found: list[Diagnosis] = orjson.loads(as_json(answer))["jobs"]
    return found


async def watched(url: str, *, seconds: float) -> Watched:
    """Poll the target for some seconds, as the role ``collect`` does."""
    found = Watched()
    async with open_transport(url, timeout_s=_TIMEOUT_S, reach=ANYWHERE) as transport:
        recording = RecordingTransport(transport)
        collector = FlinkCollector(recording, target_id=target_id(url=transport.url))
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            recording.poll += 1
            recording.rows.clear()
            try:
                found.add(await collector.collect(diagnose.WallClock().now()), recording.rows)
            except BarrierscopeError as error:
                found.problems.setdefault("", {})[str(error)] = None
            await asyncio.sleep(POLL_S)
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    """What ``diagnose`` printed about each job (by its name), its problems, and the answers that it got."""

    jobs: Mapping[str, Diagnosis]
    problems: tuple[str, ...]
    rows: list[Row]
    error: str = ""


async def asked(url: str, *, job: str | None = None) -> Asked:
    """Run ``diagnose`` on the target, on all running jobs or on one."""
    async with open_transport(url, timeout_s=_TIMEOUT_S, reach=ANYWHERE) as transport:
        recording = RecordingTransport(transport)
        clock = diagnose.WallClock()
        paced = PacedTransport(recording, monotonic_s=clock.monotonic_s, sleep=clock.sleep)

        def next_round(text: str) -> None:
            recording.poll += 1

        try:
            answer = await diagnose.answer_of(
                paced, job=job, show_step=next_round, clock=clock, sleep=clock.sleep, deadline_s=_DIAGNOSE_S
            )
        except BarrierscopeError as error:
            return Asked({}, (), recording.rows, str(error))
    return Asked({d["job"]: d for d in documents(answer)}, answer.problems, recording.rows)
