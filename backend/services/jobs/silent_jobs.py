"""Finds silent jobs among those that push. Nothing polls such jobs, so only their own events show that they run.

A listener sends an event every ten seconds, however long a batch takes. A driver that was killed, hangs or cannot reach
Barrierscope sends none. After ``SILENT_AFTER`` its job is shown as silent, never as running and healthy. The age of the
last event is measured on the driver's clock, whose offset from ours is known from its last push.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis import sentences as say
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin, TargetState
from backend.store.jobs.reader import JobRecord, list_current
from backend.store.targets.targets import TargetRecord

SILENT_AFTER = timedelta(seconds=90)
"""Nine missed events. A listener that could not reach us tries again within 78 s, so it does not count as silent."""

_HEARD = (TargetState.OK, TargetState.SILENT)


def silence_of(record: JobRecord, now: datetime) -> timedelta | None:
    """Return how long a job that pushes has sent nothing; None if it is not silent, has ended or need not push."""
    run = record.run
    if not run.engine.is_pushed or run.state is JobState.ENDED or record.target_state not in _HEARD:
        return None
    silent_for = record.engine_now(now) - run.observed_at
    return silent_for if silent_for > SILENT_AFTER else None


def as_heard(record: JobRecord, now: datetime) -> JobRecord:
    """Return the job as of now: if it is silent, its target is ``silent`` and its state unknown."""
    if silence_of(record, now) is None:
        return record
    return replace(record, target_state=TargetState.SILENT, run=replace(record.run, state=JobState.UNKNOWN))


def targets_as_heard(
    targets: Sequence[TargetRecord], records: Sequence[JobRecord], now: datetime
) -> list[TargetRecord]:
    """Return the targets; one with a silent job is ``silent``. ``records`` are the jobs as stored."""
    silent: dict[str, list[tuple[timedelta, str]]] = {}
    for record in records:
        if (silent_for := silence_of(record, now)) is not None:
            silent.setdefault(record.run.target_id, []).append((silent_for, record.name))
    return [_silent(t, silent[t.id], now) if t.id in silent and t.state is TargetState.OK else t for t in targets]


async def hear(connection: AsyncConnection, targets: Sequence[TargetRecord], now: datetime) -> list[TargetRecord]:
    """Apply ``targets_as_heard`` to the stored jobs; reads these only if a target pushes."""
    if not any(t.origin is TargetOrigin.PUSH and t.state is TargetState.OK for t in targets):
        return list(targets)
    return targets_as_heard(targets, await list_current(connection), now)


def _silent(target: TargetRecord, found: list[tuple[timedelta, str]], now: datetime) -> TargetRecord:
    longest = max(silent_for for silent_for, _ in found)
    names = say.listed(sorted(name for _, name in found))
    reason = f"the driver of {names} has sent nothing for {say.duration(longest / timedelta(milliseconds=1))}"
    return replace(target, state=TargetState.SILENT, reason=reason, since=now - longest)
