"""Records runs of FidelityJob on a real Flink with Barrierscope's own collector, for the proof of the twin.

The cluster must run already, with the settings of the runs (``--list`` prints them) and enough free slots. Slow-store
runs need a file system of 8 MB/s, given by ``--slow-checkpoints``, and recoveries a command ``--kill``. The runs are
made one after another. Start the script several times to make several runs at once.

    python benchmarks/fidelity/record_twin.py --list
    python benchmarks/fidelity/record_twin.py --url http://127.0.0.1:8081 --jar fidelity.jar
        --checkpoints file:///tmp/checkpoints --out FOLDER [--seconds 80] RUN...
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from backend.domain.errors import UpstreamError
from backend.domain.ids import TargetId
from collectors.flink.client import open_transport
from collectors.flink.collector import CollectorOptions, FlinkCollector
from collectors.readings import Gathered, OnlyJobs
from tests.simulators import twin_recordings
from tests.simulators.flink_cluster import Cluster
from tests.simulators.twin_recordings import Recording
from tests.simulators.twin_runs import RUNS, TwinRun

_POLL_S = 1.0
_PRESSURE_S = 4.0
_TRANSPORT_S = 20.0


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


async def _record(cluster: Cluster, url: str, jar_id: str, run: TwinRun, options: argparse.Namespace) -> Recording:
    settings = await cluster.settings()
    wrong = {k: v for k, v in run.cluster.items() if settings.get(k) != v}
    if wrong or int(settings["lab.taskmanagers"]) != run.task_managers:
        raise SystemExit(f"{run.name} needs {run.task_managers} TaskManagers and {dict(run.cluster)}; found {settings}")
    store = options.slow_checkpoints if run.is_store_slow else options.checkpoints
    given = {**run.arguments, "name": run.name, "checkpoint-dir": store}
    if "slow-host-factor" in run.arguments:
        given["slow-host-file"] = str(Path(tempfile.mkdtemp()) / "pid")
    if run.kills_s:
        given["log-began-ms"] = str(round(time.time() * 1000))
    started_at = _now()
    job_id = await cluster.submit(jar_id, given)
    seconds = options.seconds or run.seconds
    loads: list[float] = []
    gathered: Gathered | None = None
    kills_s: list[float] = []
    lags: list[tuple[float, float]] = []
    limits = CollectorOptions(pressure_interval_s=_PRESSURE_S, list_interval_s=0.0)
    async with open_transport(url, timeout_s=_TRANSPORT_S) as transport:
        only = OnlyJobs(transport, frozenset([job_id]))
        collector = FlinkCollector(only, target_id=TargetId("twin"), options=limits)
        while (now := _now()) < started_at + timedelta(seconds=seconds):
            with suppress(UpstreamError):
                observation = await collector.collect(now)
                for job in observation.jobs:
                    gathered = gathered or Gathered(job)
                    offset = timedelta(milliseconds=observation.clock_offset_ms or 0)
                    gathered.add(job, observation.observed_at, offset)
            if run.kills_s and gathered is not None and gathered.topology is not None:
                lag_ms = await _lag_ms(cluster, job_id, gathered.topology.vertices[-1].id)
                at_s = (_now() - started_at).total_seconds()
                if lag_ms is not None:
                    lags.append((round(at_s, 2), lag_ms))
                if len(kills_s) < len(run.kills_s) and at_s >= run.kills_s[len(kills_s)]:
                    kills_s.append(round(at_s, 2))
                    await asyncio.create_subprocess_shell(options.kill)
            loads.append(os.getloadavg()[0])
            await asyncio.sleep(max(0.0, _POLL_S - (_now() - now).total_seconds()))
    await cluster.cancel(job_id)
    if gathered is None:
        raise SystemExit(f"{run.name}: the collector read nothing")
    return Recording(
        name=run.name,
        flink=await cluster.version(),
        arguments=dict(run.arguments),
        cluster=settings,
        is_store_slow=run.is_store_slow,
        started_at=started_at,
        seconds=seconds,
        load_1min=round(statistics.mean(loads), 1),
        core_count=os.cpu_count() or 1,
        evidence=gathered.evidence(),
        kills_s=tuple(kills_s),
        lags=tuple(lags),
    )


async def _lag_ms(cluster: Cluster, job_id: str, vertex_id: str) -> float | None:
    """Return the largest age of a record at the last stage, or None if not all of its subtasks run."""
    try:
        job = await cluster.json("GET", f"/jobs/{job_id}")
        if job["vertices"][-1]["tasks"]["RUNNING"] < job["vertices"][-1]["parallelism"]:
            return None
        path = f"/jobs/{job_id}/vertices/{vertex_id}/subtasks/metrics?get=stage-2.lagMs"
        found = await cluster.json("GET", path)
    except (aiohttp.ClientError, SystemExit):
        return None
    return float(found[0]["max"]) if found else None


async def _main(options: argparse.Namespace, jar: bytes) -> None:
    async with aiohttp.ClientSession() as session:
        cluster = Cluster(session, options.url)
        jar_id = await cluster.upload(options.jar.name, jar)
        for name in options.runs:
            recording = await _record(cluster, options.url, jar_id, RUNS[name], options)
            path = twin_recordings.write(recording, options.out)
            print(path.name, len(recording.counted()), path.stat().st_size, recording.load_1min, recording.medians)
            for recovery in recording.recoveries():
                print("   ", recovery)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", nargs="*", metavar="RUN", help="names of runs in tests/simulators/twin_runs.py")
    parser.add_argument("--list", action="store_true", help="list the runs with their clusters")
    parser.add_argument("--url", help="the root of the cluster's REST API")
    parser.add_argument("--jar", type=Path, help="FidelityJob, compiled against flink-dist of the cluster's version")
    parser.add_argument("--checkpoints", help="the address of a folder for checkpoints")
    parser.add_argument("--slow-checkpoints", help="the same, on a file system of 8 MB/s")
    parser.add_argument("--out", type=Path, default=twin_recordings.FOLDER, help="the folder of the recordings")
    parser.add_argument("--kill", help="a command that kills a TaskManager of the job and starts another")
    parser.add_argument("--seconds", type=float, help="the length of each run, in place of its own")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    """Record the named runs, or list all runs."""
    options = _parsed(arguments)
    if options.list:
        for run in RUNS.values():
            print(run.name, f"{run.seconds:g} s,", run.task_managers, "TaskManagers", dict(run.cluster))
        return
    unknown = [name for name in options.runs if name not in RUNS]
    if unknown or not (options.runs and options.url and options.jar and options.checkpoints):
        raise SystemExit(f"unknown runs {unknown}" if unknown else "give --url, --jar, --checkpoints and runs")
    asyncio.run(_main(options, options.jar.read_bytes()))


if __name__ == "__main__":
    main(sys.argv[1:])
