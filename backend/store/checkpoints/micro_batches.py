"""Writes and reads the data of Spark micro-batches that is not part of their checkpoints' headers.

The writer's caller holds the lock on the run's row and has written the headers. Invariant: a row is written once and
never changes, like the terminal header to which it belongs. There are two exceptions: another channel reports the batch
too, or its Spark jobs become known later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Select, and_, bindparam, func, or_, select, tuple_
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.batch_work import BatchWork
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.micro_batch import BatchPhase, KnownBatch, MicroBatch
from backend.domain.stored_form import batch_from, work_from
from backend.store.checkpoints.reader import CheckpointPlace, of_places, place_values
from backend.store.checkpoints.writer import HeaderKey, header_key
from backend.store.postgres.copying import Cursor
from backend.store.postgres.encoding import clean, dump
from backend.store.postgres.statements import beside_key, bound, duration_after, replaced, sql_of
from backend.store.schema import tables
from backend.store.schema.arrays import int8
from backend.store.schema.partitions import day_of
from backend.store.schema.rows import row_of, value_of
from backend.store.schema.watch_tables import run_channels

_PHASES = tuple(BatchPhase)
_TEXT_MAX = 2000

_BATCH = tables.micro_batches.c
_HEADER = tables.checkpoints.c
_NEW = bound(_BATCH)
_INSERT = pg_insert(tables.micro_batches).from_select(
    list(_NEW),
    # If a batch was reported as completed and also as failed, the stored header comes from one of the two
    # reports. The batch data is stored only if its status is the header's status, so that both come from the same
    # report.
    select(*_NEW.values()).where(
        *(_HEADER[c.name] == _NEW[c.name] for c in tables.micro_batches.primary_key),
        _HEADER.status == bindparam("status", type_=_HEADER.status.type),
    ),
)
_WRITE = sql_of(
    _INSERT.on_conflict_do_update(
        index_elements=tables.micro_batches.primary_key,
        set_={"work": _INSERT.excluded.work},
        where=(_BATCH.work.is_(None)) & (_INSERT.excluded.work.is_not(None)),
    )
)
_RENEW = sql_of(
    _INSERT.on_conflict_do_update(
        index_elements=tables.micro_batches.primary_key, set_=replaced(_INSERT, beside_key(tables.micro_batches))
    )
)


# The range of days is written beside the keys, so that the partitions of other days are not opened.
_WITHOUT_WORK = sql_of(
    select(_BATCH.run_id, _BATCH.checkpoint_id, _BATCH.triggered_on).where(
        tuple_(_BATCH.run_id, _BATCH.checkpoint_id, _BATCH.triggered_on).in_(
            select(
                func.unnest(bindparam("runs", type_=ARRAY(_BATCH.run_id.type))),
                func.unnest(bindparam("ids", type_=ARRAY(_BATCH.checkpoint_id.type))),
                func.unnest(bindparam("days", type_=ARRAY(_BATCH.triggered_on.type))),
            )
        ),
        _BATCH.triggered_on.between(
            bindparam("first", type_=_BATCH.triggered_on.type), bindparam("last", type_=_BATCH.triggered_on.type)
        ),
        _BATCH.work.is_(None),
    )
)


async def without_work(cursor: Cursor, keys: Collection[HeaderKey]) -> set[HeaderKey]:
    """Return the stored batches among ``keys`` whose Spark jobs are not known."""
    if not keys:
        return set()
    runs, ids, days = zip(*keys, strict=True)
    values = {"runs": list(runs), "ids": list(ids), "days": list(days), "first": min(days), "last": max(days)}
    await cursor.execute(_WITHOUT_WORK, values)
    return {(run, number, day) for run, number, day in await cursor.fetchall()}


async def write_batches(
    cursor: Cursor,
    runs: Iterable[tuple[str, Sequence[Checkpoint]]],
    *,
    reports: Mapping[HeaderKey, str],
    renewed: Collection[HeaderKey],
) -> None:
    """Store the terminal micro-batches of these runs that are not stored yet, and those that are ``renewed``.

    ``reports`` has what each channel reported of a batch, if its run has several.
    """
    new: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for run_id, checkpoints in runs:
        for c in checkpoints:
            if c.batch is not None and c.header.status.is_terminal:
                key = header_key(run_id, c.header)
                (changed if key in renewed else new).append(_row(run_id, c, c.batch) | {"reports": reports.get(key)})
    if new:
        await cursor.executemany(_WRITE, new)
    if changed:
        await cursor.executemany(_RENEW, changed)


def _of_target(target_id: str) -> Select[tuple[str]]:
    """Return the query for the runs that the target reports beside others."""
    return select(run_channels.c.run_id).where(run_channels.c.target_id == target_id)


async def newest_batch(
    connection: AsyncConnection, target_id: str, *, query_id: str, engine_run_id: str
) -> KnownBatch | None:
    """Return the newest batch that the run completed, or else the newest batch of the query's other runs."""
    run = tables.runs.c
    is_own = run.engine_run_id == engine_run_id
    query = (
        select(
            _HEADER.checkpoint_id,
            (_HEADER.status == CheckpointStatus.FAILED.value).label("is_failed"),
            is_own.label("is_own"),
            duration_after(_HEADER.triggered_at, _HEADER.end_to_end_duration_ms).label("ended_at"),
        )
        .join_from(tables.runs, tables.checkpoints, and_(_HEADER.job_id == run.job_id, _HEADER.run_id == run.id))
        .where(
            or_(run.target_id == target_id, run.id.in_(_of_target(target_id))),
            func.starts_with(run.engine_run_id, query_id),
            or_(~is_own, _HEADER.status == CheckpointStatus.COMPLETED.value),
        )
        .order_by(is_own.desc(), _HEADER.triggered_at.desc(), _HEADER.checkpoint_id.desc())
        .limit(1)
    )
    row = (await connection.execute(query)).mappings().first()
    return None if row is None else value_of(KnownBatch, row)


_OF_PLACES = of_places(tables.micro_batches, left_out="reports")


async def batches_of(
    connection: AsyncConnection, places: Iterable[CheckpointPlace]
) -> Mapping[CheckpointPlace, MicroBatch]:
    """Return the micro-batch data of these checkpoints. A checkpoint that is not a micro-batch is absent."""
    keys = list(places)
    if not keys:
        return {}
    rows = await connection.execute(_OF_PLACES, place_values(keys))
    return {value_of(CheckpointPlace, row): batch_from(row) for row in rows.mappings()}


_NEWEST_WORK = (
    select(_BATCH.work)
    .where(_BATCH.run_id == bindparam("run"), _BATCH.work.is_not(None))
    .order_by(_BATCH.triggered_on.desc(), _BATCH.checkpoint_id.desc())
    .limit(1)
)


async def newest_work(connection: AsyncConnection, run_id: str) -> BatchWork | None:
    """Return the Spark jobs of the run's newest batch of which they are known, or None."""
    return work_from((await connection.execute(_NEWEST_WORK, {"run": run_id})).scalar_one_or_none())


def _row(run_id: str, checkpoint: Checkpoint, batch: MicroBatch) -> dict[str, Any]:
    header = checkpoint.header
    return row_of(
        tables.micro_batches,
        batch,
        run_id=run_id,
        checkpoint_id=header.checkpoint_id,
        triggered_on=day_of(header.triggered_at),
        status=header.status.value,
        phases_ms=[int8(batch.phase_ms(p)) for p in _PHASES] if batch.phases_ms else None,
        work=None if batch.work is None else dump(_cut_values(asdict(batch.work))),
        state=None if batch.state is None else dump(asdict(batch.state)),
        sources=dump([{n: _cut(v) for n, v in {**asdict(s), "sink": batch.sink}.items()} for s in batch.sources]),
    )


def _cut_values(document: dict[str, Any]) -> dict[str, Any]:
    stages = [{name: _cut(value) for name, value in stage.items()} for stage in document["stages"]]
    return {name: _cut(value) for name, value in document.items()} | {"stages": stages}


def _cut(value: object) -> object:
    return clean(value)[:_TEXT_MAX] if isinstance(value, str) else value
