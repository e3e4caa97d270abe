"""The board and the alert rules reread only the jobs that changed, and the lease outlives a long evaluation."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta

import anyio
import pytest
from sqlalchemy import event

from backend.contracts.board import BoardSort
from backend.domain.observation import JobState
from backend.services.alerts import signals
from backend.services.alerts.evaluation import EvaluationReport
from backend.services.alerts.running import AlertRunner, RunOptions
from backend.services.jobs import analysed, fleet, watched
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.evidence import EvidenceReader
from backend.services.jobs.fleet import BoardWindow, FleetService
from tests.support import observations as made
from tests.support.alerting import Alerting, rows
from tests.support.observations import SINK, completed, failed, in_progress, job, observation

pytestmark = pytest.mark.anyio


@contextmanager
def _statements(engine):
    seen = []

    def note(connection, cursor, statement, parameters, context, many):
        seen.append((statement, str(parameters)))

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine.sync_engine, "before_cursor_execute", note)


def _board(engine, clock) -> FleetService:
    return FleetService(engine, clock, AnalysedJobs(clock, EvidenceReader(clock)))


async def _revision(engine) -> int:
    ((found,),) = await rows(engine, "SELECT revision FROM runs")
    return found


async def test_a_write_raises_the_revision_of_a_run_only_if_a_list_of_jobs_shows_the_change(
    engine, clock, writer, target
):
    well = job([completed(1)])
    seconds = iter(range(1, 100))

    async def rise(seen) -> int:
        before = await _revision(engine)
        await writer.write(observation(target, seen, at=clock.at + timedelta(seconds=next(seconds))))
        return await _revision(engine) - before

    await writer.write(observation(target, well, at=clock.at))
    assert await rise(well) == 0
    assert await rise(replace(well, pressure=(made.pressure(SINK, clock.at),))) == 0
    opened = replace(well, checkpoints=(completed(1), in_progress(2)))
    assert await rise(opened) == 1
    risen = [await rise(replace(opened, progress=(made.progress(2, 3, clock.at),))) for _ in range(20)]
    assert sum(risen) == 1, "an open checkpoint that is read again is reported every 20 s"
    ended = replace(well, checkpoints=(completed(1), completed(2)))
    assert await rise(ended) == 1
    assert await rise(ended) == 0
    assert await rise(replace(ended, config=replace(made.CONFIG, interval_ms=1))) == 1
    assert await rise(replace(ended, config=replace(made.CONFIG, interval_ms=1))) == 0
    assert await rise(replace(ended, restart_count=1)) == 1
    assert await rise(replace(ended, restart_count=1, state=JobState.ENDED, ended_at=clock.at)) == 1
    late = replace(well, checkpoints=(completed(3),))
    before = await _revision(engine)
    await writer.write(observation(target, late, at=clock.at - timedelta(seconds=1)))
    assert await _revision(engine) == before + 1, "an older observation that arrives late adds a checkpoint"


async def test_the_board_reads_again_only_the_job_that_changed(engine, clock, writer, target):
    jobs = [job([completed(1)], name=f"j{i}", run=f"{i:032x}") for i in range(60)]
    await writer.write(observation(target, *jobs, at=clock.at))
    service = _board(engine, clock)
    await service.board()

    # A job that was observed again is reread after 3.6 s, because there may be a new reading of its backpressure.
    clock.at += timedelta(seconds=2)
    await writer.write(observation(target, *jobs, at=clock.at))
    with _statements(engine) as unchanged:
        _, board = await service.board()
    assert {r.observed_at for r in board} == {clock.at}
    assert not [s for s, _ in unchanged if "FROM checkpoints" in s or "run_versions" in s], unchanged
    assert len(unchanged) <= 4

    clock.at += timedelta(seconds=1.1)
    changed = replace(jobs[7], checkpoints=(completed(1), in_progress(2)))
    await writer.write(observation(target, changed, at=clock.at))
    with _statements(engine) as statements:
        _, board = await service.board()
    assert {r.name: r.in_progress_checkpoint_id for r in board} == {f"j{i}": 2 if i == 7 else None for i in range(60)}
    read = next(p for s, p in statements if "FROM checkpoints" in s)
    ids = [i for (i,) in await rows(engine, "SELECT id FROM runs")]
    assert sum(i in read for i in ids) == 1, read


async def test_an_evaluation_of_healthy_jobs_needs_no_verdict_and_a_firing_one_names_its_place(
    engine, clock, writer, target, monkeypatch
):
    asked: list[int] = []
    of = EvidenceReader.cases_of

    async def counting(self, connection, heads):
        asked.append(len(heads))
        return await of(self, connection, heads)

    monkeypatch.setattr(EvidenceReader, "cases_of", counting)
    fresh = completed(1, triggered_at=clock.at - timedelta(seconds=5))
    well = [job([fresh], name=f"w{i}", run=f"{i:032x}") for i in range(3)]
    ill = job([completed(1), failed(2)], name="ill", run="f" * 32)
    await writer.write(observation(target, *well, ill, at=clock.at))
    await Alerting(engine, clock).round()
    assert asked == [1]
    found = await rows(engine, "SELECT annotations FROM alerts WHERE rule = 'CheckpointExpired'")
    assert [a["vertex"] for (a,) in found] == ["Sink: ledger"]


async def test_the_place_of_a_firing_alert_is_determined_again_after_a_while_or_after_another_checkpoint(
    engine, clock, writer, target, monkeypatch
):
    asked: list[str] = []
    of = EvidenceReader.cases_of

    async def counting(self, connection, heads):
        asked.extend(h.record.name for h in heads)
        return await of(self, connection, heads)

    monkeypatch.setattr(EvidenceReader, "cases_of", counting)
    jobs = [job([completed(1), failed(2)], name=f"j{i}", run=f"{i:032x}") for i in range(3)]
    alerting = Alerting(engine, clock)

    async def round_after(*seen) -> list[str]:
        asked.clear()
        await writer.write(observation(target, *seen, at=clock.at + timedelta(seconds=5)))
        await alerting.round()
        return sorted(asked)

    assert await round_after(*jobs) == ["j0", "j1", "j2"]
    assert await round_after(*jobs) == []
    failing = replace(jobs[1], checkpoints=(*jobs[1].checkpoints, failed(3)))
    assert await round_after(jobs[0], failing, jobs[2]) == ["j1"]
    clock.at += timedelta(seconds=16)
    assert await round_after(jobs[0], failing, jobs[2]) == ["j0", "j2"], "31 s have passed"


@pytest.mark.parametrize(
    "limits", [{"_PLACES_BUDGET_S": -1.0}, {"_PASS_WITHIN_S": -1.0, "_PLACES_LEAST_S": -1.0}], ids=["many", "slow read"]
)
async def test_places_that_do_not_fit_into_one_evaluation_are_determined_by_the_next_ones(
    engine, clock, writer, target, monkeypatch, limits
):
    monkeypatch.setattr(signals, "_PLACES_BATCH", 1)
    for name, value in limits.items():
        monkeypatch.setattr(signals, name, value)
    jobs = [job([completed(1), failed(2)], name=f"j{i}", run=f"{i:032x}") for i in range(3)]
    await writer.write(observation(target, *jobs, at=clock.at))
    alerting = Alerting(engine, clock)

    async def vertices() -> list[str]:
        await alerting.round(seconds=0)
        found = await rows(engine, "SELECT annotations FROM alerts WHERE rule = 'CheckpointExpired'")
        return sorted(a["vertex"] for (a,) in found)

    assert await vertices() == ["Sink: ledger", "not known", "not known"]
    assert await vertices() == ["Sink: ledger", "Sink: ledger", "not known"]
    assert await vertices() == ["Sink: ledger"] * 3


async def test_the_lease_outlives_an_evaluation_that_lasts_longer_than_the_lease(engine, clock):
    alerting = Alerting(engine, clock)
    renewed = asyncio.Event()
    stop = asyncio.Event()

    class Slow:
        async def evaluate(self, term):
            # The lease has expired by the database's clock. The next renewal extends it while this evaluation is in
            # progress.
            async with engine.begin() as connection:
                await connection.exec_driver_sql("UPDATE alert_evaluator SET expires_at = now() - interval '1 s'")
            held = "SELECT expires_at > now(), term FROM alert_evaluator"
            with anyio.fail_after(60):
                while (await rows(engine, held))[0] != (True, term.number):
                    pass
            renewed.set()
            stop.set()
            return EvaluationReport((), (), 0)

    options = RunOptions(renewal_interval_s=0.01)
    runner = AlertRunner(engine, clock, Slow(), alerting.delivery, holder="one", options=options)
    await runner.run(stop)
    assert renewed.is_set()


async def test_the_board_shows_jobs_that_are_not_analysed_yet_without_inventing_values(
    engine, clock, writer, target, monkeypatch
):
    # With these limits, each refresh reads one job, analyses one job, and reads the statistics of one job.
    for module in (watched, analysed):
        monkeypatch.setattr(module, "_BATCH", 1)
        monkeypatch.setattr(module, "_BUDGET_S", -1.0)
    monkeypatch.setattr(fleet, "_STATISTICS_BATCH", 1)
    monkeypatch.setattr(fleet, "_STATISTICS_BUDGET_S", -1.0)
    jobs = [job([completed(1)], name=f"j{i}", run=f"{i:032x}") for i in range(3)]
    await writer.write(observation(target, *jobs, at=clock.at))
    service = _board(engine, clock)

    async def later() -> tuple[list[bool], int]:
        clock.at += timedelta(seconds=1.5)
        found = await service.window(BoardWindow(0, 9, BoardSort.NAME))
        assert [r.name for r in found.rows] == ["j0", "j1", "j2"]
        for row in found.rows:
            unread = (row.health, row.verdict, row.completed_24h_count, row.failed_24h_count, row.interval_ms)
            assert (unread == (None,) * 5) or row.completed_24h_count == 1, row
        assert found.unanalysed_count + sum(found.counts.values()) == 3
        return sorted(r.verdict is not None for r in found.rows), found.unanalysed_count

    assert await later() == ([False, False, True], 2)
    assert await later() == ([False, True, True], 1)
    assert await later() == ([True, True, True], 0)
    for sort in BoardSort:
        await service.window(BoardWindow(0, 9, sort))


async def test_a_request_gets_the_board_without_waiting_for_a_refresh_in_progress(engine, clock, writer, target):
    await writer.write(observation(target, job([completed(1)]), at=clock.at))
    service = _board(engine, clock)
    before, _ = await service.board()
    clock.at += timedelta(seconds=29)
    begun, ended = anyio.Event(), anyio.Event()

    async def refresh() -> None:
        async with service._turn:
            begun.set()
            await ended.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(refresh)
        await begun.wait()
        with anyio.fail_after(60):
            assert (await service.board())[0] == before
        clock.at += timedelta(seconds=2)
        with anyio.move_on_after(0.05) as waiting:
            await service.board()
        ended.set()
    assert waiting.cancelled_caught, "a board of half a minute ago is too old"
    assert (await service.board())[0] == clock.at


async def test_a_request_during_a_refresh_gets_the_version_of_the_rows_that_it_gets(
    engine, clock, writer, target, monkeypatch
):
    await writer.write(observation(target, job([completed(1)]), at=clock.at))
    service = _board(engine, clock)
    first = await service.window(BoardWindow(0, 9))
    clock.at += timedelta(seconds=1.5)
    await writer.write(observation(target, job([completed(1), in_progress(2)]), at=clock.at))
    has_rows, may_end, reading = anyio.Event(), anyio.Event(), fleet.reading

    @asynccontextmanager
    async def slowly_closed(engine):
        async with reading(engine) as connection:
            yield connection
            has_rows.set()
            await may_end.wait()

    monkeypatch.setattr(fleet, "reading", slowly_closed)
    again = BoardWindow(0, 9, since=first.version, known=frozenset(first.ids))
    async with anyio.create_task_group() as group:
        group.start_soon(service.window, again)
        await has_rows.wait()
        during = await service.window(again)
        may_end.set()

    assert (during.version, during.rows) == (first.version, [])
    after = await service.window(BoardWindow(0, 9, since=during.version, known=frozenset(first.ids)))
    assert [row.id for row in after.rows] == first.ids


async def test_the_board_is_refreshed_ahead_only_while_a_client_looks_at_it(engine, clock, writer, target):
    await writer.write(observation(target, job([completed(1)]), at=clock.at))
    service = _board(engine, clock)
    with _statements(engine) as seen:
        await service.refresh_if_viewed()
        assert not seen
        await service.board()
        clock.at += timedelta(seconds=9)
        seen.clear()
        await service.refresh_if_viewed()
        assert seen
        clock.at += timedelta(seconds=9)
        seen.clear()
        await service.refresh_if_viewed()
        assert not seen, "the client left"


async def test_a_row_keeps_its_finding_until_the_new_one_is_computed(engine, clock, writer, target, monkeypatch):
    async def compute_nothing(self, connection, jobs):
        pass

    seen = job([completed(n) for n in range(1, 4)])
    await writer.write(observation(target, seen, at=clock.at))
    service = _board(engine, clock)
    ((_, (before,)), checkpoint) = (await service.board(), in_progress(9))
    monkeypatch.setattr(AnalysedJobs, "_find", compute_nothing)
    clock.at += timedelta(seconds=5)
    await writer.write(observation(target, replace(seen, checkpoints=(*seen.checkpoints, checkpoint)), at=clock.at))
    _, (after,) = await service.board()
    assert (after.health, after.verdict) == (before.health, before.verdict)
    assert (before.in_progress_checkpoint_id, after.in_progress_checkpoint_id) == (None, 9)


async def test_the_board_is_searched_by_job_target_and_label(engine, clock, writer, target):
    await writer.write(observation(target, job(name="orders"), job(name="clicks", run="c" * 32), at=clock.at))
    async with engine.begin() as connection:
        await connection.exec_driver_sql("""UPDATE targets SET name = 'East-1', labels = '{"team": "ads"}'""")
    service = _board(engine, clock)

    async def names(text: str) -> list[str]:
        return sorted(r.name for r in (await service.window(BoardWindow(0, 9, search=text))).rows)

    assert await names("ORD") == ["orders"]
    assert await names("east") == await names("team=ADS") == ["clicks", "orders"]
    assert await names("team=search") == []


async def test_a_window_of_the_board_has_only_the_rows_that_the_client_lacks(engine, clock, writer, target):
    jobs = [job([completed(1)], name=f"j{i}", run=f"{i:032x}") for i in range(6)]
    await writer.write(observation(target, *jobs, at=clock.at))
    service = _board(engine, clock)

    first = await service.window(BoardWindow(1, 3, BoardSort.NAME))
    assert ([r.name for r in first.rows], first.total) == (["j1", "j2", "j3"], 6)
    assert first.ids == [r.id for r in first.rows]
    assert [r.name for r in (await service.window(BoardWindow(0, 9, BoardSort.NAME, is_descending=True))).rows] == [
        f"j{i}" for i in reversed(range(6))
    ]
    assert [r.name for r in (await service.window(BoardWindow(0, 9, search="J4"))).rows] == ["j4"]

    async def later(*seen):
        clock.at += timedelta(seconds=1.5)
        await writer.write(observation(target, *seen, at=clock.at))
        known = frozenset(first.ids)
        return await service.window(BoardWindow(1, 4, BoardSort.NAME, since=first.version, known=known))

    same = await later(*jobs)
    assert [r.name for r in same.rows] == ["j4"], "only the age of the other rows changed, and this one is new"
    changed = await later(replace(jobs[2], checkpoints=(completed(1), in_progress(2))), *jobs[3:])
    assert [r.name for r in changed.rows] == ["j2", "j4"]
    assert changed.version != first.version
    restarted = _board(engine, clock)
    whole = await restarted.window(BoardWindow(1, 3, BoardSort.NAME, since=changed.version, known=frozenset(first.ids)))
    assert [r.name for r in whole.rows] == ["j1", "j2", "j3"], "another process issued the version"


@pytest.mark.parametrize("is_descending", [False, True])
async def test_ended_jobs_come_after_all_others_and_only_if_they_are_requested(
    engine, clock, writer, target, is_descending
):
    lasting = [job([completed(1)], name=name, run=f"{i:032x}") for i, name in enumerate(("b", "d"))]
    over = [
        replace(job([completed(1)], name=name, run=f"{i:032x}"), state=JobState.ENDED, ended_at=clock.at)
        for i, name in enumerate(("a", "c"), 7)
    ]
    await writer.write(observation(target, *lasting, *over, at=clock.at))
    service = _board(engine, clock)

    async def shown(**more):
        found = await service.window(BoardWindow(0, 9, BoardSort.NAME, is_descending, **more))
        return [r.name for r in found.rows], found.total, found.ended_count

    order = -1 if is_descending else 1
    assert await shown() == ([*["b", "d"][::order], *["a", "c"][::order]], 4, 2)
    assert await shown(has_ended=False) == (["b", "d"][::order], 2, 2)
    assert await shown(search="c") == (["c"], 1, 1)


@pytest.mark.parametrize("sort", BoardSort)
async def test_the_board_can_be_sorted_by_each_value(engine, clock, writer, target, sort):
    jobs = [job([completed(1)], name="a"), replace(job(name="b", run="b" * 32), config=None)]
    await writer.write(observation(target, *jobs, at=clock.at))
    service = _board(engine, clock)
    found = [await service.window(BoardWindow(0, 9, sort, is_descending=down)) for down in (False, True)]
    assert [sorted(r.name for r in page.rows) for page in found] == [["a", "b"]] * 2
