"""The predicted share of checkpoints that expire if the store hangs now and then, compared with what happens next.

A drawn job ``noisy_store`` of ``regret_jobs`` runs as it is for ``SEEN_S`` and is polled like a live target. The fast
tier predicts it as it is, at half and at twice the interval, and with unaligned checkpoints. Then it runs under these
settings ``LATER`` times with other records and other hangs, which are drawn in the same way. Only checkpoints that were
triggered after ``SEEN_S`` count, because the what-if asks about the next ones of a job of that age. Each later run
has a share of its first 5, 10 and 20, which the interval of 90 % should contain.

    python -m tests.simulators.hanging_stores [--from 0] [--jobs 12]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from backend.advisor.advice import Interval
from backend.advisor.lifecycle import LOOKS
from backend.advisor.thresholds import VERIFY_MIN_COUNT
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.outcomes import Outcome, Tier
from backend.advisor.twin.tiers import tiers
from backend.advisor.twin.tiers.tiers import QuickTiers, TieredModel
from backend.domain.advice import Mode
from backend.domain.engines import RUNTIME
from backend.domain.failure import FailureReason
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint
from tests.simulators.regret_jobs import SEEN_S, Choice, Drawn
from tests.support.twin_evidence import runtime_evidence

COUNTS: Final = (VERIFY_MIN_COUNT, *LOOKS)
"""The numbers of next checkpoints whose shares are compared: those on which a card is measured."""
LATER: Final = 3
_RUN_S: Final = 500.0
_POLL_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A what-if in words, the settings of the reference runtime for it, and the question to the twin."""

    words: str
    choice: Choice
    what_if: WhatIf


@dataclass(frozen=True, slots=True)
class Compared:
    """The predicted share, and for each later run how each of its next checkpoints ended: True if it expired."""

    asked: Asked
    predicted: Interval
    runs: tuple[tuple[bool, ...], ...]

    def shares(self, count: int) -> list[float]:
        """Return the share of the first ``count`` of each run, or of all if it has fewer."""
        return [sum(run[:count]) / len(run[:count]) for run in self.runs if run]

    def inside_count(self, count: int) -> int:
        """Return how many of these shares are in the predicted interval."""
        return sum(self.predicted.low <= share <= self.predicted.high for share in self.shares(count))


def asked_of(job: Drawn) -> list[Asked]:
    """Return the what-ifs: as it is, half and twice the interval, and unaligned."""
    found = []
    for words, factor in (("as it is", 1.0), ("half the interval", 0.5), ("twice the interval", 2.0)):
        interval_ms = round(job.interval_ms * factor)
        found.append(Asked(words, Choice(interval_ms), WhatIf(interval_ms=float(interval_ms))))
    return [*found, Asked("unaligned", replace(job.now, timeout_ms=0), WhatIf(mode=Mode.UNALIGNED))]


@cache
def model_of(name: str) -> TieredModel:
    """Return the model of a drawn job after ``SEEN_S``."""
    job = Drawn.of(name)
    evidence = runtime_evidence(job.spec(job.now.config(), seed=1), run_s=SEEN_S, every_s=_POLL_S)
    return QuickTiers(is_ready=True).build(evidence, RUNTIME, "0.0.0")


def is_expired_next(job: Drawn, choice: Choice, *, seed: int) -> tuple[bool, ...]:
    """Run the job, and return for each checkpoint after ``SEEN_S`` that completed or expired whether it expired."""
    engine = JobEngine(job.spec(choice.config(), seed=seed), is_size_only=True)
    ended: list[MeasuredCheckpoint] = []
    engine.coordinator.on_terminal = ended.append
    engine.run_until(round(_RUN_S * 1e6))
    return tuple(
        c.reason is FailureReason.EXPIRED
        for c in sorted(ended, key=lambda c: c.triggered_at_us)
        if c.triggered_at_us >= SEEN_S * 1e6
        and (c.state is CheckpointState.COMPLETED or c.reason is FailureReason.EXPIRED)
    )


def predicted(name: str, asked: Asked) -> Outcome:
    """Return what the fast tier predicts."""
    return tiers.predict(model_of(name), asked.what_if, Tier.FAST)


def compared(name: str) -> Iterator[Compared]:
    """Compare each what-if of one job with its later runs. A share that is not predicted is left out."""
    for asked in asked_of(Drawn.of(name)):
        share = predicted(name, asked).expired_ratio
        if share is not None:
            job, seeds = Drawn.of(name), range(2, 2 + LATER)
            yield Compared(asked, share, tuple(is_expired_next(job, asked.choice, seed=seed) for seed in seeds))


def table(rows: Sequence[Compared]) -> Iterator[str]:
    """Yield a line for each kind of what-if, and one for all with aligned checkpoints."""
    aligned = [r for r in rows if r.asked.choice.timeout_ms is None]
    kinds = [(w, [r for r in rows if r.asked.words == w]) for w in dict.fromkeys(r.asked.words for r in rows)]
    for words, found in (*kinds, ("all aligned", aligned)):
        if not found:
            continue
        parts = []
        for count in COUNTS:
            errors = [abs(r.predicted.value - share) for r in found for share in r.shares(count)]
            inside = sum(r.inside_count(count) for r in found)
            parts.append(f"{count:2}: {inside:3} of {len(errors):3} inside, error {sum(errors) / len(errors):.3f}")
        width = sum(r.predicted.high - r.predicted.low for r in found) / len(found)
        yield f"{words:18}  {'  '.join(parts)}  width {width:.2f}"


def main(arguments: Sequence[str]) -> int:
    """Compare some jobs, and print how often the intervals contained the shares."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulators.hanging_stores")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=12)
    options = parser.parse_args(arguments)
    rows: list[Compared] = []
    for seed in range(options.first, options.first + options.jobs):
        for row in compared(f"noisy_store/{seed}"):
            rows.append(row)
            share, shares = row.predicted, ", ".join(f"{s:.2f}" for s in row.shares(COUNTS[-1]))
            print(f"{seed:4} {row.asked.words:18} {share.value:.2f} [{share.low:.2f}, {share.high:.2f}]  then {shares}")
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
