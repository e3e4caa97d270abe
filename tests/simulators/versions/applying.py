"""Make the changes that Barrierscope advises, literally, on a new run of the job, and measure what was predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import TypeAdapter

from backend.advisor.advice import Setting
from backend.advisor.engine_settings import process_of
from backend.advisor.lifecycle import is_in_force, open_ratio
from backend.domain.advice import Metric
from backend.domain.checkpoint import CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.engines import flink
from backend.domain.pressure import VertexPressure
from collectors.readings import Gathered
from tests.simulators.versions import watching
from tests.simulators.versions.cluster import Cluster, RefusedError, job_settings, say, started
from tests.simulators.versions.jobs import End, VersionsJob
from tests.simulators.versions.table import Applied

_SETTING = TypeAdapter(Setting)
_WATCH_S = 40.0
_WARM_UP_COUNT = 2
"""So many checkpoints of the new run are left out, because the queues still fill."""

Recommendation = Mapping[str, Any]
Chosen = tuple[VersionsJob, Recommendation]


def chosen(jobs: Sequence[VersionsJob], diagnoses: Mapping[str, Mapping[str, Any]]) -> list[Chosen]:
    """Return one recommendation of each kind with each set of keys, and the job that it is for."""
    found: dict[tuple[str, ...], Chosen] = {}
    for job in jobs:
        advice = diagnoses.get(job.name, {}).get("advice", {})
        for one in advice.get("recommendations", ()) if job.end is End.CANCELLED else ():
            if one["changes"] or parallelism_of(one):
                found.setdefault((one["kind"], *(c["key"] for c in one["changes"])), (job, one))
    return list(found.values())


def parallelism_of(one: Recommendation) -> int | None:
    """Return the parallelism that is to be set in the program, because no key of this version sets it."""
    return None if one["changes"] else one["proposed"].get("parallelism")


def changes_of(one: Recommendation) -> tuple[tuple[str, str], ...]:
    """Return the keys and the proposed values."""
    return tuple((change["key"], change["proposed"]) for change in one["changes"])


def is_of_cluster(one: Recommendation, version: str) -> bool:
    """Return whether a job cannot set one of the keys, so that it belongs into the configuration of the cluster."""
    return any(process_of(flink(version), key) is not None for key, _ in changes_of(one))


async def applied(cluster: Cluster, home: Path, found: Sequence[Chosen]) -> list[Applied]:
    """Run the changed jobs, those with settings of the cluster on a cluster of their own, and return what came out."""
    results = await _run(cluster, [(job, one) for job, one in found if not is_of_cluster(one, cluster.version)])
    for job, one in found:
        if is_of_cluster(one, cluster.version):
            async with started(home, cluster.version, more=dict(changes_of(one))) as changed:
                results += await _run(changed, [(job, one)], is_set=True)
    return results


async def _run(cluster: Cluster, found: Sequence[Chosen], *, is_set: bool = False) -> list[Applied]:
    results, ids = [], {}
    base = job_settings(cluster.folder, cluster.version)
    for n, (job, one) in enumerate(found):
        try:
            changed = {} if is_set else dict(changes_of(one))
            ids[n] = await cluster.submit(job.words(base, changed=changed, parallelism=parallelism_of(one)))
        except RefusedError as error:
            results.append(Applied(job.name, one["kind"], changes_of(one), refusal=f"refused: {str(error)[:200]}"))
    if not ids:
        return results
    names = ", ".join(f"{found[n][0].name} ({found[n][1]['kind']})" for n in ids)
    say(f"{cluster.version}: advised changes run: {names}")
    try:
        watched = await watching.watched(cluster.url, seconds=_WATCH_S)
        reported = await cluster.settings()
    finally:
        for job_id in ids.values():
            await cluster.cancel(job_id)
    return results + [
        _result(*found[n], watched.gathered.get(job_id), reported if is_set else {}) for n, job_id in ids.items()
    ]


def _result(job: VersionsJob, one: Recommendation, gathered: Gathered | None, reported: Mapping[str, str]) -> Applied:
    """Return what came out; ``reported`` is the configuration of the cluster if the changes were made there."""
    kind, changes = one["kind"], changes_of(one)
    if gathered is None or gathered.topology is None:
        return Applied(job.name, kind, changes, refusal="the changed job could not be read")
    wanted = _SETTING.validate_python({k: v for k, v in one["proposed"].items() if v is not None})
    parallelism = {str(v.id): v.parallelism for v in gathered.topology.vertices}
    holds = is_in_force(wanted, gathered.last.config, parallelism)
    if holds is False:
        return Applied(job.name, kind, changes, refusal="accepted, but the job does not report it")
    if reported and any(reported.get(key) != value for key, value in changes):
        return Applied(job.name, kind, changes, refusal="accepted, but the cluster does not report it")
    metric, predicted, measured = next(_measured(one, gathered), ("", None, None))
    return Applied(job.name, kind, changes, metric=metric, predicted=predicted, measured=measured)


def _measured(one: Recommendation, gathered: Gathered) -> Iterator[tuple[str, tuple[float, float, float], float]]:
    for expected in one["expected"]:
        metric = Metric(expected["metric"])
        vertex = one["proposed"].get("vertex_id")
        value = rate(vertex, gathered.pressure) if metric is Metric.THROUGHPUT else _value(metric, gathered)
        if value is not None:
            interval = expected["predicted"]
            yield expected["metric"], (interval["low"], interval["value"], interval["high"]), value


def _value(metric: Metric, gathered: Gathered) -> float | None:
    headers = [c.header for _, c in sorted(gathered.checkpoints.items())]
    ended = [h for h in headers if h.kind is CheckpointKind.CHECKPOINT and h.status is CheckpointStatus.COMPLETED]
    after = ended[_WARM_UP_COUNT:]
    if not after:
        return None
    match metric:
        case Metric.DURATION | Metric.PERSISTED | Metric.WRITTEN:
            return _median(after, metric)
        case Metric.OPEN_RATIO:
            return open_ratio(after)
    return None


def rate(vertex_id: str | None, readings: Sequence[VertexPressure]) -> float | None:
    """Return the records that a vertex reads in a second.

    Flink's counters stand still between two fetches of its metrics, so the time counts from one change to another.
    """
    counts = [
        (reading.observed_at, sum(known))
        for reading in readings
        if reading.vertex_id == vertex_id and (known := [n for n in reading.records_in_count if n is not None])
    ]
    changes = [now for before, now in pairwise(counts) if now[1] > before[1]]
    if len(changes) < 2:
        return None
    (began_at, first), (ended_at, last) = changes[0], changes[-1]
    return (last - first) / (ended_at - began_at).total_seconds()


def _median(headers: Sequence[CheckpointHeader], metric: Metric) -> float | None:
    name = {
        Metric.DURATION: "end_to_end_duration_ms",
        Metric.PERSISTED: "persisted_bytes",
        Metric.WRITTEN: "checkpointed_size_bytes",
    }[metric]
    values = [v for h in headers if (v := getattr(h, name)) is not None]
    return float(median(values)) if values else None
