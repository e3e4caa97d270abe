"""Converts Spark's micro-batches to the API's shapes. Field names change; numbers do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.queries import micro_batches as analysis
from backend.analysis.queries.joining import WORK, joined
from backend.contracts import api
from backend.contracts.channels import BatchChannelOut, ChannelOut, ChannelValueOut, DisagreementOut
from backend.contracts.checkpoint_folders import CheckpointFolderOut
from backend.contracts.micro_batches import BatchPhaseOut, BatchWorkOut, MicroBatchOut, StageWorkOut
from backend.domain.batch_work import BatchWork
from backend.domain.channel import BatchReport, Channel, ChannelValue, Disagreement
from backend.domain.checkpoint import Checkpoint, CheckpointConfig
from backend.domain.micro_batch import MicroBatch
from backend.domain.target import TargetState
from backend.store.checkpoints.micro_batches import batches_of
from backend.store.checkpoints.reader import CheckpointPlace, CheckpointRecord
from backend.store.jobs.channels import channels_of, names_of, reports_of
from backend.store.jobs.checkpoint_folders import folders_of, query_of
from backend.store.jobs.reader import JobRecord, RunRecord

_RECONSTRUCTED = ", reconstructed"
"""So ends the status of a channel that did not measure it (``analysis.queries.joining``)."""


async def with_batches(
    connection: AsyncConnection, records: Sequence[CheckpointRecord]
) -> list[tuple[CheckpointRecord, MicroBatch]]:
    """Return the checkpoints that are micro-batches, in the order of ``records``, each with its micro-batch data."""
    batches: Mapping[CheckpointPlace, MicroBatch] = await batches_of(connection, [r.place for r in records])
    return [(r, batches[r.place]) for r in records if r.place in batches]


@dataclass(frozen=True, slots=True)
class Reported:
    """What the channels reported of batches, and the names of their targets.

    ``only`` is the run that has one channel, and the kind of it; None if there are several, or if it is not known.
    """

    reports: Mapping[CheckpointPlace, Sequence[BatchReport]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, Channel] | None = None


async def reported(
    connection: AsyncConnection, records: Sequence[CheckpointRecord], *, run: RunRecord | None
) -> Reported:
    """Return what the channels reported of these batches. Of a run with one channel, only its kind is returned.

    ``run`` is the run of the batches, or the current one if they are of several.
    """
    reports = await reports_of(connection, [r.place for r in records])
    names = await names_of(connection, {r.target for rows in reports.values() for r in rows})
    only = None
    if run is not None and run.engine.channel is not None and any(r.place not in reports for r in records):
        only = None if await channels_of(connection, run.id) else (run.id, run.engine.channel)
    return Reported(reports, names, only)


def batch_out(record: CheckpointRecord, batch: MicroBatch, of: Reported) -> MicroBatchOut:
    """Convert one micro-batch to the API's shape."""
    header = record.header
    named_ms = sum(ms for _, ms in batch.phases_ms)
    duration_ms = header.end_to_end_duration_ms
    reports = of.reports.get(record.place, ())
    channels, disagreements = _of_channels(header.checkpoint_id, reports, of.names)
    by = next((c for c in channels if WORK in c.values), None)
    only = of.only[1] if of.only is not None and of.only[0] == record.run_id and not channels else None
    return MicroBatchOut.of(
        batch,
        header,
        run_id=record.run_id,
        duration_ms=duration_ms,
        phases=[BatchPhaseOut(phase=phase, duration_ms=ms) for phase, ms in batch.phases_ms],
        other_ms=None if duration_ms is None or not batch.phases_ms else max(0, duration_ms - named_ms),
        work=None if batch.work is None else _work_out(batch.work, duration_ms, by, only),
        channels=channels,
        disagreements=disagreements,
    )


def _of_channels(
    number: int, reports: Sequence[BatchReport], names: Mapping[str, str]
) -> tuple[list[BatchChannelOut], list[DisagreementOut]]:
    if not reports:
        return [], []
    found = joined(reports)
    values: dict[str, list[str]] = {report.target: [] for report in reports}
    for name, target in found.origins:
        values[target].append(name)
    channels = [
        BatchChannelOut(target_id=r.target, target_name=names.get(r.target), channel=r.channel, values=values[r.target])
        for r in sorted(reports, key=lambda r: (r.channel.rank, r.target))
    ]
    return channels, [_disagreement_out(number, d, names) for d in found.disagreements]


def _disagreement_out(number: int, disagreement: Disagreement, names: Mapping[str, str]) -> DisagreementOut:
    kinds = [value.channel for value in disagreement.values]
    parts = [_said(v, _called(v, kinds, names)) for v in disagreement.values]
    return DisagreementOut(
        name=disagreement.name,
        values=[
            ChannelValueOut.of(v, target_id=v.target, target_name=names.get(v.target)) for v in disagreement.values
        ],
        sentence=f"Batch {number}: {disagreement.name} {', '.join(parts)}",
    )


def _said(value: ChannelValue, channel: str) -> str:
    """Return a value with its channel, and with its basis beside the channel, or it reads as another value."""
    text = value.text.removesuffix(_RECONSTRUCTED)
    return f"{text} ({channel}{_RECONSTRUCTED if text != value.text else ''})"


def _called(value: ChannelValue, kinds: Sequence[Channel], names: Mapping[str, str]) -> str:
    """Return the kind of a channel, with the name of its target if there are several of the kind."""
    name = names.get(value.target)
    return f"{value.channel} {name}" if kinds.count(value.channel) > 1 and name is not None else str(value.channel)


async def channels_out(connection: AsyncConnection, record: JobRecord, heard_at: datetime) -> list[ChannelOut]:
    """Return the channels that report the current run of a job. ``heard_at`` is when the run was last read."""
    run = record.run
    if run.engine.channel is None:
        return []
    found = [
        ChannelOut.of(channel, is_speaking=channel.target_id == run.target_id)
        for channel in await channels_of(connection, run.id)
    ]
    if not found:
        only = ChannelOut(
            target_id=run.target_id,
            target_name=record.target_name,
            channel=run.engine.channel,
            state=run.state,
            heard_at=heard_at,
            is_speaking=True,
            is_watched=record.target_state is not TargetState.PAUSED,
        )
        return [only]
    return sorted(found, key=lambda channel: not channel.is_speaking)


async def folders_out(connection: AsyncConnection, run: RunRecord) -> list[CheckpointFolderOut]:
    """Return the checkpoint folders of the query of a run. Of an engine without queries, there is none."""
    query_id = query_of(run)
    if query_id is None:
        return []
    return [CheckpointFolderOut.of(one, one.files) for one in await folders_of(connection, query_id)]


def _work_out(
    work: BatchWork, duration_ms: int | None, by: BatchChannelOut | None, only: Channel | None
) -> BatchWorkOut:
    return BatchWorkOut.of(
        work,
        job_ids=list(work.job_ids),
        stages=[StageWorkOut.of(stage) for stage in work.stages],
        outside_ms=work.outside_ms(duration_ms),
        channel=only if by is None else by.channel,
        target_name=None if by is None else by.target_name,
    )


def signs_out(
    rows: Sequence[tuple[CheckpointRecord, MicroBatch]], config: CheckpointConfig | None
) -> list[api.PressureSignOut]:
    """Return the signs of backpressure in the newest micro-batches of one run. ``rows`` is sorted oldest first."""
    if not rows:
        return []
    report = analysis.report([Checkpoint(r.header, batch=batch) for r, batch in rows], config)
    return [api.PressureSignOut.model_validate(sign) for sign in report.signs]
