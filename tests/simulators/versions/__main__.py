"""``make test-versions``: run the jobs on real Flink clusters, print a table, and write it into ``docs/support.md``.

python -m tests.simulators.versions [VERSION...] [--only NAMES] [--record] [--api]    # progress on standard error
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import orjson

from tests.simulators.versions import applying, table
from tests.simulators.versions.cluster import Cluster, say, started
from tests.simulators.versions.jars import chosen, fetch, minor
from tests.simulators.versions.jobs import VersionsJob, jobs_of
from tests.simulators.versions.running import Ran, Ways, batches, record, run_batch
from tests.simulators.versions.table import Result

_ROOT = Path(__file__).resolve().parents[3]
_DOCUMENT = _ROOT / "docs" / "support.md"
_RECORDINGS = _ROOT / "tests" / "contract" / "recordings_clusters"
_BUILD = _ROOT / "build" / "flink-versions"


async def _version(version: str, given: argparse.Namespace) -> Result:
    began_s = time.monotonic()
    home = await asyncio.to_thread(fetch, _BUILD, version)
    jobs, ran = jobs_of(version, given.only), Ran(version)
    async with started(home, version) as cluster:
        for n, batch in enumerate(batches(jobs)):
            ways = Ways(given.record, has_proxies=given.with_proxy and n == 0, has_api=given.api and n == 0)
            await run_batch(cluster, batch, ran, ways)
        advised = await applying.applied(cluster, home, applying.chosen(jobs, ran.diagnoses)) if given.apply else []
        size = _recorded(cluster, jobs, ran) if given.record else 0
    kept = _BUILD / "diagnoses" / f"{version}.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_bytes(orjson.dumps(ran.diagnoses, option=orjson.OPT_INDENT_2))
    say(f"{version}: {time.monotonic() - began_s:.0f} s")
    return _result(ran, advised, size)


def _recorded(cluster: Cluster, jobs: Sequence[VersionsJob], ran: Ran) -> int:
    folder, faults = _RECORDINGS / minor(cluster.version), _BUILD / "faults" / minor(cluster.version)
    for old in (folder, faults):
        shutil.rmtree(old, ignore_errors=True)
    return record(cluster, jobs, ran, folder, faults=faults)


def _result(ran: Ran, advised: Sequence[table.Applied], size: int) -> Result:
    return Result(
        ran.version,
        tuple(ran.verdicts.values()),
        compared_count=ran.compared_count,
        differences=tuple(f"{job}: {line}" for job, lines in ran.differences.items() for line in lines),
        problems=tuple(f"{job}: {line}" for job, lines in ran.problems.items() for line in lines),
        applied=tuple(advised),
        proxied=ran.proxied,
        recording_bytes=size,
        load_ratio=ran.load_ratio,
    )


def _shown(result: Result) -> None:
    for found in result.verdicts:
        place = f"{found.health}, {found.kind} {found.vertex}".strip(", ")
        print(f"{result.version}  {found.job:28} {table.cell(found):16} {place:50} {found.why}")
        if found.is_wrong_and_sure:
            print(f"    WRONG WITH HIGH CONFIDENCE: {found.sentence}")
    for line in (*result.differences, *result.problems):
        print(f"    {line}")
    for one in result.applied:
        said = one.refusal or f"{one.metric} predicted {one.predicted}, measured {one.measured}"
        print(f"    advice for {one.job}: {one.kind} {one.changes}: {said}")


async def _all(given: argparse.Namespace) -> int:
    results = []
    if given.table:
        return _documented()
    for version in chosen(" ".join(given.versions)):
        result = await _version(version, given)
        _shown(result)
        sys.stdout.flush()
        table.write(result, _BUILD / "results")
        results.append(result)
    print(table.table(results))
    if not given.only and not given.no_docs:
        _documented()
    return any(result.is_faulty for result in results)


def _documented() -> int:
    """Write the document from the kept results of all versions."""
    _DOCUMENT.write_text(table.replaced(_DOCUMENT.read_text(), table.read(_BUILD / "results")))
    say(f"wrote {_DOCUMENT.relative_to(_ROOT)}")
    return 0


async def _stoppable(work: Coroutine[Any, Any, int]) -> int:
    """Run until the end or a signal. Both leave no process of a cluster behind."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        say("stopped")
        return 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-versions", description=__doc__)
    parser.add_argument("versions", nargs="*", help="such as 1.15 or 2.2.1; all if there are none")
    parser.add_argument("--only", default="", help="run only jobs whose names contain one of these words")
    parser.add_argument("--record", action="store_true", help="keep short recordings as contract tests")
    parser.add_argument("--no-docs", action="store_true", help="do not write docs/support.md")
    parser.add_argument("--table", action="store_true", help="only write docs/support.md again, from kept results")
    parser.add_argument("--api", action="store_true", help="watch the first jobs with `barrierscope up` too")
    parser.add_argument("--no-proxy", dest="with_proxy", action="store_false", help="leave out the proxies")
    parser.add_argument("--no-advice", dest="apply", action="store_false", help="do not make the advised changes")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(asyncio.run(_stoppable(_all(_arguments()))))
