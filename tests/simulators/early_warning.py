"""Measures the early warning of timeouts on drawn jobs of the reference runtime: lead, recall, false pages, coverage.

Beside the prediction stands the plain rule, a warning after four fifths of the timeout. The constants of the prediction
were chosen with seeds below 100, the tails of its interval with some below 4000, and the probabilities from which on it
warns with the seeds 1000 to 1011 and from 6000 on. The figures in ``docs/evidence/early-warning.md`` were scored on
the untouched seeds 40000 to 40011.

    python -m tests.simulators.early_warning [--seeds 6] [--from 6000] [--kind bursts] [--processes 2]
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from multiprocessing import get_context

import numpy as np

from backend.backtest.early_warning import AGE_EDGES, AgeBand, Score, Tally, tally_of, watched
from tests.simulators.early_warning_jobs import KINDS, checkpoints_of, drawn

LEAD_ASKED = 0.30
RECALL_ASKED = 0.95
COVERAGE_ASKED = 0.03
FALSE_ASKED = 1.0
TROUBLED_SHARE = 0.01
"""In the fleet for which false pages are counted, one of a hundred job-days is one with trouble."""
_LOOKS_MIN = 200
_JOBS_MIN = 20
"""With fewer looks or jobs, nothing is said on the coverage in a band of ages."""
_RESAMPLES = 2000


def tally(name: str) -> tuple[str, Tally]:
    """Run one drawn job and return how the warnings fared."""
    return name, tally_of(list(watched(checkpoints_of(drawn(name)))))


def report(tallies: Mapping[str, Tally]) -> tuple[str, bool]:
    """Return the tables, and whether everything that is asked for is reached."""
    by_kind: dict[str, Tally] = {}
    for name, one in tallies.items():
        by_kind.setdefault(name.partition("/")[0], Tally()).add(one)
    whole, troubled = Tally(), Tally()
    lines = [f"{'':<16}{'job-days':>9}{'expired':>9}  {'predicted: recall lead pages false':<36}plain: the same"]
    for kind, one in by_kind.items():
        whole.add(one)
        if kind != "healthy":
            troubled.add(one)
        lines.append(_row(kind, one))
    lines += [
        _row("all", whole),
        "",
        f"{'age / timeout':<16}{'jobs':>6}{'looks':>9}{'stated':>9}{'held':>9}  stated - held",
    ]
    worst = 0.0
    for number, (low, high) in enumerate(pairwise(AGE_EDGES)):
        line, off = _coverage(f"{low:g} to {high:g}", [t.bands[number] for t in tallies.values()])
        lines.append(line)
        worst = max(worst, off)
    lines.append(f"intervals: 95 %, of {_RESAMPLES} resamples of the jobs, because the looks at one job are alike")
    healthy = by_kind.get("healthy", Tally())
    false_rate = _false_rate(troubled, healthy, plain=False)
    checks = [
        ("median lead", whole.predicted.lead_ratio or 0.0, LEAD_ASKED, True, "{:.0%}"),
        ("recall", whole.predicted.recall_ratio or 0.0, RECALL_ASKED, True, "{:.1%}"),
        ("false pages in 100 job-days", false_rate, FALSE_ASKED, False, "{:.2f}"),
        ("coverage off by at most", worst, COVERAGE_ASKED, False, "{:.1%}"),
    ]
    lines.append("")
    is_good = True
    for word, value, asked, is_least, form in checks:
        good = value >= asked if is_least else value <= asked
        is_good &= good
        limit = f"{'at least' if is_least else 'at most'} {form.format(asked)} asked"
        lines.append(f"{word}: {form.format(value)} ({limit}){'' if good else '  MISSED'}")
    plain = _false_rate(troubled, healthy, plain=True)
    lines.append(
        f"false pages are counted for a fleet in which {TROUBLED_SHARE:.0%} of the job-days have one of the troubles; "
        f"the plain rule has {plain:.2f}. In {troubled.days:.1f} job-days of trouble alone: "
        f"{troubled.predicted.false_page_count} of {troubled.predicted.page_count} pages false, plain "
        f"{troubled.plain.false_page_count} of {troubled.plain.page_count}"
    )
    return "\n".join(lines), is_good


def _coverage(word: str, by_job: Sequence[AgeBand]) -> tuple[str, float]:
    """Return a line on the coverage at one band of ages, and how far it is off; 0 if there are too few cases to say."""
    rows = np.array([(b.count, b.stated_count, b.held_count) for b in by_job if b.count])
    if not len(rows):
        return f"{word:<16}{0:>6}{0:>9}  no cases", 0.0
    looks, stated, held = rows.sum(axis=0)
    off = (stated - held) / looks
    line = f"{word:<16}{len(rows):>6}{looks:>9.0f}{stated / looks:>9.1%}{held / looks:>9.1%}"
    if len(rows) < _JOBS_MIN or looks < _LOOKS_MIN:
        return f"{line}  too few cases to say", 0.0
    drawn = rows[np.random.default_rng(1).integers(0, len(rows), (_RESAMPLES, len(rows)))].sum(axis=1)
    low, high = np.quantile((drawn[:, 1] - drawn[:, 2]) / drawn[:, 0], (0.025, 0.975))
    return f"{line}  {off:+.1%} ({low:+.1%} to {high:+.1%})", abs(off)


def _false_rate(troubled: Tally, healthy: Tally, *, plain: bool) -> float:
    """Return the false pages in 100 job-days of a fleet in which few job-days have trouble."""
    rates = []
    for one in (troubled, healthy):
        score = one.plain if plain else one.predicted
        rates.append(score.false_page_count / one.days if one.days else 0.0)
    return 100 * (TROUBLED_SHARE * rates[0] + (1 - TROUBLED_SHARE) * rates[1])


def _row(word: str, one: Tally) -> str:
    return f"{word:<16}{one.days:>9.1f}{one.predicted.expired_count:>9}  {_score(one.predicted):<36}{_score(one.plain)}"


def _score(score: Score) -> str:
    recall, lead = (("-" if v is None else f"{v:.0%}") for v in (score.recall_ratio, score.lead_ratio))
    return f"{'':>11}{recall:>6}{lead:>6}{score.page_count:>6}{score.false_page_count:>6}"


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main(arguments: Sequence[str]) -> int:
    """Draw jobs, and print how the warnings fared. Return 1 if something asked for is missed.

    After Ctrl-C, the report is on the jobs that have ended.
    """
    parser = argparse.ArgumentParser(prog="early_warning", description="Measures the early warning on drawn jobs.")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--from", dest="begin", type=int, default=6000)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    seeds = range(options.begin, options.begin + options.seeds)
    names = [f"{kind}/{seed}" for seed in seeds for kind in options.kind or KINDS]
    began_s, found = time.monotonic(), {}
    with get_context("spawn").Pool(options.processes, _ignore_interrupts) as pool:
        try:
            for name, one in pool.imap_unordered(tally, names):
                found[name] = one
                if sys.stderr.isatty():
                    print(f"\r{len(found)} of {len(names)} jobs", end="", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print(f"\ninterrupted: the report is on {len(found)} of {len(names)} jobs")
    text, is_good = report({name: found[name] for name in names if name in found})
    print(f"\n{text}\n{len(found)} jobs in {time.monotonic() - began_s:.0f} s")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
