"""Random jobs of the reference runtime, each with a known cause of slow checkpoints.

A seed determines the shape of the job, its parallelism, its settings, and the vertex and subtasks that are the cause.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from backend.domain.verdict import Health, VerdictKind
from backend.runtime.engine.jobfile import JobSpec
from tests.support.chained_jobs import ALIGNED_TIMEOUT, UNALIGNED, chain, delayed, hashed, loaded, settings_of

INTERVAL_S = 5
_MODES: dict[str, dict[str, object]] = {
    "aligned": {},
    "unaligned": {UNALIGNED: True},
    "aligned-timeout": {UNALIGNED: True, ALIGNED_TIMEOUT: "1 s"},
}
_RECORD_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class DrawnJob:
    """A job and its expected diagnosis. If ``subtasks`` is None, the subtask with the most records is expected."""

    spec: JobSpec
    mode: str
    kind: VerdictKind
    vertex: str | None
    subtasks: tuple[int, ...] | None
    healths: tuple[Health, ...] = (Health.SLOW, Health.FAILING)


def capacity(rnd: random.Random) -> DrawnJob:
    """Build a job in which all subtasks of one vertex are slow and the source has no rate limit."""
    job = _Draft(rnd, stages=rnd.choice([2, 3]), mode=rnd.choice(sorted(_MODES)), timeout=rnd.choice(["1 min", "3 s"]))
    slow = rnd.choice(job.vertices[1:])
    slow["cost_us"] = rnd.choice([10_000, 20_000])
    return job.done(
        VerdictKind.CAPACITY,
        slow,
        range(slow["parallelism"]),
        healths=(Health.SLOW, Health.FAILING) if job.mode == "aligned" else _MAY_SUFFER[job.mode],
    )


def straggler(rnd: random.Random) -> DrawnJob:
    """Build a job in which one subtask takes several times as long per record.

    The other subtasks have capacity to spare.
    """
    job = _Draft(rnd, stages=rnd.choice([2, 3]), mode=rnd.choice(sorted(_MODES)))
    vertex = rnd.choice(job.vertices[1:])
    who, factor = rnd.randrange(vertex["parallelism"]), rnd.choice([4.0, 6.0, 10.0])
    vertex |= {"cost_us": 5_000, "slow_subtasks": {str(who): factor}}
    # This rate exceeds the slow subtask's capacity so much that the subtask's channels are full well before the run
    # ends.
    job.source["rate"] = vertex["parallelism"] * 200 / factor * rnd.choice([1.7, 2.0])
    return job.done(VerdictKind.STRAGGLER, vertex, [who], healths=_MAY_SUFFER[job.mode])


def skew(rnd: random.Random) -> DrawnJob:
    """Build a job in which one key has at least half of the records. With even shares, every subtask could keep up."""
    job = _Draft(rnd, stages=rnd.choice([1, 2]), mode=rnd.choice(sorted(_MODES)), parallelism=rnd.randint(3, 6))
    last, hot = job.vertices[-1], rnd.choice([0.5, 0.6])
    last["cost_us"] = 8_000
    job.source["hot_key_ratio"] = hot
    job.source["rate"] = 125 / (hot + (1 - hot) / last["parallelism"]) * 1.4
    return job.done(VerdictKind.SKEW, last, None, healths=_MAY_SUFFER[job.mode])


def store(rnd: random.Random) -> DrawnJob:
    """Build a job in which storing the state of one vertex, the last or a middle one, takes most of the interval."""
    job = _Draft(
        rnd, stages=rnd.choice([1, 2, 3]), mode=rnd.choice(sorted(_MODES)), timeout=rnd.choice(["1 min", "3 s"])
    )
    vertex = rnd.choice(job.vertices[1:])
    if vertex is not job.vertices[-1]:
        vertex["kind"] = "keyed"
    vertex["state_bytes"] = 20_000
    job.source |= {"rate": 150, "keys": 200}
    job.hash_by_key()
    job.more["store"] = {"latency": "100 ms", "bytes_per_s": f"{200 * 20_000 // 4} b"}
    return job.done(VerdictKind.STORE, vertex, range(vertex["parallelism"]))


def slow_upload(rnd: random.Random) -> DrawnJob:
    """Build a job in which one subtask uploads its state slowly to the store."""
    job = _Draft(rnd, stages=rnd.choice([1, 2]), mode=rnd.choice(sorted(_MODES)))
    last = job.vertices[-1]
    who = rnd.randrange(last["parallelism"])
    last |= {"state_bytes": 2_000, "slow_uploads": {str(who): 350.0}}
    job.source |= {"rate": 100, "keys": 200}
    return job.done(VerdictKind.STORE, last, [who])


def sync(rnd: random.Random) -> DrawnJob:
    """Build a job in which the sync phase of one vertex takes seconds."""
    job = _Draft(rnd, stages=rnd.choice([1, 2, 3]), mode=rnd.choice(sorted(_MODES)))
    vertex = rnd.choice(job.vertices[1:])
    vertex["sync"] = "3 s"
    job.source["rate"] = 30
    return job.done(VerdictKind.SYNC, vertex, range(vertex["parallelism"]))


def late_input(rnd: random.Random) -> DrawnJob:
    """Build a job in which one subtask of the source receives each trigger seconds late."""
    job = _Draft(rnd, stages=rnd.choice([1, 2]), mode=rnd.choice(sorted(_MODES)))
    count = job.source["parallelism"]
    who = rnd.randrange(count)
    job.source["rate"] = 60
    job.more["fault"] = [delayed("rpc.trigger", "3500 ms", hit=who + 1 if n == 0 else count) for n in range(30)]
    return job.done(VerdictKind.LATE_INPUT, job.source, [who])


def healthy(rnd: random.Random) -> DrawnJob:
    """Build a job in which one vertex does work and no vertex is near its limit."""
    job = _Draft(rnd, stages=rnd.choice([1, 2, 3]), mode=rnd.choice(sorted(_MODES)))
    vertex = rnd.choice(job.vertices[1:])
    vertex["cost_us"] = 20_000
    job.source["rate"] = vertex["parallelism"] * 50 * rnd.choice([0.2, 0.5, 0.65])
    return job.done(VerdictKind.NONE, None, (), healths=(Health.HEALTHY,))


CAUSES: dict[str, Callable[[random.Random], DrawnJob]] = {
    f.__name__: f for f in (capacity, straggler, skew, store, slow_upload, sync, late_input, healthy)
}

# The accepted values of the job's health, by checkpoint mode. Unaligned barriers overtake the queues, so these
# checkpoints are healthy, but the diagnosis must still name the cause. In the other modes, the health depends on the
# length of the queues, which the seed does not determine.
_MAY_SUFFER = {
    "aligned": (Health.SLOW, Health.FAILING, Health.HEALTHY),
    "aligned-timeout": (Health.SLOW, Health.HEALTHY),
    "unaligned": (Health.HEALTHY,),
}


class _Draft:
    """A job under construction: source -> stage-1 -> ... -> last.

    All vertices have capacity to spare, and all exchanges are all-to-all.
    """

    def __init__(
        self, rnd: random.Random, *, stages: int, mode: str, timeout: str = "1 min", parallelism: int | None = None
    ) -> None:
        count = parallelism or rnd.randint(2, 6)
        common: dict[str, Any] = {"parallelism": count, "record_bytes": _RECORD_BYTES, "cost_us": 200}
        self.mode = mode
        source = {"keys": 4_000, "cost_us": 100, "parallelism": rnd.choice([count, max(1, count - 1)])}
        self.vertices = chain([*(f"stage-{i}" for i in range(1, stages)), "last"], common, source, kind="map")
        self.vertices[-1]["kind"] = "keyed+sink"
        self.source = self.vertices[0]
        names = [v["id"] for v in self.vertices]
        even = [{"partitioner": "hash", "hash_by": "origin"}, {"partitioner": "rebalance"}]
        self.edges: list[dict[str, Any]] = [{"from": a, "to": b, **rnd.choice(even)} for a, b in pairwise(names)]
        self.edges[-1] = {"from": names[-2], "to": names[-1], "partitioner": "hash"}
        self.more: dict[str, Any] = {}
        self._seed = rnd.randrange(10**6)
        self._config = settings_of(f"{INTERVAL_S} s", timeout) | _MODES[mode]

    def hash_by_key(self) -> None:
        """Hash every exchange by key, because a keyed vertex in the middle requires this."""
        self.edges = hashed((e["from"], e["to"]) for e in self.edges)

    def done(
        self,
        kind: VerdictKind,
        vertex: dict[str, Any] | None,
        subtasks: range | list[int] | tuple[int, ...] | None,
        *,
        healths: tuple[Health, ...] = (Health.SLOW, Health.FAILING),
    ) -> DrawnJob:
        """Load the job, and return it with its expected diagnosis."""
        spec = loaded(self.vertices, self._config, seed=self._seed, edges=self.edges, **self.more)
        named = None if subtasks is None else tuple(subtasks)
        where = None if vertex is None else str(vertex["id"])
        return DrawnJob(spec, self.mode, kind, where, named, healths)
