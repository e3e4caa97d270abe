"""What is written is what is stored, once, whatever is repeated, restarted, refused or comes in another order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.domain.errors import UnknownEntityError
from backend.domain.ids import TargetId
from tests.support.observations import NOW, completed, failed, in_progress, job, observation

pytestmark = pytest.mark.anyio


async def _rows(engine, query, **values):
    async with engine.connect() as connection:
        return (await connection.execute(text(query), values)).all()


async def test_a_write_reports_what_it_did(writer, target):
    result = await writer.write(observation(target, job([completed(1), failed(2), in_progress(3)])))

    assert (result.new_count, result.updated_count, result.detail_count) == (3, 0, 4)


async def test_writing_the_same_again_changes_no_row(writer, target, engine):
    seen = observation(target, job([completed(1), failed(2), in_progress(3)]))
    await writer.write(seen)
    before = await _rows(engine, "SELECT * FROM checkpoints ORDER BY 1, 2")

    result = await writer.write(seen)

    assert (result.new_count, result.updated_count, result.detail_count) == (0, 0, 0)
    assert await _rows(engine, "SELECT * FROM checkpoints ORDER BY 1, 2") == before
    assert await _rows(engine, "SELECT checkpoint_count, failed_listed_count FROM runs") == [(3, 1)]


async def test_a_terminal_checkpoint_never_goes_back(writer, target, engine):
    await writer.write(observation(target, job([completed(1)])))

    await writer.write(observation(target, job([in_progress(1)]), at=NOW + timedelta(seconds=5)))
    await writer.write(observation(target, job([failed(1)]), at=NOW + timedelta(seconds=6)))

    assert await _rows(engine, "SELECT status, end_to_end_duration_ms, failed_listed_count FROM checkpoints, runs") == [
        ("completed", 301, 0)
    ]


async def test_an_open_checkpoint_follows_the_newest_observation_and_then_its_end(writer, target, engine):
    await writer.write(observation(target, job([in_progress(1, acknowledged_count=2)]), at=NOW))
    await writer.write(observation(target, job([in_progress(1, acknowledged_count=1)]), at=NOW - timedelta(seconds=1)))
    assert await _rows(engine, "SELECT acknowledged_count FROM checkpoints") == [(2,)]

    await writer.write(observation(target, job([completed(1)]), at=NOW - timedelta(seconds=2)))

    assert await _rows(engine, "SELECT status, acknowledged_count FROM checkpoints") == [("completed", 6)]
    assert await _rows(engine, "SELECT count(*) FROM checkpoint_details") == [(2,)]


async def test_arrays_keep_missing_missing_and_are_stored_small(writer, target, engine):
    await writer.write(observation(target, job([failed(2)])))

    rows = await _rows(
        engine,
        "SELECT vertex_id, subtask_count, sync_duration_ms, ack_delay_ms, persisted_bytes FROM checkpoint_details"
        " ORDER BY vertex_id",
    )
    assert rows == [("sink-2", 3, [7, None, 7], [102, None, 302], None), ("source-1", 3, [7], [102, 202, 302], None)]


async def test_a_checkpoint_outside_the_range_is_refused_and_counted_and_the_rest_is_stored(writer, target, engine):
    old = completed(1, triggered_at=NOW - timedelta(days=8))
    future = completed(2, triggered_at=NOW + timedelta(days=1, seconds=1))

    result = await writer.write(observation(target, job([old, future, completed(3)])))

    assert (result.new_count, len(result.rejected)) == (1, 2)
    assert "checkpoint 1 triggered at 2026-11-13" in result.rejected[0]
    assert await _rows(engine, "SELECT checkpoint_id FROM checkpoints") == [(3,)]
    assert await _rows(engine, "SELECT rejected_count FROM target_health") == [(2,)]


async def test_a_removed_or_unknown_target_is_refused(writer):
    with pytest.raises(UnknownEntityError, match="no target 'nobody'"):
        await writer.write(observation(TargetId("nobody"), job()))


async def test_surplus_failures_are_kept_as_a_count_over_a_restart_of_the_coordinator(writer, target, engine):
    def counted(total, failures, at_s, *checkpoints):
        seen = job(checkpoints)
        assert seen.counts is not None
        counts = replace(seen.counts, total=total, failed=failures)
        return observation(target, replace(seen, counts=counts), at=NOW + timedelta(seconds=at_s))

    await writer.write(counted(10, 4, 0, failed(1)))
    await writer.write(counted(2, 1, 10))
    await writer.write(counted(3, 2, 20, failed(2)))

    (row,) = await _rows(
        engine, "SELECT failed_unlisted_past, failed_listed_count, failed_listed_base, counts->'failed' FROM runs"
    )
    assert row == (3, 2, 1, 2)
