"""Run the jobs on one version of Flink, batch by batch, and judge what Barrierscope finds out about them."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from tests.simulators.versions import recorder, watching
from tests.simulators.versions.api_pass import through_api
from tests.simulators.versions.cluster import Cluster, RefusedError, job_settings, say
from tests.simulators.versions.jobs import JOBS, End, VersionsJob
from tests.simulators.versions.judging import Judged, Outcome, judged, worse
from tests.simulators.versions.proxy import Fault, proxied

SLOTS_AT_ONCE = 50
WATCH_S = 42.0
_START_S = 60.0
_END_S = 40.0
_WAITING = ("CREATED", "INITIALIZING", "RECONCILING")


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways in which running jobs are diagnosed, beside all at once: each alone, behind proxies, by the service."""

    is_recorded: bool = False
    has_proxies: bool = False
    has_api: bool = False


@dataclass(slots=True)
class Ran:
    """What was found out on one version."""

    version: str
    verdicts: dict[str, Judged] = field(default_factory=dict)
    compared_count: int = 0
    differences: dict[str, tuple[str, ...]] = field(default_factory=dict)
    problems: dict[str, tuple[str, ...]] = field(default_factory=dict)
    diagnoses: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    proxied: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    load_ratio: float | None = None
    asked: dict[str, watching.Asked] = field(default_factory=dict)
    """What ``diagnose`` printed and read when it was run on one job only. It is what a recording keeps."""
    faults: dict[str, list[recorder.Row]] = field(default_factory=dict)
    """What was read for a verdict that is not right: by the name of the job, and of the way in which it was asked."""


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


async def run_batch(cluster: Cluster, jobs: Sequence[VersionsJob], ran: Ran, ways: Ways) -> None:
    """Run these jobs at the same time, and add what was found out."""
    ids = await _submitted(cluster, jobs, ran)
    running = [job for job in jobs if job.name in ids]
    try:
        await _started(cluster, ids.values())
        say(f"{cluster.version}: {len(ids)} jobs run: {', '.join(ids)}")
        found = await watching.watched(cluster.url, seconds=WATCH_S)
        ran.load_ratio = os.getloadavg()[0] / (os.cpu_count() or 1)
        asked, alone, behind = await asyncio.gather(
            watching.asked(cluster.url),
            _each_for_itself(cluster, running if ways.is_recorded else [], ids),
            _behind_proxies(cluster, ids if ways.has_proxies else {}),
        )
        _add(ran, running, ids, found, asked)
        _add_alone(ran, alone)
        _add_proxied(ran, behind)
        if ways.has_api:
            await _through_service(cluster, ran)
        for job in await _ended(cluster, running, ids):
            one = await watching.asked(cluster.url, job=ids[job.name])
            ran.asked[job.name] = one
            _add(ran, [job], ids, watching.Watched(), one)
            ran.verdicts.setdefault(job.name, judged(job, None))
    finally:
        await asyncio.gather(*(cluster.cancel(job_id) for job_id in ids.values()))


async def _each_for_itself(
    cluster: Cluster, jobs: Sequence[VersionsJob], ids: Mapping[str, str]
) -> dict[str, watching.Asked]:
    """Diagnose each job that is recorded by itself, all at the same time."""
    names = [job.name for job in jobs if job.is_recorded and job.end is End.CANCELLED]
    answers = await asyncio.gather(*(watching.asked(cluster.url, job=ids[name]) for name in names))
    return dict(zip(names, answers, strict=True))


async def _behind_proxies(cluster: Cluster, ids: Mapping[str, str]) -> dict[Fault, tuple[str, watching.Asked]]:
    """Diagnose the first job behind each kind of proxy, all at the same time. Return its name with each answer."""

    async def one(name: str, fault: Fault) -> watching.Asked:
        async with proxied(cluster.url, fault) as url:
            return await watching.asked(url, job=ids[name])

    first = list(ids)[:1]
    answers = await asyncio.gather(*(one(name, fault) for name in first for fault in Fault))
    return {fault: (first[0], answer) for fault, answer in zip(Fault, answers, strict=False)}


def _add_alone(ran: Ran, alone: Mapping[str, watching.Asked]) -> None:
    for job in JOBS:
        if (answer := alone.get(job.name)) is not None:
            ran.asked[job.name] = answer
            ran.verdicts[job.name] = worse(ran.verdicts[job.name], judged(job, answer.jobs.get(job.name)))


def _add_proxied(ran: Ran, behind: Mapping[Fault, tuple[str, watching.Asked]]) -> None:
    for fault, (name, answer) in behind.items():
        direct = ran.diagnoses[name]
        lines = [answer.error] if answer.error else _differing(name, direct, answer.jobs.get(name))
        # The proxy has a port of its own in every run.
        ran.proxied[fault.value] = tuple(re.sub(r"127\.0\.0\.1:\d+", "PROXY", line) for line in lines)
        say(f"{ran.version}: behind a proxy, {fault.value}: {lines or 'the same'}")


async def _through_service(cluster: Cluster, ran: Ran) -> None:
    """Watch the running jobs with the whole service, and add what its API says."""
    verdicts, compared = await asyncio.to_thread(through_api, cluster.url, dict(ran.ids))
    ran.compared_count += compared.count
    ran.differences["API"] = compared.lines
    for job in JOBS:
        if job.name in verdicts and job.end is End.CANCELLED:
            found = judged(job, verdicts[job.name])
            ran.verdicts[job.name] = worse(ran.verdicts[job.name], found)
    say(f"{cluster.version}: through the API, {len(verdicts)} jobs, {compared.count} values")


def _differing(name: str, direct: Mapping[str, Any], behind: Mapping[str, Any] | None) -> list[str]:
    if behind is None or not direct:
        return [f"`{name}` is left out"]
    one, other = direct["verdict"], behind["verdict"]
    if (one["kind"], one["vertex"]) == (other["kind"], other["vertex"]):
        return []
    return [f"`{name}` is {other['kind']} ({other['confidence']}), directly {one['kind']} ({one['confidence']})"]


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
        await cluster.until(job_id, lambda state: state not in _WAITING, within_s=_START_S)


async def _ended(cluster: Cluster, jobs: Sequence[VersionsJob], ids: Mapping[str, str]) -> list[VersionsJob]:
    """Let the jobs end that end by themselves or with a savepoint, and return them."""
    names = []
    for job in jobs:
        if job.end is End.SAVEPOINT:
            await cluster.stop_with_savepoint(ids[job.name])
        if job.end is not End.CANCELLED:
            await cluster.until(ids[job.name], lambda state: state == "FINISHED", within_s=_END_S)
            names.append(job)
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
        key = ids[job.name]
        printed = asked.jobs.get(job.name)
        if printed is None and job.end is End.BY_ITSELF:
            # It has ended, so `diagnose` prints only the others. It is asked about later.
            continue
        ran.diagnoses[job.name] = printed or {}
        # A job that ends is judged after its end, by what `diagnose` prints then.
        ways = {"diagnose": (judged(job, printed), asked.rows)}
        if key in watched:
            ways["collector"] = (judged(job, watched[key]), found.rows)
        for way, (verdict, rows) in ways.items():
            if verdict.outcome is not Outcome.RIGHT:
                say(f"{ran.version}: {job.name}, {way}: {verdict.sentence or verdict.why}")
                ran.faults[f"{job.name}, {way}"] = [r for r in rows if not _is_of_another(r, key, ran.ids)]
        ran.verdicts[job.name] = reduce(worse, (verdict for verdict, _ in ways.values()))
        if key in found.compared:
            ran.compared_count += found.compared[key].count
            ran.differences[job.name] = found.compared[key].lines
        ran.problems[job.name] = tuple(found.problems.get(key, ()))
    for problem in (*found.problems.get("", ()), *asked.problems):
        ran.problems["target"] = (*ran.problems.get("target", ()), problem)


def _is_of_another(row: recorder.Row, job_id: str, ids: Mapping[str, str]) -> bool:
    return any(other in row["path"] for other in ids.values() if other != job_id)


def record(cluster: Cluster, jobs: Sequence[VersionsJob], ran: Ran, folder: Path, *, faults: Path) -> int:
    """Keep what ``diagnose`` asked about each recorded job, as contract tests. Return the size in bytes.

    A verdict that is not right is no contract. What was asked for it is kept in ``faults``, to be looked into.
    """
    asked = [job for job in jobs if job.name in ran.asked]
    right = [job for job in asked if _is_right(job, ran.asked[job.name])]
    wrong = {f"{job.name}, alone": ran.asked[job.name].rows for job in asked if job not in right}
    _write(cluster, {**wrong, **ran.faults}, ran, faults)
    return _write(cluster, {job.name: ran.asked[job.name].rows for job in right}, ran, folder)


def _write(cluster: Cluster, found: Mapping[str, list[recorder.Row]], ran: Ran, folder: Path) -> int:
    if not found:
        return 0
    rows = [{**row, "job": name} for name, of_job in found.items() for row in of_job]
    # The name of a fault is the name of the job, a comma, and the way in which it was asked.
    jobs = {name: ran.ids.get(name) or ran.ids[name.rpartition(", ")[0]] for name in found}
    run = {"flink_version": cluster.version, "jobs": jobs}
    return recorder.written(rows, run, folder, replaced={str(cluster.folder): "/flink"})


def _is_right(job: VersionsJob, asked: watching.Asked) -> bool:
    return not asked.problems and judged(job, asked.jobs.get(job.name)).outcome is Outcome.RIGHT
