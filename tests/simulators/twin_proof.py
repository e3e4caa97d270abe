"""The twin's proof on a real Flink: calibrate on a run as it is, predict the changed run, then compare with it.

    python -m tests.simulators.twin_proof [--only TEXT] [--half HALF] [--flink VERSION] [--tier TIER] [--json]
    python -m tests.simulators.twin_proof --kept FILE ...
    python -m tests.simulators.twin_proof --drawn COUNT

Every pair of recorded runs that differ by one change is a prediction, in both directions. Beside the twin's prediction
stand the plain formulas (CM-1 to CM-5) on the same model and today's replay of the recorded checkpoints. Nothing of the
changed run is known to any of them, but how long it lasted: queues of a young job grow, so the twin is asked for the
state of the changed job in the middle of the checkpoints that count.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from backend.advisor.advice import Interval
from backend.advisor.replay import Recordings
from backend.advisor.situation import situation
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.fast.fast import seeds_within
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.outcomes import Tier
from backend.advisor.twin.tiers.calibration import calibrated
from backend.advisor.twin.tiers.predicting import predict
from backend.domain.advice import Mode
from backend.domain.engines import flink
from backend.domain.errors import BarrierscopeError
from tests.simulators import twin_jobs, twin_table
from tests.simulators.twin_recordings import Pair, Recording, pairs, read_all
from tests.simulators.twin_runs import Half, half_of
from tests.simulators.twin_table import Row

MEASURES = {
    "duration": ("duration_ms", "end_to_end_ms"),
    "persisted": ("persisted_bytes", "persisted_bytes"),
    "throughput": ("records_per_s", "records_per_s"),
}


class Bases:
    """Models of base runs, each built once, and calibrated once in each tier."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str, Tier], JobModel] = {}

    def model(self, base: Recording, tier: Tier = Tier.RUNTIME) -> JobModel:
        """Return the calibrated model of a run, built from what Barrierscope's collector read of it."""
        key = base.name, base.flink, tier
        if key not in self._models:
            self._models[key] = calibrated(base.evidence, engine=flink(base.flink), version=base.flink, tier=tier)
        return self._models[key]


def rows_of(pair: Pair, bases: Bases, tier: Tier = Tier.RUNTIME) -> Iterator[Row]:
    """Predict the changed run of a pair, and yield a row for each measure that it has."""
    model = replace(bases.model(pair.base, tier), age_ms=1000 * pair.changed.middle_s)
    # As many simulations as a what-if gets in the product.
    seeds = seeds_within(changed(model, pair.what_if)) if tier is Tier.FAST else ()
    twin = predict(model, pair.what_if, tier, seeds=seeds if len(seeds) > 1 else None)
    plain = predict(model, pair.what_if, Tier.FORMULAS)
    replay = _replayed(pair)
    counted = pair.changed.counted()
    seen: dict[str, list[float]] = {
        "duration": [float(c.header.end_to_end_duration_ms or 0) for c in counted],
        "persisted": [float(c.header.persisted_bytes or 0) for c in counted],
    }
    means = {"duration": statistics.fmean(twin.durations_ms) if twin.durations_ms else None}
    for measure, (field, median) in MEASURES.items():
        measured = getattr(pair.changed.medians, median)
        found: Interval | None = getattr(twin, field)
        if measured is None or found is None or (measure == "persisted" and not measured):
            continue
        formula: Interval | None = getattr(plain, field)
        again = replay.get(measure)
        values = seen.get(measure) or [measured]
        yield Row(
            tier=tier,
            base=pair.base.name,
            changed=pair.changed.name,
            flink=pair.base.flink,
            change=_words(pair.what_if),
            measure=measure,
            measured=measured,
            measured_mean=statistics.fmean(values),
            smallest=min(values),
            largest=max(values),
            predicted=found.value,
            predicted_mean=means.get(measure),
            low=found.low,
            high=found.high,
            inside=sum(found.low <= v <= found.high for v in values),
            count=len(values),
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


def main() -> int:
    """Run the verb, and print the table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only pairs whose runs contain this text")
    parser.add_argument("--skip", default="nothing", help="no pairs whose runs contain this text")
    parser.add_argument("--flink", default="", help="only this version")
    parser.add_argument("--half", default="", help="only this half of the recordings: tuning or scoring")
    parser.add_argument("--tier", default=Tier.RUNTIME.value, choices=[t.value for t in Tier])
    parser.add_argument("--drawn", type=int, default=0, help="instead, this many drawn jobs of the reference runtime")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--kept", type=Path, help="a file of rows as JSON: pairs in it are not predicted again")
    options = parser.parse_args()
    if options.drawn:
        for compared in twin_jobs.drawn(options.drawn):
            print(compared, flush=True)
        return 0
    tier = Tier(options.tier)
    rows = twin_table.read(options.kept) if options.kept is not None and options.kept.exists() else []
    known = {(r.base, r.changed, r.flink) for r in rows if r.tier is tier}
    bases = Bases()
    chosen = [
        p
        for p in pairs(read_all().values())
        if options.only in (names := f"{p.base.name} {p.changed.name}")
        and options.skip not in names
        and options.flink in p.base.flink
        and options.half in half_of(p.base.name, p.base.flink)
        and (p.base.name, p.changed.name, p.base.flink) not in known
    ]
    for number, pair in enumerate(chosen, start=1):
        try:
            found = list(rows_of(pair, bases, tier))
        except BarrierscopeError as error:
            print(f"{pair.base.name} -> {pair.changed.name} {pair.base.flink}: {error}", flush=True)
            continue
        rows += found
        if options.kept is not None:
            twin_table.append(options.kept, found)
        for row in found:
            text = twin_table.json_of(row) if options.json else f"{number}/{len(chosen)} {twin_table.line(row)}"
            print(text, flush=True)
    out = sys.stderr if options.json else sys.stdout
    for half in Half:
        of = [r for r in rows if r.tier is tier and r.half is half]
        print(f"{half} half, {len({(r.base, r.changed, r.flink) for r in of})} pairs", file=out)
        print("\n".join(twin_table.summary(of)), file=out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
