"""Finds jobs that should push events but have stopped sending them.

Barrierscope does not poll a job that pushes, so only the job's own events show that it runs. The listener in its driver
sends an event every ten seconds, however long a batch takes. A driver that was killed, hangs or cannot reach
Barrierscope sends none. After ``SILENT_AFTER`` without an event, the job is shown as silent, never as running and
healthy. The age of the last event is measured on the driver's clock. The offset between that clock and ours is known
from the last push.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.words import sentences as say
from backend.domain.ids import RunId
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin, TargetState
from backend.store.jobs.channels import unheard_listeners
from backend.store.jobs.reader import JobRecord, list_current
from backend.store.targets.targets import TargetRecord

SILENT_AFTER = timedelta(seconds=90)
"""A job that has sent no event for longer than this is silent.

This is the time of nine events. A listener whose push failed retries within 78 s, so its job does not become silent.
"""

_HEARD = (TargetState.OK, TargetState.SILENT)


def silence_of(record: JobRecord, now: datetime) -> timedelta | None:
    """Return for how long a job has sent no event, or None if it is not silent.

    A job is silent if it pushes, has not ended, and has sent no event for longer than ``SILENT_AFTER``. While its
    target has a state other than OK or silent, such as paused, a job does not count as silent.
    """
    run = record.run
    if not run.engine.is_pushed or run.state is JobState.ENDED or record.target_state not in _HEARD:
        return None
    silent_for = record.engine_now(now) - run.observed_at
    return silent_for if silent_for > SILENT_AFTER else None


def as_heard(record: JobRecord, now: datetime) -> JobRecord:
    """Return the job as it must be shown: if it is silent, with a ``silent`` target and an unknown state."""
    if silence_of(record, now) is None:
        return record
    return replace(record, target_state=TargetState.SILENT, run=replace(record.run, state=JobState.UNKNOWN))


@dataclass(frozen=True, slots=True)
class SilentListener:
    """A listener that has sent nothing for ``silent_for`` about a job whose state another target reports."""

    target_id: str
    job_name: str
    silent_for: timedelta


async def silent_listeners(
    connection: AsyncConnection, records: Sequence[JobRecord], now: datetime
) -> list[SilentListener]:
    """Return the silent listeners of the current runs of these jobs, which other targets report too."""
    names = {record.run.id: record.name for record in records}
    found = await unheard_listeners(connection, names, now - SILENT_AFTER)
    return [SilentListener(target, names[RunId(run)], now - heard_at) for run, target, heard_at in found]


def targets_as_heard(
    targets: Sequence[TargetRecord],
    records: Sequence[JobRecord],
    now: datetime,
    listeners: Sequence[SilentListener] = (),
) -> list[TargetRecord]:
    """Return the targets. A target in state OK that has a silent job or listener gets the state ``silent``.

    ``records`` are the jobs as they are stored.
    """
    silent: dict[str, list[tuple[timedelta, str]]] = {}
    for listener in listeners:
        silent.setdefault(listener.target_id, []).append((listener.silent_for, listener.job_name))
    for record in records:
        if (silent_for := silence_of(record, now)) is not None:
            silent.setdefault(record.run.target_id, []).append((silent_for, record.name))
    return [_silent(t, silent[t.id], now) if t.id in silent and t.state is TargetState.OK else t for t in targets]


async def hear(connection: AsyncConnection, targets: Sequence[TargetRecord], now: datetime) -> list[TargetRecord]:
    """Apply ``targets_as_heard`` with the stored jobs.

    The jobs are read only if at least one target in state OK receives pushes.
    """
    if not _has_push(targets):
        return list(targets)
    return await hear_of(connection, targets, await list_current(connection), now)


async def hear_of(
    connection: AsyncConnection, targets: Sequence[TargetRecord], records: Sequence[JobRecord], now: datetime
) -> list[TargetRecord]:
    """Apply ``targets_as_heard`` with these jobs, and with the listeners of jobs whose state another target reports."""
    listeners = await silent_listeners(connection, records, now) if _has_push(targets) else []
    return targets_as_heard(targets, records, now, listeners)


def _has_push(targets: Sequence[TargetRecord]) -> bool:
    return any(t.origin is TargetOrigin.PUSH and t.state is TargetState.OK for t in targets)


def _silent(target: TargetRecord, found: list[tuple[timedelta, str]], now: datetime) -> TargetRecord:
    longest = max(silent_for for silent_for, _ in found)
    names = say.listed(sorted(name for _, name in found))
    reason = f"the driver of {names} has sent nothing for {say.duration(longest / timedelta(milliseconds=1))}"
    return replace(target, state=TargetState.SILENT, reason=reason, since=now - longest)
