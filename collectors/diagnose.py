"""Implements ``barrierscope diagnose``: reads one target for some seconds and prints its diagnosis. Stores nothing.

It reads the checkpoints that the engine still lists. It waits for two readings of backpressure that the engine fetched
at different times, because one reading does not show what a subtask does in between (``flink.freshness``). At most 4
requests are in flight, and at most 40 begin within a second (``pacing``). All of it has a total time (``time_left``).
``backend.analysis`` derives the verdict.
The diagnosis goes to standard output, everything else to standard error. If one of the readings fails, the diagnosis
is based on the readings before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from backend.advisor import advise
from backend.advisor.advice import Advice
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.input_rates import input_per_s
from backend.analysis.measures.replay_debt import RunFacts, debt_of
from backend.analysis.verdict import without_data
from backend.analysis.verdict.verdict import considered_count, diagnose
from backend.contracts import flink
from backend.domain.checkpoint_mode import mode_of
from backend.domain.clock import Clock
from backend.domain.connection import ANYWHERE, Reach
from backend.domain.engines import EngineCapabilities
from backend.domain.errors import FieldProblem, InvalidInputError, TargetProtocolError, TargetUnavailableError
from backend.domain.fail_on import FailOn
from backend.domain.observation import JobState
from backend.domain.urgency import urgency_key
from backend.domain.verdict import Diagnosis
from collectors.base import FlinkTransport
from collectors.diagnosis_print import Answer, DiagnosisFormat, JobAnswer
from collectors.finishing import Wanted, finish
from collectors.flink import parse
from collectors.flink.client import open_transport, parse_target_url
from collectors.flink.parse import JobEntry
from collectors.flink.probe import ask_once, check_page
from collectors.flink.requests import Requests
from collectors.flink.roots import better_error
from collectors.logs.diagnosing import Join, diagnose_files
from collectors.pacing import PacedTransport
from collectors.readings import REQUESTS_MAX, Gathered, OnlyJobs, Readings, Sleep
from collectors.spark.asking import answer_of_spark
from collectors.spark.event_log import Observe
from collectors.step_line import ShowStep, StepLine
from collectors.time_left import TOTAL_S, TimeLeft
from collectors.wall_clock import WallClock
from collectors.watching import watch

TIMEOUT_S: Final = 10.0
ENDED_MAX: Final = 5
"""The number of newest ended jobs that are diagnosed if no job runs."""

_AT_REST = (JobState.ENDED, JobState.STARTING)
_NAMES_MAX = 20
_NO_ADVICE = Advice((), (), 0)


def run(
    url: str,
    *,
    job: str | None,
    output_format: str,
    is_verbose: bool = False,
    is_quick: bool = False,
    deadline_s: float = TOTAL_S,
    logs: Sequence[str] = (),
    event_logs: Sequence[str] = (),
    observe: Observe | None = None,
    reach: Reach = ANYWHERE,
    fail_on: FailOn | None = None,
    is_watch: bool = False,
) -> int:
    """Diagnose the target at ``url`` and print the diagnosis. Return 0 if the target and one of its jobs could be read.

    Return 1 if there are jobs, and none of them could be read. With ``logs``, print what these files tell too, and with
    ``event_logs`` the diagnosis of the queries in these event logs of Spark; ``url`` may then be empty. ``observe``
    parses Spark's events; it is the parser of the ingest API. ``reach`` has the credentials for the target.

    With ``is_quick``, do not wait until the engine has fetched its metrics a second time. After ``deadline_s``, print
    what is known by then, and what was left out. ``fail_on`` makes the code tell of the jobs too (``finishing``).
    With ``is_watch``, show the target until a key ends it (``watching``).

    Raises:
        InvalidInputError: the format or the address is not valid, or no job has the name or id ``job``.
        TargetUnavailableError: the target does not respond.
        WrongRootError: Flink's REST is at another path of this address, which the message names.
        TargetProtocolError: the target's response is not one that Flink sends.
    """
    if is_watch:
        return watch(url, job=job, reach=reach)
    try:
        wanted = Wanted(job, DiagnosisFormat(output_format), is_verbose, fail_on)
    except ValueError:
        problem = FieldProblem("--format", f"{output_format!r} is not a valid value", ", ".join(DiagnosisFormat))
        raise InvalidInputError([problem], what="option") from None
    if logs or event_logs or not url:
        asked = partial(ask, url, job=job, is_quick=is_quick, deadline_s=deadline_s, reach=reach) if url else None
        return diagnose_files(wanted, logs, event_logs, ask=asked, observe=observe, reach=reach)
    return finish(ask(url, job=job, is_quick=is_quick, deadline_s=deadline_s, reach=reach), wanted)


def ask(
    url: str,
    *,
    job: str | None,
    is_quick: bool,
    deadline_s: float,
    join: Join | None = None,
    reach: Reach = ANYWHERE,
) -> Answer:
    """Return the diagnoses of the jobs at ``url``. This raises the same errors as ``run``.

    ``join`` adds to the evidence of a job what another source tells of it.
    """
    with StepLine() as show_step:
        named = partial(_read_at, url, show_step=show_step, deadline_s=deadline_s, reach=reach)
        read = partial(named, job=job, is_quick=is_quick, join=join)
        spark = partial(answer_of_spark, url, job=job, show_step=show_step, reach=reach)
        return asyncio.run(_asked(url, read, spark, show_step=show_step, deadline_s=deadline_s, reach=reach))


async def _asked(
    url: str,
    read: Callable[..., Awaitable[Answer]],
    spark: Callable[..., Awaitable[Answer | None]],
    *,
    show_step: ShowStep,
    deadline_s: float,
    reach: Reach,
) -> Answer:
    """Ask for Spark's version first, which costs one cheap request.

    Flink's paths are pages of Spark, for which a busy driver takes long. So Flink's paths are asked for only if the
    answer is not Spark's version. If no answer came in time, Spark's version is asked for again after Flink's paths.
    All of it together has ``deadline_s``.
    """
    began_s = time.monotonic()

    def left_s() -> float:
        return max(1.0, deadline_s - (time.monotonic() - began_s))

    async def spark_again() -> Answer | None:
        in_s = deadline_s - (time.monotonic() - began_s)
        return await spark(deadline_s=in_s) if in_s > 0 else None

    show_step(f"asking {_shown(url)}")
    await check_page(url, timeout_s=min(TIMEOUT_S, deadline_s), reach=reach)
    asked_s, first_s = time.monotonic(), left_s()
    if (found := await spark(deadline_s=first_s)) is not None:
        return found
    is_slow = time.monotonic() - asked_s >= min(TIMEOUT_S, first_s)
    try:
        return await read(deadline_s=left_s())
    except TargetUnavailableError as error:
        if not is_slow:
            raise
        if (found := await spark_again()) is not None:
            return found
        raise TargetUnavailableError(
            url=parse_target_url(url).shown, reason=f"{error.reason}, nor to Spark's /api/v1/version"
        ) from None
    except TargetProtocolError as error:
        if is_slow and (found := await spark_again()) is not None:
            return found
        timeout_s = max(0.0, min(TIMEOUT_S, deadline_s - (time.monotonic() - began_s)))
        ask = partial(ask_once, timeout_s=timeout_s, reach=reach)
        raise await better_error(error, url, ask, reach=reach, timeout_s=timeout_s) from None


async def _read_at(
    url: str,
    *,
    job: str | None,
    show_step: ShowStep,
    is_quick: bool,
    deadline_s: float,
    join: Join | None,
    reach: Reach,
) -> Answer:
    async with open_transport(url, timeout_s=min(TIMEOUT_S, deadline_s), reach=reach) as transport:
        clock = WallClock()
        paced = PacedTransport(transport, monotonic_s=clock.monotonic_s, sleep=clock.sleep)
        return await answer_of(
            paced,
            job=job,
            show_step=show_step,
            clock=clock,
            sleep=clock.sleep,
            is_quick=is_quick,
            deadline_s=deadline_s,
            join=join,
        )


async def answer_of(
    transport: FlinkTransport,
    *,
    job: str | None,
    show_step: ShowStep,
    clock: Clock,
    sleep: Sleep,
    is_quick: bool = False,
    deadline_s: float = TOTAL_S,
    join: Join | None = None,
) -> Answer:
    """Read the target several times with pauses, and diagnose its jobs. This raises the same errors as ``run``."""
    began_s = clock.monotonic_s()
    time_left = TimeLeft(deadline_s, clock.monotonic_s)
    requests = Requests(
        transport, now=clock.now(), monotonic_s=clock.monotonic_s, budget_count=REQUESTS_MAX, sleep=sleep
    )
    entries = parse.jobs_overview(await requests.get(flink.JOBS_OVERVIEW))
    wanted = wanted_jobs(entries, job=job)
    readings = Readings(
        OnlyJobs(transport, frozenset(e.engine_run_id for e in wanted)),
        clock=clock,
        sleep=sleep,
        show_step=show_step,
        time_left=time_left,
    )
    await readings.take(has_running=any(e.state not in _AT_REST for e in wanted), is_quick=is_quick)
    readings.count_unread(wanted)
    show_step("working out the verdicts and the advice")
    jobs = tuple(sorted(_job_answers(readings, join), key=_worst_first))
    return Answer(
        url=transport.url,
        engine=readings.engine,
        jobs=jobs,
        problems=tuple(dict.fromkeys(readings.problems)),
        limits=readings.limits,
        unread_count=readings.unread_count,
        request_count=readings.request_count,
        took_s=clock.monotonic_s() - began_s,
        as_of=readings.as_of,
    )


def wanted_jobs(entries: Sequence[JobEntry], *, job: str | None) -> tuple[JobEntry, ...]:
    """Return the jobs to diagnose: the running ones or, if no job runs, the newest ended ones.

    If ``job`` is not None, only jobs with this name or id are returned.

    Raises:
        InvalidInputError: no job has this name or id; the message lists the names.
    """
    if job is not None:
        named = [e for e in entries if job in (e.name, e.engine_run_id)]
        if not named:
            names = sorted({e.name for e in entries})
            more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
            allowed = ", ".join(names[:_NAMES_MAX]) + more if names else "there is no job at all"
            problem = FieldProblem("--job", f"no job is called {job!r}", allowed)
            raise InvalidInputError([problem], what="option")
        entries = named
    running = tuple(e for e in entries if e.state is not JobState.ENDED)
    if running:
        return running
    newest: dict[str, JobEntry] = {}
    for entry in sorted(entries, key=lambda e: e.started_at, reverse=True):
        newest.setdefault(entry.name, entry)
    return tuple(newest.values())[:ENDED_MAX]


def _job_answers(readings: Readings, join: Join | None) -> Iterator[JobAnswer]:
    without_advice: list[str] = []
    for gathered in readings.jobs.values():
        evidence, last = gathered.evidence(readings.kind, readings.version), gathered.last
        if join is not None:
            evidence = join(last, evidence)
        if readings.is_cut(gathered):
            evidence = _of_headers(evidence)
        if gathered.is_readable:
            diagnosis = diagnose(evidence)
        else:
            without = without_data.diagnosis_of(last.state, last.engine_state, next(iter(last.problems), None))
            if without is None:
                readings.unread_count += 1
                continue
            diagnosis = without
        advice = _NO_ADVICE
        if readings.time_left.is_over:
            without_advice.append(last.name)
        else:
            advice = advise(evidence, engine=readings.kind, version=readings.version)
        yield _job_answer(gathered, evidence, diagnosis, advice, readings.kind)
    if without_advice:
        readings.limits += (readings.time_left.without_advice(without_advice),)


def _worst_first(job: JobAnswer) -> tuple[int, str]:
    """Return the sort key of a job: the order of the fleet."""
    found = job.diagnosis
    return urgency_key(found.health, found.verdict.kind, debt_ms=job.debt_ms, has_ended=job.has_ended), job.name


def _of_headers(evidence: JobEvidence) -> JobEvidence:
    """Return the evidence without what is known of open checkpoints.

    Who has not acknowledged an open checkpoint yet says nothing of the cause without the checkpoints that have ended.
    """
    checkpoints = tuple(c if c.header.status.is_terminal else replace(c, details=()) for c in evidence.checkpoints)
    return replace(evidence, checkpoints=checkpoints, late_barriers={})


def _job_answer(
    gathered: Gathered, evidence: JobEvidence, diagnosis: Diagnosis, advice: Advice, engine: EngineCapabilities
) -> JobAnswer:
    last = gathered.last
    headers = [c.header for c in evidence.checkpoints]
    run = RunFacts(
        started_at=last.started_at,
        counts=evidence.counts,
        headers=headers,
        config=evidence.config,
        restores_savepoints=engine.restores_savepoints,
    )
    debt = None if last.state in (JobState.ENDED, JobState.UNREADABLE) else debt_of(run)
    return JobAnswer(
        name=gathered.last.name,
        engine_state=gathered.last.engine_state,
        mode=mode_of(evidence.config),
        is_batch=evidence.topology.is_batch is True,
        is_advised=advice is not _NO_ADVICE,
        diagnosis=diagnosis,
        is_read=gathered.is_readable or gathered.last.state is not JobState.UNREADABLE,
        has_ended=last.state is JobState.ENDED,
        considered_count=considered_count(evidence),
        as_of=gathered.as_of,
        debt=debt,
        debt_ms=None if debt is None else debt.age_ms(evidence.now),
        input_per_s=input_per_s(evidence),
        advice=advice,
    )


def _shown(url: str) -> str:
    # An address that is not parsed yet may contain credentials before the @, so only the part after it is shown.
    return url.rpartition("@")[2][:200]
