"""Records how runs of FidelityJob end on a real Flink, and the sizes of its incremental checkpoints.

The cluster must run already, with eight free slots. The results are added to the file of recorded endings.

    python benchmarks/fidelity/record_ends.py --url http://127.0.0.1:8081 --jar fidelity.jar --folder /tmp/checkpoints
        [--out ends.json] [RUN...]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.simulators import fidelity_ends
from tests.simulators.fidelity_ends import RUNS, Ending, EndingRun, Watch
from tests.simulators.flink_cluster import Cluster

_POLL_S = 0.25
_AFTER_END_S = 3.0


async def _record(cluster: Cluster, jar_id: str, name: str, run: EndingRun, folder: str) -> Ending:
    given = {**run.arguments, "name": name, "checkpoint-dir": f"file://{folder}"}
    job_id = await cluster.submit(jar_id, given)

    async def get(path: str) -> Any:
        return await cluster.json("GET", f"/jobs/{job_id}{path}")

    watch = Watch(get)
    began_s = time.monotonic()
    loads = [os.getloadavg()[0]]
    while time.monotonic() < began_s + run.seconds:
        if run.stop_at_s is not None and watch.stop_id is None and time.monotonic() > began_s + run.stop_at_s:
            body = {"drain": run.is_drained, "targetDirectory": f"file://{folder}/savepoints"}
            watch.stopped_ms = round(time.time() * 1000)
            watch.stop_id = (await cluster.json("POST", f"/jobs/{job_id}/stop", json=body))["request-id"]
        if await watch.look():
            # Flink serves cached responses for some time after the end.
            await asyncio.sleep(_AFTER_END_S)
            await watch.look()
            break
        loads.append(os.getloadavg()[0])
        await asyncio.sleep(_POLL_S)
    else:
        await cluster.cancel(job_id)
    return watch.ending(flink=await cluster.version(), load_1min=round(statistics.mean(loads), 1))


async def _main(options: argparse.Namespace, jar: bytes) -> None:
    async with aiohttp.ClientSession() as session:
        cluster = Cluster(session, options.url)
        jar_id = await cluster.upload(options.jar.name, jar)
        for name in options.runs or RUNS:
            ending = await _record(cluster, jar_id, name, RUNS[name], options.folder)
            known = fidelity_ends.read(options.out) if options.out.exists() else {}
            others = [e for e in known.get(name, []) if e.flink != ending.flink]
            known[name] = sorted([*others, ending], key=lambda e: e.flink)
            fidelity_ends.write(known, options.out)
            print(name, ending.flink, ending.state, ending.states, len(ending.checkpoints), ending.load_1min)


def main(arguments: Sequence[str]) -> None:
    """Record the named runs, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", nargs="*", metavar="RUN", help="names of runs in tests/simulators/fidelity_ends.py")
    parser.add_argument("--url", required=True, help="the root of the cluster's REST API")
    parser.add_argument("--jar", type=Path, required=True, help="FidelityJob, compiled against flink-dist")
    parser.add_argument("--folder", required=True, help="a folder for checkpoints and savepoints")
    parser.add_argument("--out", type=Path, default=fidelity_ends.RECORDED, help="the file of recorded endings")
    options = parser.parse_args(arguments)
    asyncio.run(_main(options, options.jar.read_bytes()))


if __name__ == "__main__":
    main(sys.argv[1:])
