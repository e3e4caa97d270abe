"""How near the reference runtime comes to a recorded Flink, beside the plain formula queued bytes / drain rate.

The job of the recordings B2 and C2 (one job, aligned and unaligned, under backpressure) is modelled from its recorded
arguments and run on virtual time over several seeds; medians of the end-to-end durations are compared. The formula is
the peer: what one would reckon on the back of an envelope from the bytes that were seen queued. It knows nothing of
unaligned checkpoints.

    python benchmarks/fidelity_bench.py [--pairs 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from tests.support.flink_model import (
    UNALIGNED,
    Comparison,
    compare,
    completed_checkpoints,
    lab_job,
    recorded_arguments,
)


def measure(seeds: int) -> tuple[tuple[Comparison, Comparison], list[float]]:
    """The comparison over the checkpoints of all seeds, and the aligned error of each seed."""
    job = lab_job(recorded_arguments("B2"))
    aligned, unaligned, errors = [], [], []
    for seed in range(seeds):
        spec = replace(job, seed=job.seed + seed)
        of_seed = completed_checkpoints(spec)[0]
        aligned += of_seed
        unaligned += completed_checkpoints(spec.with_config(UNALIGNED))[0]
        errors.append(compare(of_seed, unaligned)[0].error)
    return compare(aligned, unaligned), errors


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=3, help="seeds; each is run aligned and unaligned [3]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    compared, errors = measure(max(1, options.pairs))
    if options.json:
        rows = [asdict(c) | {"error": c.error, "formula_error": c.formula_error} for c in compared]
        print(json.dumps({"seeds": len(errors), "comparisons": rows, "aligned_error_by_seed": errors}, indent=2))
        return
    for comparison in compared:
        print(comparison.line())
    of_b2 = compared[0]
    assert of_b2.formula_error is not None
    ratio = abs(of_b2.error) / abs(of_b2.formula_error)
    print(f"  error of the runtime / error of the formula, aligned: {ratio:.2f}")
    print(f"  aligned error by seed: {', '.join(f'{error:+.0%}' for error in errors)}")


if __name__ == "__main__":
    main(sys.argv[1:])
