"""Which jobs that push have gone silent: nobody reads them, so nothing but their own word tells that they live.

A listener gives a sign of life every ten seconds, however long a batch takes. A driver that was killed, hangs or
cannot reach Barrierscope gives none; after ``SILENT_AFTER`` its job is shown as silent, never as running and healthy.
How old the last word is, is told by the driver's own clock, set against ours when it pushed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis import sentences as say
from backend.domain.observation import JobState
from backend.store.jobs.reader import JobRecord, list_current
from backend.store.targets.targets import TargetRecord

SILENT_AFTER = timedelta(seconds=90)
"""Nine signs of life missed; and a listener that found us away comes back within 78 s."""


def silence_of(record: JobRecord, now: datetime) -> timedelta | None:
    """For how long a job that should tell of itself has not; None where that is nothing to wonder at."""
    run = record.run
    if not run.engine.is_pushed or run.state is JobState.ENDED or record.target_state not in ("ok", "silent"):
        return None
    silent_for = record.engine_now(now) - run.observed_at
    return silent_for if silent_for > SILENT_AFTER else None


def as_heard(record: JobRecord, now: datetime) -> JobRecord:
    """The job as it is known now: what a silent one does is not known, whatever it told last."""
    if silence_of(record, now) is None:
        return record
    return replace(record, target_state="silent", run=replace(record.run, state=JobState.UNKNOWN))


def targets_as_heard(
    targets: Sequence[TargetRecord], records: Sequence[JobRecord], now: datetime
) -> list[TargetRecord]:
    """The targets, those silent of which a job is; ``records`` are the jobs as they are stored."""
    silent: dict[str, list[tuple[timedelta, str]]] = {}
    for record in records:
        if (silent_for := silence_of(record, now)) is not None:
            silent.setdefault(record.run.target_id, []).append((silent_for, record.name))
    return [_silent(t, silent[t.id], now) if t.id in silent and t.state == "ok" else t for t in targets]


async def hear(connection: AsyncConnection, targets: Sequence[TargetRecord], now: datetime) -> list[TargetRecord]:
    """``targets_as_heard`` of the jobs that are stored; asks for them only where a target pushes."""
    if not any(t.origin == "push" and t.state == "ok" for t in targets):
        return list(targets)
    return targets_as_heard(targets, await list_current(connection), now)


def _silent(target: TargetRecord, found: list[tuple[timedelta, str]], now: datetime) -> TargetRecord:
    longest = max(silent_for for silent_for, _ in found)
    names = say.listed(sorted(name for _, name in found))
    reason = f"the driver of {names} has sent nothing for {say.duration(longest / timedelta(milliseconds=1))}"
    return replace(target, state="silent", reason=reason, since=now - longest)
