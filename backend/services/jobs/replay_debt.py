"""Computes the replay debt of a job as of now, with the records and the catch-up time that follow from its load."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from backend.advisor.twin.model.outages import RESTART_MS
from backend.analysis.measures.replay_debt import RunFacts, debt_of
from backend.contracts.replay_debt import ReplayDebtOut
from backend.domain.observation import JobState
from backend.domain.replay_debt import ReplayDebt
from backend.services.jobs.evidence import JobHead
from backend.services.jobs.findings import Finding
from backend.store.jobs.reader import JobRecord


class DebtFields(TypedDict):
    """The fields of ``WithReplayDebt``."""

    replay_debt: ReplayDebtOut | None
    replay_debt_ms: float | None
    replay_debt_records: float | None
    replay_debt_catch_up_ms: float | None


def debt_of_job(head: JobHead) -> ReplayDebt | None:
    """Return what a failure of the job's current run would restore; None if this is not known, or if it has ended."""
    run = head.record.run
    if run.state is JobState.ENDED:
        return None
    headers = [h.header for h in head.headers]
    facts = RunFacts(
        started_at=run.started_at,
        counts=run.counts,
        headers=headers,
        config=head.shape.config,
        restores_savepoints=run.engine.restores_savepoints,
    )
    return debt_of(facts)


def debt_fields(head: JobHead, finding: Finding | None, now: datetime) -> DebtFields:
    """Return the job's debt as of its newest reading. ``finding`` has the load of the job, if it is known."""
    debt = debt_of_job(head)
    if debt is None:
        return aged_debt(None, head.record, now)
    out = ReplayDebtOut(
        since=debt.since,
        origin=debt.origin,
        checkpoint_id=debt.checkpoint_id,
        is_at_least=debt.is_at_least,
        input_per_s=None if finding is None else finding.input_per_s,
        use_ratio=None if finding is None else finding.use_ratio,
    )
    return aged_debt(out, head.record, now)


def aged_debt(debt: ReplayDebtOut | None, record: JobRecord, now: datetime) -> DebtFields:
    """Return the debt with its age when the job was last read, and what follows from that.

    The age does not grow with ``now`` if the job is read no more: a checkpoint that nobody saw may have completed.
    """
    if debt is None:
        return DebtFields(replay_debt=None, replay_debt_ms=None, replay_debt_records=None, replay_debt_catch_up_ms=None)
    seen = min(record.engine_now(now), record.read_at_engine)
    age_ms = max(0.0, (seen - debt.since).total_seconds() * 1000)
    use = debt.use_ratio
    is_free = use is not None and use < 1
    return DebtFields(
        replay_debt=debt,
        replay_debt_ms=age_ms,
        replay_debt_records=None if debt.input_per_s is None else debt.input_per_s * age_ms / 1000,
        # While the backlog of the outage and of the debt is processed, the share that is not used is free for it.
        replay_debt_catch_up_ms=(RESTART_MS.value + age_ms) * use / (1 - use) if use is not None and is_free else None,
    )
