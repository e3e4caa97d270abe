"""The regret of chosen settings: what a job loses under them, compared with the best setting of an exhaustive grid.

For each drawn job of the reference runtime, the job runs as it is and is polled like a live target. From what was
collected, each chooser chooses settings. Then all settings of the grid and all chosen ones run with other records, and
the regret of a chooser is (its loss - the least loss of the grid) / the least loss. It is below zero if the chooser
found settings between those of the grid that lose less. What a run loses is in ``regret_jobs.Fare``. If a store hangs
by chance, it hangs at other times in each run, and a setting is measured in several runs: of twenty settings that run
once, the least loss is mostly luck.
A setting breaks a bound if more checkpoints expire, or persist more than the store can write in time, than under the
setting of the grid that is best at that, and by more than chance explains.

The choosers:

* ``as it is``: the settings of the job, which are the defaults: aligned checkpoints
* ``always unaligned``: unaligned checkpoints from the trigger on, at the same interval
* ``Young/Daly``: aligned checkpoints at the interval of Daly's formula for the measured cost of a checkpoint, but at
  most the checkpoint timeout
* ``random search``: three settings of the grid are tried, and the best of them and of the present ones is kept
* ``rules``: the recommendations of the rules without the simulation, followed up to three times
* ``advisor``: the recommendations of the product, where the fast simulation chooses, followed up to three times
* ``twin``: the setting of the grid for which the fast tier predicts the least loss within the bounds
* ``twin, 3 tried``: the three best predictions are tried, and the best of them and of the present ones is kept

    python -m tests.simulators.regret [--jobs 200] [--from 0] [--kind bursts] [--processes 2] [--out build/regret]
    python -m tests.simulators.regret --replay bursts/3

Each job that has ended is kept in ``OUT/jobs.jsonl``. The same command continues after it was stopped. The runs of a
job are kept in ``OUT/runs`` beside it, so that after a change of the advisor only what it chose has to run again.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import cache, partial
from math import log
from multiprocessing import get_context
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final, TextIO

import backend
from backend.advisor import advise
from backend.advisor.advice import Interval
from backend.advisor.proposing import share_interval
from backend.advisor.rules.intervals import best_interval_ms
from backend.advisor.simulating import simulate
from backend.advisor.situation import situation
from backend.advisor.thresholds import STORE_PRICE
from backend.advisor.tier_choice import TierChoice
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.outcomes import Outcome, Tier
from backend.advisor.twin.tiers.calibration import calibrated
from backend.advisor.twin.tiers.predicting import predict
from backend.analysis.assembling import NEWEST_READINGS
from backend.analysis.health.struck_spans import struck_spans
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.advice import Mode, Topic
from backend.domain.engines import RUNTIME
from backend.domain.errors import BarrierscopeError
from tests.simulators import regret_report
from tests.simulators.regret_fares import Fares
from tests.simulators.regret_jobs import (
    EXPIRED_SLACK,
    KINDS,
    OVER_SLACK,
    SEEN_S,
    WARM_UP_S,
    Choice,
    Drawn,
    Fare,
    pooled,
)
from tests.simulators.regret_report import Chosen, Judged
from tests.support.twin_evidence import runtime_evidence

TRIALS: Final = 3
"""How many settings a chooser may try on the job itself."""
_SEEN_SEED, _TRUE_SEED = 1, 2
_POLL_S: Final = 4.0
_VERSION: Final = "0.0.0"
_FAILURES: Final = 5
_FOLLOWED: Final = (Topic.MODE, Topic.IN_FLIGHT, Topic.BUFFERS, Topic.INTERVAL, Topic.MIN_PAUSE)
"""The topics on which settings are chosen. The timeout is a bound, and parallelism and state cost something else."""

Settings = Mapping[str, str]


@dataclass(slots=True)
class Bench:
    """One drawn job, and the runs of it that were made. ``run_s`` is their length in virtual seconds."""

    job: Drawn
    run_s: float
    grid: Sequence[Choice]
    fares: Fares

    def observed(self, settings: Settings) -> JobEvidence:
        """Return what a collector gathers from the job. The failures of its past are on record too."""
        spec = self.job.spec(settings, seed=_SEEN_SEED)
        evidence = runtime_evidence(spec, run_s=self.run_s, every_s=_POLL_S)
        began = evidence.now - timedelta(seconds=self.run_s)
        between = timedelta(seconds=self.job.between_failures_s)
        past = tuple((began - n * between, "a lost host") for n in range(_FAILURES, 0, -1))
        return replace(evidence, exceptions=past)

    def true(self, settings: Settings) -> Fare:
        """Return what the job loses under settings, in runs with records that no chooser has seen."""
        return pooled([self.fares.of(settings, seed=_TRUE_SEED + n) for n in range(self.job.runs)])

    def tried(self, choices: Sequence[Settings]) -> Settings:
        """Try settings on the job, and return the best of them."""
        found = [(self.fares.of(s, seed=_SEEN_SEED, run_s=self.run_s), s) for s in choices]
        floors = min(f.expired for f, _ in found), min(f.over for f, _ in found)
        return min(found, key=lambda pair: (excess(pair[0], *floors), pair[0].loss))[1]


def excess(found: Fare, expired: float, over: float) -> float:
    """Return by how much a run breaks the bounds; 0 if it keeps them. The floors are the least shares possible.

    A share counts with the lower end of its 90 % interval, because a few of some twenty checkpoints expire by chance.
    """
    count = max(1, found.checkpoints)
    shares = ((found.expired, expired + EXPIRED_SLACK), (found.over, over + OVER_SLACK))
    return sum(max(0.0, share_interval(round(share * count), count).low - limit) for share, limit in shares)


# --- choosers ---------------------------------------------------------------------------------------------------------


def young_daly(bench: Bench) -> Settings:
    """Return the settings of the job with Daly's interval for the cost that was measured."""
    job = bench.job
    found = bench.fares.of(job.now.config(), seed=_SEEN_SEED, run_s=bench.run_s)
    cost_ms = found.work * (bench.run_s - WARM_UP_S) * 1000 / max(1, found.checkpoints)
    best = best_interval_ms(max(1.0, cost_ms), job.between_failures_s * 1000)
    return Choice(min(job.timeout_ms, max(1000, round(best)))).config()


def random_search(bench: Bench) -> Settings:
    """Return the best of some settings that were drawn and tried."""
    drawn = random.Random(f"random search/{bench.job.name}").sample(list(bench.grid), min(TRIALS, len(bench.grid)))
    return bench.tried([bench.job.now.config(), *(c.config() for c in drawn)])


def advised(bench: Bench, first: JobEvidence, notes: list[str], *, is_simulated: bool = True) -> Settings:
    """Follow the advisor's recommendations until it has none.

    If ``is_simulated``, the fast simulation chooses, as it does in the product.
    """
    settings, evidence = dict(bench.job.now.config()), first
    choice: TierChoice | None = None
    for _ in range(TRIALS):
        found = _as_found(evidence)
        series = None if choice is None else choice.series_at(evidence.config, evidence.now)
        known = replace(situation(found, engine=RUNTIME, version=_VERSION), modelled=evidence, series=series)
        choice = simulate(known) if is_simulated else None
        advice = advise(found, engine=RUNTIME, version=_VERSION, choice=choice)
        if choice is not None and choice.why_not is not None:
            notes.append(f"not simulated: {choice.why_not}")
        given = [r for r in advice.recommendations if r.topic in _FOLLOWED]
        if not given:
            notes += [f"{s.topic.value}: {s.reason}" for s in advice.silences if s.topic in _FOLLOWED]
            break
        for one in given:
            notes.append(one.headline)
            settings |= {c.key: c.proposed for c in one.changes}
        evidence = bench.observed(settings)
    return settings


def _as_found(evidence: JobEvidence) -> JobEvidence:
    """Return the evidence as a finding of the service has it: the newest readings, and those around struck checkpoints.

    Models are built from all readings, in the service as here.
    """
    newest = max(r.observed_at for r in evidence.pressure) - NEWEST_READINGS
    read = tuple(r for r in evidence.pressure if r.observed_at >= newest)
    found = replace(evidence, pressure=read)
    spans = list(struck_spans(found))
    earlier = (r for r in evidence.pressure if any(a <= r.observed_at <= b for a, b in spans))
    return replace(found, earlier_pressure=tuple(r for r in earlier if r.observed_at < newest))


def predicted(bench: Bench, evidence: JobEvidence, notes: list[str]) -> list[Settings]:
    """Return the settings of the grid, the best prediction first; only the present ones if the job has no model."""
    try:
        model = calibrated(evidence, engine=RUNTIME, version=_VERSION, tier=Tier.FAST)
        ranked = sorted(
            ((*_rank(bench.job, model, c, predict(model, _what_if(c), Tier.FAST)), n) for n, c in enumerate(bench.grid))
        )
    except BarrierscopeError as error:
        notes.append(f"no prediction: {error}")
        return [bench.job.now.config()]
    notes += [f"{bench.grid[n]}: loss {loss:.2%} predicted" for _, loss, n in ranked[:TRIALS]]
    return [bench.grid[n].config() for _, _, n in ranked]


def _what_if(choice: Choice) -> WhatIf:
    timeout = choice.timeout_ms
    return WhatIf(
        mode=Mode.ALIGNED if timeout is None else Mode.ALIGNED_WITH_TIMEOUT if timeout else Mode.UNALIGNED,
        aligned_timeout_ms=timeout,
        inflight_cap_bytes=choice.cap_bytes,
        is_uncapped=choice.cap_bytes is None,
        interval_ms=float(choice.interval_ms),
    )


def _rank(job: Drawn, model: JobModel, choice: Choice, outcome: Outcome) -> tuple[float, float]:
    """Return by how much a setting is predicted to break the bounds, and what it is predicted to lose."""
    if outcome.duration_ms is None or outcome.persisted_bytes is None or outcome.expired_ratio is None:
        return 2.0, 1.0
    per_ms, between_ms = job.store_bytes_per_s / 1000, job.between_failures_s * 1000
    duration, persisted = outcome.duration_ms.value, outcome.persisted_bytes.value
    expired = min(0.95, outcome.expired_ratio.value)
    sync = 0.0 if outcome.sync_pause_ms is None else outcome.sync_pause_ms.value
    uploaded = sum(sum(v.upload_bytes) for v in model.vertices)
    period = max(float(choice.interval_ms), duration)
    work = (sync + STORE_PRICE * (persisted + uploaded) / per_ms) / period
    # A checkpoint that expires is followed by another one, so the newest completed one gets older by a period.
    replay = (period * (1 + expired) / (2 * (1 - expired)) + duration + persisted / per_ms) / between_ms
    over = _share_above(job.persisted_limit_bytes, outcome.persisted_bytes)
    return max(0.0, expired - EXPIRED_SLACK) + max(0.0, over - OVER_SLACK), work + replay


def _share_above(limit: float, found: Interval) -> float:
    """Return the share of checkpoints above a limit. The interval is that of 90 %, and errors are factors."""
    if found.value <= 0 or found.high <= found.value:
        return float(found.value > limit)
    spread = log(found.high / found.value) / NormalDist().inv_cdf(0.95)
    return 1 - NormalDist(log(found.value), spread).cdf(log(limit))


# --- one job ----------------------------------------------------------------------------------------------------------


def judged(
    name: str,
    *,
    run_s: float = SEEN_S,
    grid: Callable[[Drawn], Sequence[Choice]] = Drawn.grid,
    folder: Path | None = None,
) -> Judged:
    """Draw a job, let every chooser choose, and measure all settings. ``folder`` keeps the runs."""
    job = Drawn.of(name)
    bench = Bench(job, run_s, grid(job), Fares(job, folder))
    notes: dict[str, list[str]] = {"rules": [], "advisor": [], "twin": []}
    evidence = bench.observed(job.now.config())
    ranked = predicted(bench, evidence, notes["twin"])
    wanted: dict[str, Settings] = {
        "as it is": job.now.config(),
        "always unaligned": replace(job.now, timeout_ms=0).config(),
        "Young/Daly": young_daly(bench),
        "random search": random_search(bench),
        "rules": advised(bench, evidence, notes["rules"], is_simulated=False),
        "advisor": advised(bench, evidence, notes["advisor"]),
        "twin": ranked[0],
        "twin, 3 tried": bench.tried([job.now.config(), *ranked[:TRIALS]]),
    }
    offered: list[Settings] = [c.config() for c in bench.grid]
    measured = {_key(s): (bench.true(s), s) for s in offered}
    floors = min(f.expired for f, _ in measured.values()), min(f.over for f, _ in measured.values())
    least = min(excess(f, *floors) for f, _ in measured.values())
    best, best_settings = min(
        ((f, s) for f, s in measured.values() if excess(f, *floors) <= least), key=lambda pair: pair[0].loss
    )
    for settings in wanted.values():
        if _key(settings) not in measured:
            measured[_key(settings)] = bench.true(settings), settings
    bench.fares.keep()
    chosen = {}
    for who, settings in wanted.items():
        found = measured[_key(settings)][0]
        chosen[who] = Chosen(
            settings=_words(settings),
            loss=found.loss,
            regret=found.loss / best.loss - 1,
            is_broken=excess(found, *floors) > least,
            expired=found.expired,
            over=found.over,
            notes=notes.get(who, []),
        )
    return Judged(name, _words(best_settings), best.loss, best.expired, best.over, chosen)


def _key(settings: Settings) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings.items()))


def _words(settings: Settings) -> str:
    names = {k: k.rpartition("checkpointing.")[2].removeprefix("runtime.") for k in settings}
    return ", ".join(f"{names[k]}={v}" for k, v in sorted(settings.items()))


# --- all jobs ---------------------------------------------------------------------------------------------------------


def names_of(kinds: Sequence[str], jobs: int, first: int) -> list[str]:
    """Return the names of the jobs: the kinds in turn, so that any number of them is a fair mixture."""
    return [f"{kinds[n % len(kinds)]}/{first + n // len(kinds)}" for n in range(jobs)]


@cache
def digest() -> str:
    """Return a digest of the code on which the results depend, so that results of different code are not mixed."""
    seen, root = hashlib.blake2b(digest_size=8), Path(backend.__file__).parent
    files = [p for folder in ("advisor", "analysis", "runtime") for p in sorted((root / folder).rglob("*.py"))]
    for path in [*files, Path(__file__), Path(__file__).with_name("regret_jobs.py")]:
        seen.update(path.read_bytes())
    return seen.hexdigest()


@contextmanager
def kept(folder: Path) -> Iterator[tuple[TextIO, dict[str, Judged]]]:
    """Open the results of earlier runs of the same code. Lines of other code, and a broken last line, are skipped."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "jobs.jsonl").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another process writes to {folder}; choose another folder with --out") from None
        file.seek(0)
        text, found, code = file.read(), {}, digest()
        if text and not text.endswith("\n"):
            file.write("\n")
        for line in text.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if row.get("code") == code:
                found[row["name"]] = Judged.of(row)
        yield file, found


def run(names: Sequence[str], processes: int, folder: Path, on_end: Callable[[Judged], None]) -> None:
    """Judge jobs in ``processes`` processes. Ctrl-C ends them all, and what has ended is kept in ``folder``."""
    if processes == 1:
        for name in names:
            on_end(judged(name, folder=folder))
        return
    with get_context("spawn").Pool(processes, initializer=signal.signal, initargs=_IGNORE) as pool:
        for one in pool.imap_unordered(partial(judged, folder=folder), names):
            on_end(one)


_IGNORE: Final = (signal.SIGINT, signal.SIG_IGN)


def main(arguments: Sequence[str]) -> int:
    """Judge jobs, and write the report. Return 1 if something asked for is missed."""
    parser = argparse.ArgumentParser(prog="regret", description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=200, help="number of drawn jobs [200]")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed [0]")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", help="only this kind; repeatable")
    parser.add_argument("--processes", type=int, default=2, help="processes that run jobs [2]")
    parser.add_argument("--out", type=Path, default=Path("build/regret"), help="folder of the results [build/regret]")
    parser.add_argument("--replay", help="judge one job by its name, and print every choice")
    options = parser.parse_args(arguments)
    if options.replay:
        print("\n".join(regret_report.one_job(judged(options.replay))))
        return 0
    names = names_of(options.kind or list(KINDS), options.jobs, options.first)
    with kept(options.out) as (file, found):
        left, began_s = [n for n in names if n not in found], time.monotonic()
        if len(left) < len(names):
            print(f"{len(names) - len(left)} of {len(names)} jobs are kept in {options.out}", file=sys.stderr)

        def on_end(one: Judged) -> None:
            found[one.name] = one
            row: dict[str, Any] = {"code": digest(), **asdict(one)}
            file.write(json.dumps(row) + "\n")
            file.flush()
            done = len([n for n in left if n in found])
            rest_s = (time.monotonic() - began_s) / done * (len(left) - done)
            print(
                f"{done} of {len(left)}: {one.name}, regret of the advisor {one.chosen['advisor'].regret:.1%}, of the"
                f" twin {one.chosen['twin'].regret:.1%}; about {rest_s / 60:.0f} min left",
                file=sys.stderr,
                flush=True,
            )

        try:
            run(left, options.processes, options.out / "runs", on_end)
        except KeyboardInterrupt:
            print("stopped; the same command continues", file=sys.stderr)
        rows = [found[n] for n in names if n in found]
    if not rows:
        return 1
    text, is_good = regret_report.table(rows)
    command = f'make eval ARGS="{" ".join(arguments)}"' if arguments else "make eval"
    page = regret_report.page(rows, asked=len(names), command=command, code=digest())
    (options.out / "report.html").write_text(page, encoding="utf-8")
    print(f"\n{text}\n{len(rows)} of {len(names)} jobs; report: {options.out / 'report.html'}")
    return 0 if is_good and len(rows) == len(names) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
