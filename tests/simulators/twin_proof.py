"""The twin's proof on a real Flink: calibrate on a run as it is, predict the changed run, then compare with it.

    python -m tests.simulators.twin_proof [--only TEXT] [--flink VERSION] [--tier runtime|formulas] [--json]
    python -m tests.simulators.twin_proof --drawn COUNT

Every pair of recorded runs that differ by one change is a prediction, in both directions. Beside the twin's prediction
stand the plain formulas (CM-1 to CM-5) on the same model and today's replay of the recorded checkpoints. Nothing of the
changed run is known to any of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from math import sqrt

from backend.advisor.advice import Interval
from backend.advisor.replay import Recordings
from backend.advisor.situation import situation
from backend.advisor.twin.calibration import calibrated
from backend.advisor.twin.changes import WhatIf
from backend.advisor.twin.model import JobModel
from backend.advisor.twin.outcomes import Tier
from backend.advisor.twin.predicting import predict
from backend.domain.advice import Mode
from backend.domain.engines import flink
from backend.domain.errors import BarrierscopeError
from tests.simulators import twin_jobs
from tests.simulators.twin_recordings import Pair, Recording, pairs, read_all

MEASURES = {
    "duration": ("duration_ms", "end_to_end_ms", "ms"),
    "persisted": ("persisted_bytes", "persisted_bytes", "bytes"),
    "throughput": ("records_per_s", "records_per_s", "records/s"),
}
LONG_MS = 1000.0


@dataclass(frozen=True, slots=True)
class Row:
    """One prediction of one measure. The values of the baselines are None if they cannot say."""

    base: str
    changed: str
    flink: str
    change: str
    measure: str
    measured: float
    smallest: float
    largest: float
    predicted: float
    low: float
    high: float
    formula: float | None
    replayed: float | None
    replayed_low: float | None
    replayed_high: float | None

    @property
    def error(self) -> float:
        """The distance of the prediction as a share of the measured median."""
        return self.predicted / self.measured - 1 if self.measured else 0.0

    @property
    def is_within(self) -> bool:
        """Whether the prediction is within the bar of its measure."""
        if self.measure == "duration":
            if self.measured >= LONG_MS:
                return abs(self.error) <= 0.2
            return 0.5 <= self.predicted / self.measured <= 2.0
        return abs(self.error) <= (0.2 if self.measure == "persisted" else 0.05)

    @property
    def is_held(self) -> bool:
        """Whether the measured median is in the interval."""
        return self.low <= self.measured <= self.high


class Bases:
    """Models of base runs, each built and calibrated once."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], JobModel] = {}

    def model(self, base: Recording) -> JobModel:
        """Return the calibrated model of a run, built from what Barrierscope's collector read of it."""
        key = base.name, base.flink
        if key not in self._models:
            self._models[key] = calibrated(base.evidence, engine=flink(base.flink), version=base.flink)
        return self._models[key]


def rows_of(pair: Pair, bases: Bases, tier: Tier = Tier.RUNTIME) -> Iterator[Row]:
    """Predict the changed run of a pair, and yield a row for each measure that it has."""
    model = bases.model(pair.base)
    twin = predict(model, pair.what_if, tier)
    plain = predict(model, pair.what_if, Tier.FORMULAS)
    replay = _replayed(pair)
    counted = pair.changed.counted()
    spreads: dict[str, list[float]] = {
        "duration": [float(c.header.end_to_end_duration_ms or 0) for c in counted],
        "persisted": [float(c.header.persisted_bytes or 0) for c in counted],
    }
    for measure, (field, median, _) in MEASURES.items():
        measured = getattr(pair.changed.medians, median)
        found: Interval | None = getattr(twin, field)
        if measured is None or found is None or (measure == "persisted" and not measured):
            continue
        formula: Interval | None = getattr(plain, field)
        again = replay.get(measure)
        values = spreads.get(measure) or [measured]
        yield Row(
            base=pair.base.name,
            changed=pair.changed.name,
            flink=pair.base.flink,
            change=_words(pair.what_if),
            measure=measure,
            measured=measured,
            smallest=min(values),
            largest=max(values),
            predicted=found.value,
            low=found.low,
            high=found.high,
            formula=None if formula is None else formula.value,
            replayed=None if again is None else again.value,
            replayed_low=None if again is None else again.low,
            replayed_high=None if again is None else again.high,
        )


def _replayed(pair: Pair) -> dict[str, Interval]:
    """Return what today's replay predicts; it knows only changes of the mode."""
    wanted = pair.what_if
    if wanted != WhatIf(mode=wanted.mode, aligned_timeout_ms=wanted.aligned_timeout_ms) or wanted.mode is None:
        return {}
    known = situation(pair.base.evidence, engine=flink(pair.base.flink), version=pair.base.flink)
    timeout = None if wanted.mode is Mode.ALIGNED else int(wanted.aligned_timeout_ms or 0)
    found = Recordings(known).replay(timeout)
    return {} if found is None else {"duration": found.duration_ms, "persisted": found.persisted_bytes}


def _words(what_if: WhatIf) -> str:
    changed = {k: v for k, v in asdict(what_if).items() if v != asdict(WhatIf())[k]}
    return ", ".join(f"{k}={getattr(v, 'value', v)}" for k, v in changed.items())


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    share = hits / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def summary(rows: Iterable[Row]) -> Iterator[str]:
    """Yield lines: for each measure, how many predictions are within the bar, and how good the intervals are."""
    found = list(rows)
    for measure in MEASURES:
        of = [r for r in found if r.measure == measure]
        if not of:
            continue
        within, held = sum(r.is_within for r in of), sum(r.is_held for r in of)
        low, high = wilson(held, len(of))
        errors = statistics.median(abs(r.error) for r in of)
        plain = [abs(r.formula / r.measured - 1) for r in of if r.formula is not None]
        again = [abs(r.replayed / r.measured - 1) for r in of if r.replayed is not None]
        widths = [
            (r.high - r.low) / (r.replayed_high - r.replayed_low)
            for r in of
            if r.replayed_high is not None and r.replayed_low is not None and r.replayed_high > r.replayed_low
        ]
        yield (
            f"{measure}: {within} of {len(of)} within the bar; median error {errors:.1%}"
            f" (formula {_middle(plain)}, replay {_middle(again)});"
            f" {held} of {len(of)} intervals hold ({held / len(of):.0%}, 95 % Wilson {low:.0%} to {high:.0%});"
            f" width {_middle(widths)} of the replay's"
        )


def _middle(values: list[float]) -> str:
    return f"{statistics.median(values):.1%}" if values else "-"


def line(row: Row) -> str:
    """Return one row of the table."""
    formula = "-" if row.formula is None else f"{row.formula:.4g}"
    replay = "-" if row.replayed is None else f"{row.replayed:.4g} [{row.replayed_low:.4g} to {row.replayed_high:.4g}]"
    marks = ("" if row.is_within else " MISSED") + ("" if row.is_held else " OUTSIDE")
    return (
        f"{row.base} -> {row.changed} {row.flink} {row.measure}: measured {row.measured:.4g}"
        f" ({row.smallest:.4g} to {row.largest:.4g}), predicted {row.predicted:.4g} [{row.low:.4g} to {row.high:.4g}]"
        f" {row.error:+.0%}, formula {formula}, replay {replay}{marks}"
    )


def main() -> int:
    """Run the verb, and print the table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only pairs whose runs contain this text")
    parser.add_argument("--skip", default="nothing", help="no pairs whose runs contain this text")
    parser.add_argument("--flink", default="", help="only this version")
    parser.add_argument("--tier", default="runtime", choices=["runtime", "formulas"])
    parser.add_argument("--drawn", type=int, default=0, help="instead, this many drawn jobs of the reference runtime")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    options = parser.parse_args()
    if options.drawn:
        for compared in twin_jobs.drawn(options.drawn):
            print(compared, flush=True)
        return 0
    bases, rows = Bases(), []
    chosen = [
        p
        for p in pairs(read_all().values())
        if options.only in (names := f"{p.base.name} {p.changed.name}")
        and options.skip not in names
        and options.flink in p.base.flink
    ]
    for number, pair in enumerate(chosen, start=1):
        try:
            found = list(rows_of(pair, bases, Tier(options.tier)))
        except BarrierscopeError as error:
            print(f"{pair.base.name} -> {pair.changed.name} {pair.base.flink}: {error}", flush=True)
            continue
        rows += found
        for row in found:
            print(json.dumps(asdict(row)) if options.json else f"{number}/{len(chosen)} {line(row)}", flush=True)
    for text in summary(rows):
        print(text, file=sys.stderr if options.json else sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
