"""Draws jobs of the reference runtime with one or two known causes, and asks the verdict for them.

A seed determines the kind of each cause, its place, how often it strikes, and the rest of the job. The job runs in
virtual time and is polled like a live target, so that the verdict has the evidence that a collector would have stored.
Beside the verdict stand two baselines: the vertex of the subtask that acknowledged last, and the vertex that is most
back-pressured.

    python -m tests.simulators.culprits [--seeds 60] [--first 1000] [--kind callback] [--doubles 40]
    python -m tests.simulators.culprits --replay callback/7
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.pressure import backpressured_max, vertex_loads
from backend.analysis.verdict.verdict import diagnose
from backend.analysis.words.thresholds import SLOW_INTERVAL_RATIO, STRUCK_MIN_RATIO
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.verdict import Confidence, Diagnosis, Health, VerdictKind
from backend.runtime.engine.jobfile import JobSpec
from tests.simulators import culprits_described
from tests.simulators.twin_table import wilson
from tests.support.chained_jobs import UNALIGNED, chain, delayed, loaded, settings_of
from tests.support.simulated_target import SimulatedTarget

INTERVAL_S = 5
RUN_S = 105.0
POLL_S = 2.5
_UNALIGNED = {UNALIGNED: True}


@dataclass(frozen=True, slots=True)
class Expected:
    """What the verdict has to name. A cause outside the subtasks has no vertex."""

    kind: VerdictKind
    vertex: str | None = None
    subtasks: tuple[int, ...] | None = None


@dataclass(slots=True)
class Draft:
    """A job under construction: source -> stage-1 ... -> last, which can keep up everywhere."""

    rnd: random.Random
    is_intermittent: bool = False
    run_s: float = RUN_S
    causes: list[Expected] = field(default_factory=list)
    healths: frozenset[Health] = frozenset({Health.SLOW, Health.FAILING, Health.INTERMITTENT})
    config: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    stages: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rnd, count = self.rnd, self.rnd.randint(3, 4)
        names = [f"stage-{i}" for i in range(1, rnd.choice([2, 3]))]
        common = {"parallelism": count, "record_bytes": 2_000, "cost_us": 200}
        source = {"keys": 600, "cost_us": 100, "rate": 60 * count}
        self.source, *self.stages = chain([*names, "last"], common, source)
        self.config = settings_of(f"{INTERVAL_S} s", "1 min")

    @property
    def parallelism(self) -> int:
        """The number of subtasks of every vertex."""
        return int(self.source["parallelism"])

    def spec(self) -> JobSpec:
        """Load the job."""
        vertices = [self.source, *self.stages]
        return loaded(vertices, self.config, seed=self.rnd.randrange(10**6), **self.more)

    def strikes(self) -> list[float]:
        """Return virtual times before some triggers, a third to a half of them; before all if not intermittent."""
        every = self.rnd.choice([2, 3]) if self.is_intermittent else 1
        first = self.rnd.randrange(every)
        return [float(INTERVAL_S * n) for n in range(first, int(self.run_s / INTERVAL_S), every)]

    def faults(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add faults to the job."""
        self.more.setdefault("fault", []).extend(rows)

    def overload(self, slow: dict[str, Any], capacity_per_s: float) -> None:
        """Let more records come than ``slow`` can process: always, or in bursts that it works off in between."""
        if not self.is_intermittent:
            self.source["rate"] = capacity_per_s * self.rnd.choice([1.3, 1.6])
            return
        period = INTERVAL_S * self.rnd.choice([3, 4])
        self.source["rate"] = capacity_per_s * self.rnd.choice([0.5, 0.6])
        self.source["burst_period"] = f"{period} s"
        self.source["burst_ratio"] = 0.2


def capacity(job: Draft) -> None:
    """All subtasks of one vertex are slow."""
    slow = job.rnd.choice(job.stages)
    slow["cost_us"] = job.rnd.choice([8_000, 12_000])
    job.overload(slow, job.parallelism * 1e6 / slow["cost_us"])
    job.causes.append(Expected(VerdictKind.CAPACITY, slow["id"], tuple(range(job.parallelism))))


def straggler(job: Draft) -> None:
    """One subtask of one vertex needs several times as long for each record."""
    slow, who = job.rnd.choice(job.stages), job.rnd.randrange(job.parallelism)
    slow |= {"cost_us": 3_000, "slow_subtasks": {str(who): job.rnd.choice([5.0, 8.0])}}
    job.overload(slow, job.parallelism * 1e6 / (3_000 * slow["slow_subtasks"][str(who)]))
    job.causes.append(Expected(VerdictKind.STRAGGLER, slow["id"], (who,)))


def slow_host(job: Draft) -> None:
    """All subtasks of one host are slow, in every vertex."""
    hosts = job.parallelism
    who, factor = job.rnd.randrange(hosts), job.rnd.choice([5.0, 8.0])
    job.config["runtime.task-managers"] = hosts
    for vertex in (job.source, *job.stages):
        vertex["slow_subtasks"] = {str(who): factor}
    for vertex in job.stages:
        vertex["cost_us"] = 1_000
    slow = job.rnd.choice(job.stages)
    slow["cost_us"] = 3_000
    job.overload(slow, job.parallelism * 1e6 / (3_000 * factor))
    job.causes.append(Expected(VerdictKind.SLOW_HOST, slow["id"], (who,)))


def sync(job: Draft) -> None:
    """The sync part of one vertex takes seconds."""
    vertex = job.rnd.choice(job.stages)
    vertex["sync"] = job.rnd.choice(["3 s", "4 s"])
    if job.is_intermittent:
        vertex["sync_every"] = job.rnd.choice([2, 3])
    job.causes.append(Expected(VerdictKind.SYNC, vertex["id"], tuple(range(job.parallelism))))


def store(job: Draft) -> None:
    """Writing the snapshots of one vertex takes seconds."""
    vertex = job.rnd.choice(job.stages)
    if job.is_intermittent:
        # Writes take turns, so those that are behind the one that hangs are late as well.
        job.faults([delayed("store.write", "4 s", at=f"{at} s") for at in job.strikes()])
        job.causes.append(Expected(VerdictKind.STORE))
        return
    vertex["state_bytes"] = 20_000
    job.more["store"] = {"latency": "50 ms", "bytes_per_s": f"{600 * 20_000 // 4} b"}
    job.causes.append(Expected(VerdictKind.STORE, vertex["id"], tuple(range(job.parallelism))))


def slow_upload(job: Draft) -> None:
    """One subtask writes slowly to the store."""
    vertex, who = job.rnd.choice(job.stages), job.rnd.randrange(job.parallelism)
    vertex |= {"state_bytes": 2_000, "slow_uploads": {str(who): 450.0}}
    job.causes.append(Expected(VerdictKind.STORE, vertex["id"], (who,)))


def late_input(job: Draft) -> None:
    """One subtask of the source gets the trigger late."""
    who, count = job.rnd.randrange(job.parallelism), job.parallelism
    every = job.strikes()
    if job.is_intermittent:
        places: list[dict[str, Any]] = [{"at": f"{at} s", "hit": who + 1} for at in every]
    else:
        places = [{"hit": who + 1 if n == 0 else count} for n in range(40)]
    job.faults([delayed("rpc.trigger", "3500 ms", **place) for place in places])
    job.causes.append(Expected(VerdictKind.LATE_INPUT, "source", None if job.is_intermittent else (who,)))


def coordinator(job: Draft) -> None:
    """The coordinator counts acknowledgements late, or triggers late."""
    point = job.rnd.choice(["rpc.ack", "rpc.trigger"])
    count = job.parallelism * (1 if point == "rpc.trigger" else 1 + len(job.stages))
    job.faults([delayed(point, "3500 ms", at=f"{at} s", times=count) for at in job.strikes()])
    job.causes.append(Expected(VerdictKind.COORDINATOR))


def failing_coordinator(job: Draft) -> None:
    """The coordinator cannot make the directory of a checkpoint, or cannot write its metadata."""
    point = job.rnd.choice(["coordinator.location", "coordinator.metadata"])
    job.faults([{"point": point, "at": f"{at} s", "action": "error"} for at in job.strikes()])
    job.causes.append(Expected(VerdictKind.COORDINATOR))


def refusing_store(job: Draft) -> None:
    """The store refuses all that is written to it, as it does if its directory, its disk or its quota is full."""
    writers = job.parallelism * (1 + len(job.stages))
    rows = [{"point": "store.write", "at": f"{at} s", "action": "error", "times": writers} for at in job.strikes()]
    job.faults(rows)
    job.causes.append(Expected(VerdictKind.STORE))


def throttling_store(job: Draft) -> None:
    """The store refuses one write of a checkpoint, each time of another subtask."""
    writers = job.parallelism * (1 + len(job.stages))
    for at in job.strikes():
        hit = job.rnd.randint(1, writers)
        job.faults([{"point": "store.write", "at": f"{at} s", "action": "error", "hit": hit}])
    job.causes.append(Expected(VerdictKind.STORE))


def callback(job: Draft) -> None:
    """Windows of one vertex fire for seconds, while the vertex reads nothing."""
    vertex = job.rnd.choice(job.stages)
    vertex["kind"] = "window+sink" if vertex["kind"].endswith("sink") else "window"
    # Windows that fire as often as checkpoints are triggered would always fire just after the barrier.
    window_s = INTERVAL_S * job.rnd.choice([3, 4]) if job.is_intermittent else job.rnd.choice([6, 7, 8])
    keys = 600 / job.parallelism
    busy_s = window_s * (0.3 if job.is_intermittent else 0.6)
    vertex |= {"window": f"{window_s} s", "timer_cost_us": round(busy_s * 1e6 / keys)}
    job.source["rate"] = 150 * job.parallelism
    if job.rnd.random() < 0.5:
        job.config |= _UNALIGNED
    job.causes.append(Expected(VerdictKind.CALLBACK, vertex["id"], tuple(range(job.parallelism))))


def commit(job: Draft) -> None:
    """The sink waits for seconds when it commits."""
    job.stages[-1]["commit"] = job.rnd.choice(["7 s", "8 s"])
    job.causes.append(Expected(VerdictKind.COMMIT, "last", tuple(range(job.parallelism))))


def stuck_sync(job: Draft) -> None:
    """One subtask never ends its sync part."""
    vertex = job.rnd.choice(job.stages)
    vertex["sync"] = "10 min"
    vertex["sync_every"] = 9
    job.config["execution.checkpointing.timeout"] = "10 s"
    job.run_s = 80.0
    job.causes.append(Expected(VerdictKind.SYNC, vertex["id"], None))


def restarts(job: Draft) -> None:
    """The job fails every half minute, and its checkpoints are well."""
    times = [7.0 + 13 * n + job.rnd.random() for n in range(8)]
    job.faults([{"point": "source.after-emit", "at": f"{at:.2f} s"} for at in times])
    job.healths = frozenset({Health.RESTARTING})
    job.causes.append(Expected(VerdictKind.RESTARTS))


def replay(job: Draft) -> None:
    """The job failed, and one vertex still processes the in-flight data of its last unaligned checkpoint."""
    slow = job.rnd.choice(job.stages)
    slow["cost_us"] = 40_000
    job.config |= _UNALIGNED
    job.source["rate"] = 0
    job.run_s = 46.0
    job.faults([{"point": "source.after-emit", "at": "40 s"}])
    job.healths = frozenset(Health)
    job.causes.append(Expected(VerdictKind.REPLAY))


def healthy(job: Draft) -> None:
    """Nothing is wrong. Some jobs have bursts or expensive records, but all can keep up."""
    vertex = job.rnd.choice(job.stages)
    vertex["cost_us"] = job.rnd.choice([500, 2_000, 10_000])
    job.source["rate"] = job.parallelism * 1e6 / vertex["cost_us"] * job.rnd.choice([0.1, 0.3, 0.5])
    job.source["rate"] = min(job.source["rate"], 300 * job.parallelism)
    if job.rnd.random() < 0.5:
        job.config |= _UNALIGNED
    job.healths = frozenset({Health.HEALTHY})
    job.causes.append(Expected(VerdictKind.NONE))


def sync_when_busy(job: Draft) -> None:
    """The sync part of one vertex takes seconds, and another vertex is busy, but can keep up."""
    sync(job)
    busy = job.rnd.choice([v for v in job.stages if v["id"] != job.causes[-1].vertex])
    busy["cost_us"] = job.rnd.choice([4_000, 8_000])
    job.source["rate"] = job.parallelism * 1e6 / busy["cost_us"] * job.rnd.choice([0.15, 0.25, 0.35])


KINDS: dict[str, Callable[[Draft], None]] = {
    f.__name__: f
    for f in (
        capacity, straggler, slow_host, sync, store, slow_upload, late_input, coordinator, failing_coordinator,
        refusing_store, throttling_store, callback, commit, stuck_sync, restarts, replay, sync_when_busy, healthy,
    )
}  # fmt: skip
_MAY_BE_INTERMITTENT = ("capacity", "straggler", "slow_host", "sync", "store", "late_input", "coordinator", "callback")
_DOUBLES = (
    ("sync", "capacity"), ("sync", "slow_upload"), ("sync", "coordinator"), ("slow_upload", "capacity"),
    ("late_input", "sync"), ("coordinator", "capacity"), ("late_input", "slow_upload"), ("sync", "straggler"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the verdict and the baselines said of one drawn job."""

    name: str
    is_intermittent: bool
    causes: tuple[Expected, ...]
    diagnosis: Diagnosis
    last_to_acknowledge: str | None
    most_backpressured: str | None
    is_health_right: bool
    has_effect: bool
    """Whether at least one in five checkpoints failed or took half of the interval, or the job restarted."""

    @property
    def is_first_right(self) -> bool:
        """Whether the first cause named is one of the drawn causes, at its place."""
        verdict = self.diagnosis.verdict
        return any(_is(c, verdict.kind, verdict.vertex, verdict.subtasks) for c in self.causes)

    @property
    def is_sure_and_wrong(self) -> bool:
        """Whether a cause that was not drawn is named with high confidence, of a job whose cause has an effect."""
        verdict = self.diagnosis.verdict
        is_named = verdict.kind not in (VerdictKind.NONE, VerdictKind.UNDECIDED)
        is_judged = self.has_effect or self.causes[0].kind is VerdictKind.NONE
        return is_judged and is_named and verdict.confidence is Confidence.HIGH and not self.is_first_right

    @property
    def are_both_right(self) -> bool:
        """Whether both causes named are the drawn ones."""
        verdict, second = self.diagnosis.verdict, self.diagnosis.verdict.second
        if second is None:
            return False
        a, b = self.causes
        named = [(verdict.kind, verdict.vertex, verdict.subtasks), (second.kind, second.vertex, second.subtasks)]
        return all(_is(c, *n) for c, n in zip((a, b), named, strict=True)) or all(
            _is(c, *n) for c, n in zip((b, a), named, strict=True)
        )


def _is(cause: Expected, kind: VerdictKind, vertex: str | None, subtasks: tuple[int, ...]) -> bool:
    is_place = cause.vertex is None or vertex == cause.vertex
    return kind is cause.kind and is_place and (cause.subtasks is None or subtasks == cause.subtasks)


def drawn(name: str) -> Draft:
    """Draw the job ``kind/seed``, ``kind/seed/intermittent`` or ``kind+kind/seed``."""
    kinds, _, rest = name.partition("/")
    job = Draft(random.Random(name), is_intermittent=rest.endswith("intermittent"))
    for kind in kinds.split("+"):
        KINDS[kind](job)
    return job


async def judged(name: str) -> Outcome:
    """Run the job and judge it."""
    job, evidence = await watched(name)
    return outcome_of(name, job, evidence)


async def watched(name: str) -> tuple[Draft, JobEvidence]:
    """Run the job. Return it, and what a collector would have stored of it."""
    job = drawn(name)
    async with SimulatedTarget([job.spec()]) as target:
        gathered = await target.watched(polls=math.ceil(job.run_s / POLL_S), every_s=POLL_S)
    return job, gathered.evidence()


def outcome_of(name: str, job: Draft, evidence: JobEvidence) -> Outcome:
    """Judge a job that has run."""
    found = diagnose(evidence)
    return Outcome(
        name=name,
        is_intermittent=job.is_intermittent,
        causes=tuple(job.causes),
        diagnosis=found,
        last_to_acknowledge=_last(evidence),
        most_backpressured=_most_backpressured(evidence),
        is_health_right=found.health in job.healths,
        has_effect=_has_effect(evidence),
    )


def _has_effect(evidence: JobEvidence) -> bool:
    ended = [c.header for c in evidence.checkpoints if c.header.status.is_terminal]
    limit_ms = INTERVAL_S * 1000 * SLOW_INTERVAL_RATIO
    hit = sum(h.status is CheckpointStatus.FAILED or (h.end_to_end_duration_ms or 0) >= limit_ms for h in ended)
    return bool(evidence.exceptions) or hit >= STRUCK_MIN_RATIO * max(1, len(ended))


def _last(evidence: JobEvidence) -> str | None:
    """Return the vertex of the subtask that acknowledged last most often."""
    lasts: Counter[str] = Counter()
    for checkpoint in evidence.checkpoints:
        if checkpoint.header.status is CheckpointStatus.IN_PROGRESS or not checkpoint.details:
            continue
        acks = [(v if v is not None else math.inf, d.vertex_id) for d in checkpoint.details for v in d.ack_delay_ms]
        lasts[evidence.vertex_name(max(acks)[1])] += 1
    return lasts.most_common(1)[0][0] if lasts else None


def _most_backpressured(evidence: JobEvidence) -> str | None:
    most = backpressured_max(vertex_loads(evidence.pressure))
    return None if most is None else evidence.vertex_name(most[0])


def names_of(kinds: Sequence[str], seeds: int, doubles: int, first: int = 0) -> list[str]:
    """Return the names of the jobs to draw: ``seeds`` of each kind, and ``doubles`` with two causes.

    The seeds begin with ``first``.
    """
    drawn_seeds = range(first, first + seeds)
    names = [f"{kind}/{seed}" for kind in kinds for seed in drawn_seeds]
    names += [f"{k}/{seed}/intermittent" for k in kinds if k in _MAY_BE_INTERMITTENT for seed in drawn_seeds]
    return names + [f"{'+'.join(_DOUBLES[n % len(_DOUBLES)])}/{first + n}" for n in range(doubles)]


def report(outcomes: Sequence[Outcome]) -> str:
    """Return the confusion table and the shares that are right."""
    lines = ["", f"{'drawn':<28}{'right':>9}  named instead"]
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        kinds = outcome.name.partition("/")[0]
        word = "two causes" if "+" in kinds else kinds + (" (intermittent)" if outcome.is_intermittent else "")
        if outcome.has_effect or outcome.causes[0].kind is VerdictKind.NONE:
            groups.setdefault(word, []).append(outcome)
    for word, group in groups.items():
        wrong = Counter(
            f"{o.diagnosis.verdict.kind.value} at {o.diagnosis.verdict.vertex}" for o in group if not o.is_first_right
        )
        right = sum(o.is_first_right for o in group)
        lines.append(
            f"{word:<28}{right:>4}/{len(group):<4}  " + ", ".join(f"{n} x {w}" for w, n in wrong.most_common())
        )
    double = [o for o in outcomes if len(o.causes) == 2 and o.has_effect]
    sick = [o for o in outcomes if o.causes[0].kind is not VerdictKind.NONE and o.has_effect]
    calm = [o for o in outcomes if o.causes[0].kind is not VerdictKind.NONE and not o.has_effect]
    well = [o for o in outcomes if o.causes[0].kind is VerdictKind.NONE]
    single = [o for o in sick if len(o.causes) == 1]
    lines += [
        "",
        f"first cause right: {_of(sum(o.is_first_right for o in sick), len(sick))}",
        f"both causes right: {_of(sum(o.are_both_right for o in double), len(double))}",
        f"healthy jobs accused: {sum(not o.is_first_right for o in well)} of {len(well)}",
        f"a second cause named where one was drawn: {sum(o.diagnosis.verdict.second is not None for o in single)}"
        f" of {len(single)}",
        f"health right: {_of(sum(o.is_health_right for o in outcomes), len(outcomes))}",
        f"causes without effect in the run, left out: {len(calm)}",
    ]
    for word, of in (("one cause", single), ("two causes", double)):
        placed = [o for o in of if all(c.vertex for c in o.causes)]
        lines += [
            f"{word}, each at a vertex: the vertex named first is that of a cause",
            f"  verdict: {_of(sum(_names(o, o.diagnosis.verdict.vertex) for o in placed), len(placed))}",
            f"  last to acknowledge: {_of(sum(_names(o, o.last_to_acknowledge) for o in placed), len(placed))}",
            f"  most back-pressured: {_of(sum(_names(o, o.most_backpressured) for o in placed), len(placed))}",
        ]
    return "\n".join(lines)


def _names(outcome: Outcome, vertex: str | None) -> bool:
    return vertex is not None and vertex in {c.vertex for c in outcome.causes}


def _of(part: int, whole: int) -> str:
    """Return the share in words, with Wilson's 95 % interval."""
    if not whole:
        return "none drawn"
    low, high = wilson(part, whole)
    return f"{part} of {whole} ({part / whole:.1%}, 95 % interval {low:.1%} to {high:.1%})"


def main(arguments: Sequence[str]) -> int:
    """Draw and judge jobs, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10, help="jobs of each kind [10]")
    parser.add_argument("--doubles", type=int, default=40, help="jobs with two causes [40]")
    parser.add_argument("--first", type=int, default=0, help="the first seed; jobs of other seeds are other jobs [0]")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", help="only this kind; repeatable")
    parser.add_argument("--replay", help="run one job by its name, and print its verdict")
    options = parser.parse_args(arguments)
    kinds = options.kind or list(KINDS)
    names = [options.replay] if options.replay else names_of(kinds, options.seeds, options.doubles, options.first)
    outcomes: list[Outcome] = []
    for number, name in enumerate(names, 1):
        began = time.process_time()
        outcome = asyncio.run(judged(name))
        outcomes.append(outcome)
        is_right = outcome.is_first_right and (len(outcome.causes) < 2 or outcome.are_both_right)
        if options.replay or not is_right or not outcome.is_health_right:
            print(f"\n{name}: {outcome.diagnosis.health.value}: {outcome.diagnosis.verdict.sentence}", flush=True)
        else:
            took = time.process_time() - began
            print(f"\r{number} of {len(names)}: {name}, {took:.1f} s of CPU    ", end="", file=sys.stderr, flush=True)
    if options.replay:
        for row in outcomes[0].diagnosis.verdict.evidence:
            print(f"  {row.value if row.value is not None else '':>12} {row.unit or '':<8} {row.statement}")
        return 0
    print(report(outcomes))
    sure = [o for o in outcomes if o.is_sure_and_wrong]
    print(f"wrong sentences of high confidence: {len(sure)}", *(o.name for o in sure))
    if options.kind:
        return 0
    seeds = range(options.first, options.first + options.seeds)
    told = [culprits_described.judged(name, seed) for name in culprits_described.families() for seed in seeds]
    print(culprits_described.report(told))
    return 0 if not culprits_described.sure_and_wrong(told) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
