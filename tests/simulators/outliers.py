"""Draws jobs of the reference runtime of which one checkpoint in ten is struck, and asks what was different in it.

A seed determines the mechanism, its place and the rest of the job. The job runs in virtual time and is polled like a
live target. A struck checkpoint is one that took at least five times as long as the quick ones. Its verdict has to name
the place, and what was different has to name the mechanism.

    python -m tests.simulators.outliers [--seeds 5] [--first 0] [--kind store]
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.verdict.verdict import checkpoint_verdict
from backend.analysis.words.thresholds import QUICK_QUANTILE, STRUCK_TIMES
from backend.domain.checkpoint import Checkpoint
from backend.domain.verdict import Phase, Verdict
from backend.runtime.core.elements import Record
from backend.runtime.engine.jobfile import JobSpec
from tests.support.chained_jobs import delayed, hashed, loaded, settings_of
from tests.support.simulated_target import SimulatedTarget

INTERVAL_S = 10
RUN_S = 260.0
POLL_S = 2.5
_STRIKE_S = INTERVAL_S * 10
_MAIN_RATE = 60


@dataclass(slots=True)
class Draft:
    """A job under construction: two sources -> stage -> last. Few records come from the second source, ``side``.

    ``phases`` are those in which the struck checkpoints lose the time, at ``vertex``. ``words`` stand in what was
    different in them or, if ``is_in_sentence``, in the sentence of the verdict.
    """

    rnd: random.Random
    sources: list[dict[str, Any]] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    cost_us: Callable[[Record], int] | None = None
    vertex: str | None = None
    subtask_count: int | None = None
    phases: frozenset[Phase] = frozenset()
    words: str = ""
    is_in_sentence: bool = False

    def __post_init__(self) -> None:
        count = self.rnd.randint(3, 4)
        common: dict[str, Any] = {"parallelism": count, "record_bytes": 1_000, "cost_us": 100}
        main = {**common, "id": "main", "kind": "source", "keys": 600, "rate": _MAIN_RATE * count}
        side = {**common, "id": "side", "kind": "source", "keys": 1, "rate": 0.5, "parallelism": 1}
        self.sources = [main, side]
        self.stages = [{**common, "id": "stage", "kind": "keyed"}, {**common, "id": "last", "kind": "keyed+sink"}]

    @property
    def parallelism(self) -> int:
        """The number of subtasks of the stages."""
        return int(self.stages[0]["parallelism"])

    def spec(self) -> JobSpec:
        """Load the job."""
        edges = [("main", "stage"), ("side", "stage"), ("stage", "last")]
        spec = loaded(
            [*self.sources, *self.stages],
            settings_of(f"{INTERVAL_S} s", "2 min"),
            seed=self.rnd.randrange(10**6),
            edges=hashed(edges),
            fault=self.faults,
        )
        if self.cost_us is None:
            return spec
        changed = [replace(v, cost_of=self.cost_us) if v.id == self.vertex else v for v in spec.graph.vertices]
        return replace(spec, graph=replace(spec.graph, vertices=tuple(changed)))

    def strikes(self) -> list[float]:
        """Return a time just before one trigger in ten."""
        first = INTERVAL_S * self.rnd.randint(6, 9)
        return [float(at) for at in range(first, int(RUN_S), _STRIKE_S)]


def store(job: Draft) -> None:
    """The writes of one checkpoint in ten to the store take seconds."""
    job.faults = [
        delayed("store.write", f"{job.rnd.choice([4, 6])} s", at=f"{at} s", times=job.rnd.randint(2, 5))
        for at in job.strikes()
    ]
    job.phases, job.words = frozenset({Phase.ASYNC, Phase.ACK_WAIT}), "the async part of"


def pause(job: Draft) -> None:
    """One subtask needs seconds for a single record, shortly before one checkpoint in ten."""
    vertex = job.rnd.choice(job.stages)
    strikes, took_us = job.strikes(), round(1e6 * job.rnd.choice([5, 7]))
    job.vertex, job.subtask_count = vertex["id"], 1
    left = [round(1e6 * (at - 1)) for at in strikes]

    def cost_us(record: Record) -> int:
        # All records of the side have one key, so they come to the same subtask.
        if left and record.key == 0 and record.event_time_us >= left[0]:
            del left[0]
            return took_us
        return 0

    job.cost_us = cost_us
    job.phases, job.words = frozenset({Phase.START_DELAY, Phase.ALIGNMENT}), "stands still"
    # The verdict itself says that the subtask stands still, and the differences need not.
    job.is_in_sentence = True


def burst(job: Draft) -> None:
    """One checkpoint in ten comes while many more records arrive than a vertex can process."""
    vertex = job.rnd.choice(job.stages)
    vertex["cost_us"] = 4_000
    capacity = job.parallelism * 1e6 / vertex["cost_us"]
    job.sources[0] |= {
        "rate": capacity * 0.3, "burst_period": f"{_STRIKE_S} s", "burst_ratio": 0.14, "burst_share": 0.6,
    }  # fmt: skip
    job.vertex, job.phases = vertex["id"], frozenset({Phase.START_DELAY, Phase.ALIGNMENT})
    job.words = "the input was"


def skew(job: Draft) -> None:
    """One checkpoint in ten comes while many records of one key arrive."""
    vertex = job.rnd.choice(job.stages)
    vertex["cost_us"] = 4_000
    job.sources[1] |= {
        "rate": 1e6 / vertex["cost_us"] * 0.3, "burst_period": f"{_STRIKE_S} s", "burst_ratio": 0.14,
    }  # fmt: skip
    job.sources[0]["rate"] = 0.2 * job.parallelism * 1e6 / vertex["cost_us"]
    job.vertex, job.subtask_count = vertex["id"], 1
    job.phases, job.words = frozenset({Phase.START_DELAY, Phase.ALIGNMENT}), "of all records"


def sync(job: Draft) -> None:
    """The sync part of one vertex takes seconds in one checkpoint in ten."""
    vertex = job.rnd.choice(job.stages)
    vertex |= {"sync": job.rnd.choice(["4 s", "6 s"]), "sync_every": 10}
    job.vertex, job.phases, job.words = vertex["id"], frozenset({Phase.SYNC}), "the sync part of all {} subtasks"


KINDS: dict[str, Callable[[Draft], None]] = {f.__name__: f for f in (store, pause, burst, skew, sync)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was said of one struck checkpoint."""

    name: str
    checkpoint_id: int
    verdict: Verdict
    is_compared: bool
    is_place_right: bool
    is_mechanism_right: bool


def drawn(name: str) -> Draft:
    """Draw the job ``kind/seed``."""
    job = Draft(random.Random(f"outliers/{name}"))
    KINDS[name.partition("/")[0]](job)
    return job


async def judged(name: str) -> tuple[list[Outcome], int]:
    """Run the job. Return what was said of its struck checkpoints, and how many others were called unlike the rest."""
    job = drawn(name)
    async with SimulatedTarget([job.spec()]) as target:
        gathered = await target.watched(polls=math.ceil(RUN_S / POLL_S), every_s=POLL_S)
    evidence = gathered.evidence()
    ended = [c for c in evidence.checkpoints if c.header.end_to_end_duration_ms is not None]
    usual = sorted(c.header.end_to_end_duration_ms or 0 for c in ended)[int(QUICK_QUANTILE * len(ended))]
    found, wrong_count = [], 0
    for checkpoint in ended:
        known = _until(evidence, checkpoint)
        verdict = checkpoint_verdict(checkpoint, known)
        took = checkpoint.header.end_to_end_duration_ms or 0
        if took >= max(1_000, STRUCK_TIMES * usual) and len(known.checkpoints) > 5:
            found.append(_outcome(name, job, checkpoint, verdict))
        else:
            wrong_count += verdict.outlier is not None
    return found, wrong_count


def _until(evidence: JobEvidence, checkpoint: Checkpoint) -> JobEvidence:
    at = checkpoint.header.triggered_at
    return replace(evidence, checkpoints=tuple(c for c in evidence.checkpoints if c.header.triggered_at <= at)[-26:])


def _outcome(name: str, job: Draft, checkpoint: Checkpoint, verdict: Verdict) -> Outcome:
    found = verdict.outlier
    if found is None:
        return Outcome(name, checkpoint.header.checkpoint_id, verdict, False, False, False)
    is_there = job.vertex is None or found.vertex == job.vertex
    is_one = job.subtask_count is None or len(found.subtasks) == job.subtask_count
    words = job.words.format(job.parallelism)
    is_named = any(words in text for text in ([verdict.sentence] if job.is_in_sentence else found.differences))
    is_right = is_there and is_one and found.phase in job.phases
    return Outcome(name, checkpoint.header.checkpoint_id, verdict, True, is_right, is_named)


def report(outcomes: Sequence[Outcome], wrong_count: int) -> str:
    """Return how many struck checkpoints were explained, by mechanism."""
    lines = [f"{'mechanism':<12}{'struck':>7}{'compared':>9}{'place':>7}{'named':>7}  kinds of the verdict"]
    for kind in dict.fromkeys(o.name.partition("/")[0] for o in outcomes):
        own = [o for o in outcomes if o.name.startswith(f"{kind}/")]
        counts = [sum(o.is_compared for o in own), sum(o.is_place_right for o in own)]
        named = sum(o.is_mechanism_right for o in own)
        kinds = sorted({o.verdict.kind.value for o in own})
        lines.append(f"{kind:<12}{len(own):>7}{counts[0]:>9}{counts[1]:>7}{named:>7}  {', '.join(kinds)}")
    return "\n".join([*lines, f"checkpoints that were called unlike the rest, and are not: {wrong_count}"])


def main(arguments: Sequence[str]) -> int:
    """Draw and judge jobs, and print the report."""
    parser = argparse.ArgumentParser(prog="outliers", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    parser.add_argument("--quiet", action="store_true", help="print no sentences")
    options = parser.parse_args(arguments)
    outcomes: list[Outcome] = []
    wrong_count = 0
    for kind in options.kind or KINDS:
        for seed in range(options.first, options.first + options.seeds):
            found, wrong = asyncio.run(judged(f"{kind}/{seed}"))
            outcomes += found
            wrong_count += wrong
            for one in [] if options.quiet else found:
                print(f"{one.name} {one.checkpoint_id} {one.is_place_right} {one.is_mechanism_right}")
                print(f"    {one.verdict.sentence}")
    print(report(outcomes, wrong_count))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
