"""Diagnoses the queries at the address of a history server or of a driver of Spark, for ``barrierscope diagnose URL``.

Of a history server all running applications are read, however old their logs are. If none of them streams, or if a
query is named that does not run, those that ended within a day are read too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from backend.domain.connection import Reach
from backend.domain.errors import TargetUnavailableError, UpstreamError
from backend.domain.ids import target_id
from backend.domain.observation import JobObservation, JobState
from collectors.diagnosis_print import Answer
from collectors.spark.applications import counted
from collectors.spark.collector import LogOptions
from collectors.spark.judged import chosen, end_of, judged
from collectors.spark.opening import SparkCollector, opened
from collectors.time_left import TimeLeft

ENDED_MAX: Final = 5
"""The number of newest ended runs that are diagnosed if no query runs."""
_RUNNING_S: Final = 0.0
_DAY_S: Final = 86_400.0
_TIMEOUT_S: Final = 10.0
_ANY_RATE: Final = 1e12
_FAILED: Final = "FAILED"


async def answer_of_spark(
    url: str, *, job: str | None, show_step: Callable[[str], None], deadline_s: float, reach: Reach
) -> Answer | None:
    """Return the diagnoses of the queries at ``url``, or None if Spark does not answer there.

    Raises:
        InvalidInputError: no query has the name or id ``job``.
        TargetUnavailableError, TargetProtocolError: Spark's version was answered, and nothing else.
    """
    began_s = time.monotonic()
    time_left = TimeLeft(deadline_s, time.monotonic)
    options = LogOptions(
        ended_within_s=_RUNNING_S, wait_s=time_left.to_read_s, rate_bytes_per_s=_ANY_RATE, reads_all_running=True
    )
    timeout_s = min(_TIMEOUT_S, deadline_s)
    async with opened(
        url, target_id(url=url), {}, timeout_s=timeout_s, reach=reach, may_be_folder=False, options=options
    ) as collector:
        if collector.server is None or not await _is_spark(collector):
            return None
        show_step("reading the applications of Spark")
        runs = await _read(collector)
        is_found = any(job is None or job in (r.name, r.name.rpartition(": ")[2]) for r in runs.values())
        if collector.driver is None and not is_found:
            show_step("reading the applications that ended within a day")
            collector.options = replace(options, ended_within_s=_DAY_S, wait_s=time_left.to_read_s)
            collector.forget()
            collector.close()
            collector.logs = None
            runs |= await _read(collector)
        show_step("working out the verdicts and the advice")
        return _answer(collector, list(runs.values()), job, began_s)


async def _is_spark(collector: SparkCollector) -> bool:
    try:
        if collector.server is not None:
            await collector.server.check()
    except UpstreamError:
        return False
    return True


async def _read(collector: SparkCollector) -> dict[str, JobObservation]:
    found = await collector.collect(datetime.fromtimestamp(time.time(), UTC))
    return {job.engine_run_id: job for job in found.jobs}


def _answer(collector: SparkCollector, runs: list[JobObservation], job: str | None, began_s: float) -> Answer:
    server, logs = collector.server, collector.logs
    if server is None:
        raise TargetUnavailableError(url="", reason="no server was asked")
    wanted = chosen(runs, job)
    running = [run for run in wanted if run.state is not JobState.ENDED]
    # The other queries of an application go on if one of them fails.
    running += [run for run in wanted if running and run.engine_state == _FAILED]
    ended = sorted(wanted, key=end_of, reverse=True)[:ENDED_MAX]
    shown = wanted if job is not None else running or ended
    unread_count = 0 if logs is None else logs.unread_count
    count = 1 if logs is None else logs.application_count
    read_at = datetime.fromtimestamp(time.time(), UTC)
    problems = tuple(f"{run.name}: {problem}" for run in shown for problem in run.problems)
    if not runs:
        problems = (*problems, f"no streaming query was found in {counted(count)}")
    limits = (f"the logs of {counted(unread_count)} were not read in time (--deadline)",) if unread_count else ()
    return Answer(
        url=server.url,
        engine=f"{'Spark driver' if logs is None else 'Spark history server'} {server.version}",
        jobs=judged(runs, shown, heard=end_of, version=server.version, read_at=read_at),
        problems=problems,
        limits=limits,
        request_count=collector.request_count,
        took_s=time.monotonic() - began_s,
        as_of=max(map(end_of, shown), default=datetime.fromtimestamp(time.time(), UTC)),
    )
