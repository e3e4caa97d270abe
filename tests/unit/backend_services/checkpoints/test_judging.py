"""Tests, without a store, of the order in which a judge computes findings, and of what it leaves to the readers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from backend.domain.errors import StoreUnavailableError
from backend.services.checkpoints import judging
from backend.services.checkpoints.judging import Judge, JudgeOptions
from backend.services.checkpoints.reader import SETTLED_AFTER
from backend.store.ingest import RunChange
from tests.support.handwritten_jobs import completed, failed, in_progress
from tests.support.observations import NOW, SteppingClock

pytestmark = pytest.mark.anyio
_DUE = SETTLED_AFTER + timedelta(minutes=1)


class Recorded(Judge):
    """A judge that records the findings that it should compute, instead of computing them."""

    def __init__(self, **options):
        self.clock = SteppingClock()
        super().__init__(None, self.clock, JudgeOptions(**options))  # type: ignore[arg-type]
        self.done = []
        self.error = None

    async def _find(self, job_ids):
        if self.error is not None:
            raise self.error
        self.done += job_ids

    async def _freeze(self, key):
        self.done.append(f"{key.job_id}/{key.checkpoint_id}")


def change(name, *checkpoints, read_s=None):
    return RunChange(
        job_id=name,
        run_id=f"run of {name}",
        ended=tuple(c.header for c in checkpoints if c.header.status.is_terminal),
        is_open=any(not c.header.status.is_terminal for c in checkpoints),
        read_at=None if read_s is None else NOW + timedelta(seconds=read_s),
    )


async def test_the_job_that_changed_last_is_first():
    judge = Recorded(jobs_at_once=1)
    for name in ("a", "b", "c", "a"):
        judge.note([change(name, completed(1))])
    while await judge.work():
        pass

    assert judge.done == ["a", "c", "b"]


async def test_a_full_queue_leaves_the_oldest_changes_to_the_readers():
    judge = Recorded(jobs_max=2)
    judge.note([change(name, completed(1)) for name in "abcd"])
    while await judge.work():
        pass

    assert judge.done == ["d", "c"]
    assert judge.shed_count == 2


async def test_verdicts_are_due_when_they_are_final_and_those_on_failed_checkpoints_come_first():
    judge = Recorded(checkpoints_at_once=1, checkpoints_max=3)
    judge.note([change("a", *(completed(n) for n in range(1, 6)), failed(9))])
    await judge.work()
    assert not await judge.work(), "readings and details may still come"
    judge.clock.at += _DUE
    while await judge.work():
        pass

    assert judge.done == ["a", "a/9", "a/3", "a/4", "a/5"]
    assert judge.shed_count == 2


@pytest.mark.parametrize("kind", ["readings", "an open checkpoint", "nothing"])
async def test_readings_and_an_open_checkpoint_are_an_event_each_half_minute(kind):
    judge, found = Recorded(), []
    for second in range(0, 90, 2):
        judge.clock.at = NOW + timedelta(seconds=second)
        # Only every second poll contains readings.
        read_s = second if kind == "readings" and second % 4 == 0 else None
        judge.note([change("a", *([in_progress(1)] if kind == "an open checkpoint" else []), read_s=read_s)])
        found.append(await judge.work())

    assert found[0] == (kind != "nothing")
    assert sum(found) in ((3, 4) if kind != "nothing" else (0,))


async def test_what_cannot_be_computed_is_left_to_the_readers():
    judge = Recorded()
    judge.error = StoreUnavailableError("no connection")
    judge.note([change("a", completed(1))])

    assert await judge.work()
    assert not await judge.work()
    assert judge.shed_count == 1


async def test_the_judge_rests_longer_than_it_works_and_longer_still_if_the_process_is_starved(monkeypatch):
    judge, rests = Recorded(rest_ratio=3.0), []
    late_s = iter([0.0, 0.4, 0.0])

    async def took(job_ids):
        judge.clock.at += timedelta(seconds=0.1)

    async def rest(seconds):
        rests.append(round(seconds, 6))
        if len(rests) == 3:
            raise asyncio.CancelledError
        judge.clock.at += timedelta(seconds=seconds + next(late_s))
        judge.note([change("a", completed(1))])

    monkeypatch.setattr(judge, "_find", took)
    monkeypatch.setattr(judging.asyncio, "sleep", rest)
    judge.note([change("a", completed(1))])
    with pytest.raises(asyncio.CancelledError):
        await judge.run()

    assert rests == pytest.approx([0.3, 0.3, 4.3], abs=0.001)


async def test_a_verdict_that_could_not_be_computed_is_tried_again_for_half_an_hour():
    judge, tried = Recorded(), []

    async def freeze(key):
        tried.append(judge.clock.at)
        raise StoreUnavailableError("no connection")

    judge._freeze = freeze  # type: ignore[method-assign]
    judge.note([change("a", failed(1))])
    await judge.work()
    for _ in range(60):
        judge.clock.at += timedelta(minutes=1)
        await judge.work()

    assert 25 <= len(tried) <= 35
    assert judge.shed_count == 1
