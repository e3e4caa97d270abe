"""Run the jobs on one version of Flink, batch by batch, and judge what Barrierscope finds out about them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulators.versions import recorder, watching
from tests.simulators.versions.cluster import Cluster, RefusedError, job_settings, say
from tests.simulators.versions.jobs import End, VersionsJob
from tests.simulators.versions.judging import Judged, Outcome, judged, worse

SLOTS_AT_ONCE = 24
WATCH_S = 46.0
_START_S = 60.0
_END_S = 40.0
_WAITING = ("CREATED", "INITIALIZING", "RECONCILING")


@dataclass(slots=True)
class Ran:
    """What was found out on one version."""

    version: str
    verdicts: dict[str, Judged] = field(default_factory=dict)
    compared_count: int = 0
    differences: dict[str, tuple[str, ...]] = field(default_factory=dict)
    problems: dict[str, tuple[str, ...]] = field(default_factory=dict)
    diagnoses: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    rows: list[recorder.Row] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)


def batches(jobs: Sequence[VersionsJob], *, slots: int = SLOTS_AT_ONCE) -> Iterator[list[VersionsJob]]:
    """Split the jobs into groups that run at the same time and need at most this many slots."""
    batch: list[VersionsJob] = []
    for job in jobs:
        if batch and sum(one.slots for one in (*batch, job)) > slots:
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


async def run_batch(cluster: Cluster, jobs: Sequence[VersionsJob], ran: Ran) -> None:
    """Run these jobs at the same time, and add what was found out."""
    ids = await _submitted(cluster, jobs, ran)
    try:
        await _started(cluster, ids.values())
        say(f"{cluster.version}: {len(ids)} jobs run: {', '.join(ids)}")
        found = await watching.watched(cluster.url, seconds=WATCH_S)
        asked = await watching.asked(cluster.url)
        ran.rows += asked.rows
        ended = await _ended(cluster, [job for job in jobs if job.name in ids], ids)
        for name in ended:
            one = await watching.asked(cluster.url, job=ids[name])
            asked = watching.Asked({**asked.jobs, **one.jobs}, asked.problems + one.problems, asked.rows, asked.error)
            ran.rows += one.rows
    finally:
        for job_id in ids.values():
            await cluster.cancel(job_id)
    _add(ran, jobs, ids, found, asked)


async def _submitted(cluster: Cluster, jobs: Sequence[VersionsJob], ran: Ran) -> dict[str, str]:
    base, ids = job_settings(cluster.folder, cluster.version), {}
    for job in jobs:
        try:
            ids[job.name] = await cluster.submit(job.words(base))
        except RefusedError as error:
            reason = str(error).replace("\\n", "\n").replace("\\t", " ")
            causes = [line for line in reason.splitlines() if "Caused by" in line]
            ran.verdicts[job.name] = Judged(job.name, Outcome.NOT_RUN, why=(causes or [reason])[-1][:300])
            say(f"{cluster.version}: {job.name} cannot run: {ran.verdicts[job.name].why}")
    ran.ids |= ids
    return ids


async def _started(cluster: Cluster, job_ids: Any) -> None:
    for job_id in job_ids:
        async with asyncio.timeout(_START_S):
            while await cluster.state(job_id) in _WAITING:
                await asyncio.sleep(0.5)


async def _ended(cluster: Cluster, jobs: Sequence[VersionsJob], ids: Mapping[str, str]) -> list[str]:
    """Let the jobs end that end by themselves or with a savepoint, and return their names."""
    names = []
    for job in jobs:
        if job.end is End.SAVEPOINT:
            await cluster.stop_with_savepoint(ids[job.name])
        if job.end is not End.CANCELLED:
            async with asyncio.timeout(_END_S):
                while await cluster.state(ids[job.name]) != "FINISHED":
                    await asyncio.sleep(0.5)
            names.append(job.name)
    # Flink keeps answers for 3 seconds.
    await asyncio.sleep(4.0 if names else 0.0)
    return names


def _add(
    ran: Ran, jobs: Sequence[VersionsJob], ids: Mapping[str, str], found: watching.Watched, asked: watching.Asked
) -> None:
    watched = found.diagnoses()
    if asked.error:
        ran.problems["diagnose"] = (asked.error,)
    for job in jobs:
        if job.name not in ids:
            continue
        key = ids[job.name]
        printed = asked.jobs.get(job.name)
        ran.diagnoses[job.name] = printed or {}
        # A job that ended is read while it runs and after its end. Only the last word of the collector counts.
        both = [judged(job, printed)] + ([] if job.end is not End.CANCELLED else [judged(job, watched.get(key))])
        ran.verdicts[job.name] = both[0] if len(both) == 1 else worse(*both)
        if key in found.compared:
            ran.compared_count += found.compared[key].count
            ran.differences[job.name] = found.compared[key].lines
        ran.problems[job.name] = tuple(found.problems.get(key, ()))
    for problem in (*found.problems.get("", ()), *asked.problems):
        ran.problems["target"] = (*ran.problems.get("target", ()), problem)


def record(cluster: Cluster, jobs: Sequence[VersionsJob], ran: Ran, folder: Path) -> int:
    """Keep what ``diagnose`` asked about the jobs that are kept as contract tests. Return the size in bytes."""
    names = [job.name for job in jobs if job.is_recorded and job.name in ran.ids]
    left_out = [ran.ids[name] for name in ran.ids if name not in names]
    rows = [row for row in ran.rows if not any(job_id in row["path"] for job_id in left_out)]
    run = {"flink_version": cluster.version, "jobs": {name: ran.ids[name] for name in names}}
    return recorder.written(rows, run, folder, replaced={cluster.folder.as_uri(): "file:///flink"})
