"""Converts Spark's micro-batches to the API's shapes. Field names change; numbers do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.queries import micro_batches as analysis
from backend.contracts import api
from backend.contracts.micro_batches import BatchPhaseOut, MicroBatchOut
from backend.domain.checkpoint import Checkpoint, CheckpointConfig
from backend.domain.micro_batch import MicroBatch
from backend.store.checkpoints.micro_batches import batches_of
from backend.store.checkpoints.reader import CheckpointPlace, CheckpointRecord


async def with_batches(
    connection: AsyncConnection, records: Sequence[CheckpointRecord]
) -> list[tuple[CheckpointRecord, MicroBatch]]:
    """Return the checkpoints that are micro-batches, in the order of ``records``, each with its micro-batch data."""
    batches: Mapping[CheckpointPlace, MicroBatch] = await batches_of(connection, [r.place for r in records])
    return [(r, batches[r.place]) for r in records if r.place in batches]


def batch_out(record: CheckpointRecord, batch: MicroBatch) -> MicroBatchOut:
    """Convert one micro-batch to the API's shape."""
    header = record.header
    named_ms = sum(ms for _, ms in batch.phases_ms)
    duration_ms = header.end_to_end_duration_ms
    return MicroBatchOut.of(
        batch,
        header,
        run_id=record.run_id,
        duration_ms=duration_ms,
        phases=[BatchPhaseOut(phase=phase, duration_ms=ms) for phase, ms in batch.phases_ms],
        other_ms=None if duration_ms is None or not batch.phases_ms else max(0, duration_ms - named_ms),
    )


def signs_out(
    rows: Sequence[tuple[CheckpointRecord, MicroBatch]], config: CheckpointConfig | None
) -> list[api.PressureSignOut]:
    """Return the signs of backpressure in the newest micro-batches of one run. ``rows`` is sorted oldest first."""
    if not rows:
        return []
    report = analysis.report([Checkpoint(r.header, batch=batch) for r, batch in rows], config)
    return [api.PressureSignOut.model_validate(sign) for sign in report.signs]
