"""Draws jobs of the reference runtime whose checkpoints expire, nearly expire, or are well.

A seed determines the kind of trouble, its strength and when it strikes. Checkpoints of a runtime job are minutes apart,
as in production, so a run covers hours. The result is what a collector would have stored of the run: for each
checkpoint the trigger, the acknowledgements and the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from backend.analysis.health.finish import PastCheckpoint
from backend.backtest.early_warning import EndedCheckpoint
from backend.domain.failure import FailureReason
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint
from tests.support.chained_jobs import chain, delayed, loaded, settings_of

CHECKPOINTS = 120
_QUEUE_RECORDS = 110
"""About the number of records that wait in front of a subtask of these jobs when all buffers are full."""


@dataclass(slots=True)
class Drawn:
    """A job under construction: source -> middle -> last. Its trouble is added by one of ``KINDS``."""

    rnd: random.Random
    kind: str = ""
    interval_s: float = 60.0
    timeout_s: float = 300.0
    config: dict[str, Any] = field(default_factory=dict)
    vertices: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rnd, n = self.rnd, self.rnd.choice([2, 3, 4])
        self.interval_s = rnd.choice([60.0, 120.0, 300.0])
        self.timeout_s = self.interval_s * rnd.choice([1.0, 2.0, 5.0])
        cost = round(self.timeout_s * 1e6 / _QUEUE_RECORDS * 0.05)
        common = {"parallelism": n, "record_bytes": 8_000, "cost_us": cost, "watermark_interval_ms": 60_000}
        source = {"keys": 600, "cost_us": 100, "rate": n * 0.3e6 / cost}
        self.vertices = chain(["middle", "last"], common, source)
        self.config = settings_of(f"{self.interval_s:g} s", f"{self.timeout_s:g} s")
        self.config["execution.buffer-timeout.interval"] = "5 s"

    @property
    def run_s(self) -> float:
        """The length of the run in seconds of virtual time."""
        return self.interval_s * CHECKPOINTS

    @property
    def count(self) -> int:
        """The parallelism of every vertex."""
        return int(self.vertices[0]["parallelism"])

    def cost(self, vertex: dict[str, Any], share: float) -> float:
        """Let full queues in front of a vertex last this share of the timeout. Return its capacity per second."""
        vertex["cost_us"] = max(1000, round(self.timeout_s * 1e6 * share / _QUEUE_RECORDS))
        self.vertices[0]["rate"] = 0.3 * self.count * 1e6 / vertex["cost_us"]
        return self.count * 1e6 / float(vertex["cost_us"])

    def slow(self) -> dict[str, Any]:
        """Return a vertex that the trouble befalls."""
        return self.rnd.choice(self.vertices[1:])

    def strikes(self, mean_every: float) -> list[float]:
        """Return times of trouble, far apart by random numbers of intervals."""
        at, found = self.rnd.expovariate(1 / (mean_every * self.interval_s)), []
        while at < self.run_s:
            found.append(at)
            at += self.interval_s + self.rnd.expovariate(1 / (mean_every * self.interval_s))
        return found

    def spec(self) -> JobSpec:
        """Load the job."""
        seed = self.rnd.randrange(10**6)
        return loaded(self.vertices, self.config, seed=seed, fault=self.faults, **self.more)


def healthy(job: Drawn) -> None:
    """Every checkpoint is far from its timeout."""
    job.cost(job.slow(), job.rnd.uniform(0.05, 0.2))
    job.vertices[0]["rate"] *= job.rnd.uniform(0.3, 2.5)


def overload(job: Drawn) -> None:
    """More records come than a vertex can process, always: full queues last between a third and twice the timeout."""
    capacity = job.cost(job.slow(), job.rnd.uniform(0.3, 2.0))
    job.vertices[0]["rate"] = capacity * job.rnd.uniform(1.05, 1.6)


def bursts(job: Drawn) -> None:
    """Records come in bursts, which a vertex works off in between."""
    capacity = job.cost(job.slow(), job.rnd.uniform(0.3, 2.0))
    source = job.vertices[0]
    source["rate"] = capacity * job.rnd.uniform(0.3, 0.8)
    source["burst_period"] = f"{min(3600.0, job.interval_s * job.rnd.uniform(4, 30)):.0f} s"
    source["burst_ratio"] = job.rnd.uniform(0.05, 0.35)


def rise(job: Drawn) -> None:
    """The load rises above the capacity in the last part of an hour, and falls again."""
    capacity = job.cost(job.slow(), job.rnd.uniform(0.6, 2.5))
    source = job.vertices[0]
    source["rate"] = capacity * job.rnd.uniform(0.5, 0.9)
    share = job.rnd.uniform(0.3, 0.6)
    source |= {"burst_period": "3600 s", "burst_ratio": share / job.rnd.uniform(1.5, 3), "burst_share": share}


def skew(job: Drawn) -> None:
    """One subtask is slow and holds everything up in bursts."""
    vertex = job.slow()
    factor = job.rnd.choice([3.0, 6.0])
    capacity = job.cost(vertex, job.rnd.uniform(0.3, 2.0) / factor) / factor
    vertex["slow_subtasks"] = {str(job.rnd.randrange(job.count)): factor}
    job.vertices[0]["rate"] = capacity * job.rnd.uniform(0.7, 1.1)
    job.vertices[0]["burst_period"] = f"{min(3600.0, job.interval_s * job.rnd.uniform(4, 20)):.0f} s"
    job.vertices[0]["burst_ratio"] = job.rnd.uniform(0.2, 0.7)


def long_sync(job: Drawn) -> None:
    """The sync part of one vertex takes long, in every checkpoint or in some."""
    vertex = job.slow()
    vertex["sync"] = f"{job.timeout_s * job.rnd.uniform(0.1, 1.6):.2f} s"
    vertex["sync_every"] = job.rnd.choice([1, 5, 11, 23])


def slow_store(job: Drawn) -> None:
    """Now and then, some writes to the store hang for a drawn part of the timeout, or beyond it."""
    for at in job.strikes(15):
        delay_s = job.timeout_s * job.rnd.choice([job.rnd.uniform(0.05, 0.9), job.rnd.uniform(1.1, 2.0)])
        times = job.rnd.randint(1, 2 * job.count)
        job.faults.append(delayed("store.write", f"{delay_s:.2f} s", at=f"{at:.2f} s", times=times))


def lost_messages(job: Drawn) -> None:
    """Now and then, an acknowledgement or a trigger is lost, so that the checkpoint cannot complete."""
    for at in job.strikes(25):
        point = job.rnd.choice(["rpc.ack", "rpc.ack", "rpc.trigger"])
        job.faults.append({"point": point, "at": f"{at:.2f} s", "action": "drop", "hit": job.rnd.randint(1, job.count)})


def late_messages(job: Drawn) -> None:
    """Now and then, acknowledgements come late, by up to nine tenths of the timeout."""
    for at in job.strikes(12):
        delay_s = job.timeout_s * job.rnd.betavariate(1, 3) * 0.9
        times = job.rnd.randint(1, 3)
        job.faults.append(delayed("rpc.ack", f"{delay_s:.2f} s", at=f"{at:.2f} s", times=times))


def restarts(job: Drawn) -> None:
    """The job has bursts, and it fails now and then, which aborts the checkpoint that runs."""
    bursts(job)
    job.faults += [{"point": "source.after-emit", "at": f"{at:.2f} s"} for at in job.strikes(25)]


KINDS: dict[str, Callable[[Drawn], None]] = {
    f.__name__: f
    for f in (
        healthy, overload, bursts, rise, skew, long_sync, slow_store, lost_messages, late_messages, restarts,
    )
}  # fmt: skip


def drawn(name: str) -> Drawn:
    """Draw the job ``kind/seed``."""
    kind = name.partition("/")[0]
    job = Drawn(random.Random(f"early/{name}"), kind)
    KINDS[kind](job)
    return job


def checkpoints_of(job: Drawn) -> list[EndedCheckpoint]:
    """Run the job and return its ended checkpoints, in the order of their triggers."""
    engine = JobEngine(job.spec(), is_size_only=True)
    ended: list[MeasuredCheckpoint] = []
    engine.coordinator.on_terminal = ended.append
    engine.run_until(round(job.run_s * 1e6))
    return [_ended(job, r) for r in sorted(ended, key=lambda r: r.id)]


def _ended(job: Drawn, measured: MeasuredCheckpoint) -> EndedCheckpoint:
    acks = tuple(sorted((a.at_us - measured.triggered_at_us) // 1000 for a in measured.acks.values()))
    length_ms = max(1, (measured.end_to_end_us or 0) // 1000)
    has_completed = measured.state is CheckpointState.COMPLETED
    past = PastCheckpoint(acks, len(job.vertices) * job.count, length_ms, has_completed)
    is_expired = measured.reason is FailureReason.EXPIRED
    return EndedCheckpoint(measured.id, measured.triggered_at_us / 1000, job.timeout_s * 1000, past, is_expired)
