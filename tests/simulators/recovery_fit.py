"""How well the formula of recovery times predicts published recoveries at intervals that it was not fitted on.

Usage: python -m tests.simulators.recovery_fit FILE ...

A file has a line for each injected failure, as the authors of Khaos publish them:
``FailureMetrics{experimentId=50, jobId='iot_10000', avgThr=5438.9, avgLat=589.8, recTime=82.0}``. The number after the
job is the interval of checkpoints in milliseconds, the throughput is in records a second, and the time in seconds.
Lines without an interval belong to experiments that changed it while the job ran, and are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backend.advisor.twin.model.recovery import ObservedRecovery, fitted, left_out

_LINE = re.compile(r"jobId='\w+?_(\d+)'.*?avgThr=([\d.]+).*?recTime=([\d.]+)")


@dataclass(frozen=True)
class Scored:
    """The mean error of predictions for each interval, as a share of the observed time; and of the regression."""

    interval_ms: float
    count: int
    error_ratio: float
    regression_error_ratio: float


def read(text: str) -> list[ObservedRecovery]:
    """Return the recoveries of a file."""
    found = []
    for line in text.splitlines():
        match = _LINE.search(line)
        if match is not None:
            interval, rate, seconds = map(float, match.groups())
            found.append(ObservedRecovery(interval_ms=interval, rate_per_s=rate, recovery_ms=seconds * 1000))
    return found


def scored(recoveries: Sequence[ObservedRecovery]) -> list[Scored]:
    """Predict the recoveries of each interval from those of the others."""
    pairs = left_out(recoveries)
    found = []
    for interval in sorted({r.interval_ms for r in recoveries}):
        errors = [abs(ratio - 1) for one, ratio in pairs if one.interval_ms == interval]
        plain = _regression_errors(recoveries, interval)
        found.append(Scored(interval, len(errors), float(np.mean(errors)), float(np.mean(plain))))
    return found


def _regression_errors(recoveries: Sequence[ObservedRecovery], interval_ms: float) -> list[float]:
    def row(one: ObservedRecovery) -> list[float]:
        return [1.0, one.rate_per_s, one.interval_ms]

    known = [r for r in recoveries if r.interval_ms != interval_ms]
    weights, *_ = np.linalg.lstsq(
        np.array([row(r) for r in known]), np.array([r.recovery_ms for r in known]), rcond=None
    )
    held = [r for r in recoveries if r.interval_ms == interval_ms]
    return [abs(float(np.dot(weights, row(r))) / r.recovery_ms - 1) for r in held]


def report(name: str, recoveries: Sequence[ObservedRecovery]) -> str:
    """Return the table of one file."""
    model, rows = fitted(recoveries), scored(recoveries)
    lines = [f"{name}: {len(recoveries)} failures", f"{'interval left out':>18}  failures  mean error  regression"]
    lines += [
        f"{r.interval_ms / 1000:>16.0f} s  {r.count:>8}  {r.error_ratio:>10.1%}  {r.regression_error_ratio:>10.1%}"
        for r in rows
    ]
    total = sum(r.count for r in rows)
    mean = sum(r.error_ratio * r.count for r in rows) / total
    plain = sum(r.regression_error_ratio * r.count for r in rows) / total
    lines.append(f"{'all':>18}  {total:>8}  {mean:>10.1%}  {plain:>10.1%}")
    lines.append(
        f"fit of all: outage {model.outage_ms.value / 1000:.1f} s, {model.replayed_ratio.value:.2f} intervals read "
        f"again, capacity {model.capacity_per_s:.0f} records/s, {model.checkpoint_cost_ms:.0f} ms for a checkpoint"
    )
    return "\n".join(lines)


def main(paths: Sequence[str]) -> int:
    """Print the tables of the files. Return 2 if there is none, or one without recoveries."""
    if not paths:
        print('name the files: make recovery-fit DATA="failures-iot.txt failures-ysb.txt"', file=sys.stderr)
        return 2
    for path in map(Path, paths):
        recoveries = read(path.read_text(encoding="utf-8"))
        if not recoveries:
            print(f"{path}: no line names a job with an interval, such as jobId='iot_10000'", file=sys.stderr)
            return 2
        print(report(path.stem, recoveries), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
