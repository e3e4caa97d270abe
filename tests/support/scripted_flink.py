"""A Flink with several jobs that follow a script: it is slow, hangs, dies, lies and restarts at given times.

It implements ``FlinkTransport`` and answers from its own clock. It counts how often it listed each checkpoint.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import orjson

from backend.domain.clock import Clock, to_epoch_ms
from backend.domain.errors import TargetProtocolError, TargetUnavailableError

_TRANSPORT_TIMEOUT_S = 10.0


class Trouble(StrEnum):
    """What is wrong with a target, or with one of its jobs, for a while."""

    SLOW = "slow"
    HANGING = "hanging"
    AWAY = "away"
    GARBLED = "garbled"
    STALE = "stale"
    """The target sends the history of some seconds ago, as a cache would."""
    MISSING = "missing"
    """The target answers requests for details with 404."""


@dataclass(frozen=True)
class Period:
    """A trouble of the whole target or of one job, from ``from_s`` to ``to_s``.

    ``delay_s`` is the delay of each response if the trouble is ``SLOW``.
    """

    trouble: Trouble
    from_s: float
    to_s: float
    job: int | None = None
    delay_s: float = 0.5


@dataclass
class ScriptedJob:
    """A job that takes a checkpoint every ``interval_s``. Its history lists the newest ``history_max`` checkpoints."""

    number: int
    interval_s: float = 3.0
    duration_s: float = 0.7
    history_max: int = 10
    vertex_count: int = 2
    parallelism: int = 1
    started_s: float = 0.0
    restarts_s: list[float] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The job's id at the engine, which stays the same over restarts."""
        return f"{self.number + 1:032x}"

    def run_began_s(self, now_s: float) -> float:
        """Return the start of the run that is current at ``now_s``."""
        return max([self.started_s, *(r for r in self.restarts_s if r <= now_s)])

    def terminal(self, now_s: float) -> Iterator[tuple[int, float]]:
        """Yield the id and the trigger time of each terminal checkpoint of the current run, newest first."""
        first = int(self.run_began_s(now_s) / self.interval_s) + 1
        last = int((now_s - self.duration_s) / self.interval_s)
        for number in range(last, first - 1, -1):
            yield number, number * self.interval_s

    def terminal_of(self, began_s: float, until_s: float) -> Iterator[tuple[int, float]]:
        """Yield the terminal checkpoints of the run that began at ``began_s``, up to ``until_s``."""
        ended_s = min([*(r for r in self.restarts_s if r > began_s), until_s])
        yield from self.terminal(ended_s - 0.001)

    def shown(self, now_s: float) -> list[tuple[int, float]]:
        """Return the terminal checkpoints that the history lists at ``now_s``."""
        return [c for _, c in zip(range(self.history_max), self.terminal(now_s), strict=False)]

    def total(self, now_s: float) -> int:
        """Return the number of terminal checkpoints of the current run."""
        return sum(1 for _ in self.terminal(now_s))


class ScriptedFlink:
    """The target. ``request_s`` is the time that a request takes if nothing is wrong."""

    def __init__(
        self,
        clock: Clock,
        jobs: list[ScriptedJob],
        periods: list[Period] | None = None,
        *,
        request_s: float = 0.002,
        work: Callable[[float], None] = lambda _: None,
        work_s: float = 0.0,
    ) -> None:
        self._clock = clock
        self._epoch_ms = to_epoch_ms(clock.now()) - round(clock.monotonic_s() * 1000)
        self.jobs = jobs
        self.periods = periods or []
        self._request_s = request_s
        self._work, self._work_s = work, work_s
        self.request_count = 0
        self.shown_count: Counter[tuple[str, int, int]] = Counter()
        """How often a response listed each terminal checkpoint: (job's id, checkpoint id, trigger in epoch ms)."""

    @property
    def url(self) -> str:
        """The target's address, for messages."""
        return "http://scripted"

    def ms(self, at_s: float) -> int:
        """Return the epoch milliseconds of a virtual time."""
        return self._epoch_ms + round(at_s * 1000)

    def is_well(self, from_s: float, to_s: float, job: int) -> bool:
        """Return whether nothing is wrong with the job and its target between the two times."""
        return not any(p.from_s < to_s and from_s < p.to_s and p.job in (None, job) for p in self.periods)

    async def get(self, path: str) -> bytes:
        """Answer a request after the time that it takes; see ``FlinkTransport``."""
        self.request_count += 1
        found = re.match(r"/jobs/([0-9a-f]{32})", path)
        number = None if found is None else int(found[1], 16) - 1
        troubles = {p.trouble: p for p in self._current() if p.job is None or p.job == number}
        if Trouble.AWAY in troubles:
            raise TargetUnavailableError(url=self.url, reason="cannot connect: refused")
        if Trouble.HANGING in troubles:
            await asyncio.sleep(_TRANSPORT_TIMEOUT_S)
            raise TargetUnavailableError(url=self.url, reason="no answer within 10 s")
        slow = troubles.get(Trouble.SLOW)
        self._work(self._work_s)
        await asyncio.sleep(self._request_s + (0.0 if slow is None else slow.delay_s))
        if Trouble.GARBLED in troubles:
            raise TargetProtocolError(url=self.url, reason="HTTP 500", status=500)
        if Trouble.MISSING in troubles and "/details/" in path:
            raise TargetProtocolError(url=self.url, reason="HTTP 404", status=404)
        now_s = self._clock.monotonic_s()
        return self.body(path, max(0.0, now_s - 4.0) if Trouble.STALE in troubles else now_s)

    def body(self, path: str, at_s: float) -> bytes:
        """Return the body of the response to ``path`` at a time. This raises the error of a status other than 200."""
        found = re.match(r"/jobs/([0-9a-f]{32})", path)
        return orjson.dumps(self._answer(path, None if found is None else self._job(int(found[1], 16) - 1), at_s))

    def _current(self) -> Iterator[Period]:
        now_s = self._clock.monotonic_s()
        return (p for p in self.periods if p.from_s <= now_s < p.to_s)

    def _job(self, number: int) -> ScriptedJob:
        return next(j for j in self.jobs if j.number == number)

    def _answer(self, path: str, job: ScriptedJob | None, now_s: float) -> object:
        if job is None:
            if path == "/config":
                return {"flink-version": "1.20.5"}
            if path == "/jobs/overview":
                return {"jobs": [self._overview(j) for j in self.jobs]}
            return []
        rest = path.split("?")[0].removeprefix(f"/jobs/{job.id}")
        if rest == "":
            return self._described(job, now_s)
        if rest == "/checkpoints":
            return self._history(job, now_s)
        if rest == "/checkpoints/config":
            return {"mode": "exactly_once", "interval": round(job.interval_s * 1000), "timeout": 60_000}
        if rest == "/exceptions":
            return {"exceptionHistory": {"entries": []}}
        if found := re.fullmatch(r"/checkpoints/details/(\d+)/subtasks/([0-9a-f]+)", rest):
            return self._subtasks(job, int(found[1]), now_s)
        if rest.startswith("/vertices/") and rest.count("/") == 2:
            subtasks = [{"subtask": n, "host": "h", "attempt": 0} for n in range(job.parallelism)]
            return {"id": rest.rpartition("/")[2], "subtasks": subtasks}
        return []

    def _overview(self, job: ScriptedJob) -> object:
        now_s = self._clock.monotonic_s()
        began_ms = self.ms(job.run_began_s(now_s))
        return {
            "jid": job.id,
            "name": f"job {job.number}",
            "state": "RUNNING",
            "start-time": began_ms,
            "end-time": -1,
            "duration": self.ms(now_s) - began_ms,
            "last-modification": began_ms,
        }

    def _described(self, job: ScriptedJob, now_s: float) -> object:
        vertices = [
            {"id": f"{n + 1:032x}", "name": f"vertex {n}", "parallelism": job.parallelism, "maxParallelism": 128}
            for n in range(job.vertex_count)
        ]
        return {
            "start-time": self.ms(job.run_began_s(now_s)),
            "vertices": vertices,
            "plan": {"nodes": [{"id": v["id"]} for v in vertices]},
        }

    def _history(self, job: ScriptedJob, now_s: float) -> object:
        shown = job.shown(now_s)
        self.shown_count.update((job.id, number, self.ms(at_s)) for number, at_s in shown)
        total = job.total(now_s)
        counts = {"restored": 0, "total": total, "in_progress": 0, "completed": total, "failed": 0}
        history = [self._header(job, number, at_s) for number, at_s in shown]
        return {"counts": counts, "latest": {"restored": None}, "history": history}

    def _header(self, job: ScriptedJob, number: int, at_s: float) -> dict[str, object]:
        took_ms = round(job.duration_s * 1000)
        return {
            "className": "completed",
            "id": number,
            "status": "COMPLETED",
            "is_savepoint": False,
            "checkpoint_type": "CHECKPOINT",
            "trigger_timestamp": self.ms(at_s),
            "latest_ack_timestamp": self.ms(at_s) + took_ms,
            "checkpointed_size": 10,
            "state_size": 10,
            "end_to_end_duration": took_ms,
            "processed_data": 0,
            "persisted_data": 0,
            "num_subtasks": job.vertex_count * job.parallelism,
            "num_acknowledged_subtasks": job.vertex_count * job.parallelism,
            "tasks": {},
            "discarded": False,
        }

    def _subtasks(self, job: ScriptedJob, number: int, now_s: float) -> object:
        at_s = dict(job.shown(now_s)).get(number)
        if at_s is None:
            raise TargetProtocolError(url=self.url, reason="HTTP 404", status=404)
        took_ms = round(job.duration_s * 1000)
        subtask = {
            "className": "completed",
            "ack_timestamp": self.ms(at_s) + took_ms,
            "end_to_end_duration": took_ms,
            "checkpointed_size": 5,
            "state_size": 5,
            "start_delay": 1,
            "unaligned_checkpoint": False,
            "checkpoint": {"sync": 1, "async": 2},
            "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": 0},
            "aborted": False,
        }
        subtasks = [{"index": n, **subtask} for n in range(job.parallelism)]
        return {"id": number, "status": "COMPLETED", "num_subtasks": job.parallelism, "subtasks": subtasks}
