"""Measures how close the reference runtime comes to a running Flink, compared with the plain formulas CM-1 to CM-5.

Each recorded scenario runs on the runtime with the same parameters, with the sizes of records only (without bytes).
The benchmark compares medians over the checkpoints. The formulas are used in two ways: with the same parameters only
("formula"), and with these parameters and the queues recorded on Flink ("queues"). The runtime uses virtual time, so
the figures do not depend on the machine. docs/evidence/runtime-against-flink.md describes how the recordings were made.

    python benchmarks/fidelity_bench.py [--recordings FOLDER [--keep]] [--only NAME] [--pairs 1] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.simulators import fidelity_recordings
from tests.simulators.fidelity import MEASURES, Medians, Run, Scenario, middle, recorded, simulated
from tests.simulators.fidelity_formulas import from_parameters, from_queues

_TITLES = {
    "end_to_end_ms": "End to end, ms",
    "start_delay_ms": "Start delay, ms (longest of all subtasks; of the formulas: the last barrier's time)",
    "alignment_ms": "Alignment, ms (longest of all subtasks; the formulas do not tell it from start delay)",
    "persisted_bytes": "Persisted in flight, bytes (zero for aligned checkpoints in every column)",
    "records_per_s": "Records a second through the last stage",
}
_NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """The medians of one scenario: for each version of Flink, for the runtime, and for the formulas."""

    scenario: str
    flink: dict[str, Medians]
    of_flink: Medians
    """The medians over all runs on Flink, of any version."""
    spread: dict[str, float]
    """By measure: the range of the values of all Flink runs, as a share of the median. Missing for a single run."""
    runtime: Medians
    formula: Medians
    queues: Medians

    def errors(self, measure: str) -> dict[str, float]:
        """Return the error of each prediction, as a share of the value measured on Flink."""
        measured = getattr(self.of_flink, measure)
        predicted = {name: getattr(getattr(self, name), measure) for name in ("runtime", "formula", "queues")}
        return {name: value / measured - 1 for name, value in predicted.items() if measured and value is not None}


def compared(scenario: Scenario, runs: Sequence[Run], seeds: int) -> Row:
    """Return the row of a scenario. The runtime's figures are medians over the seeds 1 to ``seeds``."""
    versions = sorted({run.flink for run in runs})
    queued = [statistics.median(hop) for hop in zip(*(run.queued_bytes for run in runs), strict=True)]
    of_flink = middle(run.medians for run in runs)
    spread = {}
    for measure in MEASURES:
        values = [v for run in runs if (v := getattr(run.medians, measure)) is not None]
        if len(values) > 1 and (centre := getattr(of_flink, measure)):
            spread[measure] = (max(values) - min(values)) / centre
    return Row(
        scenario.name,
        {version: middle(run.medians for run in runs if run.flink == version) for version in versions},
        of_flink,
        spread,
        middle(simulated(scenario, seed=seed) for seed in range(1, seeds + 1)),
        from_parameters(scenario),
        from_queues(scenario, queued),
    )


def table(measure: str, rows: Sequence[Row]) -> Iterable[str]:
    """Yield the table of one measure over all scenarios, as Markdown."""
    versions = sorted({version for row in rows for version in row.flink})
    heads = ["Scenario", *(f"Flink {v}" for v in versions), "spread", "runtime", "", "formula", "", "queues", ""]
    yield f"**{_TITLES[measure]}**\n"
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        measured = [getattr(row.flink.get(version, Medians()), measure) for version in versions]
        if measure == "persisted_bytes" and not any(measured):
            continue
        errors = row.errors(measure)
        spread = row.spread.get(measure)
        cells = [row.scenario, *map(_figure, measured), _NOTHING if spread is None else f"{spread:.0%}"]
        for name in ("runtime", "formula", "queues"):
            cells += [_figure(getattr(getattr(row, name), measure)), f"{errors[name]:+.0%}" if name in errors else ""]
        yield "| " + " | ".join(cells) + " |"


def _figure(value: float | None) -> str:
    if value is None:
        return _NOTHING
    return f"{value:.0f}" if value >= 100 or value == 0 else f"{value:.1f}"


def summary(rows: Sequence[Row]) -> Iterable[str]:
    """Yield a table with the median error of each prediction, and in how many scenarios the runtime is the closest."""
    yield "| Measure | scenarios | runtime | formula | queues | runtime nearest |"
    yield "|---|---|---|---|---|---|"
    for measure in MEASURES:
        errors = [found for row in rows if (found := row.errors(measure))]
        cells = [_middle_error(errors, name) for name in ("runtime", "formula", "queues")]
        nearest = sum(abs(of["runtime"]) <= min(abs(error) for error in of.values()) for of in errors)
        of_formulas = measure != "alignment_ms"
        yield f"| {measure} | {len(errors)} | {' | '.join(cells)} | {nearest if of_formulas else _NOTHING} |"


def _middle_error(errors: Sequence[dict[str, float]], name: str) -> str:
    found = [abs(of[name]) for of in errors if name in of]
    return f"{statistics.median(found):.0%}" if found else _NOTHING


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--recordings", type=Path, help="a folder of recordings, in place of the stored medians")
    parser.add_argument("--keep", action="store_true", help="store the medians of the recordings for the tests")
    parser.add_argument("--only", action="append", help="run only this scenario; repeatable")
    parser.add_argument("--pairs", type=int, default=1, help="number of the runtime's seeds [1]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str], out: Callable[[str], object] = print) -> None:
    """Print the tables, or the same data as JSON."""
    options = _parsed(arguments)
    if options.recordings is None:
        scenarios = recorded()
    else:
        scenarios = fidelity_recordings.reduced_all(
            sorted(file.parent for file in options.recordings.glob("*/run.json"))
        )
        if options.keep:
            fidelity_recordings.write(scenarios)
    chosen = [(s, runs) for s, runs in scenarios if not options.only or s.name in options.only]
    rows = [compared(scenario, runs, max(1, options.pairs)) for scenario, runs in chosen]
    if options.json:
        out(json.dumps([asdict(row) for row in rows], indent=1))
        return
    for measure in MEASURES:
        out("\n".join(table(measure, rows)) + "\n")
    out("\n".join(summary(rows)))


if __name__ == "__main__":
    main(sys.argv[1:])
