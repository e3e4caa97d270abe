"""Goal: under all faults, every terminal checkpoint that a target showed is stored once or counted as shed.

Method: the real manager, loops, Flink collector, sink and spool run in virtual time against scripted Flinks and a
scripted store. A seed draws a schedule: targets and single jobs are slow, hang, die, lie and restart; the store is slow
or away; the spool may be too small; the process may be short of CPU, or is killed and started again. At the end of a
schedule, all faults stop. To replay one schedule: pytest tests/simulation -k "schedule and seed-17"
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from backend.domain.checkpoint import CheckpointHeader
from backend.domain.clock import to_epoch_ms
from backend.domain.connection import PLAIN, ConnectionOptions
from backend.domain.errors import StoreUnavailableError
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.observation import NOTHING_SHED, JobObservation, JobState, KnownRun, Observation, Shed
from backend.domain.target import TargetOrigin, TargetState
from collectors.base import Collector, TargetRow, pause
from collectors.flink.collector import CollectorOptions, FlinkCollector
from collectors.loop import LoopOptions
from collectors.manager import CollectorManager, ManagerOptions
from collectors.role import with_waiting
from collectors.sink import SpoolingSink
from collectors.spool import Spool
from tests.support.scripted_flink import Period, ScriptedFlink, ScriptedJob, Trouble
from tests.support.seeds import over_seeds
from tests.support.virtual_loop import BEGINNING, VirtualLoop, run_in_virtual_time

TROUBLED_S = 150.0
CALM_S = 160.0
_OVER_S = 2 * (TROUBLED_S + CALM_S)
"""After this time, the target is not read any more."""
Key = tuple[str, int, int]
_GAP = re.compile(r"^checkpoints? (\d+)(?: to (\d+))? left the engine's history", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    id: TargetId
    kind: str = "flink"
    url: str = "http://scripted"
    name: str = "scripted"
    labels: Mapping[str, str] = field(default_factory=dict)
    origin: TargetOrigin = TargetOrigin.API
    connection: ConnectionOptions = PLAIN
    interval_s: float | None = None


@dataclass(frozen=True)
class Schedule:
    """The schedule that a seed determines.

    ``away`` and ``slow`` are the periods (from, to) in which the store is away or slow. In each period of ``dead`` no
    collector runs.
    """

    jobs: list[list[ScriptedJob]]
    periods: list[list[Period]]
    away: list[tuple[float, float]]
    slow: list[tuple[float, float]]
    dead: list[tuple[float, float]]
    spool_max_bytes: int
    polls_max: int
    work_s: float

    @staticmethod
    def drawn(rnd: random.Random) -> Schedule:
        jobs = [[_job(rnd, n) for n in range(rnd.randint(1, 3))] for _ in range(rnd.randint(1, 3))]
        return Schedule(
            jobs,
            [[_period(rnd, len(own)) for _ in range(rnd.randint(0, 5))] for own in jobs],
            [_span(rnd, 90.0) for _ in range(rnd.randint(0, 3))],
            [_span(rnd, 60.0) for _ in range(rnd.randint(0, 2))],
            _apart([_span(rnd, 60.0) for _ in range(rnd.choice([0, 0, 1, 2]))]),
            spool_max_bytes=rnd.choice([1, 20_000, 10**7]),
            polls_max=rnd.choice([3, 8]),
            work_s=rnd.choice([0.0, 0.0, 0.005, 0.03]),
        )


def _job(rnd: random.Random, number: int) -> ScriptedJob:
    restarts_s = sorted(rnd.uniform(0, TROUBLED_S) for _ in range(rnd.choice([0, 0, 1, 2])))
    return ScriptedJob(
        number,
        interval_s=rnd.choice([2.0, 3.0, 5.0]),
        history_max=rnd.choice([4, 10]),
        vertex_count=rnd.randint(1, 3),
        restarts_s=restarts_s,
    )


def _span(rnd: random.Random, length_max_s: float) -> tuple[float, float]:
    from_s = rnd.uniform(0, TROUBLED_S)
    return from_s, min(from_s + rnd.uniform(1, length_max_s), TROUBLED_S)


def _apart(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the spans in order, without those that overlap an earlier one."""
    found: list[tuple[float, float]] = []
    for span in sorted(spans):
        if not found or found[-1][1] + 1.0 < span[0]:
            found.append(span)
    return found


def _period(rnd: random.Random, job_count: int) -> Period:
    job = rnd.choice([None, rnd.randrange(job_count)])
    return Period(rnd.choice(list(Trouble)), *_span(rnd, 60.0), job=job, delay_s=rnd.choice([0.2, 1.0, 4.0]))


class Store:
    """A store that is away or slow at times. Like PostgreSQL, it keeps each checkpoint once, by its key."""

    def __init__(self, loop: VirtualLoop, schedule: Schedule) -> None:
        self._loop = loop
        self._schedule = schedule
        self.stored: dict[TargetId, set[Key]] = {}
        self.running: dict[TargetId, dict[tuple[EngineRunId, datetime], KnownRun]] = {}
        self.gaps: dict[TargetId, set[tuple[str, datetime, int]]] = {}
        """The checkpoints that were reported as shed: (run's id, run's start, checkpoint id)."""
        self.shed: dict[TargetId, Shed] = {}
        """What was shed without naming the checkpoints."""
        self._newest: dict[TargetId, datetime] = {}

    async def write(self, observation: Observation) -> object:
        self.check()
        now_s = self._loop.time()
        await asyncio.sleep(20.0 if any(a <= now_s < b for a, b in self._schedule.slow) else 0.01)
        self.check()
        target = observation.target_id
        for job in observation.jobs:
            headers = [c.header for c in job.checkpoints if c.header.status.is_terminal]
            keys = {(str(job.engine_run_id), h.checkpoint_id, to_epoch_ms(h.triggered_at)) for h in headers}
            self.stored.setdefault(target, set()).update(keys)
            self._note_run(target, job, headers)
        newest = self._newest.get(target)
        if newest is None or observation.observed_at > newest:
            self._newest[target] = observation.observed_at
            self.shed[target] = self.shed.get(target, NOTHING_SHED) + observation.shed
            for job in observation.jobs:
                self._note_gaps(target, job)
        return None

    def _note_run(self, target: TargetId, job: JobObservation, headers: Sequence[CheckpointHeader]) -> None:
        running, key = self.running.setdefault(target, {}), (job.engine_run_id, job.started_at)
        if job.state is JobState.ENDED:
            running.pop(key, None)
            return
        before = running.get(key, KnownRun(job.name))
        ids = [h.checkpoint_id for h in headers] + ([] if before.newest_id is None else [before.newest_id])
        running[key] = KnownRun(job.name, max(ids, default=None))

    def _note_gaps(self, target: TargetId, job: JobObservation) -> None:
        named = [range(int(a), int(b or a) + 1) for a, b in _GAP.findall("\n".join(job.problems))]
        assert sum(map(len, named)) == job.shed.checkpoint_count
        found = self.gaps.setdefault(target, set())
        new = {(str(job.engine_run_id), job.started_at, number) for ids in named for number in ids}
        assert not new & found, "counted twice"
        found |= new

    async def report_failure(self, target_id: TargetId, *, kind: TargetState, reason: str, at: datetime) -> None:
        self.check()

    def check(self) -> None:
        """Raise an error while the store is away."""
        if any(a <= self._loop.time() < b for a, b in self._schedule.away):
            raise StoreUnavailableError("connection refused")


class Targets:
    def __init__(self, ids: Collection[TargetId]) -> None:
        self._rows = [Row(i) for i in ids]

    async def take(self) -> Sequence[TargetRow]:
        return self._rows

    async def release(self, target_ids: Collection[TargetId]) -> None:
        pass


class Run:
    """One schedule from its beginning to the end of the calm."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rnd = random.Random(seed)
        self.schedule = Schedule.drawn(self.rnd)
        self.loop = VirtualLoop()
        self.flinks = {
            TargetId(f"t{n}"): ScriptedFlink(
                self.loop, jobs, self.schedule.periods[n], work=self.loop.work, work_s=self.schedule.work_s
            )
            for n, jobs in enumerate(self.schedule.jobs)
        }
        self.store = Store(self.loop, self.schedule)
        self._folder = folder
        self.managers: list[CollectorManager] = []
        self.sinks: list[SpoolingSink] = []
        self._start()

    def _start(self) -> None:
        """Open the spool, and create the parts of a new process."""
        self.spool = Spool(self._folder, size_max_bytes=self.schedule.spool_max_bytes, monotonic_s=self.loop.time)
        self.sinks.append(SpoolingSink(self.store, self.spool, pause=pause))
        self.managers.append(self._manager())

    def _manager(self) -> CollectorManager:
        return CollectorManager(
            Targets(list(self.flinks)),
            self.sinks[-1],
            self._open,
            clock=self.loop,
            pause=pause,
            random=self.rnd.random,
            options=ManagerOptions(
                loop=LoopOptions(interval_s=2.0, buffer_max=4),
                polls_max=self.schedule.polls_max,
                doubtful_max=1,
            ),
        )

    @asynccontextmanager
    async def _open(self, row: TargetRow) -> AsyncIterator[Collector]:
        self.store.check()
        yield FlinkCollector(
            self.flinks[row.id],
            target_id=row.id,
            monotonic_s=self.loop.monotonic_s,
            known=with_waiting(self.store.running.get(row.id, {}), self.spool.waiting(row.id)),
            options=CollectorOptions(deadline_s=10.0),
        )

    def go(self) -> None:
        run_in_virtual_time(self._main(), self.loop)
        self.spool.close()

    async def _main(self) -> None:
        for from_s, to_s in self.schedule.dead:
            running = asyncio.gather(*self._tasks(asyncio.Event()))
            await asyncio.sleep(from_s - self.loop.time())
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            self.spool.close()
            await asyncio.sleep(to_s - self.loop.time())
            self._start()
        stop = asyncio.Event()
        running = asyncio.gather(*self._tasks(stop))
        await asyncio.sleep(TROUBLED_S + CALM_S - self.loop.time())
        stop.set()
        await running
        while len(self.spool):
            assert await self.sinks[-1].replay_once()

    def _tasks(self, stop: asyncio.Event) -> list[Coroutine[None, None, None]]:
        return [self.sinks[-1].replay(stop), self.managers[-1].run(stop)]

    def missing(self, target: TargetId) -> set[Key]:
        """Return the checkpoints that are neither stored nor named in a gap.

        A checkpoint counts as missing if the target's answers showed it at least twice, or if it lies between two
        stored checkpoints of its run. If the process was killed, only the second condition applies, because it is not
        known what the killed process had read.
        """
        flink, stored = self.flinks[target], self.store.stored.get(target, set())
        wanted = {key for key, count in flink.shown_count.items() if count > 1 and not self.schedule.dead}
        for job in flink.jobs:
            for began_s in [job.started_s, *job.restarts_s]:
                whole = {(job.id, number, flink.ms(at_s)) for number, at_s in job.terminal_of(began_s, _OVER_S)}
                if numbers := [number for _, number, _ in whole & stored]:
                    first, last = min(numbers), max(numbers)
                    wanted |= {key for key in whole if first <= key[1] <= last}
        return wanted - stored - self.gaps(target)

    def gaps(self, target: TargetId) -> set[Key]:
        """Return the checkpoints that were reported as shed."""
        flink = self.flinks[target]
        begun = {(job.id, began_s): job for job in flink.jobs for began_s in [job.started_s, *job.restarts_s]}
        found: set[Key] = set()
        for (job_id, began_s), job in begun.items():
            started_at = BEGINNING + timedelta(milliseconds=round(began_s * 1000))
            ids = {n for i, at, n in self.store.gaps.get(target, set()) if (i, at) == (job_id, started_at)}
            found |= {(job_id, n, flink.ms(at_s)) for n, at_s in job.terminal_of(began_s, _OVER_S) if n in ids}
        return found

    def record(self) -> str:
        """Return what the run read and stored, as text that is the same if and only if the run was the same."""
        return "\n".join(
            f"{target} {flink.request_count} {sorted(flink.shown_count.items())} "
            f"{sorted(self.store.stored.get(target, ()))} {sorted(self.gaps(target))} {self.store.shed.get(target)}"
            for target, flink in self.flinks.items()
        )

    def late(self, target: TargetId) -> set[Key]:
        """Return the checkpoints of the second half of the calm that are not stored two poll intervals later."""
        flink, end_s = self.flinks[target], TROUBLED_S + CALM_S
        wanted = {
            (job.id, number, flink.ms(at_s))
            for job in flink.jobs
            for number, at_s in job.terminal(end_s)
            if TROUBLED_S + CALM_S / 2 <= at_s <= end_s - job.duration_s - 4.0 - 1.0
        }
        return wanted - self.store.stored.get(target, set())


@over_seeds(25, more=1000)
def test_every_checkpoint_of_a_schedule_is_stored_or_counted_as_shed(tmp_path: Path, seed: int) -> None:
    run = Run(seed, tmp_path)
    run.go()
    assert not any(m.broken_count for m in run.managers), f"seed={seed}"
    assert not any(s.broken_count for s in run.sinks), f"seed={seed}"
    for target, flink in run.flinks.items():
        stored = run.store.stored.get(target, set())
        assert stored <= set(flink.shown_count), f"invented or mixed up: seed={seed} target={target}"
        assert not stored & run.gaps(target), f"stored and counted as shed: seed={seed} target={target}"
        # Checkpoints that neither PostgreSQL nor the spool accepted are missing, and must have been counted as shed.
        missing, shed = run.missing(target), run.store.shed.get(target, NOTHING_SHED)
        assert len(missing) <= shed.checkpoint_count, f"lost silently: seed={seed} target={target} {sorted(missing)}"
        assert not run.late(target), f"not recovered: seed={seed} target={target}"


def test_a_schedule_is_the_same_whatever_the_hash_seed_is(tmp_path: Path) -> None:
    # In this schedule, the order in which the loops of the targets start decides what is read.
    script = (
        "import sys; from pathlib import Path; from tests.simulation.test_collector_schedules import Run\n"
        "run = Run(6, Path(sys.argv[1])); run.go(); Path(sys.argv[2]).write_text(run.record())"
    )
    root, records = Path(__file__).parents[2], []
    for hash_seed in ("0", "1"):
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root), "PATH": os.defpath}
        record = tmp_path / f"record-{hash_seed}"
        command = [sys.executable, "-c", script, str(tmp_path / f"spool-{hash_seed}"), str(record)]
        done = subprocess.run(command, env=environment, cwd=root, capture_output=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr.decode()
        records.append(record.read_text())
    assert records[0].count("\n") == 2
    assert len(set(records)) == 1


def test_the_schedules_contain_every_trouble() -> None:
    drawn = [Schedule.drawn(random.Random(seed)) for seed in range(25)]
    troubles = Counter(p.trouble for s in drawn for periods in s.periods for p in periods)
    assert set(troubles) == set(Trouble)
    assert any(s.away for s in drawn)
    assert any(s.slow for s in drawn)
    assert any(s.dead for s in drawn)
    assert any(job.restarts_s for s in drawn for jobs in s.jobs for job in jobs)
