"""Goal: if the target does not answer requests about one job, the other jobs are still read and passed on in time.

Method: the real Flink collector reads a scripted Flink in virtual time.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend.domain.errors import TargetUnavailableError
from backend.domain.ids import TargetId
from backend.domain.observation import JobObservation, KnownRun, Shed
from collectors.base import Effort, KnownRuns
from collectors.flink.collector import CollectorOptions, FlinkCollector
from tests.support.scripted_flink import Period, ScriptedFlink, ScriptedJob, Trouble
from tests.support.virtual_loop import VirtualLoop, run_in_virtual_time

FOREVER_S = 1e9


class Reading:
    """Polls of a scripted Flink. They start after 40 virtual seconds, because every history is full by then."""

    def __init__(
        self,
        jobs: list[ScriptedJob],
        *periods: Period,
        request_s: float = 0.002,
        known: KnownRuns | None = None,
        **options: float,
    ) -> None:
        self.loop = VirtualLoop()
        self.loop.work(40.0)
        self.flink = ScriptedFlink(self.loop, jobs, list(periods), request_s=request_s)
        self.collector = FlinkCollector(
            self.flink,
            target_id=TargetId("t"),
            monotonic_s=self.loop.monotonic_s,
            known=known or {},
            options=CollectorOptions(**options),  # type: ignore[arg-type]
        )
        self.polls: list[list[JobObservation]] = []
        self.took_s: list[float] = []

    def run(
        self, polls: int, *, pause_s: float = 2.0, first_pause_s: float | None = None, efforts: Sequence[Effort] = ()
    ) -> None:
        async def poll() -> None:
            for number in range(polls):
                effort = efforts[number] if number < len(efforts) else Effort.FULL
                began_s = self.loop.time()
                self.polls.append(list((await self.collector.collect(self.loop.now(), effort=effort)).jobs))
                self.took_s.append(self.loop.time() - began_s)
                self.loop.work(first_pause_s if first_pause_s is not None and number == 0 else pause_s)

        run_in_virtual_time(poll(), self.loop)

    def checkpoints(self, job: int, *, has_details: bool = False) -> list[int]:
        """Return the ids of a job's checkpoints in the order in which the polls returned them."""
        return [
            c.header.checkpoint_id
            for observations in self.polls
            for o in observations
            if o.name == f"job {job}"
            for c in o.checkpoints
            if c.details or not has_details
        ]

    @property
    def shed(self) -> Shed:
        return sum((o.shed for observations in self.polls for o in observations), Shed())


def test_a_hanging_job_delays_the_others_once_and_then_hardly_ever() -> None:
    jobs = [ScriptedJob(n) for n in range(5)]
    reading = Reading(jobs, Period(Trouble.HANGING, 0.0, FOREVER_S, job=2))
    reading.run(30)
    for job in (0, 1, 3, 4):
        assert reading.checkpoints(job, has_details=True)[-1] * 3.0 > reading.loop.time() - 8.0
    late = [took_s for took_s in reading.took_s if took_s > 1.0]
    assert 10.0 <= late[0] <= 11.0
    assert max(late[1:]) <= 4.0
    assert len(late) <= 5
    (problem,) = next(o for o in reading.polls[-1] if o.name == "job 2").problems
    assert "no answer within 10 s" in problem or "not read within 3 s" in problem


def test_a_job_that_hung_is_read_again_and_nothing_that_it_still_shows_is_lost() -> None:
    reading = Reading([ScriptedJob(0), ScriptedJob(1)], Period(Trouble.HANGING, 44.0, 56.0, job=1))
    reading.run(25)
    for job in (0, 1):
        ids = reading.checkpoints(job, has_details=True)
        assert sorted(ids) == list(range(min(ids), max(ids) + 1))
        assert len(ids) == len(set(ids))
    assert reading.shed == Shed()


def test_headers_are_passed_on_although_a_detail_never_comes() -> None:
    class Stuck(ScriptedFlink):
        async def get(self, path: str) -> bytes:
            if "/details/12/" in path:
                self.periods = [Period(Trouble.HANGING, 0.0, FOREVER_S)]
            try:
                return await super().get(path)
            finally:
                self.periods = []

    once = Reading([ScriptedJob(0)])
    once.flink.__class__ = Stuck
    once.run(1)
    assert once.checkpoints(0) == sorted(number for number, _ in once.flink.jobs[0].shown(40.0))
    assert once.checkpoints(0, has_details=True) == [13]

    reading = Reading([ScriptedJob(0)])
    reading.flink.__class__ = Stuck
    reading.run(30)
    ids = reading.checkpoints(0)
    without = set(ids) - set(reading.checkpoints(0, has_details=True))
    assert 12 in without
    assert max(without) <= 12
    assert reading.shed == Shed(detail_count=len(without))
    assert set(ids) == set(range(min(ids), max(ids) + 1))
    assert ids[-1] * 3.0 > reading.loop.time() - 8.0


def test_a_poll_ends_at_its_deadline_and_the_next_one_begins_with_the_jobs_that_waited() -> None:
    reading = Reading([ScriptedJob(n) for n in range(20)], request_s=0.1, deadline_s=10.0)
    reading.run(3, pause_s=0.0)
    first, second, *_ = ({o.name for o in observations} for observations in reading.polls)
    assert max(reading.took_s) <= 11.0
    assert first
    assert second - first
    assert set.union(*({o.name for o in p} for p in reading.polls)) == {f"job {n}" for n in range(20)}


def test_details_of_a_long_history_are_read_for_the_newest_checkpoints_only_and_the_others_are_counted() -> None:
    reading = Reading([ScriptedJob(0, interval_s=0.5, duration_s=0.1, history_max=50)], backlog_max=10)
    reading.run(1)
    assert reading.checkpoints(0) == list(range(30, 80))
    assert reading.checkpoints(0, has_details=True) == list(range(70, 80))
    assert reading.shed == Shed(detail_count=40)


def test_checkpoints_and_details_that_leave_the_history_unread_are_counted() -> None:
    reading = Reading([ScriptedJob(0)], Period(Trouble.AWAY, 41.0, 41.0))
    reading.run(2, pause_s=60.0)
    ids = reading.checkpoints(0)
    missing = set(range(min(ids), max(ids) + 1)) - set(ids)
    assert missing
    assert reading.shed == Shed(checkpoint_count=len(missing))


def test_a_gap_is_counted_once_although_the_poll_that_finds_it_is_cut() -> None:
    class NoConfig(ScriptedFlink):
        async def get(self, path: str) -> bytes:
            if path.endswith("/checkpoints/config") and 100.0 < self._clock.monotonic_s() < 200.0:
                raise TargetUnavailableError(url=self.url, reason="no answer")
            return await super().get(path)

    reading = Reading([ScriptedJob(0)])
    reading.flink.__class__ = NoConfig
    reading.run(5, first_pause_s=70.0)
    ids = reading.checkpoints(0)
    assert len([o for o in reading.polls[1] if any("no answer" in p for p in o.problems)]) == 1
    assert reading.shed.checkpoint_count == len(set(range(min(ids), max(ids) + 1)) - set(ids)) > 0


def test_checkpoints_that_left_the_history_while_no_collector_ran_are_counted() -> None:
    before = Reading([ScriptedJob(0)])
    before.run(1)
    stored = KnownRun("job 0", newest_id=max(before.checkpoints(0)))
    (run,) = before.polls[0]
    after = Reading([ScriptedJob(0)], known={(run.engine_run_id, run.started_at): stored})
    after.loop.work(100.0)
    after.run(3)
    missing = range(max(before.checkpoints(0)) + 1, min(after.checkpoints(0)))
    assert after.shed == Shed(checkpoint_count=len(missing)) != Shed()
    problems = [p for o in after.polls[0] for p in o.problems]
    assert any(f"checkpoints {missing[0]} to {missing[-1]} left" in p for p in problems)


def test_checkpoints_of_a_run_that_began_while_its_job_could_not_be_read_are_counted() -> None:
    job = ScriptedJob(0, restarts_s=[45.0])
    reading = Reading([job, ScriptedJob(1)], Period(Trouble.HANGING, 44.0, 110.0, job=0))
    reading.run(60)
    began_ids = {n for n, at_s in job.terminal_of(45.0, 3_600.0) if at_s < reading.loop.time()}
    read = began_ids & set(reading.checkpoints(0))
    missing = {n for n in began_ids - read if n < min(read)}
    assert len(missing) > 5
    assert reading.shed == Shed(checkpoint_count=len(missing))
    problems = [p for observations in reading.polls for o in observations for p in o.problems]
    assert any(f"checkpoints {min(missing)} to {max(missing)} left" in p for p in problems)


def test_checkpoints_that_left_the_history_before_the_target_was_watched_are_not_counted() -> None:
    reading = Reading([ScriptedJob(0), ScriptedJob(1)], Period(Trouble.GARBLED, 39.0, 60.0, job=0))
    reading.run(30)
    assert min(reading.checkpoints(0)) > 5
    assert reading.shed == Shed()


def test_a_response_that_is_older_than_the_one_before_counts_nothing() -> None:
    reading = Reading([ScriptedJob(0, history_max=2)], Period(Trouble.STALE, 41.0, 43.0))
    reading.run(4, pause_s=5.0, first_pause_s=2.0)
    ids = reading.checkpoints(0)
    assert set(ids) == set(range(min(ids), max(ids) + 1))
    assert reading.shed == Shed()


def test_a_checkpoint_that_was_open_and_left_the_history_before_its_end_was_read_is_counted() -> None:
    class Open(ScriptedFlink):
        def _history(self, job: ScriptedJob, now_s: float) -> object:
            answer = super()._history(job, now_s)
            assert isinstance(answer, dict)
            if now_s < 41.0:
                answer["history"][0] |= {"status": "IN_PROGRESS", "className": "in_progress"}
            return answer

    reading = Reading([ScriptedJob(0)])
    reading.flink.__class__ = Open
    reading.run(3, first_pause_s=60.0)
    ids = reading.checkpoints(0)
    assert reading.shed.checkpoint_count == len(set(range(min(ids), max(ids) + 1)) - set(ids)) > 0


def test_a_poll_with_less_effort_leaves_details_to_later_polls() -> None:
    reading = Reading([ScriptedJob(0)])
    reading.run(3, pause_s=0.1, efforts=[Effort.HEADERS, Effort.NEWEST, Effort.FULL])
    details = [[bool(c.details) for c in observations[0].checkpoints] for observations in reading.polls]
    assert details == [[False] * 10, [True], [True] * 9]
    first, second, third = (observations[0] for observations in reading.polls)
    assert max(reading.checkpoints(0)) == second.checkpoints[0].header.checkpoint_id
    assert (first.placements, first.pressure) == ((), ())
    assert third.placements or second.placements
    assert reading.shed == Shed()


def test_jobs_that_a_poll_did_not_get_to_are_read_without_details_first() -> None:
    reading = Reading([ScriptedJob(n) for n in range(40)], request_s=0.05, deadline_s=10.0)
    reading.run(2, pause_s=0.0)
    second = [o for o in reading.polls[1] if o.counts is not None]
    assert len(second) == 40
    assert not any(c.details for o in second for c in o.checkpoints)


def test_a_target_that_dies_during_a_poll_loses_nothing() -> None:
    reading = Reading([ScriptedJob(n) for n in range(3)], Period(Trouble.AWAY, 40.05, 41.0))
    reading.run(4)
    for job in range(3):
        ids = reading.checkpoints(job, has_details=True)
        assert sorted(ids) == list(range(min(ids), max(ids) + 1))
        assert set(reading.checkpoints(job)) == set(ids)
    assert reading.shed == Shed()
