"""Finds the jobs whose checkpoints are all refused, for the alert rules. Most jobs need no query for this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.health.refusals import Refusal, refusal_of
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.checkpoint import Checkpoint
from backend.domain.ids import JobId
from backend.services.jobs.evidence import JobHead, is_lost, run_at
from backend.store.jobs.reader import newest_exceptions


async def refusals_of(connection: AsyncConnection, jobs: Sequence[JobHead]) -> Mapping[JobId, Refusal]:
    """Return which of these jobs have all their checkpoints refused, and for how long."""
    heads = {job.record.id: job for job in jobs}
    refusals = {job_id: refusal for job_id, h in heads.items() if (refusal := refusal_of(_run_evidence(h))) is not None}
    # A restart is read only for these few jobs. Until then, checkpoints were refused before it.
    runs = [heads[job_id].record.run.id for job_id in refusals]
    exceptions = await newest_exceptions(connection, runs) if runs else {}
    checked = {
        job_id: refusal_of(_run_evidence(heads[job_id], exceptions.get(heads[job_id].record.run.id, ())))
        for job_id in refusals
    }
    return {job_id: refusal for job_id, refusal in checked.items() if refusal is not None}


def _run_evidence(head: JobHead, exceptions: tuple[tuple[datetime, str], ...] = ()) -> JobEvidence:
    """Return what shows whether checkpoints are refused."""
    job = head.record
    return run_at(job, job.run, head.shape, exceptions).evidence_on_job(
        now=job.read_at_engine,
        checkpoints=[Checkpoint(h.header) for h in head.headers if not is_lost(h, job.run)],
    )
