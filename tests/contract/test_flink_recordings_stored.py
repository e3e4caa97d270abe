"""Six recordings of a real Flink 1.20.5 are read into a real PostgreSQL, and stored values equal recorded values.

The recordings are read poll by poll. ``recorded_values`` reads the recorded JSON independently. Its result is
compared with rows that plain SQL and the store's own readers return. A second reading of a recording, from the
middle or in another order, must change nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta

import anyio.to_thread
import pytest

from backend.domain.checkpoint import DETAIL_ARRAYS
from backend.domain.verdict import VerdictKind
from backend.pipeline.jobs.backtest import here
from backend.services.jobs.evidence import EvidenceReader
from backend.store.checkpoints.reader import details_of, late_barriers_of
from backend.store.targets.targets import TargetRepository
from collectors.flink.collector import FlinkCollector
from tests.support.databases import Databases
from tests.support.recorded_flink import NAMES, RecordedFlink
from tests.support.recorded_values import (
    expected_columns,
    expected_header,
    recorded_entries,
    recorded_histories,
    recorded_subtasks,
)
from tests.support.stored_recordings import STEP_S, Readings, Stored, opened, read

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def readings(databases: Databases) -> Iterator[Readings]:
    with ExitStack() as kept:
        yield Readings(databases, kept)


@pytest.fixture(params=NAMES)
async def stored(request: pytest.FixtureRequest, readings: Readings, anyio_backend: str) -> AsyncIterator[Stored]:
    async with readings.copied(request.param) as found:
        yield found


async def test_every_checkpoint_of_the_history_is_stored_once_with_every_value_of_its_header(
    stored: Stored,
) -> None:
    entries = recorded_entries(stored.recording)
    records = await stored.checkpoints()
    assert sorted(r.header.checkpoint_id for r in records) == sorted(entries)
    for record in records:
        for field, expected in expected_header(entries[record.header.checkpoint_id]).items():
            assert getattr(record.header, field) == expected, (record.header.checkpoint_id, field)


async def test_every_value_of_every_subtask_is_stored_and_missing_stays_missing(
    stored: Stored,
) -> None:
    recorded = recorded_subtasks(stored.recording)
    records = await stored.checkpoints()
    async with stored.engine.connect() as connection:
        details = await details_of(connection, [r.place for r in records])
    seen: dict[tuple[int, str], dict[str, tuple[int | None, ...]]] = {}
    for place, found in details.items():
        for detail in found:
            assert (place.checkpoint_id, detail.vertex_id) not in seen
            columns = {name: getattr(detail, name) for name in DETAIL_ARRAYS}
            seen[place.checkpoint_id, detail.vertex_id] = columns
    assert set(seen) == set(recorded)
    missing_count = 0
    for key, body in recorded.items():
        expected = expected_columns(body)
        assert seen[key] == expected, key
        missing_count += expected["ack_delay_ms"].count(None)
    assert (missing_count > 0) == (stored.recording.folder.name in {"B2", "E", "G"})


async def test_plain_sql_over_the_arrays_gives_the_recorded_values(stored: Stored) -> None:
    """The query reads each array without the product's code.

    A NULL array means that all values are missing, and the value of an array with one element is that of every
    subtask. Any other array has one element for each subtask.
    """
    recorded = recorded_subtasks(stored.recording)
    query = (
        "SELECT d.checkpoint_id, d.vertex_id, s.n, {columns} FROM checkpoint_details d"
        " CROSS JOIN LATERAL generate_series(1, d.subtask_count) s(n)"
    ).format(
        columns=", ".join(f"CASE WHEN cardinality(d.{c}) = 1 THEN d.{c}[1] ELSE d.{c}[s.n] END" for c in DETAIL_ARRAYS)
    )
    rows = await stored.rows(query)
    assert len(rows) == sum(body["num_subtasks"] for body in recorded.values())
    for checkpoint_id, vertex_id, n, *values in rows:
        expected = expected_columns(recorded[checkpoint_id, vertex_id])
        assert values == [expected[c][n - 1] for c in DETAIL_ARRAYS], (checkpoint_id, vertex_id, n)


async def test_failures_that_were_never_listed_are_stored_as_a_count(stored: Stored) -> None:
    counts = recorded_histories(stored.recording)[-1]["counts"]
    listed = sum(e["status"] == "FAILED" for e in recorded_entries(stored.recording).values())
    run = (await stored.job()).run
    assert run.counts is not None
    assert run.counts.failed == counts["failed"]
    assert run.failed_unlisted_count == counts["failed"] - listed
    assert run.failed_unlisted_count == (1 if stored.recording.folder.name in {"E", "G"} else 0)
    assert run.checkpoint_count == len(recorded_entries(stored.recording))


async def test_the_cost_of_polling_is_stored_with_the_target(stored: Stored) -> None:
    record = await TargetRepository(stored.engine).get(stored.target_id)
    assert record.state == "ok"
    assert (record.engine, record.engine_version) == ("flink", "1.20.5")
    assert record.cost is not None
    last = [o.cost for o in stored.observations[-40:]]
    # The stored cost is a moving average, so it is between the smallest and the largest cost of the last polls.
    assert min(c.request_count for c in last) <= record.cost.requests_per_poll <= max(c.request_count for c in last)
    assert min(c.response_bytes for c in last) <= record.cost.bytes_per_poll <= max(c.response_bytes for c in last)
    assert record.cost.poll_interval_s == pytest.approx(STEP_S)
    assert record.rejected_count == 0


async def test_an_hour_without_a_collector_does_not_count_as_a_poll_interval(stored: Stored) -> None:
    last = stored.observations[-1]
    await stored.writer.write(replace(last, observed_at=last.observed_at + timedelta(hours=1), jobs=()))
    record = await TargetRepository(stored.engine).get(stored.target_id)
    assert record.cost is not None
    assert record.cost.poll_interval_s is not None
    assert STEP_S <= record.cost.poll_interval_s <= 3 * STEP_S


async def test_first_barriers_of_subtasks_that_never_acknowledged_are_stored(stored: Stored) -> None:
    run = (await stored.job()).run
    handed_on = {
        (p.checkpoint_id, b.vertex_id, b.subtask): b.start_delay_ms
        for o in stored.observations
        for j in o.jobs
        for p in j.progress
        for b in p.late_barriers
    }
    async with stored.engine.connect() as connection:
        late = await late_barriers_of(connection, [run.id], run.started_at)
    found = {
        (cid, b.vertex_id, b.subtask): b.start_delay_ms
        for cid, barriers in late.get(run.id, {}).items()
        for b in barriers
    }
    assert found == handed_on
    if stored.recording.folder.name == "E":
        assert len(found) >= 40


async def test_reading_a_recording_again_changes_nothing(stored: Stored) -> None:
    before = await stored.contents()
    assert all(before[name] for name in ("checkpoints", "details", "pressure", "runs"))
    # The same observations are written newest first and then in order, as after a failed poll or a lost
    # acknowledgement.
    for observation in (*reversed(stored.observations), *stored.observations):
        await stored.writer.write(observation)
    assert await stored.contents() == before
    # Another collector starts in the middle of the recording, and reads checkpoints that are already stored.
    half_s = stored.recording.begins_s + (stored.recording.last_running_s - stored.recording.begins_s) / 2
    await read(stored, from_s=half_s)
    after = await stored.contents()
    for name in ("checkpoints", "details", "events", "runs"):
        assert after[name] == before[name], name


@pytest.mark.parametrize("name", ["B2", "E", "G"])
async def test_a_collector_killed_after_every_poll_loses_and_duplicates_nothing(database: str, name: str) -> None:
    """Each poll uses a new collector, as if the previous one had been killed after its write."""
    async with opened(database, name) as stored:
        flink = RecordedFlink(stored.recording.folder)
        flink.at_s = flink.recording.begins_s
        while flink.at_s <= flink.recording.end_s + STEP_S:
            collector = FlinkCollector(flink, target_id=stored.target_id, monotonic_s=flink.monotonic_s)
            await stored.writer.write(await collector.collect(flink.now))
            flink.at_s += STEP_S
        entries = recorded_entries(stored.recording)
        records = await stored.checkpoints()
        assert sorted(r.header.checkpoint_id for r in records) == sorted(entries)
        (count,) = (await stored.rows("SELECT count(*) FROM checkpoint_details"))[0]
        assert count == len(recorded_subtasks(stored.recording))
        listed = sum(e["status"] == "FAILED" for e in entries.values())
        counted = recorded_histories(stored.recording)[-1]["counts"]["failed"]
        assert (await stored.job()).run.failed_unlisted_count == counted - listed


async def test_the_backtest_says_at_the_last_checkpoint_what_the_job_page_says(stored: Stored) -> None:
    record = await stored.job()
    async with stored.engine.connect() as connection:
        (case,) = await EvidenceReader(stored.clock).stored_cases(connection, [record])
    url = stored.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)

    ((_, result),) = await anyio.to_thread.run_sync(here, url)

    said = case.finding.diagnosis.verdict
    assert result.verdict.score.checkpoint_count == len(await stored.checkpoints())
    if said.kind in (VerdictKind.NONE, VerdictKind.UNDECIDED):
        assert said.kind.value in result.verdict.score.kinds
    else:
        episode = result.verdict.episodes[-1]
        assert (episode.kind, episode.vertex_id) == (said.kind, said.vertex_id)
    given = {c.headline for c in result.advice.cards if c.state == "new"}
    assert {r.headline for r in case.finding.advice.recommendations} <= given
