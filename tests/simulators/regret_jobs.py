"""Jobs of the reference runtime for which settings are chosen, and what a run under one setting loses.

A seed determines the kind of job, its strength and its limits. Half of the kinds have a mechanism that the twin's model
does not have, or only if it shows: bursts, long callbacks, a store that hangs now and then, a straggler that comes and
goes, and sync parts that are long in some checkpoints only.

The times at which a store hangs are chance. They are other times in each run, and a setting is measured in several
runs: what one run loses says more about its chance than about its setting.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Final, Self

from backend.advisor.thresholds import STORE_PRICE
from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Record
from backend.runtime.core.units import duration_us
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import Graph
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint
from tests.support.chained_jobs import ALIGNED_TIMEOUT, UNALIGNED, chain, delayed, loaded, settings_of

SEEN_S: Final = 240.0
"""Virtual seconds for which a job is observed, and for which a setting is tried."""
RUNS_BY_CHANCE: Final = 6
"""In how many runs a setting is measured if chance decides what a run loses."""
WARM_UP_S: Final = 60.0
"""The first part of a run, in which queues fill. It is not counted."""
_COUNTED_S, _COUNTED_MIN = 160.0, 6
_RUN_MAX_S: Final = 500.0
_CAP: Final = "runtime.inflight-cap.bytes"
INTERVAL: Final = "execution.checkpointing.interval"
_UNLIMITED: Final = "unlimited"
_FACTORS: Final = (0.5, 1.0, 2.0, 4.0)
_MODES: Final = ((None, None), (0, None), (0, 131_072), (500, None), (2000, None))
"""The aligned timeouts in milliseconds and caps in bytes of the grid."""
EXPIRED_SLACK: Final = 0.05
"""A setting breaks the bound if its share of expired checkpoints is this much above the least of the grid."""
OVER_SLACK: Final = 0.1
"""The same for the share of checkpoints that persist more than the limit."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting to choose. ``timeout_ms`` is the aligned timeout: None if aligned, 0 if always unaligned."""

    interval_ms: int
    timeout_ms: int | None = None
    cap_bytes: int | None = None

    def config(self) -> dict[str, str]:
        """Return the settings as the runtime reads them."""
        return {
            INTERVAL: f"{self.interval_ms} ms",
            UNALIGNED: "false" if self.timeout_ms is None else "true",
            ALIGNED_TIMEOUT: f"{self.timeout_ms or 0} ms",
            _CAP: _UNLIMITED if self.cap_bytes is None else str(self.cap_bytes),
        }

    def __str__(self) -> str:
        mode = "aligned" if self.timeout_ms is None else "unaligned"
        mode += f" after {self.timeout_ms} ms" if self.timeout_ms else ""
        return f"{mode}{f', cap {self.cap_bytes} bytes' if self.cap_bytes else ''}, every {self.interval_ms} ms"


@dataclass(frozen=True, slots=True)
class Fare:
    """What a run under one setting lost, as a share of the time, and how often it passed a bound.

    ``loss`` is ``work`` plus ``replay``. ``work`` is the sync pauses and ``STORE_PRICE`` of the time that the store
    writes, as a share of the run. ``replay`` is the mean age of the newest completed checkpoint and the time to read
    its in-flight data, over the mean time between failures.
    """

    work: float
    replay: float
    expired: float
    over: float
    checkpoints: int
    """The number of checkpoints that were triggered after the warm-up and have ended."""

    @property
    def loss(self) -> float:
        """What is lost in all."""
        return self.work + self.replay


@dataclass(slots=True)
class Drawn:
    """A drawn job: source -> stage-1 (-> stage-2). ``KINDS`` add what is special about it."""

    name: str
    rnd: random.Random
    parallelism: int = 2
    interval_ms: int = 5000
    timeout_ms: int = 20_000
    store_bytes_per_s: int = 5_000_000
    between_failures_s: float = 600.0
    vertices: list[dict[str, Any]] = field(default_factory=list)
    wandering: tuple[str, int, int] | None = None
    """A vertex, the seconds after which its straggler comes and goes, and the extra microseconds for a record."""
    is_store_hanging: bool = False
    """Whether writes to the store hang, at other times in each run."""

    @classmethod
    def of(cls, name: str) -> Self:
        """Draw the job ``kind/seed``."""
        rnd = random.Random(f"regret/{name}")
        job = cls(
            name,
            rnd,
            parallelism=rnd.choice([2, 3]),
            interval_ms=rnd.choice([4000, 6000, 10_000]),
            timeout_ms=rnd.choice([10_000, 20_000, 30_000]),
            store_bytes_per_s=rnd.choice([1_000_000, 5_000_000, 50_000_000]),
            between_failures_s=rnd.choice([400.0, 1200.0, 3600.0]),
        )
        common = {"parallelism": job.parallelism, "record_bytes": rnd.choice([1000, 2000, 4000]), "cost_us": 200}
        names = [f"stage-{n}" for n in range(1, rnd.choice([2, 3]))]
        job.vertices = chain(names, common, {"keys": 400, "cost_us": 100})
        job.slow["cost_us"] = rnd.choice([15_000, 30_000, 60_000])
        job.slow["sync"] = f"{rnd.choice([10, 50, 200])} ms"
        job.slow["state_bytes"] = rnd.choice([100, 2000])
        job.load(rnd.uniform(0.5, 0.9))
        KINDS[name.partition("/")[0]](job)
        return job

    @property
    def slow(self) -> dict[str, Any]:
        """The vertex that limits the job: the last one."""
        return self.vertices[-1]

    @property
    def capacity_per_s(self) -> float:
        """The records that the vertex can process in a second."""
        return float(self.parallelism * 1e6 / self.slow["cost_us"])

    def load(self, share: float) -> None:
        """Let this many times the records come that the slow vertex can process."""
        self.vertices[0]["rate"] = max(1, round(self.capacity_per_s * share))

    @property
    def runs(self) -> int:
        """In how many runs a setting is measured."""
        return RUNS_BY_CHANCE if self.is_store_hanging else 1

    @property
    def persisted_limit_bytes(self) -> float:
        """The in-flight data that can be written in half of the time that the advisor allows (R-CAP-1)."""
        return self.store_bytes_per_s / 1000 * 0.5 * min(self.interval_ms / 2, self.timeout_ms / 3)

    @property
    def now(self) -> Choice:
        """The settings of the job as it is: aligned, as in a new Flink job."""
        return Choice(self.interval_ms)

    def grid(self) -> list[Choice]:
        """Return all settings among which the best is searched.

        Like the advisor's, they keep the hard bounds: no interval is longer than the checkpoint timeout, and no aligned
        timeout is longer than half of the interval.
        """
        intervals = sorted({min(round(self.interval_ms * f), self.timeout_ms) for f in _FACTORS})
        return [Choice(i, t, c) for i in intervals for t, c in _MODES if t is None or 2 * t <= i]

    def spec(self, settings: Mapping[str, str], *, seed: int) -> JobSpec:
        """Load the job under settings. Another seed gives other records, and other times at which the store hangs."""
        spec = loaded(
            self.vertices,
            settings_of(settings[INTERVAL], f"{self.timeout_ms} ms") | settings,
            seed=seed,
            store={"latency": "20 ms", "bytes_per_s": f"{self.store_bytes_per_s} b"},
            fault=self._hangs(seed) if self.is_store_hanging else [],
        )
        return spec if self.wandering is None else _with_wandering(spec, *self.wandering)

    def _hangs(self, seed: int) -> list[dict[str, Any]]:
        rnd, found = random.Random(f"hangs/{self.name}/{seed}"), []
        at = rnd.uniform(3, 10)
        while at < _RUN_MAX_S:
            delay_s = rnd.uniform(0.5, 0.5 * self.timeout_ms / 1000)
            times = rnd.randint(1, self.parallelism)
            found.append(delayed("store.write", f"{delay_s:.2f} s", at=f"{at:.2f} s", times=times))
            at += rnd.expovariate(1 / (2 * self.interval_ms / 1000))
        return found


def _with_wandering(spec: JobSpec, vertex_id: str, every_s: int, extra_us: int) -> JobSpec:
    count = next(v.parallelism for v in spec.graph.vertices if v.id == vertex_id)

    def cost_of(record: Record) -> int:
        # The straggler is a part of the keys, and is slow in every third period of the event time.
        is_slow = record.key % count == 0 and record.event_time_us // 1_000_000 // every_s % 3 == 1
        return extra_us if is_slow else 0

    vertices = tuple(replace(v, cost_of=cost_of) if v.id == vertex_id else v for v in spec.graph.vertices)
    return replace(spec, graph=Graph(vertices, spec.graph.edges))


# --- kinds ------------------------------------------------------------------------------------------------------------


def light(job: Drawn) -> None:
    """The job can keep up."""


def capacity(job: Drawn) -> None:
    """More records come than the slow vertex can process."""
    job.load(job.rnd.uniform(1.05, 1.5))


def straggler(job: Drawn) -> None:
    """One subtask needs several times as long for a record."""
    factor = job.rnd.choice([2.0, 4.0])
    job.slow["cost_us"] //= 2
    job.slow["slow_subtasks"] = {str(job.rnd.randrange(job.parallelism)): factor}
    job.load(job.rnd.uniform(0.8, 1.4) / factor)


def skew(job: Drawn) -> None:
    """One key has a large share of the records."""
    job.vertices[0]["hot_key_ratio"] = job.rnd.choice([0.2, 0.4])
    job.load(job.rnd.uniform(0.7, 1.2))


def state(job: Drawn) -> None:
    """The state takes a good part of the interval to write."""
    seconds = job.rnd.uniform(0.1, 0.6) * job.interval_ms / 1000
    job.slow["state_bytes"] = max(100, round(job.store_bytes_per_s * seconds / 400))
    job.load(job.rnd.uniform(0.5, 1.2))


def bursts(job: Drawn) -> None:
    """Records come in bursts, of which no reading shows the period."""
    source = job.vertices[0]
    job.load(job.rnd.uniform(0.4, 0.8))
    source["burst_period"] = f"{job.rnd.choice([11, 17, 29])} s"
    source["burst_ratio"] = job.rnd.choice([0.2, 0.4])


def callback(job: Drawn) -> None:
    """Windows fire for seconds, while the vertex takes no barrier."""
    window_s = job.rnd.choice([5, 10])
    busy_s = window_s * job.rnd.uniform(0.15, 0.4)
    job.slow.update({"kind": "window+sink", "window": f"{window_s} s", "cost_us": 2000})
    job.slow["timer_cost_us"] = round(busy_s * 1e6 / (400 / job.parallelism))
    job.vertices[0]["rate"] = 40 * job.parallelism


def noisy_store(job: Drawn) -> None:
    """Writes to the store hang for seconds now and then."""
    job.load(job.rnd.uniform(0.6, 1.3))
    job.is_store_hanging = True


def wandering(job: Drawn) -> None:
    """A straggler comes and goes."""
    job.load(job.rnd.uniform(0.5, 0.8))
    job.wandering = (job.slow["id"], job.rnd.choice([7, 13, 19]), round(job.slow["cost_us"] * job.rnd.uniform(1, 3)))


def some_syncs(job: Drawn) -> None:
    """The sync part of some checkpoints takes long."""
    job.slow["sync"] = f"{job.rnd.uniform(0.5, 2.5):.2f} s"
    job.slow["sync_every"] = job.rnd.choice([2, 3, 4])


KNOWN: Final = (light, capacity, straggler, skew, state)
UNKNOWN: Final = (bursts, callback, noisy_store, wandering, some_syncs)
KINDS: Final[dict[str, Callable[[Drawn], None]]] = {f.__name__: f for f in (*KNOWN, *UNKNOWN)}


# --- runs -------------------------------------------------------------------------------------------------------------


def fare(job: Drawn, settings: Mapping[str, str], *, seed: int, run_s: float | None = None) -> Fare:
    """Run a job under settings and return what it loses after the warm-up.

    Without ``run_s``, the run is long enough for several checkpoints.
    """
    engine = JobEngine(job.spec(settings, seed=seed), is_size_only=True)
    ended: list[MeasuredCheckpoint] = []
    engine.coordinator.on_terminal = ended.append
    if run_s is None:
        counted_s = max(_COUNTED_S, _COUNTED_MIN * duration_us(settings[INTERVAL]) / 1e6)
        run_s = WARM_UP_S + counted_s
    end_us = round(run_s * 1e6)
    engine.run_until(end_us)
    begin_us = round(WARM_UP_S * 1e6)
    counted = [c for c in ended if c.triggered_at_us >= begin_us]
    done = [c for c in counted if c.state is CheckpointState.COMPLETED]
    per_us = job.store_bytes_per_s / 1e6
    work_us = sum(_sync_us(c) + STORE_PRICE * _written_bytes(c) / per_us for c in counted)
    between_us = job.between_failures_s * 1e6
    restore_us = fmean(c.persisted_bytes for c in done) / per_us if done else 0.0
    return Fare(
        work=work_us / (end_us - begin_us),
        replay=(_mean_age_us(ended, begin_us, end_us) + restore_us) / between_us,
        expired=_share([c.reason is FailureReason.EXPIRED for c in counted]),
        over=_share([c.persisted_bytes > job.persisted_limit_bytes for c in counted]),
        checkpoints=len(counted),
    )


def pooled(found: Sequence[Fare]) -> Fare:
    """Return what several runs under the same settings lose together. A share is that of all their checkpoints."""
    # A run in which no checkpoint ended counts as one that was about to expire.
    weights = [max(1, f.checkpoints) for f in found]
    return Fare(
        work=fmean(f.work for f in found),
        replay=fmean(f.replay for f in found),
        expired=fmean((f.expired for f in found), weights),
        over=fmean((f.over for f in found), weights),
        checkpoints=sum(f.checkpoints for f in found),
    )


def _share(flags: Sequence[bool]) -> float:
    # Without an ended checkpoint, the first one was about to expire.
    return fmean(flags) if flags else 1.0


def _sync_us(checkpoint: MeasuredCheckpoint) -> int:
    return max((a.measured.sync_us or 0 for a in checkpoint.acks.values()), default=0)


def _written_bytes(checkpoint: MeasuredCheckpoint) -> int:
    return sum(a.measured.written_bytes + a.measured.persisted_bytes for a in checkpoint.acks.values())


def _mean_age_us(ended: Sequence[MeasuredCheckpoint], begin_us: int, end_us: int) -> float:
    """Return the mean age of the newest completed checkpoint: what a failure at any time would process again."""
    done = [c for c in ended if c.state is CheckpointState.COMPLETED]
    steps = sorted((c.triggered_at_us + (c.end_to_end_us or 0), c.triggered_at_us) for c in done)
    newest, since, area = 0, begin_us, 0.0
    for at, triggered in [*steps, (end_us, 0)]:
        if at > since:
            area += (at - since) * ((at + since) / 2 - newest)
            since = at
        newest = max(newest, triggered)
    return area / (end_us - begin_us)
