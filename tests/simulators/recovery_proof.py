"""The twin's predictions of recoveries compared with killed TaskManagers of a real Flink.

    python -m tests.simulators.recovery_proof [FOLDER]

A job with a checkpoint every 5 s and a rate of 1200/s is modelled from what was read of it before the first kill, so no
failure is known. The model predicts that job's recoveries, and under the other intervals, rates and placements those of
the other runs. Only the time since the last checkpoint is told, as it is known when a worker dies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from backend.advisor.advice import Interval
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.model.building import build
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.recovery import Failure, cost_in, cost_of_failure, rate_per_s, recovery_model_of
from backend.domain.engines import flink
from tests.simulators.twin_recordings import Recording, Recovery, read_all

FOLDER = Path(__file__).parents[1] / "conformance" / "flink_running" / "recovery"
BASE = "recovery-5s"
_MS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRow:
    """One kill. ``predicted_ms`` is the time to recover for this kill, and the interval holds for 90 % of all kills."""

    name: str
    flink: str
    recovery: Recovery
    predicted_ms: float
    outage_ms: float
    low_ms: float
    high_ms: float

    @property
    def error(self) -> float:
        """The distance of the prediction as a share of the measured time."""
        return self.predicted_ms / (self.recovery.caught_up_s * _MS) - 1


def before_failure(recording: Recording) -> JobModel:
    """Return the model of a run from what was read of it before the first kill."""
    until = recording.started_at + timedelta(seconds=recording.kills_s[0])
    known = recording.evidence
    ended = tuple(
        c
        for c in known.checkpoints
        if c.header.end_to_end_duration_ms is not None
        and c.header.triggered_at + timedelta(milliseconds=c.header.end_to_end_duration_ms) < until
    )
    past = replace(
        known,
        checkpoints=ended,
        pressure=tuple(r for r in known.pressure if r.observed_at < until),
        exceptions=(),
        restart_count=None,
        now=until,
    )
    return build(past, engine=flink(recording.flink), version=recording.flink)


def compared(recordings: dict[tuple[str, str], Recording]) -> Iterator[RecoveryRow]:
    """Predict every recovery from the run ``BASE`` of the same version."""
    bases = {version: before_failure(r) for (name, version), r in recordings.items() if name == BASE}
    for (_, version), recording in recordings.items():
        if version not in bases:
            continue
        base = recordings[BASE, version]
        interval_ms = float(recording.arguments["interval"].removesuffix("s")) * _MS
        load = float(recording.arguments["rate"]) / float(base.arguments["rate"])
        model = changed(bases[version], WhatIf(interval_ms=interval_ms, load_factor=load))
        for recovery in recording.recoveries():
            yield _row(recording, model, recovery)


def _row(recording: Recording, model: JobModel, recovery: Recovery) -> RecoveryRow:
    known = Interval(*((recovery.since_s or 0.0) * _MS,) * 3)
    told = replace(
        recovery_model_of(model, duration_ms=known, failure=Failure.WORKER), replayed_ratio=Interval(0.0, 0.0, 0.0)
    )
    rate = rate_per_s(model) or 0.0
    found = cost_of_failure(told, interval_ms=model.settings.interval_ms, rate_per_s=rate)
    usual = cost_in(model, duration_ms=_usual_ms(recording), failure=Failure.WORKER)
    assert found.recovery_ms is not None
    assert usual.recovery_ms is not None
    return RecoveryRow(
        name=recording.name,
        flink=recording.flink,
        recovery=recovery,
        predicted_ms=found.recovery_ms.value,
        outage_ms=found.outage_ms.value,
        low_ms=usual.recovery_ms.low,
        high_ms=usual.recovery_ms.high,
    )


def _usual_ms(recording: Recording) -> Interval:
    """Return the duration of the first checkpoints, before any failure."""
    until = recording.started_at + timedelta(seconds=recording.kills_s[0])
    took = sorted(
        c.header.end_to_end_duration_ms
        for c in recording.evidence.checkpoints
        if c.header.end_to_end_duration_ms is not None and c.header.triggered_at < until
    )
    return Interval(float(took[len(took) // 2]), float(took[0]), float(took[-1]))


def line(row: RecoveryRow) -> str:
    """Return one row as text."""
    r = row.recovery
    return (
        f"{row.name} {row.flink}: killed at {r.killed_s:.0f} s, {r.since_s or 0:.1f} s after a trigger; outage"
        f" {r.back_s:.1f} s (predicted {row.outage_ms / _MS:.1f}); recovered after {r.caught_up_s:.1f} s, predicted"
        f" {row.predicted_ms / _MS:.1f} s ({row.error:+.0%}), 90 % of kills {row.low_ms / _MS:.0f} to"
        f" {row.high_ms / _MS:.0f} s"
    )


def main(arguments: list[str]) -> int:
    """Print all predictions."""
    rows = list(compared(read_all(Path(arguments[0]) if arguments else FOLDER)))
    for row in rows:
        print(line(row))
    print(f"within 25 %: {sum(abs(r.error) <= 0.25 for r in rows)} of {len(rows)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
