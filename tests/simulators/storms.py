"""Run the reference runtime many times under injected faults: ``make sim SEEDS=10000``.

``python -m tests.simulators.storms --help`` lists the options. Each seed is one run. Consecutive seeds rotate through
the protocols and the kinds of faults; half of the kinds also rescale the job. The seed determines the rest at random,
including options that are off by default (``tests/simulators/fault_plans.py``). Each run checks all invariants of
``tests/support/invariants.py``. For each failed run, the command that repeats it is printed.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from os import cpu_count

from tests.simulators.fault_plans import (
    AT_LEAST_ONCE,
    CONTINUED,
    EFFECTS,
    FROM_CHECKPOINT,
    FROM_SAVEPOINT,
    IN_FLIGHT,
    KINDS,
    MODES,
    OPTIONS,
    Case,
)
from tests.support.invariants import InvariantError
from tests.support.runtime_jobs import points_of

_TELL_S = 2.0
_FAILURES_SHOWN = 20
# With this number of seeds, every failpoint of every protocol is reached several times.
_SEEDS_FOR_ALL_POINTS = 5_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run. ``problem`` describes a broken invariant or another exception; None if there was none."""

    case: Case
    struck: Counter[str]
    problem: str | None


def case_of(seed: int, protocols: Sequence[str] = MODES, kinds: Sequence[str] = tuple(KINDS)) -> Case:
    """Return the case for a seed. Consecutive seeds rotate through the protocols and the kinds of faults."""
    cell, n = seed % (len(protocols) * len(kinds)), seed // (len(protocols) * len(kinds))
    return Case(protocols[cell % len(protocols)], kinds[cell // len(protocols)], n)


def outcome_of(case: Case) -> Outcome:
    """Run a case and return its outcome. An exception is not raised, but described in ``problem``."""
    try:
        return Outcome(case, case.run(), None)
    except InvariantError as error:
        return Outcome(case, Counter(), str(error))
    except Exception:  # noqa: BLE001 - one broken run must not end the others
        return Outcome(case, Counter(), traceback.format_exc(limit=-3).strip())


def replay_line(case: Case) -> str:
    """Return the command that repeats a case."""
    return f"make sim SEEDS=1 ARGS='--replay {case}'"


def _outcomes(cases: list[Case], processes: int) -> Iterator[Outcome]:
    if processes == 1:
        yield from map(outcome_of, cases)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(outcome_of, cases, chunksize=4)


def _case(name: str) -> Case:
    try:
        return Case.of(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class _Tally:
    """Collects the outcomes. Prints each failure at once, and the progress every few seconds."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.failed: list[Outcome] = []
        self.struck: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._began = self._told = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        self.done += 1
        self.struck[outcome.case.protocol] += outcome.struck
        if outcome.problem is not None:
            self.failed.append(outcome)
            if len(self.failed) <= _FAILURES_SHOWN:
                print(f"FAILED {outcome.case}: {outcome.problem}\n  {replay_line(outcome.case)}", flush=True)
        now = time.monotonic()
        if now - self._told >= _TELL_S or self.done == self.total:
            self._told = now
            rate = self.done / max(now - self._began, 1e-9)
            left = f"{(self.total - self.done) / rate / 60:.1f} min left"
            print(f"{self.done}/{self.total} runs, {len(self.failed)} failed, {rate:.1f}/s, {left}", file=sys.stderr)

    def never_struck(self) -> list[str]:
        points = {p: points_of("aligned" if p == AT_LEAST_ONCE else p) for p in self.struck}
        return [
            f"{p}: {point}"
            for p, struck in self.struck.items()
            for point in (*points[p], FROM_CHECKPOINT, FROM_SAVEPOINT)
            if not struck[point]
        ]


def _finish(tally: _Tally, *, is_whole: bool) -> int:
    struck = sum(tally.struck.values(), Counter[str]())
    in_flight, rescales = struck.pop(IN_FLIGHT, 0), [struck.pop(kind, 0) for kind in (FROM_CHECKPOINT, FROM_SAVEPOINT)]
    drawn = {name: struck.pop(name, 0) for name in (*OPTIONS, *EFFECTS.values())}
    told = f"{sum(rescales)} rescales ({rescales[1]} from savepoints, {in_flight} with data in flight)"
    told += f", {struck.pop(CONTINUED, 0)} continued in another run"
    print(f"{tally.done} runs, {struck.total()} faults struck, {told}, {len(tally.failed)} failed")
    effects = {name: f" ({EFFECTS[name]}: {drawn[EFFECTS[name]]})" if name in EFFECTS else "" for name in OPTIONS}
    print("drawn: " + ", ".join(f"{name} {drawn[name]}{effects[name]}" for name in OPTIONS))
    silent = tally.never_struck() if is_whole and tally.done >= _SEEDS_FOR_ALL_POINTS else []
    if silent:
        print("never struck: " + ", ".join(silent))
    return 1 if tally.failed or silent else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases.

    Return 1 if a run failed or a failpoint was never reached, 130 if interrupted without failure, else 0.
    """
    parser = argparse.ArgumentParser(prog="make sim", description="runs of the reference runtime under induced faults")
    parser.add_argument("--seeds", type=int, default=1000, help="how many runs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=cpu_count() or 1)
    parser.add_argument("--protocol", action="append", choices=[*MODES], help="only this protocol (repeatable)")
    parser.add_argument("--kind", action="append", choices=[*KINDS], help="only this kind of faults (repeatable)")
    parser.add_argument("--replay", type=_case, metavar="PROTOCOL/KIND/SEED", help="one run, by the name in a failure")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        cases, processes = [options.replay], 1
    else:
        protocols, kinds = options.protocol or [*MODES], options.kind or [*KINDS]
        seeds = range(options.first, options.first + options.seeds)
        cases, processes = [case_of(seed, protocols, kinds) for seed in seeds], options.processes
    tally = _Tally(len(cases))
    is_whole = options.replay is None and not options.protocol and not options.kind
    try:
        for outcome in _outcomes(cases, processes):
            tally.add(outcome)
    except KeyboardInterrupt:
        return _finish(tally, is_whole=False) or 130
    return _finish(tally, is_whole=is_whole)


if __name__ == "__main__":
    sys.exit(main())
