"""Reads the ``JobEvidence`` of many jobs with a fixed number of queries, and returns the finding on each job.

A finding is the diagnosis of a job, the advice on it and what the fleet board shows of it. It is computed by the
process that stores the job's data (``Judge``), or else by the first process that needs it, and stored. The API, the
alerts, the fleet board and the advice of all processes then read the stored finding, until something that it depends on
changes: the run, its ended checkpoints and their details, the settings or the restarts. The readings of backpressure
and the age of an open checkpoint change all the time, so they count in steps of ``_STEP_S`` seconds. Of a run that has
ended, the readings of its checkpoint folder count too, in steps of ``_KEPT``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar
from zlib import crc32

import anyio.to_thread
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.advisor.tier_choice import TierChoice
from backend.analysis import assembling
from backend.analysis.assembling import EVIDENCE_COUNT, RunAt
from backend.analysis.health.outliers import reading_spans
from backend.analysis.health.struck_spans import struck_spans
from backend.analysis.measures.evidence import JobEvidence, OtherRun
from backend.analysis.queries import verdict_micro_batch
from backend.analysis.verdict import without_data
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, LateBarrier
from backend.domain.clock import Clock
from backend.domain.ids import JobId
from backend.domain.losses import Loss
from backend.domain.observation import JobState
from backend.domain.pod_ends import PodEnd
from backend.domain.pressure import on_clock
from backend.services.jobs.findings import (
    Finding,
    SettingsTaken,
    choice_from,
    document_of,
    finding_from,
    finding_of,
    fingerprint_of,
)
from backend.services.jobs.large_jobs import LARGE, is_large_job, read_between, read_newest, with_details
from backend.services.jobs.silent_jobs import as_heard
from backend.store.advice.choices import choices_of
from backend.store.checkpoints.micro_batches import batches_of
from backend.store.checkpoints.reader import CheckpointRecord, details_of, late_barriers_of, list_around, recent_of_runs
from backend.store.jobs.checkpoint_folders import folder_times_of_queries, folders_of_queries, query_of
from backend.store.jobs.findings import FindingRecord, findings_of, keep_findings, lock_findings
from backend.store.jobs.other_runs import other_runs_of
from backend.store.jobs.pressure import Readings, newest_reading_at
from backend.store.jobs.reader import (
    JobRecord,
    RunRecord,
    RunShape,
    config_since,
    newest_exceptions,
    newest_losses,
    newest_pod_ends,
    newest_shapes,
    shape_at,
)
from backend.store.schema.partitions import day_of

_log = structlog.get_logger(__name__)

_LOOK_BACK = timedelta(days=8)
# The finding on a run that has not ended is computed again after this time even if nothing is known to have changed.
_KEPT = timedelta(minutes=5)
# Backpressure is judged by averages over two minutes, so a finding need not follow every reading.
_STEP_S = 30
# Findings are computed and stored for at most this many jobs at a time. The runs of these jobs are locked meanwhile.
_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class JobHead:
    """A job with its newest checkpoints (oldest first), its graph and settings.

    ``open_checkpoint`` is the newest checkpoint that was in progress and not lost when the job was read, or None. It
    does not follow from the other fields, because ``record`` may be newer than the checkpoints.
    """

    record: JobRecord
    shape: RunShape
    headers: tuple[CheckpointRecord, ...]
    open_checkpoint: CheckpointRecord | None


@dataclass(frozen=True, slots=True)
class JobCase(JobHead):
    """A job with the finding as well."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class RecalledJob(JobHead):
    """A job with the newest finding that is stored, or None.

    ``is_current`` is whether the finding is still valid. It is not valid if the data on which it depends has changed
    since.
    """

    finding: Finding | None
    is_current: bool


@dataclass(frozen=True, slots=True)
class _Kept:
    fingerprint: str
    found_at: datetime
    finding: Finding


def settings_taken_at(records: Sequence[CheckpointRecord], changed_at: datetime | None) -> SettingsTaken | None:
    """Return when the current settings were first seen, and the first trigger under them.

    Return None if no change of the settings was seen (``changed_at`` is None).
    """
    ended = [(r.observed_at, r.header.triggered_at) for r in records if r.header.status.is_terminal]
    first = assembling.first_trigger_under(changed_at, ended)
    return None if changed_at is None or first is None else SettingsTaken(changed_at, first)


def _open_one(record: JobRecord, headers: Sequence[CheckpointRecord]) -> CheckpointRecord | None:
    opened = (h for h in reversed(headers) if not h.header.status.is_terminal)
    return next((h for h in opened if not is_lost(h, record.run)), None)


def is_lost(record: CheckpointRecord, run: RunRecord) -> bool:
    """Return whether an open checkpoint is lost: its end will never be reported."""
    # The end of a run that the engine no longer lists is not known, but the run has ended.
    has_ended = run.state is JobState.ENDED or run.ended_at is not None
    return assembling.is_lost(record.header, has_run_ended=has_ended, unseen_for=run.observed_at - record.observed_at)


class EvidenceReader:
    """Reads the evidence on jobs and analyses it. Each process has one instance."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The findings that this process has read or computed, so that it need not read them again.
        self._kept: dict[JobId, _Kept] = {}
        self._refusal: str | None = None

    async def cases(self, connection: AsyncConnection, records: Sequence[JobRecord]) -> list[JobCase]:
        """Return each job with its finding, in the order of ``records``, as of now."""
        now = self._clock.now()
        return [case_now(case, now) for case in await self.stored_cases(connection, records)]

    async def stored_cases(self, connection: AsyncConnection, records: Sequence[JobRecord]) -> list[JobCase]:
        """Return each job with its finding. Unlike ``cases``, do not check whether the job is silent now."""
        return await self.cases_of(connection, await self.heads(connection, records))

    async def cases_of(self, connection: AsyncConnection, heads: Sequence[JobHead]) -> list[JobCase]:
        """Return jobs that were read already, each with its finding.

        The connection must come from ``reading``: findings that are not stored yet are computed, stored and committed
        on it.
        """
        asked = await self._asked(connection, heads)
        findings: dict[JobId, Finding] = {}
        unknown = await self._recall(connection, asked, findings)
        for begin in range(0, len(unknown), _AT_ONCE):
            await self._find(connection, unknown[begin : begin + _AT_ONCE], findings)
        return [JobCase(h.record, h.shape, h.headers, h.open_checkpoint, findings[h.record.id]) for h in heads]

    async def recalled(self, connection: AsyncConnection, records: Sequence[JobRecord]) -> list[RecalledJob]:
        """Return each job with its stored finding, or with None if there is none. No finding is computed."""
        heads = await self.heads(connection, records)
        findings: dict[JobId, Finding] = {}
        outdated: dict[JobId, Finding] = {}
        unknown = {
            a.record.id
            for a in await self._recall(connection, await self._asked(connection, heads), findings, outdated)
        }
        return [
            RecalledJob(
                h.record,
                h.shape,
                h.headers,
                h.open_checkpoint,
                findings.get(h.record.id, outdated.get(h.record.id)),
                h.record.id not in unknown,
            )
            for h in heads
        ]

    async def heads(self, connection: AsyncConnection, records: Sequence[JobRecord]) -> list[JobHead]:
        """Read each job from the store, without its finding. The order is that of ``records``."""
        run_ids = [r.run.id for r in records]
        since = day_of(min((r.run.observed_at for r in records), default=self._clock.now()) - _LOOK_BACK)
        headers = await recent_of_runs(connection, run_ids, limit=EVIDENCE_COUNT, since=since)
        shapes = await newest_shapes(connection, run_ids)
        return [
            JobHead(r, shapes[r.run.id], tuple(headers[r.run.id]), _open_one(r, headers[r.run.id])) for r in records
        ]

    async def _asked(self, connection: AsyncConnection, heads: Sequence[JobHead]) -> list[_Asked]:
        read_at = await newest_reading_at(connection, {h.record.run.id: h.record.run.observed_at for h in heads})
        now = self._clock.now()
        # The finding on a run that goes on is computed again anyway, so it follows the folder without this.
        runs = [h.record.run for h in heads if h.record.run.ended_at is not None]
        queries = {run.id: query for run in runs if (query := query_of(run)) is not None}
        times = await folder_times_of_queries(connection, sorted(set(queries.values())))
        folders = {run_id: times[query] for run_id, query in queries.items() if query in times}
        asked = []
        for head in heads:
            run_id = head.record.run.id
            read, folder = read_at.get(run_id), folders.get(run_id, ())
            asked.append(_Asked(head.record, head.shape, head.headers, read, now, folder))
        return asked

    async def _recall(
        self,
        connection: AsyncConnection,
        asked: Sequence[_Asked],
        findings: dict[JobId, Finding],
        outdated: dict[JobId, Finding] | None = None,
    ) -> list[_Asked]:
        """Add to ``found`` the findings that this process has or that are stored. Return the jobs without a finding.

        Findings that no longer hold are added to ``outdated``, if it is given.
        """
        unknown: list[_Asked] = []
        for one in asked:
            kept = self._kept.get(one.record.id)
            if kept is not None and one.is_answered_by(kept.fingerprint, kept.found_at):
                findings[one.record.id] = kept.finding
            else:
                unknown.append(one)
        stored = await findings_of(connection, [a.record.run.id for a in unknown]) if unknown else {}
        for one in unknown:
            row = stored.get(one.record.run.id)
            if row is None:
                continue
            is_current = one.is_answered_by(row.fingerprint, row.found_at)
            finding = finding_from(row.document) if is_current or outdated is not None else None
            if finding is None:
                continue
            if is_current:
                self._kept[one.record.id] = _Kept(row.fingerprint, row.found_at, finding)
                findings[one.record.id] = finding
            elif outdated is not None:
                outdated[one.record.id] = finding
        return [a for a in unknown if a.record.id not in findings]

    async def _find(self, connection: AsyncConnection, asked: Sequence[_Asked], findings: dict[JobId, Finding]) -> None:
        """Compute findings, store them, and add them to ``found``.

        If another process needs one of these findings meanwhile, it waits until they are stored, and then reads them.
        If the findings cannot be stored, only this process has them.
        """
        if await lock_findings(connection, [a.record.run.id for a in asked]):
            asked = await self._recall(connection, asked, findings)
        if asked:
            evidence = await _evidence(connection, asked, self._clock.now())
            changed = await config_since(connection, [a.record.run.id for a in asked])
            choices = await choices_of(connection, [a.record.run.id for a in asked])
            work = [
                (
                    evidence[a.record.id],
                    a.record,
                    settings_taken_at(a.headers, changed.get(a.record.run.id)),
                    choice_from(choices.get(a.record.run.id)),
                )
                for a in asked
            ]
            # The analysis takes some milliseconds per job, so it runs outside the event loop.
            computed = await anyio.to_thread.run_sync(_findings, work)
            rows = []
            for one, finding in zip(asked, computed, strict=True):
                findings[one.record.id] = finding
                self._kept[one.record.id] = _Kept(one.fingerprint, one.now, finding)
                rows.append(FindingRecord(one.record.run.id, one.fingerprint, one.now, document_of(finding)))
            self._note_refusal(await keep_findings(connection, rows))
        else:
            # The locks are released.
            await connection.commit()

    def _note_refusal(self, reason: str | None) -> None:
        """Log that findings cannot be stored: only once, until they can be stored again."""
        if reason is not None and self._refusal is None:
            _log.warning("findings are not stored; each process computes its own", reason=reason)
        self._refusal = reason

    async def of_checkpoint(
        self,
        connection: AsyncConnection,
        job: JobRecord,
        run: RunRecord,
        record: CheckpointRecord,
        *,
        is_judged: bool = False,
        vertices: Sequence[str] = (),
    ) -> JobEvidence:
        """Read the evidence for the verdict on one checkpoint.

        It contains this checkpoint, earlier ones, and the readings of backpressure from around the time when it was
        open. If ``is_judged``, the verdict is known, and only this checkpoint is read, with the details of ``vertices``
        unless these are empty.
        """
        header = record.header
        is_large = header.subtask_count > LARGE
        around = [record]
        if not is_judged:
            around = await list_around(connection, record, before=EVIDENCE_COUNT, after=0)
        late = await late_barriers_of(connection, [run.id], around[0].header.triggered_at)
        readings: Readings = ()
        if not is_judged:
            since, until = assembling.readings_around(header, job.engine_now(self._clock.now()))
            since, until = since - job.reading_offset, until - job.reading_offset
            readings = await read_between(connection, run.id, since, until, is_large=is_large)
        if not readings and not is_judged:
            read_at = await newest_reading_at(connection, {run.id: run.observed_at})
            large = {run.id} if is_large else set()
            readings = (await read_newest(connection, read_at, large)).get(run.id, ())
        shape = await shape_at(connection, run.id, header.triggered_at - job.reading_offset)
        detailed = around if vertices else with_details(around)
        details = await details_of(connection, [r.place for r in detailed], vertices=vertices, is_large=is_large)
        batches = await batches_of(connection, [r.place for r in around] if run.engine.is_micro_batched else [])
        exceptions = await newest_exceptions(connection, [run.id])
        losses = await newest_losses(connection, [run.id])
        ends = await newest_pod_ends(connection, [run.id])
        known = run_at(
            job, run, shape, exceptions.get(run.id, ()), losses=losses.get(run.id, ()), ends=ends.get(run.id, ())
        )
        evidence = known.evidence(
            now=job.engine_now(self._clock.now()),
            checkpoints=[
                Checkpoint(r.header, details.get(r.place, ()), batches.get(r.place))
                for r in around
                if not is_lost(r, run)
            ],
            readings=readings,
            late=late.get(run.id),
            ahead=job.reading_offset,
        )
        own = next((c for c in evidence.checkpoints if c.header == header), None)
        return evidence if own is None or is_judged else await _with_neighbours(connection, job, run, evidence, own)

    async def of_finding(self, connection: AsyncConnection, job: JobRecord) -> tuple[JobEvidence, SettingsTaken | None]:
        """Read the evidence from which the finding on a job is computed, and when its current settings were taken."""
        asked = await self._asked(connection, await self.heads(connection, [job]))
        evidence = await _evidence(connection, asked, self._clock.now())
        changed = await config_since(connection, [job.run.id])
        return evidence[job.id], settings_taken_at(asked[0].headers, changed.get(job.run.id))

    async def under_current_settings(self, connection: AsyncConnection, job: JobRecord) -> JobEvidence:
        """Read the evidence for a model of a job: the newest checkpoints that the current settings governed.

        It has the readings of backpressure of their time, but at most those of the newest ``MODEL_WINDOW``.
        """
        run, since = job.run, day_of(job.run.observed_at - _LOOK_BACK)
        recent = (await recent_of_runs(connection, [run.id], limit=EVIDENCE_COUNT, since=since))[run.id]
        changed = (await config_since(connection, [run.id])).get(run.id)
        taken = settings_taken_at(recent, changed)
        first = None if taken is None else taken.first_trigger_at
        kept = [r for r in recent if assembling.is_governed(r.header, first)]
        shape = (await newest_shapes(connection, [run.id]))[run.id]
        is_large = is_large_job(shape.topology)
        read_at = (await newest_reading_at(connection, {run.id: run.observed_at})).get(run.id)
        readings: Readings = ()
        late: Mapping[int, tuple[LateBarrier, ...]] = {}
        if kept and read_at is not None:
            offset, end = job.reading_offset, read_at + timedelta(seconds=1)
            begin = assembling.model_readings_since(kept[0].header, read_at + offset) - offset
            readings = await read_between(connection, run.id, begin, end, is_large=is_large)
        if kept:
            late = (await late_barriers_of(connection, [run.id], kept[0].header.triggered_at)).get(run.id, {})
        details = await details_of(connection, [r.place for r in with_details(kept)], is_large=is_large)
        exceptions = (await newest_exceptions(connection, [run.id])).get(run.id, ())
        losses = (await newest_losses(connection, [run.id])).get(run.id, ())
        ends = (await newest_pod_ends(connection, [run.id])).get(run.id, ())
        return run_at(job, run, shape, exceptions, losses=losses, ends=ends).evidence_on_job(
            now=job.engine_now(self._clock.now()),
            checkpoints=[Checkpoint(r.header, details.get(r.place, ())) for r in kept if not is_lost(r, run)],
            readings=readings,
            late=late,
            ahead=job.reading_offset,
        )

    def forget_others(self, job_ids: Iterable[JobId]) -> None:
        """Discard the cached findings of all other jobs."""
        wanted = set(job_ids)
        self._kept = {job_id: kept for job_id, kept in self._kept.items() if job_id in wanted}


Found = TypeVar("Found", JobCase, RecalledJob)


def case_now(case: Found, now: datetime) -> Found:
    """Return the case as of now.

    If the job is silent, starts, or cannot be read, its verdict is replaced by one that reports only this, because the
    job's last state may be outdated.
    """
    record = as_heard(case.record, now)
    if record is case.record:
        run = record.run
        diagnosis = without_data.diagnosis_of(run.state, run.engine_state, next(iter(run.problems), None))
    else:
        diagnosis = verdict_micro_batch.silent(record.run.observed_at)
    if case.finding is None or diagnosis is None:
        return case if record is case.record else replace(case, record=record)
    return replace(case, record=record, finding=replace(case.finding, diagnosis=diagnosis))


class _Asked:
    """A job whose finding is needed, with the values on which the finding depends."""

    def __init__(
        self,
        record: JobRecord,
        shape: RunShape,
        headers: tuple[CheckpointRecord, ...],
        read_at: datetime | None,
        now: datetime,
        folders_read_at: Sequence[datetime],
    ) -> None:
        self.record = record
        self.shape = shape
        self.headers = headers
        self.read_at = read_at
        self.now = now
        self.folders_read_at = folders_read_at
        self.fingerprint = self._fingerprint()

    def is_answered_by(self, fingerprint: str, found_at: datetime) -> bool:
        """Return whether a finding with this fingerprint, computed at this time, is still valid."""
        is_young = self.record.run.ended_at is not None or abs(self.now - found_at) <= _KEPT
        return fingerprint == self.fingerprint and is_young

    def _fingerprint(self) -> str:
        run = self.record.run
        # The details of a checkpoint may be stored later than its end. Its largest durations are stored together with
        # the details, so they show whether the details have arrived.
        ended = tuple(
            (h.header.checkpoint_id, h.triggered_on, h.start_delay_max_ms, h.async_max_ms)
            for h in self.headers
            if h.header.status.is_terminal
        )
        is_open = any(not h.header.status.is_terminal and not is_lost(h, run) for h in self.headers)
        settings = (self.shape.config, self.shape.cluster_settings)
        state = (run.id, run.state, run.restart_count, run.failed_unlisted_count, settings, ended)
        read = None if self.read_at is None else step_of(run.id, self.read_at)
        # Each reading of a folder that counts, in steps of the time for which other findings are kept.
        new = [at for at in self.folders_read_at if assembling.is_folder_new(at, self.now)]
        folders = [int(at.timestamp() // _KEPT.total_seconds()) for at in new]
        return fingerprint_of(*state, read, step_of(run.id, self.now) if is_open else None, *folders)


def step_of(run_id: str, instant: datetime) -> int:
    """Return the number of the ``_STEP_S`` interval of this run that contains ``instant``.

    The intervals of different runs begin at different times, so that not all findings become due at once.
    """
    return (int(instant.timestamp()) + crc32(run_id.encode()) % _STEP_S) // _STEP_S


def run_at(
    job: JobRecord,
    run: RunRecord,
    shape: RunShape,
    exceptions: tuple[tuple[datetime, str], ...] = (),
    other_runs: tuple[OtherRun, ...] = (),
    losses: tuple[Loss, ...] = (),
    ends: tuple[PodEnd, ...] = (),
) -> RunAt:
    """Return what is known of one run of a job, as it was last read."""
    return RunAt(
        topology=shape.topology,
        config=shape.config,
        cluster_settings=shape.cluster_settings,
        counts=run.counts,
        counted_at=run.observed_at + job.reading_offset,
        failed_unlisted_count=run.failed_unlisted_count,
        placements=run.placements,
        exceptions=exceptions,
        other_runs=other_runs,
        losses=losses,
        pod_ends=ends,
        restart_count=run.restart_count,
        state=run.state,
        engine_state=run.engine_state,
        started_at=run.started_at,
        engine=run.engine,
        engine_version=job.engine_version,
    )


async def _evidence(connection: AsyncConnection, asked: Sequence[_Asked], now: datetime) -> dict[JobId, JobEvidence]:
    records = [a.record for a in asked]
    run_ids = [r.run.id for r in records]
    usable = {a.record.run.id: [h for h in a.headers if not is_lost(h, a.record.run)] for a in asked}
    shapes = {a.record.run.id: a.shape for a in asked}
    places = [h.place for rows in usable.values() for h in rows]
    detailed = [h.place for rows in usable.values() for h in with_details(rows)]
    large: set[str] = {a.record.run.id for a in asked if is_large_job(a.shape.topology)}
    details = await details_of(connection, detailed, is_large=bool(large))
    batched = {r.run.id for r in records if r.run.engine.is_micro_batched}
    batches = await batches_of(connection, [p for p in places if p.run_id in batched])
    oldest = min((h.header.triggered_at for rows in usable.values() for h in rows), default=now)
    late = await late_barriers_of(connection, run_ids, oldest)
    read_at: dict[str, datetime] = {a.record.run.id: a.read_at for a in asked if a.read_at is not None}
    readings = await read_newest(connection, read_at, large)
    exceptions = await newest_exceptions(connection, run_ids)
    losses = await newest_losses(connection, run_ids)
    ends = await newest_pod_ends(connection, run_ids)
    others = await other_runs_of(connection, sorted(batched))
    evidences = {
        r.id: run_at(
            r,
            r.run,
            shapes[r.run.id],
            exceptions.get(r.run.id, ()),
            others.get(r.run.id, ()),
            losses.get(r.run.id, ()),
            ends.get(r.run.id, ()),
        ).evidence_on_job(
            now=r.engine_now(now),
            checkpoints=[
                Checkpoint(h.header, details.get(h.place, ()), batches.get(h.place)) for h in usable[r.run.id]
            ],
            readings=readings.get(r.run.id, ()),
            late=late.get(r.run.id),
            ahead=r.reading_offset,
        )
        for r in records
    }
    queries = {r.id: query for r in records if (query := query_of(r.run)) is not None}
    folders = await folders_of_queries(connection, sorted(set(queries.values())))
    for record in records:
        if record.id in queries:
            read = folders.get(queries[record.id], ())
            evidences[record.id] = assembling.with_folders(evidences[record.id], read, now)
        elif not record.run.engine.is_micro_batched:
            # If a cause strikes only some checkpoints, the newest readings need not show it.
            spans = struck_spans(evidences[record.id])
            evidences[record.id] = await _with_readings_of(connection, record, record.run, evidences[record.id], spans)
    return evidences


async def _with_readings_of(
    connection: AsyncConnection,
    job: JobRecord,
    run: RunRecord,
    evidence: JobEvidence,
    spans: Sequence[tuple[datetime, datetime]],
    before: CheckpointConfig | None = None,
) -> JobEvidence:
    """Add the readings of earlier spans, and ``before``, the settings of their time. No spans change nothing."""
    if not spans:
        return evidence
    offset, is_large = job.reading_offset, is_large_job(evidence.topology)
    rows = [await read_between(connection, run.id, s - offset, u - offset, is_large=is_large) for s, u in spans]
    earlier = on_clock([r for found in rows for r in found], offset)
    return assembling.with_earlier(evidence, earlier, before)


async def _with_neighbours(
    connection: AsyncConnection, job: JobRecord, run: RunRecord, evidence: JobEvidence, own: Checkpoint
) -> JobEvidence:
    """Add what was usual before a checkpoint that took many times as long as its neighbours: readings and settings."""
    spans = () if evidence.is_micro_batched else reading_spans(own, evidence)
    before = await shape_at(connection, run.id, spans[-1][0] - job.reading_offset) if spans else None
    return await _with_readings_of(connection, job, run, evidence, spans, None if before is None else before.config)


_Work = tuple[JobEvidence, JobRecord, SettingsTaken | None, TierChoice | None]


def _findings(work: Sequence[_Work]) -> list[Finding]:
    return [finding_of(*one) for one in work]
